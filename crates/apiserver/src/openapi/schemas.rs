//! The types of the documents: built-in ones by the original's names, custom resources by their
//! own schemas, lists, and what the machinery speaks.
//!
//! What the Rust types cannot say is put right here: which values are a number or a text, that
//! metadata may be left out, which kinds a type stands for, and how lists are patched.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sheaf_resources::{
    kind::{Kind, SchemaSource},
    patch::strategies::{self, Field},
    schema::{Flavour, named_types},
};

use super::{
    document::GroupVersion,
    names::{META, TypeNames},
    operation::GroupVersionKind,
    patch_metadata,
};

pub const KIND_EXTENSION: &str = "x-kubernetes-group-version-kind";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

pub type Schemas = BTreeMap<String, Value>;

/// A reference to a type, alone.
pub fn reference(name: &str, flavour: Flavour) -> Value {
    json!({"$ref": target(name, flavour)})
}

fn target(name: &str, flavour: Flavour) -> String {
    match flavour {
        Flavour::V2 => format!("#/definitions/{name}"),
        Flavour::V3 => format!("#/components/schemas/{name}"),
    }
}

/// A reference with words beside it, which v3 does not allow on the reference itself.
fn described_reference(name: &str, description: &str, flavour: Flavour) -> Value {
    match flavour {
        Flavour::V2 => json!({"$ref": target(name, flavour), "description": description}),
        Flavour::V3 => json!({"allOf": [reference(name, flavour)], "description": description}),
    }
}

/// The types of a kind, its list and its subresources, to those that are there.
pub fn add(kind: &Kind, flavour: Flavour, into: &mut Schemas) {
    let names = TypeNames::of(kind);
    match &kind.schema {
        SchemaSource::BuiltIn { types: Some(types), .. } => {
            for (name, mut schema) in types.all(flavour) {
                correct(&name, &mut schema, flavour);
                into.entry(name).or_insert(schema);
            }
            if let Some(fields) = strategies::for_kind(&kind.group, &kind.kind) {
                patch_metadata::add(fields, &names.object, into);
            }
        }
        // Not `get`, which would keep it.
        SchemaSource::BuiltIn { make, types: None, .. } => {
            into.insert(names.object.clone(), own(&make(), flavour));
        }
        SchemaSource::Custom(schema) => {
            into.insert(names.object.clone(), own(schema, flavour));
        }
    }
    if let Some(object) = into.get_mut(&names.object) {
        let about = GroupVersionKind(&kind.group, &kind.version, &kind.kind);
        object[KIND_EXTENSION] = json!([about.written()]);
        if kind.custom && !kind.selectable_fields.is_empty() {
            let fields = kind.selectable_fields.iter().map(|path| json!({"fieldPath": path}));
            object["x-kubernetes-selectable-fields"] = fields.collect();
        }
    }
    if kind.verbs.names().contains(&"list") {
        into.insert(names.list.clone(), list(kind, &names, flavour));
    }
    let scale = kind.scale.as_ref().map(|_| ("autoscaling", "v1", "Scale"));
    for (group, version, body) in kind.subresources.iter().filter_map(|sub| sub.body).chain(scale) {
        let Some(types) = named_types::of_a_subresource(group, version, body) else { continue };
        for (name, mut schema) in types.all(flavour) {
            correct(&name, &mut schema, flavour);
            if name == types.root() {
                schema[KIND_EXTENSION] = json!([GroupVersionKind(group, version, body).written()]);
            }
            into.entry(name).or_insert(schema);
        }
    }
}

