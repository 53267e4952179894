//! What holds for every schema and every object.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::validate::validate;
use super::*;
use crate::field_error::FieldPath;

fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c", "metadata", "kind", "apiVersion"]).prop_map(str::to_owned)
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-5i64..5).prop_map(Value::from),
        (-5.0f64..5.0).prop_map(Value::from),
        "[a-c0-9.:é-]{0,4}".prop_map(Value::from),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name(), inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

/// One keyword that does not contain a schema.
fn keyword() -> impl Strategy<Value = (&'static str, Value)> {
    prop_oneof![
        prop::sample::select(vec!["string", "integer", "number", "boolean", "array", "object", "odd"])
            .prop_map(|kind| ("type", kind.into())),
        prop::sample::select(vec![
            "int32",
            "date-time",
            "ipv4",
            "duration",
            "byte",
            "mac",
            "hostname",
            "odd"
        ])
        .prop_map(|format| ("format", format.into())),
        any::<bool>().prop_map(|flag| ("nullable", flag.into())),
        any::<bool>().prop_map(|flag| ("x-kubernetes-preserve-unknown-fields", flag.into())),
        any::<bool>().prop_map(|flag| ("x-kubernetes-embedded-resource", flag.into())),
        any::<bool>().prop_map(|flag| ("x-kubernetes-int-or-string", flag.into())),
        prop::sample::select(vec!["atomic", "set", "map", "odd"])
            .prop_map(|kind| ("x-kubernetes-list-type", kind.into())),
        Just(("x-kubernetes-list-map-keys", json!(["a", "b"]))),
        Just(("x-kubernetes-map-type", json!("granular"))),
        value().prop_map(|value| ("default", value)),
        prop::collection::vec(scalar(), 0..3).prop_map(|list| ("enum", list.into())),
        (-3i64..3).prop_map(|limit| ("minimum", limit.into())),
        (-3.0f64..3.0).prop_map(|limit| ("maximum", limit.into())),
        (0i64..3).prop_map(|limit| ("multipleOf", limit.into())),
        any::<bool>().prop_map(|flag| ("exclusiveMinimum", flag.into())),
        (-1i64..3).prop_map(|limit| ("maxLength", limit.into())),
        (-1i64..3).prop_map(|limit| ("minItems", limit.into())),
        (-1i64..3).prop_map(|limit| ("maxProperties", limit.into())),
        any::<bool>().prop_map(|flag| ("uniqueItems", flag.into())),
        "[a-c(){}|^$*+?.\\[\\]0-9,\\\\]{0,6}".prop_map(|pattern| ("pattern", pattern.into())),
        prop::collection::vec(name(), 0..3).prop_map(|names| ("required", names.into())),
        Just(("description", json!("d"))),
        Just(("title", json!("t"))),
        Just(("x-kubernetes-validations", json!([{"rule": "self == self"}]))),
        Just(("$ref", json!("#/x"))),
        Just(("unknown", json!({"x": 1}))),
    ]
}

