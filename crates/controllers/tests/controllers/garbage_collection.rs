//! Owners and what they own.

use std::time::Duration;

use serde_json::{Value, json};
use sheaf_testbed::{kubectl::Kubectl, simulation};

use crate::scenario::{Scenario, on_a_cluster};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Makes a ConfigMap with owners; answers a reference to it that blocks its deletion.
async fn make(kubectl: &Kubectl, name: &str, owners: &[&Value]) -> Value {
    make_in(kubectl, "default", name, owners).await
}

async fn make_in(kubectl: &Kubectl, namespace: &str, name: &str, owners: &[&Value]) -> Value {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": owners},
    });
    let made = kubectl.create(&format!("/api/v1/namespaces/{namespace}/configmaps"), &object).await;
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": made["metadata"]["uid"],
        "blockOwnerDeletion": true,
    })
}

async fn names(kubectl: &Kubectl) -> Vec<String> {
    let mut names = kubectl.names(MAPS).await;
    names.retain(|name| name != "kube-root-ca.crt");
    names
}

/// grandmother <- mother <- {daughter, son}
async fn family(kubectl: &Kubectl) {
    let grandmother = make(kubectl, "grandmother", &[]).await;
    let mother = make(kubectl, "mother", &[&grandmother]).await;
    make(kubectl, "daughter", &[&mother]).await;
    make(kubectl, "son", &[&mother]).await;
}

fn background() -> Scenario<impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl)> {
    Scenario {
        prepared: async |kubectl: &Kubectl| family(kubectl).await,
        happens: async |kubectl: &Kubectl| {
            kubectl.delete(&format!("{MAPS}/grandmother"), "Background").await;
        },
        ends: async |kubectl: &Kubectl| assert_eq!(names(kubectl).await, [""; 0]),
    }
}

fn foreground() -> Scenario<impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl)> {
    Scenario {
        prepared: async |kubectl: &Kubectl| family(kubectl).await,
        happens: async |kubectl: &Kubectl| {
            kubectl.delete(&format!("{MAPS}/grandmother"), "Foreground").await;
            assert_eq!(names(kubectl).await.len(), 4, "an owner waits for its dependents");
        },
        ends: async |kubectl: &Kubectl| assert_eq!(names(kubectl).await, [""; 0]),
    }
}

fn orphan() -> Scenario<impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl)> {
    Scenario {
        prepared: async |kubectl: &Kubectl| family(kubectl).await,
        happens: async |kubectl: &Kubectl| {
            kubectl.delete(&format!("{MAPS}/mother"), "Orphan").await;
        },
        ends: async |kubectl: &Kubectl| {
            assert_eq!(names(kubectl).await, ["daughter", "grandmother", "son"]);
            for name in ["daughter", "son"] {
                let child = kubectl.get(&format!("{MAPS}/{name}")).await.unwrap();
                assert_eq!(child["metadata"]["ownerReferences"], Value::Null);
            }
        },
    }
}

fn two_owners() -> Scenario<impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl)> {
    Scenario {
        prepared: async |kubectl: &Kubectl| {
            let (one, other) = (make(kubectl, "one", &[]).await, make(kubectl, "other", &[]).await);
            make(kubectl, "shared", &[&one, &other]).await;
        },
        happens: async |kubectl: &Kubectl| {
            kubectl.delete(&format!("{MAPS}/one"), "Foreground").await;
        },
        ends: async |kubectl: &Kubectl| {
            assert_eq!(names(kubectl).await, ["other", "shared"]);
            let shared = kubectl.get(&format!("{MAPS}/shared")).await.unwrap();
            let owners = shared["metadata"]["ownerReferences"].as_array().unwrap();
            assert_eq!(owners.len(), 1);
            assert_eq!(owners[0]["name"], "other");
        },
    }
}

/// Two that own each other.
fn ring() -> Scenario<impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl)> {
    Scenario {
        prepared: async |kubectl: &Kubectl| {
            let one = make(kubectl, "one", &[]).await;
            let other = make(kubectl, "other", &[&one]).await;
            kubectl.patch(&format!("{MAPS}/one"), &json!({"metadata": {"ownerReferences": [other]}})).await;
        },
        happens: async |kubectl: &Kubectl| {
            kubectl.delete(&format!("{MAPS}/one"), "Foreground").await;
        },
        ends: async |kubectl: &Kubectl| assert_eq!(names(kubectl).await, [""; 0]),
    }
}

#[test]
fn what_is_owned_goes_after_its_owner() {
    background().arrives_and_rests();
    background().arrives_however_interrupted();
}

#[test]
fn an_owner_deleted_in_the_foreground_goes_last() {
    foreground().arrives_and_rests();
    foreground().arrives_however_interrupted();
}

#[test]
fn orphans_stay_and_forget_their_owner() {
    orphan().arrives_and_rests();
    orphan().arrives_however_interrupted();
}

#[test]
fn a_dependent_stays_with_the_owner_that_is_left() {
    two_owners().arrives_and_rests();
    two_owners().arrives_however_interrupted();
}

#[test]
fn a_ring_of_owners_does_not_hold_itself_up() {
    ring().arrives_and_rests();
    ring().arrives_however_interrupted();
}

