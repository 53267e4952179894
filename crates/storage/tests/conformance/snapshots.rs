//! What every backend promises of snapshots, and of volumes made of them.

use sheaf_storage::{Begun, Origin, VolumeError};

use crate::subject::{MIB, Subject, snapshot, volume};

pub async fn a_snapshot_never_changes(on: Subject) {
    let id = on.empty_volume("a", 4 * MIB).await;
    on.write(&id, 1, 0, MIB).await;
    let taken = on.snapshot(&id, "s", None).await;
    on.write(&id, 2, 0, 2 * MIB).await;
    on.snapshot_reads(&taken, &[(1, 0, MIB), (0, MIB, 3 * MIB)]).await;
    let on = on.reopened().await;
    on.snapshot_reads(&taken, &[(1, 0, MIB), (0, MIB, 3 * MIB)]).await;
    on.reads(&id, &[(2, 0, 2 * MIB), (0, 2 * MIB, MIB)]).await;
    let found = on.found(&taken).await.unwrap();
    assert_eq!((found.volume, found.virtual_size), (id, 4 * MIB));
    assert_eq!(on.backend.snapshots().await.unwrap(), [taken]);
}

pub async fn a_snapshot_of_a_volume_in_use_is_what_it_was_at_that_instant(on: Subject) {
    let image = on.image("debian", 9).await;
    for (number, id) in
        [on.empty_volume("empty", 4 * MIB).await, on.volume_of("copy", Origin::Image(image)).await]
            .into_iter()
            .enumerate()
    {
        let mut guest = on.guest_on(&id).await;
        guest.writes(1, MIB, MIB);
        let taken = on.snapshot(&id, &format!("s{number}"), Some(&mut guest)).await;
        guest.writes(2, MIB, 65536);
        guest.reads(2, MIB, 65536);
        guest.reads(1, MIB + 65536, MIB - 65536);
        on.snapshot_reads(&taken, &[(1, MIB, MIB)]).await;
        let refused = on.backend.delete(&id).await;
        assert!(matches!(refused, Err(VolumeError::InUse { .. })), "it is still in use: {refused:?}");
        drop(guest);
        on.reads(&id, &[(2, MIB, 65536), (1, MIB + 65536, MIB - 65536)]).await;
    }
}

pub async fn snapshots_of_one_volume_are_each_their_own_instant(on: Subject) {
    let id = on.empty_volume("a", 4 * MIB).await;
    let mut guest = on.guest_on(&id).await;
    let mut taken = Vec::new();
    for number in 1..=5 {
        guest.writes(number, 0, MIB);
        guest.writes(number, u64::from(number) * 65536 + MIB, 65536);
        taken.push(on.snapshot(&id, &format!("s{number}"), Some(&mut guest)).await);
    }
    guest.writes(99, 0, 4 * MIB);
    for (number, taken) in (1..).zip(&taken) {
        let above = u64::from(number + 1) * 65536 + MIB;
        let expected = [(number, 0, MIB), (number, above - 65536, 65536), (0, above, 4 * MIB - above)];
        on.snapshot_reads(taken, &expected).await;
    }
}

pub async fn a_volume_of_a_snapshot_begins_as_it_was_and_is_its_own(on: Subject) {
    let id = on.empty_volume("a", 4 * MIB).await;
    on.write(&id, 1, 0, MIB).await;
    let taken = on.snapshot(&id, "s", None).await;
    let copy = on.volume_of("copy", Origin::Snapshot(taken.clone())).await;
    let other = on.volume_of("other", Origin::Snapshot(taken.clone())).await;
    // All three are used at once.
    let mut guests = [on.guest_on(&id).await, on.guest_on(&copy).await, on.guest_on(&other).await];
    for (number, guest) in (2..).zip(&mut guests) {
        guest.writes(number, 0, 65536);
    }
    for (number, guest) in (2..).zip(&mut guests) {
        guest.reads(number, 0, 65536);
        guest.reads(1, 65536, MIB - 65536);
    }
    on.snapshot_reads(&taken, &[(1, 0, MIB)]).await;
}

