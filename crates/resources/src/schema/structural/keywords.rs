//! The rules about single keywords of a custom resource's schema: which are served, where a
//! default may stand, and what makes a list a set or a map. They hold inside junctors too.

use crate::field_error::{FieldError, FieldPath};
use crate::schema::{Additional, Schema, SchemaType, rules::definition};

const OPENAPI_TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

pub(super) fn check(schema: &Schema, path: &FieldPath, errors: &mut Vec<FieldError>) {
    walk(schema, path, Place { is_root: true, ..Place::default() }, errors);
}

/// Where in a resource a schema applies.
#[derive(Clone, Copy, Default)]
struct Place {
    is_root: bool,
    inside_meta: bool,
    /// Why a default may not stand here.
    no_default: Option<&'static str>,
}

/// The rules about single keywords, junctors included.
fn walk(schema: &Schema, path: &FieldPath, place: Place, errors: &mut Vec<FieldError>) {
    unserved(schema, path, place, errors);
    let inner = Place { is_root: false, ..place };
    if let Some(additional) = &schema.additional_properties {
        let here = path.child("additionalProperties");
        if !schema.properties.is_empty() && *additional != Additional::Allowed(true) {
            let detail = "additionalProperties and properties are mutual exclusive";
            errors.push(FieldError::forbidden(&here, detail));
        }
        if let Some(values) = additional.schema() {
            let no_default = match place.inside_meta {
                true => Some("must not be set inside additionalProperties applying to object metadata"),
                false => place.no_default,
            };
            walk(values, &here, Place { no_default, ..inner }, errors);
        }
    }
    for (name, field) in schema.properties.iter() {
        let meta = matches!(name, "metadata" | "kind" | "apiVersion");
        let place = match (place.is_root, schema.embedded_resource, meta) {
            (true, _, true) => {
                let reason = match name {
                    "metadata" => "must not be set in top-level metadata",
                    "kind" => "must not be set in top-level kind",
                    _ => "must not be set in top-level apiVersion",
                };
                Place { inside_meta: true, no_default: Some(reason), ..inner }
            }
            (false, true, true) => Place { inside_meta: true, ..inner },
            _ => inner,
        };
        walk(field, &path.child("properties").key(name), place, errors);
    }
    if let Some(items) = &schema.items {
        walk(items, &path.child("items"), inner, errors);
    }
    if let Some(rules) = &schema.rules {
        if let Some(not) = &rules.not {
            walk(not, &path.child("not"), inner, errors);
        }
        for (name, list) in [("allOf", &rules.all_of), ("oneOf", &rules.one_of), ("anyOf", &rules.any_of)] {
            for (index, schema) in list.iter().enumerate() {
                walk(schema, &path.child(name).index(index), inner, errors);
            }
        }
    }
    if schema.preserve_unknown_fields == Some(false) {
        let here = path.child("x-kubernetes-preserve-unknown-fields");
        errors.push(FieldError::invalid(&here, false, "must be true or undefined"));
    }
    map_type(schema, path, errors);
    list_type(schema, path, errors);
    definition::texts(schema, path, errors);
}

fn unserved(schema: &Schema, path: &FieldPath, place: Place, errors: &mut Vec<FieldError>) {
    if let Some(SchemaType::Other(name)) = &schema.kind {
        let here = path.child("type");
        errors.push(FieldError::not_supported(&here, &**name, OPENAPI_TYPES));
        if &**name == "null" {
            let detail = "type cannot be set to null, use nullable as an alternative";
            errors.push(FieldError::forbidden(&here, detail));
        }
    }
    if schema.default.is_some()
        && let Some(reason) = place.no_default
    {
        errors.push(FieldError::forbidden(&path.child("default"), reason));
    }
    for (keyword, _) in schema.extra.iter().flat_map(|extra| &extra.unserved) {
        let detail = match &**keyword {
            // Carried for documentation; means nothing.
            "$schema" => continue,
            "items" => "items must be a schema object and not an array".to_owned(),
            keyword => format!("{keyword} is not supported"),
        };
        errors.push(FieldError::forbidden(&path.child(keyword), detail));
    }
    if place.inside_meta && schema.embedded_resource {
        let here = path.child("x-kubernetes-embedded-resource");
        errors.push(FieldError::forbidden(&here, "must not be used inside of resource meta"));
    }
    if schema.rules.as_ref().is_some_and(|rules| rules.unique_items) {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(&path.child("uniqueItems"), detail));
    }
}

