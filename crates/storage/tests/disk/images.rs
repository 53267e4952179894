//! Images that somebody sends.

use std::process::Command;

use bytes::Bytes;
use futures::{StreamExt, stream};
use sha2::{Digest, Sha512};
use sheaf_storage::{Announced, Backend, Checksum, Format, ImageError, ImageId, ImageState};
use tokio::sync::mpsc;

use crate::house::{House, MIB, everything_in, open, pieces, read_at};

fn debian() -> ImageId {
    "debian".parse().unwrap()
}

#[tokio::test]
async fn what_is_sent_is_what_is_kept() {
    let house = House::new().await;
    let mut content = vec![0; 5 * MIB as usize + 123];
    for (index, byte) in content.iter_mut().enumerate().skip(MIB as usize).take(MIB as usize) {
        *byte = (index % 251) as u8;
    }
    let expected = Some(content.len() as u64);
    let image = house.storage.receive_image(&debian(), pieces(content.clone()), expected).await.unwrap();
    assert_eq!((image.format, image.size), (Format::Raw, content.len() as u64));
    assert_eq!(image.virtual_size, (content.len() as u64).next_multiple_of(512));
    assert_eq!(image.digest, format!("blake3:{}", blake3::hash(&content)));

    let file = house.storage.open_image_for_reading(&debian()).await.unwrap();
    assert_eq!(read_at(&file.file, 0, content.len()), content);
    let storage = open(&house.path("")).await;
    assert_eq!(storage.image(&debian()).await.unwrap(), ImageState::Complete(image));
    assert_eq!(storage.images().await.unwrap(), [debian()]);
}

#[tokio::test]
async fn what_is_sent_must_have_the_checksum_that_it_should() {
    let house = House::new().await;
    let content = vec![3; MIB as usize];
    let digest = |content: &[u8]| {
        let hex: String = Sha512::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
        Checksum::parse(&hex).unwrap()
    };
    let wrong = digest(b"something else");
    let checked = |checksum| Announced { checksum: Some(checksum), ..Announced::default() };
    let refused = house.storage.receive_image(&debian(), pieces(content.clone()), checked(wrong)).await;
    assert!(matches!(refused, Err(ImageError::WrongChecksum { .. })), "{refused:?}");
    assert!(everything_in(&house.path("images")).is_empty());
    let right = digest(&content);
    house.storage.receive_image(&debian(), pieces(content), checked(right)).await.unwrap();
}

#[tokio::test]
async fn runs_of_zeros_take_no_space() {
    use std::os::unix::fs::MetadataExt;
    let house = House::new().await;
    let mut content = vec![0; 64 * MIB as usize];
    content[0] = 1;
    house.storage.receive_image(&debian(), pieces(content), None).await.unwrap();
    let found = std::fs::metadata(house.path("images/debian/disk")).unwrap();
    assert_eq!(found.len(), 64 * MIB);
    assert!(found.blocks() * 512 < MIB, "{} blocks", found.blocks());
}

#[tokio::test]
async fn an_image_that_is_too_short_too_long_or_breaks_off_leaves_only_its_reason() {
    let house = House::new().await;
    for expected in [MIB + 1, MIB - 1] {
        let refused =
            house.storage.receive_image(&debian(), pieces(vec![1; MIB as usize]), Some(expected)).await;
        assert!(matches!(refused, Err(ImageError::WrongSize { .. })), "{refused:?}");
    }
    let broken = pieces(vec![1; MIB as usize])
        .map(|piece| piece.map_err(|never| match never {}))
        .chain(stream::iter([Err("the cable is gone")]));
    let refused = house.storage.receive_image(&debian(), broken, None).await;
    assert!(matches!(refused, Err(ImageError::Interrupted { .. })), "{refused:?}");
    let state = house.storage.image(&debian()).await.unwrap();
    let ImageState::Interrupted { bytes: MIB, total: None, why } = state else { panic!("{state:?}") };
    assert!(why.contains("the cable is gone"), "{why}");
    house.storage.delete_image(&debian()).await.unwrap();
    assert!(everything_in(&house.path("images")).is_empty());

    let free = house.storage.space().await.unwrap().free_bytes;
    let refused = house.storage.receive_image(&debian(), pieces(vec![1]), Some(free + 1)).await;
    assert!(matches!(refused, Err(ImageError::NoSpace { .. })), "{refused:?}");

    house.storage.delete_image(&debian()).await.unwrap();
    assert_eq!(house.storage.image(&debian()).await.unwrap(), ImageState::Nothing);
    house.image("debian", &house.image_file("qcow2", MIB, "")).await;
}

