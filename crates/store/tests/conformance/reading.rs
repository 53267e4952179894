//! Reads at now and at a revision.

use std::sync::Arc;

use bytes::Bytes;
use sheaf_store::{Range, Revision, Store, StoreError, Write};

use crate::{Subject, subject::*};

pub async fn a_prefix_read_at_a_revision_shows_what_was_then(on: Subject) {
    let mut history = Vec::new();
    for step in 0..20 {
        let key = format!("a/{}", step % 4);
        let change = if step % 5 == 4 { delete(&key) } else { put(&key, step.to_string()) };
        let revision = on.store.commit(all([change, put("elsewhere", step.to_string())])).await.unwrap();
        history.push((revision, list(&on.store, "a/", None).await.entries));
    }
    for (revision, entries) in history {
        let page = list(&on.other, "a/", Some(revision)).await;
        assert_eq!((page.entries, page.revision, page.more), (entries, revision, false));
    }
}

pub async fn a_prefix_ends_where_its_bytes_end(on: Subject) {
    for key in ["a", "a/", "a/1", "a/2", "a0", "b", "\u{ff}"] {
        write(&on.store, key, "v").await;
    }
    let raw: Vec<Bytes> =
        [&[0xff][..], &[0xff, 0xff], &[0xff, 0xff, 1], &[0x61, 0xff]].map(Bytes::copy_from_slice).into();
    for key in &raw {
        on.store.commit(all([Write::Put { key: key.clone(), value: bytes("v") }])).await.unwrap();
    }
    let keys = async |prefix: &[u8], after: Option<&[u8]>| {
        let range = Range {
            prefix: Bytes::copy_from_slice(prefix),
            after: after.map(Bytes::copy_from_slice),
            ..Range::default()
        };
        on.store
            .range(range)
            .await
            .unwrap()
            .entries
            .into_iter()
            .map(|entry| entry.key.to_vec())
            .collect::<Vec<_>>()
    };
    assert_eq!(keys(b"a/", None).await, [&b"a/"[..], b"a/1", b"a/2"]);
    assert_eq!(keys(b"a/", Some(b"a/")).await, [b"a/1", b"a/2"]);
    assert_eq!(keys(b"a/", Some(b"a/1")).await, [b"a/2"]);
    assert_eq!(keys(b"a/", Some(b"a/2")).await, [[0u8; 0]; 0]);
    assert_eq!(keys(b"a", None).await, [&b"a"[..], b"a/", b"a/1", b"a/2", b"a0", &[0x61, 0xff]]);
    assert_eq!(keys(&[0xff], None).await, [&[0xff][..], &[0xff, 0xff], &[0xff, 0xff, 1]]);
    assert_eq!(keys(&[0xff, 0xff], None).await, [&[0xff, 0xff][..], &[0xff, 0xff, 1]]);
    assert_eq!(keys(b"", None).await.len(), 11);
    assert_eq!(keys(b"nothing", None).await, [[0u8; 0]; 0]);
}

pub async fn pages_at_one_revision_are_consistent_while_writers_go_on(on: Subject) {
    const KEYS: usize = 60;
    let fill = (0..KEYS).map(|index| put(format!("k/{index:03}"), "0")).collect::<Vec<_>>();
    on.store.commit(all(fill)).await.unwrap();
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let writer = tokio::spawn({
        let (store, stop) = (Arc::clone(&on.other), Arc::clone(&stop));
        async move {
            // Every round changes every key, removes one and adds one, all at once.
            let mut round = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                round += 1;
                let mut writes: Vec<_> =
                    (0..KEYS).map(|index| put(format!("k/{index:03}"), round.to_string())).collect();
                writes.push(put(format!("k/{:03}+{round}", round % KEYS), round.to_string()));
                writes.push(delete(format!("k/{:03}+{}", (round - 1) % KEYS, round - 1)));
                store.commit(all(writes)).await.unwrap();
                tokio::task::yield_now().await;
            }
        }
    });
    for _ in 0..5 {
        let (mut at, mut after, mut seen) = (None, None, Vec::new());
        loop {
            let range = Range { prefix: bytes("k/"), after: after.clone(), limit: 7, at };
            let page = on.store.range(range).await.unwrap();
            assert_eq!(page.revision, *at.get_or_insert(page.revision), "every page is of one revision");
            assert_eq!(page.more, page.entries.len() == 7 && page.more);
            after = page.entries.last().map(|entry| entry.key.clone());
            seen.extend(page.entries);
            if !page.more {
                break;
            }
            tokio::task::yield_now().await;
        }
        assert!(seen.is_sorted_by(|a, b| a.key < b.key));
        assert!(seen.iter().all(|entry| entry.value == seen[0].value), "one page mixed two rounds");
        assert!(seen.len() == KEYS || seen.len() == KEYS + 1);
        assert_eq!(seen, list(&on.other, "k/", at).await.entries);
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    writer.await.unwrap();
}

