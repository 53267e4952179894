//! Disks that fail to sync, and disks that say they did.
//!
//! Every sync that images rest on is made to fail once, one after the other: nothing may then be acknowledged that was
//! not, nothing may be left behind, and the next attempt must arrive. A disk that lies cannot be made to keep what it
//! never wrote; then no image may pass for whole that is not.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use sheaf_storage::{Fate, ImageId, ImageState, Source, Storage, StorageConfig, Syncs};

use crate::{
    house::{everything_in, open, pieces, read_at},
    packed::gzip,
    web_server::{Answers, WebServer, ok},
};

fn names() -> [ImageId; 4] {
    ["sent", "packed", "fetched", "clone"].map(|name| name.parse().unwrap())
}

fn content() -> Vec<u8> {
    // Not a whole number of sectors, so that it is rounded up and synced once more.
    (0..100_100).map(|index| (index % 251) as u8).collect()
}

async fn open_judged(directory: &Path, judge: impl Fn(&Path) -> Fate + Send + Sync + 'static) -> Storage {
    let syncs = Syncs::decided_by(judge);
    Storage::open(StorageConfig { syncs, ..StorageConfig::in_directory(directory) }).await.unwrap()
}

/// Makes every image in every way. Whether each was acknowledged.
async fn make_all(storage: &Storage, server: &WebServer) -> [bool; 4] {
    let [sent, packed, fetched, clone] = names();
    let source =
        Source { allow_local: true, ..Source::of(format!("http://localhost:{}/image", server.port)) };
    [
        storage.receive_image(&sent, pieces(content()), None).await.is_ok(),
        storage.receive_image(&packed, pieces(gzip(&content())), None).await.is_ok(),
        storage.fetch_image(&fetched, source).await.is_ok(),
        storage.clone_image(&clone, &sent).await.is_ok(),
    ]
}

async fn delete_all(storage: &Storage) -> [bool; 4] {
    let mut gone = [false; 4];
    for (id, gone) in names().iter().zip(&mut gone) {
        *gone = storage.delete_image(id).await.is_ok();
    }
    gone
}

async fn must_be_whole(storage: &Storage, id: &ImageId) {
    let state = storage.image(id).await.unwrap();
    assert!(matches!(state, ImageState::Complete(_)), "{id}: {state:?}");
    let image = storage.open_image_for_reading(id).await.unwrap();
    assert_eq!(read_at(&image.file, 0, content().len()), content(), "{id}");
}

fn nothing_unfinished_in(directory: &Path) {
    for name in everything_in(directory) {
        assert!(!name.contains("/."), "{name} was never finished and is still there");
    }
}

/// Fails the sync of this number among images, counted from 1; 0 fails none. How many there were.
fn failing(number: usize) -> (Arc<Mutex<usize>>, impl Fn(&Path) -> Fate + Send + Sync + 'static) {
    let count = Arc::new(Mutex::new(0));
    let counted = count.clone();
    let judge = move |path: &Path| {
        if !path.components().any(|part| part.as_os_str() == "images") {
            return Fate::Done;
        }
        let mut count = counted.lock().unwrap();
        *count += 1;
        if *count == number { Fate::Failed(io::Error::from_raw_os_error(5)) } else { Fate::Done }
    };
    (count, judge)
}

