//! Writes a [`Schema`] back as OpenAPI.
//!
//! [`Schema::to_openapi_v3`] writes everything that was read, so reading it again gives the
//! same schema. [`Schema::to_openapi_v2`] writes the subset that clients of the older
//! document (kubectl's client-side checks) can stand: no junctors, nothing nullable, and no
//! structure where unknown fields are kept.

use serde_json::{Map, Number, Value};

use super::{Additional, Extra, Schema, SchemaType, ValueRules};

impl Schema {
    pub fn to_openapi_v3(&self) -> Value {
        Value::Object(write(self, &mut Schema::to_openapi_v3, self.kind.as_ref(), Shape::Whole))
    }

    pub fn to_openapi_v2(&self) -> Value {
        // A type that says "object" or "array" without its contents confuses the clients of
        // v2, so where the contents go the type goes with them.
        let open = self.preserves_unknown_fields();
        let bare = self.nullable || open;
        let kind = match &self.kind {
            _ if self.nullable => None,
            Some(SchemaType::Object) if open => None,
            Some(SchemaType::Array) if bare || self.items.is_none() => None,
            kind => kind.as_ref(),
        };
        let shape = if bare { Shape::WithoutContents } else { Shape::WithoutJunctors };
        let mut map = write(self, &mut Schema::to_openapi_v2, kind, shape);
        map.remove("nullable");
        let required: Vec<Value> = self
            .required()
            .iter()
            .filter(|name| !self.properties.get(name).is_some_and(|field| field.nullable))
            .map(|name| Value::from(&**name))
            .collect();
        let nullable_values =
            self.additional_properties.as_ref().and_then(Additional::schema).is_some_and(|s| s.nullable);
        if required.is_empty() || nullable_values {
            map.remove("required");
        } else {
            map.insert("required".into(), required.into());
        }
        Value::Object(map)
    }
}

/// How much of the structure is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Whole,
    WithoutJunctors,
    /// Neither junctors nor properties nor items.
    WithoutContents,
}

fn write(
    schema: &Schema,
    inner: &mut dyn FnMut(&Schema) -> Value,
    kind: Option<&SchemaType>,
    shape: Shape,
) -> Map<String, Value> {
    let mut out = Out(Map::new());
    out.text("description", schema.description.as_deref());
    out.text("type", kind.map(SchemaType::as_str));
    out.text("format", schema.format.as_deref());
    out.flag("nullable", schema.nullable);
    out.value("default", schema.default.as_deref());
    if let Some(rules) = &schema.rules {
        limits(&mut out, rules);
        if shape == Shape::Whole {
            out.list("allOf", rules.all_of.iter().map(&mut *inner));
            out.list("anyOf", rules.any_of.iter().map(&mut *inner));
            out.list("oneOf", rules.one_of.iter().map(&mut *inner));
            if let Some(not) = &rules.not {
                out.0.insert("not".into(), inner(not));
            }
        }
    }
    if shape != Shape::WithoutContents {
        if !schema.properties.is_empty() {
            let fields = schema.properties.iter().map(|(name, field)| (name.to_owned(), inner(field)));
            out.0.insert("properties".into(), Value::Object(fields.collect()));
        }
        if let Some(items) = &schema.items {
            out.0.insert("items".into(), inner(items));
        }
    }
    match &schema.additional_properties {
        None => {}
        Some(Additional::Allowed(allowed)) => {
            out.0.insert("additionalProperties".into(), (*allowed).into());
        }
        Some(Additional::Schema(values)) => {
            out.0.insert("additionalProperties".into(), inner(values));
        }
    }
    out.flag("x-kubernetes-int-or-string", schema.int_or_string);
    out.flag("x-kubernetes-embedded-resource", schema.embedded_resource);
    if let Some(preserve) = schema.preserve_unknown_fields {
        out.0.insert("x-kubernetes-preserve-unknown-fields".into(), preserve.into());
    }
    if let Some(extra) = &schema.extra {
        extras(&mut out, extra);
    }
    out.0
}

