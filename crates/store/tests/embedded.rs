//! What only the embedded store promises: bounded memory and history, the same run twice, and a
//! place on disk that tells when an older copy was put back.

// clippy.toml allows it inside test functions only, and these tests have helpers.
#![allow(clippy::unwrap_used)]

use std::{fs, path::Path, sync::Arc};

use bytes::Bytes;
use futures::StreamExt;
use sheaf_store::{
    Range, Revision, Store, StoreError, Transaction, Write,
    embedded::{self, Embedded, Options, WriterMode},
};

fn put(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Transaction {
    Transaction { expect: vec![], writes: vec![Write::Put { key: key.into(), value: value.into() }] }
}

fn inline(options: Options) -> Embedded {
    let options = Options { writer: WriterMode::Inline, ..options };
    embedded::open_with_backend(redb::backends::InMemoryBackend::new(), options).unwrap()
}

#[tokio::test]
async fn history_stays_within_its_bound_by_itself() {
    let store = inline(Options { keep_revisions: 100, ..Options::default() });
    for round in 0..1000 {
        store.commit(put(format!("k/{}", round % 7), round.to_string())).await.unwrap();
        let (head, oldest) = (store.revision().await.unwrap().0, store.compacted().await.unwrap().0);
        assert!(head - oldest <= 100, "{} revisions are kept", head - oldest);
        if head > 200 {
            assert!(head - oldest >= 100, "only {} revisions are kept", head - oldest);
        }
    }
    assert_eq!(store.range(Range::default()).await.unwrap().entries.len(), 7);
}

#[tokio::test]
async fn one_large_value_written_again_and_again_does_not_fill_the_disk() {
    const LARGE: usize = 1 << 20;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    let options = Options { keep_bytes: 8 << 20, ..Options::default() };
    let store = embedded::open(&path, options).unwrap();
    store.commit(put("small", "stays")).await.unwrap();
    let first = store.commit(put("large", vec![0; LARGE])).await.unwrap();
    let mut watch = store.watch(Bytes::new(), first).await.unwrap();
    for round in 1..=200u8 {
        let written = store.commit(put("large", vec![round; LARGE])).await.unwrap();
        let kept = written.0 - store.compacted().await.unwrap().0;
        // Eight, and the first few that superseded nothing.
        assert!(kept <= 11 && (round < 20 || kept <= 8), "{kept} revisions of a megabyte each are kept");
        assert!(round < 8 || kept >= 7, "only {kept} are kept");
        // Twice the bound, since a value a little larger than a power of two takes the next one.
        let length = fs::metadata(&path).unwrap().len();
        assert!(length < 48 << 20, "after {round} rewrites the file has {length} bytes");
    }
    assert_eq!(store.get(&"large".into()).await.unwrap().unwrap().value, vec![200; LARGE]);
    assert_eq!(store.get(&"small".into()).await.unwrap().unwrap().value, "stays");
    let behind = watch.next().await.unwrap();
    assert!(matches!(behind, Err(StoreError::Compacted { .. })), "{behind:?}");
}

#[tokio::test]
async fn present_values_are_no_history_however_large() {
    let store = inline(Options { keep_bytes: 1000, ..Options::default() });
    for key in 0..100 {
        store.commit(put(format!("k/{key}"), vec![b'x'; 1000])).await.unwrap();
    }
    assert_eq!(store.compacted().await.unwrap(), Revision(0), "nothing was superseded");
    // The first of these leaves one superseded value too many for the bound, and nothing older to forget.
    for key in 0..100 {
        let delete = Write::Delete { key: format!("k/{key}").into() };
        let deleted = store.commit(Transaction { expect: vec![], writes: vec![delete] }).await.unwrap();
        let mut watch = store.watch(Bytes::new(), Revision(deleted.0 - 1)).await.unwrap();
        assert_eq!(watch.next().await.unwrap().unwrap().revision, deleted, "who keeps up misses nothing");
        assert!(deleted.0 - store.compacted().await.unwrap().0 <= 101);
    }
    assert_eq!(store.range(Range::default()).await.unwrap().entries.len(), 0);
}

#[tokio::test]
async fn the_bound_of_history_outlives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    for round in 0..40 {
        let store = embedded::open(&path, Options { keep_bytes: 10_000, ..Options::default() }).unwrap();
        let written = store.commit(put("k", vec![b'x'; 999])).await.unwrap();
        let kept = written.0 - store.compacted().await.unwrap().0;
        assert!(kept <= 12 && (round < 12 || kept >= 10), "{kept} revisions are kept in round {round}");
    }
}

#[tokio::test]
async fn a_watch_that_nobody_reads_ends_with_compacted_and_holds_nothing_up() {
    let store = inline(Options { keep_revisions: 50, history_entries: 10, ..Options::default() });
    let start = store.commit(put("k", "0")).await.unwrap();
    let mut watch = store.watch(Bytes::new(), start).await.unwrap();
    for round in 0..500 {
        store.commit(put("k", round.to_string())).await.unwrap();
    }
    let oldest = store.compacted().await.unwrap();
    match watch.next().await.unwrap() {
        Err(StoreError::Compacted { requested, oldest: told }) => {
            assert_eq!((requested, told), (start, oldest))
        }
        other => panic!("{other:?}"),
    }
    assert!(watch.next().await.is_none(), "it has ended");
}

