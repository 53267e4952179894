//! An object as it is handed out in a support bundle: to be read by people who have no business with its secrets.
//!
//! | kinds | what is left |
//! |---|---|
//! | Secrets and ConfigMaps | the names of their values |
//! | users, API tokens | a few fields by name |
//! | settings | all of those that hold numbers and versions; of others that they are there |
//! | kinds that were thought about | all but seeds for cloud-init, annotations, unknown volumes and parameters, what containers run, long texts, and what is named or looks like a secret |
//! | all others, custom resources too | fields, numbers, conditions, and no words |
//!
//! and of none of them `managedFields` or what kubectl applied last, where everything stands a second time.

use serde_json::{Map, Value};

use super::{
    REDACTED,
    field::{LONG_TEXT, hide_pair, is_long, is_seed, keep_references},
    looks::{is_secret_name, is_secret_text},
    rule::{self, Rule},
    text::{scrubbed, shown_url},
};

/// What of an object's metadata is shown beside labels and annotations.
const METADATA: &[&str] = &[
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "uid",
];

/// Annotations that the system writes, of which none is anybody's.
const ANNOTATIONS: &[&str] = &[
    "harvesterhci.io/imageId",
    "harvesterhci.io/is-reserved-storageclass",
    "harvesterhci.io/mac-address",
    "harvesterhci.io/storageClassName",
    "harvesterhci.io/vmRunStrategy",
    "pv.kubernetes.io/provisioned-by",
    "sheaf.io/claim",
    "sheaf.io/failed",
    "sheaf.io/grown-to",
    "sheaf.io/image",
    "sheaf.io/made",
    "sheaf.io/node",
    "storageclass.kubernetes.io/is-default-class",
    "volume.kubernetes.io/storage-provisioner",
];

/// Parameters of classes and attributes of volumes that are numbers and names of ours.
const PARAMETERS: &[&str] = &[
    "backingImage",
    "dataLocality",
    "encrypted",
    "fsType",
    "migratable",
    "numberOfReplicas",
    "sheaf.io/backend",
    "sheaf.io/image",
    "sheaf.io/imageUid",
    "staleReplicaTimeout",
    "type",
];

/// What backs a disk and holds names alone.
const VOLUMES: &[&str] =
    &["configMap", "dataVolume", "name", "persistentVolumeClaim", "secret", "serviceAccount"];

/// What of a condition is never anybody's words.
const CONDITION: &[&str] =
    &["lastTransitionTime", "lastUpdateTime", "observedGeneration", "reason", "status", "type"];

/// Messages are ours, or about what is ours, and may be longer.
const LONG_MESSAGE: usize = 4096;

/// Leaves in an object of this kind what may be shown of it.
pub fn redact(group: &str, plural: &str, object: &mut Value) {
    let Some(fields) = object.as_object_mut() else {
        hide(object);
        return;
    };
    let name =
        fields.get("metadata").and_then(|metadata| metadata["name"].as_str()).unwrap_or_default().to_owned();
    let rule = rule::of(group, plural);
    fields.retain(|field, value| match field.as_str() {
        "apiVersion" | "kind" => value.is_string(),
        "metadata" => {
            redact_metadata(value);
            value.is_object()
        }
        field => redact_part(rule, &name, field, value),
    });
}

/// One field of an object beside its metadata; answers whether it is shown at all.
fn redact_part(rule: Rule, name: &str, field: &str, value: &mut Value) -> bool {
    match rule {
        Rule::Known => walk_field(field, value, Words::Shown),
        Rule::Definition => walk_field(field, value, Words::OfADefinition),
        Rule::Shape => walk_field(field, value, Words::Hidden),
        Rule::Names(shown) if shown.contains(&field) => walk_field(field, value, Words::Shown),
        Rule::Names(_) => match (field, &mut *value) {
            ("data" | "binaryData" | "stringData", Value::Object(values)) => {
                values.values_mut().for_each(hide)
            }
            _ => return false,
        },
        Rule::Only(shown) if shown.contains(&field) => walk_field(field, value, Words::Shown),
        Rule::Only(_) => return false,
        Rule::Named { field: shown, names } if shown.contains(&field) => match names.contains(&name) {
            true => walk_field(field, value, Words::Shown),
            // Whether somebody set it is worth knowing.
            false if value.as_str().is_some_and(str::is_empty) => {}
            false => hide(value),
        },
        Rule::Named { .. } => walk_field(field, value, Words::Hidden),
    }
    true
}