fn limits(out: &mut Out, rules: &ValueRules) {
    out.number("maximum", rules.maximum.as_ref());
    out.flag("exclusiveMaximum", rules.exclusive_maximum);
    out.number("minimum", rules.minimum.as_ref());
    out.flag("exclusiveMinimum", rules.exclusive_minimum);
    out.number("multipleOf", rules.multiple_of.as_ref());
    out.integer("maxLength", rules.max_length);
    out.integer("minLength", rules.min_length);
    out.text("pattern", rules.pattern.as_ref().map(|pattern| pattern.as_str()));
    out.integer("maxItems", rules.max_items);
    out.integer("minItems", rules.min_items);
    out.flag("uniqueItems", rules.unique_items);
    out.integer("maxProperties", rules.max_properties);
    out.integer("minProperties", rules.min_properties);
    out.list("required", rules.required.iter().map(|name| Value::from(&**name)));
    out.list("enum", rules.allowed.iter().cloned());
}

fn extras(out: &mut Out, extra: &Extra) {
    out.text("title", extra.title.as_deref());
    out.value("example", extra.example.as_ref());
    out.value("externalDocs", extra.external_docs.as_ref());
    out.text("x-kubernetes-list-type", extra.list_type.as_deref());
    out.list("x-kubernetes-list-map-keys", extra.list_map_keys.iter().map(|key| Value::from(&**key)));
    out.text("x-kubernetes-map-type", extra.map_type.as_deref());
    out.value("x-kubernetes-validations", extra.validations.as_ref());
    for (key, value) in &extra.unserved {
        out.value(key, Some(value));
    }
}

struct Out(Map<String, Value>);

impl Out {
    fn text(&mut self, key: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.0.insert(key.into(), text.into());
        }
    }

    fn flag(&mut self, key: &str, flag: bool) {
        if flag {
            self.0.insert(key.into(), true.into());
        }
    }

    fn number(&mut self, key: &str, number: Option<&Number>) {
        if let Some(number) = number {
            self.0.insert(key.into(), Value::Number(number.clone()));
        }
    }

    fn integer(&mut self, key: &str, integer: Option<i64>) {
        if let Some(integer) = integer {
            self.0.insert(key.into(), integer.into());
        }
    }

    fn value(&mut self, key: &str, value: Option<&Value>) {
        if let Some(value) = value {
            self.0.insert(key.into(), value.clone());
        }
    }

    fn list(&mut self, key: &str, entries: impl Iterator<Item = Value>) {
        let entries: Vec<Value> = entries.collect();
        if !entries.is_empty() {
            self.0.insert(key.into(), entries.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn v3_writes_what_was_read() {
        let schema = json!({"type": "object", "description": "d", "title": "t", "required": ["a"],
        "properties": {
            "a": {"type": "integer", "minimum": 1, "maximum": 2.5, "format": "int32", "default": 1},
            "b": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "c": {"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["k"]},
            "d": {"type": "string", "enum": ["x", "y"], "pattern": "^x", "nullable": true},
        }});
        assert_eq!(Schema::parse(&schema).unwrap().to_openapi_v3(), schema);
    }

    #[test]
    fn v2_drops_what_its_clients_cannot_read() {
        let schema = json!({"type": "object", "required": ["a", "b"], "properties": {
            "a": {"type": "string", "nullable": true},
            "b": {"type": "array", "x-kubernetes-preserve-unknown-fields": true, "items": {"type": "string"}},
            "c": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"x": {}}},
            "d": {"type": "integer", "oneOf": [{"minimum": 1}], "not": {"maximum": 9}, "maximum": 4},
        }});
        assert_eq!(
            Schema::parse(&schema).unwrap().to_openapi_v2(),
            json!({"type": "object", "required": ["b"], "properties": {
                "a": {},
                "b": {"x-kubernetes-preserve-unknown-fields": true},
                "c": {"x-kubernetes-preserve-unknown-fields": true},
                "d": {"type": "integer", "maximum": 4},
            }})
        );
    }
}
