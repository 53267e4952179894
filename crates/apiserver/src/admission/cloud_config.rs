//! What machines are told at their first start: templates for people to choose from (ConfigMaps with a label) and what a
//! machine is given (Secrets with the same label).
//!
//! What no guest could read is refused where its author sees it. What cloud-init passes over, and somebody else may take, is
//! let in with a warning: guests have other readers, too. Only what the label marks is looked at. What is in a Secret is
//! never said again.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;
use sheaf_resources::field_error::{FieldError, FieldPath};

use crate::{
    body::yaml::{self, Shape},
    rest::Call,
    status::ApiError,
};

/// Says what it is for: `user` and `network` on ConfigMaps, `harvester` on a machine's Secret.
const LABEL: &str = "harvesterhci.io/cloud-init-template";
/// Where a ConfigMap has it.
const KEY: &str = "cloudInit";
/// How user data begins, in lower case, whose form is for its reader to check. The last ones are those of Windows guests.
const OTHER_FORMATS: [&str; 13] = [
    "#!",
    "#include",
    "#cloud-boothook",
    "#cloud-config-archive",
    "#cloud-config-jsonp",
    "#part-handler",
    "#upstart-job",
    "## template:",
    "content-type:",
    "#ps1",
    "rem cmd",
    "<powershell>",
    "<script>",
];
const CLOUD_CONFIG: &str = "#cloud-config";
/// Within so many bytes cloud-init looks for the word that makes a text a message of several parts.
const MIME_WITHIN: usize = 4096;
const MIME: &str = "mime-version:";
const GZIP: [u8; 2] = [0x1f, 0x8b];

const NO_HEADER: &str =
    "does not begin with #cloud-config or another line that cloud-init knows: it passes over it";
const SEVERAL: &str = "has several documents: cloud-init reads one";
const NO_TEXT: &str = "is no UTF-8 text: cloud-init may not be able to read it";
const NO_VERSION: &str = "does not say version: 1 or version: 2: cloud-init may not be able to read it";

/// How user data or network data is to be taken.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Fine,
    /// It may be meant for somebody else than cloud-init.
    Doubtful(&'static str),
    /// Nobody can read it.
    Wrong(String),
}