pub async fn source_and_copies_go_in_any_order(on: Subject) {
    for (number, order) in ["vsc", "vcs", "svc", "scv", "csv", "cvs"].into_iter().enumerate() {
        let id = on.empty_volume(&format!("a{number}"), 4 * MIB).await;
        on.write(&id, 1, 0, MIB).await;
        let taken = on.snapshot(&id, &format!("s{number}"), None).await;
        let copy = on.volume_of(&format!("c{number}"), Origin::Snapshot(taken.clone())).await;
        let mut left = order.to_owned();
        for gone in order.chars() {
            for there in left.chars() {
                match there {
                    'v' => on.reads(&id, &[(1, 0, MIB)]).await,
                    's' => on.snapshot_reads(&taken, &[(1, 0, MIB)]).await,
                    _ => on.reads(&copy, &[(1, 0, MIB)]).await,
                }
            }
            match gone {
                'v' => on.backend.delete(&id).await.unwrap(),
                's' => on.backend.delete_snapshot(&taken).await.unwrap(),
                _ => on.backend.delete(&copy).await.unwrap(),
            }
            left.retain(|there| there != gone);
        }
    }
    let on = on.reopened().await;
    assert_eq!(on.backend.volumes().await.unwrap(), []);
    assert_eq!(on.backend.snapshots().await.unwrap(), []);
}

pub async fn taking_it_twice_takes_it_once(on: Subject) {
    let id = on.empty_volume("a", 4 * MIB).await;
    let mut guest = on.guest_on(&id).await;
    guest.writes(1, 0, MIB);
    let taken = snapshot("s");
    // Begun by one who died, and again.
    on.backend.begin_snapshot(&id, &taken).await.unwrap();
    let on = on.reopened().await;
    if let Begun::Switch(layer) = on.backend.begin_snapshot(&id, &taken).await.unwrap() {
        guest.switches_to(layer);
    }
    let on = on.reopened().await;
    let first = on.backend.finish_snapshot(&id, &taken).await.unwrap();
    guest.writes(2, 0, MIB);
    assert_eq!(on.backend.finish_snapshot(&id, &taken).await.unwrap().virtual_size, first.virtual_size);
    let again = on.backend.begin_snapshot(&id, &taken).await.unwrap();
    assert!(matches!(again, Begun::Already(_)), "{again:?}");
    on.snapshot_reads(&taken, &[(1, 0, MIB)]).await;
}

pub async fn one_that_is_begun_again_is_of_a_later_instant(on: Subject) {
    let id = on.empty_volume("a", 4 * MIB).await;
    let mut guest = on.guest_on(&id).await;
    guest.writes(1, 0, MIB);
    let taken = snapshot("s");
    for pattern in [2, 3] {
        // Switched by one who died, while other disks of the same machine may not have been begun.
        if let Begun::Switch(layer) = on.backend.begin_snapshot(&id, &taken).await.unwrap() {
            guest.switches_to(layer);
        }
        guest.writes(pattern, 0, MIB);
    }
    let on = on.reopened().await;
    on.snapshot(&id, "s", Some(&mut guest)).await;
    guest.writes(4, 0, MIB);
    on.snapshot_reads(&taken, &[(3, 0, MIB)]).await;
    on.merge_all(&id, Some(&mut guest)).await;
    on.snapshot_reads(&taken, &[(3, 0, MIB)]).await;
    guest.reads(4, 0, MIB);
    drop(guest);
    on.reads(&id, &[(4, 0, MIB)]).await;

    // Started again on what was begun, and off again: what it wrote is in it.
    on.backend.begin_snapshot(&id, &snapshot("t")).await.unwrap();
    on.write(&id, 5, 0, MIB).await;
    let taken = on.snapshot(&id, "t", None).await;
    on.snapshot_reads(&taken, &[(5, 0, MIB)]).await;
}

