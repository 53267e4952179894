//! The schemas of built-in kinds, from the types of `k8s-openapi`.
//!
//! `schemars` writes a root schema with named definitions that refer to each other.
//! [`from_k8s_openapi`] inlines them into one [`Schema`]; [`definitions`] hands them out by
//! name for the OpenAPI documents, where references keep the documents small.
//!
//! - A type that contains itself (JSONSchemaProps) is inlined once; inside itself it is
//!   anything.
//! - An object about whose fields nothing is said (RawExtension, FieldsV1) keeps whatever it
//!   has. Pruning it to nothing would lose data.
//! - Nothing is cached here: a schema costs memory only while somebody holds it.

use std::collections::BTreeMap;

use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::parse::{Author, GO_TYPE};
use super::{Schema, topology};

const REF_PREFIX: &str = "#/$defs/";

/// The schema of `T` with every reference resolved, descriptions included.
pub fn from_k8s_openapi<T: JsonSchema>() -> Schema {
    let mut root = root_schema::<T>();
    let definitions = take_definitions(&mut root);
    let name = T::schema_name();
    let mut inliner = Inliner { definitions: &definitions, open: vec![name.as_ref()] };
    let json = inliner.node(&Value::Object(root), Some(name.as_ref()));
    // The JSON is our own making; what cannot be read of it is left open rather than closed.
    Schema::parse_by(&json, Author::Us).unwrap_or_else(|_| Schema::anything())
}

/// In which document definitions will stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// `#/definitions/...`, a reference may have a description beside it.
    V2,
    /// `#/components/schemas/...`, a reference stands alone, so one that is described is
    /// wrapped in `allOf`.
    V3,
}

/// `T` and every type it refers to, by name, with references into the document.
pub fn definitions<T: JsonSchema>(flavour: Flavour) -> BTreeMap<String, Value> {
    let mut root = root_schema::<T>();
    let mut all: BTreeMap<String, Value> = take_definitions(&mut root).into_iter().collect();
    all.insert(T::schema_name().into_owned(), Value::Object(root));
    for (name, definition) in &mut all {
        drop_nulls(definition);
        redirect(definition, flavour);
        if let Value::Object(map) = definition {
            publish(name, map, flavour);
        }
    }
    all
}

/// Declares the types that are more than one JSON type the way the documents of the original
/// declare them, which is what its clients were written against.
fn publish(name: &str, definition: &mut Map<String, Value>, flavour: Flavour) {
    let (format, types) = match name.rsplit('.').next() {
        Some("Quantity") => (None, ["string", "number"]),
        Some("IntOrString") => (Some("int-or-string"), ["integer", "string"]),
        Some("JSON") => {
            definition.remove("type");
            return;
        }
        _ if flavour == Flavour::V2 => {
            ["oneOf", "anyOf", "allOf"].iter().for_each(|junctor| drop(definition.remove(*junctor)));
            return;
        }
        _ => return,
    };
    definition.remove("x-kubernetes-int-or-string");
    if let Some(format) = format {
        definition.insert("format".into(), format.into());
    }
    match flavour {
        Flavour::V2 => definition.insert("type".into(), "string".into()),
        Flavour::V3 => definition.insert("oneOf".into(), json!(types.map(|kind| json!({"type": kind})))),
    };
}

fn root_schema<T: JsonSchema>() -> Map<String, Value> {
    let mut root = match SchemaGenerator::default().into_root_schema_for::<T>().to_value() {
        Value::Object(map) => map,
        // `true`, the schema of anything.
        _ => Map::new(),
    };
    root.remove("$schema");
    root.remove("title");
    root
}

fn take_definitions(root: &mut Map<String, Value>) -> Map<String, Value> {
    match root.remove("$defs") {
        Some(Value::Object(definitions)) => definitions,
        _ => Map::new(),
    }
}

struct Inliner<'a> {
    definitions: &'a Map<String, Value>,
    /// The types being written, outermost first.
    open: Vec<&'a str>,
}

impl<'a> Inliner<'a> {
    fn node(&mut self, node: &'a Value, name: Option<&str>) -> Value {
        let Value::Object(map) = node else { return json!({"x-kubernetes-preserve-unknown-fields": true}) };
        if let Some(target) = map.get("$ref").and_then(Value::as_str) {
            return self.reference(target, map);
        }
        let mut out = Map::new();
        for (key, value) in map {
            match (key.as_str(), value) {
                ("properties", Value::Object(fields)) => {
                    let fields = fields.iter().map(|(name, field)| (name.clone(), self.node(field, None)));
                    out.insert(key.clone(), Value::Object(fields.collect()));
                }
                ("items" | "not", value) => {
                    out.insert(key.clone(), self.node(value, None));
                }
                ("additionalProperties", Value::Object(_)) => {
                    out.insert(key.clone(), self.node(value, None));
                }
                ("type", Value::Array(types)) => nullable_type(types, &mut out),
                ("allOf" | "anyOf" | "oneOf", Value::Array(list)) => self.junctor(key, list, &mut out),
                _ => {
                    out.insert(key.clone(), value.clone());
                }
            }
        }
        if let Some(name) = name {
            out.insert(GO_TYPE.into(), go_type(name).into());
            // "Any JSON value" is declared as an object.
            if name.ends_with(".JSON") {
                out.remove("type");
            }
            topology::mark(name, &mut out);
        }
        keep_what_nothing_is_said_about(&mut out);
        Value::Object(out)
    }

