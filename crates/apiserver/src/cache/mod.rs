//! The watch cache: every object once, encoded, fed by one watch of the whole store.
//!
//! ```text
//!   store --list at the oldest kept revision, then one watch--> feed
//!                                                                | a revision at a time
//!                                          tables (one per resource, objects + log)
//!                                                                | applied revision
//!                                     gets, lists (snapshots)  watches (pull from the log)
//! ```
//!
//! Because every revision of the store is delivered to the one watch, the cache knows how far it is:
//! a linearizable read asks the store for its newest revision and waits until that is
//! applied here. Filling begins at the oldest revision the store still keeps (bounded), so a
//! watcher can resume across a restart of the server.
//!
//! The cache is derived; losing it loses nothing.

pub mod following;
mod newest;
pub mod object;
pub mod progress;
pub mod table;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::StreamExt;
use parking_lot::RwLock;
use sheaf_store::{Change, Changes, Range, Revision, Store, StoreError};
use tokio::sync::watch;

use self::{
    newest::Newest,
    object::{CachedObject, Unreadable},
    progress::Progress,
    table::{Snapshot, Table, TableChange, TooOld},
};

/// Objects live under this prefix: `/o/<group or core>/<resource>/<namespace>/<name>`.
pub const OBJECTS: &str = "/o/";
/// How many revisions back the cache begins, so that watches resume across a restart.
const HISTORY_REVISIONS: u64 = 4096;
/// Entries read from the store at a time while filling.
const FILL_PAGE: usize = 1000;
const FEED_RETRY: Duration = Duration::from_millis(200);

/// Which objects: the group (empty for core) and the plural name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    pub group: Arc<str>,
    pub plural: Arc<str>,
}

impl Resource {
    pub fn new(group: &str, plural: &str) -> Self {
        Resource { group: group.into(), plural: plural.into() }
    }

    /// The store prefix all its objects share.
    pub fn prefix(&self) -> String {
        let group = if self.group.is_empty() { "core" } else { &self.group };
        format!("{OBJECTS}{group}/{}/", self.plural)
    }

    pub fn store_key(&self, place: &str) -> Bytes {
        format!("{}{place}", self.prefix()).into()
    }
}

/// `namespace/name`, the place of an object in its table.
pub fn place(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

/// Turns stored bytes into the JSON text of an object (decryption, for kinds that are sealed).
pub trait Unseal: Send + Sync + 'static {
    fn unseal(&self, store_key: &[u8], stored: &Bytes) -> Result<Bytes, String>;
}

/// Re-reads an object with the schema of its kind; `None` when that changes nothing.
pub type Refine = Arc<dyn Fn(&CachedObject) -> Option<CachedObject> + Send + Sync>;

pub struct Cache {
    store: Arc<dyn Store>,
    unseal: Arc<dyn Unseal>,
    tables: RwLock<BTreeMap<Resource, Arc<Table>>>,
    refiners: RwLock<BTreeMap<Resource, Refine>>,
    applied: Progress,
    newest: Newest,
    /// Where filling began: every table's log is complete since then.
    began: AtomicU64,
    /// Held while one revision is applied, so that what is read at one moment is one revision.
    moment: RwLock<()>,
    /// Why the feed stopped for good, when it did.
    failed: watch::Sender<Option<String>>,
}

impl Cache {
    /// Fills the cache and starts the feed. Returns once everything acknowledged before the call is in.
    pub async fn start(store: Arc<dyn Store>, unseal: Arc<dyn Unseal>) -> Result<Arc<Self>, StoreError> {
        let cache = Arc::new(Cache {
            store,
            unseal,
            tables: RwLock::default(),
            refiners: RwLock::default(),
            applied: Progress::new(0),
            newest: Newest::default(),
            began: AtomicU64::new(0),
            moment: RwLock::new(()),
            failed: watch::Sender::new(None),
        });
        let began = cache.fill().await?;
        let feeding = cache.clone();
        tokio::spawn(async move { feeding.feed(began).await });
        cache.wait_until_current().await?;
        Ok(cache)
    }

    /// The table of a resource; an empty one when nothing of it was ever stored.
    pub fn table(&self, resource: &Resource) -> Arc<Table> {
        if let Some(table) = self.tables.read().get(resource) {
            return table.clone();
        }
        let began = self.began.load(Ordering::Acquire);
        self.tables.write().entry(resource.clone()).or_insert_with(|| Arc::new(Table::new(began))).clone()
    }

    pub fn get(&self, resource: &Resource, place: &str) -> Option<Arc<CachedObject>> {
        self.tables.read().get(resource)?.get(place)
    }

    /// All objects of a resource and the one revision at which they stood so.
    pub fn snapshot(&self, resource: &Resource) -> (Snapshot, u64) {
        let table = self.table(resource);
        let _moment = self.moment.read();
        (table.snapshot(), self.applied())
    }

    /// What happened to a table after a revision, and the revision up to which that is all.
    pub fn changes_after(
        &self,
        table: &Table,
        after: u64,
        most: usize,
    ) -> Result<(Vec<TableChange>, u64), TooOld> {
        let _moment = self.moment.read();
        let changes = table.changes_after(after, most)?;
        let through =
            if changes.len() < most { self.applied() } else { changes.last().map_or(after, |c| c.revision) };
        Ok((changes, through))
    }

    /// How far the cache is.
    pub fn applied(&self) -> u64 {
        self.applied.get()
    }

    /// Waits until everything acknowledged before the call is in the cache.
    pub async fn wait_until_current(&self) -> Result<u64, StoreError> {
        let newest = self.newest.ask(&*self.store).await?;
        self.wait_for(newest).await?;
        Ok(newest)
    }

