//! Whatever somebody puts where the storage looks: it is refused, and nothing outside is
//! read, written or removed.

use std::{
    fs::{self, File},
    os::unix::fs::symlink,
};

use sheaf_storage::{Backend, Origin, SeedId, Storage, StorageConfig, VolumeError};

use crate::house::{House, MIB, open, set_lock, volume_id};

#[tokio::test]
async fn a_link_in_the_place_of_a_directory_is_refused() {
    for name in ["volumes", "snapshots", "images", "seeds"] {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(outside.path().join(".making-a")).unwrap();
        symlink(outside.path(), root.path().join(name)).unwrap();
        Storage::open(StorageConfig::in_directory(root.path())).await.unwrap_err();
        assert!(outside.path().join(".making-a").exists(), "{name}: something outside was removed");
    }
}

#[tokio::test]
async fn a_link_in_the_place_of_a_volume_a_layer_a_manifest_or_a_seed_is_refused() {
    let house = House::new().await;
    let precious = house.path("precious");
    fs::write(&precious, "x").unwrap();
    let id = volume_id("a");

    symlink(house.path(""), house.path("volumes/b")).unwrap();
    house.storage.volume(&volume_id("b")).await.unwrap_err();
    house.storage.create(&volume_id("b"), MIB, &Origin::Empty).await.unwrap_err();
    house.storage.delete(&volume_id("b")).await.unwrap_err();

    for replaced in ["layer-0", "manifest.json"] {
        house.storage.create(&id, MIB, &Origin::Empty).await.unwrap();
        fs::remove_file(house.path("volumes/a").join(replaced)).unwrap();
        symlink(&precious, house.path("volumes/a").join(replaced)).unwrap();
        house.storage.open(&id, false).await.unwrap_err();
        house.storage.grow(&id, 2 * MIB).await.unwrap_err();
        fs::remove_file(house.path("volumes/a").join(replaced)).unwrap();
        house.storage.delete(&id).await.ok();
        fs::remove_dir_all(house.path("volumes/a")).ok();
    }
    let seed: SeedId = "s".parse().unwrap();
    symlink(&precious, house.path("seeds/s")).unwrap();
    house.storage.open_seed(&seed).await.unwrap_err();
    house.storage.write_seed(&seed, b"secret".to_vec()).await.unwrap();
    assert!(house.storage.open_seed(&seed).await.unwrap().is_some(), "the link gave way to the seed");
    symlink(&precious, house.path("seeds/.making-s")).unwrap();
    house.storage.write_seed(&seed, b"secret".to_vec()).await.unwrap();
    assert_eq!(fs::read_to_string(&precious).unwrap(), "x");
}

