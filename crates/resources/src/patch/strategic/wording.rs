//! Complaints about a strategic merge patch, worded and printed as the original does.

use serde_json::{Map, Value};

use crate::patch::PatchError;

pub(super) fn unknown_directive(directive: &Value, patch: &Map<String, Value>) -> PatchError {
    PatchError::CannotMerge(format!(
        "unknown patch type: {} in map: {}",
        in_go(directive),
        in_go(&Value::Object(patch.clone()))
    ))
}

pub(super) fn not_an_object(found: &Value) -> PatchError {
    PatchError::CannotMerge(format!(
        "expected a map[string]interface {{}}, but received a {}",
        go_type(found)
    ))
}

pub(super) fn expected_list(found: &Value) -> PatchError {
    PatchError::CannotMerge(format!("expected a []interface {{}}, but received a {}", go_type(found)))
}

pub(super) fn go_type(value: &Value) -> &'static str {
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
pub(super) fn in_go(value: &Value) -> String {
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
