//! Removing objects.

use serde_json::json;

use crate::house::{House, MAPS};

#[tokio::test(start_paused = true)]
async fn a_deleted_object_is_gone_and_its_deletion_says_which() {
    let house = House::new().await;
    let made = house.config_map("a", json!({})).await;
    let status = house.delete(&format!("{MAPS}/a")).await.ok();
    assert_eq!((&status["status"], &status["details"]["uid"]), (&json!("Success"), &made["metadata"]["uid"]));
    assert_eq!(house.get(&format!("{MAPS}/a")).await.refusal(), (404, "NotFound"));
    assert_eq!(house.delete(&format!("{MAPS}/a")).await.refusal(), (404, "NotFound"));
}

#[tokio::test(start_paused = true)]
async fn finalizers_hold_an_object_until_the_last_is_gone() {
    let house = House::new().await;
    house.post(MAPS, json!({"metadata": {"name": "a", "finalizers": ["x.io/one", "x.io/two"]}})).await.ok();
    let marked = house.delete(&format!("{MAPS}/a")).await.ok();
    assert_eq!(marked["metadata"]["deletionTimestamp"], "2030-01-01T00:00:00Z");
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    let again = house.delete(&format!("{MAPS}/a")).await.ok();
    assert_eq!(again["metadata"]["resourceVersion"], marked["metadata"]["resourceVersion"]);
    let patch = |finalizers| json!({"metadata": {"finalizers": finalizers}});
    let refused =
        house.patch(&format!("{MAPS}/a"), "merge-patch", patch(json!(["x.io/one", "x.io/new"]))).await;
    assert_eq!(refused.refusal(), (422, "Invalid"));
    house.patch(&format!("{MAPS}/a"), "merge-patch", patch(json!(["x.io/two"]))).await.ok();
    assert_eq!(house.get(&format!("{MAPS}/a")).await.code, 200);
    house.patch(&format!("{MAPS}/a"), "merge-patch", patch(json!([]))).await.ok();
    assert_eq!(house.get(&format!("{MAPS}/a")).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn preconditions_protect_a_namesake() {
    let house = House::new().await;
    let made = house.config_map("a", json!({})).await;
    let other = json!({"preconditions": {"uid": "00000000-0000-4000-8000-000000000000"}});
    assert_eq!(house.delete_with(&format!("{MAPS}/a"), other).await.refusal(), (409, "Conflict"));
    let stale = json!({"preconditions": {"resourceVersion": "1"}});
    assert_eq!(house.delete_with(&format!("{MAPS}/a"), stale).await.refusal(), (409, "Conflict"));
    let right = json!({"preconditions": {"uid": made["metadata"]["uid"], "resourceVersion": made["metadata"]["resourceVersion"]}});
    house.delete_with(&format!("{MAPS}/a"), right).await.ok();
}

#[tokio::test(start_paused = true)]
async fn propagation_is_left_to_the_collector_by_its_finalizers() {
    let house = House::new().await;
    for (policy, finalizer) in [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")] {
        house.config_map(policy.to_lowercase().as_str(), json!({})).await;
        let marked = house
            .delete_with(&format!("{MAPS}/{}", policy.to_lowercase()), json!({"propagationPolicy": policy}))
            .await
            .ok();
        assert_eq!(marked["metadata"]["finalizers"], json!([finalizer]));
    }
    house.config_map("plain", json!({})).await;
    let status =
        house.delete_with(&format!("{MAPS}/plain"), json!({"propagationPolicy": "Background"})).await.ok();
    assert_eq!(status["status"], "Success");
}

#[tokio::test(start_paused = true)]
async fn a_collection_is_deleted_by_selector() {
    let house = House::new().await;
    for (name, team) in [("a", "red"), ("b", "blue"), ("c", "red")] {
        house.post(MAPS, json!({"metadata": {"name": name, "labels": {"team": team}}})).await.ok();
    }
    let deleted = house.delete(&format!("{MAPS}?labelSelector=team%3Dred")).await.ok();
    assert_eq!(deleted["items"].as_array().unwrap().len(), 2);
    let left = house.get(MAPS).await.ok();
    assert_eq!(left["items"][0]["metadata"]["name"], "b");
    assert_eq!(left["items"].as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_goes_only_when_it_is_finalized() {
    let house = House::new().await;
    house.post("/api/v1/namespaces", json!({"metadata": {"name": "n"}})).await.ok();
    let marked = house.delete("/api/v1/namespaces/n").await.ok();
    assert_eq!(marked["status"]["phase"], "Terminating");
    let refused = house.post("/api/v1/namespaces/n/configmaps", json!({"metadata": {"name": "a"}})).await;
    assert_eq!(refused.refusal(), (403, "Forbidden"));
    assert_eq!(refused.body["details"]["causes"][0]["reason"], "NamespaceTerminating");
    let mut finalized = marked.clone();
    finalized["spec"]["finalizers"] = json!([]);
    house.put("/api/v1/namespaces/n/finalize", finalized).await.ok();
    assert_eq!(house.get("/api/v1/namespaces/n").await.code, 404);
    assert_eq!(house.delete("/api/v1/namespaces/kube-system").await.refusal(), (403, "Forbidden"));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_as_large_as_it_may_be_can_be_deleted() {
    const MOST: usize = 3 * 1024 * 1024;
    let house = House::new().await;
    let heaps = house.establish_heaps().await;
    let heap = |name: &str, size: usize| {
        json!({"apiVersion": "example.com/v1", "kind": "Heap", "spec": {"a": "x".repeat(size)},
            "metadata": {"name": name, "finalizers": ["x.io/hold"]}})
    };
    let mut small = house.post(heaps, heap("a", 0)).await.ok();
    small["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    // The mark takes more than what is left.
    let large = house.post(heaps, heap("b", MOST - small.to_string().len() - 20)).await.ok();
    assert!(large["metadata"]["managedFields"].is_array(), "the owners still fit");
    let marked = house.delete(&format!("{heaps}/b")).await.ok();
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(marked["metadata"].get("managedFields"), None);
    let freed = json!({"metadata": {"finalizers": []}});
    house.patch(&format!("{heaps}/b"), "merge-patch", freed).await.ok();
    assert_eq!(house.get(&format!("{heaps}/b")).await.code, 404);
}
