//! What machines are told at their first start: templates for people to choose from (ConfigMaps with a label) and what a
//! machine is given (Secrets with the same label). What a guest could not read is refused where its author sees it.
//!
//! Only what the label marks is looked at. What is in a Secret is never said again.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;
use sheaf_resources::field_error::{FieldError, FieldPath};

use crate::{body::yaml, rest::Call, status::ApiError};

/// Says what it is for: `user` and `network` on ConfigMaps, `harvester` on a machine's Secret.
const LABEL: &str = "harvesterhci.io/cloud-init-template";
/// Where a ConfigMap has it.
const KEY: &str = "cloudInit";
/// How user data begins that is none of YAML: cloud-init goes by its first line.
const OTHER_FORMATS: [&str; 9] = [
    "#!",
    "#include",
    "#cloud-boothook",
    "#cloud-config-archive",
    "#cloud-config-jsonp",
    "#part-handler",
    "#upstart-job",
    "## template:",
    "Content-Type:",
];

pub(super) fn admit_config_map(call: &Call<'_>, new: &Value, old: Option<&Value>) -> Result<(), ApiError> {
    let look = |map: &Value| (map["metadata"]["labels"][LABEL].clone(), map["data"][KEY].clone());
    if new["metadata"]["labels"][LABEL].is_null() || old.is_some_and(|old| look(old) == look(new)) {
        return Ok(());
    }
    let said = new["data"][KEY].as_str().unwrap_or_default();
    let at = FieldPath::new("data").key(KEY);
    let checked = match label(new) {
        "user" => user_data(said),
        "network" => network_data(said),
        other => return Err(invalid(call, new, not_supported(other, &["user", "network"]))),
    };
    match checked {
        _ if said.trim().is_empty() => {
            let why = "a template for cloud-init has its text there";
            Err(invalid(call, new, FieldError::required(&at, why)))
        }
        Err(why) => Err(invalid(call, new, without_value(&at, why))),
        Ok(()) => Ok(()),
    }
}

pub(super) fn admit_secret(call: &Call<'_>, new: &Value, old: Option<&Value>) -> Result<(), ApiError> {
    let look = |secret: &Value| (secret["metadata"]["labels"][LABEL].clone(), secret["data"].clone());
    if new["metadata"]["labels"][LABEL].is_null() || old.is_some_and(|old| look(old) == look(new)) {
        return Ok(());
    }
    if label(new) != "harvester" {
        return Err(invalid(call, new, not_supported(label(new), &["harvester"])));
    }
    let data = &new["data"];
    if data["userdata"].is_null() && data["networkdata"].is_null() {
        let why = "a machine's Secret for cloud-init has userdata or networkdata";
        return Err(invalid(call, new, FieldError::required(&FieldPath::new("data"), why)));
    }
    for (key, check) in
        [("userdata", user_data as fn(&str) -> Result<(), String>), ("networkdata", network_data)]
    {
        // What is not base64 is refused by its kind.
        let bytes = STANDARD.decode(data[key].as_str().unwrap_or_default()).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        if !text.trim().is_empty() && check(&text).is_err() {
            let why = "is not YAML that cloud-init can read";
            return Err(invalid(call, new, without_value(&FieldPath::new("data").key(key), why.into())));
        }
    }
    Ok(())
}

fn label(object: &Value) -> &str {
    object["metadata"]["labels"][LABEL].as_str().unwrap_or_default()
}

fn user_data(text: &str) -> Result<(), String> {
    if OTHER_FORMATS.iter().any(|beginning| text.starts_with(beginning)) {
        return Ok(());
    }
    mapping(text).map(drop)
}

/// Of version 1 or 2, with or without the word `network` around it.
fn network_data(text: &str) -> Result<(), String> {
    let whole = mapping(text)?;
    let inner = if whole["network"].is_object() { &whole["network"] } else { &whole };
    match inner["version"].as_u64() {
        Some(1 | 2) => Ok(()),
        _ => Err("must say version: 1 or version: 2".into()),
    }
}

fn mapping(text: &str) -> Result<Value, String> {
    let read = yaml::read(text).map_err(|why| format!("is not YAML: {why}"))?;
    match read.value.is_object() {
        true => Ok(read.value),
        false => Err("must be a YAML mapping".into()),
    }
}

fn not_supported(found: &str, known: &[&str]) -> FieldError {
    FieldError::not_supported(&FieldPath::new("metadata").child("labels").key(LABEL), found, known)
}

fn without_value(at: &FieldPath, why: String) -> FieldError {
    FieldError { bad_value: None, ..FieldError::invalid(at, Value::Null, why) }
}

fn invalid(call: &Call<'_>, new: &Value, error: FieldError) -> ApiError {
    let kind = &call.served.kind;
    let name = new["metadata"]["name"].as_str().unwrap_or_default();
    ApiError::invalid(&kind.group, &kind.kind, name, &[error])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_data_is_a_mapping_or_says_what_else_it_is() {
        for fits in [
            "#cloud-config\npackages: [a]\n",
            "packages:\n  - a\n",
            "#!/bin/sh\necho: [",
            "## template: jinja\n#cloud-config\n{% if x %}\n",
        ] {
            assert_eq!(user_data(fits), Ok(()), "{fits}");
        }
        for odd in
            ["#cloud-config\n- a\n", "#cloud-config\na: [\n", "hello", "#cloud-config\n", "a: 1\n---\nb: 2\n"]
        {
            assert!(user_data(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn a_network_says_its_version() {
        for fits in ["version: 2\nethernets: {}\n", "network:\n  version: 1\n  config: []\n"] {
            assert_eq!(network_data(fits), Ok(()), "{fits}");
        }
        for odd in ["ethernets: {}\n", "version: 3\n", "network: {}\n", "- version: 2\n"] {
            assert!(network_data(odd).is_err(), "{odd}");
        }
    }
}
