//! Volumes, as QEMU sees them.

use std::{
    fs::File,
    io::{BufRead, BufReader, Write},
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use nix::libc;
use sheaf_storage::{AfterStep, Backend, Format, MOST_BYTES, Origin, Step, VolumeError};

use crate::house::{
    GIB, House, MIB, everything_in, open, open_with, qemu_io_through, run, set_lock, volume_id,
};

#[tokio::test]
async fn an_empty_volume_is_raw_has_its_size_and_takes_no_space() {
    let house = House::new().await;
    let id = volume_id("a");
    let volume = house.storage.create(&id, 5 * GIB + 1, &Origin::Empty).await.unwrap();
    assert_eq!(volume.virtual_size, 5 * GIB + 4096, "whole sectors of any disk");
    assert!(volume.used_bytes < MIB, "{volume:?}");
    assert_eq!(volume.layers.iter().map(|layer| layer.format).collect::<Vec<_>>(), [Format::Raw]);

    let layers = house.storage.open(&id, false).await.unwrap();
    assert_eq!(layers.iter().map(|layer| layer.read_only).collect::<Vec<_>>(), [false]);
    qemu_io_through(&layers, "write -P 7 4G 64k");
    let layers = house.storage.open(&id, true).await.unwrap();
    assert!(qemu_io_through(&layers, "read -P 7 4G 64k").contains("65536/65536"));
    assert!(house.storage.volume(&id).await.unwrap().unwrap().used_bytes >= 65536);
}

#[tokio::test]
async fn a_volume_of_an_image_begins_as_the_image_and_never_changes_it() {
    for format in ["raw", "qcow2"] {
        let house = House::new().await;
        let file = house.image_file(format, 8 * MIB, "write -P 1 0 4M");
        let image = house.image("debian", &file).await;
        let (one, two) = (volume_id("one"), volume_id("two"));
        for id in [&one, &two] {
            let volume = house.storage.create(id, 16 * MIB, &Origin::Image(image.clone())).await.unwrap();
            assert_eq!(volume.virtual_size, 16 * MIB);
            assert_eq!(volume.layers.len(), 2);
            assert!(volume.used_bytes < MIB, "the image's bytes are shared: {volume:?}");
        }
        let layers = house.storage.open(&one, false).await.unwrap();
        assert_eq!(layers.iter().map(|layer| layer.read_only).collect::<Vec<_>>(), [true, false]);
        for check in ["read -P 1 0 4M", "read -P 0 4M 12M", "write -P 2 1M 1M", "write -P 3 15M 1M"] {
            qemu_io_through(&layers, check);
        }
        for check in ["read -P 1 0 1M", "read -P 2 1M 1M", "read -P 1 2M 2M", "read -P 3 15M 1M"] {
            let told = qemu_io_through(&layers, check);
            assert!(!told.contains("verification failed"), "{format}: {check}: {told}");
        }
        let layers = house.storage.open(&two, true).await.unwrap();
        let told = qemu_io_through(&layers, "read -P 1 0 4M");
        assert!(!told.contains("verification failed"), "one volume's writes reached another: {told}");
    }
}

#[tokio::test]
async fn qemu_finds_nothing_wrong_with_the_layer_we_wrote() {
    let house = House::new().await;
    let image = house.image("debian", &house.image_file("qcow2", 8 * MIB, "")).await;
    let id = volume_id("a");
    house.storage.create(&id, 3 * GIB, &Origin::Image(image.clone())).await.unwrap();
    let layer = house.path("volumes/a/layer-1");
    let layer = layer.to_str().unwrap();
    let told = run("qemu-img", &["info", "--output=json", layer]);
    assert!(told.contains(&format!("\"virtual-size\": {}", 3 * GIB)), "{told}");
    assert!(!told.contains("backing"), "{told}");
    assert!(run("qemu-img", &["check", layer]).contains("No errors"));

    let layers = house.storage.open(&id, false).await.unwrap();
    qemu_io_through(&layers, "write -P 5 2G 100M");
    drop(layers);
    for bytes in [5 * GIB, MOST_BYTES] {
        assert_eq!(house.storage.grow(&id, bytes).await.unwrap().virtual_size, bytes);
        assert!(run("qemu-img", &["check", layer]).contains("No errors"));
    }
    let layers = house.storage.open(&id, false).await.unwrap();
    for check in ["read -P 5 2G 100M", "read -P 0 4G 1M", "write -P 6 15T 1M", "read -P 6 15T 1M"] {
        let told = qemu_io_through(&layers, check);
        assert!(!told.contains("verification failed"), "{check}: {told}");
    }
    assert!(run("qemu-img", &["check", layer]).contains("No errors"));
}

#[tokio::test]
async fn small_writes_to_a_volume_of_an_image_take_little_space() {
    let house = House::new().await;
    let image = house.image("debian", &house.image_file("raw", 64 * MIB, "write -P 1 0 64M")).await;
    let id = volume_id("a");
    house.storage.create(&id, 64 * MIB, &Origin::Image(image.clone())).await.unwrap();
    let layers = house.storage.open(&id, false).await.unwrap();
    for number in 0..16 {
        qemu_io_through(&layers, &format!("write -P 2 {} 4k", number * 4 * MIB + 8192));
    }
    let used_bytes = house.storage.volume(&id).await.unwrap().unwrap().used_bytes;
    assert!(used_bytes < MIB / 2, "{used_bytes} bytes for 16 writes of 4 KiB");
    for check in ["read -P 1 0 8k", "read -P 2 8k 4k", "read -P 1 12k 4092k", "read -P 2 4104k 4k"] {
        assert!(!qemu_io_through(&layers, check).contains("verification failed"), "{check}");
    }
}

#[tokio::test]
async fn a_volume_outlives_its_image() {
    let house = House::new().await;
    let image = house.image("debian", &house.image_file("raw", 4 * MIB, "write -P 9 0 4M")).await;
    let id = volume_id("a");
    house.storage.create(&id, 4 * MIB, &Origin::Image(image.clone())).await.unwrap();
    house.storage.delete_image(&image).await.unwrap();
    let storage = open(&house.path("")).await;
    let layers = storage.open(&id, true).await.unwrap();
    assert!(!qemu_io_through(&layers, "read -P 9 0 4M").contains("verification failed"));
    assert!(
        storage.volume(&id).await.unwrap().unwrap().used_bytes >= 4 * MIB,
        "its bytes are this volume's alone now"
    );
}

#[tokio::test]
async fn creating_again_changes_nothing_but_a_size_that_was_smaller() {
    let house = House::new().await;
    let id = volume_id("a");
    house.storage.create(&id, 8 * MIB, &Origin::Empty).await.unwrap();
    qemu_io_through(&house.storage.open(&id, false).await.unwrap(), "write -P 4 0 1M");
    for (asked, has) in [(8, 8), (4, 8), (16, 16)] {
        let volume = house.storage.create(&id, asked * MIB, &Origin::Empty).await.unwrap();
        assert_eq!(volume.virtual_size, has * MIB);
    }
    assert_eq!(house.storage.grow(&id, MIB).await.unwrap().virtual_size, 16 * MIB, "never smaller");
    let layers = house.storage.open(&id, true).await.unwrap();
    assert!(!qemu_io_through(&layers, "read -P 4 0 1M").contains("verification failed"));
    assert_eq!(house.storage.volumes().await.unwrap(), [id]);
}

#[tokio::test]
async fn a_volume_is_refused_that_could_not_hold_its_image_or_has_no_size() {
    let house = House::new().await;
    let image = house.image("debian", &house.image_file("qcow2", 8 * MIB, "")).await;
    let id = volume_id("a");
    let refused = house.storage.create(&id, 4 * MIB, &Origin::Image(image.clone())).await;
    assert!(matches!(refused, Err(VolumeError::SmallerThanSource { .. })), "{refused:?}");
    let refused = house.storage.create(&id, MIB, &Origin::Image("absent".parse().unwrap())).await;
    assert!(matches!(refused, Err(VolumeError::NoSuchImage { .. })), "{refused:?}");
    for bytes in [0, MOST_BYTES + 1, u64::MAX] {
        let refused = house.storage.create(&id, bytes, &Origin::Empty).await;
        assert!(matches!(refused, Err(VolumeError::BadSize { .. })), "{refused:?}");
    }
    let refused = house.storage.grow(&id, MIB).await;
    assert!(matches!(refused, Err(VolumeError::NoSuchVolume { .. })), "{refused:?}");
    assert!(everything_in(&house.path("volumes")).is_empty(), "refusing left something behind");
}

#[tokio::test]
async fn a_deleted_volume_is_gone_and_deleting_it_again_is_fine() {
    let house = House::new().await;
    let id = volume_id("a");
    house.storage.create(&id, MIB, &Origin::Empty).await.unwrap();
    for _ in 0..2 {
        house.storage.delete(&id).await.unwrap();
        assert_eq!(house.storage.volume(&id).await.unwrap(), None);
    }
    assert!(everything_in(&house.path("volumes")).is_empty());
}

#[tokio::test]
async fn a_volume_that_qemu_has_open_is_neither_grown_nor_deleted() {
    let house = House::new().await;
    let id = volume_id("a");
    house.storage.create(&id, MIB, &Origin::Empty).await.unwrap();
    let mut qemu = Command::new("qemu-io")
        .args(["-f", "raw", house.path("volumes/a/layer-0").to_str().unwrap()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    qemu.stdin.as_mut().unwrap().write_all(b"read 0 512\n").unwrap();
    let mut answer = String::new();
    BufReader::new(qemu.stdout.as_mut().unwrap()).read_line(&mut answer).unwrap();
    assert!(answer.contains("read"), "{answer}");

    let refused = house.storage.grow(&id, 2 * MIB).await;
    assert!(matches!(refused, Err(VolumeError::InUse { .. })), "{refused:?}");
    let refused = house.storage.delete(&id).await;
    assert!(matches!(refused, Err(VolumeError::InUse { .. })), "{refused:?}");
    let already_there = house.storage.create(&id, MIB, &Origin::Empty).await.unwrap();
    assert_eq!(already_there.virtual_size, MIB);
    qemu.kill().unwrap();
    qemu.wait().unwrap();
    house.storage.grow(&id, 2 * MIB).await.unwrap();
    house.storage.delete(&id).await.unwrap();
}

#[tokio::test]
async fn everything_is_closed_to_others() {
    let house = House::new().await;
    house.storage.create(&volume_id("a"), MIB, &Origin::Empty).await.unwrap();
    for (path, expected) in [
        ("volumes", 0o700),
        ("snapshots", 0o700),
        ("images", 0o700),
        ("seeds", 0o700),
        ("volumes/a", 0o700),
        ("volumes/a/layer-0", 0o600),
        ("volumes/a/manifest.json", 0o600),
    ] {
        let mode = std::fs::metadata(house.path(path)).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode, expected, "{path} is {mode:o}");
    }
}

#[tokio::test]
async fn a_volume_of_a_large_image_is_made_at_once() {
    let house = House::new().await;
    let image = house.image("debian", &house.image_file("qcow2", 10 * GIB, "write -P 1 0 256M")).await;
    let mut took: Vec<_> = Vec::new();
    for number in 0..5 {
        let begun = Instant::now();
        let id = volume_id(&format!("v{number}"));
        house.storage.create(&id, 10 * GIB, &Origin::Image(image.clone())).await.unwrap();
        took.push(begun.elapsed());
    }
    took.sort();
    println!("a volume of a 10 GiB image: {took:?}");
    assert!(took[2] < Duration::from_millis(100), "{took:?}");
}

#[tokio::test]
async fn many_at_once_and_one_twice_at_once_are_all_whole() {
    let house = House::new().await;
    let image = house.image("debian", &house.image_file("qcow2", 8 * MIB, "")).await;
    let making: Vec<_> = (0..32)
        .map(|number| {
            let (storage, image) = (house.storage.clone(), image.clone());
            let id = volume_id(&format!("v{}", number / 2));
            tokio::spawn(async move { storage.create(&id, 8 * MIB, &Origin::Image(image.clone())).await })
        })
        .collect();
    for made in making {
        assert_eq!(made.await.unwrap().unwrap().virtual_size, 8 * MIB);
    }
    assert_eq!(house.storage.volumes().await.unwrap().len(), 16);
}

/// Whether somebody else could lock a file that is open here already.
fn could_be_locked(file: &File) -> bool {
    let locked = set_lock(file, libc::F_WRLCK);
    assert!(set_lock(file, libc::F_UNLCK));
    locked
}

#[tokio::test]
async fn a_volume_is_held_until_it_has_grown_and_until_it_has_no_name_any_more() {
    let directory = tempfile::tempdir().unwrap();
    let layer = directory.path().join("volumes/a/layer-0");
    let id = volume_id("a");
    open(directory.path()).await.create(&id, MIB, &Origin::Empty).await.unwrap();
    let of_somebody_else = File::options().read(true).write(true).open(&layer).unwrap();
    let found = Arc::new(Mutex::new(Vec::new()));
    let hook = {
        let (found, of_somebody_else) = (found.clone(), of_somebody_else.try_clone().unwrap());
        move |step: Step| {
            if matches!(step, Step::VolumeGrown | Step::VolumeWithdrawn) {
                // Another thread looks at the volume and closes what it looked at.
                drop(File::open(&layer));
                found.lock().unwrap().push((step, could_be_locked(&of_somebody_else)));
            }
        }
    };
    let storage = open_with(directory.path(), AfterStep::call(hook)).await;
    storage.grow(&id, 2 * MIB).await.unwrap();
    // A process that another test starts may hold what we let go of, for the instant until it has its own program.
    for _ in 0..100 {
        match storage.delete(&id).await {
            Err(VolumeError::InUse { .. }) => tokio::time::sleep(Duration::from_millis(20)).await,
            done => {
                done.unwrap();
                break;
            }
        }
    }
    assert_eq!(*found.lock().unwrap(), [(Step::VolumeGrown, false), (Step::VolumeWithdrawn, false)]);
    assert!(could_be_locked(&of_somebody_else), "and let go in the end");
}
