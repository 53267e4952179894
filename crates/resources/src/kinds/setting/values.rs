//! What the values of settings may be, in one sentence each. An empty value leaves the default, and fits wherever
//! there is one to leave.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;
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

pub(super) fn hotplug_ratio(value: &str) -> Result<(), String> {
    let fits = value.is_empty() || value.parse::<u32>().is_ok_and(|ratio| (1..=20).contains(&ratio));
    fits.then_some(()).ok_or_else(|| "must be a whole number from 1 to 20".into())
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

/// What [`super::HTTP_PROXY`] says. Each is empty where there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxySetting {
    pub http_proxy: String,
    pub https_proxy: String,
    pub no_proxy: String,
}

impl ProxySetting {
    /// None at all where the text is not what passed the check.
    pub fn read(text: &str) -> ProxySetting {
        serde_json::from_str(text).unwrap_or_default()
    }
}

pub(super) fn proxies(value: &str) -> Result<(), String> {
    for (field, found) in object(value)? {
        if !["httpProxy", "httpsProxy", "noProxy"].contains(&field.as_str()) {
            return Err(format!("{field} is not known: there are only httpProxy, httpsProxy and noProxy"));
        }
        let Some(text) = found.as_str() else { return Err(format!("{field} must be a text")) };
        if field != "noProxy" && !text.is_empty() && !text.starts_with("http://") {
            return Err(format!("{field} must begin with http://: proxies are reached over http"));
        }
    }
    Ok(())
}

pub(super) fn certificates(value: &str) -> Result<(), String> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    let mut rest = value.trim();
    while !rest.is_empty() {
        let inside = rest.strip_prefix(BEGIN).and_then(|behind| behind.split_once(END));
        let is_text = |inside: &str| STANDARD.decode(inside.split_whitespace().collect::<String>()).is_ok();
        match inside {
            Some((inside, behind)) if is_text(inside) => rest = behind.trim_start(),
            _ => return Err("must be certificates in PEM, and nothing else".into()),
        }
    }
    Ok(())
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
