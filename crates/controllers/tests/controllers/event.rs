//! Events grow old.

use std::time::Duration;

use serde_json::json;
use sheaf_testbed::kubectl::Kubectl;

use crate::scenario::on_a_cluster;

const EVENTS: &str = "/api/v1/namespaces/default/events";

async fn make(kubectl: &Kubectl, name: &str) {
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": "Namespace", "name": "default", "namespace": "default"},
        "reason": "Tested", "message": "", "type": "Normal",
    });
    kubectl.create(EVENTS, &event).await;
}

#[test]
fn an_event_is_removed_an_hour_after_it_last_happened() {
    on_a_cluster(async |cluster, kubectl| {
        make(kubectl, "once").await;
        make(kubectl, "again").await;
        tokio::time::sleep(Duration::from_secs(50 * 60)).await;
        let now = cluster.world.clock.rfc3339();
        kubectl.patch(&format!("{EVENTS}/again"), &json!({"lastTimestamp": now, "count": 2})).await;
        tokio::time::sleep(Duration::from_secs(8 * 60)).await;
        assert_eq!(kubectl.names(EVENTS).await, ["again", "once"]);
        tokio::time::sleep(Duration::from_secs(5 * 60)).await;
        assert_eq!(kubectl.names(EVENTS).await, ["again"]);
        tokio::time::sleep(Duration::from_secs(60 * 60)).await;
        assert_eq!(kubectl.names(EVENTS).await, [""; 0]);
    });
}

#[test]
fn a_flood_of_old_events_is_removed_in_bounded_rounds() {
    on_a_cluster(async |_, kubectl| {
        for n in 0..1100 {
            make(kubectl, &format!("e{n}")).await;
        }
        tokio::time::sleep(Duration::from_secs(62 * 60 + 30)).await;
        assert_eq!(kubectl.names(EVENTS).await, [""; 0]);
    });
}
