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
//! what the disk holds is then unknown; opening it reads what is really there.
//!
//! # With and without threads
//!
//! In production the writer has an operating-system thread, because a sync blocks. In a
//! simulation ([`in_memory`]) it is a task like any other and nothing ever leaves the
//! runtime's one thread, so that the same seed gives the same run.

mod format;
mod history;
mod slow;
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
use redb::{Builder, Database, ReadableDatabase, ReadableTable, StorageBackend};
use tokio::sync::{mpsc, oneshot};

pub use self::format::OpenError;
use self::{
    history::History,
    tables::{COMPACTED, HEAD, META, VERSIONS},
    writer::{Job, Task, Writer, describe, entry},
};
use crate::{
    Changes, Entry, Page, Range, Revision, Store, StoreError, Transaction, Watch, epoch::mark::Mark,
};

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
    /// How many recent changes, and of what size in all, are kept in memory for watches.
    pub history_entries: usize,
    pub history_bytes: usize,
    /// Where to note which revisions were handed out (see [`crate::epoch`]). [`open`] fills in a file
    /// beside the store's own.
    pub mark: Option<PathBuf>,
    /// Makes every sync take this much longer. For benchmarks: it stands in for a slower disk.
    pub sync_delay: Duration,
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
            history_entries: 1024,
            history_bytes: 4 << 20,
            mark: None,
            sync_delay: Duration::ZERO,
        }
    }
}

