//! Watchers that never read: they cost the server little and the others nothing.

use std::{
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use sheaf_tests::node::Node;

const SLOW: usize = 200;
const WRITERS: usize = 8;
const CHANGES: usize = 10_000;
const PATH: &str = "/api/v1/namespaces/default/configmaps";

fn object(writer: usize, change: usize) -> Value {
    // Large enough that all changes of one watch fit no socket buffer.
    let data = json!({"change": change.to_string(), "padding": "x".repeat(2000)});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("w{writer}"), "labels": {"written": "here"}}, "data": data})
}

#[test]
fn two_hundred_watches_that_never_read_cost_little_and_hold_up_nobody() {
    let node = Node::start();
    let credentials = node.admin();
    let version = credentials.connect(&node).get(PATH).object()["metadata"]["resourceVersion"].clone();
    let watch =
        format!("{PATH}?watch=1&labelSelector=written%3Dhere&resourceVersion={}", version.as_str().unwrap());
    let mut slow: Vec<_> = (0..SLOW).map(|_| credentials.connect(&node).watch(&watch)).collect();
    let mut quick = credentials.connect(&node).watch(&watch);
    let before = node.resident_kib();

    let each = CHANGES / WRITERS;
    let slowest = thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (node, credentials) = (&node, &credentials);
            scope.spawn(move || {
                let mut connection = credentials.connect(node);
                connection.post(PATH, &object(writer, 0)).object();
                for change in 1..each {
                    connection.put(&format!("{PATH}/w{writer}"), &object(writer, change)).object();
                }
            });
        }
        let reader = scope.spawn(|| {
            let (mut next, mut slowest, mut last) = ([0; WRITERS], Duration::ZERO, Instant::now());
            for _ in 0..each * WRITERS {
                let event = quick.next().expect("the quick reader is not cut off");
                let writer: usize =
                    event["object"]["metadata"]["name"].as_str().unwrap()[1..].parse().unwrap();
                assert_eq!(event["object"]["data"]["change"], next[writer].to_string(), "{}", event["type"]);
                next[writer] += 1;
                slowest = slowest.max(last.elapsed());
                last = Instant::now();
            }
            slowest
        });
        reader.join().unwrap()
    });
    assert!(slowest < Duration::from_secs(5), "the quick reader once waited {slowest:?}");
    let grown = node.resident_kib().saturating_sub(before) / 1024;
    assert!(grown < 150, "the server grew by {grown} MiB");

    // One that wakes up late gets the truth in order, as far as the server still knows it.
    let mut seen = [0; WRITERS];
    let late = slow.first_mut().unwrap();
    for _ in 0..each * WRITERS {
        let event = late.next().expect("the watch goes on or says why not");
        if event["type"] == "ERROR" {
            assert_eq!(
                (&event["object"]["code"], &event["object"]["reason"]),
                (&json!(410), &json!("Expired"))
            );
            break;
        }
        let writer: usize = event["object"]["metadata"]["name"].as_str().unwrap()[1..].parse().unwrap();
        assert_eq!(event["object"]["data"]["change"], seen[writer].to_string());
        seen[writer] += 1;
    }
    drop(slow);
    assert_eq!(credentials.connect(&node).get("/readyz").code, 200);
}

#[test]
fn watches_of_large_objects_that_never_read_hold_a_piece_each_and_not_all_they_missed() {
    const LARGE: usize = 40;
    let node = Node::start();
    let credentials = node.admin();
    let mut connection = credentials.connect(&node);
    let version = connection.get(PATH).object()["metadata"]["resourceVersion"].clone();
    for n in 0..LARGE {
        let metadata = json!({"name": format!("large-{n}"), "labels": {"written": "here"}});
        let data = json!({"padding": "x".repeat(1_000_000)});
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
        connection.post(PATH, &object).object();
    }
    let before = node.resident_kib();
    let watch =
        format!("{PATH}?watch=1&labelSelector=written%3Dhere&resourceVersion={}", version.as_str().unwrap());
    let slow: Vec<_> = (0..8).map(|_| credentials.connect(&node).watch(&watch)).collect();
    thread::sleep(Duration::from_secs(2));
    let grown = node.resident_kib().saturating_sub(before) / 1024;
    assert!(grown < 100, "the server grew by {grown} MiB for {} watches", slow.len());
    // And who reads gets everything.
    let mut late = slow.into_iter().next().unwrap();
    for n in 0..LARGE {
        let event = late.next().expect("the watch goes on");
        assert_eq!(event["object"]["metadata"]["name"], format!("large-{n}"));
    }
}
