//! Five thousand objects, a page at a time.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use serde_json::{Value, json};
use sheaf_tests::http::Connection;

use crate::{connection, kubectl_in};

const HOW_MANY: usize = 5_000;
const NAMESPACE: &str = "paging";

fn path(more: &str) -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/secrets{more}")
}

fn secret(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": {"page": "yes"}}})
}

fn fill() {
    thread::scope(|scope| {
        for writer in 0..8 {
            scope.spawn(move || {
                let mut connection = connection();
                for n in (writer..HOW_MANY).step_by(8) {
                    connection.post(&path(""), &secret(&format!("s{n:04}"))).object();
                }
            });
        }
    });
}

/// All pages of `limit`: their names in order, and the versions they were told to be of.
fn read_all(connection: &mut Connection, limit: usize) -> (Vec<String>, BTreeSet<String>) {
    let (mut names, mut versions, mut next) = (Vec::new(), BTreeSet::new(), String::new());
    loop {
        let query = format!("?limit={limit}&labelSelector=page%3Dyes&continue={next}");
        let page = connection.get(&path(&query)).object();
        let items = page["items"].as_array().unwrap();
        names.extend(items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()));
        versions.insert(page["metadata"]["resourceVersion"].as_str().unwrap().to_owned());
        next = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        if next.is_empty() {
            return (names, versions);
        }
        assert_eq!(items.len(), limit);
    }
}

fn changed_all_the_time(over: &AtomicBool) -> usize {
    let mut connection = connection();
    let mut changes = 0;
    while !over.load(Ordering::Relaxed) {
        let n = (changes * 977) % HOW_MANY;
        let name = format!("s{n:04}");
        match changes % 3 {
            0 => connection.post(&path(""), &secret(&format!("s{n:04}-new-{changes}"))).object(),
            1 => connection.delete(&path(&format!("/{name}"))).object(),
            _ => {
                let patch = format!(r#"{{"metadata":{{"labels":{{"page":"torn-out","at":"{changes}"}}}}}}"#);
                // It may be one that was deleted before.
                let answer = connection.patch(&path(&format!("/{name}")), "merge", &patch);
                assert!([200, 404].contains(&answer.code), "{}", answer.text());
                Value::Null
            }
        };
        changes += 1;
    }
    changes
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn five_thousand_objects_come_whole_in_pages_while_others_change_them() {
    let kubectl = kubectl_in(NAMESPACE);
    fill();
    let wanted: Vec<String> = (0..HOW_MANY).map(|n| format!("s{n:04}")).collect();

    for chunk in ["500", "1999", "0"] {
        let said = kubectl.says(&["get", "secrets", "-l", "page", "-o", "name", "--chunk-size", chunk]);
        let names: Vec<_> = said.lines().map(|line| line.strip_prefix("secret/").unwrap()).collect();
        assert_eq!(names, wanted, "in chunks of {chunk}");
    }
    let table = kubectl.says(&["get", "secrets", "-l", "page", "--no-headers", "--chunk-size=700"]);
    assert_eq!(table.lines().count(), HOW_MANY);

    let first = connection().get(&path("?limit=500")).object();
    assert_eq!(first["metadata"]["remainingItemCount"], HOW_MANY - 500);

    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        // The first page fixes what is seen; the writer starts only after it.
        let mut reader = connection();
        let page = reader.get(&path("?limit=100&labelSelector=page%3Dyes")).object();
        let writer = scope.spawn(|| changed_all_the_time(&over));
        let (mut names, mut next) = (Vec::new(), page.clone());
        loop {
            let items = next["items"].as_array().unwrap();
            names.extend(items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()));
            assert_eq!(next["metadata"]["resourceVersion"], page["metadata"]["resourceVersion"]);
            let Some(token) = next["metadata"]["continue"].as_str().filter(|token| !token.is_empty()) else {
                break;
            };
            next =
                reader.get(&path(&format!("?limit=100&labelSelector=page%3Dyes&continue={token}"))).object();
        }
        // Each later reading is of one moment, too, whatever that was.
        let (some, versions) = read_all(&mut reader, 333);
        over.store(true, Ordering::Relaxed);
        let changes = writer.join().unwrap();
        assert!(changes > 20, "only {changes} changes were made meanwhile");
        assert_eq!(names, wanted);
        assert_eq!(versions.len(), 1, "{versions:?}");
        assert_eq!(some.iter().collect::<BTreeSet<_>>().len(), some.len());
    });
}