#[tokio::test]
async fn an_image_with_another_below_it_is_refused_with_a_sentence() {
    let house = House::new().await;
    let base = house.image_file("raw", MIB, "");
    let image = house.path("overlay.qcow2");
    let arguments =
        ["create", "-q", "-f", "qcow2", "-F", "raw", "-b", base.to_str().unwrap(), image.to_str().unwrap()];
    crate::house::run("qemu-img", &arguments);
    let content = std::fs::read(image).unwrap();
    let refused = house.storage.receive_image(&debian(), pieces(content), None).await.unwrap_err();
    assert!(refused.to_string().contains("names another file below it"), "{refused}");
    assert!(everything_in(&house.path("images")).is_empty());
}

#[tokio::test]
async fn how_far_an_image_is_can_be_asked_and_only_one_at_a_time_arrives() {
    let house = House::new().await;
    let (sender, receiver) = mpsc::channel::<Result<Bytes, String>>(1);
    let body = stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) });
    let storage = house.storage.clone();
    let arriving = tokio::spawn(async move { storage.receive_image(&debian(), body, Some(2 * MIB)).await });
    sender.send(Ok(vec![1; MIB as usize].into())).await.unwrap();
    let expected = ImageState::Arriving { bytes: MIB, total: Some(2 * MIB) };
    while house.storage.image(&debian()).await.unwrap() != expected {
        tokio::task::yield_now().await;
    }
    let second = house.storage.receive_image(&debian(), pieces(vec![2; 512]), None).await;
    assert!(matches!(second, Err(ImageError::AlreadyArriving { .. })), "{second:?}");
    assert!(house.storage.images().await.unwrap().is_empty());

    sender.send(Ok(vec![1; MIB as usize].into())).await.unwrap();
    drop(sender);
    let image = arriving.await.unwrap().unwrap();
    assert_eq!(house.storage.image(&debian()).await.unwrap(), ImageState::Complete(image.clone()));
    let again = house.storage.receive_image(&debian(), pieces(vec![2; 512]), None).await.unwrap();
    assert_eq!(again, image, "a complete image never changes");
}

#[tokio::test]
async fn an_image_deleted_while_it_arrives_leaves_nothing() {
    let house = House::new().await;
    let storage = house.storage.clone();
    let endless = stream::repeat_with(|| Ok::<_, String>(Bytes::from(vec![1; 4096])));
    let arriving = tokio::spawn(async move { storage.receive_image(&debian(), endless, None).await });
    while everything_in(&house.path("images")).is_empty() {
        tokio::task::yield_now().await;
    }
    house.storage.delete_image(&debian()).await.unwrap();
    let ended = arriving.await.unwrap();
    assert!(matches!(ended, Err(ImageError::DeletedMeanwhile { .. })), "{ended:?}");
    assert_eq!(house.storage.image(&debian()).await.unwrap(), ImageState::Nothing);
    assert!(everything_in(&house.path("images")).is_empty());
}

/// A small file system of its own, gone when dropped.
pub struct SmallDisk(pub tempfile::TempDir);

impl SmallDisk {
    /// None where one may not mount.
    pub fn of_mib(size: u64) -> Option<SmallDisk> {
        let disk = SmallDisk(tempfile::tempdir().unwrap());
        let option = format!("size={size}m");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &option, "none"]).arg(disk.0.path()).status();
        mounted.is_ok_and(|status| status.success()).then_some(disk)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[tokio::test]
async fn an_image_that_never_said_how_large_it_is_does_not_fill_the_disk() {
    let Some(disk) = SmallDisk::of_mib(64) else { return println!("this test must be allowed to mount") };
    let storage = crate::house::open(disk.0.path()).await;
    let endless =
        stream::iter(std::iter::repeat_n(Bytes::from(vec![1; MIB as usize]), 100)).map(Ok::<_, String>);
    let refused = storage.receive_image(&debian(), endless, None).await.unwrap_err();
    let ImageError::DiskFull { free, reserve, .. } = refused else { panic!("{refused:?}") };
    assert!(reserve > 3 * MIB && free > reserve, "{refused}");
    assert!(everything_in(&disk.0.path().join("images")).is_empty(), "what had arrived is gone");
    assert!(storage.space().await.unwrap().free_bytes > 60 * MIB);
    // One that says so is refused before anything is written.
    let refused = storage.receive_image(&debian(), pieces(vec![1]), Some(62 * MIB)).await;
    assert!(matches!(refused, Err(ImageError::NoSpace { .. })), "{refused:?}");
}
