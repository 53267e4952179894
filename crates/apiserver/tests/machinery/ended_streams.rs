//! Consoles, screens and forwarded ports that are open when their session ends, over real WebSockets and a pretended agent.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Empty;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use sheaf_apiserver::{
    dispatch::Peer,
    machines::agents::{AgentConnection, DialAgent},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, duplex},
    sync::mpsc,
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, protocol::Role},
};

use crate::{
    house::House,
    machine::{INSTANCES, instance},
    visitors::{bearing, join_admin},
};

type Socket = WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>;

/// Longer than it takes to see that somebody is out, and shorter than what a client may be silent for.
const WHILE: Duration = Duration::from_secs(30);

/// Hands every stream over, says back what it hears on it, and tells when one has ended.
struct Echo(mpsc::UnboundedSender<()>);

#[async_trait]
impl DialAgent for Echo {
    async fn dial(&self, _: &str, _: SocketAddr) -> io::Result<Box<dyn AgentConnection>> {
        let (ours, theirs) = duplex(64 * 1024);
        let ended = self.0.clone();
        let service = service_fn(move |mut request: Request<Incoming>| {
            let (upgrade, ended) = (hyper::upgrade::on(&mut request), ended.clone());
            tokio::spawn(async move {
                let mut stream = TokioIo::new(upgrade.await.unwrap());
                let mut heard = [0; 64];
                while let Ok(count @ 1..) = stream.read(&mut heard).await {
                    stream.write_all(&heard[..count]).await.unwrap();
                }
                let _ = ended.send(());
            });
            async move {
                let mut response = Response::new(Empty::<Bytes>::new());
                *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                for name in [header::CONNECTION, header::UPGRADE] {
                    let said = request.headers()[&name].clone();
                    response.headers_mut().insert(name, said);
                }
                Ok::<_, Infallible>(response)
            }
        });
        tokio::spawn(async move {
            let serving = http1::Builder::new().serve_connection(TokioIo::new(theirs), service);
            let _ = serving.with_upgrades().await;
        });
        Ok(Box::new(ours))
    }
}

async fn open(house: &House, bearer: &str, stream: &str) -> Socket {
    let (ours, theirs) = duplex(64 * 1024);
    let server = house.server.clone();
    tokio::spawn(async move {
        let service = service_fn(move |request| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.handle(request, &Peer::default()).await) }
        });
        let _ = http1::Builder::new().serve_connection(TokioIo::new(theirs), service).with_upgrades().await;
    });
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(ours)).await.unwrap();
    tokio::spawn(async move {
        let _ = connection.with_upgrades().await;
    });
    let path = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/m";
    let request = Request::get(format!("{path}/{stream}"))
        .header(header::HOST, "sheaf.example")
        .header(header::AUTHORIZATION, format!("Bearer {bearer}"))
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_VERSION, "13")
        .header(header::SEC_WEBSOCKET_KEY, "dGhlIHNhbXBsZSBub25jZQ==");
    let response = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap();
    assert_eq!(response.status().as_u16(), 101, "{stream}");
    let upgraded = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    WebSocketStream::from_raw_socket(upgraded, Role::Client, None).await
}

/// Whether what is said is still said back.
async fn answers(socket: &mut Socket, word: &str) -> bool {
    if socket.send(Message::binary(word.as_bytes().to_vec())).await.is_err() {
        return false;
    }
    loop {
        match timeout(WHILE, socket.next()).await.expect("an answer, or the end") {
            Some(Ok(Message::Binary(said))) => return said == word.as_bytes(),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Some(_) | None => return false,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn consoles_screens_and_forwarded_ports_end_with_the_session_that_opened_them() {
    let (ended, mut endings) = mpsc::unbounded_channel();
    let house = House::reaching(Arc::new(Echo(ended))).await;
    house.join_node().await;
    house.post(INSTANCES, instance("m")).await.ok();
    let status = json!({"status": {"phase": "Running", "nodeName": "n1",
        "interfaces": [{"name": "nic-0", "ipAddress": "10.52.0.7"}]}});
    house.patch(&format!("{INSTANCES}/m"), "merge-patch", status).await.ok();
    let (anna, other) = (join_admin(&house, "anna").await, join_admin(&house, "other").await);
    let mut theirs = open(&house, &other, "console").await;
    let mut open_streams = Vec::new();
    for stream in ["console", "vnc", "portforward/22/tcp"] {
        open_streams.push((stream, open(&house, &anna, stream).await));
    }
    tokio::time::sleep(WHILE).await;
    for (stream, socket) in &mut open_streams {
        assert!(answers(socket, "word").await, "{stream} goes on while they are in");
    }
    assert!(answers(&mut theirs, "word").await);
    bearing(&house, &anna, Method::POST, "/v3/tokens?action=logout", Value::Null).await.ok();
    tokio::time::sleep(WHILE).await;
    for (stream, socket) in &mut open_streams {
        assert!(!answers(socket, "more").await, "{stream} goes on after they are out");
        timeout(WHILE, endings.recv()).await.expect("the guest's end of it is closed, too");
    }
    assert!(answers(&mut theirs, "word").await, "and nobody else's ends");
}
