//! Watches: every change, in order, once, a revision at a time.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use sheaf_store::{Change, Revision, Watch, Write};

use crate::{Subject, subject::*};

/// Reads a watch until `last`, checking order as it goes, and answers what it told by revision.
async fn follow(mut watch: Watch, after: Revision, last: Revision) -> BTreeMap<Revision, Vec<String>> {
    let mut seen = BTreeMap::new();
    let mut position = after;
    while position < last {
        let changes = next(&mut watch).await.unwrap();
        assert!(changes.revision > position, "revision {} came after {position}", changes.revision);
        assert!(!changes.changes.is_empty());
        position = changes.revision;
        for change in &changes.changes {
            if let Change::Put(entry) = change {
                assert_eq!(entry.modified, changes.revision);
            }
        }
        seen.insert(changes.revision, told(&changes));
    }
    seen
}

pub async fn watches_miss_nothing_and_repeat_nothing_under_concurrent_writers(on: Subject) {
    let start = write(&on.store, "start", "0").await;
    let mut early = Vec::new();
    for watcher in 0..4 {
        let store = if watcher % 2 == 0 { &on.store } else { &on.other };
        early.push(store.watch(bytes("w/"), start).await.unwrap());
    }
    let writers = (0..8).map(|writer| {
        let store = Arc::clone(if writer % 2 == 0 { &on.store } else { &on.other });
        tokio::spawn(async move {
            let mut written = Vec::new();
            for round in 0..40 {
                let (key, value) = (format!("w/{writer}/{}", round % 3), round.to_string());
                let (write, story) = if round % 7 == 6 {
                    (delete(&key), format!("-{key}"))
                } else {
                    (put(&key, &value), format!("+{key}={value}"))
                };
                written.push((store.commit(all([write])).await.unwrap(), vec![story]));
            }
            written
        })
    });
    let mut expected = BTreeMap::new();
    for written in futures::future::join_all(writers).await {
        for (revision, story) in written.unwrap() {
            assert_eq!(expected.insert(revision, story), None, "two writes share revision {revision}");
        }
    }
    assert_eq!(expected.len(), 8 * 40);
    let last = *expected.keys().next_back().unwrap();
    early.push(on.store.watch(bytes("w/"), start).await.unwrap());
    for watch in early {
        assert_eq!(follow(watch, start, last).await, expected);
    }
}

pub async fn a_watch_resumed_at_a_revision_misses_nothing(on: Subject) {
    let start = write(&on.store, "start", "0").await;
    let writer = tokio::spawn({
        let store = Arc::clone(&on.store);
        async move {
            let mut written = BTreeMap::new();
            for round in 0..200 {
                let revision = write(&store, format!("k/{}", round % 5), round.to_string()).await;
                written.insert(revision, vec![format!("+k/{}={round}", round % 5)]);
                tokio::task::yield_now().await;
            }
            written
        }
    });
    // A client that loses its connection after every few events and comes back where it was.
    let (mut seen, mut position) = (BTreeMap::new(), start);
    while seen.len() < 200 {
        let mut watch = on.other.watch(bytes("k/"), position).await.unwrap();
        for _ in 0..(7.min(200 - seen.len())) {
            let changes = next(&mut watch).await.unwrap();
            assert!(changes.revision > position);
            position = changes.revision;
            seen.insert(position, told(&changes));
        }
    }
    assert_eq!(seen, writer.await.unwrap());
}

pub async fn a_watch_delivers_a_revision_whole(on: Subject) {
    let start = write(&on.store, "w/old", "0").await;
    let mut waiting = on.store.watch(bytes("w/"), start).await.unwrap();
    let large = |index: usize| Write::Put {
        key: bytes(format!("w/{index}")),
        value: Bytes::from(vec![b'x'; 700 << 10]),
    };
    // Sizes that do not fit a whole number of revisions into one message.
    let mut writes: Vec<Write> = (0..5).map(large).collect();
    writes.extend((0..50).map(|index| put(format!("w/small/{index}"), "s")));
    writes.push(delete("w/old"));
    let mut revisions = Vec::new();
    for _ in 0..4 {
        revisions.push(on.store.commit(all(writes.clone())).await.unwrap());
        write(&on.store, "w/old", "again").await;
    }
    let late = on.other.watch(bytes("w/"), start).await.unwrap();
    for watch in [&mut waiting, &mut { late }] {
        for revision in &revisions {
            let changes = next(watch).await.unwrap();
            assert_eq!((changes.revision, changes.changes.len()), (*revision, 56));
            let written: Vec<&Bytes> = writes.iter().map(Write::key).collect();
            assert_eq!(
                changes.changes.iter().map(Change::key).collect::<Vec<_>>(),
                written,
                "in the order written"
            );
            assert_eq!(told(&next(watch).await.unwrap()), ["+w/old=again"]);
        }
    }
}

