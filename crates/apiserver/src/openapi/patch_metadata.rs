//! Writes how lists are patched into the types, so that clients compute the same patch that the
//! server applies.

use serde_json::{Value, json};
use sheaf_resources::patch::strategies::{Field, Fields};

use super::schemas::Schemas;

/// Lists that are told apart by more than the one member patches go by.
const FURTHER_KEYS: [(&str, &str); 3] =
    [("port", "protocol"), ("containerPort", "protocol"), ("topologyKey", "whenUnsatisfiable")];

/// Adds what `fields` says of the type `name`, and of the types it leads to.
pub fn add(fields: &Fields, name: &str, schemas: &mut Schemas) {
    for (field, rule) in fields.0 {
        let Some(property) = schemas.get_mut(name).and_then(|schema| schema["properties"].get_mut(field))
        else {
            continue;
        };
        match rule {
            Field::Object(inner) => {
                if let Some(target) = target(property) {
                    add(inner, &target, schemas);
                }
            }
            Field::MergeByKey { key, element, retain_keys } => {
                property["x-kubernetes-patch-merge-key"] = (*key).into();
                property["x-kubernetes-patch-strategy"] =
                    if *retain_keys { "merge,retainKeys" } else { "merge" }.into();
                property["x-kubernetes-list-type"] = "map".into();
                let further = FURTHER_KEYS.iter().filter(|(first, _)| first == key).map(|(_, second)| second);
                property["x-kubernetes-list-map-keys"] =
                    [key].into_iter().chain(further).map(|k| json!(k)).collect();
                if let Some(target) = target(&property["items"]) {
                    add(element, &target, schemas);
                }
            }
            Field::MergeSet => {
                property["x-kubernetes-patch-strategy"] = "merge".into();
                property["x-kubernetes-list-type"] = "set".into();
            }
        }
    }
}

/// The type a schema refers to.
fn target(schema: &Value) -> Option<String> {
    let reference = schema.get("$ref").or_else(|| schema.pointer("/allOf/0/$ref"))?;
    Some(reference.as_str()?.rsplit('/').next()?.to_owned())
}
