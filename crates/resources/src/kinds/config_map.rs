//! core/v1 ConfigMap: plain configuration, text and bytes, optionally frozen.

use base64::{Engine, engine::general_purpose::STANDARD};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use super::{age_column, count, name_column};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind},
    names,
};

/// Keys and values together, as the original limits them.
pub(super) const MAX_DATA: usize = 1024 * 1024;

pub fn kind() -> Kind {
    Kind::of_type::<ConfigMap>("configmaps")
        .short(&["cm"])
        .columns(vec![
            name_column(),
            Column::computed("Data", |object, _| {
                json!(count(&object["data"]) + count(&object["binaryData"]))
            })
            .integer(),
            age_column(),
        ])
        .behaving(Behaviour { validate, ..Behaviour::PLAIN })
}

fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut size = 0;
    for field in ["data", "binaryData"] {
        for (key, value) in new[field].as_object().into_iter().flatten() {
            errors.extend(check_data_key(field, key));
            let text = value.as_str().unwrap_or_default();
            size += if field == "data" { text.len() } else { text.len() / 4 * 3 };
            if field == "binaryData" {
                errors.extend(check_base64(field, key, text));
                if new["data"].get(key).is_some() {
                    errors.push(FieldError::invalid(
                        &FieldPath::new("data").key(key),
                        key.as_str(),
                        "duplicate of key present in binaryData",
                    ));
                }
            }
        }
    }
    if size > MAX_DATA {
        errors.push(FieldError::too_long(&FieldPath::root(), MAX_DATA as u64));
    }
    if let Some(old) = old {
        errors.extend(check_frozen(new, old, &["data", "binaryData"]));
    }
    errors
}

/// `immutable: true` can never be taken back, and freezes `fields`.
pub(super) fn check_frozen(new: &Value, old: &Value, fields: &[&str]) -> Vec<FieldError> {
    if old["immutable"] != true {
        return Vec::new();
    }
    let mut errors = Vec::new();
    if new["immutable"] != true {
        errors.push(FieldError::forbidden(
            &FieldPath::new("immutable"),
            "field is immutable when `immutable` is set",
        ));
    }
    for field in fields {
        if new[*field] != old[*field] {
            errors.push(FieldError::forbidden(
                &FieldPath::new(field),
                "field is immutable when `immutable` is set",
            ));
        }
    }
    errors
}

pub(super) fn check_data_key(field: &str, key: &str) -> Vec<FieldError> {
    let problems = names::config_key_problems(key).into_iter();
    problems.map(|why| FieldError::invalid(&FieldPath::new(field).key(key), key, why)).collect()
}

pub(super) fn check_base64(field: &str, key: &str, text: &str) -> Option<FieldError> {
    STANDARD.decode(text).err().map(|why| {
        FieldError::invalid(&FieldPath::new(field).key(key), "<bytes>", format!("must be base64: {why}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frozen_map_stays_as_it_is() {
        let old = json!({"immutable": true, "data": {"a": "1"}});
        assert_eq!(validate(&json!({"immutable": true, "data": {"a": "1"}}), Some(&old)).len(), 0);
        assert_eq!(validate(&json!({"immutable": true, "data": {"a": "2"}}), Some(&old)).len(), 1);
        assert_eq!(validate(&json!({"data": {"a": "1"}}), Some(&old)).len(), 1);
    }

    #[test]
    fn one_key_has_one_value() {
        let errors = validate(&json!({"data": {"a": "1"}, "binaryData": {"a": "Yg=="}}), None);
        assert_eq!(errors.len(), 1);
    }
}
