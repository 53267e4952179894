//! Support bundles through the door: who may make one, who is handed what goes into it, and who fetches it.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Empty, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use sheaf_apiserver::{
    identity::{AUTHENTICATED, NODES, User},
    machines::agents::{AgentConnection, DialAgent},
};

use crate::house::{Answer, House};

const BUNDLES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/harvester-system/supportbundles";
const DOWNLOAD: &str = "/v1/harvester/supportbundles/b/download";
const CLUSTER: &str = "/v1/harvester/supportbundles/b/cluster";
const CONTENT: &[u8] = b"a zip file, for all anybody here knows";

/// A node that has the file of every bundle.
#[derive(Default)]
struct Agent {
    asked: Arc<Mutex<Vec<String>>>,
}

#[async_trait]
impl DialAgent for Agent {
    async fn dial(&self, _: &str, _: SocketAddr) -> io::Result<Box<dyn AgentConnection>> {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let asked = self.asked.clone();
        tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                asked.lock().push(request.uri().to_string());
                let answer = match request.headers().get("range") {
                    None => Response::new(Full::new(Bytes::from_static(CONTENT))),
                    Some(_) => Response::builder()
                        .status(206)
                        .header("content-range", "bytes 2-37/38")
                        .body(Full::new(Bytes::from_static(&CONTENT[2..])))
                        .unwrap(),
                };
                async move { Ok::<_, Infallible>(answer) }
            });
            let _ = http1::Builder::new().serve_connection(TokioIo::new(theirs), service).await;
        });
        Ok(Box::new(ours))
    }
}

fn node(name: &str) -> User {
    let groups = vec![NODES.into(), AUTHENTICATED.into()];
    User { name: format!("system:node:{name}"), groups, ..User::default() }
}

fn person(name: &str) -> User {
    User { name: name.into(), groups: vec![AUTHENTICATED.into()], ..User::default() }
}

fn bundle() -> Value {
    json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "SupportBundle", "metadata": {"name": "b"},
        "spec": {"description": "it hangs", "issueURL": "https://example.com/1"},
    })
}

async fn scene(status: Value) -> (House, Arc<Mutex<Vec<String>>>) {
    let agent = Agent::default();
    let asked = agent.asked.clone();
    let house = House::reaching(Arc::new(agent)).await;
    house.join_node().await;
    house.post(BUNDLES, bundle()).await.ok();
    house.patch(&format!("{BUNDLES}/b"), "merge-patch", json!({"status": status})).await.ok();
    (house, asked)
}

