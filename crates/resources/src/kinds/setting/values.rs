//! What the values of settings may be, in one sentence each. An empty value leaves the default, and fits wherever
//! there is one to leave.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::known::HARVESTER_VERSION;
use crate::names;

pub(super) fn overcommit(value: &str) -> Result<(), String> {
    let said = object(value)?;
    if let Some((unknown, _)) =
        said.iter().find(|(what, _)| !["cpu", "memory", "storage"].contains(&what.as_str()))
    {
        return Err(format!("{unknown} cannot be overcommitted: cpu, memory and storage can"));
    }
    let wrong = said.into_iter().find(|(_, percent)| percent.as_u64().is_none_or(|percent| percent < 100));
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

pub(super) fn minutes(value: &str) -> Result<(), String> {
    let fits = value.is_empty() || value.parse::<u32>().is_ok();
    fits.then_some(()).ok_or_else(|| "must be a whole number of minutes, not below 0".into())
}

/// A hundred years are as good as for ever, which is 0.
pub(super) fn token_minutes(value: &str) -> Result<(), String> {
    const HUNDRED_YEARS: u32 = 100 * 365 * 24 * 60;
    let fits = value.is_empty() || value.parse::<u32>().is_ok_and(|minutes| minutes <= HUNDRED_YEARS);
    fits.then_some(()).ok_or_else(|| format!("must be a whole number of minutes from 0 to {HUNDRED_YEARS}"))
}

/// How long a token in a kubeconfig lives, as the setting says; `None` is for ever.
pub fn kubeconfig_token_ttl(effective: &str) -> Option<Duration> {
    let minutes: u64 = effective.trim().parse().unwrap_or(0);
    (minutes > 0).then(|| Duration::from_secs(minutes * 60))
}

pub(super) fn boolean(value: &str) -> Result<(), String> {
    one_of(value, &["true", "false"])
}

pub(super) fn ui_source(value: &str) -> Result<(), String> {
    one_of(value, &["auto", "external", "bundled"])
}

/// The words of the original. There is nothing quieter here than errors.
pub(super) fn log_level(value: &str) -> Result<(), String> {
    one_of(value, &["panic", "fatal", "error", "warn", "warning", "info", "debug", "trace"])
}

fn one_of(value: &str, words: &[&str]) -> Result<(), String> {
    let fits = value.is_empty() || words.contains(&value);
    fits.then_some(()).ok_or_else(|| format!("must be one of {}", words.join(", ")))
}

/// Of the outside, and nobody's account in it: everybody may read it who may read settings.
pub(super) fn url(value: &str) -> Result<(), String> {
    if value.is_empty() {
        return Ok(());
    }
    let rest = value.strip_prefix("https://").or_else(|| value.strip_prefix("http://"));
    let host = rest.and_then(|rest| rest.split(['/', '?', '#']).next()).unwrap_or_default();
    if host.is_empty() || value.contains(char::is_whitespace) || value.contains(char::is_control) {
        return Err("must be a URL that begins with https:// or http://".into());
    }
    match host.contains('@') {
        true => Err("must have no user and no password in it".into()),
        false => Ok(()),
    }
}

pub(super) fn absolute_path(value: &str) -> Result<(), String> {
    let fits = value.is_empty() || (value.starts_with('/') && !value.contains(char::is_control));
    fits.then_some(()).ok_or_else(|| "must be an absolute path".into())
}

/// Part of a file's name, so nothing that leads elsewhere.
pub(super) fn file_name_part(value: &str) -> Result<(), String> {
    let fits = value.len() <= 100
        && value.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter));
    fits.then_some(())
        .ok_or_else(|| "must be letters, digits, dashes, dots and underscores, at most 100".into())
}

pub(super) fn word(value: &str) -> Result<(), String> {
    let fits =
        !value.contains(char::is_whitespace) && !value.contains(char::is_control) && value.len() <= 100;
    fits.then_some(()).ok_or_else(|| "must be one word".into())
}

pub(super) fn object_name(value: &str) -> Result<(), String> {
    match names::dns_subdomain_problems(value).first() {
        Some(why) if !value.is_empty() => Err(why.clone()),
        _ => Ok(()),
    }
}

pub(super) fn namespaces(value: &str) -> Result<(), String> {
    for name in value.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        if let Some(why) = names::dns_label_problems(name).first() {
            return Err(format!("namespace {name}: {why}"));
        }
    }
    Ok(())
}

pub(super) fn device_patterns(value: &str) -> Result<(), String> {
    let mut patterns = value.split(',').map(str::trim).filter(|pattern| !pattern.is_empty());
    let fits = patterns.all(|pattern| pattern.starts_with("/dev/") && !pattern.contains(".."));
    fits.then_some(())
        .ok_or_else(|| "must be patterns that begin with /dev/, with commas between them".into())
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
