//! Seeds, as those see them who look for them.

use std::{os::unix::fs::PermissionsExt, path::Path};

use sheaf_storage::{
    SeedId,
    seed::{ConfigDrive, NoCloud, config_drive, no_cloud},
};

use crate::house::{House, everything_in, open, read_at, run};

fn no_cloud_content() -> NoCloud {
    NoCloud {
        meta_data: b"instance-id: one\nlocal-hostname: guest\n".to_vec(),
        user_data: [&b"#cloud-config\n"[..], &b"# long\n".repeat(2000)].concat(),
        network_data: Some(b"version: 2\n".to_vec()),
    }
}

fn config_drive_content() -> ConfigDrive {
    ConfigDrive {
        meta_data: br#"{"uuid":"one"}"#.to_vec(),
        user_data: b"#!/bin/sh\n".to_vec(),
        network_data: Some(br#"{"links":[]}"#.to_vec()),
    }
}

/// The three ways in which a disc can be read, as `bsdtar` is told of them: with
/// Rock Ridge, with Joliet, and with neither.
const READINGS: [&str; 3] = ["!joliet", "!rockridge", "!joliet,!rockridge"];

fn unpack(disc: &Path, reading: &str, file: &str) -> Vec<u8> {
    let output = std::process::Command::new("bsdtar")
        .args(["-x", "-O", "--options", reading, "-f", disc.to_str().unwrap(), file])
        .output()
        .unwrap();
    assert!(output.status.success(), "{reading}: {file}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn label(disc: &Path) -> String {
    let told = run("blkid", &["-p", "-o", "export", disc.to_str().unwrap()]);
    assert!(told.contains("TYPE=iso9660"), "{told}");
    told.lines().find_map(|line| line.strip_prefix("LABEL=")).unwrap_or(&told).to_owned()
}

#[tokio::test]
async fn a_no_cloud_seed_is_found_by_its_label_and_read_in_every_way() {
    let root = tempfile::tempdir().unwrap();
    let disc = root.path().join("disc");
    let content = no_cloud_content();
    std::fs::write(&disc, no_cloud(&content)).unwrap();
    assert_eq!(label(&disc), "cidata");
    for reading in &READINGS[..2] {
        assert_eq!(unpack(&disc, reading, "meta-data"), content.meta_data, "{reading}");
        assert_eq!(unpack(&disc, reading, "user-data"), content.user_data, "{reading}");
        assert_eq!(unpack(&disc, reading, "network-config"), content.network_data.clone().unwrap());
    }
    assert_eq!(unpack(&disc, READINGS[2], "META_DATA"), content.meta_data);
    let listed = run("bsdtar", &["-tvf", disc.to_str().unwrap()]);
    assert!(listed.contains("-r--------"), "only root may read what is on it: {listed}");
}

#[tokio::test]
async fn a_config_drive_is_found_by_its_label_and_read_in_every_way() {
    let root = tempfile::tempdir().unwrap();
    let disc = root.path().join("disc");
    let content = config_drive_content();
    std::fs::write(&disc, config_drive(&content)).unwrap();
    assert_eq!(label(&disc), "config-2");
    for reading in &READINGS[..2] {
        for (file, expected) in [
            ("openstack/latest/meta_data.json", &content.meta_data),
            ("openstack/latest/user_data", &content.user_data),
            ("openstack/latest/network_data.json", content.network_data.as_ref().unwrap()),
        ] {
            assert_eq!(&unpack(&disc, reading, file), expected, "{reading}: {file}");
        }
    }
}

#[tokio::test]
async fn what_is_not_said_is_not_there_and_what_is_empty_is() {
    let root = tempfile::tempdir().unwrap();
    let disc = root.path().join("disc");
    std::fs::write(&disc, no_cloud(&NoCloud { meta_data: b"a".to_vec(), ..NoCloud::default() })).unwrap();
    let listed = run("bsdtar", &["-tf", disc.to_str().unwrap()]);
    let mut names: Vec<_> = listed.lines().filter(|name| *name != ".").collect();
    names.sort();
    assert_eq!(names, ["meta-data", "user-data"]);
    assert_eq!(unpack(&disc, READINGS[0], "user-data"), b"");
}

#[test]
fn the_same_content_gives_the_same_bytes() {
    assert_eq!(no_cloud(&no_cloud_content()), no_cloud(&no_cloud_content()));
    assert_ne!(no_cloud(&no_cloud_content()), no_cloud(&NoCloud::default()));
}

#[tokio::test]
async fn a_seed_is_kept_for_root_alone_replaced_whole_and_found_again() {
    let house = House::new().await;
    let id: SeedId = "0e9ad7f6-6f2c-4a3e-9d8c-0a1b2c3d4e5f-cloudinitdisk".parse().unwrap();
    assert!(house.storage.open_seed(&id).await.unwrap().is_none());
    house.storage.write_seed(&id, b"old".to_vec()).await.unwrap();
    let old = house.storage.open_seed(&id).await.unwrap().unwrap();
    house.storage.write_seed(&id, b"new".to_vec()).await.unwrap();
    let new = house.storage.open_seed(&id).await.unwrap().unwrap();
    assert_eq!((read_at(&old, 0, 3), read_at(&new, 0, 3)), (b"old".to_vec(), b"new".to_vec()));
    let mode = std::fs::metadata(house.path("seeds").join(id.as_str())).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);

    let storage = open(&house.path("")).await;
    assert_eq!(storage.seeds().await.unwrap(), std::slice::from_ref(&id));
    for _ in 0..2 {
        storage.delete_seed(&id).await.unwrap();
        assert!(everything_in(&house.path("seeds")).is_empty());
    }
}