/// Lets somebody do everything in one namespace, as whoever is its administrator.
async fn bind(house: &House, namespace: &str, person: &str, role: &str) {
    let binding = json!({"metadata": {"name": format!("{person}-{role}")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": person}]});
    let uri = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings");
    house.post(&uri, binding).await.ok();
}

#[track_caller]
fn forbidden(answer: &Answer) {
    assert_eq!(answer.code, 403, "{:#}", answer.body);
}

async fn get(
    house: &House,
    method: Method,
    uri: &str,
    range: Option<&str>,
) -> Response<sheaf_apiserver::respond::ApiBody> {
    let mut request = Request::builder().method(method).uri(uri);
    if let Some(range) = range {
        request = request.header("range", range);
    }
    house.server.handle(request.body(Empty::<Bytes>::new()).unwrap(), &house.peer()).await
}

#[tokio::test(start_paused = true)]
async fn a_bundle_is_what_it_was_asked_for_and_its_namespaces_are_there() {
    let house = House::new().await;
    let mut other = bundle();
    other["spec"]["extraCollectionNamespaces"] = json!(["default", "", "nowhere"]);
    let refused = house.post(BUNDLES, other.clone()).await;
    assert_eq!((refused.code, refused.message()), (400, "namespace nowhere not found"));
    other["spec"]["extraCollectionNamespaces"] = json!(["default", ""]);
    house.post(BUNDLES, other).await.ok();
    let changed = house.patch(&format!("{BUNDLES}/b"), "merge-patch", json!({"spec": {"timeout": 3}})).await;
    assert_eq!(
        (changed.code, changed.message()),
        (400, "modifying the spec of an existing support bundle is not allowed")
    );
    house
        .patch(&format!("{BUNDLES}/b"), "merge-patch", json!({"metadata": {"labels": {"a": "b"}}}))
        .await
        .ok();
    let mut silent = bundle();
    silent["metadata"]["name"] = json!("silent");
    silent["spec"] = json!({});
    assert_eq!(house.post(BUNDLES, silent).await.refusal(), (422, "Invalid"));
    let elsewhere = BUNDLES.replace("harvester-system", "default");
    forbidden(&house.post(&elsewhere, bundle()).await);
}

#[tokio::test(start_paused = true)]
async fn who_has_one_namespace_gets_nothing_of_the_others_by_a_bundle() {
    let ready = json!({"state": "ready", "nodeName": "n1", "filename": "f.zip", "filesize": 38});
    let (mut house, asked) = scene(ready).await;
    house.post("/api/v1/namespaces", json!({"metadata": {"name": "team"}})).await.ok();
    bind(&house, "team", "edith", "edit").await;
    bind(&house, "team", "edith", "cluster-admin").await;
    // Even who has all rights where bundles are is not who may see everything.
    bind(&house, "harvester-system", "sid", "cluster-admin").await;
    for name in ["edith", "sid", "nobody"] {
        house.user = person(name);
        let mut own = bundle();
        own["metadata"]["name"] = json!("own");
        forbidden(&house.post(BUNDLES, own.clone()).await);
        forbidden(&house.post(&BUNDLES.replace("harvester-system", "team"), own).await);
        forbidden(&house.get(DOWNLOAD).await);
        forbidden(&house.get(CLUSTER).await);
        forbidden(&house.get("/v1/harvester/supportbundles/absent/download").await);
    }
    house.user = person("sid");
    let forged = json!({"status": {"state": "generating", "nodeName": "n2"}});
    house.patch(&format!("{BUNDLES}/b"), "merge-patch", forged).await.ok();
    let kept = house.get(&format!("{BUNDLES}/b")).await.ok();
    assert_eq!((&kept["status"]["state"], &kept["status"]["nodeName"]), (&json!("ready"), &json!("n1")));
    assert!(asked.lock().is_empty(), "nobody was asked for any of it");
}

#[tokio::test(start_paused = true)]
async fn a_node_reads_the_cluster_for_a_bundle_that_it_makes_and_for_no_other() {
    let (mut house, _) = scene(json!({"state": "generating", "nodeName": "n1"})).await;
    let root = house.user.clone();
    house.user = node("n2");
    forbidden(&house.get(CLUSTER).await);
    let forged = json!({"status": {"nodeName": "n2"}});
    forbidden(&house.patch(&format!("{BUNDLES}/b"), "merge-patch", forged).await);

    house.user = node("n1");
    assert_eq!(house.get(CLUSTER).await.code, 200);
    forbidden(&house.get(DOWNLOAD).await);
    forbidden(&house.get("/v1/harvester/supportbundles/absent/cluster").await);
    forbidden(&house.post(BUNDLES, bundle()).await);
    let wish = json!({"spec": {"description": "else"}, "status": {"progress": 3}});
    assert_ne!(house.patch(&format!("{BUNDLES}/b"), "merge-patch", wish).await.code, 200);
    let told = json!({"status": {"progress": 50}});
    house.patch(&format!("{BUNDLES}/b"), "merge-patch", told).await.ok();
    let done = json!({"status": {"state": "ready", "progress": 100}});
    house.patch(&format!("{BUNDLES}/b"), "merge-patch", done).await.ok();
    // One that it finished it cannot begin again, and with it goes what it might read.
    forbidden(&house.get(CLUSTER).await);
    let again = json!({"status": {"state": "generating"}});
    forbidden(&house.patch(&format!("{BUNDLES}/b"), "merge-patch", again).await);
    house.user = root;
    assert_eq!(house.get(CLUSTER).await.code, 409);
}

#[tokio::test(start_paused = true)]
async fn what_goes_into_a_bundle_is_every_object_by_name_and_no_secret() {
    let (mut house, _) = scene(json!({"state": "generating", "nodeName": "n1"})).await;
    let secret = "hunter2-and-more";
    let data = json!({"metadata": {"name": "a-secret", "annotations": {"kubectl.kubernetes.io/last-applied-configuration": secret}},
        "stringData": {"password": secret}});
    house.post("/api/v1/namespaces/default/secrets", data).await.ok();
    house.config_map("a-map", json!({"script": secret})).await;
    let heaps = house.establish_heaps().await;
    let heap = json!({"apiVersion": "example.com/v1", "kind": "Heap", "metadata": {"name": "a-heap"}, "spec": {"x": secret, "n": 7}});
    house.post(heaps, heap).await.ok();
    house.user = node("n1");
    let text = match house.get(CLUSTER).await.body {
        Value::String(text) => text,
        other => panic!("{other}"),
    };
    let encoded = base64_of(secret);
    assert!(!text.contains(secret) && !text.contains(&encoded), "a secret is in it");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let objects: Vec<&Value> = lines.iter().filter(|line| line["object"].is_object()).collect();
    assert_eq!(lines[0]["objects"], objects.len());
    assert_eq!(lines.last().unwrap(), &json!({"end": true}));
    let named = |resource: &str, name: &str| {
        objects.iter().any(|line| line["resource"] == resource && line["object"]["metadata"]["name"] == name)
    };
    for (resource, name) in [
        ("v1/secrets", "a-secret"),
        ("v1/configmaps", "a-map"),
        ("example.com/v1/heaps", "a-heap"),
        ("v1/nodes", "n1"),
        ("harvesterhci.io/v1beta1/supportbundles", "b"),
        ("harvesterhci.io/v1beta1/settings", "overcommit-config"),
    ] {
        assert!(named(resource, name), "{resource} {name}");
    }
    assert!(objects.iter().any(|line| line["object"]["spec"]["n"] == 7));
    assert!(!text.contains("managedFields"));
    assert!(lines.iter().any(|line| line["file"] == "metrics.txt"));
    // Each object once, though events are in two groups.
    assert!(objects.iter().all(|line| line["resource"] != "events.k8s.io/v1/events"));
}

fn base64_of(text: &str) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    STANDARD.encode(text)
}

#[tokio::test(start_paused = true)]
async fn a_bundle_is_fetched_as_often_as_somebody_asks() {
    let ready = json!({"state": "ready", "nodeName": "n1", "filename": "f.zip", "filesize": 38});
    let (house, asked) = scene(ready).await;
    let uid = house.get(&format!("{BUNDLES}/b")).await.ok()["metadata"]["uid"].as_str().unwrap().to_owned();
    for (method, uri, range) in [
        (Method::GET, format!("{DOWNLOAD}?retain=true"), None),
        (Method::GET, DOWNLOAD.to_owned(), Some("bytes=2-")),
        (Method::HEAD, DOWNLOAD.to_owned(), None),
    ] {
        let answer = get(&house, method, &uri, range).await;
        assert!(answer.status().is_success());
        let name = answer.headers()["content-disposition"].to_str().unwrap().to_owned();
        assert!(name.starts_with(&format!("attachment; filename=supportbundle_{uid}_")), "{name}");
        assert_eq!(answer.headers()["content-type"], "application/zip");
        answer.into_body().collect().await.unwrap();
        house.get(&format!("{BUNDLES}/b")).await.ok();
    }
    assert_eq!(asked.lock()[0], format!("/v1/bundles/{uid}/download"));
    let answer = get(&house, Method::GET, DOWNLOAD, None).await;
    assert_eq!(answer.headers()["content-length"], "38");
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), CONTENT);
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    house.get(&format!("{BUNDLES}/b")).await.ok();
    let again = get(&house, Method::GET, DOWNLOAD, None).await;
    assert_eq!(again.into_body().collect().await.unwrap().to_bytes(), CONTENT, "it may not have arrived");
}

