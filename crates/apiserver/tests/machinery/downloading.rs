//! Images through the door to those who may read them, from an agent that has a small one.

use std::{convert::Infallible, io, net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use http::{Method, Request, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, Full, StreamBody, combinators::BoxBody};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::json;
use sheaf_apiserver::{
    identity::{AUTHENTICATED, User},
    machines::agents::{AgentConnection, DialAgent},
};

use crate::house::House;

const IMAGES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachineimages";
const DOWNLOAD: &str = "/v1/harvester/harvesterhci.io.virtualmachineimages/default/debian/download";
const CONTENT: &[u8] = b"all the bytes of a disk";

#[derive(Default)]
struct Agent {
    asked: Mutex<Vec<String>>,
    breaks_off: Mutex<bool>,
}

type Pieces = Pin<Box<dyn Stream<Item = io::Result<Frame<Bytes>>> + Send + Sync>>;

struct Line(Arc<Agent>);

#[async_trait]
impl DialAgent for Line {
    async fn dial(&self, _: &str, _: SocketAddr) -> io::Result<Box<dyn AgentConnection>> {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let agent = self.0.clone();
        tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                let answer = agent.answer(&request);
                async move { Ok::<_, Infallible>(answer) }
            });
            let _ = http1::Builder::new().serve_connection(TokioIo::new(theirs), service).await;
        });
        Ok(Box::new(ours))
    }
}

impl Agent {
    fn answer(&self, request: &Request<Incoming>) -> Response<BoxBody<Bytes, io::Error>> {
        let range = request.headers().get(header::RANGE).map(|range| range.to_str().unwrap().to_owned());
        self.asked.lock().push(format!("{} {}", request.uri(), range.as_deref().unwrap_or("all")));
        let answer =
            Response::builder().header("content-type", "application/octet-stream").header("x-inside", "1");
        if *self.breaks_off.lock() {
            let first = stream::iter([Ok(Frame::data(Bytes::from_static(CONTENT)))]);
            // Later than what came before: an answer that ends with its beginning is no answer at all.
            let end = stream::once(async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Err(io::Error::other("the disk is gone"))
            });
            let pieces: Pieces = Box::pin(first.chain(end));
            let answer = answer.header("content-length", 2 * CONTENT.len());
            return answer.body(BodyExt::boxed(StreamBody::new(pieces))).unwrap();
        }
        let full = |bytes: &'static [u8]| {
            Full::new(Bytes::from_static(bytes)).map_err(|never| match never {}).boxed()
        };
        match range.as_deref() {
            None => answer.header("etag", "\"u\"").body(full(CONTENT)),
            Some("bytes=4-") => {
                answer.status(206).header("content-range", "bytes 4-22/23").body(full(&CONTENT[4..]))
            }
            Some(_) => answer.status(416).body(full(b"it has 23 bytes, and none of those")),
        }
        .unwrap()
    }
}

async fn scene() -> (House, Arc<Agent>) {
    let agent = Arc::new(Agent::default());
    let house = House::reaching(Arc::new(Line(agent.clone()))).await;
    house.post("/api/v1/nodes", json!({"metadata": {"name": "n1"}})).await.ok();
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": "192.0.2.7"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
    }});
    house.patch("/api/v1/nodes/n1/status", "merge-patch", status).await.ok();
    let image = json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage",
        "metadata": {"name": "debian", "annotations": {"sheaf.io/node": "n1"}},
        "spec": {"displayName": "../Debian 12", "sourceType": "upload"},
        "status": {"conditions": [{"type": "Imported", "status": "True"}]},
    });
    house.post(IMAGES, image).await.ok();
    (house, agent)
}

async fn get(
    house: &House,
    uri: &str,
    headers: &[(&str, &str)],
) -> Response<sheaf_apiserver::respond::ApiBody> {
    let mut request = Request::builder().method(Method::GET).uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    house.server.handle(request.body(Empty::<Bytes>::new()).unwrap(), &house.peer()).await
}

#[tokio::test(start_paused = true)]
async fn an_image_is_passed_on_whole_or_in_the_part_that_is_asked_for() {
    let (house, agent) = scene().await;
    for uri in [DOWNLOAD, &DOWNLOAD.replace("/download", "?link=download")] {
        let answer = get(&house, uri, &[]).await;
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["content-length"]),
            (200, &"23".parse().unwrap())
        );
        assert_eq!(answer.headers()["content-disposition"], "attachment; filename=\"_Debian_12\"");
        assert_eq!(answer.headers()["etag"], "\"u\"");
        assert!(!answer.headers().contains_key("x-inside"), "what concerns nobody stays inside");
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), CONTENT);
    }
    let answer = get(&house, DOWNLOAD, &[("range", "bytes=4-")]).await;
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["content-range"]),
        (206, &"bytes 4-22/23".parse().unwrap())
    );
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), &CONTENT[4..]);
    assert_eq!(get(&house, DOWNLOAD, &[("range", "bytes=99-")]).await.status(), 416);
    assert!(agent.asked.lock()[0].ends_with("/download all"), "{:?}", agent.asked.lock());
}

#[tokio::test(start_paused = true)]
async fn what_breaks_off_is_never_taken_for_a_whole_file() {
    let (house, agent) = scene().await;
    *agent.breaks_off.lock() = true;
    let answer = get(&house, DOWNLOAD, &[]).await;
    assert_eq!(answer.status(), 200);
    answer.into_body().collect().await.map(|_| ()).unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn only_who_may_read_an_image_has_it_and_nobody_else_learns_whether_it_is_there() {
    let (mut house, agent) = scene().await;
    let role = json!({"metadata": {"name": "reader"}, "rules": [{"apiGroups": ["harvesterhci.io"],
        "resources": ["virtualmachineimages"], "verbs": ["get"]}]});
    house.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", role).await.ok();
    for (namespace, user) in [("default", "jo"), ("elsewhere", "eve")] {
        if namespace != "default" {
            house.post("/api/v1/namespaces", json!({"metadata": {"name": namespace}})).await.ok();
        }
        let binding = json!({"metadata": {"name": user},
            "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
            "roleRef": {"kind": "ClusterRole", "name": "reader", "apiGroup": "rbac.authorization.k8s.io"}});
        let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings");
        house.post(&path, binding).await.ok();
    }
    let user = |name: &str| User { name: name.into(), groups: vec![AUTHENTICATED.into()], ..User::default() };
    house.user = user("eve");
    let guesses = [DOWNLOAD.to_owned(), DOWNLOAD.replace("/debian/", "/guessed/")];
    for guess in &guesses {
        assert_eq!(get(&house, guess, &[]).await.status(), 403, "{guess}");
    }
    assert_eq!(agent.asked.lock().len(), 0);
    house.user = user("jo");
    assert_eq!(get(&house, DOWNLOAD, &[]).await.status(), 200);
    assert_eq!(get(&house, &guesses[1], &[]).await.status(), 404);
    assert_eq!(house.post(DOWNLOAD, json!({})).await.code, 405);
}

#[tokio::test(start_paused = true)]
async fn an_image_that_is_not_here_yet_cannot_be_had() {
    let (house, _) = scene().await;
    let waiting = json!({"status": {"conditions": [{"type": "Imported", "status": "Unknown"}]}});
    house.patch(&format!("{IMAGES}/debian"), "merge-patch", waiting).await.ok();
    assert_eq!(get(&house, DOWNLOAD, &[]).await.status(), 409);
    assert_eq!(get(&house, &DOWNLOAD.replace("/download", "/downloadcancel"), &[]).await.status(), 200);
}
