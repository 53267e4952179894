//! One object: as its type reads it, and as it came.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::DynamicObject;
use serde_json::{Map, Value};

use super::{HasMetadata, Kind};

/// Cheap to copy. The type's metadata goes without managedFields, which nobody decides on.
#[derive(Debug)]
pub struct Known<T> {
    pub typed: Arc<T>,
    /// Kept for whoever writes the object back, with all that its type does not know.
    text: Arc<str>,
}

impl<T> Clone for Known<T> {
    fn clone(&self) -> Self {
        Known { typed: self.typed.clone(), text: self.text.clone() }
    }
}

#[derive(Clone, Debug, thiserror::Error)]
#[error("{what} cannot be read: {why}")]
pub struct Unreadable {
    what: String,
    why: String,
}

impl<T: Kind> Known<T> {
    pub fn read(text: &str) -> Result<Self, Unreadable> {
        let mut typed: T = serde_json::from_str(text).map_err(unreadable::<T>)?;
        typed.meta_mut().managed_fields = None;
        Ok(Known { typed: Arc::new(typed), text: text.into() })
    }

    /// An item of a list need not say what it is, and some types insist.
    pub fn read_item(item: &str) -> Result<Self, Unreadable> {
        let mut item: Map<String, Value> = serde_json::from_str(item).map_err(unreadable::<T>)?;
        item.insert("apiVersion".into(), T::api_version(&()).as_ref().into());
        item.insert("kind".into(), T::kind(&()).as_ref().into());
        Self::read(&Value::Object(item).to_string())
    }

    /// All that came, to be changed and written back.
    pub fn whole(&self) -> Result<DynamicObject, serde_json::Error> {
        serde_json::from_str(&self.text)
    }

    pub fn metadata(&self) -> &ObjectMeta {
        self.typed.meta()
    }

    pub(super) fn version(&self) -> u64 {
        version_of(self.metadata().resource_version.as_deref().unwrap_or_default())
    }

    /// Nothing holds it any more, so it went with the answer it came in.
    pub(super) fn is_gone(&self) -> bool {
        let metadata = self.metadata();
        metadata.deletion_timestamp.is_some() && metadata.finalizers.iter().flatten().next().is_none()
    }
}

impl<T: Kind> HasMetadata for Known<T> {
    fn metadata(&self) -> &ObjectMeta {
        self.typed.meta()
    }
}

fn unreadable<T: Kind>(why: serde_json::Error) -> Unreadable {
    Unreadable { what: format!("a {}", T::kind(&())), why: why.to_string() }
}

/// A version that is no number is older than every other.
pub(super) fn version_of(version: &str) -> u64 {
    version.parse().unwrap_or(0)
}
