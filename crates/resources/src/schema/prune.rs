//! Drops the fields of an object that its schema does not name, and tells which.
//!
//! The paths are what `fieldValidation` Strict and Warn report: `unknown field "spec.foo"`.
//! The metadata of a resource, at the root or embedded, is not the schema's business: it is
//! ObjectMeta, whose fields are fixed.

use crate::object_meta;
use serde_json::{Map, Value};

use super::{Additional, Schema};

const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

const OWNER_REFERENCE: [&str; 6] = ["apiVersion", "blockOwnerDeletion", "controller", "kind", "name", "uid"];

const MANAGED_FIELDS: [&str; 7] =
    ["apiVersion", "fieldsType", "fieldsV1", "manager", "operation", "subresource", "time"];

/// Removes unknown fields from `value` and gives back their paths, in the order of the
/// object's sorted keys. `is_root` says that `value` is a whole resource, so that
/// `apiVersion`, `kind` and `metadata` stay whatever the schema says.
pub fn prune(value: &mut Value, schema: &Schema, is_root: bool) -> Vec<String> {
    let mut pruner = Pruner { path: String::new(), dropped: Vec::new() };
    pruner.value(value, Some(schema), is_root);
    pruner.dropped
}

struct Pruner {
    path: String,
    dropped: Vec<String>,
}

impl Pruner {
    fn value(&mut self, value: &mut Value, schema: Option<&Schema>, is_root: bool) {
        match (value, schema) {
            (Value::Object(map), Some(schema)) => self.object(map, schema, is_root),
            // Nothing says what belongs in here, so nothing does.
            (Value::Object(map), None) => self.retain(map, |_| false),
            (Value::Array(list), Some(schema)) if schema.preserves_unknown_fields() => {
                self.kept_list(list, schema);
            }
            (Value::Array(list), schema) => {
                let items = schema.and_then(|schema| schema.items.as_deref());
                self.elements(list, |pruner, item| pruner.value(item, items, false));
            }
            _ => {}
        }
    }

    fn object(&mut self, map: &mut Map<String, Value>, schema: &Schema, is_root: bool) {
        let resource = is_root || schema.embedded_resource;
        let open = schema.preserves_unknown_fields() || schema.additional_properties.is_some();
        self.retain(map, |name| {
            open || (resource && META_FIELDS.contains(&name)) || schema.properties.contains(name)
        });
        for name in sorted_names(map) {
            let Some(value) = map.get_mut(&name) else { continue };
            if resource && META_FIELDS.contains(&name.as_str()) {
                if name == "metadata" {
                    self.within(&name, |pruner| pruner.object_meta(value));
                }
            } else if let Some(inner) = schema.properties.get(&name) {
                self.within(&name, |pruner| pruner.value(value, Some(inner), false));
            } else if let Some(additional) = &schema.additional_properties {
                let inner = Additional::schema(additional);
                self.within(&name, |pruner| pruner.value(value, inner, false));
            }
        }
    }

    /// The elements of a list that keeps unknown fields: only what the item schema names
    /// more closely is pruned.
    fn kept_list(&mut self, list: &mut [Value], schema: &Schema) {
        let Some(items) = schema.items.as_deref() else { return };
        self.elements(list, |pruner, item| pruner.kept(item, items));
    }

    fn kept(&mut self, value: &mut Value, schema: &Schema) {
        match value {
            Value::Object(map) => {
                for name in sorted_names(map) {
                    let Some(value) = map.get_mut(&name) else { continue };
                    if schema.embedded_resource && META_FIELDS.contains(&name.as_str()) {
                        continue;
                    }
                    if let Some(inner) = schema.properties.get(&name) {
                        self.within(&name, |pruner| pruner.value(value, Some(inner), false));
                    } else if let Some(additional) = &schema.additional_properties {
                        let inner = Additional::schema(additional);
                        self.within(&name, |pruner| pruner.value(value, inner, false));
                    }
                }
            }
            Value::Array(list) => self.kept_list(list, schema),
            _ => {}
        }
    }

