//! The ways in that are not resources: version, health, metrics, the prefix, and what a stranger sees.

use serde_json::Value;
use sheaf_tests::http::Credentials;

use crate::{connection, kubectl_in, node};

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn version_health_and_metrics_answer() {
    let kubectl = kubectl_in("doors-raw");
    let raw = |path: &str| kubectl.says(&["get", "--raw", path]);
    let version: Value = serde_json::from_str(&raw("/version")).unwrap();
    assert_eq!((&version["major"], &version["minor"]), (&"1".into(), &"34".into()));
    assert!(version["gitVersion"].as_str().unwrap().starts_with("v1.34."), "{version}");
    let told = kubectl.json(&["version"]);
    assert_eq!(told["serverVersion"]["gitVersion"], version["gitVersion"]);

    for path in ["/healthz", "/livez", "/readyz", "/healthz/ping", "/livez/ping"] {
        assert_eq!(raw(path), "ok", "{path}");
    }
    let verbose = raw("/readyz?verbose");
    assert!(verbose.lines().any(|line| line == "[+]ping ok"), "{verbose}");
    assert!(verbose.ends_with("readyz check passed\n"), "{verbose}");

    let metrics = raw("/metrics");
    let counted = metrics.lines().find(|line| {
        line.starts_with("apiserver_request_total{")
            && line.contains("resource=\"namespaces\"")
            && line.contains("verb=\"POST\"")
            && line.contains("code=\"201\"")
    });
    let count: f64 = counted.expect(&metrics).rsplit(' ').next().unwrap().parse().unwrap();
    assert!(count >= 1.0, "{counted:?}");
    for name in ["apiserver_request_duration_seconds_bucket", "apiserver_longrunning_requests"] {
        assert!(metrics.lines().any(|line| line.starts_with(name)), "{name} is not in\n{metrics}");
    }
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn everything_is_also_under_the_prefix_of_the_local_cluster() {
    let plain = kubectl_in("doors-prefix");
    let server = format!("{}/k8s/clusters/local", node().url());
    let kubectl = plain.with(&["--server", &server]);
    kubectl.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: far}, data: {a: '1'}}");
    assert_eq!(plain.json(&["get", "cm", "far"])["data"]["a"], "1");
    let form = "jsonpath={.metadata.labels.seen}.{\"\\n\"}";
    let events = kubectl.follow(&["get", "cm", "far", "--watch", "-o", form]);
    assert_eq!(events.line(), ".");
    plain.says(&["label", "cm", "far", "seen=yes"]);
    assert_eq!(events.line(), "yes.");
    assert_eq!(kubectl.says(&["get", "cm", "-l", "seen", "-o", "name"]), "configmap/far\n");
    assert_eq!(kubectl.says(&["get", "--raw", "/readyz"]), "ok");
    assert_eq!(kubectl.run(&["auth", "can-i", "get", "cm", "--as=nobody-in-particular"]).stdout, "no\n");
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn a_stranger_sees_version_and_health_and_nothing_else() {
    kubectl_in("doors-stranger");
    let mut stranger = Credentials::anonymous(node()).connect(node());
    for path in ["/version", "/healthz", "/livez", "/readyz"] {
        assert_eq!(stranger.get(path).code, 200, "{path}");
    }
    for path in [
        "/",
        "/api",
        "/apis",
        "/api/v1",
        "/metrics",
        "/openapi/v2",
        "/openapi/v3",
        "/api/v1/namespaces",
        "/api/v1/namespaces/doors-stranger/configmaps?watch=1",
        "/k8s/clusters/local/api/v1/secrets",
        "/no/such/page",
    ] {
        let (code, reason, message) = stranger.get(path).refusal();
        assert_eq!((code, reason.as_str()), (403, "Forbidden"), "{path}");
        assert!(message.contains("User \"system:anonymous\" cannot "), "{path}: {message}");
    }
    let mut forger = Credentials::anonymous(node()).with_token("not-a-token").connect(node());
    // A bad credential is worse than none.
    assert_eq!(forger.get("/api/v1/namespaces").refusal().0, 401);
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn what_is_not_served_is_not_found() {
    let mut admin = connection();
    let answer = admin.get("/apis/apps/v1/deployments");
    assert_eq!((answer.code, answer.text()), (404, "404 page not found\n"));
    let answer = admin.get("/no/such/page");
    assert_eq!(answer.code, 404);
    let (code, reason, _) = admin.ask("PUT", "/api/v1/namespaces", &[], b"{}").refusal();
    assert_eq!((code, reason.as_str()), (405, "MethodNotAllowed"));
}
