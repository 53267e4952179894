//! Roles that gather.

use serde_json::{Value, json};
use sheaf_testbed::kubectl::Kubectl;

use crate::scenario::{Scenario, on_a_cluster};

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

async fn make(kubectl: &Kubectl, name: &str, more: Value) {
    let mut role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": [],
    });
    for (field, value) in more.as_object().unwrap() {
        match field.as_str() {
            "labels" => role["metadata"]["labels"] = value.clone(),
            field => role[field] = value.clone(),
        }
    }
    kubectl.create(ROLES, &role).await;
}

fn rule(resource: &str) -> Value {
    json!([{"verbs": ["get"], "apiGroups": ["example.com"], "resources": [resource]}])
}

fn gathering(label: &str) -> Value {
    json!({"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]})
}

/// One gathers from another that gathers itself.
fn layers() -> Scenario<impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl)> {
    Scenario {
        prepared: async |_: &Kubectl| {},
        happens: async |kubectl: &Kubectl| {
            make(kubectl, "top", json!({"aggregationRule": gathering("to-top")})).await;
            let middle = json!({"aggregationRule": gathering("to-middle"), "labels": {"to-top": "true"}});
            make(kubectl, "middle", middle).await;
            make(kubectl, "leaf", json!({"labels": {"to-middle": "true"}, "rules": rule("leaves")})).await;
        },
        ends: async |kubectl: &Kubectl| {
            for name in ["middle", "top"] {
                let role = kubectl.get(&format!("{ROLES}/{name}")).await.unwrap();
                assert_eq!(role["rules"], rule("leaves"), "{name}");
            }
        },
    }
}

#[test]
fn rules_climb_through_roles_that_gather() {
    layers().arrives_and_rests();
    layers().arrives_however_interrupted();
}

#[test]
fn rules_go_with_the_role_that_gave_them() {
    on_a_cluster(async |cluster, kubectl| {
        make(kubectl, "top", json!({"aggregationRule": gathering("to-top")})).await;
        make(kubectl, "leaf", json!({"labels": {"to-top": "true"}, "rules": rule("leaves")})).await;
        cluster.settle().await;
        assert_eq!(kubectl.get(&format!("{ROLES}/top")).await.unwrap()["rules"], rule("leaves"));
        kubectl.delete(&format!("{ROLES}/leaf"), "Background").await;
        cluster.settle().await;
        assert_eq!(kubectl.get(&format!("{ROLES}/top")).await.unwrap()["rules"], json!([]));
    });
}

#[test]
fn the_default_roles_are_filled_in() {
    on_a_cluster(async |_, kubectl| {
        for name in ["admin", "edit", "view"] {
            let role = kubectl.get(&format!("{ROLES}/{name}")).await.unwrap();
            assert!(!role["rules"].as_array().unwrap().is_empty(), "{name}");
        }
    });
}