#[tokio::test]
async fn a_slow_watch_reads_the_file_and_misses_nothing() {
    let store = inline(Options { history_entries: 5, history_bytes: 4096, ..Options::default() });
    let start = store.commit(put("k", "0")).await.unwrap();
    let mut watch = store.watch(Bytes::new(), start).await.unwrap();
    for round in 0..600u64 {
        store.commit(put("k", vec![b'x'; 4000])).await.unwrap();
        if round % 3 == 0 {
            assert_eq!(watch.next().await.unwrap().unwrap().revision.0, start.0 + 1 + round / 3);
        }
    }
    for revision in start.0 + 201..=start.0 + 600 {
        assert_eq!(watch.next().await.unwrap().unwrap().revision.0, revision);
    }
}

#[test]
fn the_same_work_on_a_paused_runtime_leaves_the_same_trace() {
    let trace = || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let store: Arc<dyn Store> = Arc::new(embedded::in_memory().unwrap());
            let mut watch = store.watch(Bytes::new(), Revision(1)).await.unwrap();
            let writers = (0..10u64).map(|writer| {
                let store = Arc::clone(&store);
                tokio::spawn(async move {
                    for round in 0..20u64 {
                        let pause = std::time::Duration::from_millis((writer * 7 + round * 13) % 17);
                        tokio::time::sleep(pause).await;
                        store.commit(put(format!("{writer}"), format!("{round}"))).await.unwrap();
                    }
                })
            });
            futures::future::join_all(writers).await;
            let mut trace = String::new();
            for _ in 0..200 {
                trace += &format!("{:?}\n", watch.next().await.unwrap().unwrap());
            }
            trace
        })
    };
    assert_eq!(trace(), trace());
}

#[tokio::test]
async fn closing_the_store_ends_its_watches_and_frees_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    let store = open(&path);
    let mut watch = store.watch(Bytes::new(), Revision(1)).await.unwrap();
    let waiting = tokio::spawn(async move { watch.next().await });
    tokio::task::yield_now().await;
    drop(store);
    assert!(matches!(waiting.await.unwrap(), Some(Err(StoreError::Failed { .. }))));
    open(&path);
}

fn open(path: &Path) -> Embedded {
    embedded::open(path, Options::default()).unwrap()
}

#[tokio::test]
async fn a_restart_goes_on_where_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    let store = open(&path);
    let mut revisions = vec![];
    for round in 0..10 {
        revisions.push(store.commit(put("k", round.to_string())).await.unwrap());
    }
    let entry = store.get(&"k".into()).await.unwrap();
    drop(store);
    let store = open(&path);
    assert_eq!(store.revision().await.unwrap(), revisions[9]);
    assert_eq!(store.get(&"k".into()).await.unwrap(), entry);
    let mut watch = store.watch(Bytes::new(), revisions[4]).await.unwrap();
    for revision in &revisions[5..] {
        assert_eq!(watch.next().await.unwrap().unwrap().revision, *revision, "a watch outlives a restart");
    }
}

#[tokio::test]
async fn an_older_copy_put_back_never_shows_a_revision_again() {
    let directory = tempfile::tempdir().unwrap();
    let (path, copy) = (directory.path().join("store.redb"), directory.path().join("copy"));
    let store = open(&path);
    store.commit(put("k", "old")).await.unwrap();
    drop(store);
    fs::copy(&path, &copy).unwrap();
    let store = open(&path);
    // More than are reserved at once.
    let writes = (0..2500).map(|round| store.commit(put(format!("k{}", round % 9), "new")));
    let revisions = futures::future::join_all(writes).await;
    let newest = revisions.into_iter().map(Result::unwrap).max().unwrap();
    drop(store);
    fs::copy(&copy, &path).unwrap();

    let store = open(&path);
    let entry = store.get(&"k".into()).await.unwrap().unwrap();
    assert_eq!(entry.value, "old");
    assert!(entry.created > newest && entry.modified > newest, "{entry:?} is not after {newest}");
    assert!(store.revision().await.unwrap() > newest);
    for old in [Revision(0), Revision(2), newest] {
        let watch = store.watch(Bytes::new(), old).await.err();
        assert!(matches!(watch, Some(StoreError::Compacted { .. })), "{watch:?}");
        let read = store.range(Range { at: Some(old), ..Range::default() }).await;
        assert!(matches!(read, Err(StoreError::Compacted { .. })), "{read:?}");
    }
    let stale = Transaction {
        expect: vec![sheaf_store::Expect::ModifiedAt { key: "k".into(), revision: Revision(2) }],
        writes: vec![],
    };
    assert!(matches!(store.commit(stale).await, Err(StoreError::Conflict { .. })));

    // And the new epoch is kept: opening it once more changes nothing.
    let shown = store.revision().await.unwrap();
    drop(store);
    assert_eq!(open(&path).revision().await.unwrap(), shown);
}

#[tokio::test]
async fn a_copy_taken_while_it_ran_is_recognised_after_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let (path, copy) = (directory.path().join("store.redb"), directory.path().join("copy"));
    let store = open(&path);
    store.commit(put("k", "old")).await.unwrap();
    fs::copy(&path, &copy).unwrap();
    let newest = store.commit(put("k", "new")).await.unwrap();
    // As a kill leaves it: the mark was not closed.
    let mark = fs::read(path.with_extension("mark")).unwrap();
    drop(store);
    fs::write(path.with_extension("mark"), mark).unwrap();
    fs::copy(&copy, &path).unwrap();
    let store = open(&path);
    assert_eq!(store.get(&"k".into()).await.unwrap().unwrap().value, "old");
    assert!(store.revision().await.unwrap() > newest);
}
