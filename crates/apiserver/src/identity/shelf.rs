//! Objects on a shelf: the directory and the writer that tests hand in.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::Value;

use super::{Directory, Objects, WriteError, objects::text};

type Key = (String, String, String, String);

#[derive(Default)]
pub(crate) struct Shelf {
    objects: Mutex<BTreeMap<Key, Arc<Value>>>,
    revision: AtomicU64,
}

impl Shelf {
    /// Puts an object where its metadata says, replacing what is there.
    pub(crate) fn put(&self, group: &str, resource: &str, object: Value) {
        let (namespace, name) = (text(&object, "/metadata/namespace"), text(&object, "/metadata/name"));
        let key = (group.into(), resource.into(), namespace.into(), name.into());
        self.objects.lock().insert(key, Arc::new(object));
        self.revision.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn remove(&self, group: &str, resource: &str, namespace: &str, name: &str) {
        let key = (group.into(), resource.into(), namespace.into(), name.into());
        assert!(self.objects.lock().remove(&key).is_some(), "{key:?} is on the shelf");
        self.revision.fetch_add(1, Ordering::Relaxed);
    }
}

impl Directory for Shelf {
    fn object(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let key = (group.into(), resource.into(), namespace.into(), name.into());
        self.objects.lock().get(&key).cloned()
    }

    fn objects(&self, group: &str, resource: &str) -> Vec<Arc<Value>> {
        let objects = self.objects.lock();
        objects
            .iter()
            .filter(|(key, _)| key.0 == group && key.1 == resource)
            .map(|(_, v)| v.clone())
            .collect()
    }

    fn revision_of(&self, _group: &str, _resource: &str) -> u64 {
        self.revision.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Objects for Shelf {
    async fn create(
        &self,
        group: &str,
        resource: &str,
        ns: &str,
        object: Value,
    ) -> Result<Value, WriteError> {
        let name = text(&object, "/metadata/name").to_owned();
        if self.object(group, resource, ns, &name).is_some() {
            return Err(WriteError::AlreadyExists { resource: resource.into(), name });
        }
        let mut object = object;
        if text(&object, "/metadata/uid").is_empty() {
            object["metadata"]["uid"] = format!("uid-{}", self.revision.load(Ordering::Relaxed)).into();
        }
        self.put(group, resource, object.clone());
        Ok(object)
    }

    async fn update(
        &self,
        group: &str,
        resource: &str,
        ns: &str,
        object: Value,
    ) -> Result<Value, WriteError> {
        let name = text(&object, "/metadata/name").to_owned();
        if self.object(group, resource, ns, &name).is_none() {
            return Err(WriteError::NotFound { resource: resource.into(), name });
        }
        self.put(group, resource, object.clone());
        Ok(object)
    }
}
