//! Killed after every single step, the next start finds only what is whole.
//!
//! The life of a storage is lived by a child process that kills itself after a given step.
//! Then a new one opens the same directory: nothing unfinished may be left, what is there must be
//! whole, and living the same life again must arrive.

use std::{
    collections::BTreeSet,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::Command,
    sync::{Arc, Mutex},
};

use rustix::process::{Signal, getpid, kill_process};
use sheaf_storage::{
    AfterStep, Backend, Begun, Drafted, ImageId, ImageState, OpenLayer, Origin, SeedId, SnapshotId, Step,
    Storage, VolumeId,
};

use crate::{
    house::{MIB, everything_in, open, open_with, pieces, read_at},
    packed::gzip,
};

const STEP: &str = "SHEAF_STORAGE_TEST_STEP";
const DIRECTORY: &str = "SHEAF_STORAGE_TEST_DIRECTORY";
const DELETES: &str = "SHEAF_STORAGE_TEST_DELETES";

fn names() -> (VolumeId, VolumeId, ImageId, SeedId) {
    ("empty".parse().unwrap(), "copy".parse().unwrap(), "debian".parse().unwrap(), "seed".parse().unwrap())
}

fn snapshot_names() -> [SnapshotId; 3] {
    ["first", "second", "abandoned"].map(|name| name.parse().unwrap())
}

fn restored() -> VolumeId {
    "restored".parse().unwrap()
}

async fn take(storage: &Storage, volume: &VolumeId, id: &SnapshotId) {
    let begun = storage.begin_snapshot(volume, id).await.unwrap();
    if let Begun::Switch(_) = begun {
        storage.finish_snapshot(volume, id).await.unwrap();
    }
}

/// A clone of the image, one that comes packed, and one that another process writes.
fn more_images() -> [ImageId; 3] {
    ["clone", "packed", "drafted"].map(|name| name.parse().unwrap())
}

async fn make_everything(storage: &Storage) {
    let (empty, copy, image, seed) = names();
    let [first, second, abandoned] = snapshot_names();
    storage.receive_image(&image, pieces(vec![7; MIB as usize]), None).await.unwrap();
    let [clone, packed, drafted] = more_images();
    storage.clone_image(&clone, &image).await.unwrap();
    storage.receive_image(&packed, pieces(gzip(&vec![7; MIB as usize])), None).await.unwrap();
    if let Drafted::Now(draft) = storage.draft_image(&drafted, MIB, 0).await.unwrap() {
        draft.finish().await.unwrap();
    }
    storage.create(&empty, MIB, &Origin::Empty).await.unwrap();
    storage.create(&copy, MIB, &Origin::Image(image.clone())).await.unwrap();
    storage.grow(&empty, 2 * MIB).await.unwrap();
    storage.grow(&copy, 2 * MIB).await.unwrap();
    take(storage, &copy, &first).await;
    take(storage, &copy, &second).await;
    storage.create(&restored(), 2 * MIB, &Origin::Snapshot(second.clone())).await.unwrap();
    storage.begin_snapshot(&empty, &abandoned).await.unwrap();
    storage.write_seed(&seed, vec![1; 4096]).await.unwrap();
}

async fn delete_everything(storage: &Storage) {
    let (empty, copy, image, seed) = names();
    let [first, second, abandoned] = snapshot_names();
    storage.delete_snapshot(&first).await.unwrap();
    // Both layers are empty here, so one is the other's content already.
    for merge in storage.wanted_merges().await.unwrap() {
        storage.finish_merge(&merge).await.unwrap();
    }
    storage.delete_snapshot(&second).await.unwrap();
    storage.delete_snapshot(&abandoned).await.unwrap();
    storage.delete(&restored()).await.unwrap();
    storage.delete_image(&image).await.unwrap();
    for image in more_images() {
        storage.delete_image(&image).await.unwrap();
    }
    storage.delete(&copy).await.unwrap();
    storage.delete(&empty).await.unwrap();
    storage.delete_seed(&seed).await.unwrap();
}

/// Not a promise of its own: what the child does. Without a step it is not one.
#[tokio::test]
async fn the_child_lives_until_its_step() {
    let Ok(step) = std::env::var(STEP) else { return };
    let last: Step = step.parse().unwrap();
    let hook = AfterStep::call(move |step| {
        if step == last {
            kill_process(getpid(), Signal::KILL).unwrap();
        }
    });
    let directory = std::env::var(DIRECTORY).unwrap();
    let storage = open_with(Path::new(&directory), hook).await;
    if std::env::var(DELETES).is_ok() {
        delete_everything(&storage).await;
    } else {
        make_everything(&storage).await;
    }
}

/// Whether the child got as far as the step.
fn is_killed_after(step: Step, directory: &Path, deletes: bool) -> bool {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "killed::the_child_lives_until_its_step"]);
    child.env(STEP, step.name()).env(DIRECTORY, directory);
    if deletes {
        child.env(DELETES, "yes");
    }
    let output = child.output().unwrap();
    let killed = output.status.signal() == Some(Signal::KILL.as_raw());
    assert!(killed || output.status.success(), "{step}: {}", String::from_utf8_lossy(&output.stdout));
    killed
}

/// What the manifests of volumes and snapshots say.
fn manifests_in(directory: &Path) -> Vec<String> {
    let names = everything_in(directory).into_iter();
    let manifests = names.filter(|name| name.ends_with("/manifest.json") && !name.starts_with("images"));
    manifests.map(|name| std::fs::read_to_string(directory.join(name)).unwrap()).collect()
}

