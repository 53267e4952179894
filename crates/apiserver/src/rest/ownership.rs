//! Who owns which field: `metadata.managedFields`, kept with every write.
//!
//! The rules are [`sheaf_resources::apply`]; here is where they learn who writes, what a request reaches of an
//! object, and in which versions it can be seen. Owners are worked out on what a client asked for, before the server
//! completes it: what admission adds is nobody's, as in the original.

use std::sync::Arc;

use serde_json::Value;
use sheaf_resources::{
    apply::{self, FieldSet, Manager, Operation, Shape, Step, Versions},
    kind::Kind,
};

use super::{Call, get::seen_as, options};
use crate::{
    ApiServer,
    registry::{CRD_GROUP, CRD_PLURAL, Catalogue, Served},
};

/// Who writes when it is this server, or one of its controllers, and says no other name.
const OURSELVES: &str = "sheaf";
/// Who writes and does not say who it is.
const UNKNOWN: &str = "unknown";

impl ApiServer {
    /// The owners of a new object.
    pub(super) fn owners_of_new(&self, call: &Call<'_>, new: &Value) -> Option<Value> {
        let (rows, writer) = (self.rows(call), Writer::of(call, Operation::Update));
        let now = self.world.clock.rfc3339();
        let new = rows.seen(new);
        let owners = apply::created(&rows, &new, &writer.manager, &writer.not_reached, &now);
        settled(call, owners)
    }

    /// The owners of an object that changes from `old` to `new`, in any way but apply.
    pub(super) fn owners_after(&self, call: &Call<'_>, old: &Value, new: &Value) -> Option<Value> {
        let (rows, writer) = (self.rows(call), Writer::of(call, Operation::Update));
        let now = self.world.clock.rfc3339();
        let (old, new) = (rows.seen(old), rows.seen(new));
        let owners = apply::updated(&rows, &old, &new, &writer.manager, &writer.not_reached, &now);
        let mut owners = settled(call, owners);
        if writer.manager.subresource == "scale" {
            forget_time(&writer.manager, &mut owners);
        }
        owners
    }

    /// What comes of applying a configuration to an object in the version asked for, with its owners.
    pub(super) fn merged(
        &self,
        call: &Call<'_>,
        live: &Value,
        configuration: &Value,
        force: bool,
    ) -> Result<Value, apply::ApplyError> {
        let (rows, writer) = (self.rows(call), Writer::of(call, Operation::Apply));
        let now = self.world.clock.rfc3339();
        apply::applied(&rows, live, configuration, &writer.manager, &writer.not_reached, force, &now)
    }

    fn rows<'a>(&self, call: &'a Call<'_>) -> Rows<'a> {
        Rows { own: call.served, catalogue: self.registry.catalogue() }
    }
}

/// An object whose owners cannot be told (its lists hold what cannot be told apart) has none.
fn settled(call: &Call<'_>, owners: Result<Option<Value>, apply::ApplyError>) -> Option<Value> {
    owners.unwrap_or_else(|why| {
        tracing::warn!(kind = call.served.kind.kind, name = call.request.name, %why, "an object loses its owners");
        None
    })
}

/// What was written through `scale` has no time in the original.
fn forget_time(manager: &Manager, owners: &mut Option<Value>) {
    for entry in owners.as_mut().and_then(Value::as_array_mut).into_iter().flatten() {
        if entry["manager"] == manager.name.as_str() && entry["subresource"] == manager.subresource.as_str() {
            entry.as_object_mut().map(|entry| entry.remove("time"));
        }
    }
}

