//! What a promise is tried on, and small words for the tests.

use std::{future::Future, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::StreamExt;
use sheaf_store::{
    Change, Changes, Entry, Expect, Page, Range, Revision, Store, StoreError, Transaction, Watch, Write,
    embedded::{self, Options},
    etcd::{
        self,
        server::{Server, ServerConfig},
    },
};

pub struct Subject {
    pub store: Arc<dyn Store>,
    /// Another client of the same store, where there can be one.
    pub other: Arc<dyn Store>,
}

pub fn with_a_file<F: Future<Output = ()>>(promise: impl FnOnce(Subject) -> F) {
    let directory = tempfile::tempdir().unwrap();
    threaded().block_on(async {
        let store = embedded::open(&directory.path().join("store.redb"), Options::default()).unwrap();
        let store: Arc<dyn Store> = Arc::new(store);
        promise(Subject { store: Arc::clone(&store), other: store }).await;
    });
}

pub fn in_memory<F: Future<Output = ()>>(promise: impl FnOnce(Subject) -> F) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let store: Arc<dyn Store> = Arc::new(embedded::in_memory().unwrap());
        promise(Subject { store: Arc::clone(&store), other: store }).await;
    });
}

pub fn in_etcd<F: Future<Output = ()>>(promise: impl FnOnce(Subject) -> F) {
    let directory = tempfile::tempdir().unwrap();
    threaded().block_on(async {
        let server =
            Server::start(quick_etcd(directory.path())).await.unwrap_or_else(|error| panic!("{error}"));
        let config = etcd::Config::new(vec![server.endpoint()]);
        let (store, other) = (etcd::open(config.clone()).await.unwrap(), etcd::open(config).await.unwrap());
        promise(Subject { store: Arc::new(store), other: Arc::new(other) }).await;
        server.stop().await;
    });
}

/// An etcd of one that does not take a second to elect itself.
pub fn quick_etcd(directory: &Path) -> ServerConfig {
    let mut config = ServerConfig::alone(directory.join("etcd")).unwrap();
    (config.heartbeat, config.election) = (Duration::from_millis(20), Duration::from_millis(200));
    config
}

pub fn threaded() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

pub fn bytes(text: impl AsRef<str>) -> Bytes {
    Bytes::copy_from_slice(text.as_ref().as_bytes())
}

pub fn put(key: impl AsRef<str>, value: impl AsRef<str>) -> Write {
    Write::Put { key: bytes(key), value: bytes(value) }
}

pub fn delete(key: impl AsRef<str>) -> Write {
    Write::Delete { key: bytes(key) }
}

pub fn absent(key: impl AsRef<str>) -> Expect {
    Expect::Absent { key: bytes(key) }
}

pub fn modified(key: impl AsRef<str>, revision: Revision) -> Expect {
    Expect::ModifiedAt { key: bytes(key), revision }
}

pub fn all(writes: impl Into<Vec<Write>>) -> Transaction {
    Transaction { expect: vec![], writes: writes.into() }
}

pub async fn write(store: &Arc<dyn Store>, key: impl AsRef<str>, value: impl AsRef<str>) -> Revision {
    store.commit(all([put(key, value)])).await.unwrap()
}

pub async fn get(store: &Arc<dyn Store>, key: impl AsRef<str>) -> Option<Entry> {
    store.get(&bytes(key)).await.unwrap()
}

pub async fn list(store: &Arc<dyn Store>, prefix: impl AsRef<str>, at: Option<Revision>) -> Page {
    store.range(Range { prefix: bytes(prefix), at, ..Range::default() }).await.unwrap()
}

/// `key=value` of every entry, for readable comparisons.
pub fn pairs(page: &Page) -> Vec<String> {
    let pair = |entry: &Entry| {
        format!("{}={}", String::from_utf8_lossy(&entry.key), String::from_utf8_lossy(&entry.value))
    };
    page.entries.iter().map(pair).collect()
}

/// The next changes of a watch; panics when none come.
pub async fn next(watch: &mut Watch) -> Result<Changes, StoreError> {
    let next = tokio::time::timeout(Duration::from_secs(30), watch.next()).await;
    next.expect("a watch fell silent").expect("a watch ended without an error")
}

/// `+key=value` or `-key` for every change.
pub fn told(changes: &Changes) -> Vec<String> {
    let tell = |change: &Change| match change {
        Change::Put(entry) => {
            format!("+{}={}", String::from_utf8_lossy(&entry.key), String::from_utf8_lossy(&entry.value))
        }
        Change::Deleted { key } => format!("-{}", String::from_utf8_lossy(key)),
    };
    changes.changes.iter().map(tell).collect()
}