fn schema() -> impl Strategy<Value = Value> {
    let leaf = prop::collection::vec(keyword(), 0..4)
        .prop_map(|entries| entries.into_iter().map(|(k, v)| (k.to_owned(), v)).collect::<Map<_, _>>());
    leaf.prop_map(Value::Object).prop_recursive(4, 24, 4, |inner| {
        let list = prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from);
        let containing = prop_oneof![
            prop::collection::btree_map(name(), inner.clone(), 0..4)
                .prop_map(|fields| ("properties".to_owned(), json!(fields))),
            inner.clone().prop_map(|schema| ("items".to_owned(), schema)),
            inner.clone().prop_map(|schema| ("additionalProperties".to_owned(), schema)),
            any::<bool>().prop_map(|flag| ("additionalProperties".to_owned(), flag.into())),
            inner.clone().prop_map(|schema| ("not".to_owned(), schema)),
            (prop::sample::select(vec!["allOf", "anyOf", "oneOf"]), list)
                .prop_map(|(junctor, list)| (junctor.to_owned(), list)),
        ];
        (inner, prop::collection::vec(containing, 1..3)).prop_map(|(mut base, more)| {
            if let Value::Object(map) = &mut base {
                map.extend(more);
            }
            base
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn pruning_twice_is_pruning_once(schema in schema(), value in value(), is_root: bool) {
        let schema = Schema::parse(&schema).unwrap();
        let mut once = value.clone();
        prune(&mut once, &schema, is_root);
        let mut twice = once.clone();
        prop_assert_eq!(prune(&mut twice, &schema, is_root), Vec::<String>::new());
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn pruning_reports_exactly_when_it_changes_something(schema in schema(), value in value()) {
        let schema = Schema::parse(&schema).unwrap();
        let mut pruned = value.clone();
        let dropped = prune(&mut pruned, &schema, false);
        prop_assert_eq!(dropped.is_empty(), pruned == value);
    }

    #[test]
    fn defaulting_twice_is_defaulting_once(schema in schema(), value in value()) {
        let schema = Schema::parse(&schema).unwrap();
        let mut once = value;
        apply_defaults(&mut once, &schema).unwrap();
        let mut twice = once.clone();
        apply_defaults(&mut twice, &schema).unwrap();
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn no_pair_of_schema_and_value_makes_a_check_panic(schema in schema(), value in value()) {
        let schema = Schema::parse(&schema).unwrap();
        let root = FieldPath::root();
        prop_assert_eq!(validate(&value, &schema, &root), validate(&value, &schema, &root));
        let _ = check_types(&value, &schema);
        structural::check(&schema, &root, true);
        schema.to_openapi_v2();
    }

    #[test]
    fn what_is_written_reads_back_the_same(schema in schema()) {
        let schema = Schema::parse(&schema).unwrap();
        prop_assert_eq!(Schema::parse(&schema.to_openapi_v3()).unwrap(), schema);
    }

    #[test]
    fn no_json_makes_the_parser_panic(value in value(), inner in value(), key in keyword()) {
        let _ = Schema::parse(&value);
        for place in ["properties", "items", "allOf", "not", "additionalProperties", key.0] {
            let _ = Schema::parse(&json!({place: inner}));
        }
    }
}

#[test]
fn a_schema_nested_too_deep_is_refused_without_exhausting_the_stack() {
    let mut schema = json!({"type": "string"});
    for _ in 0..parse::MAX_DEPTH + 10 {
        schema = json!({"type": "array", "items": schema});
    }
    assert!(matches!(Schema::parse(&schema), Err(SchemaError::TooDeep { .. })));
}

#[test]
fn the_deepest_schema_allowed_can_be_walked_on_an_ordinary_stack() {
    for wrap in ["items", "not", "additionalProperties"] {
        let mut schema = json!({"type": "string", "default": "x"});
        let mut value = json!(null);
        for _ in 0..parse::MAX_DEPTH {
            schema = json!({wrap: schema});
            value = if wrap == "items" { json!([value]) } else { json!({"a": value}) };
        }
        let schema = Schema::parse(&schema).unwrap();
        apply_defaults(&mut value, &schema).unwrap();
        validate(&value, &schema, &FieldPath::root());
        prune(&mut value, &schema, true);
        structural::check(&schema, &FieldPath::root(), false);
        assert_eq!(Schema::parse(&schema.to_openapi_v3()).unwrap(), schema);
    }
}

#[test]
fn a_schema_as_large_as_that_of_a_pod_defines_a_custom_resource() {
    let pod = from_k8s_openapi::<k8s_openapi::api::core::v1::Pod>();
    let mut spec = pod.properties.get("spec").unwrap().to_openapi_v3();
    for containers in ["containers", "initContainers", "ephemeralContainers"] {
        // What tells elements apart must have a default in a definition, as the published document has it.
        let port = &mut spec["properties"][containers]["items"]["properties"]["ports"]["items"];
        port["properties"]["protocol"]["default"] = "TCP".into();
    }
    let schema = Schema::parse(&json!({"type": "object", "properties": {"spec": spec}})).unwrap();
    assert_eq!(structural::check(&schema, &FieldPath::root(), true), []);
    let mut object = json!({"spec": {"nodeName": 3, "odd": 1, "containers": [
        {"name": "a", "resources": {"limits": {"cpu": 1, "memory": "1Gi"}}, "ports": [{"containerPort": "x"}]}]}});
    assert_eq!(prune(&mut object, &schema, true), ["spec.odd"]);
    let errors: Vec<String> =
        validate(&object, &schema, &FieldPath::root()).iter().map(ToString::to_string).collect();
    assert_eq!(
        errors,
        [
            r#"spec.containers[0].ports[0].containerPort: Invalid value: "string": spec.containers[0].ports[0].containerPort in body must be of type integer: "string""#,
            r#"spec.nodeName: Invalid value: "integer": spec.nodeName in body must be of type string: "integer""#,
        ]
    );
}

#[test]
fn a_keyword_of_the_wrong_type_says_where_and_what() {
    let error = Schema::parse(&json!({"properties": {"a": {"items": {"minLength": "x"}}}})).unwrap_err();
    assert_eq!(error.to_string(), "a.items.minLength: must be an integer, not string");
}
