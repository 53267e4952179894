//! What every backend promises of layers, if it has any.

use sheaf_storage::{Holder, Origin, VolumeError};

use crate::{
    guest,
    subject::{MIB, Subject},
};

async fn number_of_layers(on: &Subject, id: &sheaf_storage::VolumeId) -> usize {
    on.backend.volume(id).await.unwrap().unwrap().layers.len()
}

pub async fn layers_that_nobody_needs_apart_become_one_while_the_volume_is_in_use(on: Subject) {
    let id = on.empty_volume("a", 4 * MIB).await;
    let mut guest = on.guest_on(&id).await;
    for number in 1..=3 {
        guest.writes(number, u64::from(number) * 65536, MIB);
        let taken = on.snapshot(&id, &format!("s{number}"), Some(&mut guest)).await;
        on.backend.delete_snapshot(&taken).await.unwrap();
    }
    guest.writes(9, 3 * MIB, 65536);
    let wanted = on.backend.wanted_merges().await.unwrap();
    assert!(wanted.iter().all(|merge| merge.holders == [Holder::Volume(id.clone())]), "{wanted:?}");
    on.merge_all(&id, Some(&mut guest)).await;
    guest.reads(1, 65536, 65536);
    guest.reads(3, 3 * 65536, MIB);
    guest.reads(9, 3 * MIB, 65536);
    assert!(number_of_layers(&on, &id).await <= 2);
    drop(guest);
    let on = on.reopened().await;
    on.reads(&id, &[(0, 0, 65536), (1, 65536, 65536), (2, 131_072, 65536), (3, 196_608, MIB)]).await;
    on.reads(&id, &[(9, 3 * MIB, 65536)]).await;
}

pub async fn a_volume_that_is_snapshotted_again_and_again_keeps_few_layers(on: Subject) {
    let id = on.empty_volume("a", 4 * MIB).await;
    let mut kept = std::collections::VecDeque::new();
    for number in 0..12u8 {
        on.write(&id, number + 1, u64::from(number) * 65536, MIB).await;
        kept.push_back((number, on.snapshot(&id, &format!("s{number}"), None).await));
        if kept.len() > 3 {
            let (_, oldest) = kept.pop_front().unwrap();
            on.backend.delete_snapshot(&oldest).await.unwrap();
        }
        on.merge_all(&id, None).await;
        assert!(number_of_layers(&on, &id).await <= 5, "after {number}");
        for (number, taken) in &kept {
            on.snapshot_reads(taken, &[(number + 1, u64::from(*number) * 65536, MIB)]).await;
        }
    }
    on.reads(&id, &[(1, 0, 65536), (2, 65536, 65536), (12, 11 * 65536, MIB)]).await;
}

pub async fn what_something_else_needs_is_not_merged(on: Subject) {
    let image = on.image("debian", 7).await;
    let id = on.volume_of("a", Origin::Image(image.clone())).await;
    on.write(&id, 1, 0, 65536).await;
    let (one, two) = (on.snapshot(&id, "s1", None).await, on.snapshot(&id, "s2", None).await);
    let copy = on.volume_of("copy", Origin::Snapshot(one.clone())).await;
    assert_eq!(on.backend.wanted_merges().await.unwrap(), [], "both snapshots are there");
    on.backend.delete_snapshot(&one).await.unwrap();
    assert_eq!(on.backend.wanted_merges().await.unwrap(), [], "the copy begins where the snapshot ended");
    on.backend.delete(&copy).await.unwrap();
    let wanted = on.backend.wanted_merges().await.unwrap();
    for merge in &wanted {
        assert!(merge.lower > 0, "an image is never written to: {merge:?}");
        assert_eq!(merge.holders, [Holder::Volume(id.clone()), Holder::Snapshot(two.clone())]);
        // One that came in between keeps them apart again.
        let late = on.volume_of("late", Origin::Snapshot(two.clone())).await;
        guest::merge(on.backend.open_merge(merge).await.unwrap().layers, merge);
        on.backend.finish_merge(merge).await.unwrap();
        let refused = on.backend.finish_merge(merge).await;
        assert!(matches!(refused, Err(VolumeError::NotMergeable { .. })), "{refused:?}");
        on.reads(&late, &[(1, 0, 65536), (7, 65536, 65536)]).await;
        on.backend.delete(&late).await.unwrap();
    }
    on.reads(&id, &[(1, 0, 65536), (7, 65536, 65536)]).await;
    on.snapshot_reads(&two, &[(1, 0, 65536), (7, 65536, 65536)]).await;
    on.volume_of("fresh", Origin::Image(image)).await;
    on.reads(&"fresh".parse().unwrap(), &[(7, 0, MIB)]).await;
}
