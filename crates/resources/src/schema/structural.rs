//! Whether a schema may define a custom resource.
//!
//! Version 1 CRDs take *structural* schemas only: every field has its type outside the
//! junctors, so that pruning and defaulting never depend on which alternative holds.
//! [`check`] also refuses what OpenAPI allows and the original does not (`$ref`,
//! `patternProperties`), list types that do not add up, defaults that would not themselves
//! be accepted, and `x-kubernetes-validations`, which nothing here evaluates yet.
//!
//! The messages are the original's; their order is alphabetical.

use super::validate::against_schema;
use super::{Additional, Extra, Schema, SchemaType, ValueRules, embedded, prune};
use crate::field_error::{FieldError, FieldPath};

const OPENAPI_TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

const STRUCTURAL: &str = "must be undefined to be structural";

/// Everything that keeps `schema` from being the root schema of a custom resource. `path`
/// is where the schema stands in the CRD; `with_status` says whether the status subresource
/// is on, which limits what the root may say.
pub fn check(schema: &Schema, path: &FieldPath, with_status: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if with_status {
        root_with_status(schema, path, &mut errors);
    }
    if schema.nullable {
        errors.push(FieldError::forbidden(&path.child("nullable"), "nullable cannot be true at the root"));
    }
    let mut shape = Vec::new();
    invariants(schema, Level::Root, path, &mut shape);
    if let Some(rules) = &schema.rules {
        completeness(rules, schema, path, path, &mut shape);
    }
    shape.sort_by_key(ToString::to_string);
    if shape.is_empty() {
        defaults(schema, path, true, &mut shape);
    }
    errors.append(&mut shape);
    keywords(schema, path, Place { is_root: true, ..Place::default() }, &mut errors);
    errors
}

/// What each level of a schema calls itself when it lacks a type.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

fn invariants(schema: &Schema, level: Level, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if schema.is(&SchemaType::Array) && schema.items.is_none() {
        errors.push(FieldError::required(&path.child("items"), "must be specified"));
    }
    if let Some(items) = &schema.items {
        invariants(items, Level::Item, &path.child("items"), errors);
    }
    for (name, field) in schema.properties.iter() {
        invariants(field, Level::Field, &path.child("properties").key(name), errors);
    }
    let additional = path.child("additionalProperties");
    if schema.additional_properties.is_some() && level == Level::Root {
        errors.push(FieldError::forbidden(&additional, "must not be used at the root"));
    }
    if let Some(Additional::Schema(values)) = &schema.additional_properties {
        invariants(values, Level::Field, &additional, errors);
    }
    int_or_string(schema, path, errors);
    if let Some(rules) = &schema.rules {
        let skip = if is_int_or_string_any_of(&rules.any_of) {
            Skip::AnyOf
        } else if rules.all_of.first().is_some_and(begins_with_int_or_string) {
            Skip::AnyOfOfFirstAllOf
        } else {
            Skip::Nothing
        };
        junctors(rules, skip, path, errors);
    }
    own_type(schema, level, path, errors);
    if schema.embedded_resource && schema.additional_properties.is_some() {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(FieldError::forbidden(&additional, detail));
    }
    meta_fields(schema, level, path, errors);
    if schema.embedded_resource && !schema.preserves_unknown_fields() && schema.properties.is_empty() {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
            x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(&path.child("properties"), detail));
    }
}

fn own_type(schema: &Schema, level: Level, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let here = path.child("type");
    let named = schema.kind.is_some();
    if schema.embedded_resource && !schema.is(&SchemaType::Object) {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(if named {
            FieldError::invalid(&here, schema.type_name(), detail)
        } else {
            FieldError::required(&here, detail)
        });
    } else if !named && !schema.int_or_string && !schema.preserves_unknown_fields() {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(&here, detail));
    }
    if level == Level::Root && named && !schema.is(&SchemaType::Object) {
        errors.push(FieldError::invalid(&here, schema.type_name(), "must be object at the root"));
    }
}

fn int_or_string(schema: &Schema, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if !schema.int_or_string {
        return;
    }
    let detail = "must be false if x-kubernetes-int-or-string is true";
    if schema.preserves_unknown_fields() {
        errors.push(FieldError::invalid(&path.child("x-kubernetes-preserve-unknown-fields"), true, detail));
    }
    if schema.embedded_resource {
        errors.push(FieldError::invalid(&path.child("x-kubernetes-embedded-resource"), true, detail));
    }
}

