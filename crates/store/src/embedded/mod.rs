//! The store of one node: a single file, one writer, many readers.
//!
//! Versions of every key lie in a [redb] file (see [`tables`]); a [`writer`] groups what
//! queues up into one transaction and one sync; a [`watch`] pulls. The memory it takes
//! is a small page cache and a bounded [`history`]: whoever serves reads at speed has a
//! cache of its own.
//!
//! # What survives
//!
//! Whatever was acknowledged, whatever happens to the process or the power. After a
//! failed write or sync the store refuses everything until it is opened again, since
//! what the disk holds is then unknown; opening it reads what is really there. A full disk is
//! no such failure where [`Options::waits_for_room`]: see [`patience`].
//!
//! # With and without threads
//!
//! In production the writer has an operating-system thread, because a sync blocks. In a
//! simulation ([`in_memory`]) it is a task like any other and nothing ever leaves the
//! runtime's one thread, so that the same seed gives the same run.

mod damage;
mod format;
mod history;
mod patience;
mod shared;
mod tables;
mod watch;
mod writer;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    thread::JoinHandle,
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use redb::{Builder, StorageBackend};
use tokio::sync::{mpsc, oneshot};

pub use self::format::OpenError;
use self::{
    history::History,
    patience::{Patience, Patient},
    shared::Shared,
    tables::{COMPACTED, HEAD},
    writer::{Job, Task, Writer},
};
use crate::{Entry, Page, Range, Revision, Store, StoreError, Transaction, Watch};

/// How many transactions may wait for the writer before further ones wait for a place.
const QUEUE: usize = 4096;

/// A read of more entries than this moves to a blocking thread, where there are threads.
const BIG_RANGE: usize = 256;

#[derive(Clone, Debug)]
pub struct Options {
    pub writer: WriterMode,
    /// Pages of the file kept in memory.
    pub cache_bytes: usize,
    /// How many revisions can be read and watched from; older ones are forgotten along the way.
    pub keep_revisions: u64,
    /// How many bytes of superseded values are kept for that; beyond it the oldest revisions are forgotten
    /// earlier. Present values do not count. The file takes up to twice as much: redb gives a large value
    /// pages of a power of two.
    pub keep_bytes: u64,
    /// How many recent changes, and of what size in all, are kept in memory for watches.
    pub history_entries: usize,
    pub history_bytes: usize,
    /// Where to note which revisions were handed out (see [`crate::epoch`]). [`open`] fills in a file
    /// beside the store's own.
    pub mark: Option<PathBuf>,
    /// Makes every sync take this much longer. For benchmarks: it stands in for a slower disk.
    pub sync_delay: Duration,
    /// Whether a write for which the disk has no room waits for some. Takes a writer with a thread of its own, since
    /// whoever makes room needs the others.
    pub waits_for_room: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriterMode {
    /// An operating-system thread of its own.
    Thread,
    /// A task of the runtime that opens the store.
    Inline,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            writer: WriterMode::Thread,
            cache_bytes: 8 << 20,
            keep_revisions: 10_000,
            keep_bytes: 256 << 20,
            history_entries: 1024,
            history_bytes: 4 << 20,
            mark: None,
            sync_delay: Duration::ZERO,
            waits_for_room: false,
        }
    }
}

/// Opens the store in the file at `path`, or makes a new one there. Reads the whole file when
/// the last user of it was cut off, so call it where blocking is allowed.
pub fn open(path: &Path, mut options: Options) -> Result<Embedded, OpenError> {
    let place = path.display().to_string();
    let mark = options.mark.get_or_insert_with(|| path.with_extension("mark"));
    let backend = format::open_file(path, mark)?;
    build(backend, &place, options)
}

/// The same on storage of the caller's choice.
pub fn open_with_backend(backend: impl StorageBackend, options: Options) -> Result<Embedded, OpenError> {
    build(backend, "a given storage backend", options)
}

/// An empty store in memory that uses no threads, for simulations. Must be called inside a
/// tokio runtime.
pub fn in_memory() -> Result<Embedded, OpenError> {
    let options = Options { writer: WriterMode::Inline, ..Options::default() };
    open_with_backend(redb::backends::InMemoryBackend::new(), options)
}

