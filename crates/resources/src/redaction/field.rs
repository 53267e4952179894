//! What makes a field one that is not shown, whoever is shown the rest: what the two ways of redacting have in common.

use serde_json::{Map, Value};

use super::looks::is_secret_name;

/// Longer texts are somebody's scripts, keys or configuration.
pub const LONG_TEXT: usize = 512;

/// Whether a text is more than a name.
pub fn is_long(text: &str) -> bool {
    text.len() > LONG_TEXT || text.contains('\n')
}

/// Any field that is about cloud-init, however it is spelled: a seed that is not understood is still a seed.
pub fn is_seed(name: &str) -> bool {
    name.len() >= 9 && name.as_bytes()[..9].eq_ignore_ascii_case(b"cloudinit")
}

/// Hides all of a seed but which Secrets it is in, which is harmless.
pub fn keep_references(seed: &mut Map<String, Value>, hide: fn(&mut Value)) {
    for (name, value) in seed.iter_mut() {
        match (name.as_str(), value) {
            ("secretRef" | "networkDataSecretRef", Value::Object(reference)) => {
                reference.retain(|field, value| field == "name" && value.is_string());
            }
            (_, value) => hide(value),
        }
    }
}

/// Hides the value of a pair whose name says that it is a secret: `{"name": "PASSWORD", "value": ...}`.
pub fn hide_pair(fields: &mut Map<String, Value>, hide: fn(&mut Value)) {
    let is_secret = |field: &str| fields.get(field).and_then(Value::as_str).is_some_and(is_secret_name);
    if (is_secret("name") || is_secret("key"))
        && let Some(value) = fields.get_mut("value")
    {
        hide(value);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pair_is_as_secret_as_its_name() {
        let hidden = |mut pair: Value| {
            hide_pair(pair.as_object_mut().unwrap(), |value| *value = json!("hidden"));
            pair["value"].clone()
        };
        assert_eq!(hidden(json!({"name": "MYSQL_ROOT_PASSWORD", "value": "x"})), "hidden");
        assert_eq!(hidden(json!({"key": "api-token", "value": {"a": 1}})), "hidden");
        assert_eq!(hidden(json!({"name": "TZ", "value": "UTC"})), "UTC");
        assert_eq!(hidden(json!({"name": "password"})), Value::Null);
    }

    #[test]
    fn a_seed_is_one_however_it_is_spelled() {
        for seed in ["cloudInitNoCloud", "cloudinit", "CLOUDINITX"] {
            assert!(is_seed(seed), "{seed}");
        }
        assert!(!is_seed("cloud") && !is_seed("clouds and rain"));
    }
}