/// As when a node dies with one disk of a backup finished, and another snapshot of the other disk comes first.
pub async fn one_that_is_finished_late_is_of_the_instant_it_was_switched_at(on: Subject) {
    let id = on.empty_volume("a", 4 * MIB).await;
    let mut guest = on.guest_on(&id).await;
    guest.writes(1, 0, MIB);
    let late = snapshot("late");
    let Begun::Switch(layer) = on.backend.begin_snapshot(&id, &late).await.unwrap() else {
        return; // Without a switch the instant is when it is finished.
    };
    let number = layer.number;
    guest.switches_to(layer);
    guest.writes(2, 0, MIB);
    let on = on.reopened().await;
    assert_eq!(on.backend.begun_layer(&id, &late).await.unwrap(), Some(number));
    assert_eq!(on.backend.begun_layer(&id, &snapshot("other")).await.unwrap(), None);
    let between = on.snapshot(&id, "between", Some(&mut guest)).await;
    guest.writes(3, 0, MIB);
    on.snapshot_reads(&between, &[(2, 0, MIB)]).await;
    on.backend.begin_snapshot(&id, &snapshot("abandoned")).await.unwrap();
    on.backend.delete_snapshot(&between).await.unwrap();
    on.merge_all(&id, Some(&mut guest)).await;
    let on = on.reopened().await;
    on.backend.finish_snapshot(&id, &late).await.unwrap();
    assert_eq!(on.backend.begun_layer(&id, &late).await.unwrap(), None);
    on.snapshot_reads(&late, &[(1, 0, MIB)]).await;
    // The machine was not switched for the third one: nobody takes what it writes to for unused.
    let refused = on.backend.delete(&id).await;
    assert!(matches!(refused, Err(VolumeError::InUse { .. })), "{refused:?}");
    guest.writes(4, MIB, MIB);
    drop(guest);
    on.merge_all(&id, None).await;
    on.reads(&id, &[(3, 0, MIB), (4, MIB, MIB)]).await;
    on.snapshot_reads(&late, &[(1, 0, MIB), (0, MIB, MIB)]).await;
}

pub async fn one_that_was_not_begun_cannot_be_finished(on: Subject) {
    let id = on.empty_volume("a", MIB).await;
    let refused = on.backend.finish_snapshot(&id, &snapshot("s")).await;
    assert!(matches!(refused, Err(VolumeError::NotBegun { .. })), "{refused:?}");
    let refused = on.backend.finish_snapshot(&volume("absent"), &snapshot("s")).await;
    assert!(matches!(refused, Err(VolumeError::NoSuchVolume { .. })), "{refused:?}");
    let refused = on.backend.begin_snapshot(&volume("absent"), &snapshot("s")).await;
    assert!(matches!(refused, Err(VolumeError::NoSuchVolume { .. })), "{refused:?}");
    let refused = on.backend.open_snapshot(&snapshot("s")).await.unwrap_err();
    assert!(matches!(refused, VolumeError::NoSuchSnapshot { .. }), "{refused:?}");
    assert_eq!(on.backend.snapshots().await.unwrap(), []);
}

pub async fn one_that_was_begun_and_never_finished_costs_nothing(on: Subject) {
    let id = on.empty_volume("a", 4 * MIB).await;
    let mut guest = on.guest_on(&id).await;
    guest.writes(1, 0, MIB);
    on.backend.begin_snapshot(&id, &snapshot("abandoned")).await.unwrap();
    // Its machine was never told, and goes on as it was; nobody takes the volume for unused.
    guest.writes(2, MIB, MIB);
    guest.grows(8 * MIB);
    let refused = on.backend.delete(&id).await;
    assert!(matches!(refused, Err(VolumeError::InUse { .. })), "{refused:?}");
    assert_eq!(on.found(&snapshot("abandoned")).await, None);
    // Another one beside it.
    let taken = on.snapshot(&id, "s", Some(&mut guest)).await;
    guest.writes(3, 0, MIB);
    drop(guest);
    on.backend.delete_snapshot(&snapshot("abandoned")).await.unwrap();
    let refused = on.backend.finish_snapshot(&id, &snapshot("abandoned")).await;
    assert!(matches!(refused, Err(VolumeError::NotBegun { .. })), "{refused:?}");
    let on = on.reopened().await;
    on.reads(&id, &[(3, 0, MIB), (2, MIB, MIB), (0, 2 * MIB, 6 * MIB)]).await;
    on.snapshot_reads(&taken, &[(1, 0, MIB), (2, MIB, MIB), (0, 2 * MIB, 6 * MIB)]).await;
    // Begun, and its machine ended before it was told: nothing of what it wrote or grew is lost.
    let mut guest = on.guest_on(&id).await;
    on.backend.begin_snapshot(&id, &snapshot("late")).await.unwrap();
    guest.writes(4, 0, MIB);
    guest.grows(12 * MIB);
    drop(guest);
    let mut guest = on.guest_on(&id).await;
    guest.reads(4, 0, MIB);
    guest.writes(5, 11 * MIB, MIB);
    drop(guest);
    on.backend.finish_snapshot(&id, &snapshot("late")).await.unwrap();
    on.backend.delete_snapshot(&snapshot("late")).await.unwrap();
    on.backend.delete(&id).await.unwrap();
}