#[tokio::test(start_paused = true)]
async fn a_setting_chooses_the_namespaces_that_are_in_a_bundle() {
    let (mut house, _) = scene(json!({"state": "generating", "nodeName": "n1"})).await;
    for name in ["named", "extra", "other"] {
        house.post("/api/v1/namespaces", json!({"metadata": {"name": name}})).await.ok();
        let map = json!({"metadata": {"name": format!("of-{name}")}});
        house.post(&format!("/api/v1/namespaces/{name}/configmaps"), map).await.ok();
    }
    let setting = json!({"value": "named"});
    house
        .patch("/apis/harvesterhci.io/v1beta1/settings/support-bundle-namespaces", "merge-patch", setting)
        .await
        .ok();
    house.user = node("n1");
    let Value::String(text) = house.get(CLUSTER).await.body else { panic!("no text") };
    assert!(text.contains("of-named") && text.contains("\"kube-system\""), "{text}");
    assert!(!text.contains("of-other") && !text.contains("of-extra"), "{text}");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["objects"], lines.iter().filter(|line| line["object"].is_object()).count());
    assert!(lines.iter().any(|line| line["resource"] == "v1/nodes"), "and what is in no namespace");
}

#[tokio::test(start_paused = true)]
async fn one_that_is_not_ready_says_how_far_it_is_or_why_it_never_will_be() {
    for (status, words) in [
        (json!({}), "it waits for a node"),
        (json!({"state": "generating", "nodeName": "n1", "progress": 40}), "40 % are done"),
        (
            json!({"state": "error", "conditions": [{"type": "Initialized", "status": "False", "message": "the disk is full"}]}),
            "the disk is full",
        ),
    ] {
        let (house, asked) = scene(status).await;
        let refused = house.get(DOWNLOAD).await;
        assert_eq!(refused.code, 422);
        assert!(refused.message().contains("support bundle is not ready"), "{}", refused.message());
        assert!(refused.message().contains(words), "{}", refused.message());
        assert!(asked.lock().is_empty());
    }
    let (house, asked) = scene(json!({"state": "ready", "nodeName": "n1"})).await;
    assert_eq!(house.get("/v1/harvester/supportbundles/absent/download").await.code, 404);
    for path in ["../download", "%2e%2e/download", "a/../../b/download"] {
        let answer = house.get(&format!("/v1/harvester/supportbundles/{path}")).await;
        assert!((400..500).contains(&answer.code), "{path}: {}", answer.code);
    }
    assert!(asked.lock().is_empty(), "no node was asked for anything");
    assert_eq!(house.post(DOWNLOAD, json!({})).await.code, 405);
}
