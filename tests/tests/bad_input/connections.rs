//! Clients that stop halfway: in the handshake, in the head, in the body, in the answer.

use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    thread,
    time::{Duration, Instant},
};

use serde_json::json;
use sheaf_tests::{http::Credentials, node::Node, patience::until};

use crate::{Untouched, config_map, node};

/// A prompt answer shows that nobody else's trouble is ours.
#[track_caller]
fn answers_promptly(node: &Node) {
    let asked = Instant::now();
    assert_eq!(node.admin().connect(node).get("/api/v1/namespaces/default").code, 200);
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
}

#[test]
fn half_a_handshake_holds_up_nobody() {
    let node = node();
    let mut silent: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(node.address()).unwrap()).collect();
    for (n, stream) in silent.iter_mut().enumerate() {
        // The beginning of a ClientHello that claims to be longer than what comes, or nothing at all.
        let hello = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
        stream.write_all(&hello[..n % hello.len()]).unwrap();
    }
    answers_promptly(node);
    for stream in &silent[..50] {
        stream.shutdown(Shutdown::Both).unwrap();
    }
    answers_promptly(node);
    let mut garbage = TcpStream::connect(node.address()).unwrap();
    garbage.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    garbage.write_all(&[0xff; 4096]).unwrap();
    // It is told so, or simply let go; it is not left hanging.
    let mut rest = Vec::new();
    _ = garbage.read_to_end(&mut rest);
    assert!(rest.len() < 4096);
    answers_promptly(node);
}

#[test]
fn a_head_that_is_not_http_is_refused() {
    let mut there = Untouched::new("heads");
    for head in [
        "NONSENSE\r\n\r\n".to_owned(),
        "GET /version HTTP/9.9\r\n\r\n".to_owned(),
        "GET /version HTTP/1.1\r\nhost: x\r\nbad header\r\n\r\n".to_owned(),
        "POST /api/v1/namespaces HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n".to_owned(),
        format!("GET /version HTTP/1.1\r\nhost: x\r\nlong: {}\r\n\r\n", "x".repeat(1024 * 1024)),
    ] {
        let mut connection = node().admin().connect(node());
        // The server may close before it has read all.
        _ = connection.write(head.as_bytes());
        match connection.head() {
            Ok((code, _)) => {
                assert!((400..500).contains(&code), "{code} for {}", &head[..head.len().min(60)])
            }
            Err(_closed) => {}
        }
    }
    assert_eq!(there.look(), there.before);
    answers_promptly(node());
}

#[test]
fn a_body_that_ends_early_makes_nothing() {
    let mut there = Untouched::new("cut-bodies");
    let body = config_map("cut").to_string();
    for sent in [0, 1, body.len() / 2, body.len() - 1] {
        let mut connection = node().admin().connect(node());
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            there.path,
            body.len()
        );
        connection.write(&[head.as_bytes(), &body.as_bytes()[..sent]].concat()).unwrap();
        drop(connection);
    }
    // Chunked, and cut inside a chunk.
    let mut connection = node().admin().connect(node());
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nffff\r\n{body}",
        there.path
    );
    connection.write(head.as_bytes()).unwrap();
    drop(connection);
    thread::sleep(Duration::from_millis(300));
    assert_eq!(there.look(), there.before);
}

#[test]
fn a_write_whose_client_left_is_done_or_not_done_but_never_half() {
    let mut there = Untouched::new("left-alone");
    let path = there.path.clone();
    for n in 0..50 {
        let mut connection = node().admin().connect(node());
        let body = config_map(&format!("left-{n}")).to_string();
        connection.send("POST", &path, &[("content-type", "application/json")], body.as_bytes()).unwrap();
        drop(connection);
    }
    let mut last = 0;
    let all = until("the writes settle", || {
        thread::sleep(Duration::from_millis(200));
        let all = there.look();
        let count = all.as_array().unwrap().len();
        let settled = count == last;
        last = count;
        settled.then_some(all)
    });
    for object in all.as_array().unwrap() {
        assert_eq!(object["data"], json!({"a": "1"}));
    }
}

#[test]
fn connections_that_are_abandoned_are_cleaned_up() {
    let node = Node::start();
    let descriptors = || fs::read_dir(format!("/proc/{}/fd", node.pid())).unwrap().count();
    let credentials = node.admin();
    thread::sleep(Duration::from_secs(1));
    // The server's own controllers watch, too.
    let watches = || -> u64 {
        let metrics = credentials.connect(&node).get("/metrics");
        let gauge =
            metrics.text().lines().find_map(|line| line.strip_prefix("apiserver_longrunning_requests "));
        gauge.unwrap().parse().unwrap()
    };
    let (before, watched) = (descriptors(), watches());
    for n in 0..100 {
        let mut connection = credentials.connect(&node);
        let path = match n % 3 {
            0 => "/api/v1/configmaps?watch=1",
            1 => "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            _ => "/openapi/v2",
        };
        connection.send("GET", path, &[], b"").unwrap();
        // Half of them do not even wait for the answer to begin.
        if n % 2 == 0 {
            connection.head().unwrap();
        }
        drop(connection);
    }
    until("descriptors are given back", || (descriptors() <= before + 5).then_some(()));
    until("watches are over", || (watches() <= watched).then_some(()));
    let anonymous = Credentials::anonymous(&node);
    assert_eq!(anonymous.connect(&node).get("/readyz").code, 200);
}

#[test]
fn who_forgets_the_s_of_https_is_told_so() {
    let mut plain = TcpStream::connect(node().address()).unwrap();
    plain.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    plain.write_all(b"GET /version HTTP/1.1\r\nhost: sheaf\r\n\r\n").unwrap();
    let mut answer = String::new();
    // The rest of the request is not read, so the connection may be reset after the answer.
    _ = plain.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.0 400 Bad Request\r\n"), "{answer}");
    assert!(answer.ends_with("Client sent an HTTP request to an HTTPS server.\n"), "{answer}");
    answers_promptly(node());
}

#[test]
fn a_request_under_way_is_answered_before_the_server_stops() {
    let own = Node::start();
    let mut connection = own.admin().connect(&own);
    let body = config_map("late").to_string();
    let (early, late) = body.split_at(body.len() / 2);
    let length = body.len();
    let head = format!(
        "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nhost: x\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{early}"
    );
    connection.write(head.as_bytes()).unwrap();
    // Under way is what the server has begun to read.
    thread::sleep(Duration::from_millis(300));
    let pid = rustix::process::Pid::from_raw(own.pid().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    thread::sleep(Duration::from_secs(1));
    connection.write(late.as_bytes()).unwrap();
    let (code, _) = connection.head().unwrap();
    assert_eq!(code, 201);
}

#[test]
fn strangers_cannot_fill_the_memory_with_bodies() {
    let own = Node::start();
    let before = own.resident_kib();
    let body = vec![b'x'; 3_000_000];
    let mut strangers = Vec::new();
    for n in 0..60 {
        let mut stranger = Credentials::anonymous(&own).connect(&own);
        let path = if n % 2 == 0 { "/v3-public/x" } else { "/v3-public/localProviders/local?action=login" };
        let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len() + 1);
        // The server may have answered and hung up by now.
        _ = stranger.write(head.as_bytes());
        _ = stranger.write(&body);
        strangers.push(stranger);
    }
    let grown = own.resident_kib().saturating_sub(before) / 1024;
    assert!(grown < 60, "the server grew by {grown} MiB for {} strangers", strangers.len());
    answers_promptly(&own);
}