pub async fn a_watch_sees_only_its_prefix(on: Subject) {
    let start = write(&on.store, "start", "0").await;
    let mut watch = on.store.watch(bytes("a/"), start).await.unwrap();
    let mut whole = on.store.watch(bytes(""), start).await.unwrap();
    on.store.commit(all([put("a", "no"), put("a0", "no"), put("b/1", "no")])).await.unwrap();
    let mixed = on.store.commit(all([put("a/1", "yes"), put("b/1", "no"), put("a/2", "yes")])).await.unwrap();
    on.store.commit(all([delete("b/1")])).await.unwrap();
    let gone = on.store.commit(all([delete("a/1"), delete("a/2"), delete("a0")])).await.unwrap();

    let first = next(&mut watch).await.unwrap();
    assert_eq!((first.revision, told(&first)), (mixed, vec!["+a/1=yes".into(), "+a/2=yes".into()]));
    let second = next(&mut watch).await.unwrap();
    assert_eq!((second.revision, told(&second)), (gone, vec!["-a/1".into(), "-a/2".into()]));

    let mut revisions = Vec::new();
    for _ in 0..4 {
        revisions.push(next(&mut whole).await.unwrap().revision.0);
    }
    assert_eq!(revisions, (start.0 + 1..=start.0 + 4).collect::<Vec<_>>(), "every revision has a change");
}

pub async fn a_watch_from_the_future_delivers_nothing_before_it(on: Subject) {
    let now = write(&on.store, "a", "0").await;
    let mut watch = on.store.watch(bytes("a"), Revision(now.0 + 2)).await.unwrap();
    for value in ["1", "2", "3", "4"] {
        write(&on.store, "a", value).await;
    }
    assert_eq!(told(&next(&mut watch).await.unwrap()), ["+a=3"]);
    assert_eq!(told(&next(&mut watch).await.unwrap()), ["+a=4"]);
}

/// More than is kept in memory, so that the past comes from the disk and joins the present.
pub async fn a_watch_from_the_past_replays_history(on: Subject) {
    let start = write(&on.store, "start", "0").await;
    let mut expected = BTreeMap::new();
    for chunk in 0..30 {
        let writes = (0..100).map(|index| {
            let (store, value) = (Arc::clone(&on.store), format!("{chunk}.{index}"));
            async move {
                let key = format!("k/{index}");
                (write(&store, &key, &value).await, vec![format!("+{key}={value}")])
            }
        });
        expected.extend(futures::future::join_all(writes).await);
    }
    let mut watch = on.other.watch(bytes("k/"), start).await.unwrap();
    let first = next(&mut watch).await.unwrap();
    assert_eq!(expected.get(&first.revision), Some(&told(&first)));
    // While it is somewhere in the past, the present goes on.
    let revision = write(&on.store, "k/now", "now").await;
    expected.insert(revision, vec!["+k/now=now".into()]);
    let mut seen = follow(watch, first.revision, revision).await;
    seen.insert(first.revision, told(&first));
    assert_eq!(seen, expected);
}

/// So that whoever mirrors the store can tell that it has caught up with a revision it was told.
pub async fn a_watch_of_everything_reaches_every_revision(on: Subject) {
    let start = write(&on.store, "a", "0").await;
    let mut watch = on.store.watch(bytes(""), start).await.unwrap();
    write(&on.store, "a", "1").await;
    // The store may need a revision of its own for this.
    on.other.compact(start).await.unwrap();
    let newest = on.store.revision().await.unwrap();
    for revision in start.0 + 1..=newest.0 {
        assert_eq!(next(&mut watch).await.unwrap().revision, Revision(revision));
    }
}

/// How a reader that wants all there is begins, also on a store that is new.
pub async fn a_watch_from_the_oldest_revision_reaches_the_newest(on: Subject) {
    let oldest = on.store.compacted().await.unwrap();
    let mut watch = on.store.watch(bytes(""), oldest).await.unwrap();
    let newest = write(&on.other, "a", "1").await;
    while next(&mut watch).await.unwrap().revision < newest {}
}
