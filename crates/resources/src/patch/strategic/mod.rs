//! Strategic merge patch: a merge patch that knows which lists are really sets and maps.
//!
//! | directive | where | meaning |
//! |---|---|---|
//! | `$patch: replace` | object, list element | take the patch as it is |
//! | `$patch: delete` | object, list element | empty the object, remove the element with this key |
//! | `$retainKeys: [...]` | object | drop all other members |
//! | `$deleteFromPrimitiveList/field: [...]` | beside a list of scalars | remove these |
//! | `$setElementOrder/field: [...]` | beside a merged list | this order, wherever they come from |
//!
//! Order in a merged list: what the patch names stands in the patch's order, what only the
//! server has stands in the server's, and the server's elements keep to the front of those
//! named ones they were in front of before.
//!
//! No directive survives into the result, also not from the inside of a value that is
//! wholly new. Where the original's answer depends on chance (a patch that adds and removes
//! the same scalar) or is an internal error about an empty list, ours does not and is none.
//! Comparing two versions (what `kubectl apply` does) is the client's work and deliberately
//! absent.

mod list;
mod wording;

use std::collections::HashSet;

use serde_json::{Map, Value};

use self::{
    list::{agrees_with_order, element_kind, in_order, merged_list, positions},
    wording::{expected_list, unknown_directive},
};
use super::{
    PatchError, json_kind,
    strategies::{Field, Fields, PLAIN},
};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";
const SET_ORDER: &str = "$setElementOrder";

/// Merges `patch` into `document`, a built-in kind whose lists merge as `fields` says.
pub fn apply(document: Value, patch: Value, fields: &Fields) -> Result<Value, PatchError> {
    match (document, patch) {
        (Value::Object(document), Value::Object(patch)) => {
            merged_object(document, patch, fields).map(Value::Object)
        }
        (_, patch) => Err(PatchError::Malformed(format!(
            "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            json_kind(&patch)
        ))),
    }
}

fn merged_object(
    mut document: Map<String, Value>,
    mut patch: Map<String, Value>,
    fields: &Fields,
) -> Result<Map<String, Value>, PatchError> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                Ok(cleaned_members(patch))
            }
            Some("delete") => Ok(Map::new()),
            _ => Err(unknown_directive(directive, &patch)),
        };
    }
    retain_keys(&mut document, &mut patch)?;
    for field in ordered_lists(&patch)? {
        let order = patch.remove(&format!("{SET_ORDER}/{field}")).unwrap_or_default();
        merge_ordered_list(&mut document, &mut patch, &field, order, fields)?;
    }
    let mut doomed = Vec::new();
    for (name, wanted) in patch {
        match list_to_shorten(&name)? {
            // Last, so that a patch which adds and removes the same removes it.
            Some(field) => doomed.push((field.to_owned(), wanted)),
            None => merge_member(&mut document, name, wanted, fields)?,
        }
    }
    for (field, doomed) in doomed {
        shorten_list(&mut document, &field, doomed)?;
    }
    Ok(document)
}

fn merge_member(
    document: &mut Map<String, Value>,
    name: String,
    wanted: Value,
    fields: &Fields,
) -> Result<(), PatchError> {
    if wanted.is_null() {
        document.remove(&name);
        return Ok(());
    }
    let merged = match (document.remove(&name), wanted) {
        (Some(Value::Object(present)), Value::Object(wanted)) => {
            let fields = match fields.field(&name) {
                Some(Field::Object(fields)) => fields,
                _ => &PLAIN,
            };
            Some(Value::Object(merged_object(present, wanted, fields)?))
        }
        (Some(Value::Array(present)), Value::Array(wanted)) => {
            Some(Value::Array(merged_list(present, wanted, fields.field(&name))?))
        }
        (_, wanted) => cleaned(wanted),
    };
    if let Some(merged) = merged {
        document.insert(name, merged);
    }
    Ok(())
}

