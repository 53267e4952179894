//! core/v1 Secret: sealed in the store, `stringData` for those who write by hand.

use base64::{Engine, engine::general_purpose::STANDARD};
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Map, Value, json};

use super::{
    age_column,
    config_map::{MAX_DATA, check_base64, check_data_key, check_frozen},
    count, name_column, text,
};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind},
};

pub const SERVICE_ACCOUNT_TOKEN: &str = "kubernetes.io/service-account-token";
/// On a token secret: the service account it speaks for.
pub const SERVICE_ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
pub const SERVICE_ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

pub fn kind() -> Kind {
    Kind::of_type::<Secret>("secrets")
        .columns(vec![
            name_column(),
            Column::computed("Type", |object, _| object["type"].clone()),
            Column::computed("Data", |object, _| json!(count(&object["data"]))).integer(),
            age_column(),
        ])
        .selectable(&["type"])
        .behaving(Behaviour { default, prepare_update, validate, sealed: true, ..Behaviour::PLAIN })
}

/// `stringData` is write-only: it is folded into `data`, winning over it.
fn default(object: &mut Value) {
    let Some(fields) = object.as_object_mut() else { return };
    if let Some(Value::Object(plain)) = fields.remove("stringData") {
        let data = fields.entry("data").or_insert_with(|| Value::Object(Map::new()));
        if !data.is_object() {
            *data = Value::Object(Map::new());
        }
        for (key, value) in plain {
            data[key] = STANDARD.encode(text(&value)).into();
        }
    }
    fields.entry("type").or_insert_with(|| "Opaque".into());
}

/// A type left out on update stays what it was.
fn prepare_update(new: &mut Value, old: &Value) {
    if text(&new["type"]).is_empty() {
        new["type"] = old["type"].clone();
    }
}

fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut size = 0;
    for (key, value) in new["data"].as_object().into_iter().flatten() {
        errors.extend(check_data_key("data", key));
        errors.extend(check_base64("data", key, text(value)));
        size += text(value).len() / 4 * 3;
    }
    if size > MAX_DATA {
        errors.push(FieldError::too_long(&FieldPath::new("data"), MAX_DATA as u64));
    }
    errors.extend(check_type(new));
    if let Some(old) = old {
        if new["type"] != old["type"] {
            errors.push(FieldError::invalid(
                &FieldPath::new("type"),
                text(&new["type"]),
                "field is immutable",
            ));
        }
        errors.extend(check_frozen(new, old, &["data"]));
    }
    errors
}

/// What each well-known type must hold.
fn check_type(secret: &Value) -> Vec<FieldError> {
    let data = &secret["data"];
    let needs = |keys: &[&str]| -> Vec<FieldError> {
        keys.iter()
            .filter(|key| data.get(**key).is_none())
            .map(|key| FieldError::required(&FieldPath::new("data").key(key), ""))
            .collect()
    };
    match text(&secret["type"]) {
        SERVICE_ACCOUNT_TOKEN => {
            let account = &secret["metadata"]["annotations"][SERVICE_ACCOUNT_NAME];
            if text(account).is_empty() {
                vec![FieldError::required(
                    &FieldPath::new("metadata").child("annotations").key(SERVICE_ACCOUNT_NAME),
                    "",
                )]
            } else {
                Vec::new()
            }
        }
        "kubernetes.io/dockercfg" => needs(&[".dockercfg"]),
        "kubernetes.io/dockerconfigjson" => needs(&[".dockerconfigjson"]),
        "kubernetes.io/tls" => needs(&["tls.crt", "tls.key"]),
        "kubernetes.io/ssh-auth" => needs(&["ssh-privatekey"]),
        "kubernetes.io/basic-auth" if data.get("username").is_none() && data.get("password").is_none() => {
            vec![
                FieldError::required(&FieldPath::new("data").key("username"), ""),
                FieldError::required(&FieldPath::new("data").key("password"), ""),
            ]
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn string_data_is_folded_in_and_never_kept() {
        let mut secret = json!({"data": {"a": "eA==", "b": "eQ=="}, "stringData": {"a": "new"}});
        default(&mut secret);
        assert_eq!(secret, json!({"data": {"a": "bmV3", "b": "eQ=="}, "type": "Opaque"}));
    }

    #[test]
    fn a_token_secret_names_its_account() {
        let errors = validate(&json!({"type": SERVICE_ACCOUNT_TOKEN}), None);
        assert_eq!(errors.len(), 1);
        let named =
            json!({"type": SERVICE_ACCOUNT_TOKEN, "metadata": {"annotations": {SERVICE_ACCOUNT_NAME: "x"}}});
        assert!(validate(&named, None).is_empty());
    }

    #[test]
    fn the_type_never_changes() {
        let errors = validate(&json!({"type": "b"}), Some(&json!({"type": "a"})));
        assert_eq!(errors[0].field, "type");
    }

    #[test]
    fn data_that_is_not_base64_is_refused() {
        assert_eq!(validate(&json!({"type": "Opaque", "data": {"a": "%%%"}}), None).len(), 1);
    }
}