#[tokio::test]
async fn a_manifest_that_names_other_files_is_refused() {
    let house = House::new().await;
    let id = volume_id("a");
    house.storage.create(&id, MIB, &Origin::Empty).await.unwrap();
    let manifest = house.path("volumes/a/manifest.json");
    for layers in [
        r#"[{"file":"../../precious","format":"raw"}]"#,
        r#"[{"file":"/etc/shadow","format":"raw"}]"#,
        r#"[{"file":"layer-0/../../b/layer-0","format":"raw"}]"#,
        "[]",
    ] {
        fs::write(&manifest, format!(r#"{{"version":1,"layers":{layers}}}"#)).unwrap();
        let refused = house.storage.open(&id, false).await;
        assert!(matches!(refused, Err(VolumeError::Damaged { .. })), "{layers}: {refused:?}");
    }
    fs::write(&manifest, r#"{"version":4,"layers":[{"file":"layer-0","format":"raw"}]}"#).unwrap();
    let refused = house.storage.open(&id, false).await.unwrap_err();
    assert!(refused.to_string().contains("version 4"), "{refused}");
    // As it was before there were snapshots, and before there could be several at once.
    fs::write(&manifest, r#"{"version":1,"layers":[{"file":"layer-0","format":"raw"}]}"#).unwrap();
    assert_eq!(house.storage.open(&id, false).await.unwrap().len(), 1);
    let second = r#"{"version":2,"layers":[{"file":"layer-0","format":"raw"}],"next":1,
        "pending":{"snapshot":"s","above":1}}"#;
    fs::write(&manifest, second).unwrap();
    house.storage.finish_snapshot(&id, &"s".parse().unwrap()).await.unwrap();
    for damage in [Some("{"), None] {
        match damage {
            Some(text) => fs::write(&manifest, text).unwrap(),
            None => fs::remove_file(&manifest).unwrap(),
        }
        house.storage.open(&id, false).await.unwrap();
    }
}

#[tokio::test]
async fn a_volume_without_a_manifest_is_not_deleted_under_its_machine() {
    let house = House::new().await;
    let id = volume_id("a");
    house.storage.create(&id, MIB, &Origin::Empty).await.unwrap();
    for name in ["manifest.json", "manifest.copy.json"] {
        fs::write(house.path(&format!("volumes/a/{name}")), "{").unwrap();
    }
    house.storage.open(&id, false).await.unwrap_err();
    let machine = File::options().read(true).write(true).open(house.path("volumes/a/layer-0")).unwrap();
    assert!(set_lock(&machine, nix::libc::F_WRLCK));
    let refused = house.storage.delete(&id).await;
    assert!(matches!(refused, Err(VolumeError::InUse { .. })), "{refused:?}");
    drop(machine);
    house.storage.delete(&id).await.unwrap();
    assert!(!house.path("volumes/a").exists());
}

#[tokio::test]
async fn a_leftover_that_is_a_link_is_removed_and_not_what_it_points_to() {
    let house = House::new().await;
    fs::create_dir(house.path("outside")).unwrap();
    fs::write(house.path("outside/precious"), "x").unwrap();
    symlink(house.path("outside"), house.path("volumes/.making-a")).unwrap();
    symlink(house.path("outside"), house.path("images/.arriving-a")).unwrap();
    open(&house.path("")).await;
    assert!(house.path("outside/precious").exists());
    assert!(!house.path("volumes/.making-a").is_symlink());
    assert!(!house.path("images/.arriving-a").is_symlink());
}

#[tokio::test]
async fn nothing_is_merged_under_a_volume_that_cannot_be_read() {
    let house = House::new().await;
    let (id, copy) = (volume_id("a"), volume_id("copy"));
    let [first, second] = ["first", "second"].map(|name| name.parse().unwrap());
    house.storage.create(&id, MIB, &Origin::Empty).await.unwrap();
    for snapshot in [&first, &second] {
        house.storage.begin_snapshot(&id, snapshot).await.unwrap();
        house.storage.finish_snapshot(&id, snapshot).await.unwrap();
    }
    house.storage.create(&copy, MIB, &Origin::Snapshot(first.clone())).await.unwrap();
    house.storage.delete_snapshot(&first).await.unwrap();
    // Whoever else has the lowest layer has the same one on it, but the copy has not.
    for name in ["manifest.json", "manifest.copy.json"] {
        let manifest = house.path(&format!("volumes/copy/{name}"));
        // Of a later version, which is the first number in it.
        fs::write(&manifest, fs::read_to_string(&manifest).unwrap().replacen('3', "99", 1)).unwrap();
    }
    house.storage.volume(&copy).await.unwrap_err();
    assert_eq!(house.storage.wanted_merges().await.unwrap(), []);
    house.storage.delete(&copy).await.unwrap();
    assert_eq!(house.storage.wanted_merges().await.unwrap().len(), 1, "and then there is nobody else");
}

#[tokio::test]
async fn a_damaged_volume_whose_layer_is_no_file_can_be_deleted() {
    let house = House::new().await;
    let id = volume_id("a");
    house.storage.create(&id, MIB, &Origin::Empty).await.unwrap();
    let layer = house.path("volumes/a/layer-0");
    for name in ["manifest.json", "manifest.copy.json"] {
        fs::write(house.path(&format!("volumes/a/{name}")), "{").unwrap();
    }
    fs::remove_file(&layer).unwrap();
    symlink("/etc/passwd", &layer).unwrap();
    fs::create_dir(house.path("volumes/a/layer-1")).unwrap();
    house.storage.delete(&id).await.unwrap();
    assert!(!house.path("volumes/a").exists());
}
