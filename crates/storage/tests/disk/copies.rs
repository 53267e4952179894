//! Images of images.

use sheaf_storage::{Backend, ImageError, ImageId, ImageState, Origin, VolumeId};

use crate::house::{House, MIB, everything_in, read_at};

fn id(name: &str) -> ImageId {
    name.parse().unwrap()
}

#[tokio::test]
async fn a_clone_shares_the_bytes_and_either_may_go_first() {
    use std::os::unix::fs::MetadataExt;
    let house = House::new().await;
    let file = house.image_file("qcow2", 8 * MIB, "write -P 3 0 1M");
    let content = std::fs::read(&file).unwrap();
    house.image("original", &file).await;
    let original = house.storage.image(&id("original")).await.unwrap();
    let clone = house.storage.clone_image(&id("clone"), &id("original")).await.unwrap();
    assert_eq!(ImageState::Complete(clone.clone()), original);
    let inode = |name: &str| std::fs::metadata(house.path(&format!("images/{name}/disk"))).unwrap().ino();
    assert_eq!(inode("clone"), inode("original"), "nothing was copied");

    house.storage.delete_image(&id("original")).await.unwrap();
    let open = house.storage.open_image_for_reading(&id("clone")).await.unwrap();
    assert_eq!(read_at(&open.file, 0, content.len()), content);
    let volume: VolumeId = "volume".parse().unwrap();
    house.storage.create(&volume, 8 * MIB, &Origin::Image(id("clone"))).await.unwrap();
    let second = house.storage.clone_image(&id("second"), &id("clone")).await.unwrap();
    assert_eq!(second, clone);
    let again = house.storage.clone_image(&id("second"), &id("clone")).await.unwrap();
    assert_eq!(again, clone, "asked for twice, made once");
    for name in ["clone", "second"] {
        house.storage.delete_image(&id(name)).await.unwrap();
    }
    assert!(everything_in(&house.path("images")).is_empty());
    house.storage.open(&volume, true).await.unwrap();
}

#[tokio::test]
async fn nothing_is_cloned_from_what_is_not_there_and_nothing_stays_of_the_attempt() {
    let house = House::new().await;
    let refused = house.storage.clone_image(&id("clone"), &id("nobody")).await;
    assert!(matches!(refused, Err(ImageError::NoSuchImage { .. })), "{refused:?}");
    assert!(everything_in(&house.path("images")).is_empty());
    let state = house.storage.image(&id("clone")).await.unwrap();
    assert!(matches!(state, ImageState::Failed { .. }), "{state:?}");
}
