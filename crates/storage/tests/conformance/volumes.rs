//! What every backend promises of volumes.

use sheaf_storage::{MOST_BYTES, Origin, VolumeError};

use crate::subject::{MIB, Subject, volume};

pub async fn an_empty_volume_has_its_size_and_reads_as_zeros(on: Subject) {
    let id = volume("a");
    let made = on.backend.create(&id, 4 * MIB + 1, &Origin::Empty).await.unwrap();
    assert_eq!(made.virtual_size, 4 * MIB + 4096, "whole sectors of any disk");
    assert!(made.used_bytes < MIB, "{made:?}");
    on.reads(&id, &[(0, 0, 4 * MIB)]).await;
    assert_eq!(on.backend.volume(&id).await.unwrap(), Some(made));
}

pub async fn a_volume_of_an_image_begins_as_the_image_and_never_changes_it(on: Subject) {
    let image = on.image("debian", 7).await;
    let one = on.volume_of("one", Origin::Image(image.clone())).await;
    on.write(&one, 8, 0, 65536).await;
    on.reads(&one, &[(8, 0, 65536), (7, 65536, MIB - 65536), (0, MIB, MIB)]).await;
    let two = on.volume_of("two", Origin::Image(image)).await;
    on.reads(&two, &[(7, 0, MIB), (0, MIB, 3 * MIB)]).await;
}

pub async fn what_was_written_is_there_when_it_is_opened_again(on: Subject) {
    let id = on.empty_volume("a", 4 * MIB).await;
    on.write(&id, 5, MIB, 65536).await;
    let on = on.reopened().await;
    on.reads(&id, &[(0, 0, MIB), (5, MIB, 65536), (0, MIB + 65536, MIB)]).await;
}

pub async fn creating_again_changes_nothing_but_a_size_that_was_smaller(on: Subject) {
    let id = on.empty_volume("a", 4 * MIB).await;
    on.write(&id, 5, 0, MIB).await;
    for (asked, has) in [(4, 4), (2, 4), (8, 8)] {
        let made = on.backend.create(&id, asked * MIB, &Origin::Empty).await.unwrap();
        assert_eq!(made.virtual_size, has * MIB);
    }
    on.reads(&id, &[(5, 0, MIB), (0, MIB, 7 * MIB)]).await;
    assert_eq!(on.backend.volumes().await.unwrap(), [id]);
}

pub async fn a_volume_grows_and_never_shrinks(on: Subject) {
    let image = on.image("debian", 7).await;
    for id in [on.empty_volume("empty", 4 * MIB).await, on.volume_of("copy", Origin::Image(image)).await] {
        on.write(&id, 3, 2 * MIB, MIB).await;
        assert_eq!(on.backend.grow(&id, 16 * MIB).await.unwrap().virtual_size, 16 * MIB);
        assert_eq!(on.backend.grow(&id, MIB).await.unwrap().virtual_size, 16 * MIB);
        on.reads(&id, &[(3, 2 * MIB, MIB), (0, 4 * MIB, 12 * MIB)]).await;
        on.write(&id, 4, 15 * MIB, MIB).await;
    }
    let on = on.reopened().await;
    on.reads(&volume("copy"), &[(7, 0, MIB), (4, 15 * MIB, MIB)]).await;
}

pub async fn a_size_that_makes_no_sense_is_refused_and_leaves_nothing(on: Subject) {
    let image = on.image("debian", 7).await;
    let id = volume("a");
    for bytes in [0, MOST_BYTES + 1, u64::MAX] {
        let refused = on.backend.create(&id, bytes, &Origin::Empty).await;
        assert!(matches!(refused, Err(VolumeError::BadSize { .. })), "{refused:?}");
    }
    let refused = on.backend.create(&id, 4096, &Origin::Image(image)).await;
    assert!(matches!(refused, Err(VolumeError::SmallerThanSource { .. })), "{refused:?}");
    assert_eq!(on.backend.volumes().await.unwrap(), []);
}

pub async fn a_volume_in_use_is_neither_grown_nor_deleted(on: Subject) {
    let id = on.empty_volume("a", MIB).await;
    let mut guest = on.guest_on(&id).await;
    guest.writes(1, 0, 4096);
    let refused = on.backend.grow(&id, 2 * MIB).await;
    assert!(matches!(refused, Err(VolumeError::InUse { .. })), "{refused:?}");
    let refused = on.backend.delete(&id).await;
    assert!(matches!(refused, Err(VolumeError::InUse { .. })), "{refused:?}");
    // What asks for no more than there is, is answered.
    assert_eq!(on.backend.create(&id, MIB, &Origin::Empty).await.unwrap().virtual_size, MIB);
    // Its own machine grows it.
    guest.grows(2 * MIB);
    guest.writes(2, MIB, 4096);
    assert_eq!(on.backend.volume(&id).await.unwrap().unwrap().virtual_size, 2 * MIB);
    drop(guest);
    on.backend.grow(&id, 4 * MIB).await.unwrap();
    on.reads(&id, &[(1, 0, 4096), (2, MIB, 4096)]).await;
    on.backend.delete(&id).await.unwrap();
}

pub async fn a_volume_may_be_opened_for_reading_only(on: Subject) {
    let image = on.image("debian", 7).await;
    let id = on.volume_of("a", Origin::Image(image)).await;
    let layers = on.backend.open(&id, true).await.unwrap();
    assert!(layers.iter().all(|layer| layer.read_only));
    for layer in &layers {
        let flags = rustix::fs::fcntl_getfl(&layer.file).unwrap();
        assert_eq!(flags & rustix::fs::OFlags::RWMODE, rustix::fs::OFlags::RDONLY, "{flags:?}");
    }
    let layers = on.backend.open(&id, false).await.unwrap();
    let (top, below) = layers.split_last().unwrap();
    assert!(!top.read_only && below.iter().all(|layer| layer.read_only));
}

pub async fn a_deleted_volume_is_gone_and_deleting_it_again_is_fine(on: Subject) {
    let id = on.empty_volume("a", MIB).await;
    for _ in 0..2 {
        on.backend.delete(&id).await.unwrap();
        assert_eq!(on.backend.volume(&id).await.unwrap(), None);
    }
    let on = on.reopened().await;
    assert_eq!(on.backend.volumes().await.unwrap(), []);
    // One of the same name is another one.
    on.empty_volume("a", MIB).await;
    on.reads(&id, &[(0, 0, MIB)]).await;
}

pub async fn what_is_not_there_is_said_not_to_be(on: Subject) {
    let id = volume("absent");
    assert_eq!(on.backend.volume(&id).await.unwrap(), None);
    let refused = on.backend.open(&id, true).await.unwrap_err();
    assert!(matches!(refused, VolumeError::NoSuchVolume { .. }), "{refused:?}");
    let refused = on.backend.grow(&id, MIB).await;
    assert!(matches!(refused, Err(VolumeError::NoSuchVolume { .. })), "{refused:?}");
    let refused = on.backend.create(&id, MIB, &Origin::Image("absent".parse().unwrap())).await;
    assert!(matches!(refused, Err(VolumeError::NoSuchImage { .. })), "{refused:?}");
    let refused = on.backend.create(&id, MIB, &Origin::Snapshot("absent".parse().unwrap())).await;
    assert!(matches!(refused, Err(VolumeError::NoSuchSnapshot { .. })), "{refused:?}");
    assert_eq!(on.backend.volumes().await.unwrap(), []);
}

pub async fn space_is_told(on: Subject) {
    let space = on.backend.space().await.unwrap();
    assert!(0 < space.free_bytes && space.free_bytes <= space.total_bytes, "{space:?}");
}