    fn reference(&mut self, target: &'a str, beside: &Map<String, Value>) -> Value {
        let name = target.strip_prefix(REF_PREFIX).unwrap_or(target);
        let mut out = match self.definitions.get(name) {
            Some(definition) if !self.open.contains(&name) => {
                self.open.push(name);
                let node = self.node(definition, Some(name));
                self.open.pop();
                node
            }
            _ => json!({"x-kubernetes-preserve-unknown-fields": true}),
        };
        if let (Value::Object(out), Some(description)) = (&mut out, beside.get("description")) {
            // What the field is for says more than what its type is.
            out.insert("description".into(), description.clone());
        }
        out
    }

    /// `anyOf: [T, null]` is how an optional type is written; anything else stays.
    fn junctor(&mut self, key: &str, list: &'a [Value], out: &mut Map<String, Value>) {
        let is_null = |schema: &Value| schema.get("type").and_then(Value::as_str) == Some("null");
        let real: Vec<&'a Value> = list.iter().filter(|schema| !is_null(schema)).collect();
        let optional = real.len() < list.len();
        if optional {
            out.insert("nullable".into(), true.into());
        }
        match real.as_slice() {
            [only] if optional || key == "allOf" => {
                if let Value::Object(inner) = self.node(only, None) {
                    for (key, value) in inner {
                        out.entry(key).or_insert(value);
                    }
                }
            }
            several => {
                let list: Vec<Value> = several.iter().map(|schema| self.node(schema, None)).collect();
                out.insert(key.to_owned(), list.into());
            }
        }
    }
}

fn nullable_type(types: &[Value], out: &mut Map<String, Value>) {
    let real: Vec<&Value> = types.iter().filter(|kind| kind.as_str() != Some("null")).collect();
    if real.len() < types.len() {
        out.insert("nullable".into(), true.into());
    }
    if let [only] = real.as_slice() {
        out.insert("type".into(), (*only).clone());
    }
}

fn keep_what_nothing_is_said_about(out: &mut Map<String, Value>) {
    let open_type = matches!(out.get("type").and_then(Value::as_str), None | Some("object"));
    let said = ["properties", "additionalProperties", "items", "x-kubernetes-int-or-string"];
    if open_type && !said.iter().any(|key| out.contains_key(*key)) {
        out.insert("x-kubernetes-preserve-unknown-fields".into(), true.into());
    }
}

/// `v1.ObjectMeta` of `io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta`.
fn go_type(name: &str) -> &str {
    let mut dots = name.rmatch_indices('.');
    dots.next();
    dots.next().map_or(name, |(at, _)| &name[at + 1..])
}

