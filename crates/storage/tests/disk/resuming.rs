//! Images whose way here breaks off: fetched ones go on by themselves, sent ones when the sender comes back.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use sha2::{Digest, Sha512};
use sheaf_storage::{
    Announced, Checksum, ImageError, ImageId, ImageState, Source, Storage, StorageConfig, image::FetchError,
};

use crate::{
    house::{House, MIB, everything_in, pieces, read_at},
    packed::gzip,
    web_server::{WebServer, answer},
};

fn debian() -> ImageId {
    "debian".parse().unwrap()
}

fn content() -> Vec<u8> {
    (0..3 * MIB as usize).map(|index| (index % 253) as u8).collect()
}

fn checksum(content: &[u8]) -> Option<Checksum> {
    let hex: String = Sha512::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
    Checksum::parse(&hex)
}

fn header<'a>(request: &'a str, name: &str) -> Option<&'a str> {
    let line = request.lines().find(|line| line.to_lowercase().starts_with(&format!("{name}:")))?;
    Some(line[name.len() + 1..].trim())
}

/// A server that never sends more than a part before it hangs up, and knows how to go on.
fn breaking(body: Vec<u8>, most: usize, mark: &'static str) -> impl Fn(&str) -> Vec<u8> + Send + Sync {
    move |request| {
        let range =
            header(request, "range").and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-'));
        let part = |from: usize| &body[from..body.len().min(from + most)];
        match range {
            None => answer("200 OK", &format!("{mark}Content-Length: {}\r\n", body.len()), part(0)),
            Some(from) => {
                let from: usize = from.parse().unwrap();
                let (last, whole) = (body.len() - 1, body.len());
                let headers = format!(
                    "{mark}Content-Range: bytes {from}-{last}/{whole}\r\nContent-Length: {}\r\n",
                    whole - from
                );
                answer("206 Partial Content", &headers, part(from))
            }
        }
    }
}

fn local(server: &WebServer) -> Source {
    Source { allow_local: true, ..Source::of(format!("http://localhost:{}/image", server.port)) }
}

#[tokio::test]
async fn a_fetch_goes_on_where_it_broke_off_and_says_of_which_file() {
    let house = House::new().await;
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noted = asked.clone();
    let serve = breaking(content(), 1_200_000, "ETag: \"one\"\r\n");
    let server = WebServer::answering(move |request| {
        let said =
            [header(request, "range"), header(request, "if-range")].map(|text| text.map(str::to_owned));
        noted.lock().unwrap().push(said);
        serve(request)
    })
    .await;
    let image = house.storage.fetch_image(&debian(), local(&server)).await.unwrap();
    assert_eq!(image.size, 3 * MIB);
    let file = house.storage.open_image_for_reading(&debian()).await.unwrap();
    assert_eq!(read_at(&file.file, 0, 3 * MIB as usize), content());
    let asked = asked.lock().unwrap().clone();
    assert_eq!(asked[0], [None, None]);
    assert_eq!(asked[1], [Some("bytes=1200000-".into()), Some("\"one\"".into())]);
    assert_eq!(asked.len(), 3);
}

#[tokio::test]
async fn a_packed_image_goes_on_too_and_its_checksum_is_that_of_all_of_it() {
    let house = House::new().await;
    let packed = gzip(&content());
    let half = packed.len() / 2 + 1;
    let server = WebServer::answering(breaking(
        packed.clone(),
        half,
        "Last-Modified: Tue, 17 Nov 2026 01:00:00 GMT\r\n",
    ))
    .await;
    let source = Source { checksum: checksum(&packed), ..local(&server) };
    assert_eq!(house.storage.fetch_image(&debian(), source).await.unwrap().size, 3 * MIB);
}

