//! Images from a web server.

use std::net::{IpAddr, UdpSocket};

use sha2::{Digest, Sha256, Sha512};
use sheaf_storage::{Checksum, Image, ImageError, ImageId, ImageState, Source, image::FetchError};

use crate::{
    house::{House, MIB, everything_in, read_at},
    web_server::{Answers, WebServer, answer, ok, redirect},
};

fn debian() -> ImageId {
    "debian".parse().unwrap()
}

fn content() -> Vec<u8> {
    (0..3 * MIB as usize).map(|index| (index % 253) as u8).collect()
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn local(server: &WebServer, path: &str) -> Source {
    Source { allow_local: true, ..Source::of(format!("http://localhost:{}{path}", server.port)) }
}

/// The one who fetches nothing but what is refused must leave nothing.
async fn refused(house: &House, source: Source) -> ImageError {
    let why = house.storage.fetch_image(&debian(), source).await.unwrap_err();
    assert!(everything_in(&house.path("images")).is_empty(), "left behind after {why}");
    let state = house.storage.image(&debian()).await.unwrap();
    assert!(matches!(state, ImageState::Failed { .. }), "{state:?}");
    why
}

async fn fetched(house: &House, source: Source) -> Image {
    house.storage.fetch_image(&debian(), source).await.unwrap()
}

#[tokio::test]
async fn an_image_is_fetched_whole_through_redirects_and_with_either_checksum() {
    let body = content();
    let server = WebServer::start(Answers::from([
        ("/image?version=1", ok(&body)),
        ("/old", redirect("/older")),
        ("/older", redirect("image?version=1")),
        (
            "/unannounced",
            answer(
                "200 OK",
                "Transfer-Encoding: chunked\r\n",
                &[b"3\r\nabc\r\n", &b"2\r\nde\r\n0\r\n\r\n"[..]].concat(),
            ),
        ),
    ]))
    .await;
    let sha256 = hex(&Sha256::digest(&body));
    let sha512 = hex(&Sha512::digest(&body));
    for checksum in [None, Checksum::parse(&sha256), Checksum::parse(&sha512.to_uppercase())] {
        let house = House::new().await;
        let image = fetched(&house, Source { checksum, ..local(&server, "/old") }).await;
        assert_eq!(
            (image.size, image.digest),
            (body.len() as u64, format!("blake3:{}", blake3::hash(&body)))
        );
        let file = house.storage.open_image_for_reading(&debian()).await.unwrap();
        assert_eq!(read_at(&file.file, 0, body.len()), body);
    }
    let house = House::new().await;
    assert_eq!(fetched(&house, local(&server, "/unannounced")).await.size, 5);
}

#[tokio::test]
async fn nothing_is_fetched_from_the_node_itself_unless_it_may() {
    let house = House::new().await;
    let server = WebServer::start(Answers::from([("/image", ok(&content()))])).await;
    for host in ["localhost", "127.0.0.1", "127.1.2.3", "[::ffff:127.0.0.1]", "0.0.0.0"] {
        let url = format!("http://{host}:{}/image", server.port);
        let why = refused(&house, Source::of(url)).await;
        let is_local = matches!(why, ImageError::Fetch(FetchError::LocalAddress { .. }));
        assert!(is_local, "{host}: {why:?}");
    }
    let why = refused(&house, Source::of("http://169.254.169.254/latest/meta-data/")).await;
    assert!(matches!(why, ImageError::Fetch(FetchError::LocalAddress { .. })), "{why:?}");
    let why = refused(&house, Source::of("file:///etc/shadow")).await;
    assert!(matches!(why, ImageError::Fetch(FetchError::Scheme { .. })), "{why:?}");
}

/// An address of this machine that others reach too, if it has one.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    // Sends nothing; only asks for the way.
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().unwrap().ip())
}

#[tokio::test]
async fn nothing_is_fetched_from_an_address_of_the_node_that_others_reach_too() {
    let Some(address) = own_address() else {
        return println!("this machine has no network to be reached by");
    };
    let house = House::new().await;
    let server = WebServer::start(Answers::from([("/image", ok(&content()))])).await;
    let source = |host: &str| Source::of(format!("http://{host}:{}/image", server.port));
    for host in [address.to_string(), format!("[::ffff:{address}]")] {
        let why = refused(&house, source(&host)).await;
        assert!(matches!(why, ImageError::Fetch(FetchError::LocalAddress { .. })), "{why:?}");
    }
    fetched(&house, Source { allow_local: true, ..source(&address.to_string()) }).await;
}

