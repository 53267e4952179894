//! What goes on for long: watches, consoles, screens, forwarded ports, uploads. More of each than there are seats are open
//! at once, all of one identity, and none of them holds any.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use http::{Request, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::json;
use sheaf_apiserver::{
    ApiServer,
    dispatch::Peer,
    identity::MASTERS,
    machines::agents::{AgentConnection, DialAgent},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, split},
    sync::Semaphore,
    time::{Instant, timeout},
};

use crate::{
    audit_log::known,
    fairness::gauge,
    house::{House, MAPS},
    machine::{IMAGES, INSTANCES, instance},
};

/// More than a host of two processors has seats.
const MANY: usize = 150;
const STREAMS: &str = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/m";
const UPLOAD: &str = "/v1/harvester/harvesterhci.io.virtualmachineimages/default/debian?action=upload";

/// Repeats on a stream what it hears, and takes uploads without ever having had enough.
struct Agent {
    /// As many as uploads whose first piece has come.
    begun: Arc<Semaphore>,
}

#[async_trait]
impl DialAgent for Agent {
    async fn dial(&self, _: &str, _: SocketAddr) -> io::Result<Box<dyn AgentConnection>> {
        let (ours, theirs) = duplex(64 * 1024);
        let begun = self.begun.clone();
        tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| attend(request, begun.clone()));
            let connection = http1::Builder::new().serve_connection(TokioIo::new(theirs), service);
            let _ = connection.with_upgrades().await;
        });
        Ok(Box::new(ours))
    }
}

async fn attend(
    request: Request<Incoming>,
    begun: Arc<Semaphore>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let Some(protocol) = request.headers().get(header::UPGRADE).cloned() else {
        let mut body = request.into_body();
        let _first = body.frame().await;
        begun.add_permits(1);
        while body.frame().await.is_some() {}
        return Ok(Response::default());
    };
    tokio::spawn(async move {
        let stream = hyper::upgrade::on(request).await.unwrap();
        let (mut hears, mut says) = split(TokioIo::new(stream));
        let _ = tokio::io::copy(&mut hears, &mut says).await;
    });
    let answer = Response::builder().status(101).header(header::CONNECTION, "Upgrade");
    Ok(answer.header(header::UPGRADE, protocol).body(Full::default()).unwrap())
}

async fn house() -> (House, Arc<Semaphore>) {
    let begun = Arc::new(Semaphore::new(0));
    let house = House::reaching(Arc::new(Agent { begun: begun.clone() })).await;
    house.join_node().await;
    house.post(INSTANCES, instance("m")).await.ok();
    let status = json!({"phase": "Running", "nodeName": "n1",
        "interfaces": [{"name": "nic-0", "ipAddress": "10.0.0.2"}]});
    house.patch(&format!("{INSTANCES}/m"), "merge-patch", json!({"status": status})).await.ok();
    let image = json!({"metadata": {"name": "debian", "annotations": {"sheaf.io/node": "n1"}},
        "spec": {"displayName": "debian", "sourceType": "upload"}});
    house.post(IMAGES, image).await.ok();
    (house, begun)
}

fn somebody() -> Peer {
    known("jo", &[MASTERS])
}

/// A WebSocket on a connection of its own, once it is one.
async fn open(server: &ApiServer, uri: &str) -> DuplexStream {
    let (mut ours, theirs) = duplex(64 * 1024);
    let server = server.clone();
    tokio::spawn(async move {
        let service = service_fn(move |request: Request<Incoming>| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.handle(request, &somebody()).await) }
        });
        let connection = http1::Builder::new().serve_connection(TokioIo::new(theirs), service);
        let _ = connection.with_upgrades().await;
    });
    let request = format!(
        "GET {uri} HTTP/1.1\r\nHost: sheaf\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    );
    ours.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(ours.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with("HTTP/1.1 101"), "{uri}: {head}");
    ours
}

/// Whether bytes go to the agent and come back, in frames of WebSocket.
async fn is_alive(stream: &mut DuplexStream) -> bool {
    // The mask of what a client sends may be nothing.
    stream.write_all(&[0x82, 0x80 | 2, 0, 0, 0, 0, b'h', b'i']).await.unwrap();
    let mut heard = [0; 4];
    stream.read_exact(&mut heard).await.unwrap();
    heard == [0x82, 2, b'h', b'i']
}

/// Nothing is worked on, and who has all that open is answered like anybody.
async fn assert_seats_are_free(server: &ApiServer, what: &str) {
    assert_eq!(gauge(server, "current_executing_requests").await, 0, "{what}");
    assert_eq!(gauge(server, "current_executing_seats").await, 0, "{what}");
    let began = Instant::now();
    let request = Request::get(MAPS).body(Full::<Bytes>::default()).unwrap();
    assert_eq!(server.handle(request, &somebody()).await.status(), 200, "{what}");
    assert!(began.elapsed().is_zero(), "{what}: {:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn consoles_screens_and_forwarded_ports_hold_no_seats() {
    let (house, _) = house().await;
    for what in ["console", "vnc", "portforward/22", "portforward/53/udp"] {
        let mut streams = Vec::new();
        for _ in 0..MANY {
            streams.push(open(&house.server, &format!("{STREAMS}/{what}")).await);
        }
        assert_seats_are_free(&house.server, what).await;
        if !what.ends_with("udp") {
            assert!(is_alive(&mut streams[0]).await && is_alive(&mut streams[MANY - 1]).await, "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn uploads_hold_no_seats() {
    let (house, begun) = house().await;
    let mut uploads = Vec::new();
    for _ in 0..MANY {
        let first = futures::stream::iter([Ok::<_, io::Error>(Frame::data(Bytes::from_static(b"disk")))]);
        let body = StreamBody::new(first.chain(futures::stream::pending()));
        let request =
            Request::post(UPLOAD).header("content-type", "application/octet-stream").body(body).unwrap();
        let server = house.server.clone();
        uploads.push(tokio::spawn(async move { server.handle(request, &somebody()).await.status() }));
    }
    let all = begun.acquire_many(u32::try_from(MANY).unwrap());
    let _all = timeout(Duration::from_secs(1), all).await.expect("all of them begin").unwrap();
    assert_seats_are_free(&house.server, "uploads").await;
    assert!(uploads.iter().all(|upload| !upload.is_finished()));
}

#[tokio::test(start_paused = true)]
async fn watches_of_objects_and_of_one_object_hold_no_seats() {
    let (house, _) = house().await;
    house.config_map("a", json!({})).await;
    let mut watches = Vec::new();
    for uri in [
        format!("{MAPS}?watch=1"),
        format!(
            "{MAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1"
        ),
        format!("{MAPS}?watch=1&fieldSelector=metadata.name=a"),
        format!("{INSTANCES}?watch=1"),
    ] {
        for _ in 0..MANY {
            let request = Request::get(&uri).body(Full::<Bytes>::default()).unwrap();
            let watch = house.server.handle(request, &somebody()).await;
            assert_eq!(watch.status(), 200, "{uri}");
            watches.push(watch);
        }
        assert_seats_are_free(&house.server, &uri).await;
    }
}
