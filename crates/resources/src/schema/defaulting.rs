//! Fills in the defaults of a schema.
//!
//! A default applies where its parent object is present and the field is not. A null stands
//! for "absent" unless the schema says `nullable`: it is replaced by the default where there
//! is one, and dropped from its object where there is none.

use serde_json::{Map, Value};

use super::Schema;

/// Applies the defaults of `schema` to `value`, including those inside defaults.
pub fn apply_defaults(value: &mut Value, schema: &Schema) {
    drop_nulls(value, schema);
    fill(value, schema);
}

/// Removes nulls that are neither allowed nor replaced. A null in a list stays: removing it
/// would move its neighbours.
fn drop_nulls(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(map) => {
            map.retain(|name, value| match schema.field(name) {
                Some(inner) => !value.is_null() || inner.nullable || inner.default.is_some(),
                None => true,
            });
            for (name, value) in map.iter_mut() {
                if let Some(inner) = schema.field(name) {
                    drop_nulls(value, inner);
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = schema.items.as_deref() {
                list.iter_mut().for_each(|item| drop_nulls(item, items));
            }
        }
        _ => {}
    }
}

fn fill(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(map) => {
            for (name, inner) in schema.properties.iter() {
                fill_absent(map, name, inner);
            }
            for (name, value) in map.iter_mut() {
                if let Some(inner) = schema.field(name) {
                    fill_null(value, inner);
                    fill(value, inner);
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = schema.items.as_deref() {
                for item in list {
                    fill_null(item, items);
                    fill(item, items);
                }
            }
        }
        _ => {}
    }
}

fn fill_absent(map: &mut Map<String, Value>, name: &str, schema: &Schema) {
    let Some(default) = &schema.default else { return };
    if !map.contains_key(name) {
        // A default that is itself full of nulls is treated as if it had been sent.
        let mut value = (**default).clone();
        drop_nulls(&mut value, schema);
        map.insert(name.to_owned(), value);
    }
}

fn fill_null(value: &mut Value, schema: &Schema) {
    if value.is_null()
        && !schema.nullable
        && let Some(default) = &schema.default
    {
        let mut filled = (**default).clone();
        drop_nulls(&mut filled, schema);
        *value = filled;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn defaulted(schema: Value, mut value: Value) -> Value {
        apply_defaults(&mut value, &Schema::parse(&schema).unwrap());
        value
    }

    #[test]
    fn a_default_fills_an_absent_field_of_a_present_parent_only() {
        let schema = json!({"type": "object", "properties": {
            "a": {"type": "string", "default": "A"},
            "b": {"type": "object", "properties": {"c": {"type": "integer", "default": 3}}},
        }});
        assert_eq!(defaulted(schema.clone(), json!({})), json!({"a": "A"}));
        assert_eq!(defaulted(schema.clone(), json!({"b": {}})), json!({"a": "A", "b": {"c": 3}}));
        assert_eq!(defaulted(schema, json!({"a": "x", "b": {"c": 1}})), json!({"a": "x", "b": {"c": 1}}));
    }

    #[test]
    fn defaults_inside_a_default_apply_too() {
        let schema = json!({"type": "object", "properties": {
            "b": {"type": "object", "default": {}, "properties": {"c": {"type": "integer", "default": 3}}},
        }});
        assert_eq!(defaulted(schema, json!({})), json!({"b": {"c": 3}}));
    }

    #[test]
    fn a_null_is_replaced_dropped_or_kept_as_the_schema_says() {
        let schema = json!({"type": "object", "properties": {
            "with": {"type": "string", "default": "D"},
            "without": {"type": "string"},
            "nullable": {"type": "string", "nullable": true, "default": "D"},
        }});
        assert_eq!(
            defaulted(schema, json!({"with": null, "without": null, "nullable": null, "unknown": null})),
            json!({"with": "D", "nullable": null, "unknown": null})
        );
    }

    #[test]
    fn list_items_and_map_values_are_defaulted() {
        let schema = json!({"type": "object", "properties": {
            "list": {"type": "array", "items": {"type": "object", "properties": {"p": {"default": 1}}}},
            "words": {"type": "array", "items": {"type": "string", "default": "w"}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"p": {"default": 2}}}},
        }});
        assert_eq!(
            defaulted(schema, json!({"list": [{}, {"p": 9}], "words": ["a", null], "map": {"k": {}}})),
            json!({"list": [{"p": 1}, {"p": 9}], "words": ["a", "w"], "map": {"k": {"p": 2}}})
        );
    }
}
