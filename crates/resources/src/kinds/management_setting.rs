//! management.cattle.io/v3 Setting: what a dashboard shows and asks for, its value a text.
//!
//! Not the settings of the cluster, which are Harvester's ([`setting`](super::setting)). [`ALL`] says which there are: what
//! nobody would read cannot be set.

use serde_json::{Value, json};

use super::{name_column, text};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind},
    schema::Schema,
};

pub const GROUP: &str = "management.cattle.io";
pub const PLURAL: &str = "settings";
/// `true` until the first administrator has chosen a password.
pub const FIRST_LOGIN: &str = "first-login";
/// Where people reach this cluster; kubeconfigs name it.
pub const SERVER_URL: &str = "server-url";

/// A logo is a picture in a text.
const MOST_BYTES: usize = 128 * 1024;

/// One setting that there is.
pub struct Known {
    pub name: &'static str,
    pub default: &'static str,
    /// Whether it is shown to who has not signed in: the page to sign in on is made of it.
    pub public: bool,
    check: fn(&str) -> Result<(), String>,
}

const fn plain(name: &'static str, default: &'static str) -> Known {
    Known { name, default, public: false, check: anything }
}

const fn shown(name: &'static str, default: &'static str) -> Known {
    Known { name, default, public: true, check: anything }
}

const fn settled(name: &'static str, default: &'static str) -> Known {
    Known { name, default, public: false, check: nothing_else }
}

/// Every setting, in the order of their names.
pub const ALL: [Known; 20] = [
    settled("auth-user-session-ttl-minutes", "960"),
    plain("eula-agreed", ""),
    Known { name: FIRST_LOGIN, default: "true", public: true, check: flag },
    settled("password-min-length", "12"),
    Known { name: SERVER_URL, default: "", public: false, check: address },
    Known { name: "telemetry-opt", default: "out", public: false, check: no_telemetry },
    shown("ui-banner-dark", ""),
    shown("ui-banner-light", ""),
    shown("ui-banners", "{}"),
    shown("ui-brand", ""),
    plain("ui-community-links", ""),
    plain("ui-custom-links", ""),
    shown("ui-favicon", ""),
    plain("ui-issues", ""),
    plain("ui-link-color", ""),
    shown("ui-login-background-dark", ""),
    shown("ui-login-background-light", ""),
    shown("ui-logo-dark", ""),
    shown("ui-logo-light", ""),
    shown("ui-pl", "Sheaf"),
];

pub fn known(name: &str) -> Option<&'static Known> {
    ALL.iter().find(|known| known.name == name)
}

pub fn kind() -> Kind {
    Kind::built_in(GROUP, "v3", "Setting", PLURAL, schema)
        .cluster_scoped()
        .columns(vec![name_column(), Column::computed("Value", |setting, _| setting["value"].clone())])
        .behaving(Behaviour { validate, ..Behaviour::PLAIN })
}

/// What holds.
pub fn effective(setting: &Value) -> &str {
    match text(&setting["value"]) {
        "" => text(&setting["default"]),
        value => value,
    }
}

fn schema() -> Schema {
    let string = |description: &str| json!({"type": "string", "description": description});
    super::object_schema(
        "What a dashboard shows and asks for.",
        json!({
            "value": string("What somebody set; empty leaves the default."),
            "default": string("What holds while nothing is set."),
            "customized": {"type": "boolean", "description": "Whether the value is somebody's."},
            "source": string("Where the value comes from when not from here."),
        }),
    )
}

fn validate(new: &Value, _: Option<&Value>) -> Vec<FieldError> {
    let name = text(&new["metadata"]["name"]);
    let Some(known) = known(name) else {
        let names: Vec<&str> = ALL.iter().map(|known| known.name).collect();
        return vec![FieldError::not_supported(&FieldPath::new("metadata").child("name"), name, &names)];
    };
    let mut errors = Vec::new();
    let (path, value) = (FieldPath::new("value"), text(&new["value"]));
    if value.len() > MOST_BYTES {
        errors.push(FieldError::too_long(&path, MOST_BYTES as u64));
    } else if !value.is_empty()
        && value != known.default
        && let Err(why) = (known.check)(value)
    {
        errors.push(FieldError::invalid(&path, value, why));
    }
    if text(&new["default"]) != known.default {
        let path = FieldPath::new("default");
        errors.push(FieldError::invalid(&path, new["default"].clone(), "is settled by the server"));
    }
    errors
}

fn anything(_: &str) -> Result<(), String> {
    Ok(())
}

fn nothing_else(_: &str) -> Result<(), String> {
    Err("is settled by the server".into())
}

fn flag(value: &str) -> Result<(), String> {
    match value {
        "true" | "false" => Ok(()),
        _ => Err("must be true or false".into()),
    }
}

fn no_telemetry(_: &str) -> Result<(), String> {
    Err("nothing is ever sent from here: it may be out".into())
}

/// `https://host` or `https://host:port`: kubeconfigs are made of it.
fn address(value: &str) -> Result<(), String> {
    let host = value.strip_prefix("https://").map(|rest| rest.strip_suffix('/').unwrap_or(rest));
    let fits = |host: &str| {
        (1..=255).contains(&host.len())
            && host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-:[]".contains(&b))
    };
    match host {
        Some(host) if fits(host) => Ok(()),
        _ => Err("must be https:// and a host, with a port or without, and nothing after it".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(name: &str, value: &str) -> Vec<String> {
        let default = known(name).map_or("", |known| known.default);
        let setting = json!({"metadata": {"name": name}, "value": value, "default": default});
        validate(&setting, None).into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn settings_are_in_order_and_pass_their_own_rules() {
        assert!(ALL.is_sorted_by_key(|known| known.name));
        for known in &ALL {
            assert!(problems(known.name, known.default).is_empty(), "{}", known.name);
            assert!(problems(known.name, "").is_empty(), "{}", known.name);
        }
    }

    #[test]
    fn what_nobody_reads_cannot_be_set_and_what_is_settled_stays() {
        assert_eq!(problems("agent-image", "x"), ["metadata.name"]);
        assert_eq!(problems("password-min-length", "1"), ["value"]);
        assert_eq!(problems("telemetry-opt", "in"), ["value"]);
        assert_eq!(problems("first-login", "perhaps"), ["value"]);
        assert_eq!(problems("ui-logo-light", &"x".repeat(MOST_BYTES + 1)), ["value"]);
        assert!(problems("ui-logo-light", &"x".repeat(MOST_BYTES)).is_empty());
        let moved = json!({"metadata": {"name": "ui-pl"}, "default": "Other"});
        assert_eq!(validate(&moved, None)[0].field, "default");
    }

    #[test]
    fn a_server_url_is_a_place_and_nothing_else() {
        for good in ["https://sheaf.example", "https://10.0.0.1:6443", "https://[fd00::1]:6443/"] {
            assert!(problems(SERVER_URL, good).is_empty(), "{good}");
        }
        for bad in [
            "http://a",
            "https://",
            "https://a/b",
            "https://a b",
            "https://a\"",
            "a",
            "https://u@h",
            "https://a?b",
        ] {
            assert_eq!(problems(SERVER_URL, bad), ["value"], "{bad}");
        }
    }
}
