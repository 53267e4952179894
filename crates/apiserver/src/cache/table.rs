//! All objects of one resource, in order, with the changes that led here.
//!
//! Readers take a snapshot (a clone of a persistent map: constant time) and work on
//! it without holding the lock. Watchers pull from the log of recent changes by revision; one
//! that falls so far behind that the log has moved on is told to list again, so
//! however slow a reader is, it costs no memory.

use std::{collections::VecDeque, ops::Bound, sync::Arc};

use imbl::OrdMap;
use parking_lot::RwLock;

use super::{object::CachedObject, progress::Progress};

/// At most so many changes are kept for watchers that resume.
const LOG_CHANGES: usize = 8192;
/// And at most so many bytes of objects that only the log still holds.
const LOG_BYTES: usize = 4 << 20;

/// What happened to one object.
#[derive(Clone, Debug)]
pub struct TableChange {
    pub revision: u64,
    /// The object before, if there was one.
    pub before: Option<Arc<CachedObject>>,
    pub after: Option<Arc<CachedObject>>,
}

impl TableChange {
    fn bytes(&self) -> usize {
        self.before.as_ref().map_or(0, |object| object.tail.len())
    }
}

#[derive(Debug)]
pub struct Table {
    state: RwLock<State>,
    /// The revision of the newest change; wakes watchers.
    changed: Progress,
}

#[derive(Debug)]
struct State {
    objects: OrdMap<Arc<str>, Arc<CachedObject>>,
    log: VecDeque<TableChange>,
    log_bytes: usize,
    /// The log holds every change after this revision.
    complete_since: u64,
}

/// The state of a table at one moment.
pub type Snapshot = OrdMap<Arc<str>, Arc<CachedObject>>;

/// The watcher's position is older than what is kept.
#[derive(Debug, PartialEq)]
pub struct TooOld {
    pub oldest: u64,
}

impl Table {
    pub fn new(complete_since: u64) -> Self {
        Table {
            state: RwLock::new(State {
                objects: OrdMap::new(),
                log: VecDeque::new(),
                log_bytes: 0,
                complete_since,
            }),
            changed: Progress::new(complete_since),
        }
    }

    pub fn get(&self, place: &str) -> Option<Arc<CachedObject>> {
        self.state.read().objects.get(place).cloned()
    }

    pub fn snapshot(&self) -> Snapshot {
        self.state.read().objects.clone()
    }

    /// The revision of the last change: differs whenever any object of the table does.
    pub fn changed(&self) -> u64 {
        self.changed.get()
    }

    /// Waits for a change later than the one whose revision was `seen`.
    pub async fn changes(&self, seen: u64) {
        self.changed.passes(seen).await;
    }

    /// About `most` changes with revisions greater than `after`: a revision is given whole.
    pub fn changes_after(&self, after: u64, most: usize) -> Result<Vec<TableChange>, TooOld> {
        let state = self.state.read();
        if after < state.complete_since {
            return Err(TooOld { oldest: state.complete_since });
        }
        let start = state.log.partition_point(|change| change.revision <= after);
        let mut changes: Vec<TableChange> = Vec::new();
        for change in state.log.iter().skip(start) {
            if changes.len() >= most && changes.last().is_some_and(|last| last.revision != change.revision) {
                break;
            }
            changes.push(change.clone());
        }
        Ok(changes)
    }

    /// Puts an object in while the cache is first filled: no change is logged.
    pub(super) fn load(&self, object: CachedObject) {
        self.state.write().objects.insert(object.place.clone(), Arc::new(object));
    }

    pub(super) fn put(&self, object: CachedObject) {
        let object = Arc::new(object);
        let revision = object.revision;
        let mut state = self.state.write();
        let before = state.objects.insert(object.place.clone(), object.clone());
        state.record(TableChange { revision, before, after: Some(object) });
        drop(state);
        self.changed.set(revision);
    }

    pub(super) fn remove(&self, place: &str, revision: u64) {
        let mut state = self.state.write();
        let Some(before) = state.objects.remove(place) else { return };
        state.record(TableChange { revision, before: Some(before), after: None });
        drop(state);
        self.changed.set(revision);
    }

