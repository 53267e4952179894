//! Load balancers on a real kernel: who reaches what by way of an address, and what is left when it goes.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    thread,
    time::Duration,
};

use sheaf_network::{Balanced, Listener, Network, Protocol, Reach};

use crate::{
    guest::Guest,
    place::{NODE, Place, attempt, network, port, run, within},
};

const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 50);
/// In the network of the guests themselves.
const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 52, 200, 1);
const PATIENCE: Duration = Duration::from_secs(2);

fn balanced(address: Ipv4Addr, guests: &[u8]) -> Balanced {
    Balanced {
        address,
        listeners: vec![
            Listener { protocol: Protocol::Tcp, port: 80, guest_port: 8080 },
            Listener { protocol: Protocol::Udp, port: 53, guest_port: 5353 },
        ],
        guests: guests.iter().map(|last| Ipv4Addr::new(10, 52, 0, *last)).collect(),
    }
}

/// Answers every connection and datagram in a namespace with a name, until the process ends.
fn serve(namespace: &str, name: &'static str) {
    let (tcp, udp) = within(namespace, || {
        (TcpListener::bind(("0.0.0.0", 8080)).unwrap(), UdpSocket::bind(("0.0.0.0", 5353)).unwrap())
    });
    thread::spawn(move || {
        for stream in tcp.incoming() {
            let Ok(mut stream) = stream else { continue };
            let from = stream.peer_addr().unwrap().ip();
            _ = write!(stream, "{name} {from}");
        }
    });
    thread::spawn(move || {
        let mut datagram = [0; 64];
        while let Ok((_, from)) = udp.recv_from(&mut datagram) {
            _ = udp.send_to(format!("{name} {}", from.ip()).as_bytes(), from);
        }
    });
}

/// What is answered at an address: the guest's name, and whom it takes the client for.
fn asks(namespace: &str, address: Ipv4Addr, port: u16) -> Result<(String, String), String> {
    within(namespace, || {
        let mut stream = TcpStream::connect_timeout(&SocketAddr::from((address, port)), PATIENCE)
            .map_err(|why| why.to_string())?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).map_err(|why| why.to_string())?;
        let (name, from) = said.split_once(' ').ok_or("nothing was said")?;
        Ok((name.to_owned(), from.to_owned()))
    })
}

/// Who answers four connections, in order of their names.
fn answers(namespace: &str, address: Ipv4Addr) -> Vec<String> {
    let mut names: Vec<String> = (0..4).map(|_| asks(namespace, address, 80).unwrap().0).collect();
    names.sort();
    names.dedup();
    names
}

/// Two guests that answer, on a network that is up.
async fn furnish(place: &Place, network: &Network) -> [Guest; 2] {
    network.ensure().await.unwrap();
    network.set_ports(&[port(2), port(3)]).await.unwrap();
    let one = Guest::plug_in(place, "one", port(2).mac, network.open_tap(&port(2)).await.unwrap());
    let two = Guest::plug_in(place, "two", port(3).mac, network.open_tap(&port(3)).await.unwrap());
    one.settle("10.52.0.2");
    two.settle("10.52.0.3");
    serve(&one.namespace, "one");
    serve(&two.namespace, "two");
    [one, two]
}

#[test]
fn an_address_leads_to_every_guest_from_everywhere() {
    let Some(place) = Place::new() else { return };
    let (node, outside) = (place.node(), place.outside());
    place.on_the_node(async || {
        let network = network();
        let guests = furnish(&place, &network).await;
        // Somebody remembers another who had the address.
        run(&format!("ip -n {outside} neigh replace {ADDRESS} lladdr 02:00:00:00:00:99 dev eth0 nud stale"));
        // What was learned a moment ago is not given up for what is heard next.
        thread::sleep(Duration::from_millis(1200));
        let reach =
            network.set_balanced(&[balanced(ADDRESS, &[2, 3]), balanced(INSIDE, &[2, 3])]).await.unwrap();
        assert_eq!((reach[&ADDRESS], reach[&INSIDE]), (Reach::Network, Reach::Route));
        let both = ["one".to_owned(), "two".to_owned()];
        assert_eq!(answers(&outside, ADDRESS), both, "from outside, whose memory was put right");
        assert_eq!(answers(&node, ADDRESS), both, "from the node itself");
        assert_eq!(answers(&guests[0].namespace, ADDRESS), ["two"], "from a guest to the other");
        assert_eq!(answers(&guests[1].namespace, ADDRESS), ["one"]);
        assert_eq!(answers(&guests[0].namespace, INSIDE), ["two"], "at an address of their own network");
        assert_eq!(answers(&node, INSIDE), both);
        assert_eq!(asks(&outside, ADDRESS, 80).unwrap().1, "192.0.2.2", "a guest sees who its client is");
        assert_eq!(asks(&guests[0].namespace, ADDRESS, 80).unwrap().1, "10.52.0.1");
        network.remove_everything().await.unwrap();
    });
}

