//! Following changes.

use std::time::Duration;

use serde_json::json;

use crate::house::{House, MAPS, version};

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_list_sees_every_change_once_and_in_order() {
    let house = House::new().await;
    house.config_map("a", json!({"x": "1"})).await;
    let list = house.get(MAPS).await.ok();
    let mut watch = house.watch(&format!("{MAPS}?watch=1&resourceVersion={}", version(&list))).await;
    house.config_map("b", json!({})).await;
    house.patch(&format!("{MAPS}/a"), "merge-patch", json!({"data": {"x": "2"}})).await.ok();
    house.delete(&format!("{MAPS}/b")).await.ok();
    assert_eq!(watch.told().await, "ADDED b");
    assert_eq!(watch.told().await, "MODIFIED a");
    let deleted = watch.next().await.unwrap();
    assert_eq!((&deleted["type"], &deleted["object"]["metadata"]["name"]), (&json!("DELETED"), &json!("b")));
    // A deleted object shows the version of its deletion.
    assert_eq!(version(&deleted["object"]), house.store.revision().await.unwrap().0);
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_a_version_begins_with_what_is_there() {
    let house = House::new().await;
    house.config_map("a", json!({})).await;
    house.config_map("b", json!({})).await;
    let mut watch = house.watch(&format!("{MAPS}?watch=1")).await;
    assert_eq!([watch.told().await, watch.told().await], ["ADDED a", "ADDED b"]);
    house.config_map("c", json!({})).await;
    assert_eq!(watch.told().await, "ADDED c");
}

#[tokio::test(start_paused = true)]
async fn a_selector_makes_objects_come_and_go() {
    let house = House::new().await;
    house.config_map("a", json!({})).await;
    let mut watch = house.watch(&format!("{MAPS}?watch=1&labelSelector=team%3Dred")).await;
    let label = async |team: &str| {
        house
            .patch(&format!("{MAPS}/a"), "merge-patch", json!({"metadata": {"labels": {"team": team}}}))
            .await
            .ok()
    };
    label("red").await;
    assert_eq!(watch.told().await, "ADDED a");
    house.patch(&format!("{MAPS}/a"), "merge-patch", json!({"data": {"x": "1"}})).await.ok();
    assert_eq!(watch.told().await, "MODIFIED a");
    label("blue").await;
    assert_eq!(watch.told().await, "DELETED a");
    label("green").await;
    label("red").await;
    assert_eq!(watch.told().await, "ADDED a");
}

#[tokio::test(start_paused = true)]
async fn initial_events_end_with_a_bookmark() {
    let house = House::new().await;
    house.config_map("a", json!({})).await;
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = house.watch(&format!("{MAPS}?{query}")).await;
    assert_eq!(watch.told().await, "ADDED a");
    let bookmark = watch.next().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    house.config_map("b", json!({})).await;
    assert_eq!(watch.told().await, "ADDED b");
    let refused = house.get(&format!("{MAPS}?watch=1&sendInitialEvents=true")).await;
    assert_eq!(refused.refusal(), (422, "Invalid"));
}

#[tokio::test(start_paused = true)]
async fn bookmarks_move_on_though_nothing_of_the_kind_changes() {
    let house = House::new().await;
    let start = version(&house.get(MAPS).await.ok());
    let uri = format!("{MAPS}?watch=1&allowWatchBookmarks=true&resourceVersion={start}");
    let mut watch = house.watch(&uri).await;
    for n in 0..5 {
        house.post("/api/v1/namespaces", json!({"metadata": {"name": format!("n{n}")}})).await.ok();
    }
    let bookmark = watch.next().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(version(&bookmark["object"]), house.store.revision().await.unwrap().0);
    // Resuming at the bookmark misses nothing.
    let mut resumed =
        house.watch(&format!("{MAPS}?watch=1&resourceVersion={}", version(&bookmark["object"]))).await;
    house.config_map("late", json!({})).await;
    assert_eq!(resumed.told().await, "ADDED late");
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_when_its_time_is_over() {
    let house = House::new().await;
    let mut watch = house.watch(&format!("{MAPS}?watch=1&timeoutSeconds=5")).await;
    let began = tokio::time::Instant::now();
    assert!(watch.next().await.is_none());
    assert_eq!(began.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_the_future_waits_for_it() {
    let house = House::new().await;
    let now = house.store.revision().await.unwrap().0;
    let mut watch = house.watch(&format!("{MAPS}?watch=1&resourceVersion={}", now + 2)).await;
    house.config_map("one", json!({})).await;
    house.config_map("two", json!({})).await;
    house.config_map("three", json!({})).await;
    assert_eq!(watch.told().await, "ADDED three");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_too_old_is_told_to_list_again() {
    let house = House::new().await;
    let first = version(&house.config_map("a", json!({})).await);
    for n in 0..9000 {
        house.patch(&format!("{MAPS}/a"), "merge-patch", json!({"data": {"n": n.to_string()}})).await.ok();
    }
    let mut watch = house.watch(&format!("{MAPS}?watch=1&resourceVersion={first}")).await;
    let event = watch.next().await.unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["code"], &event["object"]["reason"]),
        (&json!("ERROR"), &json!(410), &json!("Expired"))
    );
    assert!(watch.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_watch_resumes_across_a_restart_of_the_server() {
    let house = House::new().await;
    let seen = version(&house.config_map("a", json!({})).await);
    house.config_map("b", json!({})).await;
    house.delete(&format!("{MAPS}/b")).await.ok();
    let again = House::on(house.store.clone()).await;
    let mut watch = again.watch(&format!("{MAPS}?watch=1&resourceVersion={seen}")).await;
    assert_eq!([watch.told().await, watch.told().await], ["ADDED b", "DELETED b"]);
}

#[tokio::test(start_paused = true)]
async fn stopping_the_server_ends_its_watches() {
    let house = House::new().await;
    let mut watch = house.watch(&format!("{MAPS}?watch=1")).await;
    house.server.stop();
    assert!(tokio::time::timeout(Duration::from_secs(1), watch.next()).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_one_object_by_name_sees_only_that() {
    let house = House::new().await;
    let mut watch = house.watch(&format!("{MAPS}?watch=1&fieldSelector=metadata.name%3Db")).await;
    house.config_map("a", json!({})).await;
    house.config_map("b", json!({})).await;
    assert_eq!(watch.told().await, "ADDED b");
}
