//! Compaction.

use std::{collections::BTreeMap, time::Duration};

use sheaf_store::{Range, Revision, StoreError};

use crate::{Subject, subject::*};

pub async fn reads_and_watches_before_compaction_say_so_with_the_oldest(on: Subject) {
    let mut revisions = Vec::new();
    for value in 0..10 {
        revisions.push(write(&on.store, "a", value.to_string()).await);
    }
    let oldest = revisions[6];
    on.store.compact(oldest).await.unwrap();
    assert_eq!(on.store.compacted().await.unwrap(), oldest);
    assert_eq!(on.other.compacted().await.unwrap(), oldest);
    for requested in [revisions[0], revisions[5]] {
        for store in [&on.store, &on.other] {
            match store.range(Range { prefix: bytes("a"), at: Some(requested), ..Range::default() }).await {
                Err(StoreError::Compacted { requested: asked, oldest: told }) => {
                    assert_eq!((asked, told), (requested, oldest));
                }
                other => panic!("{other:?}"),
            }
            let refused = match store.watch(bytes("a"), requested).await {
                Ok(mut watch) => next(&mut watch).await.unwrap_err(),
                Err(refused) => refused,
            };
            match refused {
                StoreError::Compacted { requested: asked, oldest: told } => {
                    assert_eq!((asked, told), (requested, oldest));
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(pairs(&list(&on.store, "a", None).await), ["a=9"]);
}

pub async fn what_stood_at_the_compacted_revision_stays_readable(on: Subject) {
    write(&on.store, "kept", "1").await;
    write(&on.store, "changed", "1").await;
    write(&on.store, "deleted", "1").await;
    write(&on.store, "deleted later", "1").await;
    write(&on.store, "changed", "2").await;
    let at = on.store.commit(all([delete("deleted")])).await.unwrap();
    on.store.commit(all([delete("deleted later"), put("changed", "3"), put("new", "1")])).await.unwrap();
    let then = list(&on.store, "", Some(at)).await;
    let now = list(&on.store, "", None).await;
    on.store.compact(at).await.unwrap();
    assert_eq!(list(&on.store, "", Some(at)).await, then);
    assert_eq!(list(&on.store, "", None).await.entries, now.entries);
    assert_eq!(pairs(&then), ["changed=2", "deleted later=1", "kept=1"]);
}

pub async fn changes_after_the_compacted_revision_stay_watchable(on: Subject) {
    write(&on.store, "a", "1").await;
    let at = on.store.commit(all([delete("a"), put("b", "1")])).await.unwrap();
    write(&on.store, "b", "2").await;
    on.store.commit(all([delete("b")])).await.unwrap();
    on.store.compact(at).await.unwrap();
    let mut watch = on.store.watch(bytes(""), at).await.unwrap();
    assert_eq!(told(&next(&mut watch).await.unwrap()), ["+b=2"]);
    // The store may count work of its own; the next change of ours is the deletion all the same.
    assert_eq!(told(&next(&mut watch).await.unwrap()), ["-b"]);
}

pub async fn the_future_cannot_be_forgotten(on: Subject) {
    let newest = write(&on.store, "a", "1").await;
    let refused = on.store.compact(Revision(newest.0 + 1)).await;
    assert!(matches!(refused, Err(StoreError::Future { .. })), "{refused:?}");
    assert_eq!(pairs(&list(&on.store, "a", Some(newest)).await), ["a=1"]);
}

pub async fn forgetting_again_is_allowed(on: Subject) {
    let first = write(&on.store, "a", "1").await;
    let second = write(&on.store, "a", "2").await;
    on.store.compact(second).await.unwrap();
    on.store.compact(second).await.unwrap();
    on.store.compact(first).await.unwrap();
    on.store.compact(Revision(0)).await.unwrap();
    assert_eq!(on.store.compacted().await.unwrap(), second, "it never goes back");
}

/// A watch that is being overtaken by compaction either tells everything or says that it cannot.
pub async fn a_compaction_under_way_never_makes_a_watch_miss_a_change(on: Subject) {
    let start = write(&on.store, "start", "0").await;
    let mut watches = Vec::new();
    for _ in 0..4 {
        watches.push((on.other.watch(bytes("k/"), start).await.unwrap(), start));
    }
    let mut expected = BTreeMap::new();
    for round in 0..300u64 {
        // Every key is written and, by the next transaction, deleted.
        let key = format!("k/{}", round / 2 % 3);
        let (change, story) = if round % 2 == 1 {
            (delete(&key), format!("-{key}"))
        } else {
            (put(&key, "v"), format!("+{key}=v"))
        };
        let revision = on.store.commit(all([change, put("k/x", round.to_string())])).await.unwrap();
        expected.insert(revision, vec![story, format!("+k/x={round}")]);
        if round % 10 == 1 {
            on.store.compact(revision).await.unwrap();
        }
    }
    let last = *expected.keys().next_back().unwrap();
    for (mut watch, mut position) in watches {
        while position < last {
            match next(&mut watch).await {
                Ok(changes) => {
                    let (following, story) = expected.range(Revision(position.0 + 1)..).next().unwrap();
                    assert_eq!((changes.revision, &told(&changes)), (*following, story));
                    position = changes.revision;
                }
                Err(StoreError::Compacted { .. }) => break,
                Err(other) => panic!("{other}"),
            }
        }
    }
}

/// The narrow case: the next thing a watch has to tell is a deletion, at the very revision that everything
/// before is forgotten of.
pub async fn a_deletion_at_the_compacted_revision_is_still_told(on: Subject) {
    let before = write(&on.store, "gone", "1").await;
    // Opened in time, but it has not asked for anything yet.
    let mut watch = on.other.watch(bytes(""), before).await.unwrap();
    let at = on.store.commit(all([delete("gone"), put("kept", "1")])).await.unwrap();
    on.store.compact(at).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    match next(&mut watch).await {
        Ok(changes) => {
            assert_eq!((changes.revision, told(&changes)), (at, vec!["-gone".into(), "+kept=1".into()]))
        }
        Err(StoreError::Compacted { .. }) => {}
        Err(other) => panic!("{other}"),
    }
}