fn map_type(schema: &Schema, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let Some(map_type) = schema.map_type() else { return };
    must_be(schema, SchemaType::Object, "must be object if x-kubernetes-map-type is specified", path, errors);
    if !["atomic", "granular"].contains(&map_type) {
        let here = path.child("x-kubernetes-map-type");
        errors.push(FieldError::not_supported(&here, map_type, ["atomic", "granular"]));
    }
}

fn must_be(schema: &Schema, kind: SchemaType, detail: &str, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let here = path.child("type");
    match &schema.kind {
        Some(found) if *found == kind => {}
        Some(found) => errors.push(FieldError::invalid(&here, found.as_str(), detail)),
        None => errors.push(FieldError::required(&here, detail)),
    }
}

fn list_type(schema: &Schema, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let here = path.child("x-kubernetes-list-type");
    let keys = schema.list_map_keys();
    let Some(list_type) = schema.list_type() else {
        if !keys.is_empty() {
            let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
            errors.push(FieldError::required(&here, detail));
        }
        return;
    };
    must_be(schema, SchemaType::Array, "must be array if x-kubernetes-list-type is specified", path, errors);
    if !["atomic", "set", "map"].contains(&list_type) {
        errors.push(FieldError::not_supported(&here, list_type, ["atomic", "set", "map"]));
    }
    if !keys.is_empty() && list_type != "map" {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(FieldError::invalid(&here, list_type, detail));
    }
    match list_type {
        "set" => set_items(schema, path, errors),
        "map" => map_items(schema, path, errors),
        _ => {}
    }
}

/// Members of a set are compared as wholes, so nothing may own a part of one.
fn set_items(schema: &Schema, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let Some(items) = schema.items.as_deref() else { return };
    let here = path.child("items");
    let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
    match &items.kind {
        Some(SchemaType::Array) => {
            if let Some(found) = items.list_type().filter(|found| *found != "atomic") {
                errors.push(FieldError::invalid(&here.child("x-kubernetes-list-type"), found, detail));
            }
        }
        Some(SchemaType::Object) if items.map_type() != Some("atomic") => {
            let found = items.map_type().map_or(serde_json::Value::Null, Into::into);
            errors.push(FieldError::invalid(&here.child("x-kubernetes-map-type"), found, detail));
        }
        _ => {}
    }
    if items.nullable {
        let detail = "cannot be nullable when x-kubernetes-list-type is set";
        errors.push(FieldError::forbidden(&here.child("nullable"), detail));
    }
}

fn map_items(schema: &Schema, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let keys = schema.list_map_keys();
    let keys_path = path.child("x-kubernetes-list-map-keys");
    if keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(&keys_path, detail));
    }
    let here = path.child("items");
    let Some(items) = schema.items.as_deref() else {
        let detail = "must have a schema if x-kubernetes-list-type is map";
        errors.push(FieldError::required(&here, detail));
        return;
    };
    if items.nullable {
        let detail = "cannot be nullable when x-kubernetes-list-type is map";
        errors.push(FieldError::forbidden(&here.child("nullable"), detail));
    }
    if !items.is(&SchemaType::Object) {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(&here.child("type"), items.type_name(), detail));
        return;
    }
    let all: Vec<&str> = keys.iter().map(|key| &**key).collect();
    for (index, key) in keys.iter().enumerate() {
        let field_path = here.child("properties").key(key);
        match items.properties.get(key) {
            None => {
                let detail = "entries must all be names of item properties";
                errors.push(FieldError::invalid(&keys_path, all.clone(), detail));
            }
            Some(field) => {
                if field.is(&SchemaType::Array) || field.is(&SchemaType::Object) {
                    let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                    let here = field_path.child("type");
                    errors.push(FieldError::invalid(&here, field.type_name(), detail));
                }
                if field.default.is_none() && !items.required().contains(key) {
                    let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default \
                        or be a required property";
                    errors.push(FieldError::required(&field_path.child("default"), detail));
                }
                if field.nullable {
                    let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
                    errors.push(FieldError::forbidden(&field_path.child("nullable"), detail));
                }
            }
        }
        if all[..index].contains(&&**key) {
            let detail = "must not contain duplicate entries";
            errors.push(FieldError::invalid(&keys_path, all.clone(), detail));
        }
    }
}
