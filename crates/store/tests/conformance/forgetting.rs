//! Compaction.

use std::{collections::BTreeMap, sync::Arc};

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
        let key = format!("k/{}", round % 3);
        let (change, story) = if round % 2 == 1 {
            (delete(&key), format!("-{key}"))
        } else {
            (put(&key, "v"), format!("+{key}=v"))
        };
        // A deletion of what is not there is no change, so put it there along with another key.
        let revision = on.store.commit(all([change, put("k/x", round.to_string())])).await.unwrap();
        expected.insert(revision, (story, format!("+k/x={round}")));
        if round % 10 == 0 {
            let store = Arc::clone(&on.store);
            store.compact(revision).await.unwrap();
        }
    }
    let last = *expected.keys().next_back().unwrap();
    for (mut watch, mut position) in watches {
        while position < last {
            match next(&mut watch).await {
                Ok(changes) => {
                    let (following, (story, always)) =
                        expected.range(Revision(position.0 + 1)..).next().expect("something after the last");
                    assert_eq!(changes.revision, *following, "a revision was passed over");
                    let told = told(&changes);
                    assert!(told.contains(always), "{told:?}");
                    // Deleting what is absent is the only change that may be missing.
                    assert!(told.contains(story) || story.starts_with('-'), "{told:?} lacks {story}");
                    position = changes.revision;
                }
                Err(StoreError::Compacted { .. }) => break,
                Err(other) => panic!("{other}"),
            }
        }
    }
}
