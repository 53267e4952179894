//! Creating and changing objects.

use http::Method;
use serde_json::json;

use crate::house::{House, MAPS, version};

#[tokio::test(start_paused = true)]
async fn a_created_object_has_what_only_the_server_can_say() {
    let house = House::new().await;
    let made = house.config_map("a", json!({"x": "1"})).await;
    assert_eq!(made["metadata"]["creationTimestamp"], "2030-01-01T00:00:00Z");
    assert_eq!(made["metadata"]["uid"].as_str().unwrap().len(), 36);
    assert!(version(&made) > 0);
    assert_eq!(house.get(&format!("{MAPS}/a")).await.ok(), made);
    let again = house.post(MAPS, json!({"metadata": {"name": "a"}})).await;
    assert_eq!(again.refusal(), (409, "AlreadyExists"));
    assert_eq!(again.message(), "configmaps \"a\" already exists");
}

#[tokio::test(start_paused = true)]
async fn two_writers_with_one_version_one_wins() {
    let house = House::new().await;
    let read = house.config_map("a", json!({"x": "1"})).await;
    let mut first = read.clone();
    first["data"]["x"] = "2".into();
    let mut second = read.clone();
    second["data"]["x"] = "3".into();
    let won = house.put(&format!("{MAPS}/a"), first).await.ok();
    assert!(version(&won) > version(&read));
    let lost = house.put(&format!("{MAPS}/a"), second).await;
    assert_eq!(lost.refusal(), (409, "Conflict"));
    assert_eq!(
        lost.message(),
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again"
    );
    assert_eq!(house.get(&format!("{MAPS}/a")).await.ok()["data"]["x"], "2");
}

