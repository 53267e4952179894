//! Merging two lists, and the order of what comes out.
//!
//! Elements are looked up by what tells them apart, never searched for, so that two long
//! lists cost their sum and not their product.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::{
    DIRECTIVE, SET_ORDER, cleaned, merged_object,
    wording::{in_go, not_an_object, unknown_directive},
};
use crate::patch::{
    PatchError, json_kind,
    strategies::{Field, Fields},
};

pub(super) fn merged_list(
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

pub(super) fn merged_set(present: Vec<Value>, wanted: Vec<Value>) -> Result<Vec<Value>, PatchError> {
    if element_kind(&[&present, &wanted])? == Some("object") {
        return Err(PatchError::CannotMerge("cannot merge lists without merge key for []string".to_owned()));
    }
    let server_order = positions(&present, None)?;
    let patch_order = positions(&wanted, None)?;
    let mut union = present;
    union.extend(wanted);
    in_order(union, &patch_order, &server_order, None)
}

pub(super) fn merged_by_key(
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

/// The elements of the patch must stand in the order list, in the same order.
pub(super) fn agrees_with_order(
    wanted: &[Value],
    order: &[Value],
    key: Option<&str>,
) -> Result<(), PatchError> {
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

pub(super) type Positions = HashMap<String, usize>;

/// Puts a merged list in order and drops repeats of what the patch or the server named
/// before.
pub(super) fn in_order(
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

pub(super) fn positions(list: &[Value], key: Option<&str>) -> Result<Positions, PatchError> {
    let mut positions = Positions::with_capacity(list.len());
    for (at, item) in list.iter().enumerate() {
        if item.get(DIRECTIVE).is_none() {
            positions.entry(identity(item, key)?).or_insert(at);
        }
    }
    Ok(positions)
}

/// What tells one element of a list from another, as text that can be looked up.
pub(super) fn identity(item: &Value, key: Option<&str>) -> Result<String, PatchError> {
    let Some(key) = key else { return Ok(item.to_string()) };
    let Value::Object(object) = item else { return Err(not_an_object(item)) };
    object.get(key).map(Value::to_string).ok_or_else(|| {
        PatchError::CannotMerge(format!("map: {} does not contain declared merge key: {key}", in_go(item)))
    })
}

/// All elements must be of one kind, and none a list.
pub(super) fn element_kind(lists: &[&[Value]]) -> Result<Option<&'static str>, PatchError> {
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
