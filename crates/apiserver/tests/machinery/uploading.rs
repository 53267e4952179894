//! Images through the door, to an agent that only notes what it is sent.

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use sheaf_apiserver::{
    identity::User,
    machines::agents::{AgentConnection, DialAgent},
};
use tokio::time::timeout;

use crate::house::{Answer, House};

const IMAGES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachineimages";
const UPLOAD: &str = "/v1/harvester/harvesterhci.io.virtualmachineimages/default/debian?action=upload";
const FORM: (&str, &str) = ("content-type", "multipart/form-data; boundary=xyz");
const BARE: (&str, &str) = ("content-type", "application/octet-stream");

/// What an agent was sent: to whom, how long it said to be, and what came of it.
type Sent = (String, Option<String>, Result<Vec<u8>, ()>);

#[derive(Clone, Copy)]
enum Manner {
    Takes,
    /// Says how much of it is there.
    Has(&'static str),
    Refuses(u16, &'static str),
    /// Never reads a byte.
    Sleeps,
}

struct Agent {
    sent: Arc<Mutex<Vec<Sent>>>,
    manner: Mutex<Manner>,
}

#[async_trait]
impl DialAgent for Agent {
    async fn dial(&self, node: &str, _: SocketAddr) -> io::Result<Box<dyn AgentConnection>> {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (sent, node, manner) = (self.sent.clone(), node.to_owned(), *self.manner.lock());
        tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                let (sent, node) = (sent.clone(), node.clone());
                async move {
                    let length = request.headers().get("content-length");
                    let length = length.map(|text| text.to_str().unwrap().to_owned());
                    let asked = format!("{node} {} {}", request.method(), request.uri());
                    let answer = match manner {
                        Manner::Takes => {
                            // Beside the connection: one that breaks off is noted, too.
                            let noting = tokio::spawn(async move {
                                let body = request.into_body().collect().await;
                                let body = body.map(|body| body.to_bytes().to_vec()).map_err(drop);
                                sent.lock().push((asked, length, body));
                            });
                            let _ = noting.await;
                            Response::new(Full::default())
                        }
                        Manner::Has(offset) => {
                            Response::new(Full::new(Bytes::from_static(offset.as_bytes())))
                        }
                        Manner::Refuses(code, sentence) => {
                            let body = Full::new(Bytes::from_static(sentence.as_bytes()));
                            Response::builder().status(code).body(body).unwrap()
                        }
                        Manner::Sleeps => std::future::pending().await,
                    };
                    Ok::<_, Infallible>(answer)
                }
            });
            let _ = http1::Builder::new().serve_connection(TokioIo::new(theirs), service).await;
        });
        Ok(Box::new(ours))
    }
}

struct Scene {
    house: House,
    agent: Arc<Agent>,
    uid: String,
}

impl Scene {
    /// A server with a node and an image that is to be uploaded to it.
    async fn new(spec: Value) -> Scene {
        let agent = Arc::new(Agent { sent: Arc::default(), manner: Mutex::new(Manner::Takes) });
        let house = House::reaching(agent.clone()).await;
        house.join_node().await;
        let image = json!({
            "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage",
            "metadata": {"name": "debian", "annotations": {"sheaf.io/node": "n1"}}, "spec": spec,
        });
        let made = house.post(IMAGES, image).await.ok();
        let uid = made["metadata"]["uid"].as_str().unwrap().to_owned();
        Scene { house, agent, uid }
    }

    async fn to_be_uploaded() -> Scene {
        Scene::new(json!({"displayName": "debian", "sourceType": "upload"})).await
    }

