//! The memory: keys, bytes, revisions, watch. Knows nothing of the API.
//!
//! One contract ([`Store`]) with etcd's semantics, two implementations:
//! [`embedded`] (one node, redb, group commit) and [`etcd`] (three or more nodes).
//! One conformance suite runs on both.
//!
//! # Guarantees
//!
//! - Every write is a compare-and-swap transaction and takes one revision, however
//!   many keys it touches. Revisions grow without end and never go back: not at a
//!   restart, not at promotion to etcd, not at restore from a snapshot (see [`epoch`]).
//! - A write that was acknowledged survives power loss. A write that failed with
//!   [`StoreError::OutcomeUnknown`] is there wholly or not at all.
//! - Reads without a revision are linearizable.
//! - A watch delivers every change after its starting revision, in order, once, a
//!   revision at a time, or fails with [`StoreError::Compacted`].

pub mod embedded;
pub mod epoch;
pub mod etcd;

use std::{collections::BTreeSet, fmt, pin::Pin};

use async_trait::async_trait;
use bytes::Bytes;
use futures::Stream;

/// The most bytes (keys and values together) one transaction may carry, on both stores.
pub const MAX_TRANSACTION_BYTES: usize = 4 << 20;

/// The most keys one transaction may write, and the most it may have expectations of.
pub const MAX_TRANSACTION_KEYS: usize = 16_384;

/// A point in the store's history. 0 is "before anything was written".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One key as it stood at some revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: Bytes,
    pub value: Bytes,
    /// When this incarnation of the key was first written.
    pub created: Revision,
    /// When it was last written.
    pub modified: Revision,
}

/// What happened to one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Put(Entry),
    Deleted { key: Bytes },
}

/// All changes of one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    pub revision: Revision,
    pub changes: Vec<Change>,
}

/// What must hold for a transaction to happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    Absent { key: Bytes },
    ModifiedAt { key: Bytes, revision: Revision },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    Put { key: Bytes, value: Bytes },
    Delete { key: Bytes },
}

/// All of `writes` if all of `expect` holds, otherwise nothing. A key may appear in
/// `writes` once at most; deleting an absent key is allowed and changes nothing. A
/// transaction that changes nothing takes no revision: it answers the newest one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    pub expect: Vec<Expect>,
    pub writes: Vec<Write>,
}

impl Transaction {
    /// What the size limit counts.
    pub fn bytes(&self) -> usize {
        let expected = self.expect.iter().map(|expect| expect.key().len()).sum::<usize>();
        let written = self.writes.iter().map(|write| match write {
            Write::Put { key, value } => key.len() + value.len(),
            Write::Delete { key } => key.len(),
        });
        expected + written.sum::<usize>()
    }

    /// Refuses what neither store could carry out, before anything is tried.
    pub fn check(&self) -> Result<(), StoreError> {
        let bytes = self.bytes();
        if bytes > MAX_TRANSACTION_BYTES {
            return Err(StoreError::TooLarge { bytes, limit: MAX_TRANSACTION_BYTES });
        }
        if self.writes.len().max(self.expect.len()) > MAX_TRANSACTION_KEYS {
            let reason = format!("more than {MAX_TRANSACTION_KEYS} keys in one transaction");
            return Err(StoreError::Invalid { reason });
        }
        let mut written = BTreeSet::new();
        for write in &self.writes {
            check_key(write.key())?;
            if !written.insert(write.key()) {
                let key = String::from_utf8_lossy(write.key());
                return Err(StoreError::Invalid { reason: format!("key {key} is written twice") });
            }
        }
        self.expect.iter().try_for_each(|expect| check_key(expect.key()))
    }
}

/// Keys that begin with a zero byte are the store's own.
fn check_key(key: &Bytes) -> Result<(), StoreError> {
    match key.first() {
        None => Err(StoreError::Invalid { reason: "a key is empty".to_owned() }),
        Some(0) => Err(StoreError::Invalid { reason: "a key begins with a zero byte".to_owned() }),
        Some(_) => Ok(()),
    }
}

