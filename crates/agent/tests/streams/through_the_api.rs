//! The whole way: a WebSocket to an API server, which asks the stream port of a node, which has a guest.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use sheaf_agent::stream_port::NoImages;
use sheaf_hypervisor::{MachineId, qmp::RunState};
use sheaf_testbed::{Cluster, kubectl::Kubectl};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, UdpSocket},
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Error, Message, client::IntoClientRequest, protocol::frame::coding::CloseCode},
};

use crate::house::{House, LOCALHOST, NODE, PATIENCE, Tls, connect, tiny_guest};

const VMIS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";
const SUBRESOURCES: &str = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances";

/// An API server with one node, and one instance on it.
struct Scene {
    house: House,
    cluster: Cluster,
    kubectl: Kubectl,
    api: SocketAddr,
    uid: MachineId,
}

impl Scene {
    async fn new() -> Scene {
        let house = House::new(Arc::new(NoImages)).await;
        let tls = house.certificates.agent_client_config();
        let cluster = Cluster::start_reaching_nodes(house.world.clone(), tls).await;
        let listener = TcpListener::bind(SocketAddr::new(LOCALHOST, 0)).await.unwrap();
        let api = listener.local_addr().unwrap();
        cluster.listen(listener, house.certificates.server_config());

        let kubectl = Kubectl(cluster.client());
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}});
        kubectl.create("/api/v1/nodes", &node).await;
        listens_at(&kubectl, NODE, house.port).await;
        let instance = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "tiny"},
            "spec": {"domain": {"cpu": {"cores": 1}, "memory": {"guest": "192Mi"}, "devices": {}}},
        });
        let made = kubectl.create(VMIS, &instance).await;
        let uid: MachineId = made["metadata"]["uid"].as_str().unwrap().parse().unwrap();
        house.plug(&uid);
        Scene { house, cluster, kubectl, api, uid }
    }

    async fn set_status(&self, status: Value) {
        self.kubectl.patch(&format!("{VMIS}/tiny"), &json!({"status": status})).await;
    }

    async fn says_it_runs(&self) {
        let interface = json!({"name": "default", "ipAddress": "127.0.0.1", "mac": "52:54:00:00:00:01"});
        self.set_status(json!({"phase": "Running", "nodeName": NODE, "interfaces": [interface]})).await;
    }

    async fn open(&self, what: &str) -> Result<WebSocketStream<Tls>, Error> {
        let stream = connect(self.house.admin(), self.api, "127.0.0.1").await;
        let mut request = format!("wss://{}{SUBRESOURCES}/tiny/{what}", self.api).into_client_request()?;
        request.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, "plain.kubevirt.io".parse().unwrap());
        let (socket, response) = client_async(request, stream).await?;
        assert_eq!(response.headers()[header::SEC_WEBSOCKET_PROTOCOL], "plain.kubevirt.io");
        Ok(socket)
    }

    /// The code and the `Status` of a stream that was not opened.
    async fn refused(&self, what: &str) -> (u16, String) {
        let Err(Error::Http(response)) = self.open(what).await else { panic!("{what} was opened") };
        let code = response.status().as_u16();
        let status: Value =
            serde_json::from_slice(&response.body().clone().unwrap_or_default()).unwrap_or_default();
        (code, status["message"].as_str().unwrap_or_default().to_owned())
    }

    async fn ask(&self, method: Method, what: &str) -> (StatusCode, Bytes) {
        let stream = connect(self.house.admin(), self.api, "127.0.0.1").await;
        let (mut sender, driver) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(driver);
        let request = Request::builder()
            .method(method)
            .uri(format!("{SUBRESOURCES}/tiny/{what}"))
            .header(header::HOST, "127.0.0.1")
            .body(Full::<Bytes>::default())
            .unwrap();
        let response = sender.send_request(request).await.unwrap();
        let code = response.status();
        (code, response.into_body().collect().await.unwrap().to_bytes())
    }
}

/// Has a node say where its agent listens.
async fn listens_at(kubectl: &Kubectl, node: &str, port: u16) {
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }});
    kubectl.patch(&format!("/api/v1/nodes/{node}/status"), &status).await;
}

