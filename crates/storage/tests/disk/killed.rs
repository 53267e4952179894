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
use sheaf_storage::{AfterStep, ImageId, ImageState, SeedId, Step, Storage, VolumeId};

use crate::house::{MIB, everything_in, open, open_with, pieces};

const STEP: &str = "SHEAF_STORAGE_TEST_STEP";
const DIRECTORY: &str = "SHEAF_STORAGE_TEST_DIRECTORY";
const DELETES: &str = "SHEAF_STORAGE_TEST_DELETES";

fn names() -> (VolumeId, VolumeId, ImageId, SeedId) {
    ("empty".parse().unwrap(), "copy".parse().unwrap(), "debian".parse().unwrap(), "seed".parse().unwrap())
}

async fn make_everything(storage: &Storage) {
    let (empty, copy, image, seed) = names();
    storage.receive_image(&image, pieces(vec![7; MIB as usize]), None).await.unwrap();
    storage.create_volume(&empty, MIB, None).await.unwrap();
    storage.create_volume(&copy, MIB, Some(&image)).await.unwrap();
    storage.grow_volume(&empty, 2 * MIB).await.unwrap();
    storage.grow_volume(&copy, 2 * MIB).await.unwrap();
    storage.write_seed(&seed, vec![1; 4096]).await.unwrap();
}

async fn delete_everything(storage: &Storage) {
    let (empty, copy, image, seed) = names();
    storage.delete_image(&image).await.unwrap();
    storage.delete_volume(&copy).await.unwrap();
    storage.delete_volume(&empty).await.unwrap();
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

/// Everything that has a name is whole, and nothing else is there.
async fn must_be_whole(storage: &Storage, directory: &Path) {
    for name in everything_in(directory) {
        assert!(!name.contains("/."), "{name} was never finished and is still there");
    }
    for id in storage.volumes().await.unwrap() {
        let volume = storage.volume(&id).await.unwrap().unwrap();
        assert!([MIB, 2 * MIB].contains(&volume.virtual_size), "{volume:?}");
        storage.open_volume(&id, false).await.unwrap();
    }
    for id in storage.images().await.unwrap() {
        let state = storage.image(&id).await.unwrap();
        assert!(matches!(state, ImageState::Complete(_)), "{state:?}");
        storage.open_image_for_reading(&id).await.unwrap();
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
        for volume in [&empty, &copy] {
            assert_eq!(storage.volume(volume).await.unwrap().unwrap().virtual_size, 2 * MIB, "{step}");
        }
        assert!(matches!(storage.image(&image).await.unwrap(), ImageState::Complete(_)), "{step}");
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
        assert_eq!(everything_in(root.path()), ["images", "seeds", "volumes"], "{step}");
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