pub async fn a_read_of_the_future_is_refused(on: Subject) {
    let newest = write(&on.store, "a", "1").await;
    let requested = Revision(newest.0 + 1);
    match on.store.range(Range { prefix: bytes("a"), at: Some(requested), ..Range::default() }).await {
        Err(StoreError::Future { requested: asked, newest: told }) => {
            assert_eq!((asked, told), (requested, newest))
        }
        other => panic!("{other:?}"),
    }
}

pub async fn a_page_of_now_is_exactly_the_state_at_its_revision(on: Subject) {
    let writer = tokio::spawn({
        let store = Arc::clone(&on.other);
        async move {
            for round in 0..100 {
                write(&store, format!("k/{}", round % 10), round.to_string()).await;
                tokio::task::yield_now().await;
            }
        }
    });
    loop {
        let acknowledged = on.store.revision().await.unwrap();
        let now = list(&on.store, "k/", None).await;
        assert!(now.revision >= acknowledged);
        let then = list(&on.store, "k/", Some(now.revision)).await;
        assert_eq!(now.entries, then.entries);
        if writer.is_finished() {
            break;
        }
        tokio::task::yield_now().await;
    }
    writer.await.unwrap();
}

pub async fn a_range_larger_than_a_message_arrives_whole(on: Subject) {
    const SIZE: usize = 300 << 10;
    for index in 0..60u8 {
        let value = Bytes::from(vec![index; SIZE]);
        on.store.commit(all([Write::Put { key: bytes(format!("big/{index:02}")), value }])).await.unwrap();
    }
    let page = list(&on.other, "big/", None).await;
    assert_eq!((page.entries.len(), page.more), (60, false));
    for (index, entry) in page.entries.iter().enumerate() {
        assert!(entry.value.len() == SIZE && entry.value.iter().all(|byte| usize::from(*byte) == index));
    }
    let page = on.store.range(Range { prefix: bytes("big/"), limit: 55, ..Range::default() }).await.unwrap();
    assert_eq!((page.entries.len(), page.more), (55, true));
}

/// Every one of the checks is a write that was acknowledged and then a read that must show it; only
/// different keys go on at the same time.
pub async fn what_is_written_through_one_is_read_through_the_other_10000_times(on: Subject) {
    const LANES: usize = 50;
    const ROUNDS: usize = 200;
    async fn lane(lane: usize, writer: Arc<dyn Store>, reader: Arc<dyn Store>) -> usize {
        let key = format!("lane/{lane}");
        let mut checks = 0;
        for round in 0..ROUNDS {
            let value = format!("{lane}.{round}");
            let revision = write(&writer, &key, &value).await;
            if round % 10 == 9 {
                let page = list(&reader, &key, None).await;
                assert!(page.revision >= revision);
                assert!(pairs(&page).contains(&format!("{key}={value}")));
            } else {
                let entry = get(&reader, &key).await.expect("an acknowledged write is not there");
                assert_eq!((entry.value, entry.modified), (bytes(&value), revision));
            }
            checks += 1;
        }
        checks
    }
    let lanes = (0..LANES).map(|number| {
        let (one, other) = (Arc::clone(&on.store), Arc::clone(&on.other));
        tokio::spawn(if number % 2 == 0 { lane(number, one, other) } else { lane(number, other, one) })
    });
    let checks: usize = futures::future::join_all(lanes).await.into_iter().map(|lane| lane.unwrap()).sum();
    assert_eq!(checks, 10_000);
}
