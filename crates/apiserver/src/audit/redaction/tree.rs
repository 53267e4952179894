//! Takes out of a body what must not be said: objects, lists, tables and patches alike.

use serde_json::{Map, Value};
use sheaf_resources::redaction::{
    field::{hide_pair, is_long, is_seed, keep_references},
    looks::{is_secret_name, is_secret_text},
    text::shown_url,
};

use super::{REDACTED, class::Class};

/// What of the metadata of a closed object is harmless. Annotations are not: what was applied last is among them.
const METADATA: &[&str] = &[
    "continue",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "name",
    "namespace",
    "ownerReferences",
    "remainingItemCount",
    "resourceVersion",
    "uid",
];

/// What backs a disk and holds names alone.
const VOLUMES: &[&str] = &[
    "$patch",
    "$retainKeys",
    "configMap",
    "dataVolume",
    "name",
    "persistentVolumeClaim",
    "secret",
    "serviceAccount",
];

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Leaves in `body` what may be shown of something of that class.
pub fn redact(body: &mut Value, class: Class) {
    match body {
        // A JSON patch: nothing else that anybody sends is a list.
        Value::Array(operations) => {
            operations.iter_mut().for_each(|operation| redact_operation(operation, class))
        }
        Value::Object(object) => redact_object(object, class),
        other => *other = REDACTED.into(),
    }
}

fn redact_object(object: &mut Map<String, Value>, class: Class) {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let class = class.and(Class::of_kind(text("apiVersion"), text("kind")));
    if let Some(Value::Array(items)) = object.get_mut("items") {
        items.iter_mut().for_each(|item| redact_member(item, class));
        object.retain(|field, _| ["apiVersion", "items", "kind", "metadata"].contains(&field.as_str()));
        return;
    }
    if let Some(Value::Array(rows)) = object.get_mut("rows") {
        rows.retain(Value::is_object);
        for row in rows {
            let Some(row) = row.as_object_mut() else { continue };
            if class != Class::Open {
                row.remove("cells");
            }
            if let Some(object) = row.get_mut("object") {
                redact_member(object, class);
            }
            row.retain(|field, _| field == "cells" || field == "object");
        }
        object.retain(|field, _| ["apiVersion", "kind", "metadata", "rows"].contains(&field.as_str()));
        return;
    }
    match class {
        Class::Closed(fields) => close(object, fields),
        Class::Machine => walk_object(object, true),
        Class::Open => walk_object(object, false),
    }
}

/// An object within a list, where only an object makes sense.
fn redact_member(member: &mut Value, class: Class) {
    match member {
        Value::Object(object) => redact_object(object, class),
        other => *other = Value::Null,
    }
}

/// Drops everything but the fields that are known to be harmless.
fn close(object: &mut Map<String, Value>, fields: &[&str]) {
    object.retain(|field, value| match field.as_str() {
        "apiVersion" | "kind" => value.is_string(),
        "metadata" => {
            if let Some(metadata) = value.as_object_mut() {
                metadata.retain(|field, _| METADATA.contains(&field.as_str()));
            }
            value.is_object()
        }
        field if fields.contains(&field) => {
            walk(value, true);
            true
        }
        field => {
            let Some(inner) = value.as_object_mut() else { return false };
            inner.retain(|name, value| {
                walk(value, true);
                fields.iter().any(|path| path.split_once('.') == Some((field, name)))
            });
            !inner.is_empty()
        }
    });
}

/// Goes through everything there is. `strict` is whether texts may be somebody's scripts.
fn walk(value: &mut Value, strict: bool) {
    match value {
        Value::Object(object) => {
            // An object of a closed kind within another, as in a list of no kind of ours.
            let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
            match Class::of_kind(text("apiVersion"), text("kind")) {
                Class::Closed(fields) => close(object, fields),
                Class::Machine => walk_object(object, true),
                Class::Open => walk_object(object, strict),
            }
        }
        Value::Array(elements) => elements.iter_mut().for_each(|element| walk(element, strict)),
        Value::String(text) if is_secret_text(text) || (strict && is_long(text)) => *text = REDACTED.into(),
        Value::String(_) | Value::Bool(_) | Value::Number(_) | Value::Null => {}
    }
}

fn walk_object(object: &mut Map<String, Value>, strict: bool) {
    object.remove("managedFields");
    hide_pair(object, hide);
    for (name, value) in object.iter_mut() {
        walk_field(name, value, strict);
    }
}

fn walk_field(name: &str, value: &mut Value, strict: bool) {
    match (name, value) {
        (name, Value::Object(seed)) if is_seed(name) => keep_references(seed, hide),
        // Which fields there are is harmless, for a patch that takes one away as well.
        (name, value) if is_seed(name) || is_secret_name(name) => hide(value),
        ("annotations", Value::Object(annotations)) => {
            annotations.remove(LAST_APPLIED);
            for (name, value) in annotations.iter_mut() {
                if strict || is_secret_name(name) {
                    hide(value);
                } else {
                    walk(value, strict);
                }
            }
        }
        ("volumes", Value::Array(volumes)) if strict => volumes.iter_mut().for_each(redact_volume),
        ("url", Value::String(url)) => *url = shown_url(url),
        (_, value) => walk(value, strict),
    }
}

/// What is there is hidden; what is not is not.
fn hide(value: &mut Value) {
    if !value.is_null() {
        *value = REDACTED.into();
    }
}

fn redact_volume(volume: &mut Value) {
    let Some(volume) = volume.as_object_mut() else { return hide(volume) };
    for (name, value) in volume.iter_mut() {
        match VOLUMES.contains(&name.as_str()) || is_seed(name) {
            true => walk_field(name, value, true),
            false => hide(value),
        }
    }
}

/// One step of a JSON patch: its value is as secret as where it goes.
fn redact_operation(operation: &mut Value, class: Class) {
    let Some(operation) = operation.as_object_mut() else { return hide(operation) };
    operation.retain(|field, _| ["from", "op", "path", "value"].contains(&field.as_str()));
    let path = operation.get("path").and_then(Value::as_str).unwrap_or_default().to_owned();
    let Some(value) = operation.get_mut("value") else { return };
    let steps: Vec<String> =
        path.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~")).collect();
    let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
    let hidden = steps.iter().any(|step| is_seed(step) || is_secret_name(step) || *step == LAST_APPLIED);
    match (class, steps.as_slice()) {
        (Class::Closed(_), _) => hide(value),
        _ if hidden => hide(value),
        (Class::Machine, [.., "volumes", _]) => redact_volume(value),
        (Class::Machine, [before @ .., last]) => {
            match before.contains(&"volumes") || before.contains(&"annotations") {
                true => hide(value),
                false => walk_field(last, value, true),
            }
        }
        (Class::Open, [.., last]) => walk_field(last, value, false),
        // The whole object.
        (class, []) => match value {
            Value::Object(object) => redact_object(object, class),
            value => hide(value),
        },
    }
}