#[tokio::test]
async fn a_file_that_is_another_one_by_then_is_never_put_together() {
    let house = House::new().await;
    let first = breaking(content(), 1_000_000, "ETag: \"one\"\r\n");
    let other = breaking(vec![9; 3 * MIB as usize], 1_000_000, "ETag: \"two\"\r\n");
    type Answering = Box<dyn Fn(&str) -> Vec<u8> + Send + Sync>;
    let whole = answer("200 OK", "Content-Length: 4\r\n", b"anew");
    let elsewhere =
        answer("206 Partial Content", "Content-Range: bytes 0-3/4\r\nContent-Length: 4\r\n", b"part");
    let then: [Answering; 3] =
        [Box::new(other), Box::new(move |_| whole.clone()), Box::new(move |_| elsewhere.clone())];
    let first = Arc::new(first);
    for then in then {
        let (first, asked) = (first.clone(), AtomicUsize::new(0));
        let server = WebServer::answering(move |request| match asked.fetch_add(1, Ordering::SeqCst) {
            0 => first(request),
            _ => then(request),
        })
        .await;
        let refused = house.storage.fetch_image(&debian(), local(&server)).await.unwrap_err();
        let ImageError::Interrupted { source, .. } = refused else { panic!("{refused:?}") };
        assert!(matches!(source.downcast_ref(), Some(FetchError::Changed { .. })), "{source:?}");
        assert!(everything_in(&house.path("images")).is_empty());
    }
    // Neither a mark nor a checksum: nobody could tell.
    let server = WebServer::answering(breaking(content(), 1_000_000, "ETag: W/\"weak\"\r\n")).await;
    house.storage.fetch_image(&debian(), local(&server)).await.unwrap_err();
    let vouched = Source { checksum: checksum(&content()), ..local(&server) };
    house.storage.fetch_image(&debian(), vouched).await.unwrap();
}

#[tokio::test]
async fn a_server_that_gets_nowhere_is_given_up() {
    let house = House::new().await;
    let asked = Arc::new(AtomicUsize::new(0));
    let (counted, serve) = (asked.clone(), breaking(content(), 10, "ETag: \"one\"\r\n"));
    let server = WebServer::answering(move |request| {
        counted.fetch_add(1, Ordering::SeqCst);
        serve(request)
    })
    .await;
    house.storage.fetch_image(&debian(), local(&server)).await.unwrap_err();
    assert_eq!(asked.load(Ordering::SeqCst), 7);
    assert!(everything_in(&house.path("images")).is_empty());
}

/// So many bytes, and then the line breaks.
fn broken_off(content: &[u8]) -> impl Stream<Item = Result<Bytes, &'static str>> + Send + use<> {
    let sent = pieces(content.to_vec()).map(|piece| piece.map_err(|never| match never {}));
    sent.chain(stream::iter([Err("the cable is gone")]))
}

fn at(offset: u64, size: Option<u64>) -> Announced {
    Announced { size, offset, ..Announced::default() }
}

#[tokio::test]
async fn an_upload_goes_on_where_it_broke_off() {
    let house = House::new().await;
    let storage = &house.storage;
    let (content, size) = (content(), Some(3 * MIB));
    for packed in [false, true] {
        let sent = if packed { gzip(&content) } else { content.clone() };
        let size = if packed { None } else { size };
        let announced = Announced { checksum: checksum(&sent), size, ..Announced::default() };
        let (first, rest) = sent.split_at(sent.len() / 3);
        let (second, third) = rest.split_at(sent.len() / 3);
        storage.receive_image(&debian(), broken_off(first), announced).await.unwrap_err();
        let state = storage.image(&debian()).await.unwrap();
        let ImageState::Interrupted { bytes, total, why } = state else { panic!("{state:?}") };
        assert_eq!((bytes, total), (first.len() as u64, size));
        assert!(why.contains("the cable is gone"), "{why}");
        let wrong = storage.receive_image(&debian(), pieces(vec![1]), at(bytes + 1, None)).await;
        assert!(
            matches!(wrong, Err(ImageError::WrongOffset { expected, .. }) if expected == bytes),
            "{wrong:?}"
        );
        storage.receive_image(&debian(), broken_off(second), at(bytes, None)).await.unwrap_err();
        let bytes = (first.len() + second.len()) as u64;
        let image = storage.receive_image(&debian(), pieces(third.to_vec()), at(bytes, None)).await.unwrap();
        assert_eq!(image.size, 3 * MIB);
        let file = storage.open_image_for_reading(&debian()).await.unwrap();
        assert_eq!(read_at(&file.file, 0, content.len()), content);
        storage.delete_image(&debian()).await.unwrap();
    }
}

