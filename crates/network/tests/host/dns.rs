//! Names, asked from inside a guest.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket},
    path::Path,
    thread,
    time::Duration,
};

use hickory_proto::{
    op::{Message, MessageType, OpCode, Query, ResponseCode},
    rr::{Name, RData, Record, RecordType, rdata::A},
};
use sheaf_network::Network;

use crate::{
    guest::Guest,
    place::{GATEWAY, OUTSIDE, Place, config, port, within},
};

const PATIENCE: Option<Duration> = Some(Duration::from_secs(5));

fn question(name: &str) -> Vec<u8> {
    let mut message = Message::new(77, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::A));
    message.to_vec().unwrap()
}

/// The answer as a list of records, and its code.
fn words(bytes: &[u8]) -> (Vec<String>, ResponseCode) {
    let message = Message::from_vec(bytes).unwrap();
    assert_eq!(message.metadata.id, 77);
    let records = message.answers.iter().map(|record| record.data.to_string()).collect();
    (records, message.metadata.response_code)
}

fn over_udp(namespace: &str, name: &str) -> (Vec<String>, ResponseCode) {
    within(namespace, || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.set_read_timeout(PATIENCE).unwrap();
        socket.send_to(&question(name), (GATEWAY, 53)).unwrap();
        let mut answer = [0; 4096];
        let (length, from) = socket.recv_from(&mut answer).unwrap();
        assert_eq!(from, SocketAddr::from((GATEWAY, 53)));
        words(&answer[..length])
    })
}

fn over_tcp(namespace: &str, name: &str) -> (Vec<String>, ResponseCode) {
    within(namespace, || {
        let mut stream = TcpStream::connect((GATEWAY, 53)).unwrap();
        stream.set_read_timeout(PATIENCE).unwrap();
        let question = question(name);
        stream.write_all(&[&(question.len() as u16).to_be_bytes()[..], &question].concat()).unwrap();
        let mut length = [0; 2];
        stream.read_exact(&mut length).unwrap();
        let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut answer).unwrap();
        words(&answer)
    })
}

/// A resolver outside that answers one question, after a forged answer to another.
fn resolve_once(namespace: &str, address: Ipv4Addr) -> thread::JoinHandle<()> {
    let socket = within(namespace, || UdpSocket::bind((OUTSIDE, 53)).unwrap());
    socket.set_read_timeout(PATIENCE).unwrap();
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        let (length, from) = socket.recv_from(&mut bytes).unwrap();
        let question = Message::from_vec(&bytes[..length]).unwrap();
        let mut answer = Message::response(question.metadata.id, OpCode::Query);
        answer.add_queries(question.queries.iter().cloned());
        let record =
            |address| Record::from_rdata(question.queries[0].name().clone(), 60, RData::A(A(address)));
        let mut forged = answer.clone();
        forged.metadata.id ^= 1;
        forged.add_answer(record(Ipv4Addr::new(6, 6, 6, 6)));
        socket.send_to(&forged.to_vec().unwrap(), from).unwrap();
        answer.add_answer(record(address));
        socket.send_to(&answer.to_vec().unwrap(), from).unwrap();
    })
}

async fn network_with(resolv_conf: &Path) -> Network {
    let mut config = config();
    config.resolv_conf = resolv_conf.to_owned();
    let network = Network::new(config).unwrap();
    network.ensure().await.unwrap();
    network.set_ports(&[port(2)]).await.unwrap();
    network
}

#[test]
fn a_guest_finds_its_neighbours_and_the_world_by_name() {
    let Some(place) = Place::new() else { return };
    let directory = tempfile::tempdir().unwrap();
    let resolv_conf = directory.path().join("resolv.conf");
    let outside = place.outside();
    place.on_the_node(async || {
        let network = network_with(&resolv_conf).await;
        let guest = Guest::plug_in(&place, "guest", port(2).mac, network.open_tap(&port(2)).await.unwrap());
        guest.settle("10.52.0.2");
        network.set_names([("db.prod", Ipv4Addr::new(10, 52, 1, 1))]);
        let dns = tokio::spawn(network.serve_dns());
        let namespace = guest.namespace.clone();
        let asked = tokio::task::spawn_blocking(move || {
            let known = (vec!["10.52.1.1".to_owned()], ResponseCode::NoError);
            // The sockets open as soon as the server is first polled.
            thread::sleep(Duration::from_millis(200));
            assert_eq!(over_udp(&namespace, "db.prod.sheaf.internal."), known);
            assert_eq!(over_tcp(&namespace, "db.prod.sheaf.internal."), known);
            assert_eq!(over_udp(&namespace, "x.prod.sheaf.internal.").1, ResponseCode::NXDomain);
            // No resolver is known: that is said, and nobody waits for it.
            assert_eq!(over_udp(&namespace, "example.org.").1, ResponseCode::ServFail);
            assert_eq!(over_tcp(&namespace, "example.org.").1, ResponseCode::ServFail);
            // Now there is one, and it is noticed.
            std::fs::write(&resolv_conf, format!("nameserver {OUTSIDE}\n")).unwrap();
            thread::sleep(Duration::from_millis(3200));
            let resolver = resolve_once(&outside, Ipv4Addr::new(203, 0, 113, 5));
            let (records, _) = over_udp(&namespace, "example.org.");
            assert_eq!(records, ["203.0.113.5"], "and a forged answer is not taken");
            resolver.join().unwrap();
        });
        asked.await.unwrap();
        dns.abort();
        drop(guest);
        network.remove_everything().await.unwrap();
    });
}
