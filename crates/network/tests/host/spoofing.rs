//! What a guest can get through its tap, frame by frame.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    net::Ipv4Addr,
    os::fd::OwnedFd,
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

use sheaf_network::Mac;

use crate::place::{GATEWAY, Place, network, port, run};

const EVERYONE: [u8; 6] = [0xff; 6];
/// In front of every frame of a tap that speaks the virtio header.
const VIRTIO_HEADER: [u8; 10] = [0; 10];

fn ethernet(from: Mac, kind: u16, payload: &[u8]) -> Vec<u8> {
    [&EVERYONE[..], &from.0, &kind.to_be_bytes(), payload].concat()
}

fn udp(from: Mac, source: Ipv4Addr, ports: (u16, u16)) -> Vec<u8> {
    let destination = Ipv4Addr::BROADCAST;
    let payload = [0x5a; 32];
    let length = 8 + payload.len() as u16;
    let mut header = [&[0x45, 0][..], &(20 + length).to_be_bytes(), &[0, 1, 0, 0, 64, 17, 0, 0]].concat();
    header.extend_from_slice(&source.octets());
    header.extend_from_slice(&destination.octets());
    let sum: u32 = header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    let datagram =
        [&ports.0.to_be_bytes()[..], &ports.1.to_be_bytes(), &length.to_be_bytes(), &[0, 0], &payload];
    ethernet(from, 0x0800, &[header, datagram.concat()].concat())
}

fn arp(from: Mac, sender: Mac, address: Ipv4Addr) -> Vec<u8> {
    let body = [&[0, 1, 8, 0, 6, 4, 0, 2][..], &sender.0, &address.octets(), &[0; 6], &[10, 52, 0, 99]];
    ethernet(from, 0x0806, &body.concat())
}

fn rarp(from: Mac) -> Vec<u8> {
    let body = [&[0, 1, 8, 0, 6, 4, 0, 3][..], &from.0, &[0; 4], &from.0, &[0; 4]];
    ethernet(from, 0x8035, &body.concat())
}

fn router_advertisement(from: Mac) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 16, 58, 255];
    packet.extend_from_slice(&[0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, 1]);
    packet.extend_from_slice(&[0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    packet.extend_from_slice(&[134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0]);
    ethernet(from, 0x86dd, &packet)
}

/// Everything a guest may send, and much that it may not; each by what it is.
fn frames() -> Vec<(&'static str, Vec<u8>, bool)> {
    let (own, other) = (port(2).mac, port(3).mac);
    let (mine, theirs) = (port(2).addresses[0], port(3).addresses[0]);
    let none = Ipv4Addr::UNSPECIFIED;
    let mut tagged = udp(own, mine, (1000, 2000));
    tagged.splice(12..12, [0x81, 0, 0, 7]);
    let mut short_arp = arp(own, own, mine);
    short_arp[18] = 4;
    vec![
        ("its own MAC and address", udp(own, mine, (1000, 2000)), true),
        ("another's MAC", udp(other, mine, (1000, 2000)), false),
        ("another's MAC and address", udp(other, theirs, (1000, 2000)), false),
        ("another's address", udp(own, theirs, (1000, 2000)), false),
        ("the gateway's address", udp(own, GATEWAY, (1000, 2000)), false),
        ("an address of nobody's", udp(own, Ipv4Addr::new(198, 51, 100, 7), (1000, 2000)), false),
        ("no address, and not DHCP", udp(own, none, (1000, 2000)), false),
        ("a question to DHCP", udp(own, none, (68, 67)), true),
        ("an answer of DHCP", udp(own, mine, (67, 68)), false),
        ("an answer of DHCP from an odd port", udp(own, mine, (1067, 68)), false),
        ("ARP for itself", arp(own, own, mine), true),
        ("a probe for a duplicate", arp(own, own, none), true),
        ("ARP for another's address", arp(own, own, theirs), false),
        ("ARP for the gateway", arp(own, own, GATEWAY), false),
        ("ARP with another's MAC inside", arp(own, other, mine), false),
        ("a probe with another's MAC inside", arp(own, other, none), false),
        ("ARP of an odd shape", short_arp, false),
        ("RARP of its own MAC", rarp(own), true),
        ("RARP of another's MAC", rarp(other), false),
        ("a router advertisement", router_advertisement(own), false),
        ("a VLAN tag", tagged, false),
        ("an unknown protocol", ethernet(own, 0x88b5, &[0x5a; 50]), false),
        ("LLC", ethernet(own, 38, &[0x5a; 50]), false),
    ]
}

/// What arrives at a tap, from now on.
fn listen(tap: OwnedFd) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    let mut tap = File::from(tap);
    thread::spawn(move || {
        let mut frame = vec![0; 4096];
        while let Ok(length) = tap.read(&mut frame) {
            let _ = sender.send(frame[VIRTIO_HEADER.len()..length].to_vec());
        }
    });
    receiver
}

