//! What the port takes from whom, without a guest.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use http::Method;
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use sheaf_agent::stream_port::{self, Announced, ImageBytes, ImageSink, NoImages, NotTaken};
use sheaf_storage::{Storage, StorageConfig};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    time::timeout,
};

use crate::house::{House, LOCALHOST, bare, text};

const UID: &str = "0b1d9c3e-6d56-4f5f-8d7c-8a2f3f1f0c11";

fn of_machine(what: &str) -> String {
    format!("/v1/machines/{UID}/{what}")
}

#[tokio::test]
async fn only_the_api_server_is_answered() {
    let house = House::new(Arc::new(NoImages)).await;
    let refused = house.ask_as(house.admin(), Method::GET, &of_machine("console"), "").await;
    assert_eq!(refused.status(), 403);
    assert_eq!(text(refused).await, "only the API server is answered here");
    let unknown = house.ask(Method::GET, &of_machine("console")).await;
    assert_eq!(unknown.status(), 404);
    assert!(text(unknown).await.contains("is not running"));
    assert_eq!(house.ask(Method::GET, "/v1/machines").await.status(), 404);
    assert_eq!(house.ask(Method::GET, &of_machine("pause")).await.status(), 405);
    house.stop.cancel();
    timeout(Duration::from_secs(5), async {
        while !house.serving.is_finished() {
            tokio::task::yield_now().await
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_port_is_forwarded_to_the_machines_own_addresses_only() {
    let house = House::new(Arc::new(NoImages)).await;
    let guest = TcpListener::bind(SocketAddr::new(LOCALHOST, 0)).await.unwrap();
    let port = guest.local_addr().unwrap().port();
    let path = of_machine(&format!("portforward/127.0.0.1/{port}/tcp"));

    let foreign = house.ask(Method::GET, &path).await;
    assert_eq!(foreign.status(), 403);
    assert!(text(foreign).await.contains("is no address of machine"));

    house.plug(&UID.parse().unwrap());
    let response = house.ask(Method::GET, &path).await;
    assert_eq!(response.status(), 101);
    let mut caller = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    let (mut accepted, _) = guest.accept().await.unwrap();
    caller.write_all(b"hello").await.unwrap();
    let mut heard = [0; 5];
    accepted.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"hello");
    accepted.write_all(b"and back").await.unwrap();
    drop(accepted);
    let mut back = String::new();
    caller.read_to_string(&mut back).await.unwrap();
    assert_eq!(back, "and back");

    drop(guest);
    let closed = house.ask(Method::GET, &path).await;
    assert_eq!(closed.status(), 502);
    assert!(text(closed).await.contains("dialing VM"));
}

#[tokio::test]
async fn streams_end_when_the_port_is_closed() {
    let house = House::new(Arc::new(NoImages)).await;
    house.plug(&UID.parse().unwrap());
    let guest = TcpListener::bind(SocketAddr::new(LOCALHOST, 0)).await.unwrap();
    let port = guest.local_addr().unwrap().port();
    let response = house.ask(Method::GET, &of_machine(&format!("portforward/127.0.0.1/{port}/tcp"))).await;
    let mut caller = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    let (_accepted, _) = guest.accept().await.unwrap();
    house.stop.cancel();
    let mut rest = Vec::new();
    let _ = timeout(Duration::from_secs(5), caller.read_to_end(&mut rest)).await.unwrap();
    assert_eq!(rest, b"");
}

#[tokio::test]
async fn a_screen_is_preserved_when_asked_for_and_taken_over_otherwise() {
    let house = House::new(Arc::new(NoImages)).await;
    let mut machine = bare(UID);
    machine.graphics = true;
    house.launch(&machine, Default::default()).await;

    let greeting = async |path: &str| {
        let response = house.ask(Method::GET, &of_machine(path)).await;
        assert_eq!(response.status(), 101);
        let mut viewer = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
        let mut greeting = [0; 12];
        viewer.read_exact(&mut greeting).await.unwrap();
        assert_eq!(&greeting, b"RFB 003.008\n");
        viewer
    };
    let mut first = greeting("vnc").await;
    let refused = house.ask(Method::GET, &of_machine("vnc?preserveSession=true")).await;
    assert_eq!(refused.status(), 409);
    let second = greeting("vnc?preserveSession=false").await;
    let mut rest = Vec::new();
    // Dropped without a word: an error is as good as an end.
    let _ = timeout(Duration::from_secs(5), first.read_to_end(&mut rest)).await.unwrap();
    drop(second);

    // What is not asked for as a stream is not made one.
    let guest_info = house.ask(Method::GET, &of_machine("guestosinfo")).await;
    assert_eq!(guest_info.status(), 404, "it has no agent's channel");
    house.end(&machine.id).await;
}

#[tokio::test]
async fn other_questions_are_answered_while_a_guest_takes_its_time_to_reboot() {
    let house = House::new(Arc::new(NoImages)).await;
    // Nothing runs in it that would heed its power button.
    let machine = bare(UID);
    house.launch(&machine, Default::default()).await;
    assert_eq!(house.ask(Method::PUT, &of_machine("softreboot")).await.status(), 200);
    for order in ["pause", "unpause"] {
        let answer = timeout(Duration::from_secs(30), house.ask(Method::PUT, &of_machine(order))).await;
        assert_eq!(answer.expect("it waited for the reboot").status(), 200);
    }
    house.end(&machine.id).await;
}

#[derive(Default)]
struct Shelf(Mutex<Vec<(String, usize, Announced)>>);

#[async_trait]
impl ImageSink for Shelf {
    async fn receive(&self, image: &str, mut bytes: ImageBytes, said: Announced) -> Result<(), NotTaken> {
        let mut received = 0;
        while let Some(piece) = bytes.next().await {
            received += piece.map_err(|why| NotTaken::Failed(why.to_string()))?.len();
        }
        if received > 1 << 20 {
            return Err(NotTaken::Failed("there is no room for so much".into()));
        }
        self.0.lock().push((image.to_owned(), received, said));
        Ok(())
    }
}

#[tokio::test]
async fn an_upload_reaches_the_sink_and_its_refusal_the_sender() {
    let shelf = Arc::new(Shelf::default());
    let house = House::new(shelf.clone()).await;
    let api_server = house.certificates.agent_client_config();
    let path = format!("/v1/images/{UID}/upload");
    let checked = format!("{path}?checksum=ab12");
    let taken = house.ask_as(api_server.clone(), Method::PUT, &checked, vec![1; 300_000]).await;
    assert_eq!(taken.status(), 200);
    let said = Announced { size: Some(300_000), checksum: Some("ab12".into()), offset: 0 };
    assert_eq!(*shelf.0.lock(), [(UID.to_owned(), 300_000, said)]);
    let refused = house.ask_as(api_server, Method::PUT, &path, vec![1; 2 << 20]).await;
    assert_eq!(refused.status(), 500);
    assert_eq!(text(refused).await, "there is no room for so much");
}

/// The real thing: half an upload is kept, the rest goes on, and all of it can be had back in parts.
#[tokio::test]
async fn an_upload_goes_on_at_its_offset_and_the_image_is_sent_whole_or_in_part() {
    let directory = tempfile::tempdir().unwrap();
    let storage = Storage::open(StorageConfig::in_directory(directory.path())).await.unwrap();
    let half = futures::stream::iter([Ok(Bytes::from(vec![1; 5000])), Err(std::io::Error::other("gone"))]);
    storage.receive_image(&UID.parse().unwrap(), half, None).await.unwrap_err();
    let house = House::new(Arc::new(stream_port::Shelf(storage))).await;
    let api_server = house.certificates.agent_client_config();
    let (upload, download) = (format!("/v1/images/{UID}/upload"), format!("/v1/images/{UID}/download"));
    assert_eq!(house.ask(Method::GET, &download).await.status(), 404, "half an image is none");
    let far = house.ask(Method::GET, &upload).await;
    assert_eq!(text(far).await, r#"{"offset":5000}"#);
    let put = async |offset: u64, length: usize| {
        let path = format!("{upload}?offset={offset}");
        house.ask_as(api_server.clone(), Method::PUT, &path, vec![2; length]).await
    };
    let wrong = put(4999, 10).await;
    assert_eq!(wrong.status(), 409);
    assert!(text(wrong).await.contains("5000 bytes of the image are here"));
    assert_eq!(put(5000, 120).await.status(), 200);
    let whole = house.ask(Method::GET, &download).await;
    assert_eq!(
        (whole.status().as_u16(), &whole.headers()["content-length"]),
        (200, &"5120".parse().unwrap())
    );
    let whole = whole.into_body().collect().await.unwrap().to_bytes();
    assert_eq!((&whole[..5000], &whole[5000..]), (&[1; 5000][..], &[2; 120][..]));
}
