//! Two people, one object.

use std::{sync::Barrier, thread};

use serde_json::{Value, json};
use sheaf_tests::http::Connection;

use crate::{connection, kubectl_in};

const ROUNDS: usize = 8;

fn count(object: &Value) -> usize {
    object["data"]["count"].as_str().unwrap().parse().unwrap()
}

fn counted_up(mut object: Value) -> Value {
    object["data"]["count"] = (count(&object) + 1).to_string().into();
    object
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn of_two_who_saw_the_same_version_exactly_one_writes() {
    let kubectl = kubectl_in("racing-kubectl");
    kubectl.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: counter}, data: {count: '0'}}");
    let together = Barrier::new(2);
    let race = || {
        let mut outcomes = Vec::new();
        for _ in 0..ROUNDS {
            let next = counted_up(kubectl.json(&["get", "cm", "counter"]));
            together.wait();
            let ended = kubectl.run_with_input(&["replace", "-f", "-"], &next.to_string());
            let lost =
                ended.stderr.contains("(Conflict)") && ended.stderr.contains("the object has been modified");
            assert!(ended.code == 0 || lost, "{ended:?}");
            outcomes.push(ended.code == 0);
            together.wait();
        }
        outcomes
    };
    let (one, other) = thread::scope(|scope| {
        let other = scope.spawn(race);
        (race(), other.join().unwrap())
    });
    for (round, (one, other)) in one.iter().zip(&other).enumerate() {
        assert!(one != other, "round {round}: both {}", if *one { "won" } else { "lost" });
    }
    assert_eq!(count(&kubectl.json(&["get", "cm", "counter"])), ROUNDS);
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn no_increment_is_lost_however_many_race() {
    const EACH: usize = 100;
    let kubectl = kubectl_in("racing-many");
    kubectl.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: counter}, data: {count: '0'}}");
    let path = "/api/v1/namespaces/racing-many/configmaps/counter";
    let increment = |connection: &mut Connection| -> usize {
        let mut conflicts = 0;
        loop {
            let next = counted_up(connection.get(path).object());
            let answer = connection.put(path, &next);
            if answer.code == 200 {
                return conflicts;
            }
            let (code, reason, _) = answer.refusal();
            assert_eq!((code, reason.as_str()), (409, "Conflict"));
            conflicts += 1;
        }
    };
    let conflicts: usize = thread::scope(|scope| {
        let racer = || {
            let mut connection = connection();
            (0..EACH).map(|_| increment(&mut connection)).sum::<usize>()
        };
        let racers: Vec<_> = (0..4).map(|_| scope.spawn(racer)).collect();
        racers.into_iter().map(|racer| racer.join().unwrap()).sum()
    });
    assert_eq!(count(&kubectl.json(&["get", "cm", "counter"])), 4 * EACH);
    assert!(conflicts > 0, "nobody ever met");
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn patches_without_a_version_all_land() {
    let kubectl = kubectl_in("racing-patches");
    kubectl.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: board}}");
    thread::scope(|scope| {
        for writer in 0..4 {
            scope.spawn(move || {
                let mut connection = connection();
                for n in 0..50 {
                    let patch = json!({"data": {format!("w{writer}-{n}"): "here"}}).to_string();
                    let path = "/api/v1/namespaces/racing-patches/configmaps/board";
                    connection.patch(path, "merge", &patch).object();
                }
            });
        }
    });
    let board = kubectl.json(&["get", "cm", "board"]);
    assert_eq!(board["data"].as_object().unwrap().len(), 200);
}