/// What every group speaks.
pub fn of_the_machinery(group_versions: &[GroupVersion<'_>], flavour: Flavour) -> Schemas {
    let mut all = named_types::of_the_machinery(flavour);
    // Any kind with a table says how metadata is patched.
    if let Some(Field::Object(fields)) =
        strategies::for_kind("", "ConfigMap").and_then(|fields| fields.field("metadata"))
    {
        patch_metadata::add(fields, OBJECT_META, &mut all);
    }
    all.iter_mut().for_each(|(name, schema)| correct(name, schema, flavour));
    // Options and events are read in the version of whatever they come with.
    for name in ["DeleteOptions", "WatchEvent"] {
        let everywhere = group_versions.iter().map(|one| (one.group, one.version)).chain([("", "v1")]);
        let mut about: Vec<_> = everywhere.collect();
        about.sort();
        about.dedup();
        let about =
            about.into_iter().map(|(group, version)| GroupVersionKind(group, version, name).written());
        all.entry(format!("{META}{name}")).or_insert_with(|| json!({}))[KIND_EXTENSION] = about.collect();
    }
    for name in ["APIResourceList", "Status"] {
        all.entry(format!("{META}{name}")).or_insert_with(|| json!({}))[KIND_EXTENSION] =
            json!([GroupVersionKind("", "v1", name).written()]);
    }
    all
}

/// The schema of a kind that is not the original's: a custom resource, or one of our own.
fn own(schema: &sheaf_resources::schema::Schema, flavour: Flavour) -> Value {
    let mut out = match flavour {
        // Clients of v2 take what is not listed as unknown, so a resource that keeps everything
        // lists nothing.
        Flavour::V2 if schema.preserves_unknown_fields() => return json!({"type": "object"}),
        Flavour::V2 => schema.to_openapi_v2(),
        Flavour::V3 => schema.to_openapi_v3(),
    };
    embed(&mut out, flavour);
    out["type"] = "object".into();
    name_as_object(&mut out, flavour);
    out
}

/// Says of every whole object inside another what is true of any object.
fn embed(node: &mut Value, flavour: Flavour) {
    match node {
        Value::Object(map) => {
            map.values_mut().for_each(|inner| embed(inner, flavour));
            let open = map.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
            if map.get(EMBEDDED) == Some(&Value::Bool(true)) && !(open && flavour == Flavour::V2) {
                name_as_object(node, flavour);
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|inner| embed(inner, flavour)),
        _ => {}
    }
}

fn name_as_object(schema: &mut Value, flavour: Flavour) {
    let properties = &mut schema["properties"];
    properties["apiVersion"] = json!({"type": "string", "description": API_VERSION});
    properties["kind"] = json!({"type": "string", "description": KIND});
    properties["metadata"] = described_reference(OBJECT_META, METADATA, flavour);
}

fn list(kind: &Kind, names: &TypeNames, flavour: Flavour) -> Value {
    json!({
        "type": "object",
        "description": format!("{} is a list of {}.", kind.list_kind, kind.plural),
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string", "description": API_VERSION},
            "kind": {"type": "string", "description": KIND},
            "metadata": described_reference(LIST_META, LIST_METADATA, flavour),
            "items": {
                "type": "array", "description": format!("The {}.", kind.plural),
                "items": reference(&names.object, flavour),
            },
        },
        KIND_EXTENSION: [GroupVersionKind(&kind.group, &kind.version, &kind.list_kind).written()],
    })
}

const API_VERSION: &str = "The group and version this object is written in.";
const KIND: &str = "What this object is.";
const METADATA: &str = "Name, namespace, labels and the rest that every object has.";
const LIST_METADATA: &str = "The version of the list, and how to get the rest of it.";

/// Puts a type of the original right where its Rust form says less or more.
fn correct(name: &str, schema: &mut Value, flavour: Flavour) {
    let Value::Object(map) = schema else { return };
    match name.rsplit('.').next().unwrap_or(name) {
        "IntOrString" => one_of_two(map, "integer", flavour, Some("int-or-string")),
        "Quantity" => one_of_two(map, "number", flavour, None),
        // Any value, though declared an object.
        "JSON" => {
            map.remove("type");
        }
        _ => {}
    }
    correct_required(name, map);
    if flavour == Flavour::V2 {
        simplify(schema);
    }
}

/// Types that point at an object by a name that may be empty.
const NAMELESS: [&str; 8] = [
    "ConfigMapEnvSource",
    "ConfigMapKeySelector",
    "ConfigMapProjection",
    "ConfigMapVolumeSource",
    "LocalObjectReference",
    "SecretEnvSource",
    "SecretKeySelector",
    "SecretProjection",
];

/// A field that always has a value in Rust need not be given over the wire, and the reverse.
fn correct_required(name: &str, map: &mut Map<String, Value>) {
    const CORE: &str = "io.k8s.api.core.v1.";
    let mut optional = Vec::new();
    let metadata = &map.get("properties").map_or(&Value::Null, |properties| &properties["metadata"]);
    // An event is the one object that must say where it belongs.
    if (refers_to(metadata, OBJECT_META) || refers_to(metadata, LIST_META))
        && name != "io.k8s.api.core.v1.Event"
    {
        optional.push("metadata");
    }
    if name.strip_prefix(CORE).is_some_and(|name| NAMELESS.contains(&name)) {
        optional.push("name");
    }
    let mut required: Vec<Value> = match map.remove("required") {
        Some(Value::Array(fields)) => fields,
        _ => Vec::new(),
    };
    required.retain(|field| !optional.iter().any(|name| field == name));
    if name == "io.k8s.api.events.v1.Event" {
        required.push("eventTime".into());
    }
    if !required.is_empty() {
        map.insert("required".into(), required.into());
    }
}

/// A text or something else: v2 knows no alternatives and calls it a text.
fn one_of_two(map: &mut Map<String, Value>, other: &str, flavour: Flavour, format: Option<&str>) {
    map.remove("x-kubernetes-int-or-string");
    match flavour {
        Flavour::V2 => map.insert("type".into(), "string".into()),
        Flavour::V3 => map.insert("oneOf".into(), json!([{"type": other}, {"type": "string"}])),
    };
    if let Some(format) = format {
        map.insert("format".into(), format.into());
    }
}

fn refers_to(schema: &Value, name: &str) -> bool {
    let ends = |reference: &Value| reference.as_str().is_some_and(|text| text.ends_with(name));
    ends(&schema["$ref"]) || ends(&schema["allOf"][0]["$ref"])
}

/// Drops what clients of v2 fail on.
fn simplify(node: &mut Value) {
    match node {
        Value::Object(map) => {
            for (key, inner) in map.iter_mut() {
                // The names of fields are not keywords.
                match (key.as_str(), inner) {
                    ("properties", Value::Object(fields)) => fields.values_mut().for_each(simplify),
                    (_, inner) => simplify(inner),
                }
            }
            for keyword in ["anyOf", "oneOf", "not", "nullable"] {
                map.remove(keyword);
            }
            if map.get("type").and_then(Value::as_str) == Some("array") && !map.contains_key("items") {
                map.remove("type");
            }
        }
        Value::Array(list) => list.iter_mut().for_each(simplify),
        _ => {}
    }
}
