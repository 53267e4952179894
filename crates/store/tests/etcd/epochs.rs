//! Revisions never go back on etcd: not at a restart, not when data moves there from the embedded
//! store, not when a snapshot is restored. With real `etcd` and `etcdctl`.

use std::{path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::StreamExt;
use rustix::process::{Pid, Signal, kill_process};
use sheaf_store::{
    Change, Expect, Range, Revision, Store, StoreError, Transaction, Write, embedded, epoch,
    etcd::{
        self, Config, Etcd,
        server::{Server, ServerConfig},
    },
};

use crate::{etcdctl, put, quick_etcd, start};

/// A store that keeps its mark in `directory`.
async fn open(server: &Server, directory: &Path) -> Etcd {
    let mut config = Config::new(vec![server.endpoint()]);
    config.mark = Some(directory.join("etcd.mark"));
    etcd::open(config).await.unwrap()
}

/// Puts a snapshot in place of the data of `config`. The same token gives the same cluster id.
fn restore(config: &ServerConfig, snapshot: &Path, token: &str) {
    std::fs::remove_dir_all(&config.data_dir).unwrap();
    etcdctl(
        None,
        &[
            "snapshot",
            "restore",
            snapshot.to_str().unwrap(),
            &format!("--name={}", config.name),
            &format!("--data-dir={}", config.data_dir.display()),
            &format!("--initial-cluster={}={}", config.name, config.peer_url),
            &format!("--initial-advertise-peer-urls={}", config.peer_url),
            &format!("--initial-cluster-token={token}"),
        ],
    );
}

/// etcd's own default.
const SAME_TOKEN: &str = "etcd-cluster";

async fn assert_new_epoch(store: &Etcd, newest: Revision) {
    assert!(store.revision().await.unwrap() > newest);
    let page = store.range(Range::default()).await.unwrap();
    assert!(!page.entries.is_empty());
    assert!(page.entries.iter().all(|entry| entry.created > newest && entry.modified > newest));
    for old in [Revision(0), Revision(3), newest] {
        let refused = store.watch(Bytes::new(), old).await.err();
        assert!(matches!(refused, Some(StoreError::Compacted { .. })), "{refused:?}");
        let read = store.range(Range { at: Some(old), ..Range::default() }).await;
        assert!(matches!(read, Err(StoreError::Compacted { .. })), "{read:?}");
    }
    let key = page.entries[0].key.clone();
    let stale = Transaction {
        expect: vec![Expect::ModifiedAt { key: key.clone(), revision: newest }],
        writes: vec![Write::Put { key, value: "stale".into() }],
    };
    assert!(matches!(store.commit(stale).await, Err(StoreError::Conflict { .. })));
    assert!(store.commit(put("next", "1")).await.unwrap() > newest);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_killed_under_writers_and_watchers_loses_nothing_and_the_watch_has_no_gap() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(quick_etcd(directory.path())).await;
    let store = Arc::new(open(&server, directory.path()).await);
    let begin = store.commit(put("k", "begin")).await.unwrap();
    let mut watch = store.watch("k/".into(), begin).await.unwrap();
    let writers = (0..4).map(|writer| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let mut acknowledged = vec![];
            for round in 0..150 {
                match store.commit(put(format!("k/{writer}/{round}"), "v")).await {
                    Ok(revision) => acknowledged.push((revision, format!("k/{writer}/{round}"))),
                    Err(StoreError::OutcomeUnknown { .. } | StoreError::Unavailable { .. }) => {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            acknowledged
        })
    });
    let writers = tokio::spawn(futures::future::join_all(writers));
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(150)).await;
        let killed = server.pid().unwrap();
        kill_process(Pid::from_raw(killed as i32).unwrap(), Signal::KILL).unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        server.answers().await;
        assert_ne!(server.pid(), Some(killed), "it was started again");
    }
    let mut acknowledged = vec![];
    for writer in writers.await.unwrap() {
        acknowledged.extend(writer.unwrap());
    }
    acknowledged.sort();
    assert!(acknowledged.len() > 100, "hardly anything was written: {}", acknowledged.len());
    let last = loop {
        match store.commit(put("k/last", "v")).await {
            Ok(revision) => break revision,
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    let (mut told, mut position) = (vec![], begin);
    while position < last {
        let changes =
            tokio::time::timeout(Duration::from_secs(20), watch.next()).await.unwrap().unwrap().unwrap();
        assert!(changes.revision > position, "told {} after {position}", changes.revision);
        position = changes.revision;
        for change in changes.changes {
            let Change::Put(entry) = change else { panic!("something was deleted") };
            told.push((position, String::from_utf8_lossy(&entry.key).into_owned()));
        }
    }
    for write in &acknowledged {
        assert!(told.binary_search(write).is_ok(), "{write:?} was acknowledged and not told");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_of_everything_goes_on_where_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let config = quick_etcd(directory.path());
    let server = start(config.clone()).await;
    let store = open(&server, directory.path()).await;
    let first = store.commit(put("k", "1")).await.unwrap();
    let second = store.commit(put("k", "2")).await.unwrap();
    drop(store);
    server.stop().await;
    let server = start(config).await;
    let store = open(&server, directory.path()).await;
    assert_eq!(store.revision().await.unwrap(), second);
    let mut watch = store.watch(Bytes::new(), first).await.unwrap();
    assert_eq!(watch.next().await.unwrap().unwrap().revision, second, "a watch outlives a restart");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moving_to_etcd_keeps_every_byte_and_never_goes_back() {
    let directory = tempfile::tempdir().unwrap();
    let old = embedded::open(&directory.path().join("store.redb"), embedded::Options::default()).unwrap();
    for round in 0..40u32 {
        let writes = (0..60u32).map(|index| Write::Put {
            key: format!("k/{:04}", round * 60 + index).into(),
            value: Bytes::from((0..(index * 37) % 900).map(|byte| (byte ^ round) as u8).collect::<Vec<_>>()),
        });
        old.commit(Transaction { expect: vec![], writes: writes.collect() }).await.unwrap();
    }
    old.commit(put("large", vec![7; 3 << 20])).await.unwrap();
    old.commit(put("gone", "x")).await.unwrap();
    old.commit(Transaction { expect: vec![], writes: vec![Write::Delete { key: "gone".into() }] })
        .await
        .unwrap();
    let newest = old.revision().await.unwrap();

    let server = start(quick_etcd(directory.path())).await;
    let into = Config::new(vec![server.endpoint()]);
    assert_eq!(epoch::promote(&old, &into).await.unwrap(), newest);
    let again = epoch::promote(&old, &into).await.unwrap_err();
    assert!(matches!(again, epoch::PromoteError::InUse), "{again}");

    let store = open(&server, directory.path()).await;
    let content = |page: sheaf_store::Page| {
        page.entries.into_iter().map(|entry| (entry.key, entry.value)).collect::<Vec<_>>()
    };
    let before = content(old.range(Range::default()).await.unwrap());
    let after = content(store.range(Range::default()).await.unwrap());
    assert_eq!(before.len(), 2401);
    assert!(before == after, "what arrived is not what was sent");
    assert_new_epoch(&store, newest).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_that_was_cut_off_is_noticed_and_can_be_done_again() {
    /// A store whose reader fails in the middle.
    #[derive(Debug)]
    struct CutOff(embedded::Embedded, std::sync::atomic::AtomicUsize);
    #[async_trait::async_trait]
    impl Store for CutOff {
        async fn revision(&self) -> Result<Revision, StoreError> {
            self.0.revision().await
        }
        async fn compacted(&self) -> Result<Revision, StoreError> {
            self.0.compacted().await
        }
        async fn get(&self, key: &Bytes) -> Result<Option<sheaf_store::Entry>, StoreError> {
            self.0.get(key).await
        }
        async fn range(&self, range: Range) -> Result<sheaf_store::Page, StoreError> {
            if self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 2 {
                return Err(StoreError::Unavailable { reason: "cut off".into() });
            }
            self.0.range(range).await
        }
        async fn commit(&self, transaction: Transaction) -> Result<Revision, StoreError> {
            self.0.commit(transaction).await
        }
        async fn watch(&self, prefix: Bytes, after: Revision) -> Result<sheaf_store::Watch, StoreError> {
            self.0.watch(prefix, after).await
        }
        async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
            self.0.compact(revision).await
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let old = embedded::open(&directory.path().join("store.redb"), embedded::Options::default()).unwrap();
    let writes = (0..4000).map(|index| Write::Put { key: format!("k/{index:04}").into(), value: "v".into() });
    old.commit(Transaction { expect: vec![], writes: writes.collect() }).await.unwrap();
    let old = CutOff(old, Default::default());
    let server = start(quick_etcd(directory.path())).await;
    let into = Config::new(vec![server.endpoint()]);
    let cut_off = epoch::promote(&old, &into).await.unwrap_err();
    assert!(matches!(cut_off, epoch::PromoteError::Read { .. }), "{cut_off}");
    let refused = etcd::open(into.clone()).await.unwrap_err();
    assert!(matches!(refused, etcd::OpenError::CopyCutOff), "{refused}");

    // What is deleted meanwhile must not come back with the leftovers of the first attempt.
    old.commit(Transaction { expect: vec![], writes: vec![Write::Delete { key: "k/0000".into() }] })
        .await
        .unwrap();
    let newest = epoch::promote(&old, &into).await.unwrap();
    let store = etcd::open(into).await.unwrap();
    assert_eq!(store.range(Range::default()).await.unwrap().entries.len(), 3999);
    assert_new_epoch(&store, newest).await;
    server.stop().await;
}

/// Snapshot, more writes, restore. With the same token the restored cluster has the same identity, and only
/// the mark knows; with another one the identity tells, even a server that has no mark.
async fn restored(token: &str, keep_mark: bool) {
    let directory = tempfile::tempdir().unwrap();
    let config = quick_etcd(directory.path());
    let server = start(config.clone()).await;
    let store = open(&server, directory.path()).await;
    store.commit(put("kept", "1")).await.unwrap();
    let snapshot = directory.path().join("snapshot");
    etcdctl(Some(&server), &["snapshot", "save", snapshot.to_str().unwrap()]);
    let mut newest = Revision(0);
    for round in 0..20 {
        newest = store.commit(put("lost", round.to_string())).await.unwrap();
    }
    drop(store);
    server.stop().await;
    restore(&config, &snapshot, token);
    if !keep_mark {
        std::fs::remove_file(directory.path().join("etcd.mark")).unwrap();
    }

    let server = start(config).await;
    let store = open(&server, directory.path()).await;
    assert_eq!(store.get(&"lost".into()).await.unwrap(), None);
    assert_eq!(store.get(&"kept".into()).await.unwrap().unwrap().value, "1");
    assert_new_epoch(&store, newest).await;
    let shown = store.revision().await.unwrap();
    drop(store);
    let store = open(&server, directory.path()).await;
    assert_eq!(store.revision().await.unwrap(), shown, "one restore begins one epoch");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_snapshot_with_the_same_cluster_id_never_shows_a_revision_again() {
    restored(SAME_TOKEN, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_snapshot_with_another_cluster_id_is_recognised_without_a_mark() {
    restored("another", false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_restored_under_a_running_server_stops_it() {
    let directory = tempfile::tempdir().unwrap();
    let config = quick_etcd(directory.path());
    let server = start(config.clone()).await;
    let store = open(&server, directory.path()).await;
    let idle = etcd::open(Config::new(vec![server.endpoint()])).await.unwrap();
    store.commit(put("kept", "1")).await.unwrap();
    let snapshot = directory.path().join("snapshot");
    etcdctl(Some(&server), &["snapshot", "save", snapshot.to_str().unwrap()]);
    let mut newest = Revision(0);
    for round in 0..5 {
        newest = store.commit(put("lost", round.to_string())).await.unwrap();
    }
    let mut watch = store.watch(Bytes::new(), newest).await.unwrap();
    let waiting = tokio::spawn(async move { watch.next().await });
    assert_eq!(idle.revision().await.unwrap(), newest);
    server.stop().await;
    restore(&config, &snapshot, SAME_TOKEN);
    let server = start(config).await;

    // The watch notices by itself, since it comes back on its own.
    let ended = tokio::time::timeout(Duration::from_secs(20), waiting).await.unwrap().unwrap();
    assert!(matches!(ended, Some(Err(StoreError::Failed { .. }))), "{ended:?}");
    let refused = store.get(&"kept".into()).await;
    assert!(matches!(refused, Err(StoreError::Failed { .. })), "{refused:?}");

    // A server that was asleep meanwhile, while others have written more than was lost, must not take the new
    // history for the old one.
    drop(store);
    let store = open(&server, directory.path()).await;
    assert_new_epoch(&store, newest).await;
    for round in 0..20 {
        store.commit(put("new", round.to_string())).await.unwrap();
    }
    let refused = idle.commit(put("new", "from the past")).await;
    assert!(matches!(refused, Err(StoreError::Failed { .. })), "{refused:?}");
    assert_eq!(store.get(&"new".into()).await.unwrap().unwrap().value, "19");
    server.stop().await;
}