#[test]
fn in_the_foreground_the_order_is_from_the_leaves() {
    on_a_cluster(async |cluster, kubectl| {
        family(kubectl).await;
        cluster.settle().await;
        // Something holds a leaf, so nothing above it may go.
        let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
        kubectl.patch(&format!("{MAPS}/son"), &hold).await;
        kubectl.delete(&format!("{MAPS}/grandmother"), "Foreground").await;
        cluster.settle().await;
        assert_eq!(names(kubectl).await, ["grandmother", "mother", "son"]);
        kubectl.patch(&format!("{MAPS}/son"), &json!({"metadata": {"finalizers": null}})).await;
        cluster.settle().await;
        assert_eq!(names(kubectl).await, [""; 0]);
    });
}

#[test]
fn a_dependent_that_does_not_block_is_not_waited_for() {
    on_a_cluster(async |cluster, kubectl| {
        let mut owner = make(kubectl, "owner", &[]).await;
        owner["blockOwnerDeletion"] = json!(false);
        make(kubectl, "dependent", &[&owner]).await;
        let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
        kubectl.patch(&format!("{MAPS}/dependent"), &hold).await;
        cluster.settle().await;
        kubectl.delete(&format!("{MAPS}/owner"), "Foreground").await;
        cluster.settle().await;
        assert_eq!(names(kubectl).await, ["dependent"]);
        let dependent = kubectl.get(&format!("{MAPS}/dependent")).await.unwrap();
        assert!(dependent["metadata"]["deletionTimestamp"].is_string());
    });
}

#[test]
fn another_object_of_the_same_name_is_not_the_owner() {
    on_a_cluster(async |cluster, kubectl| {
        let mut owner = make(kubectl, "owner", &[]).await;
        owner["uid"] = json!("00000000-0000-4000-8000-000000000000");
        make(kubectl, "dependent", &[&owner]).await;
        cluster.settle().await;
        assert_eq!(names(kubectl).await, ["owner"]);
    });
}

#[test]
fn an_owner_in_another_namespace_counts_as_absent_and_is_warned_about() {
    on_a_cluster(async |cluster, kubectl| {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}});
        kubectl.create("/api/v1/namespaces", &namespace).await;
        let owner = make_in(kubectl, "other", "owner", &[]).await;
        make_in(kubectl, "other", "near", &[&owner]).await;
        make(kubectl, "far", &[&owner]).await;
        cluster.settle().await;
        assert_eq!(names(kubectl).await, [""; 0]);
        let stays = kubectl.names("/api/v1/namespaces/other/configmaps").await;
        assert!(stays.contains(&"near".to_owned()) && stays.contains(&"owner".to_owned()), "{stays:?}");
        let events = kubectl.get("/api/v1/namespaces/default/events").await.unwrap();
        let event = &events["items"][0];
        assert_eq!(event["reason"], "OwnerRefInvalidNamespace", "{events}");
        assert_eq!(event["involvedObject"]["name"], "far");
    });
}

#[test]
fn a_cluster_wide_object_cannot_belong_to_a_namespaced_one_and_is_left_alone() {
    on_a_cluster(async |cluster, kubectl| {
        let owner = make(kubectl, "owner", &[]).await;
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "owned", "ownerReferences": [owner]}, "rules": [],
        });
        kubectl.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await;
        cluster.settle().await;
        kubectl.delete(&format!("{MAPS}/owner"), "Background").await;
        cluster.settle().await;
        assert!(kubectl.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/owned").await.is_some());
    });
}

#[test]
fn a_namespaced_object_may_belong_to_a_cluster_wide_one() {
    on_a_cluster(async |cluster, kubectl| {
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "owner"}, "rules": [],
        });
        let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
        let made = kubectl.create(path, &role).await;
        let owner = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": "owner",
            "uid": made["metadata"]["uid"],
        });
        make(kubectl, "owned", &[&owner]).await;
        cluster.settle().await;
        assert_eq!(names(kubectl).await, ["owned"]);
        kubectl.delete(&format!("{path}/owner"), "Background").await;
        cluster.settle().await;
        assert_eq!(names(kubectl).await, [""; 0]);
    });
}

#[test]
fn owners_of_kinds_that_come_and_go_are_followed() {
    on_a_cluster(async |cluster, kubectl| {
        kubectl
            .create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &simulation::widgets())
            .await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let widgets = "/apis/example.com/v1/namespaces/default/widgets";
        let reference = async |name: &str| {
            let widget =
                json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}});
            let made = kubectl.create(widgets, &widget).await;
            json!({
                "apiVersion": "example.com/v1", "kind": "Widget", "name": name, "uid": made["metadata"]["uid"],
            })
        };
        make(kubectl, "of-one", &[&reference("one").await]).await;
        make(kubectl, "of-two", &[&reference("two").await]).await;
        cluster.settle().await;
        assert_eq!(names(kubectl).await, ["of-one", "of-two"]);
        kubectl.delete(&format!("{widgets}/one"), "Background").await;
        cluster.settle().await;
        assert_eq!(names(kubectl).await, ["of-two"]);
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        kubectl.delete(&format!("{definitions}/widgets.example.com"), "Background").await;
        cluster.settle().await;
        assert_eq!(names(kubectl).await, [""; 0]);
    });
}

#[test]
fn an_owner_of_a_kind_nobody_knows_keeps_its_dependents() {
    on_a_cluster(async |cluster, kubectl| {
        let owner = json!({"apiVersion": "nowhere.example/v1", "kind": "Ghost", "name": "g", "uid": "1-2-3"});
        make(kubectl, "haunted", &[&owner]).await;
        tokio::time::sleep(crate::scenario::PAST_EVERY_CLOCK).await;
        cluster.settle().await;
        assert_eq!(names(kubectl).await, ["haunted"]);
    });
}