#[tokio::test]
async fn what_a_server_gets_wrong_is_told_and_nothing_is_kept() {
    let house = House::new().await;
    let body = content();
    let server = WebServer::start(Answers::from([
        ("/image", ok(&body)),
        ("/short", answer("200 OK", "Content-Length: 4000000\r\n", &body)),
        ("/gone", answer("410 Gone", "Content-Length: 0\r\n", b"")),
        ("/loop", redirect("/loop")),
        ("/file", redirect("file:///etc/shadow")),
        ("/encoded", answer("200 OK", "Content-Encoding: gzip\r\nContent-Length: 1\r\n", b"x")),
        ("/page", ok(b"<!doctype html><title>Sign in</title>")),
        ("/gzip", ok(b"\x1f\x8b\x08rest")),
        ("/part", answer("206 Partial Content", "Content-Length: 1\r\n", b"x")),
        ("/noise", b"no HTTP at all\r\n\r\n".to_vec()),
    ]))
    .await;
    for (path, expected) in [
        ("/short", "stopped arriving"),
        ("/gone", "410 Gone"),
        ("/loop", "more than 10 redirects"),
        ("/file", "only http and https"),
        ("/encoded", "compressed"),
        ("/page", "web page"),
        ("/gzip", "packed with gzip and cannot be unpacked"),
        ("/part", "206 Partial Content"),
        ("/noise", "did not answer properly"),
    ] {
        refused(&house, local(&server, path)).await;
        let ImageState::Failed { why } = house.storage.image(&debian()).await.unwrap() else { panic!() };
        assert!(why.contains(expected), "{path}: {why}");
    }
    let wrong = Checksum::parse(&"ab".repeat(64));
    let why = refused(&house, Source { checksum: wrong, ..local(&server, "/image") }).await;
    assert!(matches!(why, ImageError::WrongChecksum { .. }), "{why:?}");
    let why = refused(&house, Source { most_bytes: Some(MIB), ..local(&server, "/image") }).await;
    assert!(matches!(why, ImageError::TooLarge { .. }), "{why:?}");

    fetched(&house, local(&server, "/image")).await;
}

#[tokio::test]
async fn a_limit_holds_also_when_no_length_was_announced() {
    let house = House::new().await;
    let mut body = format!("{:x}\r\n", 3 * MIB).into_bytes();
    body.extend(content());
    body.extend(b"\r\n0\r\n\r\n");
    let server = WebServer::start(Answers::from([(
        "/image",
        answer("200 OK", "Transfer-Encoding: chunked\r\n", &body),
    )]))
    .await;
    let why = refused(&house, Source { most_bytes: Some(MIB), ..local(&server, "/image") }).await;
    assert!(matches!(why, ImageError::TooLarge { .. }), "{why:?}");
}

#[tokio::test]
async fn a_server_is_trusted_only_with_a_certificate_that_is() {
    let house = House::new().await;
    let plain = WebServer::start(Answers::from([("/image", ok(&content()))])).await;
    let away = format!("http://localhost:{}/image", plain.port);
    let server =
        WebServer::start_with_tls(Answers::from([("/image", ok(&content())), ("/away", redirect(&away))]))
            .await;
    let source = |path: &str| Source {
        allow_local: true,
        additional_ca: server.certificate.clone(),
        ..Source::of(format!("https://localhost:{}{path}", server.port))
    };
    let why = refused(&house, Source { additional_ca: None, ..source("/image") }).await;
    assert!(matches!(why, ImageError::Fetch(FetchError::Tls { .. })), "{why:?}");
    let other_name = format!("https://127.0.0.1:{}/image", server.port);
    let why = refused(&house, Source { url: other_name, ..source("") }).await;
    assert!(matches!(why, ImageError::Fetch(FetchError::Tls { .. })), "{why:?}");
    let why = refused(&house, source("/away")).await;
    assert!(matches!(why, ImageError::Fetch(FetchError::Downgrade { .. })), "{why:?}");
    assert_eq!(fetched(&house, source("/image")).await.size, 3 * MIB);
}