fn meta_fields(schema: &Schema, level: Level, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let resource = level == Level::Root || schema.embedded_resource;
    for name in ["kind", "apiVersion"] {
        if let Some(field) = schema.properties.get(name)
            && resource
            && !field.is(&SchemaType::String)
        {
            let here = path.child("properties").key(name).child("type");
            errors.push(FieldError::invalid(&here, field.type_name(), "must be string"));
        }
    }
    let Some(metadata) = schema.properties.get("metadata") else { return };
    let here = path.child("properties").key("metadata");
    if resource && !metadata.is(&SchemaType::Object) {
        errors.push(FieldError::invalid(&here.child("type"), metadata.type_name(), "must be object"));
    }
    if level == Level::Root && !restricts_names_only(metadata) {
        let detail = "must not specify anything other than name and generateName, but metadata is \
            implicitly specified";
        errors.push(FieldError::forbidden(&here, detail));
    }
}

/// Whether a schema of metadata says nothing beyond `name` and `generateName`.
fn restricts_names_only(metadata: &Schema) -> bool {
    let fields = Schema {
        kind: metadata.kind.clone(),
        properties: metadata.properties.clone(),
        default: metadata.default.clone(),
        ..Schema::default()
    };
    *metadata == fields
        && metadata.properties.iter().all(|(name, _)| name == "name" || name == "generateName")
}

fn is_bare(schema: &Schema, kind: SchemaType) -> bool {
    *schema == Schema { kind: Some(kind), ..Schema::default() }
}

/// `anyOf: [{type: integer}, {type: string}]`, the one place where a junctor may name types.
fn is_int_or_string_any_of(any_of: &[Schema]) -> bool {
    matches!(any_of, [a, b] if is_bare(a, SchemaType::Integer) && is_bare(b, SchemaType::String))
}

fn begins_with_int_or_string(schema: &Schema) -> bool {
    schema.rules.as_ref().is_some_and(|rules| is_int_or_string_any_of(&rules.any_of))
}

/// Which `anyOf` is excused for being the int-or-string pattern.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Skip {
    Nothing,
    AnyOf,
    AnyOfOfFirstAllOf,
}

fn junctors(rules: &ValueRules, skip: Skip, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if skip != Skip::AnyOf {
        for (index, schema) in rules.any_of.iter().enumerate() {
            nested(schema, Skip::Nothing, &path.child("anyOf").index(index), errors);
        }
    }
    for (index, schema) in rules.all_of.iter().enumerate() {
        let skip = if index == 0 && skip == Skip::AnyOfOfFirstAllOf { Skip::AnyOf } else { Skip::Nothing };
        nested(schema, skip, &path.child("allOf").index(index), errors);
    }
    for (index, schema) in rules.one_of.iter().enumerate() {
        nested(schema, Skip::Nothing, &path.child("oneOf").index(index), errors);
    }
    if let Some(not) = &rules.not {
        nested(not, Skip::Nothing, &path.child("not"), errors);
    }
    if let Some(pattern) = &rules.pattern
        && let Some(why) = pattern.fault()
    {
        let detail = format!("must be a valid regular expression, but isn't: {why}");
        errors.push(FieldError::invalid(&path.child("pattern"), pattern.as_str(), detail));
    }
}

/// A schema under a junctor may limit values, and nothing else.
fn nested(schema: &Schema, skip: Skip, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if let Some(rules) = &schema.rules {
        junctors(rules, skip, path, errors);
    }
    if let Some(items) = &schema.items {
        nested(items, Skip::Nothing, &path.child("items"), errors);
    }
    for (name, field) in schema.properties.iter() {
        nested(field, Skip::Nothing, &path.child("properties").key(name), errors);
    }
    let empty = Extra::default();
    let extra = schema.extra.as_deref().unwrap_or(&empty);
    let forbidden = [
        ("type", schema.kind.is_some(), "must be empty to be structural"),
        ("additionalProperties", schema.additional_properties.is_some(), STRUCTURAL),
        ("default", schema.default.is_some(), STRUCTURAL),
        ("title", extra.title.is_some(), "must be empty to be structural"),
        ("description", schema.description.is_some(), "must be empty to be structural"),
        ("nullable", schema.nullable, "must be false to be structural"),
        ("externalDocs", extra.external_docs.is_some(), STRUCTURAL),
        (
            "x-kubernetes-preserve-unknown-fields",
            schema.preserves_unknown_fields(),
            "must be false to be structural",
        ),
        ("x-kubernetes-embedded-resource", schema.embedded_resource, "must be false to be structural"),
        ("x-kubernetes-int-or-string", schema.int_or_string, "must be false to be structural"),
        ("x-kubernetes-list-map-keys", !extra.list_map_keys.is_empty(), "must be empty to be structural"),
        ("x-kubernetes-list-type", extra.list_type.is_some(), STRUCTURAL),
        ("x-kubernetes-map-type", extra.map_type.is_some(), STRUCTURAL),
        ("x-kubernetes-validations", extra.validations.is_some(), "must be empty to be structural"),
    ];
    for (keyword, used, detail) in forbidden {
        if used {
            errors.push(FieldError::forbidden(&path.child(keyword), detail));
        }
    }
    if schema.properties.contains("metadata") {
        let here = path.child("properties").key("metadata");
        errors.push(FieldError::forbidden(&here, "must not be specified in a nested context"));
    }
}

