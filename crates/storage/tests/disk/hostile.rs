//! Images made to harm: what their headers name is never opened, and what they claim is never believed.
//!
//! That the reader of headers refuses each lie is asked beside it; here it is asked of whole images, made by QEMU's own
//! tools where those can be brought to it, through the same door that everybody uses.

use std::{fs, os::unix::fs::symlink, time::Duration};

use bytes::Bytes;
use futures::StreamExt;
use sheaf_storage::{
    Backend, ImageError, ImageId, ImageState, Origin, Storage, StorageConfig, image::Refusal,
};
use tokio::time::{sleep, timeout};

use crate::house::{House, MIB, everything_in, open, pieces, run};

fn debian() -> ImageId {
    "debian".parse().unwrap()
}

async fn refused(house: &House, content: Vec<u8>) -> ImageError {
    let why = house.storage.receive_image(&debian(), pieces(content), None).await.unwrap_err();
    assert!(everything_in(&house.path("images")).is_empty(), "left behind after {why}");
    why
}

/// A qcow2 by `qemu-img`, with these options.
fn qcow2(house: &House, options: &[&str]) -> Vec<u8> {
    let path = house.path("made.qcow2");
    let mut arguments = vec!["create", "-q", "-f", "qcow2"];
    arguments.extend(options);
    let text = path.to_str().unwrap().to_owned();
    arguments.push(&text);
    arguments.push("1M");
    run("qemu-img", &arguments);
    fs::read(path).unwrap()
}

