//! The store of several nodes: a real etcd, started and supervised by [`server`].
//!
//! All keys of this etcd are ours, so every revision has a change and a watch on all
//! keys sees each of them: a revision that is missing is a gap, not somebody else's.
//!
//! # Traps of etcd 3.4 that shape this module
//!
//! - Progress notifications are not synchronised with events. They are not used.
//! - A revision may be split over several watch responses, and is delivered whole here.
//! - A deletion at the compacted revision is forgotten although it may still have to be
//!   told. See [`compaction`].
//! - A transaction without operations is not linearizable. See [`connection`].
//! - A revision in a get inside a transaction can crash the server when history is
//!   compacted at that moment. Reads at a revision are plain gets.
//!
//! # What survives
//!
//! What etcd acknowledged. When the answer to a write is lost, the caller is told that the
//! outcome is unknown; nothing is tried again behind its back.

mod compaction;
mod connection;
mod error;
mod range;
pub(crate) mod record;
pub mod server;
mod watch;

use std::{
    fmt, io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use etcd_client::{Certificate, Compare, CompareOp, GetOptions, Identity, TlsOptions, Txn, TxnOp};

use self::connection::Connection;
pub(crate) use self::connection::Line;
use self::record::EPOCH;
use crate::{
    Entry, Expect, Page, Range, Revision, Store, StoreError, Transaction, Watch, Write, epoch::mark::Mark,
};

#[derive(Clone, Debug)]
pub struct Config {
    /// `http://host:port` or `https://host:port` of every member.
    pub endpoints: Vec<String>,
    pub tls: Option<TlsFiles>,
    /// After so long without an answer a read is unavailable and a write's outcome unknown.
    pub timeout: Duration,
    /// Where this server notes which revisions it handed out (see [`crate::epoch`]).
    pub mark: Option<PathBuf>,
    /// How many revisions can be read and watched from.
    pub keep_revisions: u64,
}

/// Files in PEM form.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    pub ca: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Config {
    pub fn new(endpoints: Vec<String>) -> Self {
        Config { endpoints, tls: None, timeout: Duration::from_secs(10), mark: None, keep_revisions: 10_000 }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot read {path}")]
    TlsFile {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot talk to etcd")]
    Unreachable {
        #[source]
        source: Box<etcd_client::Error>,
    },
    #[error("this etcd holds keys of somebody else; an empty one is needed")]
    NotOurs,
    #[error("copying the data to this etcd was cut off; copy it again")]
    CopyCutOff,
    #[error(
        "the data in this etcd has format {found}, newer than the {newest} this version knows; start the version that wrote it"
    )]
    Newer { found: u64, newest: u64 },
    #[error("the epoch record in etcd cannot be read")]
    Damaged {
        #[source]
        source: serde_json::Error,
    },
    #[error("cannot read or write the revision mark {path}")]
    Mark {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl OpenError {
    pub(crate) fn unreachable(source: etcd_client::Error) -> Self {
        OpenError::Unreachable { source: Box::new(source) }
    }
}

pub(crate) async fn connect(config: &Config) -> Result<Line, OpenError> {
    let tls = match &config.tls {
        None => None,
        Some(files) => {
            let read = |path: &PathBuf| {
                std::fs::read(path).map_err(|source| OpenError::TlsFile { path: path.clone(), source })
            };
            let identity = Identity::from_pem(read(&files.certificate)?, read(&files.key)?);
            Some(TlsOptions::new().ca_certificate(Certificate::from_pem(read(&files.ca)?)).identity(identity))
        }
    };
    Line::connect(&config.endpoints, tls, config.timeout).await.map_err(OpenError::unreachable)
}

/// Opens the store in the etcd of `config`.
pub async fn open(config: Config) -> Result<Etcd, OpenError> {
    let line = connect(&config).await?;
    let (epoch, epoch_revision, header) = record::settle(&line, config.mark.as_deref()).await?;
    let mark = match &config.mark {
        None => None,
        Some(path) => {
            let started = Mark::start(path, epoch.base + connection::raw(header.revision()));
            Some(started.map_err(|source| OpenError::Mark { path: path.clone(), source })?)
        }
    };
    let connection = Connection::new(line, &header, epoch.base, epoch_revision, mark);
    Ok(Etcd { connection, keep_revisions: config.keep_revisions, next_trim: AtomicU64::new(0) })
}

/// The store of several nodes. Any number of servers may have one open.
pub struct Etcd {
    connection: Arc<Connection>,
    keep_revisions: u64,
    /// The raw revision at which history is trimmed next.
    next_trim: AtomicU64,
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.connection.fmt(f)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.connection.close();
    }
}

#[async_trait]
impl Store for Etcd {
    async fn revision(&self) -> Result<Revision, StoreError> {
        self.connection.head().await.map(|head| self.connection.outside(head))
    }

    async fn compacted(&self) -> Result<Revision, StoreError> {
        let (compaction, _, _) = compaction::read(&self.connection).await?;
        Ok(self.connection.outside(compaction.to))
    }

    async fn get(&self, key: &Bytes) -> Result<Option<Entry>, StoreError> {
        let answer = self.connection.read(vec![TxnOp::get(key.to_vec(), None)]).await?;
        let found = answer.gets.into_iter().flatten().next();
        Ok(found.map(|found| self.connection.entry(found)))
    }

    async fn range(&self, range: Range) -> Result<Page, StoreError> {
        let at = match range.at {
            None => None,
            Some(at) => {
                let (compaction, head, _) = compaction::read(&self.connection).await?;
                let raw = inside(&self.connection, at, compaction.to)?;
                if raw > head {
                    return Err(StoreError::Future { requested: at, newest: self.connection.outside(head) });
                }
                Some(raw)
            }
        };
        range::pages(&self.connection, &range, at).await
    }

    async fn commit(&self, transaction: Transaction) -> Result<Revision, StoreError> {
        transaction.check()?;
        self.connection.check()?;
        let floor = self.connection.floor();
        let txn = self.in_etcds_words(&transaction);
        let (answer, header) =
            self.connection.line().transact(txn).await.map_err(|error| error::of_write(&error))?;
        self.connection.accept(&header, floor)?;
        if answer.succeeded {
            self.trim(answer.revision);
            return Ok(self.connection.outside(answer.revision));
        }
        // The record's own get comes first, then one for each expectation.
        let mut gets = answer.gets.into_iter();
        let record = gets.next().and_then(|found| found.into_iter().next());
        if record.is_none_or(|record| !self.connection.is_epoch_revision(record.modified)) {
            return Err(self.connection.epoch_changed());
        }
        for (expect, found) in transaction.expect.iter().zip(gets) {
            let found = found.into_iter().next().map(|found| self.connection.entry(found));
            let holds = match expect {
                Expect::Absent { .. } => found.is_none(),
                Expect::ModifiedAt { revision, .. } => {
                    found.as_ref().is_some_and(|entry| entry.modified == *revision)
                }
            };
            if !holds {
                return Err(StoreError::Conflict { key: expect.key().clone(), found });
            }
        }
        Err(StoreError::Unavailable { reason: "etcd refused a transaction whose conditions hold".to_owned() })
    }

    async fn watch(&self, prefix: Bytes, after: Revision) -> Result<Watch, StoreError> {
        let (compaction, _, _) = compaction::read(&self.connection).await?;
        let after = inside(&self.connection, after, compaction.to)?;
        // An empty etcd stands at 1: nothing ever happened there, so a watch from before it misses nothing.
        Ok(watch::stream(Arc::clone(&self.connection), prefix, after.max(EMPTY)))
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        let Some(to) = revision.0.checked_sub(self.connection.base) else { return self.connection.check() };
        compaction::compact(&self.connection, to).await
    }
}

impl Etcd {
    fn in_etcds_words(&self, transaction: &Transaction) -> Txn {
        let mut conditions = vec![self.connection.same_epoch()];
        let mut otherwise = vec![TxnOp::get(EPOCH, Some(GetOptions::new().with_keys_only()))];
        for expect in &transaction.expect {
            let key = expect.key().to_vec();
            otherwise.push(TxnOp::get(key.clone(), None));
            conditions.push(match expect {
                Expect::Absent { .. } => Compare::create_revision(key, CompareOp::Equal, 0),
                Expect::ModifiedAt { revision, .. } => {
                    // A revision of an earlier epoch fits no key; neither does -1.
                    let raw = revision.0.checked_sub(self.connection.base).filter(|raw| *raw > 0);
                    let raw = raw.and_then(|raw| i64::try_from(raw).ok()).unwrap_or(-1);
                    Compare::mod_revision(key, CompareOp::Equal, raw)
                }
            });
        }
        let writes = transaction.writes.iter().map(|write| match write {
            Write::Put { key, value } => TxnOp::put(key.to_vec(), value.to_vec(), None),
            Write::Delete { key } => TxnOp::delete(key.to_vec(), None),
        });
        Txn::new().when(conditions).and_then(writes.collect::<Vec<_>>()).or_else(otherwise)
    }

    /// Forgets old history now and then, so that nobody has to ask for it. Every server does; whoever comes
    /// second finds it done.
    fn trim(&self, head: u64) {
        let due = self.next_trim.load(Ordering::Acquire);
        let next = head + (self.keep_revisions / 2).max(1);
        if head < due
            || self.next_trim.compare_exchange(due, next, Ordering::AcqRel, Ordering::Acquire).is_err()
        {
            return;
        }
        let Some(to) = head.checked_sub(self.keep_revisions) else { return };
        let connection = Arc::clone(&self.connection);
        tokio::spawn(async move {
            if let Err(error) = compaction::compact(&connection, to).await {
                tracing::warn!(%error, "cannot forget old history");
            }
        });
    }
}

/// The raw revision of an etcd to which nothing was ever written.
const EMPTY: u64 = 1;

/// The raw revision of one that a caller named, if it is still kept.
fn inside(connection: &Connection, revision: Revision, compacted: u64) -> Result<u64, StoreError> {
    match revision.0.checked_sub(connection.base) {
        Some(raw) if raw >= compacted => Ok(raw),
        _ => Err(StoreError::Compacted { requested: revision, oldest: connection.outside(compacted) }),
    }
}