#[tokio::test]
async fn a_sender_who_vanishes_may_go_on_begin_anew_or_have_it_deleted() {
    for then in ["goes on", "begins anew", "deletes"] {
        let house = House::new().await;
        let storage = house.storage.clone();
        let half = Bytes::from(vec![1; MIB as usize]);
        let silent = stream::iter([Ok::<_, String>(half)]).chain(stream::pending());
        let sending = tokio::spawn(async move { storage.receive_image(&debian(), silent, None).await });
        let arriving = ImageState::Arriving { bytes: MIB, total: None };
        while house.storage.image(&debian()).await.unwrap() != arriving {
            tokio::task::yield_now().await;
        }
        sending.abort();
        sending.await.unwrap_err();
        let state = house.storage.image(&debian()).await.unwrap();
        assert!(matches!(state, ImageState::Interrupted { bytes: MIB, .. }), "{state:?}");
        let rest = || pieces(vec![2; MIB as usize]);
        match then {
            "goes on" => {
                let image = house.storage.receive_image(&debian(), rest(), at(MIB, None)).await.unwrap();
                assert_eq!(image.size, 2 * MIB);
            }
            "begins anew" => {
                let image = house.storage.receive_image(&debian(), rest(), None).await.unwrap();
                assert_eq!(image.size, MIB);
                let file = house.storage.open_image_for_reading(&debian()).await.unwrap();
                assert_eq!(read_at(&file.file, 0, 4), [2; 4]);
            }
            _ => {
                house.storage.delete_image(&debian()).await.unwrap();
                assert_eq!(house.storage.image(&debian()).await.unwrap(), ImageState::Nothing);
                let nothing = house.storage.receive_image(&debian(), rest(), at(MIB, None)).await;
                assert!(matches!(nothing, Err(ImageError::WrongOffset { expected: 0, .. })), "{nothing:?}");
                assert!(everything_in(&house.path("images")).is_empty());
            }
        }
    }
}

#[tokio::test]
async fn half_an_upload_waits_for_a_while_and_not_across_a_restart() {
    let root = tempfile::tempdir().unwrap();
    let config = StorageConfig {
        upload_patience: Duration::from_millis(100),
        ..StorageConfig::in_directory(root.path())
    };
    let storage = Storage::open(config).await.unwrap();
    storage.receive_image(&debian(), broken_off(&content()), None).await.unwrap_err();
    let state = storage.image(&debian()).await.unwrap();
    assert!(matches!(state, ImageState::Interrupted { .. }), "{state:?}");
    let why = loop {
        match storage.image(&debian()).await.unwrap() {
            ImageState::Failed { why } => break why,
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    assert!(why.contains("the rest did not come"), "{why}");
    while !everything_in(&root.path().join("images")).is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(storage);

    let storage = crate::house::open(root.path()).await;
    storage.receive_image(&debian(), broken_off(&content()), None).await.unwrap_err();
    drop(storage);
    let storage = crate::house::open(root.path()).await;
    assert_eq!(storage.image(&debian()).await.unwrap(), ImageState::Nothing);
    assert!(everything_in(&root.path().join("images")).is_empty());
}

#[tokio::test]
async fn only_a_few_halves_are_kept() {
    let house = House::new().await;
    let id = |number: usize| format!("image-{number}").parse::<ImageId>().unwrap();
    for number in 0..17 {
        house.storage.receive_image(&id(number), broken_off(&[1; 4096]), None).await.unwrap_err();
    }
    let state = house.storage.image(&id(16)).await.unwrap();
    assert!(matches!(state, ImageState::Failed { .. }), "{state:?}");
    assert_eq!(everything_in(&house.path("images")).len(), 2 * 16, "a directory and a file each");
}