    /// Re-reads every object through `refine` without a change of revision: the schema changed,
    /// not the objects.
    pub(super) fn refine(&self, refine: impl Fn(&CachedObject) -> Option<CachedObject>) {
        let snapshot = self.snapshot();
        let refined: Vec<_> = snapshot.values().filter_map(|object| refine(object)).collect();
        let mut state = self.state.write();
        for object in refined {
            // An object that changed meanwhile was already read with the new schema.
            if state.objects.get(&object.place).is_some_and(|now| now.revision == object.revision) {
                state.objects.insert(object.place.clone(), Arc::new(object));
            }
        }
    }
}

impl State {
    fn record(&mut self, change: TableChange) {
        self.log_bytes += change.bytes();
        self.log.push_back(change);
        while self.log.len() > LOG_CHANGES || self.log_bytes > LOG_BYTES {
            let Some(oldest) = self.log.pop_front() else { break };
            self.log_bytes -= oldest.bytes();
            self.complete_since = oldest.revision;
        }
        // A revision leaves the log whole: half of one would be a gap.
        while self.log.front().is_some_and(|next| next.revision <= self.complete_since) {
            if let Some(oldest) = self.log.pop_front() {
                self.log_bytes -= oldest.bytes();
            }
        }
    }
}

/// The objects of one namespace, or all when it is empty, whose place is greater than `after`.
pub fn within<'a>(
    snapshot: &'a Snapshot,
    namespace: &str,
    after: Option<&str>,
) -> impl Iterator<Item = &'a Arc<CachedObject>> + use<'a> {
    let low = match (namespace, after) {
        (_, Some(after)) => Bound::Excluded(Arc::<str>::from(after)),
        ("", None) => Bound::Unbounded,
        (namespace, None) => Bound::Included(format!("{namespace}/").into()),
    };
    let high: Bound<Arc<str>> = match namespace {
        "" => Bound::Unbounded,
        // '0' is the character after '/'.
        namespace => Bound::Excluded(format!("{namespace}0").into()),
    };
    snapshot.range((low, high)).map(|(_, object)| object)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::object::encode, *};

    fn object(place: &str, revision: u64) -> CachedObject {
        let stored = encode(&json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": place}}));
        CachedObject::decode(place.into(), revision, &stored).unwrap()
    }

    #[test]
    fn a_reader_keeps_its_snapshot_while_the_table_moves_on() {
        let table = Table::new(0);
        table.put(object("a/x", 1));
        let before = table.snapshot();
        table.put(object("a/y", 2));
        table.remove("a/x", 3);
        assert_eq!(before.len(), 1);
        assert_eq!(table.snapshot().keys().map(|k| &**k).collect::<Vec<_>>(), ["a/y"]);
    }

    #[test]
    fn a_namespace_is_read_without_its_neighbours() {
        let table = Table::new(0);
        for (n, place) in ["a-b/x", "a/x", "a/y", "a0/x", "b/x"].iter().enumerate() {
            table.put(object(place, n as u64 + 1));
        }
        let snapshot = table.snapshot();
        let places =
            |ns: &str, after| within(&snapshot, ns, after).map(|o| o.place.to_string()).collect::<Vec<_>>();
        assert_eq!(places("a", None), ["a/x", "a/y"]);
        assert_eq!(places("a", Some("a/x")), ["a/y"]);
        assert_eq!(places("", Some("a/y")), ["a0/x", "b/x"]);
        assert_eq!(places("", None).len(), 5);
    }

    #[test]
    fn a_watcher_behind_the_log_is_told_to_list_again() {
        let table = Table::new(0);
        for revision in 1..=(LOG_CHANGES as u64 + 10) {
            table.put(object("a/x", revision));
        }
        assert_eq!(table.changes_after(3, 10).unwrap_err(), TooOld { oldest: 10 });
        let changes = table.changes_after(10, 5).unwrap();
        assert_eq!(changes.iter().map(|c| c.revision).collect::<Vec<_>>(), [11, 12, 13, 14, 15]);
    }

    #[test]
    fn removing_what_is_not_there_is_no_change() {
        let table = Table::new(5);
        table.remove("a/x", 6);
        assert_eq!(table.changed(), 5);
        assert!(table.changes_after(5, 9).unwrap().is_empty());
    }
}
