//! One watch: a position in the history that moves when asked to.
//!
//! Nothing is pushed to a watch, so a slow one holds no memory beyond its own next few
//! changes. It reads the recent [`History`](super::history::History) while it keeps up,
//! the file when it does not, and ends with `Compacted` when the file has forgotten too.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use futures::stream;
use redb::{Database, ReadableDatabase};
use tokio::sync::watch;

use super::{
    shared::Shared,
    tables::{self, LOG, META, VERSIONS},
    writer::entry,
};
use crate::{Change, Changes, StoreError, Watch};

/// How many revisions are taken at once from memory, and how much from the file.
const FROM_MEMORY: usize = 64;
const FROM_FILE: usize = 256;
const FROM_FILE_BYTES: usize = 1 << 20;

struct Position {
    shared: Arc<Shared>,
    prefix: Bytes,
    /// The raw revision to look at next.
    next: u64,
    ready: VecDeque<Changes>,
    wake: watch::Receiver<u64>,
}

/// Everything with `prefix` after the raw revision `after`.
pub(super) fn stream(shared: Arc<Shared>, prefix: Bytes, after: u64) -> Watch {
    let wake = shared.head.subscribe();
    let position = Position { shared, prefix, next: after + 1, ready: VecDeque::new(), wake };
    Box::pin(stream::unfold(Some(position), |position| async move {
        let mut position = position?;
        match position.step().await {
            Ok(changes) => Some((Ok(changes), Some(position))),
            Err(error) => Some((Err(error), None)),
        }
    }))
}

impl Position {
    async fn step(&mut self) -> Result<Changes, StoreError> {
        loop {
            if let Some(changes) = self.ready.pop_front() {
                return Ok(changes);
            }
            self.shared.check()?;
            // Before looking, so that what comes while we look wakes us afterwards.
            self.wake.borrow_and_update();
            let recent = self.shared.history.lock().from(self.next, FROM_MEMORY);
            match recent {
                Some(recent) if recent.is_empty() => {
                    if self.wake.changed().await.is_err() {
                        return Err(StoreError::Failed { reason: "the store was closed".to_owned() });
                    }
                }
                Some(recent) => {
                    self.next += recent.len() as u64;
                    self.ready = recent.iter().filter_map(|changes| self.wanted(changes)).collect();
                }
                None => {
                    self.read_file()?;
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    fn wanted(&self, changes: &Changes) -> Option<Changes> {
        let wanted = |change: &&Change| change.key().starts_with(&self.prefix);
        let wanted: Vec<Change> = changes.changes.iter().filter(wanted).cloned().collect();
        (!wanted.is_empty()).then_some(Changes { revision: changes.revision, changes: wanted })
    }

    fn read_file(&mut self) -> Result<(), StoreError> {
        let shared = Arc::clone(&self.shared);
        shared.reading(|database| self.read_from(database))
    }

    fn read_from(&mut self, database: &Database) -> Result<(), StoreError> {
        let shared = &self.shared;
        let transaction = database.begin_read().map_err(|error| shared.failing(&error))?;
        let meta = transaction.open_table(META).map_err(|error| shared.failing(&error))?;
        let log = transaction.open_table(LOG).map_err(|error| shared.failing(&error))?;
        let versions = transaction.open_table(VERSIONS).map_err(|error| shared.failing(&error))?;
        let compacted = shared.number(&meta, tables::COMPACTED)?;
        if self.next <= compacted {
            return Err(StoreError::Compacted {
                requested: shared.outside(self.next - 1),
                oldest: shared.outside(compacted),
            });
        }
        let mut bytes = 0;
        for logged in log.range(self.next..).map_err(|error| shared.failing(&error))?.take(FROM_FILE) {
            let (revision, logged) = logged.map_err(|error| shared.failing(&error))?;
            let revision = revision.value();
            let mut changes = Vec::new();
            for key in tables::decode_log(logged.value()).map_err(|error| shared.failing(&error))?.keys {
                if !key.starts_with(&self.prefix) {
                    continue;
                }
                let version = tables::version_at(&versions, &key, revision)
                    .map_err(|error| shared.failing(&error))?
                    .filter(|version| version.revision == revision)
                    .ok_or_else(|| {
                        shared.fail(format!("revision {revision} is in the log and nowhere else"))
                    })?;
                changes.push(match entry(shared.base, key.clone(), version) {
                    Some(entry) => {
                        bytes += entry.value.len();
                        Change::Put(entry)
                    }
                    None => Change::Deleted { key },
                });
            }
            if !changes.is_empty() || self.prefix.is_empty() {
                self.ready.push_back(Changes { revision: shared.outside(revision), changes });
            }
            self.next = revision + 1;
            if bytes > FROM_FILE_BYTES {
                break;
            }
        }
        Ok(())
    }
}
