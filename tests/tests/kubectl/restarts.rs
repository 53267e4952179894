//! Killed in the middle of writing, and started again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use sheaf_tests::{http::Credentials, kubectl::Kubectl, node::Node, patience};

const PATH: &str = "/api/v1/namespaces/default/configmaps";
const LABELLED: &str = "?labelSelector=written%3Dhere";

fn config_map(name: &str) -> Value {
    let data = json!({"name": name, "padding": "x".repeat(500)});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"written": "here"}}, "data": data})
}

/// Creates until the server is gone; what was acknowledged goes to `acknowledged`, by name with its version.
fn write_until_it_dies(
    credentials: &Credentials,
    address: &str,
    prefix: &str,
    acknowledged: &Mutex<BTreeMap<String, u64>>,
) {
    let Ok(mut connection) = credentials.connect_to(address) else { return };
    for n in 0.. {
        let name = format!("{prefix}-{n}");
        let body = config_map(&name).to_string();
        let headers = [("content-type", "application/json")];
        let Ok(answer) = connection.try_ask("POST", PATH, &headers, body.as_bytes()) else { return };
        let version = answer.object()["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        acknowledged.lock().unwrap().insert(name, version);
    }
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn what_was_acknowledged_before_a_kill_is_there_after_it() {
    let mut node = Node::start();
    let acknowledged = Mutex::new(BTreeMap::new());
    for life in 0..3 {
        let (credentials, address) = (node.admin(), node.address().to_owned());
        thread::scope(|scope| {
            for writer in 0..4 {
                let (credentials, address, acknowledged) = (&credentials, &address, &acknowledged);
                scope.spawn(move || {
                    write_until_it_dies(credentials, address, &format!("life{life}-w{writer}"), acknowledged);
                });
            }
            thread::sleep(Duration::from_millis(700));
            patience::until("enough writes to prove anything", || {
                (acknowledged.lock().unwrap().len() > 20 * (life + 1)).then_some(())
            });
            node.kill();
        });
        node = node.start_again();
        let acknowledged = acknowledged.lock().unwrap();
        let kubectl = Kubectl::admin(&node, "restarts");
        let list = kubectl.json(&["get", "cm", "--namespace=default", "-l", "written=here"]);
        let found: BTreeMap<_, _> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| (item["metadata"]["name"].as_str().unwrap().to_owned(), item))
            .collect();
        for (name, version) in acknowledged.iter() {
            let item = found.get(name).unwrap_or_else(|| panic!("{name} was acknowledged and is gone"));
            assert_eq!(item["metadata"]["resourceVersion"], version.to_string(), "{name}");
        }
        // What was under way when the power went is there as a whole or not at all.
        for (name, item) in &found {
            assert_eq!(item["data"], config_map(name)["data"], "{name}");
        }
        let newest = list["metadata"]["resourceVersion"].as_str().map(str::to_owned);
        let highest = *acknowledged.values().max().unwrap();
        drop(acknowledged);
        let now = node.admin().connect(&node).get(PATH).object();
        let now: u64 = now["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        assert!(now >= highest, "versions went back from {highest} to {now} ({newest:?})");
    }
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn a_watch_resumed_across_a_kill_misses_nothing_and_repeats_nothing() {
    let mut node = Node::start();
    let (credentials, address) = (node.admin(), node.address().to_owned());
    let began = credentials.connect(&node).get(&format!("{PATH}{LABELLED}")).object();
    let mut position: u64 = began["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    let mut events: Vec<(u64, String)> = Vec::new();
    let mut see = |event: &Value, position: &mut u64| {
        assert_eq!(event["type"], "ADDED", "{event}");
        let metadata = &event["object"]["metadata"];
        let version: u64 = metadata["resourceVersion"].as_str().unwrap().parse().unwrap();
        assert!(version > *position, "{version} after {position}");
        *position = version;
        events.push((version, metadata["name"].as_str().unwrap().to_owned()));
    };

    let (acknowledged, dead) = (Mutex::new(BTreeMap::new()), AtomicBool::new(false));
    let mut watch =
        credentials.connect(&node).watch(&format!("{PATH}{LABELLED}&watch=1&resourceVersion={position}"));
    thread::scope(|scope| {
        scope.spawn(|| write_until_it_dies(&credentials, &address, "before", &acknowledged));
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(500));
            node.kill();
            dead.store(true, Ordering::Relaxed);
        });
        while let Some(event) = watch.next() {
            see(&event, &mut position);
        }
    });
    assert!(dead.load(Ordering::Relaxed), "the watch ended before the server did");

    let node = node.start_again();
    let mut writer = credentials.connect(&node);
    for n in 0..20 {
        writer.post(PATH, &config_map(&format!("after-{n}"))).object();
    }
    let list = writer.get(&format!("{PATH}{LABELLED}")).object();
    let wanted: BTreeSet<String> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
        .collect();
    let resume = format!("{PATH}{LABELLED}&watch=1&resourceVersion={position}");
    let mut watch = credentials.connect(&node).watch(&resume);
    let version =
        |item: &Value| item["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    let last = list["items"].as_array().unwrap().iter().map(version).max().unwrap();
    while position < last {
        see(&watch.next().expect("more events"), &mut position);
    }
    let seen: Vec<_> = events.iter().map(|(_, name)| name.clone()).collect();
    assert_eq!(seen.iter().cloned().collect::<BTreeSet<_>>(), wanted);
    assert_eq!(seen.len(), wanted.len());
    let acknowledged = acknowledged.into_inner().unwrap();
    assert!(acknowledged.keys().all(|name| wanted.contains(name)));
}
