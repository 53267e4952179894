//! Fills in the defaults of a schema.
//!
//! A default applies where its parent object is present and the field is not. A null stands
//! for "absent" unless the schema says `nullable`: it is replaced by the default where there
//! is one, and dropped from its object where there is none.

use serde_json::{Map, Value};

use super::Schema;

/// More bytes of defaults than this are not filled in: a small object can ask for a large default many times.
const MOST: usize = 8 * 1024 * 1024;

/// The defaults of an object would make it larger than any object may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the defaults of its schema would add more than {MOST} bytes")]
pub struct TooManyDefaults;

/// Applies the defaults of `schema` to `value`, including those inside defaults. On an error some are
/// filled in and some are not.
pub fn apply_defaults(value: &mut Value, schema: &Schema) -> Result<(), TooManyDefaults> {
    drop_nulls(value, schema);
    let mut room = Room(MOST);
    room.fill(value, schema)
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

/// How many bytes of defaults may still be filled in.
struct Room(usize);

impl Room {
    fn fill(&mut self, value: &mut Value, schema: &Schema) -> Result<(), TooManyDefaults> {
        match value {
            Value::Object(map) => {
                for (name, inner) in schema.properties.iter() {
                    self.fill_absent(map, name, inner)?;
                }
                for (name, value) in map.iter_mut() {
                    if let Some(inner) = schema.field(name) {
                        self.fill_null(value, inner)?;
                        self.fill(value, inner)?;
                    }
                }
            }
            Value::Array(list) => {
                if let Some(items) = schema.items.as_deref() {
                    for item in list {
                        self.fill_null(item, items)?;
                        self.fill(item, items)?;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn fill_absent(
        &mut self,
        map: &mut Map<String, Value>,
        name: &str,
        schema: &Schema,
    ) -> Result<(), TooManyDefaults> {
        let Some(default) = &schema.default else { return Ok(()) };
        if !map.contains_key(name) {
            let value = self.take(default, schema)?;
            map.insert(name.to_owned(), value);
        }
        Ok(())
    }

    fn fill_null(&mut self, value: &mut Value, schema: &Schema) -> Result<(), TooManyDefaults> {
        if value.is_null()
            && !schema.nullable
            && let Some(default) = &schema.default
        {
            *value = self.take(default, schema)?;
        }
        Ok(())
    }

    /// A copy of a default. One that is itself full of nulls is treated as if it had been sent.
    fn take(&mut self, default: &Value, schema: &Schema) -> Result<Value, TooManyDefaults> {
        self.0 = self.0.checked_sub(size(default)).ok_or(TooManyDefaults)?;
        let mut value = default.clone();
        drop_nulls(&mut value, schema);
        Ok(value)
    }
}

/// About how many bytes a value takes.
fn size(value: &Value) -> usize {
    const EACH: usize = 32;
    EACH + match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(members) => members.iter().map(|(key, value)| key.len() + size(value)).sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn defaulted(schema: Value, mut value: Value) -> Value {
        apply_defaults(&mut value, &Schema::parse(&schema).unwrap()).unwrap();
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