    async fn send(&self, more: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Answer {
        self.house.send(Method::POST, &format!("{UPLOAD}{more}"), headers, body).await
    }

    async fn sent(&self) -> Vec<Sent> {
        // A connection that was broken off is noticed a moment later.
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.agent.sent.lock().clone()
    }

    fn asked(&self) -> String {
        format!("n1 PUT /v1/images/{}/upload", self.uid)
    }
}

fn form(part: &str, content: &[u8]) -> Vec<u8> {
    let head = format!(
        "--xyz\r\nContent-Disposition: form-data; name=\"{part}\"; filename=\"debian.qcow2\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n"
    );
    [head.as_bytes(), content, b"\r\n--xyz--\r\n"].concat()
}

#[tokio::test(start_paused = true)]
async fn a_form_reaches_the_agent_of_the_images_node_as_the_file_alone() {
    let scene = Scene::to_be_uploaded().await;
    let content: Vec<u8> = (0..300_000_u32).map(|number| number as u8).collect();
    scene.send("&size=300000", &[FORM], form("chunk", &content)).await.ok();
    let sized = (scene.asked(), Some("300000".into()), Ok(content.clone()));
    assert_eq!(scene.sent().await, [sized]);
    scene.send("", &[FORM], form("chunk", &content)).await.ok();
    assert_eq!(scene.sent().await[1], (scene.asked(), None, Ok(content)));
}

#[tokio::test(start_paused = true)]
async fn a_bare_body_is_the_file_and_its_checksum_goes_along() {
    let checksum = "ab".repeat(64);
    let spec = json!({"displayName": "debian", "sourceType": "upload", "checksum": checksum});
    let scene = Scene::new(spec).await;
    scene.send("&size=4", &[BARE], "disk").await.ok();
    let asked = format!("{}?checksum={checksum}", scene.asked());
    assert_eq!(scene.sent().await, [(asked, Some("4".into()), Ok(b"disk".to_vec()))]);
}

#[tokio::test(start_paused = true)]
async fn the_part_of_a_form_may_be_called_file_as_well() {
    let scene = Scene::to_be_uploaded().await;
    scene.send("", &[FORM, ("file-size", "4")], form("file", b"disk")).await.ok();
    assert_eq!(scene.sent().await, [(scene.asked(), Some("4".into()), Ok(b"disk".to_vec()))]);
}

#[tokio::test(start_paused = true)]
async fn the_rest_of_a_file_goes_on_where_the_server_says() {
    let scene = Scene::to_be_uploaded().await;
    *scene.agent.manner.lock() = Manner::Has(r#"{"offset":6}"#);
    let asked = UPLOAD.replace("?action=upload", "/upload");
    assert_eq!(scene.house.get(&asked).await.ok(), json!({"offset": 6}));
    *scene.agent.manner.lock() = Manner::Takes;
    scene.send("&size=10&offset=6", &[BARE], "rest").await.ok();
    let range = ("content-range", "bytes 6-9/10");
    scene.send("", &[FORM, range], form("chunk", b"rest")).await.ok();
    let expected = (format!("{}?offset=6", scene.asked()), Some("4".into()), Ok(b"rest".to_vec()));
    assert_eq!(scene.sent().await, [expected.clone(), expected]);
    for (more, body) in
        [("&size=10&offset=6", "long rest"), ("&size=10&offset=11", ""), ("&size=10&offset=6", "re")]
    {
        let answer = scene.send(more, &[BARE], body).await;
        assert_eq!(answer.refusal(), (400, "BadRequest"), "{more}: {}", answer.message());
    }
}

#[tokio::test(start_paused = true)]
async fn half_a_file_is_never_taken_for_a_whole_one() {
    let scene = Scene::to_be_uploaded().await;
    let whole = form("chunk", b"a disk that is cut short");
    let cut = whole[..whole.len() - 20].to_vec();
    for (more, header, body) in [
        ("", FORM, cut.clone()),
        ("&size=24", FORM, cut),
        ("&size=25", FORM, whole.clone()),
        ("&size=5", BARE, b"disk".to_vec()),
        ("&size=3", BARE, b"disk".to_vec()),
    ] {
        let answer = scene.send(more, &[header], body).await;
        assert_eq!(answer.refusal(), (400, "BadRequest"), "{}", answer.message());
    }
    // Those whose first half is with the agent already: the sender breaks off, goes away, or ends too early.
    let half = Bytes::from(whole[..whole.len() - 20].to_vec());
    for (header, then) in [(BARE, Some("connection reset")), (FORM, None)] {
        let pieces = futures::stream::iter([Ok(Frame::data(half.clone()))]).chain(a_moment_later(then));
        let request = Request::post(UPLOAD).header(header.0, header.1).body(StreamBody::new(pieces)).unwrap();
        assert_eq!(scene.house.server.handle(request, &scene.house.peer()).await.status(), 400);
    }
    let pieces = futures::stream::iter([Ok(Frame::data(half))]).chain(a_moment_later(None));
    let request = Request::post(UPLOAD).header(BARE.0, BARE.1).body(StreamBody::new(pieces)).unwrap();
    let peer = scene.house.peer();
    let gone = timeout(Duration::from_millis(500), scene.house.server.handle(request, &peer)).await;
    assert!(gone.is_err(), "dropped in the middle");
    let sent = scene.sent().await;
    assert!(sent.len() >= 3, "{sent:?}");
    for (_, _, body) in sent {
        assert_eq!(body, Err(()));
    }
}

/// Nothing for a while, and then the end or an error.
fn a_moment_later(error: Option<&'static str>) -> impl Stream<Item = io::Result<Frame<Bytes>>> + Unpin {
    let ending = async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        futures::stream::iter(error.map(|why| Err(io::Error::other(why))))
    };
    Box::pin(futures::stream::once(ending).flatten())
}

#[tokio::test(start_paused = true)]
async fn a_sender_is_read_no_faster_than_the_agent_takes() {
    let scene = Scene::to_be_uploaded().await;
    *scene.agent.manner.lock() = Manner::Sleeps;
    let pulled = Arc::new(AtomicUsize::new(0));
    let counted = pulled.clone();
    let pieces = futures::stream::repeat_with(move || {
        counted.fetch_add(1, Ordering::SeqCst);
        Ok::<_, io::Error>(Frame::data(Bytes::from_static(&[7; 64 * 1024])))
    });
    let request = Request::post(UPLOAD).header(BARE.0, BARE.1).body(StreamBody::new(pieces)).unwrap();
    let peer = scene.house.peer();
    let sending = scene.house.server.handle(request, &peer);
    let waited = timeout(Duration::from_secs(3600), sending).await;
    assert!(waited.is_err(), "an upload has no hour to end in");
    let pulled = pulled.load(Ordering::SeqCst);
    assert!((1..32).contains(&pulled), "{pulled} pieces of 64 KiB");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_uploaded_is_refused_with_a_reason() {
    let scene = Scene::to_be_uploaded().await;
    let unknown = "/v1/harvester/harvesterhci.io.virtualmachineimages/default/none?action=upload";
    let answer = scene.house.send(Method::POST, unknown, &[BARE], "disk").await;
    assert_eq!(answer.refusal(), (404, "NotFound"));
    assert_eq!(scene.house.get(UPLOAD).await.code, 405);
    assert_eq!(scene.send("&size=many", &[BARE], "disk").await.refusal(), (400, "BadRequest"));
    assert_eq!(scene.send("", &[("content-type", "text/html")], "disk").await.code, 415);
    let lacking = scene.send("", &[FORM], form("picture", b"disk")).await;
    assert!(lacking.code == 400 && lacking.message().contains("\"chunk\""), "{}", lacking.message());
    let nameless = scene.send("", &[("content-type", "multipart/form-data")], "disk").await;
    assert!(nameless.code == 400 && nameless.message().contains("boundary"), "{}", nameless.message());

    let image = format!("{IMAGES}/debian");
    let homeless = json!({"metadata": {"annotations": {"sheaf.io/node": null}}});
    scene.house.patch(&image, "merge-patch", homeless).await.ok();
    let answer = scene.send("", &[BARE], "disk").await;
    assert!(answer.code == 409 && answer.message().contains("no node"), "{}", answer.message());
    let here = json!({"status": {"conditions": [{"type": "Imported", "status": "True"}]}});
    scene.house.patch(&image, "merge-patch", here).await.ok();
    let answer = scene.send("", &[BARE], "disk").await;
    assert!(answer.code == 409 && answer.message().contains("here already"), "{}", answer.message());

    let spec = json!({"displayName": "a", "sourceType": "download", "url": "https://example.com/a"});
    let answer = Scene::new(spec).await.send("", &[BARE], "disk").await;
    assert!(answer.code == 409 && answer.message().contains("\"download\""), "{}", answer.message());
}

#[tokio::test(start_paused = true)]
async fn only_who_may_change_the_image_may_send_it() {
    let mut scene = Scene::to_be_uploaded().await;
    scene.house.user =
        User { name: "eve".into(), groups: vec!["system:authenticated".into()], ..User::default() };
    let asked = scene.house.get(&UPLOAD.replace("?action=upload", "/upload")).await;
    assert_eq!(asked.refusal(), (403, "Forbidden"));
    let answer = scene.send("", &[BARE], "disk").await;
    assert_eq!(answer.refusal(), (403, "Forbidden"));
    assert!(
        answer.message().contains("cannot update resource \"virtualmachineimages\""),
        "{}",
        answer.message()
    );
    assert_eq!(scene.sent().await, []);
}

#[tokio::test(start_paused = true)]
async fn what_the_agent_says_against_it_reaches_the_sender() {
    let scene = Scene::to_be_uploaded().await;
    *scene.agent.manner.lock() = Manner::Refuses(400, "the image cannot be used: it has a backing file");
    let endless =
        futures::stream::repeat_with(|| Ok::<_, io::Error>(Frame::data(Bytes::from_static(&[7; 4096]))))
            .then(|piece| async {
                tokio::time::sleep(Duration::from_millis(1)).await;
                piece
            });
    let body = StreamBody::new(Box::pin(endless));
    let request = Request::post(UPLOAD).header(BARE.0, BARE.1).body(body).unwrap();
    let answer = scene.house.server.handle(request, &scene.house.peer()).await;
    assert_eq!(answer.status(), 400, "told before the last byte, which never comes");
    *scene.agent.manner.lock() = Manner::Refuses(409, "the image is already on its way");
    assert_eq!(scene.send("", &[BARE], "disk").await.refusal(), (409, "Conflict"));
}
