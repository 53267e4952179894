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
//! wholly new. Comparing two versions (what `kubectl apply` does) is the client's work and
//! deliberately absent.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

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
    for (name, wanted) in patch {
        match list_to_shorten(&name)? {
            Some(field) => shorten_list(&mut document, field, wanted)?,
            None => merge_member(&mut document, name, wanted, fields)?,
        }
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

fn merged_list(
    present: Vec<Value>,
    wanted: Vec<Value>,
    field: Option<Field>,
) -> Result<Vec<Value>, PatchError> {
    match field {
        Some(Field::MergeByKey { key, element, .. }) => merged_by_key(present, wanted, key, element),
        Some(Field::MergeSet) => merged_set(present, wanted),
        Some(Field::Object(_)) | None => Ok(wanted.into_iter().filter_map(cleaned).collect()),
    }
}

fn merged_set(present: Vec<Value>, wanted: Vec<Value>) -> Result<Vec<Value>, PatchError> {
    if element_kind(&[&present, &wanted])? == Some("object") {
        return Err(PatchError::CannotMerge("cannot merge lists without merge key for []string".to_owned()));
    }
    let server_order = positions(&present, None)?;
    let patch_order = positions(&wanted, None)?;
    let mut union = present;
    union.extend(wanted);
    in_order(union, &patch_order, &server_order, None)
}

fn merged_by_key(
    mut present: Vec<Value>,
    wanted: Vec<Value>,
    key: &str,
    element: &Fields,
) -> Result<Vec<Value>, PatchError> {
    element_kind(&[&present, &wanted])?;
    let mut replace = false;
    let mut doomed = HashSet::new();
    let mut plain = Vec::new();
    for item in wanted {
        match item.get(DIRECTIVE).map(|directive| (directive, directive.as_str())) {
            None => plain.push(item),
            Some((_, Some("delete"))) => _ = doomed.insert(identity(&item, Some(key))?),
            Some((_, Some("replace"))) => replace = true,
            Some((_, Some("merge"))) => {
                return Err(PatchError::CannotMerge(
                    "merging lists cannot yet be specified in the patch".to_owned(),
                ));
            }
            Some((directive, _)) => {
                return Err(match &item {
                    Value::Object(item) => unknown_directive(directive, item),
                    _ => not_an_object(&item),
                });
            }
        }
    }
    if replace {
        return Ok(plain.into_iter().filter_map(cleaned).collect());
    }
    if !doomed.is_empty() {
        // An element without the key cannot be meant, so it stays.
        present.retain(|item| {
            identity(item, Some(key)).is_ok_and(|id| !doomed.contains(&id)) || item.get(key).is_none()
        });
    }
    let server_order = positions(&present, Some(key))?;
    let patch_order = positions(&plain, Some(key))?;
    let mut index = server_order.clone();
    let mut merged: Vec<Option<Value>> = present.into_iter().map(Some).collect();
    for item in plain {
        let id = identity(&item, Some(key))?;
        match (index.get(&id).copied(), item) {
            (Some(at), Value::Object(item)) => {
                if let Some(Value::Object(found)) = merged[at].take() {
                    merged[at] = Some(Value::Object(merged_object(found, item, element)?));
                }
            }
            (_, item) => {
                index.insert(id, merged.len());
                merged.push(cleaned(item));
            }
        }
    }
    in_order(merged.into_iter().flatten().collect(), &patch_order, &server_order, Some(key))
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

/// The elements of the patch must stand in the order list, in the same order.
fn agrees_with_order(wanted: &[Value], order: &[Value], key: Option<&str>) -> Result<(), PatchError> {
    if wanted.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut remaining = order.iter();
    for item in wanted.iter().filter(|item| item.get(DIRECTIVE).is_none()) {
        let id = identity(item, key)?;
        loop {
            match remaining.next() {
                Some(next) if identity(next, key)? == id => break,
                Some(_) => {}
                None => {
                    return Err(PatchError::CannotMerge(format!(
                        "The order in patch list:\n{}\n doesn't match {SET_ORDER} list:\n{}\n",
                        in_go(&Value::Array(wanted.to_vec())),
                        in_go(&Value::Array(order.to_vec())),
                    )));
                }
            }
        }
    }
    Ok(())
}

type Positions = HashMap<String, usize>;

/// Puts a merged list in order and drops repeats of what the patch or the server named
/// before.
fn in_order(
    merged: Vec<Value>,
    patch_order: &Positions,
    server_order: &Positions,
    key: Option<&str>,
) -> Result<Vec<Value>, PatchError> {
    let mut named = Vec::new();
    let mut server_only = Vec::new();
    let mut seen = HashSet::new();
    for item in merged {
        let id = identity(&item, key)?;
        // Repeats of a scalar collapse; an object's repeats are the server's own affair.
        if key.is_none() && !seen.insert(id.clone()) {
            continue;
        }
        let at_server = server_order.get(&id).copied();
        match patch_order.get(&id) {
            Some(at) => named.push((*at, at_server, item)),
            None => server_only.push((at_server.unwrap_or(usize::MAX), at_server, item)),
        }
    }
    named.sort_by_key(|(at, ..)| *at);
    server_only.sort_by_key(|(at, ..)| *at);

    let mut result = Vec::with_capacity(named.len() + server_only.len());
    let (mut named, mut server_only) = (named.into_iter().peekable(), server_only.into_iter().peekable());
    while let (Some((_, named_at, _)), Some((_, server_at, _))) = (named.peek(), server_only.peek()) {
        let server_first = matches!((server_at, named_at), (Some(server), Some(named)) if server < named);
        let next = if server_first { server_only.next() } else { named.next() };
        result.extend(next.map(|(_, _, item)| item));
    }
    result.extend(server_only.chain(named).map(|(_, _, item)| item));
    Ok(result)
}

fn positions(list: &[Value], key: Option<&str>) -> Result<Positions, PatchError> {
    let mut positions = Positions::with_capacity(list.len());
    for (at, item) in list.iter().enumerate() {
        if item.get(DIRECTIVE).is_none() {
            positions.entry(identity(item, key)?).or_insert(at);
        }
    }
    Ok(positions)
}

/// What tells one element of a list from another, as text that can be looked up.
fn identity(item: &Value, key: Option<&str>) -> Result<String, PatchError> {
    let Some(key) = key else { return Ok(item.to_string()) };
    let Value::Object(object) = item else { return Err(not_an_object(item)) };
    object.get(key).map(Value::to_string).ok_or_else(|| {
        PatchError::CannotMerge(format!("map: {} does not contain declared merge key: {key}", in_go(item)))
    })
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

/// All elements must be of one kind, and none a list.
fn element_kind(lists: &[&[Value]]) -> Result<Option<&'static str>, PatchError> {
    let mut kind = None;
    for item in lists.iter().copied().flatten() {
        let this = json_kind(item);
        match kind {
            None if this == "array" => {
                return Err(PatchError::DoesNotApply("lists of lists are not supported".to_owned()));
            }
            None => kind = Some(this),
            Some(kind) if kind == this => {}
            Some(_) => {
                let shown: Vec<String> =
                    lists.iter().map(|list| in_go(&Value::Array(list.to_vec()))).collect();
                return Err(PatchError::CannotMerge(format!(
                    "list element types are not identical: [{}]",
                    shown.join(" ")
                )));
            }
        }
    }
    Ok(kind)
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

fn unknown_directive(directive: &Value, patch: &Map<String, Value>) -> PatchError {
    PatchError::CannotMerge(format!(
        "unknown patch type: {} in map: {}",
        in_go(directive),
        in_go(&Value::Object(patch.clone()))
    ))
}

fn not_an_object(found: &Value) -> PatchError {
    PatchError::CannotMerge(format!(
        "expected a map[string]interface {{}}, but received a {}",
        go_type(found)
    ))
}

fn expected_list(found: &Value) -> PatchError {
    PatchError::CannotMerge(format!("expected a []interface {{}}, but received a {}", go_type(found)))
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// As the original's messages show a value: `map[name:a ports:[80 81]]`.
fn in_go(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(list) => format!("[{}]", list.iter().map(in_go).collect::<Vec<_>>().join(" ")),
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            let shown: Vec<String> =
                members.into_iter().map(|(name, value)| format!("{name}:{}", in_go(value))).collect();
            format!("map[{}]", shown.join(" "))
        }
    }
}

#[cfg(test)]
#[path = "strategic_tests.rs"]
mod tests;