/// What a junctor speaks about must exist outside it.
fn completeness(
    rules: &ValueRules,
    outside: &Schema,
    outside_path: &FieldPath,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    let lists = [("allOf", &rules.all_of), ("anyOf", &rules.any_of), ("oneOf", &rules.one_of)];
    for (name, list) in lists {
        for (index, schema) in list.iter().enumerate() {
            complete(schema, Some(outside), outside_path, &path.child(name).index(index), errors);
        }
    }
    if let Some(not) = &rules.not {
        complete(not, Some(outside), outside_path, &path.child("not"), errors);
    }
}

fn complete(
    inside: &Schema,
    outside: Option<&Schema>,
    outside_path: &FieldPath,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    let Some(outside) = outside else {
        errors.push(FieldError::required(outside_path, format!("because it is defined in {path}")));
        return;
    };
    if let Some(rules) = &inside.rules {
        completeness(rules, outside, outside_path, path, errors);
    }
    if let Some(items) = &inside.items {
        let step = |path: &FieldPath| path.child("items");
        complete(items, outside.items.as_deref(), &step(outside_path), &step(path), errors);
    }
    for (name, field) in inside.properties.iter() {
        let step = |path: &FieldPath| path.child("properties").key(name);
        complete(field, outside.properties.get(name), &step(outside_path), &step(path), errors);
    }
}

