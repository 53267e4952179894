//! Kinds of Sheaf's own as CustomResourceDefinitions, so that a server which is not Sheaf can serve them.
//!
//! What a definition cannot say is left out: what a kind does beyond its schema (defaults that hang on other fields,
//! validation, what becomes of a deletion) is admission, which on another server would be a webhook's work. Columns for
//! people are left out too.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sheaf_resources::{
    kind::{Kind, Scope},
    kinds::built_in,
};

/// Definitions of every kind that the original does not serve by itself.
pub fn of_our_kinds() -> Vec<Value> {
    let mut by_resource: BTreeMap<(String, String), Vec<Kind>> = BTreeMap::new();
    for kind in built_in().into_iter().filter(|kind| is_ours(&kind.group)) {
        by_resource.entry((kind.group.clone(), kind.plural.clone())).or_default().push(kind);
    }
    by_resource.values().map(|versions| definition(versions)).collect()
}

/// Groups without a dot and those under `k8s.io` are the original's own.
fn is_ours(group: &str) -> bool {
    group.contains('.') && !group.ends_with(".k8s.io")
}

fn definition(versions: &[Kind]) -> Value {
    let kind = &versions[0];
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.{}", kind.plural, kind.group)},
        "spec": {
            "group": kind.group,
            "scope": if kind.scope == Scope::Namespaced { "Namespaced" } else { "Cluster" },
            "names": {
                "plural": kind.plural, "singular": kind.singular, "kind": kind.kind, "listKind": kind.list_kind,
                "shortNames": kind.short_names, "categories": kind.categories,
            },
            "versions": versions.iter().enumerate().map(|(at, kind)| version(kind, at == 0)).collect::<Vec<_>>(),
        },
    })
}

fn version(kind: &Kind, stored: bool) -> Value {
    let mut schema = kind.schema.get().to_openapi_v3();
    // The server knows these better, and lets nobody else say what they are.
    for (name, sort) in [("apiVersion", "string"), ("kind", "string"), ("metadata", "object")] {
        schema["properties"][name] = json!({"type": sort});
    }
    make_structural(&mut schema);
    let fields = kind.selectable_fields.iter().map(|path| json!({"jsonPath": format!(".{path}")}));
    json!({
        "name": kind.version, "served": true, "storage": stored,
        "schema": {"openAPIV3Schema": schema},
        "subresources": if kind.status { json!({"status": {}}) } else { json!({}) },
        "selectableFields": fields.collect::<Vec<_>>(),
    })
}

/// Takes out what a schema of a built-in kind may say and one of a custom resource may not.
fn make_structural(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.retain(|name, _| {
                !name.starts_with("x-kubernetes-patch-") && name != "x-kubernetes-group-version-kind"
            });
            if fields.get("type") != Some(&json!("array")) {
                fields.retain(|name, _| !name.starts_with("x-kubernetes-list-"));
            }
            one_of_words_is_a_word(fields);
            key_fields_are_required(fields);
            fields.values_mut().for_each(make_structural);
        }
        Value::Array(items) => items.iter_mut().for_each(make_structural),
        _ => {}
    }
}

/// Alternatives that are all words become one word, from a list where they all have one: the type must stand outside
/// of them.
fn one_of_words_is_a_word(fields: &mut Map<String, Value>) {
    let alternatives = fields.get("oneOf").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if alternatives.is_empty() || alternatives.iter().any(|alternative| alternative["type"] != "string") {
        return;
    }
    let words: Option<Vec<_>> =
        alternatives.iter().map(|alternative| alternative["enum"].as_array()).collect();
    let words = words.map(|lists| lists.into_iter().flatten().cloned().collect::<Vec<_>>());
    fields.remove("oneOf");
    fields.insert("type".into(), "string".into());
    if let Some(words) = words {
        fields.insert("enum".into(), words.into());
    }
}

/// What items of a list are told apart by may not be missing from one, unless it has a default.
fn key_fields_are_required(fields: &mut Map<String, Value>) {
    let Some(keys) = fields.get("x-kubernetes-list-map-keys").and_then(Value::as_array).cloned() else {
        return;
    };
    let Some(items) = fields.get_mut("items") else { return };
    for key in keys.iter().filter_map(Value::as_str) {
        if !items["properties"][key]["default"].is_null() {
            continue;
        }
        let required = &mut items["required"];
        if required.is_null() {
            *required = json!([]);
        }
        let required = required.as_array_mut().expect("a list of names");
        if !required.iter().any(|name| name == key) {
            required.push(key.into());
        }
    }
}