#[test]
fn a_guest_that_is_taken_out_gets_nothing_more_not_even_over_udp() {
    let Some(place) = Place::new() else { return };
    let outside = place.outside();
    place.on_the_node(async || {
        let network = network();
        let _guests = furnish(&place, &network).await;
        network.set_balanced(&[balanced(ADDRESS, &[2])]).await.unwrap();
        let client = within(&outside, || {
            let client = UdpSocket::bind(("0.0.0.0", 0)).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            client.connect((ADDRESS, 53)).unwrap();
            client
        });
        let hears = || {
            client.send(b"?").unwrap();
            let mut datagram = [0; 64];
            let length = client.recv(&mut datagram).unwrap();
            String::from_utf8_lossy(&datagram[..length]).into_owned()
        };
        assert_eq!(hears(), "one 192.0.2.2");
        let mut open = within(&outside, || TcpStream::connect((ADDRESS, 80)).unwrap());
        network.set_balanced(&[balanced(ADDRESS, &[2, 3])]).await.unwrap();
        assert_eq!(hears(), "one 192.0.2.2", "a conversation goes on while its guest is there");
        network.set_balanced(&[balanced(ADDRESS, &[3])]).await.unwrap();
        assert_eq!(hears(), "two 192.0.2.2", "the same client, from the same port");
        assert_eq!(answers(&outside, ADDRESS), ["two"]);
        // What was under way ends; it is not led on by what the kernel remembers.
        open.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut rest = Vec::new();
        _ = open.write_all(b"?");
        _ = open.read_to_end(&mut rest);
        network.set_balanced(&[balanced(ADDRESS, &[])]).await.unwrap();
        let refused = asks(&outside, ADDRESS, 80).unwrap_err();
        assert!(refused.contains("refused"), "at once: {refused}");
        network.remove_everything().await.unwrap();
    });
}

#[test]
fn no_service_of_the_host_is_reached_by_way_of_an_address() {
    let Some(place) = Place::new() else { return };
    let (node, outside) = (place.node(), place.outside());
    place.on_the_node(async || {
        let network = network();
        let _guests = furnish(&place, &network).await;
        network.set_balanced(&[balanced(ADDRESS, &[2])]).await.unwrap();
        let service = TcpListener::bind(("0.0.0.0", 9999)).unwrap();
        thread::spawn(move || {
            for stream in service.incoming() {
                _ = stream.map(|mut stream| write!(stream, "host itself"));
            }
        });
        assert_eq!(asks(&outside, NODE, 9999).unwrap().0, "host", "it is there");
        for namespace in [&outside, &node] {
            let refused = asks(namespace, ADDRESS, 9999).unwrap_err();
            assert!(refused.contains("refused"), "{refused}");
        }
        let ping = attempt(&format!("ip netns exec {outside} busybox ping -c 1 -W 2 {ADDRESS}"));
        assert!(ping.status.success(), "but it answers to its name");
        network.remove_everything().await.unwrap();
    });
}

#[test]
fn what_an_earlier_process_left_is_found_and_removed() {
    let Some(place) = Place::new() else { return };
    let (node, outside) = (place.node(), place.outside());
    place.on_the_node(async || {
        let before = network();
        let _guests = furnish(&place, &before).await;
        let other = Ipv4Addr::new(192, 0, 2, 51);
        before.set_balanced(&[balanced(ADDRESS, &[2]), balanced(other, &[2])]).await.unwrap();
        drop(before);
        let after = network();
        after.ensure().await.unwrap();
        after.set_ports(&[port(2), port(3)]).await.unwrap();
        assert_eq!(answers(&outside, ADDRESS), ["one"], "it goes on until somebody says otherwise");
        let addresses = after.addresses().await.unwrap();
        assert_eq!(addresses.held.len(), 2);
        assert!(addresses.own.contains(&NODE) && !addresses.own.contains(&ADDRESS));
        after.set_balanced(&[balanced(other, &[3])]).await.unwrap();
        assert_eq!(answers(&outside, other), ["two"]);
        assert!(!run(&format!("ip -n {node} addr")).contains("192.0.2.50"));
        // Somebody takes away what is ours, and it is put back.
        for harm in [
            format!("ip -n {node} link del sheaf-lb"),
            format!("ip -n {node} addr flush dev sheaf-lb"),
            format!("ip netns exec {node} nft delete table inet sheaf_lb"),
        ] {
            run(&harm);
            after.set_balanced(&[balanced(other, &[3])]).await.unwrap();
            assert_eq!(answers(&outside, other), ["two"], "after {harm}");
        }
        after.set_balanced(&[]).await.unwrap();
        assert!(asks(&outside, other, 80).is_err());
        assert!(!run(&format!("ip -n {node} addr")).contains("192.0.2.51"));
        assert!(!run(&format!("ip netns exec {node} nft list ruleset")).contains("sheaf_lb"));
        assert!(!attempt(&format!("ip -n {node} link show sheaf-lb")).status.success());
        after.remove_everything().await.unwrap();
    });
}