    fn object_meta(&mut self, value: &mut Value) {
        let Value::Object(map) = value else { return };
        self.retain(map, |name| object_meta::FIELDS.contains(&name));
        for (field, known) in
            [("managedFields", MANAGED_FIELDS.as_slice()), ("ownerReferences", OWNER_REFERENCE.as_slice())]
        {
            if let Some(Value::Array(list)) = map.get_mut(field) {
                self.within(field, |pruner| {
                    pruner.elements(list, |pruner, item| {
                        if let Value::Object(entry) = item {
                            pruner.retain(entry, |name| known.contains(&name));
                        }
                    });
                });
            }
        }
    }

    fn retain(&mut self, map: &mut Map<String, Value>, known: impl Fn(&str) -> bool) {
        for name in sorted_names(map) {
            if !known(&name) {
                map.remove(&name);
                let length = self.enter(&name);
                self.dropped.push(self.path.clone());
                self.path.truncate(length);
            }
        }
    }

    fn elements(&mut self, list: &mut [Value], mut each: impl FnMut(&mut Self, &mut Value)) {
        for (index, item) in list.iter_mut().enumerate() {
            let length = self.path.len();
            self.path.push_str(&format!("[{index}]"));
            each(self, item);
            self.path.truncate(length);
        }
    }

    fn within(&mut self, name: &str, step: impl FnOnce(&mut Self)) {
        let length = self.enter(name);
        step(self);
        self.path.truncate(length);
    }

    fn enter(&mut self, name: &str) -> usize {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        length
    }
}

/// The order of a map may depend on how `serde_json` was built; reports must not.
fn sorted_names(map: &Map<String, Value>) -> Vec<String> {
    let mut names: Vec<String> = map.keys().cloned().collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pruned(schema: Value, mut value: Value, is_root: bool) -> (Value, Vec<String>) {
        let dropped = prune(&mut value, &Schema::parse(&schema).unwrap(), is_root);
        (value, dropped)
    }

    #[test]
    fn unknown_fields_go_and_their_paths_are_told() {
        let schema = json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "known": {"type": "string"},
                "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
                "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {}}},
            }},
        }});
        let value = json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "n"}, "extra": 1,
            "spec": {"known": "k", "odd": 1, "list": [{"a": "1"}, {"b": 2}], "map": {"k": {"z": 1}}}});
        let (value, dropped) = pruned(schema, value, true);
        assert_eq!(dropped, ["extra", "spec.odd", "spec.list[1].b", "spec.map.k.z"]);
        assert_eq!(
            value,
            json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "n"},
                "spec": {"known": "k", "list": [{"a": "1"}, {}], "map": {"k": {}}}})
        );
    }

    #[test]
    fn preserving_a_level_still_prunes_what_is_named_inside_it() {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
            "named": {"type": "object", "properties": {"a": {"type": "string"}}}}});
        let (value, dropped) = pruned(schema, json!({"any": {"x": 1}, "named": {"a": "1", "b": 2}}), false);
        assert_eq!(value, json!({"any": {"x": 1}, "named": {"a": "1"}}));
        assert_eq!(dropped, ["named.b"]);
    }

    #[test]
    fn the_metadata_of_a_resource_is_object_meta_whatever_the_schema_says() {
        let schema = json!({"type": "object", "properties": {
            "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
            "inner": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {
                "spec": {"type": "object"}}}}});
        let value = json!({
            "metadata": {"name": "n", "labels": {"a": "b"}, "odd": 1, "ownerReferences": [{"uid": "u", "x": 1}]},
            "inner": {"apiVersion": "v1", "kind": "P", "metadata": {"odd": 1, "name": "m"}, "gone": 1},
        });
        let (value, dropped) = pruned(schema, value, true);
        assert_eq!(
            dropped,
            ["inner.gone", "inner.metadata.odd", "metadata.odd", "metadata.ownerReferences[0].x"]
        );
        assert_eq!(value["metadata"]["labels"]["a"], "b");
        assert_eq!(value["inner"]["metadata"]["name"], "m");
    }

    #[test]
    fn additional_properties_true_keeps_the_keys_and_empties_the_objects() {
        let schema = json!({"type": "object", "additionalProperties": true});
        let (value, _) = pruned(schema, json!({"a": 1, "b": {"c": 1}}), false);
        assert_eq!(value, json!({"a": 1, "b": {}}));
    }
}