/// Writes an optional field as the field it is: that it may be left out is said by nothing
/// else requiring it, and clients of the original know no types of two kinds.
fn drop_nulls(node: &mut Value) {
    match node {
        Value::Object(map) => {
            if let Some(Value::Array(types)) = map.get_mut("type") {
                types.retain(|one| one != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    map.insert("type".into(), only);
                }
            }
            if let Some(Value::Array(allowed)) = map.get_mut("enum") {
                allowed.retain(|one| !one.is_null());
            }
            if let Some(Value::Array(choices)) = map.get_mut("anyOf") {
                let before = choices.len();
                choices.retain(|one| one.get("type").and_then(Value::as_str) != Some("null"));
                if let ([only], true) = (choices.as_slice(), choices.len() < before) {
                    let only = only.clone();
                    map.remove("anyOf");
                    if let Value::Object(only) = only {
                        for (key, value) in only {
                            map.entry(key).or_insert(value);
                        }
                    }
                }
            }
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Points the references of a definition into the document it will stand in.
fn redirect(node: &mut Value, flavour: Flavour) {
    match node {
        Value::Object(map) => {
            if let Some(name) =
                map.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix(REF_PREFIX))
            {
                let target = match flavour {
                    Flavour::V2 => format!("#/definitions/{name}"),
                    Flavour::V3 => format!("#/components/schemas/{name}"),
                };
                if flavour == Flavour::V3 && map.len() > 1 {
                    map.remove("$ref");
                    map.insert("allOf".into(), json!([{"$ref": target}]));
                } else {
                    map.insert("$ref".into(), target.into());
                }
                return;
            }
            map.values_mut().for_each(|inner| redirect(inner, flavour));
        }
        Value::Array(list) => list.iter_mut().for_each(|inner| redirect(inner, flavour)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

    use super::*;
    use crate::schema::{SchemaType, prune};

    #[test]
    fn references_are_inlined_and_descriptions_survive() {
        let schema = from_k8s_openapi::<Secret>();
        let metadata = schema.properties.get("metadata").unwrap();
        assert!(metadata.description.as_deref().unwrap().starts_with("Standard object's metadata"));
        let labels = metadata.properties.get("labels").unwrap();
        assert!(labels.additional_properties.as_ref().unwrap().schema().unwrap().is(&SchemaType::String));
        let created = metadata.properties.get("creationTimestamp").unwrap();
        assert_eq!(created.format.as_deref(), Some("date-time"));
    }

    #[test]
    fn a_type_that_contains_itself_does_not_loop() {
        let schema = from_k8s_openapi::<CustomResourceDefinition>();
        let mut nodes = 0;
        schema.visit(&mut |_| nodes += 1);
        assert!(nodes < 5_000, "{nodes} nodes");
        let mut crd = json!({"spec": {"group": "g", "odd": 1, "versions": [{"name": "v1", "schema": {
            "openAPIV3Schema": {"type": "object", "properties": {"a": {"properties": {"b": {"default": {"x": [1]}}}}},
                "additionalProperties": {"type": "string"}}}}]}});
        let whole = crd["spec"]["versions"].clone();
        assert_eq!(prune(&mut crd, &schema, true), ["spec.odd"]);
        assert_eq!(crd["spec"]["versions"], whole);
    }

    #[test]
    fn objects_without_declared_fields_keep_what_they_have() {
        let schema = from_k8s_openapi::<Pod>();
        let fields = json!({"f:spec": {"f:x": {}}});
        let mut pod = json!({"spec": {"containers": [{"name": "c", "odd": 1}]},
            "metadata": {"managedFields": [{"fieldsV1": fields}]}});
        assert_eq!(prune(&mut pod, &schema, true), ["spec.containers[0].odd"]);
        assert_eq!(pod["metadata"]["managedFields"][0]["fieldsV1"], fields);
    }

    #[test]
    fn without_its_descriptions_a_schema_is_small_and_prunes_the_same() {
        let whole = from_k8s_openapi::<ConfigMap>();
        let lean = whole.clone().without_descriptions();
        let mut described = 0;
        lean.visit(&mut |schema| described += usize::from(schema.description.is_some()));
        assert_eq!(described, 0);
        let object = json!({"data": {"a": "b"}, "odd": 1, "metadata": {"odd": 2}});
        let (mut a, mut b) = (object.clone(), object);
        assert_eq!(prune(&mut a, &whole, true), prune(&mut b, &lean, true));
        assert_eq!(a, b);
    }

    #[test]
    fn definitions_refer_into_the_document_they_stand_in() {
        let v3 = definitions::<Secret>(Flavour::V3);
        let secret = &v3["io.k8s.api.core.v1.Secret"];
        assert_eq!(
            secret["properties"]["metadata"]["allOf"][0]["$ref"],
            "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
        );
        assert!(v3.contains_key("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"));
        let v2 = definitions::<Secret>(Flavour::V2);
        assert_eq!(
            v2["io.k8s.api.core.v1.Secret"]["properties"]["metadata"]["$ref"],
            "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
        );
    }

    #[test]
    fn types_of_two_json_types_are_published_as_clients_know_them() {
        let quantity = "io.k8s.apimachinery.pkg.api.resource.Quantity";
        let port = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
        let v2 = definitions::<Pod>(Flavour::V2);
        assert_eq!(v2[quantity]["type"], "string");
        assert_eq!((&v2[port]["type"], &v2[port]["format"]), (&json!("string"), &json!("int-or-string")));
        let v3 = definitions::<Pod>(Flavour::V3);
        assert_eq!(v3[quantity]["oneOf"], json!([{"type": "string"}, {"type": "number"}]));
        assert_eq!(v3[port]["oneOf"], json!([{"type": "integer"}, {"type": "string"}]));
    }

    #[test]
    fn optional_fields_are_published_as_the_fields_they_are() {
        let mut node = json!({"properties": {"a": {"type": ["string", "null"], "enum": ["x", null]},
            "b": {"anyOf": [{"$ref": "#/$defs/B"}, {"type": "null"}], "description": "d"},
            "c": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}});
        drop_nulls(&mut node);
        assert_eq!(
            node,
            json!({"properties": {"a": {"type": "string", "enum": ["x"]},
                "b": {"$ref": "#/$defs/B", "description": "d"},
                "c": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}})
        );
    }

    #[test]
    fn optional_types_become_nullable() {
        let mut inliner = Inliner { definitions: &Map::new(), open: Vec::new() };
        let node = json!({"properties": {"a": {"type": ["string", "null"]},
            "b": {"anyOf": [{"type": "integer"}, {"type": "null"}], "description": "d"}}});
        assert_eq!(
            inliner.node(&node, None),
            json!({"properties": {"a": {"type": "string", "nullable": true},
                "b": {"type": "integer", "nullable": true, "description": "d"}}})
        );
    }
}