/// Defaults are accepted values themselves: pruned, and valid.
fn defaults(schema: &Schema, path: &FieldPath, is_root: bool, errors: &mut Vec<FieldError>) {
    if let Some(default) = &schema.default {
        let here = path.child("default");
        let mut pruned = (**default).clone();
        prune(&mut pruned, schema, false);
        if pruned != **default {
            errors.push(FieldError::invalid(&here, (**default).clone(), "must not have unknown fields"));
        }
        let resource = embedded::validate(default, schema, &here);
        if resource.is_empty() {
            errors.extend(against_schema(default, schema, &here));
        } else {
            errors.extend(resource);
        }
    }
    if let Some(items) = &schema.items {
        defaults(items, &path.child("items"), false, errors);
    }
    for (name, field) in schema.properties.iter() {
        // Defaults of top-level metadata are forbidden altogether, which is said elsewhere.
        if !(is_root && name == "metadata") {
            defaults(field, &path.child("properties").key(name), false, errors);
        }
    }
    if let Some(Additional::Schema(values)) = &schema.additional_properties {
        defaults(values, &path.child("additionalProperties"), false, errors);
    }
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
fn keywords(schema: &Schema, path: &FieldPath, place: Place, errors: &mut Vec<FieldError>) {
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
            keywords(values, &here, Place { no_default, ..inner }, errors);
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
        keywords(field, &path.child("properties").key(name), place, errors);
    }
    if let Some(items) = &schema.items {
        keywords(items, &path.child("items"), inner, errors);
    }
    if let Some(rules) = &schema.rules {
        if let Some(not) = &rules.not {
            keywords(not, &path.child("not"), inner, errors);
        }
        for (name, list) in [("allOf", &rules.all_of), ("oneOf", &rules.one_of), ("anyOf", &rules.any_of)] {
            for (index, schema) in list.iter().enumerate() {
                keywords(schema, &path.child(name).index(index), inner, errors);
            }
        }
    }
    if schema.preserve_unknown_fields == Some(false) {
        let here = path.child("x-kubernetes-preserve-unknown-fields");
        errors.push(FieldError::invalid(&here, false, "must be true or undefined"));
    }
    map_type(schema, path, errors);
    list_type(schema, path, errors);
    if schema.extra.as_ref().is_some_and(|extra| extra.validations.is_some()) {
        let detail = "validation rules are not served yet: this server would store them without \
            evaluating them, so it refuses them; express the rule with enum, pattern, minimum and the \
            like, or leave it out";
        errors.push(FieldError::forbidden(&path.child("x-kubernetes-validations"), detail));
    }
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

/// With the status subresource, status is validated by its own part of the schema, so what
/// the root says about the object as a whole would be lost.
fn root_with_status(schema: &Schema, path: &FieldPath, errors: &mut Vec<FieldError>) {
    const ALLOWED: &str = "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum \
        MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties \
        ExternalDocs Example XPreserveUnknownFields XValidations";
    if schema.kind.is_some() && !schema.is(&SchemaType::Object) {
        let detail = "only \"object\" is allowed as the type at the root of the schema if the status \
            subresource is enabled";
        errors.push(FieldError::invalid(&path.child("type"), schema.type_name(), detail));
    }
    let rules = schema.rules.as_deref();
    let extra = schema.extra.as_deref();
    let more = schema.nullable
        || schema.int_or_string
        || schema.embedded_resource
        || schema.default.is_some()
        || schema.additional_properties.is_some()
        || rules.is_some_and(|rules| {
            rules.max_properties.is_some()
                || rules.min_properties.is_some()
                || rules.not.is_some()
                || [&rules.all_of, &rules.any_of, &rules.one_of].iter().any(|list| !list.is_empty())
                || !rules.allowed.is_empty()
        })
        || extra.is_some_and(|extra| {
            extra.list_type.is_some() || extra.map_type.is_some() || !extra.list_map_keys.is_empty()
        });
    if more {
        let detail = format!(
            "only [{ALLOWED}] fields are allowed at the root of the schema if the status subresource is \
             enabled"
        );
        errors.push(FieldError::invalid(path, schema.to_openapi_v3(), detail));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn errors(schema: Value) -> Vec<String> {
        let schema = Schema::parse(&schema).unwrap();
        check(&schema, &FieldPath::new("s"), false).iter().map(ToString::to_string).collect()
    }

    /// A root whose `spec` is the schema given.
    fn spec(schema: Value) -> Vec<String> {
        errors(json!({"type": "object", "properties": {"spec": schema}}))
    }

    #[test]
    fn an_ordinary_schema_is_structural() {
        let schema = json!({"type": "object", "description": "d", "required": ["spec"], "properties": {
            "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
            "spec": {"type": "object", "properties": {
                "port": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
                "size": {"x-kubernetes-int-or-string": true, "pattern": "^[0-9]+$",
                    "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"minimum": 1}]},
                "free": {"x-kubernetes-preserve-unknown-fields": true},
                "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "b"],
                    "items": {"type": "object", "required": ["a"],
                        "properties": {"a": {"type": "string"}, "b": {"type": "string", "default": "x"}}}},
            }, "oneOf": [{"required": ["port"]}, {"properties": {"size": {"minimum": 3}}}]},
        }});
        assert_eq!(errors(schema), Vec::<String>::new());
    }

    #[test]
    fn every_level_needs_a_type() {
        assert_eq!(errors(json!({})), ["s.type: Required value: must not be empty at the root"]);
        assert_eq!(
            errors(json!({"type": "string"})),
            [r#"s.type: Invalid value: "string": must be object at the root"#]
        );
        assert_eq!(
            spec(json!({})),
            ["s.properties[spec].type: Required value: must not be empty for specified object fields"]
        );
        assert_eq!(
            spec(json!({"type": "array", "items": {}})),
            ["s.properties[spec].items.type: Required value: must not be empty for specified array items"]
        );
        assert_eq!(
            spec(json!({"type": "array"})),
            ["s.properties[spec].items: Required value: must be specified"]
        );
        assert!(spec(json!({"type": "strnig"}))[0].starts_with(
            r#"s.properties[spec].type: Unsupported value: "strnig": supported values: "array", "boolean""#
        ));
    }

    #[test]
    fn junctors_may_limit_values_and_nothing_else() {
        assert_eq!(
            spec(json!({"type": "object", "properties": {"a": {"type": "string"}},
                "anyOf": [{"type": "object", "properties": {"a": {"default": "x", "description": "d"}}}]})),
            [
                "s.properties[spec].anyOf[0].properties[a].default: Forbidden: must be undefined to be structural",
                "s.properties[spec].anyOf[0].properties[a].description: Forbidden: must be empty to be structural",
                "s.properties[spec].anyOf[0].type: Forbidden: must be empty to be structural",
            ]
        );
    }

    #[test]
    fn what_a_junctor_speaks_about_exists_outside_it() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}},
            "allOf": [{"properties": {"b": {"minimum": 1}}}]});
        assert_eq!(
            errors(schema),
            ["s.properties[b]: Required value: because it is defined in s.allOf[0].properties[b]"]
        );
    }

    #[test]
    fn the_root_keeps_its_hands_off_metadata_and_open_fields() {
        assert_eq!(
            errors(json!({"type": "object", "properties": {"metadata": {"type": "object",
                "properties": {"labels": {"type": "object"}}}}})),
            [
                "s.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified"
            ]
        );
        assert!(
            errors(json!({"type": "object", "properties": {"metadata": {"type": "object",
            "properties": {"name": {"type": "string", "pattern": "^a"}}}}}))
            .is_empty()
        );
        assert_eq!(
            errors(json!({"type": "object", "additionalProperties": {"type": "string"}})),
            ["s.additionalProperties: Forbidden: must not be used at the root"]
        );
        assert_eq!(
            errors(json!({"type": "object", "nullable": true})),
            ["s.nullable: Forbidden: nullable cannot be true at the root"]
        );
    }

    #[test]
    fn keywords_that_are_not_served_are_named() {
        for (keyword, value) in [
            ("$ref", json!("#/x")),
            ("patternProperties", json!({})),
            ("definitions", json!({})),
            ("dependencies", json!({})),
            ("id", json!("x")),
            ("additionalItems", json!(true)),
        ] {
            let schema =
                json!({"type": "object", "properties": {"spec": {"type": "object", keyword: value}}});
            assert_eq!(
                errors(schema),
                [format!("s.properties[spec].{keyword}: Forbidden: {keyword} is not supported")]
            );
        }
        assert!(spec(json!({"type": "array", "items": [{}]})).contains(
            &"s.properties[spec].items: Forbidden: items must be a schema object and not an array".to_owned()
        ));
        assert_eq!(
            spec(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": false})),
            [
                "s.properties[spec].x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined"
            ]
        );
        assert_eq!(
            spec(
                json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false})
            ),
            [
                "s.properties[spec].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive"
            ]
        );
    }

    #[test]
    fn validation_rules_are_refused_rather_than_ignored() {
        let found = spec(json!({"type": "object", "x-kubernetes-validations": [{"rule": "true"}]}));
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with(
            "s.properties[spec].x-kubernetes-validations: Forbidden: validation rules are not served yet"
        ));
    }

    #[test]
    fn defaults_are_values_that_would_be_accepted() {
        assert_eq!(
            spec(json!({"type": "integer", "default": "x"})),
            [
                r#"s.properties[spec].default: Invalid value: "string":  in body must be of type integer: "string""#
            ]
        );
        assert_eq!(
            spec(json!({"type": "object", "properties": {"a": {"type": "string"}}, "default": {"b": 1}})),
            [r#"s.properties[spec].default: Invalid value: {"b":1}: must not have unknown fields"#]
        );
        assert_eq!(
            errors(json!({"type": "object", "properties": {"kind": {"type": "string", "default": "X"}}})),
            ["s.properties[kind].default: Forbidden: must not be set in top-level kind"]
        );
    }

    #[test]
    fn list_types_add_up() {
        assert_eq!(
            spec(
                json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "c"],
                "items": {"type": "object", "properties": {"a": {"type": "string"}}}})
            ),
            [
                "s.properties[spec].items.properties[a].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
                r#"s.properties[spec].x-kubernetes-list-map-keys: Invalid value: ["a","c"]: entries must all be names of item properties"#,
            ]
        );
        assert_eq!(
            spec(json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-map-keys": ["a"]})),
            [
                "s.properties[spec].x-kubernetes-list-type: Required value: must be map if x-kubernetes-list-map-keys is non-empty"
            ]
        );
        assert_eq!(
            spec(json!({"type": "object", "x-kubernetes-list-type": "bag"})),
            [
                r#"s.properties[spec].type: Invalid value: "object": must be array if x-kubernetes-list-type is specified"#,
                r#"s.properties[spec].x-kubernetes-list-type: Unsupported value: "bag": supported values: "atomic", "set", "map""#,
            ]
        );
        assert_eq!(
            spec(json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}})),
            [
                "s.properties[spec].items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set"
            ]
        );
    }

    #[test]
    fn a_pattern_compiles() {
        assert!(spec(json!({"type": "string", "pattern": "("}))[0].starts_with(
            r#"s.properties[spec].pattern: Invalid value: "(": must be a valid regular expression, but isn't:"#
        ));
    }

    #[test]
    fn with_status_on_the_root_limits_only_what_survives_being_split() {
        let schema = Schema::parse(&json!({"type": "object", "minProperties": 1})).unwrap();
        assert!(check(&schema, &FieldPath::new("s"), false).is_empty());
        let found = check(&schema, &FieldPath::new("s"), true);
        assert!(found[0].detail.starts_with("only [Description Type Format"));
    }
}