/// Takes the owners out of an object.
pub(super) fn take_owners(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

/// Gives an object its owners, and none but those.
pub(super) fn set_owners(object: &mut Value, owners: Option<Value>) {
    take_owners(object);
    if let (Some(owners), Some(Value::Object(metadata))) = (owners, object.get_mut("metadata")) {
        metadata.insert("managedFields".into(), owners);
    }
}

/// Whether two objects differ in nothing but when their owners last wrote.
pub(super) fn is_same_but_for_times(new: &Value, old: &Value) -> bool {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else { return false };
    let is_same = |name: &str, new: &Value, old: &Value| match name {
        "metadata" => same_members(new, old, |name, new, old| match name {
            "managedFields" => same_owners(new, old),
            _ => new == old,
        }),
        _ => new == old,
    };
    new.len() == old.len()
        && new.iter().all(|(name, new)| old.get(name).is_some_and(|old| is_same(name, new, old)))
}

fn same_owners(new: &Value, old: &Value) -> bool {
    let (Some(new), Some(old)) = (new.as_array(), old.as_array()) else { return new == old };
    let is_same =
        |new: &Value, old: &Value| same_members(new, old, |name, new, old| name == "time" || new == old);
    new.len() == old.len() && new.iter().zip(old).all(|(new, old)| is_same(new, old))
}

fn same_members(new: &Value, old: &Value, is_same: impl Fn(&str, &Value, &Value) -> bool) -> bool {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else { return new == old };
    new.len() == old.len()
        && new.iter().all(|(name, new)| old.get(name).is_some_and(|old| is_same(name, new, old)))
}

/// Who writes, and what of an object they do not reach.
struct Writer {
    manager: Manager,
    not_reached: FieldSet,
}

impl Writer {
    fn of(call: &Call<'_>, operation: Operation) -> Self {
        let manager = Manager {
            operation,
            name: name_of_writer(call),
            api_version: call.api_version(),
            subresource: call.request.subresource.clone(),
        };
        Writer { not_reached: not_reached(&call.served.kind, &manager.subresource), manager }
    }
}

/// As the request says, or else the program that sent it.
fn name_of_writer(call: &Call<'_>) -> String {
    if let Some(name) = call.query.get("fieldManager") {
        return name.to_owned();
    }
    let agent = call.headers.get(http::header::USER_AGENT).and_then(|agent| agent.to_str().ok());
    let name = options::manager_of_agent(agent.unwrap_or_default());
    match name.is_empty() {
        false => name,
        true if call.headers.is_empty() || call.user.is_of_the_cluster() => OURSELVES.into(),
        true => UNKNOWN.into(),
    }
}

/// What a request does not change, whatever its body says.
fn not_reached(kind: &Kind, subresource: &str) -> FieldSet {
    let is_definition = kind.group == CRD_GROUP && kind.plural == CRD_PLURAL;
    let is_pod = kind.group.is_empty() && kind.plural == "pods";
    let ways: &[&[&str]] = match subresource {
        "status" if is_definition => &[&["metadata"], &["spec"]],
        "status" if is_pod => {
            &[&["spec"], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]]
        }
        "status" => &[&["spec"]],
        "scale" => &[],
        _ if kind.status => &[&["status"]],
        _ => &[],
    };
    let mut set = FieldSet::default();
    for way in ways {
        set.insert(&way.iter().map(|name| Step::field(name)).collect::<Vec<_>>());
    }
    set
}

/// The versions of one kind.
struct Rows<'a> {
    own: &'a Arc<Served>,
    catalogue: Arc<Catalogue>,
}

impl Rows<'_> {
    /// A stored object in the version asked for.
    fn seen<'v>(&self, stored: &'v Value) -> std::borrow::Cow<'v, Value> {
        let kind = &self.own.kind;
        match kind.conversion.is_none() && kind.api_version() == kind.stored_version {
            true => std::borrow::Cow::Borrowed(stored),
            false => std::borrow::Cow::Owned(seen_as(kind, stored.clone())),
        }
    }

    fn row(&self, api_version: &str) -> Option<&Kind> {
        if self.own.kind.api_version() == api_version {
            return Some(&self.own.kind);
        }
        let is_it =
            |row: &&Arc<Served>| row.resource == self.own.resource && row.kind.api_version() == api_version;
        self.catalogue.all().find(is_it).map(|row| &row.kind)
    }
}

impl Versions for Rows<'_> {
    fn shape(&self, api_version: &str) -> Option<Shape<'_>> {
        self.row(api_version).map(|kind| Shape::of(kind.schema.look()))
    }

    fn convert(&self, object: &Value, api_version: &str) -> Value {
        let mut object = object.clone();
        let from = object["apiVersion"].as_str().unwrap_or_default().to_owned();
        if from == api_version {
            return object;
        }
        if let Some(conversion) = self.row(&from).and_then(|kind| kind.conversion) {
            (conversion.into_stored)(&mut object);
        }
        match self.row(api_version) {
            Some(kind) => seen_as(kind, object),
            None => object,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_time_is_no_change() {
        let object = |time: &str, value: i64| json!({"metadata": {"name": "a", "managedFields": [{"manager": "m", "time": time}]}, "v": value});
        assert!(is_same_but_for_times(&object("1", 1), &object("2", 1)));
        assert!(!is_same_but_for_times(&object("1", 1), &object("2", 2)));
        let mut other = object("1", 1);
        other["metadata"]["managedFields"][0]["manager"] = "n".into();
        assert!(!is_same_but_for_times(&other, &object("1", 1)));
        let mut none = object("1", 1);
        set_owners(&mut none, None);
        assert!(!is_same_but_for_times(&none, &object("1", 1)));
    }
}