/// Which of the frames arrive at the neighbour.
fn arriving(sender: OwnedFd, receiver: OwnedFd) -> Vec<&'static str> {
    let heard = listen(receiver);
    let mut sender = File::from(sender);
    let mut arrived = Vec::new();
    for (what, frame, _) in frames() {
        sender.write_all(&[&VIRTIO_HEADER[..], &frame].concat()).unwrap();
        // A marker that always passes comes behind it, so nothing is waited for in vain.
        let marker = udp(port(2).mac, port(2).addresses[0], (4000, 4001));
        sender.write_all(&[&VIRTIO_HEADER[..], &marker].concat()).unwrap();
        loop {
            let got = heard.recv_timeout(Duration::from_secs(5)).expect("the marker always arrives");
            if got == marker {
                break;
            }
            if got.starts_with(&frame) {
                arrived.push(what);
            }
        }
    }
    arrived
}

#[test]
fn a_guest_gets_through_as_itself_and_as_nobody_else() {
    let Some(place) = Place::new() else { return };
    let arrived = place.on_the_node(async || {
        let network = network();
        network.ensure().await.unwrap();
        assert_eq!(network.set_ports(&[port(2), port(3)]).await.unwrap(), []);
        let taps = (network.open_tap(&port(2)).await.unwrap(), network.open_tap(&port(3)).await.unwrap());
        let arrived = arriving(taps.0, taps.1);
        network.remove_everything().await.unwrap();
        arrived
    });
    let wanted: Vec<_> = frames().into_iter().filter(|frame| frame.2).map(|frame| frame.0).collect();
    assert_eq!(arrived, wanted);
}

#[test]
fn without_rules_every_one_of_those_frames_would_get_through() {
    let Some(place) = Place::new() else { return };
    let node = place.node();
    let arrived = place.on_the_node(async || {
        let network = network();
        network.ensure().await.unwrap();
        let taps = (network.open_tap(&port(2)).await.unwrap(), network.open_tap(&port(3)).await.unwrap());
        run(&format!("ip netns exec {node} nft delete table bridge sheaf"));
        let arrived = arriving(taps.0, taps.1);
        network.remove_everything().await.unwrap();
        arrived
    });
    assert_eq!(arrived, frames().into_iter().map(|frame| frame.0).collect::<Vec<_>>());
}

#[test]
fn a_tap_that_no_port_names_is_shut() {
    let Some(place) = Place::new() else { return };
    place.on_the_node(async || {
        let network = network();
        network.ensure().await.unwrap();
        network.set_ports(&[port(3)]).await.unwrap();
        let sender = network.open_tap(&port(2)).await.unwrap();
        let heard = listen(network.open_tap(&port(3)).await.unwrap());
        let mut sender = File::from(sender);
        let frame = udp(port(2).mac, port(2).addresses[0], (1000, 2000));
        sender.write_all(&[&VIRTIO_HEADER[..], &frame].concat()).unwrap();
        assert!(heard.recv_timeout(Duration::from_millis(300)).is_err());
        network.set_ports(&[port(2), port(3)]).await.unwrap();
        sender.write_all(&[&VIRTIO_HEADER[..], &frame].concat()).unwrap();
        assert!(heard.recv_timeout(Duration::from_secs(5)).unwrap().starts_with(&frame), "named, it is open");
        network.remove_everything().await.unwrap();
    });
}