    /// Waits until `revision` is applied; for ever, if it never is.
    pub async fn wait_for(&self, revision: u64) -> Result<(), StoreError> {
        if self.applied() >= revision {
            return Ok(());
        }
        let mut failed = self.failed.subscribe();
        tokio::select! {
            biased;
            () = self.applied.reaches(revision) => Ok(()),
            why = failed.wait_for(Option::is_some) => {
                let why = why.ok().and_then(|why| why.clone());
                Err(stopped(why.as_deref().unwrap_or("the cache was dropped")))
            }
        }
    }

    /// Why the feed stopped, when it did: the server is then no longer live.
    pub fn failure(&self) -> Option<String> {
        self.failed.borrow().clone()
    }

    /// Sets how objects of a custom resource are read and re-reads those already here.
    pub fn set_refiner(&self, resource: &Resource, refine: Option<Refine>) {
        match refine {
            Some(refine) => {
                self.refiners.write().insert(resource.clone(), refine.clone());
                self.table(resource).refine(&*refine);
            }
            None => {
                self.refiners.write().remove(resource);
            }
        }
    }

    /// Loads the state at the oldest revision worth having; answers that revision.
    async fn fill(&self) -> Result<Revision, StoreError> {
        loop {
            match self.fill_at_one_revision().await {
                // Compaction ran between our question and our read: ask again.
                Err(StoreError::Compacted { .. }) => self.tables.write().clear(),
                done => return done,
            }
        }
    }

    async fn fill_at_one_revision(&self) -> Result<Revision, StoreError> {
        let newest = self.store.revision().await?.0;
        let oldest = self.store.compacted().await?.0;
        let at = Revision(oldest.max(newest.saturating_sub(HISTORY_REVISIONS)));
        self.applied.set(at.0);
        self.began.store(at.0, Ordering::Release);
        if at.0 == 0 {
            return Ok(at);
        }
        let mut after = None;
        loop {
            let range = Range { prefix: OBJECTS.into(), after, limit: FILL_PAGE, at: Some(at) };
            let page = self.store.range(range).await?;
            for entry in &page.entries {
                let Some((resource, place)) = parse_key(&entry.key) else { continue };
                match self.read(&entry.key, place, entry.modified.0, &entry.value) {
                    Ok(object) => self.table(&resource).load(object),
                    Err(why) => tracing::error!(%why, "left out of the API; restore it or its key"),
                }
            }
            match page.entries.last() {
                Some(last) if page.more => after = Some(last.key.clone()),
                _ => return Ok(at),
            }
        }
    }

    /// Applies changes until the store says it will never give more.
    async fn feed(&self, began: Revision) {
        let mut last = began;
        loop {
            match self.store.watch(Bytes::new(), last).await {
                Ok(mut changes) => {
                    while let Some(next) = changes.next().await {
                        match next {
                            Ok(changes) => {
                                last = changes.revision;
                                self.apply(changes);
                            }
                            Err(why) if is_final(&why) => return self.fail(&why),
                            Err(why) => {
                                tracing::warn!(%why, "the store's watch broke; watching again");
                                break;
                            }
                        }
                    }
                }
                Err(why) if is_final(&why) => return self.fail(&why),
                Err(why) => tracing::warn!(%why, "the store cannot be watched; trying again"),
            }
            tokio::time::sleep(FEED_RETRY).await;
        }
    }

    fn fail(&self, why: &StoreError) {
        tracing::error!(%why, "the API can no longer follow the store and must be started again");
        self.failed.send_replace(Some(why.to_string()));
    }

    fn apply(&self, changes: Changes) {
        let revision = changes.revision.0;
        let _moment = self.moment.write();
        for change in changes.changes {
            match change {
                Change::Put(entry) => {
                    let Some((resource, place)) = parse_key(&entry.key) else { continue };
                    match self.read(&entry.key, place, revision, &entry.value) {
                        Ok(object) => {
                            let object = self.refined(&resource, object);
                            self.table(&resource).put(object);
                        }
                        Err(why) => {
                            tracing::error!(%why, "left out of the API; restore it or its key");
                            // What it was before is not what it is.
                            self.table(&resource).remove(place, revision);
                        }
                    }
                }
                Change::Deleted { key } => {
                    let Some((resource, place)) = parse_key(&key) else { continue };
                    self.table(&resource).remove(place, revision);
                }
            }
        }
        self.applied.set(revision);
    }

    /// Reads stored bytes as the cache would: for reads of an older revision too.
    pub fn read(
        &self,
        key: &Bytes,
        place: &str,
        revision: u64,
        stored: &Bytes,
    ) -> Result<CachedObject, Unreadable> {
        let text = self
            .unseal
            .unseal(key, stored)
            .map_err(|reason| Unreadable { place: String::from_utf8_lossy(key).into_owned(), reason })?;
        CachedObject::decode(place.into(), revision, &text)
    }

    pub fn refined(&self, resource: &Resource, object: CachedObject) -> CachedObject {
        let refine = self.refiners.read().get(resource).cloned();
        match refine {
            Some(refine) => refine(&object).unwrap_or(object),
            None => object,
        }
    }
}

fn is_final(error: &StoreError) -> bool {
    matches!(error, StoreError::Failed { .. } | StoreError::Compacted { .. })
}

fn stopped(reason: &str) -> StoreError {
    StoreError::Failed { reason: reason.to_string() }
}

/// Splits a store key into resource and place.
pub fn parse_key(key: &[u8]) -> Option<(Resource, &str)> {
    let text = std::str::from_utf8(key).ok()?.strip_prefix(OBJECTS)?;
    let (group, rest) = text.split_once('/')?;
    let (plural, place) = rest.split_once('/')?;
    place.contains('/').then(|| (Resource::new(if group == "core" { "" } else { group }, plural), place))
}
