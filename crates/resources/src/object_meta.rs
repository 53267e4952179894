//! `metadata`, the part every object has: what a client may say, and what only the server may.

use serde_json::{Map, Value};

use crate::{
    field_error::{FieldError, FieldPath},
    kind::Kind,
    names, schema,
};

pub const FOREGROUND_FINALIZER: &str = "foregroundDeletion";
pub const ORPHAN_FINALIZER: &str = "orphan";

/// The longest name of one who writes.
pub const LONGEST_MANAGER: usize = 128;
const LONGEST_SUBRESOURCE: usize = 256;
/// Many more than the server ever tells apart by itself.
const MOST_MANAGERS: usize = 1000;

/// The fields of ObjectMeta; anything else in `metadata` is unknown.
pub const FIELDS: [&str; 15] = [
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];
/// What the server alone writes; on update they stay what they were, unless the client
/// says something else, which is refused.
const SERVER_OWNED: [&str; 4] =
    ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"];

/// Removes unknown fields of `metadata` and says which.
pub fn prune(object: &mut Value) -> Vec<String> {
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else { return Vec::new() };
    let unknown: Vec<String> =
        metadata.keys().filter(|key| !FIELDS.contains(&key.as_str())).cloned().collect();
    for key in &unknown {
        metadata.remove(key);
    }
    // Nulls and empty maps say nothing; left in, they would make equal objects differ.
    metadata.retain(|_, value| !value.is_null());
    unknown.into_iter().map(|key| format!("metadata.{key}")).collect()
}

/// Wrong JSON types in `metadata`, in the manner of a decoder.
pub fn check_types(object: &Value) -> Result<(), String> {
    let metadata = match object.get("metadata") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Object(metadata)) => metadata,
        Some(other) => return Err(mismatch("metadata", "object", other)),
    };
    for field in ["name", "generateName", "namespace", "uid", "resourceVersion", "selfLink"] {
        match metadata.get(field) {
            None | Some(Value::Null | Value::String(_)) => {}
            Some(other) => return Err(mismatch(field, "string", other)),
        }
    }
    for field in ["labels", "annotations"] {
        match metadata.get(field) {
            None | Some(Value::Null) => {}
            Some(Value::Object(members)) => {
                if let Some((_, other)) = members.iter().find(|(_, value)| !value.is_string()) {
                    return Err(mismatch(field, "string", other));
                }
            }
            Some(other) => return Err(mismatch(field, "map[string]string", other)),
        }
    }
    check_list(metadata, "finalizers", Value::is_string)?;
    check_list(metadata, "managedFields", Value::is_object)?;
    metadata.get("managedFields").map_or(Ok(()), check_managers)?;
    check_list(metadata, "ownerReferences", Value::is_object)
}

fn check_list(metadata: &Map<String, Value>, field: &str, fits: fn(&Value) -> bool) -> Result<(), String> {
    match metadata.get(field) {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Array(items)) => match items.iter().find(|item| !fits(item)) {
            Some(other) => Err(mismatch(field, "list item", other)),
            None => Ok(()),
        },
        Some(other) => Err(mismatch(field, "list", other)),
    }
}

/// A time that is none would leave an object that clients cannot read.
fn check_managers(entries: &Value) -> Result<(), String> {
    for entry in entries.as_array().into_iter().flatten() {
        for field in ["manager", "operation", "apiVersion", "fieldsType", "subresource", "time"] {
            match &entry[field] {
                Value::Null | Value::String(_) => {}
                other => return Err(mismatch(&format!("managedFields.{field}"), "string", other)),
            }
        }
        if let Some(fault) = entry["time"].as_str().and_then(schema::time_fault) {
            return Err(fault);
        }
    }
    Ok(())
}

fn mismatch(field: &str, wanted: &str, found: &Value) -> String {
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    format!(
        "json: cannot unmarshal {found} into Go struct field ObjectMeta.metadata.{field} of type {wanted}"
    )
}

/// What must hold of who, by the word of a client, owns the fields of an object.
///
/// What else can be wrong with an entry makes the list unreadable, and an unreadable list is not taken at its word:
/// that is for [`crate::apply`].
pub fn validate_managers(object: &Value) -> Vec<FieldError> {
    let path = FieldPath::new("metadata").child("managedFields");
    let entries = object["metadata"]["managedFields"].as_array().map(Vec::as_slice).unwrap_or_default();
    if entries.len() > MOST_MANAGERS {
        return vec![FieldError::too_many(&path, entries.len() as u64, MOST_MANAGERS as u64)];
    }
    let mut errors = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let path = path.index(index);
        let text = |field: &str| entry[field].as_str().unwrap_or_default();
        errors.extend(manager_problems(text("manager"), &path.child("manager")));
        if text("subresource").len() > LONGEST_SUBRESOURCE {
            errors.push(FieldError::too_long(&path.child("subresource"), LONGEST_SUBRESOURCE as u64));
        }
    }
    errors
}

