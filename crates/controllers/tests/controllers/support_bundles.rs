//! Support bundles find a node, end when they take too long, and go when nobody fetches them.

use std::time::Duration;

use serde_json::{Value, json};
use sheaf_testbed::kubectl::Kubectl;

use crate::{
    scenario::{Scenario, on_a_cluster},
    simulated_node::*,
};

const BUNDLES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/harvester-system/supportbundles";
const SYSTEM_EVENTS: &str = "/api/v1/namespaces/harvester-system/events";
const MINUTE: Duration = Duration::from_secs(60);

fn bundle(spec: Value) -> Value {
    let mut wanted = json!({"description": "it hangs"});
    for (field, value) in spec.as_object().unwrap() {
        wanted[field] = value.clone();
    }
    json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "SupportBundle", "metadata": {"name": "b"}, "spec": wanted})
}

async fn status(kubectl: &Kubectl) -> Value {
    kubectl.get(&format!("{BUNDLES}/b")).await.unwrap()["status"].clone()
}

fn begin() -> Scenario<impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl)> {
    Scenario {
        prepared: async |kubectl: &Kubectl| furnish(kubectl).await,
        happens: async |kubectl: &Kubectl| {
            kubectl.create(BUNDLES, &bundle(json!({"timeout": 0}))).await;
        },
        ends: async |kubectl: &Kubectl| {
            let status = status(kubectl).await;
            assert_eq!((&status["state"], &status["nodeName"]), (&json!("generating"), &json!("n1")));
        },
    }
}

#[test]
fn a_bundle_is_bound_to_a_node_that_is_ready() {
    begin().arrives_and_rests();
    begin().arrives_however_interrupted();
}

#[test]
fn a_bundle_waits_for_a_node_and_fails_when_none_comes() {
    on_a_cluster(async |_, kubectl| {
        furnish_without_nodes(kubectl).await;
        kubectl.create(BUNDLES, &bundle(json!({"timeout": 3}))).await;
        tokio::time::sleep(2 * MINUTE).await;
        assert_eq!(status(kubectl).await, Value::Null);
        tokio::time::sleep(2 * MINUTE).await;
        let status = status(kubectl).await;
        assert_eq!(status["state"], "error");
        assert_eq!(status["conditions"][0]["status"], "False");
        assert!(
            status["conditions"][0]["message"].as_str().unwrap().contains("no node is ready"),
            "{status}"
        );
        let told = items(kubectl, SYSTEM_EVENTS).await;
        assert!(told.iter().any(|event| event["reason"] == "SupportBundleFailed"));
    });
}

#[test]
fn one_that_is_ready_goes_after_its_time_and_one_that_failed_stays_to_be_read() {
    on_a_cluster(async |cluster, kubectl| {
        furnish(kubectl).await;
        kubectl.create(BUNDLES, &bundle(json!({"expiration": 10}))).await;
        tokio::time::sleep(MINUTE).await;
        let ready = json!({"status": {"state": "ready", "progress": 100, "conditions": [
            {"type": "Initialized", "status": "True", "lastTransitionTime": cluster.world.clock.rfc3339()}]}});
        kubectl.patch(&format!("{BUNDLES}/b"), &ready).await;
        tokio::time::sleep(9 * MINUTE).await;
        assert_eq!(kubectl.names(BUNDLES).await, ["b"]);
        tokio::time::sleep(2 * MINUTE).await;
        assert_eq!(kubectl.names(BUNDLES).await, [""; 0]);

        kubectl.create(BUNDLES, &bundle(json!({"timeout": 5, "expiration": 10}))).await;
        tokio::time::sleep(6 * MINUTE).await;
        assert_eq!(status(kubectl).await["state"], "error");
        tokio::time::sleep(30 * MINUTE).await;
        assert_eq!(kubectl.names(BUNDLES).await, ["b"]);
    });
}
