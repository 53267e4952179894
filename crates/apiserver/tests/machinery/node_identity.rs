//! What a node may do, asked through the door as the node itself.

use serde_json::{Value, json};
use sheaf_apiserver::identity::{AUTHENTICATED, NODES, User};

use crate::house::{Answer, House, MAPS};

const NODES_PATH: &str = "/api/v1/nodes";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const EVENTS: &str = "/api/v1/namespaces/default/events";
const NEW_EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// A cluster of two nodes, where somebody reported something; asked as node `n1` from now on.
async fn house() -> House {
    let mut house = House::new().await;
    let root = house.user.clone();
    for name in ["n1", "n2"] {
        house.user = node(name);
        house.post(NODES_PATH, json!({"metadata": {"name": name}})).await.ok();
        house.post(LEASES, lease(name)).await.ok();
    }
    house.user = root;
    house.post(SECRETS, json!({"metadata": {"name": "s"}, "stringData": {"a": "b"}})).await.ok();
    house.config_map("m", json!({"a": "b"})).await;
    house.post(EVENTS, event("theirs", "n2")).await.ok();
    house.user = node("n1");
    house
}

fn node(name: &str) -> User {
    let groups = vec![NODES.into(), AUTHENTICATED.into()];
    User { name: format!("system:node:{name}"), groups, ..User::default() }
}

fn lease(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"holderIdentity": name}})
}

fn event(name: &str, host: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "default"}, "reason": "Tested", "message": "", "type": "Normal",
        "involvedObject": {"kind": "ConfigMap", "name": "m", "namespace": "default"},
        "source": {"component": "agent", "host": host}, "reportingComponent": "agent", "reportingInstance": host,
    })
}

fn new_event(name: &str, instance: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "default"}, "reason": "Tested", "action": "Testing", "note": "",
        "type": "Normal", "eventTime": "2030-01-01T00:00:00.000000Z", "reportingController": "agent",
        "reportingInstance": instance, "regarding": {"kind": "ConfigMap", "name": "m", "namespace": "default"},
    })
}

#[track_caller]
fn forbidden(answer: &Answer) {
    assert_eq!(answer.refusal(), (403, "Forbidden"), "{:#}", answer.body);
}

#[tokio::test(start_paused = true)]
async fn a_node_keeps_its_own_object_status_and_lease() {
    let house = house().await;
    house.get(&format!("{NODES_PATH}/n1")).await.ok();
    let selected = house.get(&format!("{NODES_PATH}?fieldSelector=metadata.name%3Dn1")).await.ok();
    assert_eq!(selected["items"].as_array().unwrap().len(), 1);
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    house.patch(&format!("{NODES_PATH}/n1/status"), "merge-patch", status).await.ok();
    let labels = json!({"metadata": {"labels": {"kubernetes.io/arch": "amd64"}}});
    house.patch(&format!("{NODES_PATH}/n1"), "merge-patch", labels).await.ok();

    let mut held = house.get(&format!("{LEASES}/n1")).await.ok();
    held["spec"]["leaseDurationSeconds"] = json!(40);
    house.put(&format!("{LEASES}/n1"), held).await.ok();
    house.delete(&format!("{LEASES}/n1")).await.ok();
    house.post(LEASES, lease("n1")).await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_node_changes_nothing_of_itself_that_is_for_others_to_say() {
    let house = house().await;
    let n1 = format!("{NODES_PATH}/n1");
    for change in [
        json!({"spec": {"taints": [{"key": "t", "effect": "NoSchedule"}]}}),
        json!({"spec": {"unschedulable": true}}),
        json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}),
        json!({"metadata": {"finalizers": ["a.example/stay"]}}),
    ] {
        forbidden(&house.patch(&n1, "merge-patch", change).await);
    }
    // The same door through the subresource that it does report by.
    let through_status = json!({"metadata": {"labels": {"node-restriction.kubernetes.io/x": "y"}}});
    forbidden(&house.patch(&format!("{n1}/status"), "merge-patch", through_status).await);
    forbidden(&house.delete(&n1).await);
}

#[tokio::test(start_paused = true)]
async fn a_node_neither_sees_nor_touches_another_nodes_objects() {
    let house = house().await;
    let n2 = format!("{NODES_PATH}/n2");
    forbidden(&house.get(&n2).await);
    forbidden(&house.get(NODES_PATH).await);
    forbidden(&house.patch(&n2, "merge-patch", json!({"metadata": {"labels": {"a": "b"}}})).await);
    forbidden(&house.patch(&format!("{n2}/status"), "merge-patch", json!({"status": {}})).await);
    forbidden(&house.delete(&n2).await);
    forbidden(&house.post(NODES_PATH, json!({"metadata": {"name": "n3"}})).await);
    forbidden(&house.post(NODES_PATH, json!({"metadata": {"generateName": "n1"}})).await);
    forbidden(&house.get(LEASES).await);
    forbidden(&house.get(&format!("{LEASES}/n2")).await);
    forbidden(&house.put(&format!("{LEASES}/n2"), lease("n2")).await);
    forbidden(&house.delete(&format!("{LEASES}/n2")).await);
    forbidden(&house.post(LEASES, lease("n3")).await);
    let elsewhere = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    forbidden(&house.post(elsewhere, lease("n1")).await);
}