#[tokio::test]
async fn whichever_sync_of_an_arrival_fails_nothing_unsynced_is_acknowledged_and_the_next_try_arrives() {
    let server = WebServer::start(Answers::from([("/image", ok(&content()))])).await;
    let root = tempfile::tempdir().unwrap();
    let (count, judge) = failing(0);
    let storage = open_judged(root.path(), judge).await;
    assert_eq!(make_all(&storage, &server).await, [true; 4]);
    let all = *count.lock().unwrap();
    assert!(all >= 18, "only {all} syncs");
    for number in 1..=all {
        let root = tempfile::tempdir().unwrap();
        let (_, judge) = failing(number);
        let storage = open_judged(root.path(), judge).await;
        let acknowledged = make_all(&storage, &server).await;
        assert!(acknowledged.contains(&false), "sync {number} failed and nobody was told");
        nothing_unfinished_in(root.path());
        for (id, acknowledged) in names().iter().zip(acknowledged) {
            match acknowledged {
                true => must_be_whole(&storage, id).await,
                false => {
                    let state = storage.image(id).await.unwrap();
                    assert!(matches!(state, ImageState::Failed { .. }), "sync {number}, {id}: {state:?}");
                }
            }
        }
        // The same process, once the disk is itself again.
        assert_eq!(make_all(&storage, &server).await, [true; 4], "sync {number}");
        for id in names() {
            must_be_whole(&storage, &id).await;
            must_be_whole(&open(root.path()).await, &id).await;
        }
    }
}

#[tokio::test]
async fn whichever_sync_of_a_deletion_fails_the_next_try_leaves_nothing() {
    let server = WebServer::start(Answers::from([("/image", ok(&content()))])).await;
    for number in 1.. {
        let root = tempfile::tempdir().unwrap();
        make_all(&open(root.path()).await, &server).await;
        let (count, judge) = failing(number);
        let storage = open_judged(root.path(), judge).await;
        let gone = delete_all(&storage).await;
        let all = *count.lock().unwrap();
        if number > all {
            assert!(all >= 4 && gone == [true; 4], "only {all} syncs, {gone:?}");
            break;
        }
        assert!(gone.contains(&false), "sync {number} failed and nobody was told");
        assert_eq!(delete_all(&storage).await, [true; 4], "sync {number}");
        assert_eq!(everything_in(root.path()), ["images", "seeds", "snapshots", "volumes"], "sync {number}");
    }
}

/// What a disk holds that lied about these files when its power went: they are as long as before, or not, and empty.
fn cut_the_power(lied_about: &[PathBuf], how: &str) {
    for path in lied_about.iter().filter(|path| path.is_file()) {
        let length = fs::metadata(path).unwrap().len();
        let mut permissions = fs::metadata(path).unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o600);
        fs::set_permissions(path, permissions).unwrap();
        let file = fs::OpenOptions::new().write(true).open(path).unwrap();
        match how {
            "nothing" => file.set_len(0).unwrap(),
            "half" => file.set_len(length / 2).unwrap(),
            _ => {
                file.set_len(0).unwrap();
                file.set_len(length).unwrap();
            }
        }
    }
}

#[tokio::test]
async fn no_image_passes_for_whole_that_a_lying_disk_lost_and_it_can_be_brought_anew() {
    let server = WebServer::start(Answers::from([("/image", ok(&content()))])).await;
    for how in ["nothing", "half", "zeros"] {
        for lost in ["disk", "manifest.json"] {
            let root = tempfile::tempdir().unwrap();
            let lied_about = Arc::new(Mutex::new(Vec::new()));
            let noted = lied_about.clone();
            let storage = open_judged(root.path(), move |path| {
                if path.file_name().is_some_and(|name| name == lost) {
                    noted.lock().unwrap().push(path.to_owned());
                    return Fate::Lied;
                }
                Fate::Done
            })
            .await;
            assert_eq!(make_all(&storage, &server).await, [true; 4]);
            drop(storage);
            // They have other names by now.
            let published = names().map(|id| root.path().join("images").join(id.as_str()).join(lost));
            assert!(lied_about.lock().unwrap().len() >= 3);
            cut_the_power(&published, how);

            let storage = open(root.path()).await;
            for id in names() {
                let state = storage.image(&id).await.unwrap();
                assert!(
                    matches!(&state, ImageState::Failed { why } if why.contains("damaged")),
                    "{how} of {lost}, {id}: {state:?}"
                );
                storage.open_image_for_reading(&id).await.unwrap_err();
            }
            assert_eq!(make_all(&storage, &server).await, [true; 4], "{how} of {lost}");
            for id in names() {
                must_be_whole(&storage, &id).await;
            }
            nothing_unfinished_in(root.path());
        }
    }
}
