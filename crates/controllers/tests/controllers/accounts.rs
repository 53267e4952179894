//! What every namespace has, and tokens in Secrets.

use http::Method;
use serde_json::{Value, json};
use sheaf_testbed::{cluster::CA_PEM, kubectl::Kubectl};

use crate::scenario::{Scenario, on_a_cluster};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const ROOT_CA: &str = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt";

async fn make_account(kubectl: &Kubectl, name: &str) -> Value {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
    kubectl.create(ACCOUNTS, &account).await
}

async fn make_secret(kubectl: &Kubectl, name: &str, account: &str) {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": account}},
    });
    kubectl.create(SECRETS, &secret).await;
}

fn new_namespace() -> Scenario<impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl)> {
    Scenario {
        prepared: async |_: &Kubectl| {},
        happens: async |kubectl: &Kubectl| {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "room"}});
            kubectl.create("/api/v1/namespaces", &namespace).await;
            kubectl.delete(&format!("{ACCOUNTS}/default"), "Background").await;
            kubectl.delete(ROOT_CA, "Background").await;
        },
        ends: async |kubectl: &Kubectl| {
            for namespace in ["default", "room", "kube-system", "kube-public", "kube-node-lease"] {
                let inside = format!("/api/v1/namespaces/{namespace}");
                assert!(
                    kubectl.get(&format!("{inside}/serviceaccounts/default")).await.is_some(),
                    "{namespace}"
                );
                let ca = kubectl.get(&format!("{inside}/configmaps/kube-root-ca.crt")).await.unwrap();
                assert_eq!(ca["data"], json!({"ca.crt": CA_PEM}));
            }
        },
    }
}

fn token() -> Scenario<impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl)> {
    Scenario {
        prepared: async |kubectl: &Kubectl| {
            make_account(kubectl, "stays").await;
            make_account(kubectl, "goes").await;
            make_secret(kubectl, "of-goes", "goes").await;
        },
        happens: async |kubectl: &Kubectl| {
            make_secret(kubectl, "of-stays", "stays").await;
            make_secret(kubectl, "of-nobody", "nobody").await;
            kubectl.delete(&format!("{ACCOUNTS}/goes"), "Background").await;
        },
        ends: async |kubectl: &Kubectl| {
            assert_eq!(kubectl.names(SECRETS).await, ["of-stays"]);
            let secret = kubectl.get(&format!("{SECRETS}/of-stays")).await.unwrap();
            let account = kubectl.get(&format!("{ACCOUNTS}/stays")).await.unwrap();
            assert_eq!(
                secret["metadata"]["annotations"]["kubernetes.io/service-account.uid"],
                account["metadata"]["uid"]
            );
            assert_eq!(secret["data"]["namespace"], "ZGVmYXVsdA==");
            assert!(secret["data"]["ca.crt"].is_string());
            assert!(secret["data"]["token"].as_str().unwrap().len() > 100);
        },
    }
}

#[test]
fn every_namespace_has_its_default_account_and_the_ca() {
    new_namespace().arrives_and_rests();
    new_namespace().arrives_however_interrupted();
}

#[test]
fn token_secrets_are_filled_in_and_die_with_their_account() {
    token().arrives_and_rests();
    token().arrives_however_interrupted();
}

#[test]
fn a_published_ca_that_was_tampered_with_is_put_right() {
    on_a_cluster(async |cluster, kubectl| {
        kubectl.patch(ROOT_CA, &json!({"data": {"ca.crt": "mine", "more": "mine"}})).await;
        cluster.settle().await;
        assert_eq!(kubectl.get(ROOT_CA).await.unwrap()["data"], json!({"ca.crt": CA_PEM}));
    });
}

#[test]
fn a_token_is_never_replaced_and_never_inherited_by_a_namesake() {
    on_a_cluster(async |cluster, kubectl| {
        make_account(kubectl, "robot").await;
        make_secret(kubectl, "key", "robot").await;
        cluster.settle().await;
        let token = kubectl.get(&format!("{SECRETS}/key")).await.unwrap()["data"]["token"].clone();
        kubectl.patch(&format!("{SECRETS}/key"), &json!({"data": {"ca.crt": null}})).await;
        cluster.settle().await;
        let secret = kubectl.get(&format!("{SECRETS}/key")).await.unwrap();
        assert_eq!(secret["data"]["token"], token);
        assert!(secret["data"]["ca.crt"].is_string());
        kubectl.delete(&format!("{ACCOUNTS}/robot"), "Background").await;
        make_account(kubectl, "robot").await;
        cluster.settle().await;
        assert_eq!(kubectl.get(&format!("{SECRETS}/key")).await, None);
    });
}

#[test]
fn the_token_in_a_secret_lets_its_account_in() {
    on_a_cluster(async |cluster, kubectl| {
        make_account(kubectl, "robot").await;
        make_secret(kubectl, "key", "robot").await;
        cluster.settle().await;
        let secret = kubectl.get(&format!("{SECRETS}/key")).await.unwrap();
        let bytes: k8s_openapi::ByteString = serde_json::from_value(secret["data"]["token"].clone()).unwrap();
        let token = String::from_utf8(bytes.0).unwrap();
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token},
        });
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        let (code, answer) = kubectl.try_it(Method::POST, path, Some(&review)).await;
        assert_eq!(code, 201, "{answer}");
        assert_eq!(answer["status"]["user"]["username"], "system:serviceaccount:default:robot", "{answer}");
    });
}

#[test]
fn every_controller_acts_as_itself_and_may_do_its_own_work_only() {
    on_a_cluster(async |cluster, _| {
        let may = async |controller: &str, method: Method, path: &str| {
            let client =
                sheaf_client::impersonating(&cluster.client(), &format!("system:controller:{controller}"));
            Kubectl(client.unwrap()).try_it(method, path, None).await.0 != 403
        };
        assert!(may("event", Method::GET, "/api/v1/events").await);
        assert!(!may("event", Method::GET, SECRETS).await);
        assert!(may("service-account-token", Method::GET, SECRETS).await);
        assert!(!may("service-account-token", Method::POST, SECRETS).await);
        assert!(!may("namespace", Method::POST, SECRETS).await);
        assert!(!may("garbage-collection", Method::POST, SECRETS).await);
        assert!(!may("nobody", Method::GET, "/api/v1/events").await);
    });
}