/// A list with a `$setElementOrder` beside it is merged here, and its part of the patch
/// is used up.
fn merge_ordered_list(
    document: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
    name: &str,
    order: Value,
    fields: &Fields,
) -> Result<(), PatchError> {
    let order = match order {
        Value::Array(order) => order,
        other => return Err(expected_list(&other)),
    };
    let field = fields.field(name);
    let key = match field {
        Some(Field::MergeByKey { key, .. }) => Some(key),
        Some(Field::MergeSet | Field::Object(_)) | None => None,
    };
    let as_list = |value: Option<Value>| match value {
        None => Ok(None),
        Some(Value::Array(list)) => Ok(Some(list)),
        Some(other) => Err(expected_list(&other)),
    };
    if patch.get(name).is_some_and(Value::is_null) {
        // A list that goes has no order.
        return Ok(());
    }
    let wanted = as_list(patch.remove(name))?;
    let present = as_list(document.get(name).cloned())?;
    agrees_with_order(wanted.as_deref().unwrap_or_default(), &order, key)?;
    let server_order = positions(present.as_deref().unwrap_or_default(), key)?;
    let merged = match (present, wanted) {
        (None, None) => return Ok(()),
        (Some(present), None) => present,
        (None, Some(wanted)) => wanted.into_iter().filter_map(cleaned).collect(),
        (Some(present), Some(wanted)) => merged_list(present, wanted, field)?,
    };
    let merged = in_order(merged, &positions(&order, key)?, &server_order, key)?;
    document.insert(name.to_owned(), Value::Array(merged));
    Ok(())
}

fn retain_keys(document: &mut Map<String, Value>, patch: &mut Map<String, Value>) -> Result<(), PatchError> {
    let bad = || PatchError::Malformed("invalid patch format of retainKeys".to_owned());
    let Some(retained) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let Value::Array(retained) = retained else { return Err(bad()) };
    let retained: HashSet<&str> = retained.iter().filter_map(Value::as_str).collect();
    for (name, value) in patch.iter() {
        let directive = name.starts_with(DELETE_FROM_LIST) || name.starts_with(SET_ORDER);
        if !value.is_null() && !directive && !retained.contains(name.as_str()) {
            return Err(bad());
        }
    }
    document.retain(|name, _| retained.contains(name.as_str()));
    Ok(())
}

fn ordered_lists(patch: &Map<String, Value>) -> Result<Vec<String>, PatchError> {
    patch
        .keys()
        .filter_map(|name| name.strip_prefix(SET_ORDER))
        .map(|rest| {
            rest.strip_prefix('/').map(str::to_owned).ok_or_else(|| {
                PatchError::Malformed("invalid patch format of setElementOrder list".to_owned())
            })
        })
        .collect()
}

fn list_to_shorten(name: &str) -> Result<Option<&str>, PatchError> {
    match name.strip_prefix(DELETE_FROM_LIST) {
        None => Ok(None),
        Some(rest) => rest
            .strip_prefix('/')
            .map(Some)
            .ok_or_else(|| PatchError::Malformed("invalid patch format of primitive list".to_owned())),
    }
}

fn shorten_list(document: &mut Map<String, Value>, name: &str, doomed: Value) -> Result<(), PatchError> {
    match (document.get_mut(name), doomed) {
        // The original takes a null here for one about the list itself.
        (_, Value::Null) => _ = document.remove(name),
        (Some(Value::Array(list)), Value::Array(doomed)) => {
            if element_kind(&[list, &doomed])? == Some("object") {
                return Err(PatchError::CannotMerge(format!(
                    "cannot merge lists without merge key for {name}"
                )));
            }
            let doomed: HashSet<String> = doomed.iter().map(Value::to_string).collect();
            list.retain(|item| !doomed.contains(&item.to_string()));
        }
        _ => {}
    }
    Ok(())
}

/// A value that is new as a whole: without nulls, without directives; nothing at all when
/// it is itself a directive.
fn cleaned(value: Value) -> Option<Value> {
    match value {
        Value::Object(members) if members.contains_key(DIRECTIVE) => None,
        Value::Object(members) => Some(Value::Object(cleaned_members(members))),
        Value::Array(list) => Some(Value::Array(list.into_iter().filter_map(cleaned).collect())),
        other => Some(other),
    }
}

fn cleaned_members(members: Map<String, Value>) -> Map<String, Value> {
    let is_directive =
        |name: &str| name == RETAIN_KEYS || name.starts_with(DELETE_FROM_LIST) || name.starts_with(SET_ORDER);
    members
        .into_iter()
        .filter(|(name, value)| !value.is_null() && !is_directive(name))
        .filter_map(|(name, value)| Some((name, cleaned(value)?)))
        .collect()
}

#[cfg(test)]
mod recorded;
#[cfg(test)]
mod tests;