fn redact_metadata(metadata: &mut Value) {
    let Some(metadata) = metadata.as_object_mut() else { return };
    metadata.retain(|field, value| match field.as_str() {
        "labels" | "annotations" => {
            walk_field(field, value, Words::Shown);
            true
        }
        field => METADATA.contains(&field),
    });
}

/// Whether texts that are not known to be secret are shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Words {
    Shown,
    /// But for what objects are to have that say nothing themselves.
    OfADefinition,
    Hidden,
}

fn walk(value: &mut Value, words: Words) {
    match value {
        Value::Object(fields) => walk_fields(fields, words),
        Value::Array(elements) => elements.iter_mut().for_each(|element| walk(element, words)),
        Value::String(_) if words == Words::Hidden => hide(value),
        Value::String(text) => show(text, LONG_TEXT),
        Value::Bool(_) | Value::Number(_) | Value::Null => {}
    }
}

fn walk_fields(fields: &mut Map<String, Value>, words: Words) {
    fields.remove("managedFields");
    hide_pair(fields, hide);
    for (name, value) in fields.iter_mut() {
        walk_field(name, value, words);
    }
}

fn walk_field(name: &str, value: &mut Value, words: Words) {
    match (name, value) {
        (name, Value::Object(seed)) if is_seed(name) => keep_references(seed, hide),
        (name, value) if is_seed(name) || is_secret_name(name) => hide(value),
        ("annotations", Value::Object(annotations)) => {
            annotations.retain(|key, _| !key.ends_with("/last-applied-configuration"));
            keep_only(annotations, ANNOTATIONS);
        }
        ("parameters" | "storageClassParameters" | "volumeAttributes", Value::Object(parameters)) => {
            keep_only(parameters, PARAMETERS);
        }
        ("volumes", Value::Array(volumes)) => {
            volumes.iter_mut().for_each(|volume| redact_volume(volume, words))
        }
        // What a container runs, and with what.
        ("args" | "command" | "env" | "data" | "binaryData" | "publicKey", value) => hide(value),
        ("default" | "example", value) if words == Words::OfADefinition => hide(value),
        ("conditions", Value::Array(conditions)) => {
            conditions.iter_mut().for_each(|one| redact_condition(one, words))
        }
        ("config", Value::String(config)) if words == Words::Shown => redact_config(config),
        ("message" | "note", Value::String(text)) if words != Words::Hidden => show(text, LONG_MESSAGE),
        ("url" | "appliedUrl" | "issueURL", Value::String(url)) if words != Words::Hidden => {
            *url = shown_url(url)
        }
        (_, value) => walk(value, words),
    }
}

/// A text, unless it is too long to be a name or looks like what it must not be.
fn show(text: &mut String, longest: usize) {
    let is_too_long = if longest == LONG_TEXT { is_long(text) } else { text.len() > longest };
    *text = match is_too_long || is_secret_text(text) {
        true => REDACTED.to_owned(),
        false => scrubbed(text).into_owned(),
    };
}

/// What is there is hidden; what is not is not, and yes and no are nobody's secret.
fn hide(value: &mut Value) {
    if !value.is_null() && !value.is_boolean() {
        *value = REDACTED.into();
    }
}

/// Hides all values but those under these names.
fn keep_only(fields: &mut Map<String, Value>, known: &[&str]) {
    for (name, value) in fields.iter_mut() {
        match known.contains(&name.as_str()) {
            true => walk(value, Words::Shown),
            false => hide(value),
        }
    }
}

fn redact_volume(volume: &mut Value, words: Words) {
    let Some(volume) = volume.as_object_mut() else { return hide(volume) };
    for (name, value) in volume.iter_mut() {
        match VOLUMES.contains(&name.as_str()) || is_seed(name) {
            true if name == "secret" => walk(value, words),
            true => walk_field(name, value, words),
            false => hide(value),
        }
    }
}

/// Of a kind that nobody knows, too, it is worth knowing how it fares.
fn redact_condition(condition: &mut Value, words: Words) {
    let Some(condition) = condition.as_object_mut() else { return hide(condition) };
    for (name, value) in condition.iter_mut() {
        match CONDITION.contains(&name.as_str()) {
            true => walk(value, Words::Shown),
            false => walk_field(name, value, words),
        }
    }
}

/// A network's configuration, which is JSON in a text.
fn redact_config(config: &mut String) {
    *config = match serde_json::from_str::<Value>(config) {
        Ok(mut value) => {
            walk(&mut value, Words::Shown);
            value.to_string()
        }
        Err(_) => REDACTED.to_owned(),
    };
}

#[cfg(test)]
#[path = "object_tests.rs"]
mod tests;