/// A console on a WebSocket.
struct Console {
    socket: WebSocketStream<Tls>,
    seen: String,
}

impl Console {
    fn on(socket: WebSocketStream<Tls>) -> Console {
        Console { socket, seen: String::new() }
    }

    async fn until(&mut self, text: &str) {
        let reading = async {
            while !self.seen.contains(text) {
                match self.socket.next().await {
                    Some(Ok(Message::Binary(bytes))) => self.seen.push_str(&String::from_utf8_lossy(&bytes)),
                    Some(Ok(Message::Ping(_))) => {}
                    other => panic!("{other:?} after {}", self.seen),
                }
            }
        };
        if timeout(PATIENCE, reading).await.is_err() {
            panic!("the guest never said {text:?}, but: {}", self.seen);
        }
        self.seen.clear();
    }

    async fn type_line(&mut self, line: &str) {
        self.socket.send(Message::Binary(format!("{line}\n").into())).await.unwrap();
    }
}

#[tokio::test]
async fn a_guest_is_entered_watched_paused_and_rebooted_through_the_api() {
    let scene = Scene::new().await;
    assert_eq!(scene.refused("console").await, (400, "VMI is not running".into()));

    let (machine, descriptors) = tiny_guest(scene.uid.as_str());
    scene.house.launch(&machine, descriptors).await;
    scene.says_it_runs().await;
    let mut console = Console::on(scene.open("console").await.unwrap());
    console.until("tiny guest is up").await;
    console.type_line("hello").await;
    console.until("what is 'hello'?").await;

    // Whoever comes later takes the console over; the earlier one is cut off, which virtctl knows to explain.
    let mut second = Console::on(scene.open("console").await.unwrap());
    while let Some(Ok(message)) = console.socket.next().await {
        assert!(!message.is_close(), "{message:?}");
    }
    second.type_line("again").await;
    second.until("what is 'again'?").await;

    let mut screen = scene.open("vnc").await.unwrap();
    let Some(Ok(Message::Binary(greeting))) = screen.next().await else { panic!("no greeting") };
    assert_eq!(&greeting[..], b"RFB 003.008\n");
    let (code, message) = scene.refused("vnc?preserveSession=true").await;
    assert_eq!(code, 409, "{message}");
    let (code, picture) = scene.ask(Method::GET, "vnc/screenshot?moveCursor=true").await;
    assert_eq!(code, StatusCode::OK);
    assert!(picture.starts_with(b"\x89PNG\r\n\x1a\n"));

    let state = async || {
        let monitor = scene.house.hypervisor.monitor(&scene.uid).await.unwrap();
        monitor.status().await.unwrap()
    };
    assert_eq!(scene.ask(Method::PUT, "pause").await, (StatusCode::OK, Bytes::new()));
    assert_eq!(state().await, RunState::Paused);
    assert_eq!(scene.ask(Method::PUT, "unpause").await.0, 409, "nobody said that it is paused");
    scene.set_status(json!({"conditions": [{"type": "Paused", "status": "True"}]})).await;
    assert_eq!(scene.ask(Method::PUT, "pause").await.0, 409);
    assert_eq!(scene.ask(Method::PUT, "unpause").await.0, 200);
    assert_eq!(state().await, RunState::Running);
    scene.set_status(json!({"conditions": []})).await;

    // Without an agent in the guest: the power button, and a start once it is off.
    assert_eq!(scene.ask(Method::PUT, "softreboot").await.0, 200);
    second.until("power button").await;
    second.until("tiny guest is up").await;
    assert_eq!(scene.ask(Method::PUT, "reset").await.0, 200);
    second.until("tiny guest is up").await;

    let (code, status) = scene.ask(Method::GET, "guestosinfo").await;
    assert_eq!(code, 409);
    assert!(String::from_utf8_lossy(&status).contains("VMI does not have guest agent connected"));

    scene.cluster.server.stop();
    let away = async {
        loop {
            match second.socket.next().await {
                Some(Ok(Message::Close(Some(frame)))) => return frame.code,
                Some(Ok(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    };
    assert_eq!(timeout(PATIENCE, away).await.unwrap(), CloseCode::Away);
    scene.house.end(&scene.uid).await;
}

#[tokio::test]
async fn ports_are_forwarded_through_the_api() {
    let scene = Scene::new().await;
    scene.set_status(json!({"phase": "Running", "nodeName": NODE})).await;
    assert_eq!(scene.refused("portforward/22").await, (400, "no network interfaces are present".into()));
    scene.says_it_runs().await;

    let guest = TcpListener::bind(SocketAddr::new(LOCALHOST, 0)).await.unwrap();
    let port = guest.local_addr().unwrap().port();
    let mut socket = scene.open(&format!("portforward/{port}/tcp")).await.unwrap();
    let (mut accepted, _) = guest.accept().await.unwrap();
    socket.send(Message::Binary(Bytes::from_static(b"SSH-2.0-test"))).await.unwrap();
    let mut heard = [0; 12];
    accepted.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"SSH-2.0-test");
    accepted.write_all(b"SSH-2.0-guest").await.unwrap();
    let Some(Ok(Message::Binary(answer))) = socket.next().await else { panic!("no answer") };
    assert_eq!(&answer[..], b"SSH-2.0-guest");
    // What the client closes reaches the guest as an end.
    socket.close(None).await.unwrap();
    let mut rest = Vec::new();
    timeout(PATIENCE, accepted.read_to_end(&mut rest)).await.unwrap().unwrap();

    drop(guest);
    let (code, message) = scene.refused(&format!("portforward/{port}")).await;
    assert_eq!(code, 500);
    assert!(message.contains("dialing VM"), "{message}");

    let guest = UdpSocket::bind(SocketAddr::new(LOCALHOST, 0)).await.unwrap();
    let port = guest.local_addr().unwrap().port();
    let mut socket = scene.open(&format!("portforward/{port}/udp")).await.unwrap();
    socket.send(Message::Binary(Bytes::from_static(b"question"))).await.unwrap();
    let mut datagram = [0; 64];
    let (length, from) = guest.recv_from(&mut datagram).await.unwrap();
    assert_eq!(&datagram[..length], b"question");
    guest.send_to(b"answer", from).await.unwrap();
    let Some(Ok(Message::Binary(answer))) = socket.next().await else { panic!("no datagram") };
    assert_eq!(&answer[..], b"answer");

    scene.set_status(json!({"conditions": [{"type": "Paused", "status": "True"}]})).await;
    let (code, message) = scene.refused(&format!("portforward/{port}/udp")).await;
    assert_eq!(code, 409);
    assert!(message.contains("VMI is paused"), "{message}");
}

#[tokio::test]
async fn a_node_that_is_not_the_one_meant_is_asked_nothing() {
    let scene = Scene::new().await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2"}});
    scene.kubectl.create("/api/v1/nodes", &node).await;
    // It claims to be where n1 is.
    listens_at(&scene.kubectl, "n2", scene.house.port).await;
    scene.set_status(json!({"phase": "Running", "nodeName": "n2"})).await;
    let (code, answer) = scene.ask(Method::PUT, "pause").await;
    assert_eq!(code, 500);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(answer.contains("the agent of node n2 cannot be asked"), "{answer}");
}

/// Machines outlive their agent, and whoever was at a console comes back to it at once.
#[tokio::test]
async fn an_agent_that_is_just_starting_again_is_waited_for() {
    let scene = Scene::new().await;
    scene.says_it_runs().await;
    let gone = TcpListener::bind(SocketAddr::new(LOCALHOST, 0)).await.unwrap();
    let port = gone.local_addr().unwrap().port();
    drop(gone);
    listens_at(&scene.kubectl, NODE, port).await;
    let (_, never) = scene.ask(Method::PUT, "pause").await;
    let never = String::from_utf8_lossy(&never).into_owned();
    assert!(never.contains("the agent of node n1 cannot be asked: Connection refused"), "{never}");

    let back = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        listens_at(&scene.kubectl, NODE, scene.house.port).await;
    };
    let ((_, answer), ()) = tokio::join!(scene.ask(Method::PUT, "pause"), back);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(!answer.contains("cannot be asked"), "{answer}");
}