/// Everything that has a name is whole, and nothing else is there.
async fn must_be_whole(storage: &Storage, directory: &Path) {
    for name in everything_in(directory) {
        assert!(!name.contains("/."), "{name} was never finished and is still there");
    }
    let named: usize =
        manifests_in(directory).iter().map(|manifest| manifest.matches("layer-").count()).sum();
    let layers = everything_in(directory).iter().filter(|name| name.contains("/layer-")).count();
    assert_eq!(layers, named, "a layer that no manifest names is still there");
    for id in storage.volumes().await.unwrap() {
        let volume = storage.volume(&id).await.unwrap().unwrap();
        assert!([MIB, 2 * MIB].contains(&volume.virtual_size), "{volume:?}");
        storage.open(&id, false).await.unwrap();
    }
    for id in storage.snapshots().await.unwrap() {
        let snapshot = storage.snapshot(&id).await.unwrap().unwrap();
        assert_eq!(snapshot.virtual_size, 2 * MIB, "{snapshot:?}");
        storage.open_snapshot(&id).await.unwrap();
    }
    for id in storage.images().await.unwrap() {
        let state = storage.image(&id).await.unwrap();
        assert!(matches!(state, ImageState::Complete(_)), "{state:?}");
        let image = storage.open_image_for_reading(&id).await.unwrap();
        if id.as_str() != "drafted" {
            assert_eq!(read_at(&image.file, 0, MIB as usize), vec![7; MIB as usize], "{id}");
        }
    }
}

#[tokio::test]
async fn whatever_step_of_making_it_is_killed_after_nothing_is_half_there_and_the_next_try_arrives() {
    for step in Step::ALL {
        let root = tempfile::tempdir().unwrap();
        is_killed_after(*step, root.path(), false);
        let storage = open(root.path()).await;
        must_be_whole(&storage, root.path()).await;
        make_everything(&storage).await;
        let (empty, copy, image, seed) = names();
        for volume in [&empty, &copy, &restored()] {
            assert_eq!(storage.volume(volume).await.unwrap().unwrap().virtual_size, 2 * MIB, "{step}");
        }
        for image in more_images().into_iter().chain([image]) {
            assert!(
                matches!(storage.image(&image).await.unwrap(), ImageState::Complete(_)),
                "{step} {image}"
            );
        }
        assert!(storage.open_seed(&seed).await.unwrap().is_some(), "{step}");
    }
}

#[tokio::test]
async fn whatever_step_of_deleting_it_is_killed_after_the_next_try_leaves_nothing() {
    for step in Step::ALL {
        let root = tempfile::tempdir().unwrap();
        make_everything(&open(root.path()).await).await;
        is_killed_after(*step, root.path(), true);
        let storage = open(root.path()).await;
        must_be_whole(&storage, root.path()).await;
        delete_everything(&storage).await;
        assert_eq!(everything_in(root.path()), ["images", "seeds", "snapshots", "volumes"], "{step}");
    }
}

#[tokio::test]
async fn a_merge_that_was_done_is_done_in_every_chain_whatever_step_of_forgetting_it_is_killed_after() {
    for step in [Step::MergeNoted, Step::LayerDropped, Step::LayerRemoved] {
        let root = tempfile::tempdir().unwrap();
        make_everything(&open(root.path()).await).await;
        assert!(is_killed_after(step, root.path(), true), "{step}");
        let storage = open(root.path()).await;
        must_be_whole(&storage, root.path()).await;
        let [_, second, _] = snapshot_names();
        let numbers = |layers: Vec<OpenLayer>| layers.iter().map(|layer| layer.number).collect::<Vec<_>>();
        let (_, copy, ..) = names();
        assert_eq!(numbers(storage.open(&copy, true).await.unwrap()), [0, 1, 3], "{step}");
        assert_eq!(numbers(storage.open(&restored(), true).await.unwrap()), [0, 1, 3], "{step}");
        assert_eq!(numbers(storage.open_snapshot(&second).await.unwrap()), [0, 1], "{step}");
        assert!(manifests_in(root.path()).iter().all(|manifest| !manifest.contains("merged")), "{step}");
    }
}

#[tokio::test]
async fn every_step_there_is_is_taken_by_one_of_the_two_lives() {
    let taken = Arc::new(Mutex::new(BTreeSet::new()));
    let hook = || {
        let taken = taken.clone();
        AfterStep::call(move |step| {
            taken.lock().unwrap().insert(step);
        })
    };
    let root = tempfile::tempdir().unwrap();
    let storage = open_with(root.path(), hook()).await;
    make_everything(&storage).await;
    delete_everything(&storage).await;
    std::fs::create_dir(root.path().join("volumes/.making-x")).unwrap();
    open_with(root.path(), hook()).await;
    let missing: Vec<_> = Step::ALL.iter().filter(|step| !taken.lock().unwrap().contains(step)).collect();
    assert!(missing.is_empty(), "nobody is ever killed after {missing:?}");
}

#[tokio::test]
async fn a_child_really_is_killed_after_its_step() {
    let root = tempfile::tempdir().unwrap();
    assert!(is_killed_after(Step::LayerWritten, root.path(), false));
    assert!(root.path().join("volumes/.making-empty/layer-0").exists());
    assert!(!is_killed_after(Step::VolumeWithdrawn, root.path(), false));
}
