//! How namespaces go.

use serde_json::json;
use sheaf_testbed::{kubectl::Kubectl, simulation};

use crate::scenario::{Scenario, on_a_cluster};

async fn make_namespace(kubectl: &Kubectl, name: &str) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    kubectl.create("/api/v1/namespaces", &namespace).await;
}

async fn fill(kubectl: &Kubectl, namespace: &str) {
    make_namespace(kubectl, namespace).await;
    for (path, kind) in
        [("configmaps", "ConfigMap"), ("secrets", "Secret"), ("serviceaccounts", "ServiceAccount")]
    {
        for name in ["a", "b"] {
            let object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
            kubectl.create(&format!("/api/v1/namespaces/{namespace}/{path}"), &object).await;
        }
    }
}

fn deletion() -> Scenario<impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl)> {
    Scenario {
        prepared: async |kubectl: &Kubectl| fill(kubectl, "room").await,
        happens: async |kubectl: &Kubectl| {
            kubectl.delete("/api/v1/namespaces/room", "Background").await;
            let room = kubectl.get("/api/v1/namespaces/room").await.unwrap();
            assert_eq!(room["status"]["phase"], "Terminating");
        },
        ends: async |kubectl: &Kubectl| {
            assert_eq!(kubectl.get("/api/v1/namespaces/room").await, None);
            for path in ["configmaps", "secrets", "serviceaccounts"] {
                let all = kubectl.get(&format!("/api/v1/{path}")).await.unwrap();
                assert!(!all.to_string().contains("\"room\""), "{all}");
            }
        },
    }
}

#[test]
fn a_namespace_goes_with_everything_in_it() {
    deletion().arrives_and_rests();
    deletion().arrives_however_interrupted();
}

#[test]
fn a_namespace_says_what_keeps_it() {
    on_a_cluster(async |cluster, kubectl| {
        fill(kubectl, "room").await;
        let map = "/api/v1/namespaces/room/configmaps/a";
        kubectl.patch(map, &json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
        kubectl.delete("/api/v1/namespaces/room", "Background").await;
        cluster.settle().await;
        let room = kubectl.get("/api/v1/namespaces/room").await.unwrap();
        let condition = |kind: &str| {
            let all = room["status"]["conditions"].as_array().unwrap();
            all.iter().find(|condition| condition["type"] == kind).unwrap().clone()
        };
        let remaining = condition("NamespaceContentRemaining");
        assert_eq!(remaining["status"], "True");
        assert_eq!(
            remaining["message"],
            "Some resources are remaining: configmaps. has 1 resource instances"
        );
        assert_eq!(
            condition("NamespaceFinalizersRemaining")["message"],
            "Some finalizers are remaining: example.com/hold in 1 resource instances"
        );
        assert_eq!(condition("NamespaceDeletionDiscoveryFailure")["status"], "False");
        kubectl.patch(map, &json!({"metadata": {"finalizers": null}})).await;
        cluster.settle().await;
        assert_eq!(kubectl.get("/api/v1/namespaces/room").await, None);
    });
}

#[test]
fn a_namespace_loses_objects_of_kinds_defined_by_users_too() {
    on_a_cluster(async |cluster, kubectl| {
        kubectl
            .create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &simulation::widgets())
            .await;
        cluster.settle().await;
        fill(kubectl, "room").await;
        for namespace in ["room", "default"] {
            let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
            kubectl.create(&format!("/apis/example.com/v1/namespaces/{namespace}/widgets"), &widget).await;
        }
        kubectl.delete("/api/v1/namespaces/room", "Background").await;
        cluster.settle().await;
        assert_eq!(kubectl.get("/api/v1/namespaces/room").await, None);
        assert_eq!(kubectl.names("/apis/example.com/v1/widgets").await, ["w"]);
    });
}

#[test]
fn a_namespace_made_again_begins_empty() {
    on_a_cluster(async |cluster, kubectl| {
        fill(kubectl, "room").await;
        kubectl.delete("/api/v1/namespaces/room", "Background").await;
        cluster.settle().await;
        make_namespace(kubectl, "room").await;
        cluster.settle().await;
        assert_eq!(kubectl.names("/api/v1/namespaces/room/configmaps").await, ["kube-root-ca.crt"]);
        assert_eq!(kubectl.names("/api/v1/namespaces/room/serviceaccounts").await, ["default"]);
    });
}
