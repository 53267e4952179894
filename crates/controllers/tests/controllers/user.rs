//! A user who goes takes along what was bound to the name.

use serde_json::{Value, json};
use sheaf_testbed::{Cluster, in_virtual_time, kubectl::Kubectl};

use crate::scenario::{Scenario, on_a_cluster};

const USERS: &str = "/apis/management.cattle.io/v3/users";
const CLUSTER: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const IN_WEB: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";

fn user(name: &str) -> Value {
    json!({
        "apiVersion": "management.cattle.io/v3", "kind": "User", "metadata": {"name": name}, "username": name,
    })
}

fn binding(kind: &str, name: &str, subjects: &[(&str, &str)]) -> Value {
    let group = "rbac.authorization.k8s.io";
    let subjects: Vec<Value> =
        subjects.iter().map(|(kind, name)| json!({"kind": kind, "name": name, "apiGroup": group})).collect();
    json!({
        "apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {"name": name}, "subjects": subjects,
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "edit"},
    })
}

async fn prepared(kubectl: &Kubectl) {
    for name in ["anna", "bert"] {
        kubectl.create(USERS, &user(name)).await;
    }
    kubectl.create(CLUSTER, &binding("ClusterRoleBinding", "of-anna", &[("User", "anna")])).await;
    kubectl.create(CLUSTER, &binding("ClusterRoleBinding", "of-group", &[("Group", "anna")])).await;
    let both = [("User", "bert"), ("User", "anna"), ("Group", "ops")];
    kubectl.create(CLUSTER, &binding("ClusterRoleBinding", "of-both", &both)).await;
    kubectl.create(IN_WEB, &binding("RoleBinding", "of-anna", &[("User", "anna")])).await;
}

async fn ends(kubectl: &Kubectl) {
    assert_eq!(kubectl.names(USERS).await, ["bert"]);
    let left: Vec<String> =
        kubectl.names(CLUSTER).await.into_iter().filter(|name| name.starts_with("of-")).collect();
    assert_eq!(left, ["of-both", "of-group"]);
    assert_eq!(kubectl.names(IN_WEB).await, [""; 0]);
    let both = kubectl.get(&format!("{CLUSTER}/of-both")).await.unwrap();
    let names: Vec<&str> = both["subjects"]
        .as_array()
        .unwrap()
        .iter()
        .map(|subject| subject["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["bert", "ops"]);
}

fn deletion() -> Scenario<impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl)> {
    Scenario {
        prepared: async |kubectl: &Kubectl| prepared(kubectl).await,
        happens: async |kubectl: &Kubectl| {
            kubectl.delete(&format!("{USERS}/anna"), "Background").await;
        },
        ends: async |kubectl: &Kubectl| ends(kubectl).await,
    }
}

#[test]
fn a_user_goes_with_all_that_was_bound_to_the_name_and_nothing_else() {
    deletion().arrives_and_rests();
}

#[test]
fn interrupted_anywhere_nothing_stays_bound() {
    deletion().arrives_however_interrupted();
}

#[test]
fn a_name_is_not_given_again_while_something_is_bound_to_it() {
    in_virtual_time(async {
        let cluster = Cluster::start(11).await;
        let kubectl = Kubectl(cluster.client());
        prepared(&kubectl).await;
        kubectl.delete(&format!("{USERS}/anna"), "Background").await;
        let refused = kubectl.try_it(http::Method::POST, USERS, Some(&user("anna"))).await;
        assert_eq!(refused.0, 409, "{:?}", refused.1);
    });
}

#[test]
fn whoever_is_given_the_name_next_begins_with_nothing() {
    on_a_cluster(async |cluster, kubectl| {
        prepared(kubectl).await;
        let may = async || {
            let anna = cluster.client_of("anna", &[]);
            Kubectl(anna).try_it(http::Method::GET, "/api/v1/namespaces/default/configmaps", None).await.0
        };
        assert_eq!(may().await, 200);
        kubectl.delete(&format!("{USERS}/anna"), "Background").await;
        // The name is not free before nothing is bound to it: whoever gets it at the first moment that it is gets nothing.
        while kubectl.try_it(http::Method::POST, USERS, Some(&user("anna"))).await.0 == 409 {
            tokio::task::yield_now().await;
        }
        assert_eq!(may().await, 403);
    });
}
