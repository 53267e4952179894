//! What the writer, the readers and the watches of one open store have in common.
//!
//! Every look into the file goes through [`Shared::reading`]: a file that turns out damaged fails
//! the store for everyone, with one reason, instead of ending the thread that happened to look.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use redb::{Database, ReadableDatabase, ReadableTable};

use super::{
    damage,
    history::History,
    patience::Patience,
    tables::{self, COMPACTED, HEAD, META, VERSIONS},
    writer::{describe, entry},
};
use crate::{Changes, Entry, Page, Range, Revision, StoreError, epoch::mark::Mark};

pub(super) struct Shared {
    /// Where the file is, for messages.
    pub place: String,
    /// Gone once the store is closed, so that a forgotten watch does not keep the file locked.
    pub database: RwLock<Option<Arc<Database>>>,
    /// What to add to a raw revision. Changes only while the store is being opened.
    pub base: u64,
    pub history: Mutex<History>,
    /// The newest raw revision, to wake watches.
    pub head: tokio::sync::watch::Sender<u64>,
    pub mark: Mutex<Option<Mark>>,
    pub patience: Arc<Patience>,
    pub failed: OnceLock<String>,
    pub threaded: bool,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    pub fn check(&self) -> Result<(), StoreError> {
        match self.failed.get() {
            None => Ok(()),
            Some(reason) => Err(StoreError::Failed { reason: reason.clone() }),
        }
    }

    /// From now on everything fails; the first reason is kept.
    pub fn fail(&self, reason: String) -> StoreError {
        let reason = self.failed.get_or_init(|| reason).clone();
        self.head.send_modify(|_| {});
        StoreError::Failed { reason }
    }

    pub fn failing(&self, error: &dyn std::error::Error) -> StoreError {
        self.fail(damage::explain_if_damaged(&self.place, describe(error)))
    }

    pub fn close(&self) {
        let clean = self.failed.get().is_none();
        self.fail("the store was closed".to_owned());
        let database = self.database.write().take();
        // Closing writes to the file, and may stumble over the same damage as whoever failed before.
        if let Err(what) = damage::caught(move || drop(database)) {
            tracing::error!("{}", damage::explain(&self.place, what));
        }
        if let (true, Some(mark)) = (clean, self.mark.lock().take()) {
            mark.close();
        }
    }

    pub fn database(&self) -> Result<Arc<Database>, StoreError> {
        self.check()?;
        let closed = || StoreError::Failed { reason: "the store was closed".to_owned() };
        self.database.read().clone().ok_or_else(closed)
    }

    /// Looks into the file. If that panics the store has failed.
    pub fn reading<T>(&self, look: impl FnOnce(&Database) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let database = self.database()?;
        let looked = damage::caught(move || look(&database));
        looked.unwrap_or_else(|what| Err(self.fail(damage::explain(&self.place, what))))
    }

    /// Before revisions up to the raw `head` become visible: sees to it that they are never used again.
    pub fn reserve(&self, head: u64) -> std::io::Result<()> {
        match self.mark.lock().as_mut() {
            Some(mark) => self.patience.with(|| mark.reserve(self.base + head)),
            None => Ok(()),
        }
    }

    /// After a batch became durable: shows it to watches.
    pub fn publish(&self, changes: Vec<Arc<Changes>>, head: u64) {
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

    pub fn outside(&self, raw: u64) -> Revision {
        Revision(self.base + raw)
    }

    /// The raw revision of one that a caller named, if it is still kept.
    pub fn inside(&self, revision: Revision, compacted: u64) -> Result<u64, StoreError> {
        match revision.0.checked_sub(self.base) {
            Some(raw) if raw >= compacted => Ok(raw),
            _ => Err(StoreError::Compacted { requested: revision, oldest: self.outside(compacted) }),
        }
    }

    pub fn number(
        &self,
        meta: &impl ReadableTable<&'static str, u64>,
        name: &str,
    ) -> Result<u64, StoreError> {
        let found = meta.get(name).map_err(|error| self.failing(&error))?;
        let number = found.map(|number| number.value());
        number.ok_or_else(|| self.fail(format!("the file lost its number {name:?}")))
    }

    pub fn read_number(&self, name: &str) -> Result<u64, StoreError> {
        self.reading(|database| {
            let transaction = database.begin_read().map_err(|error| self.failing(&error))?;
            let meta = transaction.open_table(META).map_err(|error| self.failing(&error))?;
            self.number(&meta, name)
        })
    }

    pub fn get(&self, key: &Bytes) -> Result<Option<Entry>, StoreError> {
        self.reading(|database| {
            let transaction = database.begin_read().map_err(|error| self.failing(&error))?;
            let versions = transaction.open_table(VERSIONS).map_err(|error| self.failing(&error))?;
            let version =
                tables::version_at(&versions, key, u64::MAX).map_err(|error| self.failing(&error))?;
            Ok(version.and_then(|version| entry(self.base, key.clone(), version)))
        })
    }

    pub fn range(&self, range: &Range) -> Result<Page, StoreError> {
        self.reading(|database| self.range_in(database, range))
    }

    fn range_in(&self, database: &Database, range: &Range) -> Result<Page, StoreError> {
        let transaction = database.begin_read().map_err(|error| self.failing(&error))?;
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
