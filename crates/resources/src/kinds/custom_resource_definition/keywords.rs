//! Drops keywords that no schema has from the schemas of a definition.
//!
//! The type of a schema contains itself, so the built-in schema of definitions leaves the
//! inside of schemas alone; this walks it instead, with the same result as a typed decoder:
//! what is unknown is gone, and its path is told.

use serde_json::{Map, Value};

const KEYWORDS: [&str; 44] = [
    "$ref",
    "$schema",
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "default",
    "definitions",
    "dependencies",
    "description",
    "enum",
    "example",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "externalDocs",
    "format",
    "id",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "not",
    "nullable",
    "oneOf",
    "pattern",
    "patternProperties",
    "properties",
    "required",
    "title",
    "type",
    "uniqueItems",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
];

/// Removes unknown keywords from every schema of `crd` and gives back their paths.
pub fn prune_schemas(crd: &mut Value) -> Vec<String> {
    let mut dropped = Vec::new();
    let versions =
        crd.get_mut("spec").and_then(|spec| spec.get_mut("versions")).and_then(Value::as_array_mut);
    for (index, version) in versions.into_iter().flatten().enumerate() {
        let schema = version.get_mut("schema").and_then(|schema| schema.get_mut("openAPIV3Schema"));
        if let Some(schema) = schema {
            prune(schema, &format!("spec.versions[{index}].schema.openAPIV3Schema"), &mut dropped);
        }
    }
    dropped
}

fn prune(schema: &mut Value, path: &str, dropped: &mut Vec<String>) {
    let Value::Object(map) = schema else { return };
    let mut unknown: Vec<String> =
        map.keys().filter(|key| !KEYWORDS.contains(&key.as_str())).cloned().collect();
    unknown.sort_unstable();
    for key in unknown {
        map.remove(&key);
        dropped.push(format!("{path}.{key}"));
    }
    for key in ["properties", "patternProperties", "definitions", "dependencies"] {
        if let Some(Value::Object(schemas)) = map.get_mut(key) {
            for name in sorted(schemas) {
                if let Some(inner) = schemas.get_mut(&name) {
                    prune(inner, &format!("{path}.{key}.{name}"), dropped);
                }
            }
        }
    }
    for key in ["items", "allOf", "anyOf", "oneOf", "not", "additionalProperties", "additionalItems"] {
        match map.get_mut(key) {
            Some(Value::Array(list)) => {
                for (index, inner) in list.iter_mut().enumerate() {
                    prune(inner, &format!("{path}.{key}[{index}]"), dropped);
                }
            }
            Some(inner) => prune(inner, &format!("{path}.{key}"), dropped),
            None => {}
        }
    }
}

fn sorted(map: &Map<String, Value>) -> Vec<String> {
    let mut names: Vec<String> = map.keys().cloned().collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_keywords_go_at_any_depth_and_values_are_left_alone() {
        let mut crd = json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": {
            "type": "object", "const": 1, "properties": {
                "const": {"type": "string", "examples": [], "default": {"const": 2}},
                "l": {"items": {"anyOf": [{"then": {}}]}}}}}}]}});
        assert_eq!(
            prune_schemas(&mut crd),
            [
                "spec.versions[0].schema.openAPIV3Schema.const",
                "spec.versions[0].schema.openAPIV3Schema.properties.const.examples",
                "spec.versions[0].schema.openAPIV3Schema.properties.l.items.anyOf[0].then",
            ]
        );
        let fields = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        assert_eq!(fields["const"], json!({"type": "string", "default": {"const": 2}}));
    }

    #[test]
    fn a_definition_without_schemas_is_left_alone() {
        for mut crd in [json!(null), json!({"spec": {"versions": [{}]}}), json!({"spec": {"versions": 1}})] {
            assert!(prune_schemas(&mut crd).is_empty());
        }
    }
}
