//! What an action's offer depends on beside its object, seen with its reader's eyes: what they may not read is not looked at.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use serde_json::Value;

use super::super::rights::Rights;
use crate::{
    ApiServer,
    cache::{Resource, place, table::within},
    request::{ResourceRequest, Verb},
};

/// Group, plural and namespace.
type Listing = (String, String, String);

/// One reader's look at what is around their objects.
pub struct Look {
    server: ApiServer,
    rights: Rights,
    /// What was listed for one object serves the next.
    listed: Mutex<BTreeMap<Listing, Option<Arc<Vec<Value>>>>>,
}

impl Look {
    pub fn new(server: &ApiServer, rights: &Rights) -> Self {
        Look { server: server.clone(), rights: rights.clone(), listed: Mutex::default() }
    }

    /// Whether the reader may read an object at all.
    pub fn may_get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> bool {
        self.rights.may(&request(Verb::Get, group, plural, namespace, name))
    }

    /// An object, if it is there and may be read.
    pub fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        if !self.may_get(group, plural, namespace, name) {
            return None;
        }
        let found = self.server.cache.get(&Resource::new(group, plural), &place(namespace, name));
        found.map(|object| object.to_value())
    }

    /// The objects of a namespace; `None` if they may not be listed.
    pub fn list(&self, group: &str, plural: &str, namespace: &str) -> Option<Arc<Vec<Value>>> {
        let key = (group.to_owned(), plural.to_owned(), namespace.to_owned());
        if let Some(known) = self.listed.lock().get(&key) {
            return known.clone();
        }
        let may = self.rights.may(&request(Verb::List, group, plural, namespace, ""));
        let listed = may.then(|| {
            let (snapshot, _) = self.server.cache.snapshot(&Resource::new(group, plural));
            Arc::new(within(&snapshot, namespace, None).map(|object| object.to_value()).collect())
        });
        self.listed.lock().insert(key, listed.clone());
        listed
    }

    /// Of which class snapshots of the claim's volume are, if somebody takes any: what the API itself goes by.
    pub fn snapshot_class_of(&self, claim: &Value) -> Option<String> {
        self.server.snapshot_class_of(claim)
    }

    /// Whether a backup of the machine would be let in, as far as its disks go. Admission's own judgement, which anybody hears
    /// who asks for one.
    pub fn would_be_snapshotted(&self, namespace: &str, vm: &Value) -> bool {
        self.server.takes_snapshots_of(namespace, vm)
    }
}

fn request(verb: Verb, group: &str, plural: &str, namespace: &str, name: &str) -> ResourceRequest {
    ResourceRequest {
        verb,
        group: group.into(),
        version: String::new(),
        resource: plural.into(),
        subresource: String::new(),
        namespace: namespace.into(),
        name: name.into(),
    }
}