fn build(backend: impl StorageBackend, place: &str, options: Options) -> Result<Embedded, OpenError> {
    let patience = Arc::new(Patience::default());
    let backend = Patient { inner: backend, patience: Arc::clone(&patience), sync_delay: options.sync_delay };
    let mut builder = Builder::new();
    builder.set_cache_size(options.cache_bytes);
    let database = damage::caught_opening(place, || {
        builder.create_with_backend(backend).map_err(|error| format::open_error(place, error))
    })?;
    let prepare = || format::prepare(&database, place, options.mark.as_deref());
    let (found, mark) = match damage::caught_opening(place, prepare) {
        Ok(prepared) => prepared,
        Err(why) => {
            // Closing a damaged file may panic once more; why it was closed is already known.
            let _ = damage::caught(move || drop(database));
            return Err(why);
        }
    };

    let shared = Arc::new(Shared {
        place: place.to_owned(),
        database: RwLock::new(Some(Arc::new(database))),
        base: found.base,
        history: Mutex::new(History::new(found.head + 1, options.history_entries, options.history_bytes)),
        head: tokio::sync::watch::Sender::new(found.head),
        mark: Mutex::new(mark),
        failed: OnceLock::new(),
        patience: Arc::clone(&patience),
        threaded: options.writer == WriterMode::Thread,
    });
    let writer = Writer {
        shared: Arc::clone(&shared),
        head: found.head,
        compacted: found.compacted,
        history: found.history,
        keep_revisions: options.keep_revisions,
        keep_bytes: options.keep_bytes,
    };
    if options.waits_for_room {
        patience.begin();
    }
    let (queue, jobs) = mpsc::channel(QUEUE);
    let thread = match options.writer {
        WriterMode::Inline => {
            tokio::spawn(writer.run_inline(jobs));
            None
        }
        WriterMode::Thread => {
            let thread = std::thread::Builder::new().name("store-writer".to_owned());
            let spawned = thread.spawn(move || writer.run(jobs));
            Some(spawned.map_err(|source| OpenError::Thread { source })?)
        }
    };
    Ok(Embedded { shared, queue: Mutex::new(Some(queue)), thread: Mutex::new(thread) })
}

/// The store of one node. Dropping it closes the file: what was queued is still written, and
/// watches end.
pub struct Embedded {
    shared: Arc<Shared>,
    queue: Mutex<Option<mpsc::Sender<Job>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded")
            .field("base", &self.shared.base)
            .field("failed", &self.shared.failed)
            .finish()
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.shared.patience.end();
        self.queue.lock().take();
        if let Some(thread) = self.thread.lock().take() {
            // A writer that panicked has already failed the store for everyone who waited.
            let _ = thread.join();
        }
        self.shared.close();
    }
}

impl Embedded {
    async fn ask(&self, task: Task) -> Result<Revision, StoreError> {
        self.shared.check()?;
        let queue = self.queue.lock().clone();
        let (answer, answered) = oneshot::channel();
        let closed = || StoreError::Failed { reason: "the store was closed".to_owned() };
        queue.ok_or_else(closed)?.send(Job { task, answer }).await.map_err(|_| closed())?;
        answered.await.unwrap_or_else(|_| {
            Err(StoreError::OutcomeUnknown { reason: "the writer of the store went away".to_owned() })
        })
    }
}

#[async_trait]
impl Store for Embedded {
    async fn revision(&self) -> Result<Revision, StoreError> {
        self.shared.read_number(HEAD).map(|head| self.shared.outside(head))
    }

    async fn compacted(&self) -> Result<Revision, StoreError> {
        self.shared.read_number(COMPACTED).map(|compacted| self.shared.outside(compacted))
    }

    async fn get(&self, key: &Bytes) -> Result<Option<Entry>, StoreError> {
        self.shared.get(key)
    }

    async fn range(&self, range: Range) -> Result<Page, StoreError> {
        if !self.shared.threaded || (1..=BIG_RANGE).contains(&range.limit) {
            return self.shared.range(&range);
        }
        let shared = Arc::clone(&self.shared);
        let read = tokio::task::spawn_blocking(move || shared.range(&range));
        read.await.unwrap_or_else(|error| Err(StoreError::Unavailable { reason: error.to_string() }))
    }

    async fn commit(&self, transaction: Transaction) -> Result<Revision, StoreError> {
        transaction.check()?;
        self.ask(Task::Commit(transaction)).await
    }

    async fn watch(&self, prefix: Bytes, after: Revision) -> Result<Watch, StoreError> {
        self.shared.check()?;
        let compacted = self.shared.read_number(COMPACTED)?;
        let after = self.shared.inside(after, compacted)?;
        Ok(watch::stream(Arc::clone(&self.shared), prefix, after))
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        // What lies before this epoch is forgotten already.
        let Some(raw) = revision.0.checked_sub(self.shared.base) else { return self.shared.check() };
        self.ask(Task::Compact(raw)).await.map(drop)
    }
}
