//! What one question needs of every object of a resource, kept in step with the cache.
//!
//! Some questions are about all machines at once: who has this hardware address, who uses that claim. Reading
//! every object for each would make a request as slow as the cluster is large. Here an object is read once
//! when it changed, by the next one who asks, and only what the question needs of it is kept.
//!
//! Derived like the cache itself: losing it loses nothing.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use serde_json::Value;

use super::{Cache, Resource};

/// Changes read at a time.
const AT_ONCE: usize = 1024;

pub struct Following<T> {
    resource: Resource,
    read: fn(&Value) -> T,
    seen: Mutex<Seen<T>>,
}

struct Seen<T> {
    /// The revision these are the facts of; none before the first look.
    at: Option<u64>,
    /// By place.
    facts: BTreeMap<Arc<str>, T>,
}

impl<T> Following<T> {
    pub fn new(group: &str, plural: &str, read: fn(&Value) -> T) -> Self {
        let seen = Mutex::new(Seen { at: None, facts: BTreeMap::new() });
        Following { resource: Resource::new(group, plural), read, seen }
    }

    /// Answers `ask` from the facts of all objects as the cache has them now, by their places.
    pub fn ask<R>(&self, cache: &Cache, ask: impl FnOnce(&BTreeMap<Arc<str>, T>) -> R) -> R {
        let mut seen = self.seen.lock();
        self.catch_up(cache, &mut seen);
        ask(&seen.facts)
    }

    fn catch_up(&self, cache: &Cache, seen: &mut Seen<T>) {
        let table = cache.table(&self.resource);
        while let Some(after) = seen.at {
            let Ok((changes, through)) = cache.changes_after(&table, after, AT_ONCE) else { break };
            for change in &changes {
                match (&change.after, &change.before) {
                    (Some(object), _) => {
                        seen.facts.insert(object.place.clone(), (self.read)(&object.to_value()));
                    }
                    (None, Some(gone)) => {
                        seen.facts.remove(&gone.place);
                    }
                    (None, None) => {}
                }
            }
            seen.at = Some(through);
            if changes.len() < AT_ONCE {
                return;
            }
        }
        // The first look, or so much happened since the last one that it is no longer known what.
        let (snapshot, at) = cache.snapshot(&self.resource);
        seen.facts =
            snapshot.iter().map(|(place, object)| (place.clone(), (self.read)(&object.to_value()))).collect();
        seen.at = Some(at);
    }
}
