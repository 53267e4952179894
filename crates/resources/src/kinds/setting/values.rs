//! What the values of settings may be, in one sentence each. An empty value leaves the default, and fits wherever
//! there is one to leave.

use serde_json::{Map, Value};

use super::HARVESTER_VERSION;

pub(super) fn overcommit(value: &str) -> Result<(), String> {
    let wrong =
        object(value)?.into_iter().find(|(_, percent)| percent.as_u64().is_none_or(|percent| percent < 100));
    match wrong {
        Some((what, found)) => {
            Err(format!("{what} is {found}: it must be a number of percent, at least 100"))
        }
        None => Ok(()),
    }
}

pub(super) fn seconds(value: &str) -> Result<(), String> {
    let fits = value.is_empty() || value.parse::<u32>().is_ok();
    fits.then_some(()).ok_or_else(|| "must be a whole number of seconds, not below 0".into())
}

/// Zero turns the ratio off, and a fixed part of the limit is kept instead.
pub(super) fn memory_overhead_ratio(value: &str) -> Result<(), String> {
    let fits = match value.parse::<f64>() {
        Ok(ratio) => ratio == 0.0 || (1.0..=10.0).contains(&ratio),
        Err(_) => value.is_empty(),
    };
    fits.then_some(()).ok_or_else(|| "must be 0, or a number between 1.0 and 10.0".into())
}

pub(super) fn object_of_booleans(value: &str) -> Result<(), String> {
    each(value, Value::is_boolean, "true or false for each")
}

pub(super) fn object_of_objects(value: &str) -> Result<(), String> {
    each(value, Value::is_object, "an object for each")
}

pub(super) fn object_of_texts(value: &str) -> Result<(), String> {
    each(value, Value::is_string, "a text for each")
}

pub(super) fn server_version(value: &str) -> Result<(), String> {
    (value == HARVESTER_VERSION).then_some(()).ok_or_else(|| "server-version is read-only".into())
}

pub(super) fn not_yet(value: &str) -> Result<(), String> {
    value.is_empty().then_some(()).ok_or_else(|| "is not supported by Sheaf yet".into())
}

fn each(value: &str, fits: fn(&Value) -> bool, what: &str) -> Result<(), String> {
    object(value)?.values().all(fits).then_some(()).ok_or_else(|| format!("must be JSON with {what}"))
}

fn object(value: &str) -> Result<Map<String, Value>, String> {
    if value.is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_str(value) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err("must be a JSON object".into()),
        Err(why) => Err(format!("is not JSON: {why}")),
    }
}
