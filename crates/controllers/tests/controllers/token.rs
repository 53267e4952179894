//! Tokens that ended are removed.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use sheaf_testbed::kubectl::Kubectl;

use crate::scenario::on_a_cluster;

const TOKENS: &str = "/apis/management.cattle.io/v3/tokens";
const MINUTE: Duration = Duration::from_secs(60);

async fn make(kubectl: &Kubectl, name: &str, expires_at: &str, ttl_millis: i64) {
    let token = json!({
        "apiVersion": "management.cattle.io/v3", "kind": "Token", "metadata": {"name": name}, "userId": "user-1",
        "token": "sha256:0", "isDerived": false, "expiresAt": expires_at, "ttl": ttl_millis,
    });
    kubectl.create(TOKENS, &token).await;
}

#[test]
fn a_token_is_removed_an_hour_after_its_end_and_one_without_an_end_never() {
    on_a_cluster(async |cluster, kubectl| {
        let now = cluster.world.clock.rfc3339();
        make(kubectl, "ended", &now, 0).await;
        make(kubectl, "short", "", 10 * 60 * 1000).await;
        make(kubectl, "unreadable", "tomorrow", 0).await;
        make(kubectl, "for-ever", "", 0).await;
        tokio::time::sleep(59 * MINUTE).await;
        assert_eq!(kubectl.names(TOKENS).await, ["ended", "for-ever", "short", "unreadable"]);
        tokio::time::sleep(7 * MINUTE).await;
        assert_eq!(kubectl.names(TOKENS).await, ["for-ever", "short", "unreadable"]);
        tokio::time::sleep(10 * MINUTE).await;
        assert_eq!(kubectl.names(TOKENS).await, ["for-ever", "unreadable"]);
        // Dozens of rounds later.
        tokio::time::sleep(4 * 60 * MINUTE).await;
        assert_eq!(kubectl.names(TOKENS).await, ["for-ever", "unreadable"]);
    });
}

#[test]
fn a_flood_of_ended_tokens_is_removed_in_bounded_rounds() {
    on_a_cluster(async |cluster, kubectl| {
        let now = cluster.world.clock.rfc3339();
        for n in 0..600 {
            make(kubectl, &format!("t{n}"), &now, 0).await;
        }
        tokio::time::sleep(66 * MINUTE).await;
        assert_eq!(kubectl.names(TOKENS).await, [""; 0]);
    });
}

#[test]
fn whoever_removes_tokens_can_neither_make_nor_change_them() {
    on_a_cluster(async |cluster, _| {
        let client = sheaf_client::impersonating(&cluster.client(), "system:controller:token").unwrap();
        let may = async |method: Method, path: &str, body: Option<&Value>| {
            Kubectl(client.clone()).try_it(method, path, body).await.0 != 403
        };
        assert!(may(Method::GET, TOKENS, None).await);
        assert!(!may(Method::POST, TOKENS, Some(&json!({}))).await);
        assert!(!may(Method::PUT, &format!("{TOKENS}/t"), Some(&json!({}))).await);
        assert!(!may(Method::GET, "/apis/management.cattle.io/v3/users", None).await);
    });
}
