//! Whatever somebody puts where the storage looks: it is refused, and nothing outside is
//! read, written or removed.

use std::{fs, os::unix::fs::symlink};

use sheaf_storage::{SeedId, Storage, StorageConfig, VolumeError};

use crate::house::{House, MIB, open, volume_id};

#[tokio::test]
async fn a_link_in_the_place_of_a_directory_is_refused() {
    for name in ["volumes", "images", "seeds"] {
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
    house.storage.create_volume(&volume_id("b"), MIB, None).await.unwrap_err();
    house.storage.delete_volume(&volume_id("b")).await.unwrap_err();

    for replaced in ["layer-0", "manifest.json"] {
        house.storage.create_volume(&id, MIB, None).await.unwrap();
        fs::remove_file(house.path("volumes/a").join(replaced)).unwrap();
        symlink(&precious, house.path("volumes/a").join(replaced)).unwrap();
        house.storage.open_volume(&id, false).await.unwrap_err();
        house.storage.grow_volume(&id, 2 * MIB).await.unwrap_err();
        fs::remove_file(house.path("volumes/a").join(replaced)).unwrap();
        house.storage.delete_volume(&id).await.ok();
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
    house.storage.create_volume(&id, MIB, None).await.unwrap();
    let manifest = house.path("volumes/a/manifest.json");
    for layers in [
        r#"[{"file":"../../precious","format":"raw"}]"#,
        r#"[{"file":"/etc/shadow","format":"raw"}]"#,
        r#"[{"file":"layer-0/../../b/layer-0","format":"raw"}]"#,
        "[]",
    ] {
        fs::write(&manifest, format!(r#"{{"version":1,"layers":{layers}}}"#)).unwrap();
        let refused = house.storage.open_volume(&id, false).await;
        assert!(matches!(refused, Err(VolumeError::Damaged { .. })), "{layers}: {refused:?}");
    }
    fs::write(&manifest, r#"{"version":2,"layers":[{"file":"layer-0","format":"raw"}]}"#).unwrap();
    let refused = house.storage.open_volume(&id, false).await.unwrap_err();
    assert!(refused.to_string().contains("version 2"), "{refused}");
    fs::write(&manifest, "{").unwrap();
    house.storage.open_volume(&id, false).await.unwrap_err();
    house.storage.delete_volume(&id).await.unwrap();
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