impl Expect {
    pub fn key(&self) -> &Bytes {
        match self {
            Expect::Absent { key } | Expect::ModifiedAt { key, .. } => key,
        }
    }
}

impl Write {
    pub fn key(&self) -> &Bytes {
        match self {
            Write::Put { key, .. } | Write::Delete { key } => key,
        }
    }
}

impl Change {
    pub fn key(&self) -> &Bytes {
        match self {
            Change::Put(entry) => &entry.key,
            Change::Deleted { key } => key,
        }
    }
}

/// Which keys to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Range {
    pub prefix: Bytes,
    /// Only keys greater than this one (which must begin with `prefix`).
    pub after: Option<Bytes>,
    /// At most so many entries; 0 is no limit.
    pub limit: usize,
    /// As things stood then; `None` is now, linearizable.
    pub at: Option<Revision>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub entries: Vec<Entry>,
    /// Whether more entries follow the last one.
    pub more: bool,
    /// The revision this page shows. For a read of now it is at least that of every write
    /// acknowledged before the call, and the page is exactly the state at it.
    pub revision: Revision,
}

/// Changes as they come. Ends only with an error.
pub type Watch = Pin<Box<dyn Stream<Item = Result<Changes, StoreError>> + Send>>;

/// The contract. See the module documentation for its guarantees.
#[async_trait]
pub trait Store: Send + Sync + fmt::Debug + 'static {
    /// The newest revision, linearizable.
    async fn revision(&self) -> Result<Revision, StoreError>;

    /// The oldest revision that can still be read or watched from.
    async fn compacted(&self) -> Result<Revision, StoreError>;

    async fn get(&self, key: &Bytes) -> Result<Option<Entry>, StoreError>;

    async fn range(&self, range: Range) -> Result<Page, StoreError>;

    /// Applies the transaction and answers its revision once it is durable.
    async fn commit(&self, transaction: Transaction) -> Result<Revision, StoreError>;

    /// Every change to keys with `prefix` at revisions greater than `after`. `after` may lie in the future:
    /// changes up to it are then not delivered.
    ///
    /// A watch of everything (an empty prefix) delivers every revision, also one that the store needed for
    /// itself and that has no changes, so that its position can be compared with [`Store::revision`]. Any
    /// other watch is silent about revisions without a change to its keys.
    async fn watch(&self, prefix: Bytes, after: Revision) -> Result<Watch, StoreError>;

    /// Forgets what only reads and watches before `revision` need: what it was then stays readable, changes
    /// after it stay watchable. Forgetting again what was forgotten is allowed.
    async fn compact(&self, revision: Revision) -> Result<(), StoreError>;
}

/// Divided by what the caller can do next.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// An expectation did not hold; nothing was written. `found` is the key as it stands.
    #[error("key {} is not as expected", String::from_utf8_lossy(.key))]
    Conflict { key: Bytes, found: Option<Entry> },
    /// The revision is no longer kept. List again.
    #[error("revision {requested} is no longer kept; the oldest is {oldest}")]
    Compacted { requested: Revision, oldest: Revision },
    /// A read at a revision that has not happened yet.
    #[error("revision {requested} is in the future; the newest is {newest}")]
    Future { requested: Revision, newest: Revision },
    #[error("a transaction of {bytes} bytes is larger than the limit of {limit}")]
    TooLarge { bytes: usize, limit: usize },
    /// It did not happen and never will: the caller asked for something no store does.
    #[error("not a valid request: {reason}")]
    Invalid { reason: String },
    /// It did not happen; trying again may help.
    #[error("the store cannot be reached: {reason}")]
    Unavailable { reason: String },
    /// A write may or may not have happened; read before trying again.
    #[error("the store did not say whether the write happened: {reason}")]
    OutcomeUnknown { reason: String },
    /// The store refuses all further work until it is opened again: its disk failed in a way after which
    /// nothing it says could be trusted.
    #[error("the store stopped: {reason}")]
    Failed { reason: String },
}