/// What is wrong with the name of one who writes.
pub fn manager_problems(manager: &str, path: &FieldPath) -> Vec<FieldError> {
    if manager.len() > LONGEST_MANAGER {
        return vec![FieldError::too_long(path, LONGEST_MANAGER as u64)];
    }
    let odd = manager.char_indices().filter(|(_, letter)| !is_printable(*letter));
    odd.map(|(at, odd)| {
        let why = format!("invalid character U+{:04X} (at position {at})", u32::from(odd));
        FieldError::invalid(path, manager, why)
    })
    .collect()
}

/// Whether a letter may be part of the name of one who writes.
pub fn is_printable(letter: char) -> bool {
    letter == ' ' || !(letter.is_control() || letter.is_whitespace())
}

/// What must hold of `metadata` in any object that is to be stored.
pub fn validate(kind: &Kind, object: &Value) -> Vec<FieldError> {
    let metadata = &object["metadata"];
    let path = FieldPath::new("metadata");
    let mut errors = Vec::new();
    let text = |field: &str| metadata[field].as_str().unwrap_or_default();
    if !text("generateName").is_empty() {
        let prefix = text("generateName");
        let problems = kind.behaviour.name_rule.prefix_problems(prefix).into_iter();
        errors.extend(problems.map(|why| FieldError::invalid(&path.child("generateName"), prefix, why)));
    }
    match text("name") {
        "" => errors.push(FieldError::required(&path.child("name"), "name or generateName is required")),
        name => {
            let problems = kind.behaviour.name_rule.problems(name).into_iter();
            errors.extend(problems.map(|why| FieldError::invalid(&path.child("name"), name, why)));
        }
    }
    if kind.namespaced() {
        match text("namespace") {
            "" => errors.push(FieldError::required(&path.child("namespace"), "")),
            namespace => {
                let problems = names::dns_label_problems(namespace).into_iter();
                errors.extend(
                    problems.map(|why| FieldError::invalid(&path.child("namespace"), namespace, why)),
                );
            }
        }
    } else if !text("namespace").is_empty() {
        errors.push(FieldError::forbidden(&path.child("namespace"), "not allowed on this type"));
    }
    errors.extend(validate_labels(&metadata["labels"], &path.child("labels")));
    errors.extend(validate_annotations(&metadata["annotations"], &path.child("annotations")));
    errors.extend(validate_owners(metadata, &path.child("ownerReferences")));
    errors.extend(validate_finalizers(&metadata["finalizers"], &path.child("finalizers")));
    errors
}

pub fn validate_labels(labels: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in labels.as_object().into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        let keys = names::qualified_name_problems(key).into_iter();
        errors.extend(keys.map(|why| FieldError::invalid(path, key.as_str(), why)));
        let values = names::label_value_problems(value).into_iter();
        errors.extend(values.map(|why| FieldError::invalid(path, value, why)));
    }
    errors
}

fn validate_annotations(annotations: &Value, path: &FieldPath) -> Vec<FieldError> {
    let members = || annotations.as_object().into_iter().flatten();
    let mut errors: Vec<FieldError> = members()
        .flat_map(|(key, _)| {
            let problems = names::annotation_key_problems(key).into_iter();
            problems.map(|why| FieldError::invalid(path, key.as_str(), why)).collect::<Vec<_>>()
        })
        .collect();
    if !names::annotations_fit(members().map(|(k, v)| (k.as_str(), v.as_str().unwrap_or_default()))) {
        errors.push(FieldError::too_long(path, names::ANNOTATIONS_MAX_BYTES as u64));
    }
    errors
}

fn validate_owners(metadata: &Value, path: &FieldPath) -> Vec<FieldError> {
    let owners = metadata["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut errors = Vec::new();
    let mut controller: Option<&str> = None;
    for (n, owner) in owners.iter().enumerate() {
        let path = path.index(n);
        for field in ["apiVersion", "kind", "name", "uid"] {
            let value = owner[field].as_str().unwrap_or_default();
            if value.is_empty() {
                errors.push(FieldError::invalid(&path.child(field), value, "must not be empty"));
            }
        }
        if owner["controller"] == true {
            let name = owner["name"].as_str().unwrap_or_default();
            if let Some(first) = controller.replace(name) {
                let why = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"
                );
                errors.push(FieldError::invalid(&path, owner.clone(), why));
            }
        }
    }
    errors
}

fn validate_finalizers(finalizers: &Value, path: &FieldPath) -> Vec<FieldError> {
    let all: Vec<&str> = finalizers.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut errors = Vec::new();
    for name in &all {
        let problems = names::finalizer_problems(name).into_iter();
        errors.extend(problems.map(|why| FieldError::invalid(path, *name, why)));
    }
    if let Some(why) = names::finalizers_conflict(all.iter().copied()) {
        errors.push(FieldError::invalid(path, finalizers.clone(), why));
    }
    errors
}