#[tokio::test]
async fn an_image_that_names_a_file_of_the_host_is_refused_however_it_names_it() {
    let house = House::new().await;
    let secret = house.path("secret");
    fs::write(&secret, vec![7; MIB as usize]).unwrap();
    let secret = secret.to_str().unwrap();
    let json = format!(r#"json:{{"driver":"raw","file":{{"driver":"file","filename":"{secret}"}}}}"#);
    for backing in [secret, "../../secret", "nbd://127.0.0.1:1/", &json] {
        let content = qcow2(&house, &["-u", "-b", backing, "-F", "raw"]);
        let why = refused(&house, content).await;
        assert!(matches!(why, ImageError::Refused(Refusal::BackingFile)), "{backing}: {why}");
    }
    let data = house.path("data");
    let option = format!("data_file={}", data.to_str().unwrap());
    let why = refused(&house, qcow2(&house, &["-o", &option])).await;
    assert!(matches!(why, ImageError::Refused(Refusal::ExternalData)), "{why}");
    let option = format!("data_file={},data_file_raw=on", data.to_str().unwrap());
    let why = refused(&house, qcow2(&house, &["-o", &option])).await;
    assert!(matches!(why, ImageError::Refused(Refusal::ExternalData)), "{why}");
}

#[tokio::test]
async fn a_name_that_only_the_extensions_have_is_refused_too() {
    let house = House::new().await;
    let mut content = qcow2(&house, &[]);
    // Where the extensions of a header of version 3 begin.
    let at = u32::from_be_bytes(content[100..104].try_into().unwrap()) as usize;
    let old = content[at..at + 200].to_vec();
    content[at..at + 16].copy_from_slice(b"DATA\0\0\0\x08/etc/pwd");
    content[at + 16..at + 216].copy_from_slice(&old);
    let why = refused(&house, content).await;
    assert!(matches!(why, ImageError::Refused(Refusal::ExternalData)), "{why}");
}

#[tokio::test]
async fn tables_that_are_huge_elsewhere_or_each_other_are_refused() {
    let house = House::new().await;
    for (at, bytes) in [
        // The first table, the refcounts and the snapshots: too many, too far, or in a circle.
        (36, &u32::MAX.to_be_bytes()[..]),
        (40, &u64::MAX.to_be_bytes()),
        (40, &0u64.to_be_bytes()),
        (48, &(1u64 << 62).to_be_bytes()),
        (56, &u32::MAX.to_be_bytes()),
        (56, &0u32.to_be_bytes()),
        (60, &u32::MAX.to_be_bytes()),
        (20, &64u32.to_be_bytes()),
        (24, &u64::MAX.to_be_bytes()),
        (100, &7u32.to_be_bytes()),
    ] {
        let mut content = qcow2(&house, &[]);
        content[at..at + bytes.len()].copy_from_slice(bytes);
        let why = refused(&house, content).await;
        assert!(matches!(why, ImageError::Refused(_)), "{bytes:?} at {at}: {why}");
    }
    let mut circle = qcow2(&house, &[]);
    let refcounts = circle[48..56].to_vec();
    circle[40..48].copy_from_slice(&refcounts);
    let why = refused(&house, circle).await;
    assert!(matches!(why, ImageError::Refused(Refusal::BadHeader("tables that lie on each other"))), "{why}");
}

#[tokio::test]
async fn honest_images_of_every_age_are_taken() {
    let house = House::new().await;
    for options in [
        &["-o", "compat=0.10"][..],
        &["-o", "compat=1.1,lazy_refcounts=on"],
        &["-o", "extended_l2=on,cluster_size=128k"],
        &["-o", "compression_type=zstd"],
        &["-o", "cluster_size=512"],
        &["-o", "cluster_size=2M"],
    ] {
        let content = qcow2(&house, options);
        house.storage.receive_image(&debian(), pieces(content), None).await.unwrap();
        house.storage.delete_image(&debian()).await.unwrap();
    }
    // With snapshots of its own inside.
    qcow2(&house, &[]);
    let path = house.path("made.qcow2");
    for name in ["one", "two"] {
        run("qemu-img", &["snapshot", "-c", name, path.to_str().unwrap()]);
    }
    house.storage.receive_image(&debian(), pieces(fs::read(path).unwrap()), None).await.unwrap();
}

#[tokio::test]
async fn no_name_leads_out_of_the_directory() {
    for name in ["..", ".", "", "a/../../b", "/etc/passwd", "a\0b", ".arriving-a", "%2e%2e", "a\\b", "..%2f"]
    {
        assert!(name.parse::<ImageId>().is_err(), "{name:?} was taken for an id");
    }
}

#[tokio::test]
async fn a_link_or_a_device_in_the_place_of_an_image_is_refused_and_nothing_outside_is_touched() {
    let house = House::new().await;
    let precious = house.path("precious");
    fs::write(&precious, "x").unwrap();
    let image = house.image("debian", &house.image_file("raw", MIB, "")).await;
    for planted in ["link", "pipe", "directory"] {
        for name in ["disk", "manifest.json"] {
            let house = House::new().await;
            house.image("debian", &house.image_file("raw", MIB, "")).await;
            let path = house.path("images/debian").join(name);
            fs::remove_file(&path).unwrap();
            match planted {
                "link" => symlink(&precious, &path).unwrap(),
                "pipe" => drop(run("mkfifo", &[path.to_str().unwrap()])),
                _ => fs::create_dir(&path).unwrap(),
            }
            let storage = open(&house.path("")).await;
            storage.open_image_for_reading(&image).await.unwrap_err();
            storage.clone_image(&"clone".parse().unwrap(), &image).await.unwrap_err();
            let volume = "volume".parse().unwrap();
            if name == "manifest.json" {
                storage.create(&volume, MIB, &Origin::Image(image.clone())).await.unwrap_err();
            }
            storage.delete_image(&image).await.unwrap();
            assert!(everything_in(&house.path("images")).is_empty(), "{planted} for {name}");
        }
    }
    // In the place of the whole image, and where one arrives.
    let other: ImageId = "other".parse().unwrap();
    symlink(house.path(""), house.path("images/other")).unwrap();
    house.storage.image(&other).await.unwrap_err();
    house.storage.open_image_for_reading(&other).await.unwrap_err();
    house.storage.receive_image(&other, pieces(vec![1; 4096]), None).await.unwrap_err();
    house.storage.delete_image(&other).await.unwrap_err();
    fs::remove_file(house.path("images/other")).unwrap();
    symlink(house.path("elsewhere"), house.path("images/.arriving-other")).unwrap();
    house.storage.receive_image(&other, pieces(vec![1; 4096]), None).await.unwrap();
    assert!(!house.path("elsewhere").exists());
    assert_eq!(fs::read_to_string(&precious).unwrap(), "x");
}

#[tokio::test]
async fn a_device_in_the_place_of_an_images_bytes_is_not_read() {
    let house = House::new().await;
    let image = house.image("debian", &house.image_file("raw", MIB, "")).await;
    let path = house.path("images/debian/disk");
    fs::remove_file(&path).unwrap();
    let made = std::process::Command::new("mknod").arg(&path).args(["c", "1", "5"]).status().unwrap();
    if !made.success() {
        return println!("this test must be allowed to make devices");
    }
    let storage = open(&house.path("")).await;
    storage.open_image_for_reading(&image).await.unwrap_err();
    storage.delete_image(&image).await.unwrap();
}

#[tokio::test]
async fn an_image_of_the_first_version_is_still_read() {
    let house = House::new().await;
    let image = house.image("debian", &house.image_file("raw", MIB, "write -P 5 0 64k")).await;
    let ImageState::Complete(mut found) = house.storage.image(&image).await.unwrap() else { panic!() };
    let manifest = house.path("images/debian/manifest.json");
    let old = format!(
        r#"{{"version":1,"format":"raw","size":{},"virtualSize":{},"sha512":"00"}}"#,
        found.size, found.virtual_size
    );
    fs::write(&manifest, old).unwrap();
    found.digest = "sha512:00".into();
    let storage = open(&house.path("")).await;
    assert_eq!(storage.image(&image).await.unwrap(), ImageState::Complete(found));
    storage.create(&"volume".parse().unwrap(), MIB, &Origin::Image(image.clone())).await.unwrap();
    storage.clone_image(&"clone".parse().unwrap(), &image).await.unwrap();
    fs::write(&manifest, r#"{"version":4,"format":"raw","size":1,"virtualSize":1,"sha512":""}"#).unwrap();
    let told = format!("{:?}", storage.image(&image).await.unwrap_err());
    assert!(told.contains("version 4"), "what a later Sheaf wrote is not called damaged: {told}");
}

#[tokio::test]
async fn an_endless_image_that_nobody_sends_any_more_ends() {
    let house = House::new().await;
    let patience = Duration::from_millis(1);
    let config = StorageConfig { upload_patience: patience, ..StorageConfig::in_directory(house.path("")) };
    let storage = Storage::open(config).await.unwrap();
    let endless = futures::stream::repeat_with(|| Ok::<_, String>(Bytes::from(vec![1; 65536])));
    let id = debian();
    let sending = storage.receive_image(&id, endless.take(1000).chain(futures::stream::pending()), None);
    assert!(timeout(Duration::from_millis(300), sending).await.is_err());
    while !everything_in(&house.path("images")).is_empty() {
        sleep(Duration::from_millis(10)).await;
    }
}