/// Opens the store in the file at `path`, or makes a new one there. Reads the whole file when
/// the last user of it was cut off, so call it where blocking is allowed.
pub fn open(path: &Path, mut options: Options) -> Result<Embedded, OpenError> {
    let place = path.display().to_string();
    let backend = format::open_file(path)?;
    options.mark.get_or_insert_with(|| path.with_extension("mark"));
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
    let mut builder = Builder::new();
    builder.set_cache_size(options.cache_bytes);
    let opened = if options.sync_delay.is_zero() {
        builder.create_with_backend(backend)
    } else {
        builder.create_with_backend(slow::SlowSync::new(backend, options.sync_delay))
    };
    let database = opened.map_err(|error| format::open_error(place, error))?;
    let (found, mark) = format::prepare(&database, place, options.mark.as_deref())?;

    let shared = Arc::new(Shared {
        database: RwLock::new(Some(Arc::new(database))),
        base: found.base,
        history: Mutex::new(History::new(found.head + 1, options.history_entries, options.history_bytes)),
        head: tokio::sync::watch::Sender::new(found.head),
        mark: Mutex::new(mark),
        failed: OnceLock::new(),
        threaded: options.writer == WriterMode::Thread,
    });
    let writer = Writer {
        shared: Arc::clone(&shared),
        head: found.head,
        compacted: found.compacted,
        keep_revisions: options.keep_revisions,
    };
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

/// What the writer, the readers and the watches have in common.
struct Shared {
    /// Gone once the store is closed, so that a forgotten watch does not keep the file locked.
    database: RwLock<Option<Arc<Database>>>,
    /// What to add to a raw revision. Changes only while the store is being opened.
    base: u64,
    history: Mutex<History>,
    /// The newest raw revision, to wake watches.
    head: tokio::sync::watch::Sender<u64>,
    mark: Mutex<Option<Mark>>,
    failed: OnceLock<String>,
    threaded: bool,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    fn check(&self) -> Result<(), StoreError> {
        match self.failed.get() {
            None => Ok(()),
            Some(reason) => Err(StoreError::Failed { reason: reason.clone() }),
        }
    }

    /// From now on everything fails; the first reason is kept.
    fn fail(&self, reason: String) -> StoreError {
        let reason = self.failed.get_or_init(|| reason).clone();
        self.head.send_modify(|_| {});
        StoreError::Failed { reason }
    }

    fn failing(&self, error: &dyn std::error::Error) -> StoreError {
        self.fail(describe(error))
    }

    fn close(&self) {
        let clean = self.failed.get().is_none();
        self.fail("the store was closed".to_owned());
        self.database.write().take();
        if let (true, Some(mark)) = (clean, self.mark.lock().take()) {
            mark.close();
        }
    }

    fn database(&self) -> Result<Arc<Database>, StoreError> {
        self.check()?;
        let closed = || StoreError::Failed { reason: "the store was closed".to_owned() };
        self.database.read().clone().ok_or_else(closed)
    }

    /// Before revisions up to the raw `head` become visible: sees to it that they are never used again.
    fn reserve(&self, head: u64) -> std::io::Result<()> {
        match self.mark.lock().as_mut() {
            Some(mark) => mark.reserve(self.base + head),
            None => Ok(()),
        }
    }

    /// After a batch became durable: shows it to watches.
    fn publish(&self, changes: Vec<Arc<Changes>>, head: u64) {
        if changes.is_empty() {
            return;
        }
        if let Some(mark) = self.mark.lock().as_mut() {
            mark.note(self.base + head);
        }
        let mut history = self.history.lock();
        changes.into_iter().for_each(|changes| history.push(changes));
        drop(history);
        self.head.send_replace(head);
    }

    fn outside(&self, raw: u64) -> Revision {
        Revision(self.base + raw)
    }

    /// The raw revision of one that a caller named, if it is still kept.
    fn inside(&self, revision: Revision, compacted: u64) -> Result<u64, StoreError> {
        match revision.0.checked_sub(self.base) {
            Some(raw) if raw >= compacted => Ok(raw),
            _ => Err(StoreError::Compacted { requested: revision, oldest: self.outside(compacted) }),
        }
    }

    fn number(&self, meta: &impl ReadableTable<&'static str, u64>, name: &str) -> Result<u64, StoreError> {
        let found = meta.get(name).map_err(|error| self.failing(&error))?;
        let number = found.map(|number| number.value());
        number.ok_or_else(|| self.fail(format!("the file lost its number {name:?}")))
    }

    fn read_number(&self, name: &str) -> Result<u64, StoreError> {
        let transaction = self.database()?.begin_read().map_err(|error| self.failing(&error))?;
        let meta = transaction.open_table(META).map_err(|error| self.failing(&error))?;
        self.number(&meta, name)
    }

    fn get(&self, key: &Bytes) -> Result<Option<Entry>, StoreError> {
        let transaction = self.database()?.begin_read().map_err(|error| self.failing(&error))?;
        let versions = transaction.open_table(VERSIONS).map_err(|error| self.failing(&error))?;
        let version = tables::version_at(&versions, key, u64::MAX).map_err(|error| self.failing(&error))?;
        Ok(version.and_then(|version| entry(self.base, key.clone(), version)))
    }

    fn range(&self, range: &Range) -> Result<Page, StoreError> {
        let transaction = self.database()?.begin_read().map_err(|error| self.failing(&error))?;
        let meta = transaction.open_table(META).map_err(|error| self.failing(&error))?;
        let head = self.number(&meta, HEAD)?;
        let at = match range.at {
            None => head,
            Some(at) => self.inside(at, self.number(&meta, COMPACTED)?)?,
        };
        if at > head {
            return Err(StoreError::Future { requested: self.outside(at), newest: self.outside(head) });
        }
        let versions = transaction.open_table(VERSIONS).map_err(|error| self.failing(&error))?;
        let (found, more) =
            tables::live_at(&versions, &range.prefix, range.after.as_deref(), range.limit, at)
                .map_err(|error| self.failing(&error))?;
        let entries = found
            .into_iter()
            .map(|(key, modified, live)| Entry {
                key,
                value: live.value,
                created: self.outside(live.created),
                modified: self.outside(modified),
            })
            .collect();
        Ok(Page { entries, more, revision: self.outside(at) })
    }
}