#[tokio::test(start_paused = true)]
async fn an_update_without_a_version_takes_what_is_there() {
    let house = House::new().await;
    house.config_map("a", json!({"x": "1"})).await;
    let updated =
        house.put(&format!("{MAPS}/a"), json!({"metadata": {"name": "a"}, "data": {"x": "2"}})).await.ok();
    assert_eq!(updated["data"], json!({"x": "2"}));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_changes_nothing_takes_no_version() {
    let house = House::new().await;
    let made = house.config_map("a", json!({"x": "1"})).await;
    let same = house.put(&format!("{MAPS}/a"), made.clone()).await.ok();
    assert_eq!(same, made);
    let same = house.patch(&format!("{MAPS}/a"), "merge-patch", json!({"data": {"x": "1"}})).await.ok();
    assert_eq!(same, made);
}

#[tokio::test(start_paused = true)]
async fn generated_names_differ_and_keep_their_prefix() {
    let house = House::new().await;
    let mut names = std::collections::BTreeSet::new();
    for _ in 0..20 {
        let made = house.post(MAPS, json!({"metadata": {"generateName": "job-"}})).await.ok();
        let name = made["metadata"]["name"].as_str().unwrap().to_string();
        assert!(name.starts_with("job-") && name.len() == 9, "{name}");
        assert!(names.insert(name));
    }
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_answers_as_if_and_changes_nothing() {
    let house = House::new().await;
    let before = house.store.revision().await.unwrap();
    let imagined = house.post(&format!("{MAPS}?dryRun=All"), json!({"metadata": {"name": "a"}})).await.ok();
    assert!(imagined["metadata"]["uid"].is_string());
    assert_eq!(house.get(&format!("{MAPS}/a")).await.refusal(), (404, "NotFound"));
    assert_eq!(house.store.revision().await.unwrap(), before);
    house.config_map("a", json!({"x": "1"})).await;
    let before = house.store.revision().await.unwrap();
    assert_eq!(house.post(&format!("{MAPS}?dryRun=All"), json!({"metadata": {"name": "a"}})).await.code, 409);
    let patched =
        house.patch(&format!("{MAPS}/a?dryRun=All"), "merge-patch", json!({"data": {"x": "2"}})).await.ok();
    assert_eq!(patched["data"]["x"], "2");
    house.delete(&format!("{MAPS}/a?dryRun=All")).await.ok();
    assert_eq!(house.store.revision().await.unwrap(), before);
}

#[tokio::test(start_paused = true)]
async fn unknown_fields_are_refused_warned_of_or_dropped_as_asked() {
    let house = House::new().await;
    let odd = |name: &str| json!({"metadata": {"name": name}, "data": {"a": "b"}, "colour": "red"});
    let strict = house.post(&format!("{MAPS}?fieldValidation=Strict"), odd("a")).await;
    assert_eq!(strict.refusal(), (400, "BadRequest"));
    assert!(
        strict.message().contains("strict decoding error: unknown field \"colour\""),
        "{}",
        strict.message()
    );
    let warned = house.post(&format!("{MAPS}?fieldValidation=Warn"), odd("b")).await;
    assert_eq!(warned.warnings, ["299 - \"unknown field \\\"colour\\\"\""]);
    assert!(warned.ok().get("colour").is_none());
    let ignored = house.post(&format!("{MAPS}?fieldValidation=Ignore"), odd("c")).await;
    assert!(ignored.warnings.is_empty());
    assert!(ignored.ok().get("colour").is_none());
    let repeated = house
        .send(
            Method::POST,
            &format!("{MAPS}?fieldValidation=Strict"),
            &[],
            r#"{"metadata":{"name":"d","name":"e"}}"#,
        )
        .await;
    assert!(repeated.message().contains("duplicate field \"metadata.name\""), "{}", repeated.message());
}

#[tokio::test(start_paused = true)]
async fn each_sort_of_patch_does_what_it_says() {
    let house = House::new().await;
    let uri = format!("{MAPS}/a");
    house.config_map("a", json!({"x": "1", "y": "2"})).await;
    let merged = house.patch(&uri, "merge-patch", json!({"data": {"x": null, "z": "3"}})).await.ok();
    assert_eq!(merged["data"], json!({"y": "2", "z": "3"}));
    let patched = house
        .patch(
            &uri,
            "json-patch",
            json!([{"op": "test", "path": "/data/y", "value": "2"}, {"op": "remove", "path": "/data/y"}]),
        )
        .await
        .ok();
    assert_eq!(patched["data"], json!({"z": "3"}));
    let failed =
        house.patch(&uri, "json-patch", json!([{"op": "test", "path": "/data/z", "value": "4"}])).await;
    assert_eq!(failed.refusal(), (422, "Invalid"));
    let broken = house.patch(&uri, "json-patch", json!({"op": "test"})).await;
    assert_eq!(broken.refusal(), (400, "BadRequest"));
    house.patch(&uri, "merge-patch", json!({"metadata": {"finalizers": ["a.b/c"]}})).await.ok();
    let strategic =
        house.patch(&uri, "strategic-merge-patch", json!({"metadata": {"finalizers": ["a.b/d"]}})).await.ok();
    let mut merged: Vec<&str> =
        strategic["metadata"]["finalizers"].as_array().unwrap().iter().map(|f| f.as_str().unwrap()).collect();
    merged.sort_unstable();
    assert_eq!(merged, ["a.b/c", "a.b/d"]);
    let unknown = house.patch(&uri, "apply-patch", json!({})).await;
    assert_eq!(unknown.refusal(), (415, "UnsupportedMediaType"));
}

#[tokio::test(start_paused = true)]
async fn a_patch_that_names_a_version_is_held_to_it() {
    let house = House::new().await;
    let uri = format!("{MAPS}/a");
    let made = house.config_map("a", json!({"x": "1"})).await;
    house.patch(&uri, "merge-patch", json!({"data": {"x": "2"}})).await.ok();
    let stale =
        json!({"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"x": "3"}});
    assert_eq!(house.patch(&uri, "merge-patch", stale).await.refusal(), (409, "Conflict"));
}

#[tokio::test(start_paused = true)]
async fn concurrent_patches_all_land() {
    let house = std::rc::Rc::new(House::new().await);
    house.config_map("a", json!({})).await;
    let patches = (0..20).map(|n| {
        let house = house.clone();
        async move {
            house
                .patch(&format!("{MAPS}/a"), "merge-patch", json!({"data": {format!("k{n}"): "v"}}))
                .await
                .ok()
        }
    });
    futures::future::join_all(patches).await;
    assert_eq!(house.get(&format!("{MAPS}/a")).await.ok()["data"].as_object().unwrap().len(), 20);
}

#[tokio::test(start_paused = true)]
async fn objects_live_only_in_namespaces_that_are_there() {
    let house = House::new().await;
    let nowhere =
        house.post("/api/v1/namespaces/nowhere/configmaps", json!({"metadata": {"name": "a"}})).await;
    assert_eq!(nowhere.refusal(), (404, "NotFound"));
    assert_eq!(nowhere.message(), "namespaces \"nowhere\" not found");
    let elsewhere = house.post(MAPS, json!({"metadata": {"name": "a", "namespace": "kube-system"}})).await;
    assert_eq!(elsewhere.refusal(), (400, "BadRequest"));
    assert_eq!(
        elsewhere.message(),
        "the namespace of the provided object does not match the namespace sent on the request"
    );
}

#[tokio::test(start_paused = true)]
async fn invalid_objects_are_told_field_by_field() {
    let house = House::new().await;
    let bad = house.post(MAPS, json!({"metadata": {"name": "Not Legal", "labels": {"-": "x"}}})).await;
    assert_eq!(bad.refusal(), (422, "Invalid"));
    let fields: Vec<&str> = bad.body["details"]["causes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["field"].as_str().unwrap())
        .collect();
    assert_eq!(fields, ["metadata.name", "metadata.labels"]);
    assert_eq!(bad.body["details"]["kind"], "ConfigMap");
    let other = house.post(MAPS, json!({"kind": "Secret", "metadata": {"name": "a"}})).await;
    assert_eq!(other.refusal(), (400, "BadRequest"));
}

#[tokio::test(start_paused = true)]
async fn everything_is_also_under_the_cluster_prefix() {
    let house = House::new().await;
    let made = house.config_map("a", json!({"x": "1"})).await;
    assert_eq!(house.get(&format!("/k8s/clusters/local{MAPS}/a")).await.ok(), made);
    assert_eq!(house.get("/k8s/clusters/local/version").await.ok()["major"], "1");
    assert_eq!(house.get("/k8s/clusters/local/apis").await.ok()["kind"], "APIGroupList");
}

#[tokio::test(start_paused = true)]
async fn both_event_groups_show_one_event() {
    let house = House::new().await;
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"},
        "regarding": {"kind": "Node", "name": "n", "namespace": "default"}, "note": "it rains", "type": "Normal",
        "reason": "Rain", "reportingController": "sky", "reportingInstance": "sky-1", "action": "Fall",
        "eventTime": "2030-01-01T00:00:00.000000Z",
    });
    let made = house.post("/apis/events.k8s.io/v1/namespaces/default/events", event).await.ok();
    assert_eq!(made["note"], "it rains");
    let core = house.get("/api/v1/namespaces/default/events/e").await.ok();
    assert_eq!((&core["message"], &core["involvedObject"]["name"]), (&json!("it rains"), &json!("n")));
    let listed = house.get("/api/v1/events?fieldSelector=involvedObject.name%3Dn,reason%3DRain").await.ok();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_put_of_what_is_not_there_makes_it_for_some_kinds_and_not_for_others() {
    let house = House::new().await;
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "late"}, "rules": []});
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/late";
    let made = house.put(path, role.clone()).await;
    assert_eq!(made.code, 201);
    assert_eq!(house.put(path, role.clone()).await.code, 200);
    house.delete(path).await.ok();
    // Who speaks of a version means an object that was there.
    let mut stale = role;
    stale["metadata"]["resourceVersion"] = "7".into();
    assert_eq!(house.put(path, stale).await.refusal(), (404, "NotFound"));
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}});
    assert_eq!(house.put(&format!("{MAPS}/late"), map).await.refusal(), (404, "NotFound"));
}

#[tokio::test(start_paused = true)]
async fn only_a_delete_closes_a_namespace() {
    let house = House::new().await;
    let closed = json!({"status": {"phase": "Terminating"}});
    let refused = house.patch("/api/v1/namespaces/default/status", "merge-patch", closed).await;
    assert_eq!(refused.refusal(), (422, "Invalid"));
    assert!(refused.message().contains("may only be 'Active' if `deletionTimestamp` is empty"));
    house.config_map("still-open", json!({})).await;
}