pub async fn a_snapshot_of_another_volume_is_not_taken_for_this_ones(on: Subject) {
    let (one, two) = (on.empty_volume("one", MIB).await, on.empty_volume("two", MIB).await);
    let taken = on.snapshot(&one, "s", None).await;
    let refused = on.backend.begin_snapshot(&two, &taken).await;
    assert!(matches!(refused, Err(VolumeError::AnotherVolume { .. })), "{refused:?}");
    let refused = on.backend.finish_snapshot(&two, &taken).await;
    assert!(matches!(refused, Err(VolumeError::AnotherVolume { .. })), "{refused:?}");
}

pub async fn a_copy_that_could_not_hold_it_is_refused_and_a_larger_one_is_zeros_above(on: Subject) {
    let id = on.empty_volume("a", 4 * MIB).await;
    on.write(&id, 1, 0, 4 * MIB).await;
    let taken = on.snapshot(&id, "s", None).await;
    let copy = volume("copy");
    let refused = on.backend.create(&copy, 2 * MIB, &Origin::Snapshot(taken.clone())).await;
    assert!(matches!(refused, Err(VolumeError::SmallerThanSource { .. })), "{refused:?}");
    assert_eq!(on.backend.volume(&copy).await.unwrap(), None);
    on.backend.create(&copy, 8 * MIB, &Origin::Snapshot(taken)).await.unwrap();
    on.reads(&copy, &[(1, 0, 4 * MIB), (0, 4 * MIB, 4 * MIB)]).await;
}

pub async fn a_volume_that_grew_has_larger_snapshots_from_then_on(on: Subject) {
    let id = on.empty_volume("a", MIB).await;
    let small = on.snapshot(&id, "small", None).await;
    let mut guest = on.guest_on(&id).await;
    guest.grows(2 * MIB);
    guest.writes(1, MIB, MIB);
    let large = on.snapshot(&id, "large", Some(&mut guest)).await;
    assert_eq!(on.found(&small).await.unwrap().virtual_size, MIB);
    assert_eq!(on.found(&large).await.unwrap().virtual_size, 2 * MIB);
    on.snapshot_reads(&large, &[(0, 0, MIB), (1, MIB, MIB)]).await;
    drop(guest);
    assert_eq!(on.backend.volume(&id).await.unwrap().unwrap().virtual_size, 2 * MIB);
}

pub async fn deleting_any_snapshot_of_many_leaves_the_others_as_they_were(on: Subject) {
    for gone in 1..=4u8 {
        let id = on.empty_volume(&format!("a{gone}"), 4 * MIB).await;
        let mut guest = on.guest_on(&id).await;
        let mut taken = Vec::new();
        for number in 1..=4u8 {
            guest.writes(number, u64::from(number - 1) * MIB / 2, MIB);
            let name = format!("s{gone}-{number}");
            taken.push((number, on.snapshot(&id, &name, Some(&mut guest)).await));
        }
        let (_, deleted) = taken.remove(usize::from(gone) - 1);
        on.backend.delete_snapshot(&deleted).await.unwrap();
        on.backend.delete_snapshot(&deleted).await.unwrap();
        assert_eq!(on.found(&deleted).await, None);
        on.merge_all(&id, Some(&mut guest)).await;
        for (number, taken) in &taken {
            let last = u64::from(*number - 1) * MIB / 2;
            let above = last + MIB;
            let mut expected = vec![(*number, last, MIB), (0, above, 4 * MIB - above)];
            expected.extend((1..*number).map(|earlier| (earlier, u64::from(earlier - 1) * MIB / 2, MIB / 2)));
            on.snapshot_reads(taken, &expected).await;
        }
        guest.reads(4, 3 * MIB / 2, MIB);
        guest.reads(1, 0, MIB / 2);
    }
}
