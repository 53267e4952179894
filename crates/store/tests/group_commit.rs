//! Many writers share a sync; one writer waits for nobody.

// clippy.toml allows it inside test functions only, and these tests have helpers.
#![allow(clippy::unwrap_used)]

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use redb::{StorageBackend, backends::InMemoryBackend};
use sheaf_store::{
    Store, Transaction, Write,
    embedded::{self, Options},
};
use tokio::time::Instant;

const SYNC: Duration = Duration::from_millis(5);

/// Counts syncs.
#[derive(Debug)]
struct Counting(InMemoryBackend, Arc<AtomicUsize>);

impl StorageBackend for Counting {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }
    fn set_len(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }
}

fn slow_store() -> (Arc<dyn Store>, Arc<AtomicUsize>) {
    let syncs = Arc::new(AtomicUsize::new(0));
    let backend = Counting(InMemoryBackend::new(), Arc::clone(&syncs));
    let options = Options { sync_delay: SYNC, ..Options::default() };
    (Arc::new(embedded::open_with_backend(backend, options).unwrap()), syncs)
}

fn put(key: String) -> Transaction {
    Transaction {
        expect: vec![],
        writes: vec![Write::Put { key: key.into(), value: vec![b'v'; 2048].into() }],
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_writers_get_at_least_ten_commits_per_sync() {
    let (store, syncs) = slow_store();
    let before = syncs.load(Ordering::Relaxed);
    let writers = (0..64).map(|writer| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for round in 0..20 {
                store.commit(put(format!("{writer}/{round}"))).await.unwrap();
            }
        })
    });
    for writer in futures::future::join_all(writers).await {
        writer.unwrap();
    }
    let syncs = syncs.load(Ordering::Relaxed) - before;
    assert!(64 * 20 >= 10 * syncs, "1280 commits took {syncs} syncs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lone_writer_waits_for_one_sync_and_nothing_else() {
    let (store, syncs) = slow_store();
    let before = syncs.load(Ordering::Relaxed);
    let mut took = Vec::new();
    for round in 0..40 {
        let start = Instant::now();
        store.commit(put(round.to_string())).await.unwrap();
        took.push(start.elapsed());
    }
    assert_eq!(syncs.load(Ordering::Relaxed) - before, 40, "one sync each");
    took.sort();
    // The quicker half: the machine may be busy with other tests.
    assert!(took[10] < SYNC * 2, "a quarter took longer than {:?}", took[10]);
    assert!(took[0] >= SYNC, "a commit came back before its sync: {:?}", took[0]);
}
