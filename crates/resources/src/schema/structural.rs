//! Whether a schema may define a custom resource.
//!
//! Version 1 CRDs take *structural* schemas only: every field has its type outside the
//! junctors, so that pruning and defaulting never depend on which alternative holds.
//! [`check`] also refuses what OpenAPI allows and the original does not (`$ref`,
//! `patternProperties`), list types that do not add up, defaults that would not themselves
//! be accepted, and rules in CEL that do not compile or could cost too much ([`super::rules`]).
//!
//! The messages are the original's; their order is alphabetical.

mod keywords;

use super::rules::{self, Rules, definition};
use super::validate::against_schema;
use super::{Additional, Extra, Schema, SchemaType, ValueRules, embedded, prune};
use crate::field_error::{FieldError, FieldPath};

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
    keywords::check(schema, path, &mut errors);
    // Rules are compiled against the schema, so it must be right.
    if errors.is_empty()
        && let Some(rules) = Rules::compile(schema)
    {
        errors.extend(definition::check(&rules, schema, path));
        if errors.is_empty() {
            defaults_keep_rules(&rules, schema, path, &mut errors);
        }
    }
    errors
}

/// Defaults are accepted by rules, too: as they stand, and as what comes after themselves.
fn defaults_keep_rules(rules: &Rules, schema: &Schema, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if let Some(default) = &schema.default {
        let here = path.child("default");
        let unchanged = rules.validate(schema, default, Some(default), &here, rules::BUDGET);
        // What is unchanged would be let pass with a warning; a default is not.
        let verdict = match unchanged.errors.is_empty() {
            true => rules.validate(schema, default, None, &here, rules::BUDGET),
            false => unchanged,
        };
        errors.extend(verdict.errors);
    }
    for (inner, schema, path) in rules.inside(schema, path) {
        defaults_keep_rules(inner, schema, &path, errors);
    }
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
    fn a_rule_that_is_no_rule_is_refused() {
        assert_eq!(
            spec(
                json!({"type": "object", "x-kubernetes-validations": [{"rule": 1}, "x", {"optionalOldSelf": 1}]})
            ),
            [
                "s.properties[spec].x-kubernetes-validations[0].rule: Invalid value: 1: must be a string",
                r#"s.properties[spec].x-kubernetes-validations[1]: Invalid value: "x": must be an object"#,
                "s.properties[spec].x-kubernetes-validations[2].optionalOldSelf: Invalid value: 1: must be true or false",
            ]
        );
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
