//! Resources inside resources (`x-kubernetes-embedded-resource`) say what they are: they
//! have an `apiVersion` and a `kind` that could name a kind. The metadata is checked to be
//! an object; its names are for whoever creates the resource to judge.

use serde_json::{Map, Value};

use super::{Additional, Schema};
use crate::field_error::{FieldError, FieldPath};

pub(super) fn validate(value: &Value, schema: &Schema, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(value, schema, path, &mut errors);
    errors
}

fn walk(value: &Value, schema: &Schema, path: &FieldPath, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            if schema.embedded_resource {
                resource(map, path, errors);
            }
            let mut names: Vec<&String> = map.keys().collect();
            names.sort_unstable();
            for name in names {
                let Some(value) = map.get(name) else { continue };
                if let Some(inner) = schema.properties.get(name) {
                    walk(value, inner, &path.child(name), errors);
                } else if let Some(Additional::Schema(inner)) = &schema.additional_properties {
                    walk(value, inner, &path.key(name), errors);
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                for (index, item) in list.iter().enumerate() {
                    walk(item, items, &path.index(index), errors);
                }
            }
        }
        _ => {}
    }
}

fn resource(map: &Map<String, Value>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    for name in ["apiVersion", "kind"] {
        let here = path.child(name);
        match map.get(name) {
            None => errors.push(FieldError::required(&here, "")),
            Some(Value::String(text)) if text.is_empty() => errors.push(FieldError::required(&here, "")),
            Some(Value::String(text)) if name == "apiVersion" => {
                if text.matches('/').count() > 1 {
                    let detail = format!("unexpected GroupVersion string: {text}");
                    errors.push(FieldError::invalid(&here, text.as_str(), detail));
                }
            }
            Some(Value::String(text)) => {
                if !is_kind(text) {
                    let detail = "may have mixed case, but should otherwise match: a DNS-1035 label must \
                        consist of lower case alphanumeric characters or '-', start with an alphabetic \
                        character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', \
                        regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
                    errors.push(FieldError::invalid(&here, text.as_str(), detail));
                }
            }
            Some(other) => errors.push(FieldError::invalid(&here, other.clone(), "must be a string")),
        }
    }
    if let Some(metadata) = map.get("metadata")
        && !metadata.is_object()
        && !metadata.is_null()
    {
        let here = path.child("metadata");
        errors.push(FieldError::invalid(&here, metadata.clone(), "must be an object"));
    }
}

fn is_kind(text: &str) -> bool {
    let bytes = text.as_bytes();
    text.len() <= 63
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
        && bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_embedded_resource_says_what_it_is() {
        let schema = json!({"type": "object", "properties": {"r": {
            "type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true}}});
        let schema = Schema::parse(&schema).unwrap();
        let errors = |value: Value| -> Vec<String> {
            validate(&json!({"r": value}), &schema, &FieldPath::root())
                .iter()
                .map(|e| e.to_string())
                .collect()
        };
        assert!(errors(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}})).is_empty());
        assert_eq!(errors(json!({})), ["r.apiVersion: Required value", "r.kind: Required value"]);
        assert_eq!(
            errors(json!({"apiVersion": "a/b/c", "kind": 1})),
            [
                r#"r.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c"#,
                "r.kind: Invalid value: 1: must be a string",
            ]
        );
        assert!(errors(json!({"apiVersion": "v1", "kind": "-"}))[0].contains("may have mixed case"));
    }
}
