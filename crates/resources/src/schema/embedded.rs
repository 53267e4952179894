//! Resources inside resources (`x-kubernetes-embedded-resource`) say what they are: they
//! have an `apiVersion` and a `kind` that could name a kind. The metadata is checked to be
//! an object; its names are for whoever creates the resource to judge.

use serde_json::{Map, Value};

use super::trail::Trail;
use super::{Additional, Schema};
use crate::field_error::{FieldError, FieldPath};
use crate::names::dns_1035_label_problems;

pub(super) fn validate(value: &Value, schema: &Schema, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(value, schema, &Trail::Root, path, &mut errors);
    errors
}

fn walk(value: &Value, schema: &Schema, at: &Trail<'_>, base: &FieldPath, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            if schema.embedded_resource {
                resource(map, &at.path(base), errors);
            }
            let mut names: Vec<&String> = map.keys().collect();
            names.sort_unstable();
            for name in names {
                let Some(value) = map.get(name) else { continue };
                if let Some(inner) = schema.properties.get(name) {
                    walk(value, inner, &Trail::Field(at, name), base, errors);
                } else if let Some(Additional::Schema(inner)) = &schema.additional_properties {
                    walk(value, inner, &Trail::Entry(at, name), base, errors);
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                for (index, item) in list.iter().enumerate() {
                    walk(item, items, &Trail::Element(at, index), base, errors);
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
                let problems = dns_1035_label_problems(&text.to_lowercase());
                if !problems.is_empty() {
                    let detail =
                        format!("may have mixed case, but should otherwise match: {}", problems.join(","));
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