#[tokio::test(start_paused = true)]
async fn a_node_reports_events_as_itself_only() {
    let house = house().await;
    house.post(EVENTS, event("mine", "n1")).await.ok();
    house.post(NEW_EVENTS, new_event("mine-too", "n1")).await.ok();
    forbidden(&house.post(EVENTS, event("false", "n2")).await);
    forbidden(&house.post(NEW_EVENTS, new_event("false", "n2")).await);
    let mut unsigned = event("unsigned", "");
    unsigned["source"] = json!({"component": "agent"});
    forbidden(&house.post(EVENTS, unsigned).await);

    let about = |name: &str| json!({"kind": "Node", "apiVersion": "v1", "name": name});
    let mut own = event("about-me", "n1");
    own["involvedObject"] = about("n1");
    house.post(EVENTS, own).await.ok();
    let mut other = event("about-you", "n1");
    other["involvedObject"] = about("n2");
    forbidden(&house.post(EVENTS, other).await);
    let mut other = new_event("about-you", "n1");
    other["regarding"] = about("n2");
    forbidden(&house.post(NEW_EVENTS, other).await);
}

#[tokio::test(start_paused = true)]
async fn a_node_changes_only_events_that_it_reported() {
    let mut house = house().await;
    house.post(EVENTS, event("mine", "n1")).await.ok();
    let again = json!({"count": 2});
    house.patch(&format!("{EVENTS}/mine"), "strategic-merge-patch", again.clone()).await.ok();
    let series = json!({"series": {"count": 2, "lastObservedTime": "2030-01-01T00:00:01.000000Z"}});
    house.patch(&format!("{NEW_EVENTS}/mine"), "merge-patch", series.clone()).await.ok();

    forbidden(&house.patch(&format!("{EVENTS}/theirs"), "merge-patch", again).await);
    forbidden(&house.patch(&format!("{NEW_EVENTS}/theirs"), "merge-patch", series).await);
    // A patch that changes nothing would still show the event.
    forbidden(&house.patch(&format!("{EVENTS}/theirs"), "merge-patch", json!({})).await);
    let taken = json!({"source": {"host": "n1"}, "reportingInstance": "n1"});
    forbidden(&house.patch(&format!("{EVENTS}/theirs"), "merge-patch", taken).await);
    forbidden(&house.put(&format!("{EVENTS}/theirs"), event("theirs", "n1")).await);

    for path in [format!("{EVENTS}/mine"), format!("{NEW_EVENTS}/mine")] {
        let held = json!({"metadata": {"finalizers": ["a.example/stay"]}});
        forbidden(&house.patch(&path, "merge-patch", held).await);
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "m", "uid": "u"});
        let owned = json!({"metadata": {"ownerReferences": [owner]}});
        forbidden(&house.patch(&path, "merge-patch", owned).await);
        forbidden(&house.patch(&path, "merge-patch", json!({"reportingInstance": "n2"})).await);
    }
    forbidden(&house.get(EVENTS).await);
    forbidden(&house.delete(&format!("{EVENTS}/mine")).await);

    house.user = User { name: "root".into(), groups: vec!["system:masters".into()], ..User::default() };
    let theirs = house.get(&format!("{EVENTS}/theirs")).await.ok();
    assert_eq!((&theirs["count"], &theirs["metadata"]["finalizers"]), (&Value::Null, &Value::Null));
    assert_eq!(house.get(EVENTS).await.ok()["items"].as_array().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_node_does_nothing_else() {
    let house = house().await;
    let as_admin = [("impersonate-user", "admin"), ("impersonate-group", "system:masters")];
    for answer in [
        house.get(&format!("{SECRETS}/s")).await,
        house.get("/api/v1/secrets").await,
        house.get(MAPS).await,
        house.post(MAPS, json!({"metadata": {"name": "x"}})).await,
        house.get("/api/v1/pods").await,
        house.post("/api/v1/namespaces/default/pods", json!({"metadata": {"name": "p"}})).await,
        house.get("/apis/management.cattle.io/v3/users").await,
        house.get("/apis/management.cattle.io/v3/tokens").await,
        house.post("/api/v1/namespaces/default/serviceaccounts/default/token", json!({})).await,
        house.delete("/api/v1/namespaces/default").await,
        house.get("/metrics").await,
        house.send(http::Method::GET, "/api/v1/secrets", &as_admin, "").await,
    ] {
        forbidden(&answer);
    }
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "nodes", "name": "n2"}},
    });
    let answer = house.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review).await.ok();
    assert_eq!(answer["status"]["allowed"], false);
}
