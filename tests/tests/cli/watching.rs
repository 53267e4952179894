//! `--watch`: what is told of changes, also of those that nobody was told of when they happened.

use std::process::Stdio;

use rustix::process::{Signal, kill_process};
use serde_json::Value;
use sheaf_tests::node::Node;

use crate::{
    person::Person,
    running::{Running, line},
};

#[test]
fn what_changed_while_nobody_listened_is_told_deletions_included() {
    let node = Node::start();
    let anna = Person::of(&node, "default");
    anna.says(&["volume", "create", "old", "--size", "1Gi", "--wait"]);
    let (watch, lines) = Running::start(&mut anna.command(&["volume", "list", "--watch"]));
    assert!(line(&lines).starts_with("NAME"));
    assert!(line(&lines).starts_with("old"));
    let (events, told) =
        Running::start(anna.command(&["volume", "list", "-w", "-o", "json"]).stderr(Stdio::null()));
    let event = |text: &str| -> (String, String) {
        let event: Value = serde_json::from_str(text).unwrap();
        let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap().to_owned();
        assert_eq!(text("/object/kind"), "PersistentVolumeClaim");
        (text("/type"), text("/object/metadata/name"))
    };
    assert_eq!(event(&line(&told)), ("ADDED".into(), "old".into()));

    // They hear nothing, their lines are cut, and things happen.
    for running in [&watch, &events] {
        kill_process(running.pid(), Signal::STOP).unwrap();
    }
    let node = node.start_again();
    anna.says(&["volume", "delete", "old", "--yes", "--wait"]);
    anna.says(&["volume", "create", "new", "--size", "1Gi", "--wait"]);
    for running in [&watch, &events] {
        kill_process(running.pid(), Signal::CONT).unwrap();
    }
    let mut seen = Vec::new();
    while seen.len() < 2 {
        let next = line(&lines);
        let word = next.split_whitespace().next().unwrap().to_owned();
        match word.as_str() {
            "old" if next.trim_end().ends_with("(deleted)") => seen.push(word),
            "new" if !seen.contains(&word) => seen.push(word),
            _ => {}
        }
    }
    let mut seen = Vec::new();
    while seen.len() < 2 {
        match event(&line(&told)) {
            (kind, name) if (kind.as_str(), name.as_str()) == ("DELETED", "old") => seen.push(name),
            (kind, name) if (kind.as_str(), name.as_str()) == ("ADDED", "new") => seen.push(name),
            _ => {}
        }
    }
    drop(node);
}
