//! What identity reads and writes of the cluster's objects, through whoever serves them.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};
pub(crate) use sheaf_resources::object_meta::is_being_deleted;

use crate::authorization::node::bound::{self, Bound};

/// The objects as the API server last saw them. Reads cost no I/O: they happen on every request.
pub trait Directory: Send + Sync {
    /// `namespace` is empty for what has none.
    fn object(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>>;

    /// Every object of one resource, ordered by namespace and name.
    fn objects(&self, group: &str, resource: &str) -> Vec<Arc<Value>>;

    /// A number that changes whenever any object of the resource did. What was computed from
    /// [`objects`](Directory::objects) after reading the number holds for as long as it stays the same.
    fn revision_of(&self, group: &str, resource: &str) -> u64;

    /// Whether a machine that is bound to the node refers to the Secret.
    fn is_needed_on(&self, node: &str, namespace: &str, secret: &str) -> bool {
        let instances = self.objects(bound::GROUP, bound::INSTANCES);
        instances.iter().any(|instance| {
            text(instance, "/metadata/namespace") == namespace && Bound::read(instance).needs(node, secret)
        })
    }
}

/// Writes objects as the API server itself, past authorization but not past admission.
#[async_trait]
pub trait Objects: Send + Sync {
    /// Answers the object as stored. `namespace` is empty for what has none.
    async fn create(
        &self,
        group: &str,
        resource: &str,
        namespace: &str,
        object: Value,
    ) -> Result<Value, WriteError>;

    /// Replaces the object named in the metadata, which also says the resourceVersion it was read at.
    async fn update(
        &self,
        group: &str,
        resource: &str,
        namespace: &str,
        object: Value,
    ) -> Result<Value, WriteError>;
}

/// Divided by what the writer can do next.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum WriteError {
    #[error("{resource} {name:?} already exists")]
    AlreadyExists { resource: String, name: String },
    /// Somebody else was faster: read again and try again.
    #[error("{resource} {name:?} changed in the meantime")]
    Conflict { resource: String, name: String },
    #[error("{resource} {name:?} not found")]
    NotFound { resource: String, name: String },
    #[error("cannot write {resource} {name:?}: {reason}")]
    Failed { resource: String, name: String, reason: String },
}

/// What the rules here read of every object's metadata.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

pub(crate) fn texts(object: &Value, pointer: &str) -> Vec<String> {
    let list = object.pointer(pointer).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Whether what was made for a user was made for this very one, and not for one of the same name that is gone.
/// What names no user was made for nobody.
pub(crate) fn is_made_for(object: &Value, user: &Value) -> bool {
    !uid(user).is_empty() && owning_users(object).any(|owner| text(owner, "/uid") == uid(user))
}

/// The users that an object says it was made for.
pub(crate) fn owning_users(object: &Value) -> impl Iterator<Item = &Value> {
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    owners.into_iter().flatten().filter(|owner| text(owner, "/kind") == "User")
}

/// The owner reference that says so; empty while the user has no uid.
pub(crate) fn made_for(user: &Value) -> Vec<Value> {
    let (name, uid) = (text(user, "/metadata/name"), uid(user));
    if uid.is_empty() {
        return Vec::new();
    }
    vec![json!({ "apiVersion": "management.cattle.io/v3", "kind": "User", "name": name, "uid": uid })]
}
