//! The annotation in which client-side apply keeps what it was last given.
//!
//! Who changes over to server-side apply with kubectl is not at odds with the client-side kubectl that wrote before:
//! what the annotation asks for, and the object still has, may be taken. From then on the annotation follows what is
//! applied, so that one can change back.

use serde_json::{Map, Value};

use super::{
    field_set::FieldSet,
    shape::Shape,
    typed::{compare, fields_of},
};
use crate::names;

pub const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Only for this manager, which is kubectl's where none is chosen.
const MANAGER: &str = "kubectl";

pub(super) fn concerns(manager: &str) -> bool {
    manager == MANAGER
}

/// The fields that client-side apply asked for and the object still has; nothing where that cannot be told.
pub(super) fn fields(live: &Value, api_version: &str, shape: Shape<'_>) -> Option<FieldSet> {
    let text = live["metadata"]["annotations"][ANNOTATION].as_str().filter(|text| !text.is_empty())?;
    let last: Value = serde_json::from_str(text).ok()?;
    if last["apiVersion"] != api_version {
        return None;
    }
    let asked = fields_of(&last, shape).ok()?;
    let changes = compare(&last, live, shape).ok()?;
    Some(asked.difference(&changes.modified).difference(&changes.added).difference(&changes.removed))
}

/// Keeps the annotation of an object that has one in step with what is applied.
pub(super) fn follow(object: &mut Value, configuration: &Value) {
    let Some(annotations) = object["metadata"]["annotations"].as_object_mut() else { return };
    if annotations.get(ANNOTATION).and_then(Value::as_str).is_none_or(str::is_empty) {
        return;
    }
    let mut applied = configuration.clone();
    if let Some(Value::Object(metadata)) = applied.get_mut("metadata")
        && let Some(Value::Object(of_applied)) = metadata.get_mut("annotations")
    {
        of_applied.remove(ANNOTATION);
        if of_applied.is_empty() {
            metadata.remove("annotations");
        }
    }
    annotations.insert(ANNOTATION.into(), format!("{}\n", in_order(&applied)).into());
    let members = annotations.iter().map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()));
    if !names::annotations_fit(members) {
        annotations.remove(ANNOTATION);
    }
}

/// With the members of every object in the order of their names.
fn in_order(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by_key(|(name, _)| *name);
            let members = members.into_iter().map(|(name, value)| (name.clone(), in_order(value)));
            Value::Object(members.collect::<Map<_, _>>())
        }
        Value::Array(elements) => elements.iter().map(in_order).collect(),
        scalar => scalar.clone(),
    }
}
