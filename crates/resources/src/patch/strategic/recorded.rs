//! Replays patches that the original's own library applied: see `tests/clients/apply-vectors`.

use serde_json::Value;

use super::apply;
use crate::patch::strategies;

/// What the original says when it is to order a list of which nothing is left: an internal error, and none here.
const NOTHING_LEFT: &str = "no elements in any of the given slices";
/// What it says, too, when a directive stands behind the last element that has a place in the order; it passes over
/// directives anywhere else.
const OUT_OF_ORDER: &str = "The order in patch list:";

/// What the original's decoder makes of a result: some directives inside values that are wholly new are left in it by
/// the library, and are no fields of any kind; a null says nothing.
fn decoded(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let fields = members.iter().filter(|(name, value)| !name.starts_with('$') && !value.is_null());
            Value::Object(fields.map(|(name, value)| (name.clone(), decoded(value))).collect())
        }
        Value::Array(elements) => elements.iter().map(decoded).collect(),
        scalar => scalar.clone(),
    }
}

/// Whether `$patch` was left in a result, where it counts as a label or an element: nobody means that.
fn is_spoilt(value: &Value) -> bool {
    match value {
        Value::Object(members) => members.contains_key("$patch") || members.values().any(is_spoilt),
        Value::Array(elements) => elements.iter().any(is_spoilt),
        _ => false,
    }
}

/// Whether the order of a list is left to chance: where an ordered list loses elements and gains others, the library
/// compares with a list that it has written over.
fn is_ordered_by_chance(patch: &str) -> bool {
    patch.contains(r#""$patch":"delete""#) && patch.contains("$setElementOrder/")
}

fn without_order(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| (name.clone(), without_order(value)));
            Value::Object(members.collect())
        }
        Value::Array(elements) => {
            let mut elements: Vec<Value> = elements.iter().map(without_order).collect();
            elements.sort_by_key(Value::to_string);
            Value::Array(elements)
        }
        scalar => scalar.clone(),
    }
}

#[test]
fn every_patch_of_the_original_comes_out_the_same() {
    let (mut applied, mut refused, mut in_order) = (0, 0, 0);
    for (number, line) in include_str!("patches.txt").lines().enumerate() {
        let recorded: Value = serde_json::from_str(line).unwrap();
        let fields = strategies::for_kind("", recorded["kind"].as_str().unwrap()).unwrap();
        let done = apply(recorded["document"].clone(), recorded["patch"].clone(), fields);
        match recorded["error"].as_str() {
            Some(NOTHING_LEFT) => {}
            Some(why) if why.starts_with(OUT_OF_ORDER) => {}
            Some(why) => {
                assert!(done.is_err(), "patch {number}: {recorded:#}\n{why:?}, and not {done:#?}");
                refused += 1;
            }
            None if is_spoilt(&recorded["result"]) => {}
            None => {
                let mut expected = decoded(&recorded["result"]);
                let mut done = done.unwrap_or_else(|why| panic!("patch {number}: {recorded:#}\n{why}"));
                if is_ordered_by_chance(&recorded["patch"].to_string()) {
                    (expected, done) = (without_order(&expected), without_order(&done));
                } else {
                    in_order += 1;
                }
                assert_eq!(done, expected, "patch {number}: {recorded:#}");
                applied += 1;
            }
        }
    }
    assert!(
        applied > 500 && refused > 20 && in_order > 400,
        "{applied} applied, {refused} refused, {in_order} in order"
    );
}