pub(super) fn admit_config_map(call: &Call<'_>, new: &Value, old: Option<&Value>) -> Result<(), ApiError> {
    let look = |map: &Value| (map["metadata"]["labels"][LABEL].clone(), map["data"][KEY].clone());
    if new["metadata"]["labels"][LABEL].is_null() || old.is_some_and(|old| look(old) == look(new)) {
        return Ok(());
    }
    let said = new["data"][KEY].as_str().unwrap_or_default();
    let at = FieldPath::new("data").key(KEY);
    let verdict = match label(new) {
        "user" => user_data(said.as_bytes()),
        "network" => network_data(said.as_bytes()),
        other => return Err(invalid(call, new, not_supported(other, &["user", "network"]))),
    };
    match verdict {
        _ if said.trim().is_empty() => {
            let why = "a template for cloud-init has its text there";
            Err(invalid(call, new, FieldError::required(&at, why)))
        }
        Verdict::Wrong(why) => Err(invalid(call, new, without_value(&at, why))),
        Verdict::Doubtful(why) => {
            call.warnings.add([format!("data.{KEY} {why}")]);
            Ok(())
        }
        Verdict::Fine => Ok(()),
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
    for (key, judge) in [("userdata", user_data as fn(&[u8]) -> Verdict), ("networkdata", network_data)] {
        // What is not base64 is refused by its kind.
        let bytes = STANDARD.decode(data[key].as_str().unwrap_or_default()).unwrap_or_default();
        if bytes.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match judge(&bytes) {
            Verdict::Fine => {}
            Verdict::Doubtful(why) => call.warnings.add([format!("data.{key} {why}")]),
            Verdict::Wrong(_) => {
                let why = "is not YAML that cloud-init can read";
                return Err(invalid(call, new, without_value(&FieldPath::new("data").key(key), why.into())));
            }
        }
    }
    Ok(())
}

fn label(object: &Value) -> &str {
    object["metadata"]["labels"][LABEL].as_str().unwrap_or_default()
}

/// As cloud-init looks at it: packed or not, and by its beginning, whatever stands before it and however it is spelled.
fn user_data(bytes: &[u8]) -> Verdict {
    if bytes.starts_with(&GZIP) {
        return Verdict::Fine;
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return Verdict::Doubtful(NO_TEXT) };
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let beginning: String = text.chars().take(MIME_WITHIN).collect::<String>().to_lowercase();
    let is_other = OTHER_FORMATS.iter().any(|other| beginning.starts_with(other));
    if is_other || beginning.contains(MIME) {
        return Verdict::Fine;
    }
    let is_config = beginning.starts_with(CLOUD_CONFIG);
    match yaml::shapes(text) {
        Err(why) if is_config => Verdict::Wrong(format!("is not YAML: {why}")),
        Ok(shapes) if is_config => match shapes.as_slice() {
            // Nothing but that line asks for nothing.
            [] | [Shape::Nothing | Shape::Mapping] => Verdict::Fine,
            [Shape::Scalar | Shape::Sequence] => Verdict::Wrong("must be a YAML mapping".into()),
            _ => Verdict::Doubtful(SEVERAL),
        },
        // Ignition, which other guests are told by.
        Ok(_) if beginning.starts_with('{') && beginning.contains("\"ignition\"") => Verdict::Fine,
        Ok(_) | Err(_) => Verdict::Doubtful(NO_HEADER),
    }
}

/// Of version 1 or 2, with or without the word `network` around it; or as OpenStack has it, which is what a config drive
/// holds; or that there is none.
fn network_data(bytes: &[u8]) -> Verdict {
    let Ok(text) = std::str::from_utf8(bytes) else { return Verdict::Wrong("is no UTF-8 text".into()) };
    match yaml::shapes(text) {
        Err(why) => return Verdict::Wrong(format!("is not YAML: {why}")),
        Ok(shapes) => match shapes.as_slice() {
            [Shape::Mapping] => {}
            [] | [Shape::Nothing | Shape::Scalar | Shape::Sequence] => {
                return Verdict::Wrong("must be a YAML mapping".into());
            }
            _ => return Verdict::Doubtful(SEVERAL),
        },
    }
    let Ok(read) = yaml::read(text) else { return Verdict::Doubtful(NO_VERSION) };
    let whole = read.value;
    let inner = if whole["network"].is_object() { &whole["network"] } else { &whole };
    let is_openstack = inner["links"].is_array() || inner["networks"].is_array();
    match inner["version"].as_u64() {
        Some(1 | 2) => Verdict::Fine,
        _ if inner["config"] == "disabled" || is_openstack => Verdict::Fine,
        _ => Verdict::Doubtful(NO_VERSION),
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
    fn user_data_that_cloud_init_takes_is_taken() {
        for fits in [
            "#cloud-config\npackages: [a]\n",
            "\n #Cloud-Config\npackages: [a]\n",
            "#cloud-config",
            "#cloud-config\n# nothing yet\n",
            "#cloud-config\nwrite_files: [{content: !!binary aGk=, path: /a}]\n",
            "#cloud-config\na: 1\na: 2\n",
            "#!/bin/sh\necho: [",
            "#include\nhttps://example.com/a\n",
            "#include-once\nhttps://example.com/a\n",
            "## template: jinja\n#cloud-config\n{% if x %}\n",
            "Content-Type: multipart/mixed; boundary=\"b\"\nMIME-Version: 1.0\n\n--b\n",
            "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"b\"\n\n--b\n",
            "From nobody\nMIME-Version: 1.0\n\n[",
            "#ps1_sysnative\nWrite-Host [",
            "rem cmd\r\ndir\r\n",
            "{\"ignition\": {\"version\": \"3.3.0\"}}",
        ] {
            assert_eq!(user_data(fits.as_bytes()), Verdict::Fine, "{fits}");
        }
        assert_eq!(user_data(&[0x1f, 0x8b, 8, 0, 0xff]), Verdict::Fine);
    }

    #[test]
    fn what_cloud_init_passes_over_is_doubtful_and_what_nobody_reads_is_wrong() {
        for doubtful in
            ["packages:\n  - a\n", "hello", "[", "#cloud-config\na: 1\n---\nb: 2\n", "a: 1\n---\nb: 2\n"]
        {
            assert!(matches!(user_data(doubtful.as_bytes()), Verdict::Doubtful(_)), "{doubtful}");
        }
        assert_eq!(user_data(&[0xff, 0xfe, b'a']), Verdict::Doubtful(NO_TEXT));
        for wrong in ["#cloud-config\n- a\n", "#cloud-config\na: [\n", "#cloud-config\njust words\n"] {
            assert!(matches!(user_data(wrong.as_bytes()), Verdict::Wrong(_)), "{wrong}");
        }
    }

    #[test]
    fn a_network_says_its_version_or_what_else_it_is() {
        for fits in [
            "version: 2\nethernets: {}\n",
            "network:\n  version: 1\n  config: []\n",
            "network: {config: disabled}\n",
            "{\"links\": [], \"networks\": [], \"services\": []}",
        ] {
            assert_eq!(network_data(fits.as_bytes()), Verdict::Fine, "{fits}");
        }
        for doubtful in ["ethernets: {}\n", "version: 3\n", "network: {}\n", "version: 2\n---\nversion: 2\n"]
        {
            assert!(matches!(network_data(doubtful.as_bytes()), Verdict::Doubtful(_)), "{doubtful}");
        }
        for wrong in ["- version: 2\n", "a: [", "words"] {
            assert!(matches!(network_data(wrong.as_bytes()), Verdict::Wrong(_)), "{wrong}");
        }
    }

    proptest::proptest! {
        #[test]
        fn nothing_makes_the_judge_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200), text in "(#cloud-config\n)?.{0,80}") {
            for data in [bytes.as_slice(), text.as_bytes()] {
                let _ = (user_data(data), network_data(data));
            }
        }
    }
}