/// What an update may not change of `metadata`; call before [`keep_server_owned`].
pub fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let path = FieldPath::new("metadata");
    let mut errors = Vec::new();
    // A wrong creation time is not worth a refusal: it is put right.
    for field in ["name", "namespace", "uid", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let (was, is) = (&old["metadata"][field], &new["metadata"][field]);
        if !is_unset(is) && is != was {
            errors.push(FieldError::invalid(&path.child(field), is.clone(), "field is immutable"));
        }
    }
    if !is_unset(&old["metadata"]["deletionTimestamp"]) {
        let before = strings(&old["metadata"]["finalizers"]);
        let mut added: Vec<&str> =
            strings(&new["metadata"]["finalizers"]).into_iter().filter(|f| !before.contains(f)).collect();
        added.sort_unstable();
        if !added.is_empty() {
            let found = added.iter().map(|f| format!("{f:?}")).collect::<Vec<_>>().join(", ");
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{found}}}"
            );
            errors.push(FieldError::forbidden(&path.child("finalizers"), why));
        }
    }
    errors
}

/// Carries over what only the server writes, and drops what says nothing.
pub fn keep_server_owned(new: &mut Value, old: &Value) {
    for field in SERVER_OWNED.iter().chain(&["generation", "namespace", "name"]) {
        match &old["metadata"][*field] {
            Value::Null => {
                if let Some(metadata) = new["metadata"].as_object_mut() {
                    metadata.remove(*field);
                }
            }
            value => new["metadata"][*field] = value.clone(),
        }
    }
    tidy(new);
}

/// Removes empty maps and lists and what this server does not keep, so that equal objects are equal bytes.
pub fn tidy(object: &mut Value) {
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else { return };
    metadata.remove("selfLink");
    metadata.retain(|name, value| match value {
        Value::Null => false,
        // An empty one asks for something: to forget all owners.
        Value::Array(_) if name == "managedFields" => true,
        Value::Object(members) => !members.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::String(text) => !text.is_empty(),
        _ => true,
    });
}

pub fn finalizers(object: &Value) -> Vec<&str> {
    strings(&object["metadata"]["finalizers"])
}

pub fn is_being_deleted(object: &Value) -> bool {
    !is_unset(&object["metadata"]["deletionTimestamp"])
}

fn strings(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn is_unset(value: &Value) -> bool {
    matches!(value, Value::Null) || value.as_str() == Some("")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_on_its_way_out_takes_no_new_finalizer() {
        let old = json!({"metadata": {"deletionTimestamp": "2030-01-01T00:00:00Z", "finalizers": ["a/b"]}});
        let mut new = old.clone();
        new["metadata"]["finalizers"] = json!(["a/b", "c/d"]);
        let errors = validate_update(&new, &old);
        assert_eq!(errors[0].field, "metadata.finalizers");
        new["metadata"]["finalizers"] = json!([]);
        assert!(validate_update(&new, &old).is_empty());
    }

    #[test]
    fn what_the_server_owns_cannot_be_written_over() {
        let old = json!({"metadata": {"name": "a", "uid": "1", "creationTimestamp": "2030-01-01T00:00:00Z", "generation": 3}});
        let mut new = json!({"metadata": {"name": "a", "generation": 9, "creationTimestamp": "2001-01-01T00:00:00Z", "labels": {}}});
        assert!(validate_update(&new, &old).is_empty());
        keep_server_owned(&mut new, &old);
        assert_eq!(new, old);
        let other = json!({"metadata": {"uid": "2"}});
        assert_eq!(validate_update(&other, &old)[0].field, "metadata.uid");
        // Only a delete marks an object.
        let marked = json!({"metadata": {"deletionTimestamp": "2031-01-01T00:00:00Z"}});
        assert_eq!(validate_update(&marked, &old)[0].field, "metadata.deletionTimestamp");
    }

    #[test]
    fn unknown_metadata_fields_are_named() {
        let mut object = json!({"metadata": {"name": "a", "colour": "red", "labels": null}});
        assert_eq!(prune(&mut object), ["metadata.colour"]);
        assert_eq!(object, json!({"metadata": {"name": "a"}}));
    }

    #[test]
    fn wrong_types_are_told_before_anything_reads_them() {
        for bad in [
            json!({"metadata": []}),
            json!({"metadata": {"name": 1}}),
            json!({"metadata": {"labels": {"a": 1}}}),
            json!({"metadata": {"finalizers": "x"}}),
            json!({"metadata": {"ownerReferences": [1]}}),
        ] {
            assert!(check_types(&bad).unwrap_err().starts_with("json: cannot unmarshal"), "{bad}");
        }
        assert_eq!(check_types(&json!({"metadata": {"labels": {"a": "b"}}})), Ok(()));
    }
}
