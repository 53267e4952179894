//! Reads a [`Schema`] from OpenAPI v3 JSON.
//!
//! Keywords that nobody knows are skipped, as a typed decoder would skip them; a keyword of
//! the wrong JSON type is an error that says where. Whether the schema makes a good CRD is
//! not asked here: that is [`super::structural`].

use serde_json::{Map, Number, Value};

use super::{Additional, Extra, Pattern, Properties, Schema, SchemaType, ValueRules};

/// How deep schemas may nest. The largest CRDs in the field stay under forty; the bound
/// keeps a hostile one from exhausting the stack.
pub const MAX_DEPTH: usize = 100;

/// Keywords of JSON schema that custom resources may not use.
const UNSERVED: [&str; 7] =
    ["$ref", "$schema", "id", "additionalItems", "definitions", "dependencies", "patternProperties"];

/// The keyword under which [`super::builtin`] hands over the name of a type.
pub(super) const GO_TYPE: &str = "x-sheaf-go-type";
/// The keywords under which [`super::topology`] hands over what no keyword of Kubernetes says.
pub(super) const ALWAYS: &str = "x-sheaf-always";
pub(super) const KEY_DEFAULT: &str = "x-sheaf-key-default";

/// Why a JSON value is not a schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    #[error("{path}: must be {expected}, not {found}")]
    WrongType { path: String, expected: &'static str, found: &'static str },
    #[error("{path}: schemas may nest {MAX_DEPTH} deep at most")]
    TooDeep { path: String },
}

/// Who wrote the JSON.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Author {
    /// A user: nothing in it is private to us.
    User,
    /// [`super::builtin`].
    Us,
}

impl Schema {
    /// Reads OpenAPI v3 JSON, as found in a CRD's `openAPIV3Schema`.
    pub fn parse(json: &Value) -> Result<Self, SchemaError> {
        Self::parse_by(json, Author::User)
    }

    pub(super) fn parse_by(json: &Value, author: Author) -> Result<Self, SchemaError> {
        Reader { author, path: Vec::new() }.schema(json)
    }
}

struct Reader<'a> {
    author: Author,
    path: Vec<&'a str>,
}

impl<'a> Reader<'a> {
    fn schema(&mut self, json: &'a Value) -> Result<Schema, SchemaError> {
        if self.path.len() > MAX_DEPTH {
            return Err(SchemaError::TooDeep { path: self.path.join(".") });
        }
        let Value::Object(map) = json else { return Err(self.wrong("", "an object", json)) };
        let mut schema = Schema {
            kind: self.text(map, "type")?.map(SchemaType::from),
            nullable: self.flag(map, "nullable")?.unwrap_or(false),
            int_or_string: self.flag(map, "x-kubernetes-int-or-string")?.unwrap_or(false),
            embedded_resource: self.flag(map, "x-kubernetes-embedded-resource")?.unwrap_or(false),
            preserve_unknown_fields: self.flag(map, "x-kubernetes-preserve-unknown-fields")?,
            description: self.text(map, "description")?.map(Into::into),
            format: self.text(map, "format")?.map(Into::into),
            default: present(map, "default").map(|value| Box::new(value.clone())),
            ..Schema::default()
        };
        if let Some(fields) = self.object(map, "properties")? {
            let mut entries = Vec::with_capacity(fields.len());
            for (name, json) in fields {
                entries.push((name.as_str().into(), self.inside(name, json)?));
            }
            schema.properties = Properties::from_iter(entries);
        }
        schema.additional_properties = match present(map, "additionalProperties") {
            None => None,
            Some(Value::Bool(allowed)) => Some(Additional::Allowed(*allowed)),
            Some(json) => Some(Additional::Schema(Box::new(self.inside("additionalProperties", json)?))),
        };
        schema.items = match present(map, "items") {
            // A schema per position is refused for CRDs; it is kept below to say so.
            None | Some(Value::Array(_)) => None,
            Some(json) => Some(Box::new(self.inside("items", json)?)),
        };
        schema.rules = self.rules(map)?;
        schema.extra = self.extra(map)?;
        Ok(schema)
    }

    fn inside(&mut self, step: &'a str, json: &'a Value) -> Result<Schema, SchemaError> {
        self.path.push(step);
        let schema = self.schema(json)?;
        self.path.pop();
        Ok(schema)
    }

    fn rules(&mut self, map: &'a Map<String, Value>) -> Result<Option<Box<ValueRules>>, SchemaError> {
        let rules = Box::new(ValueRules {
            maximum: self.number(map, "maximum")?,
            exclusive_maximum: self.flag(map, "exclusiveMaximum")?.unwrap_or(false),
            minimum: self.number(map, "minimum")?,
            exclusive_minimum: self.flag(map, "exclusiveMinimum")?.unwrap_or(false),
            multiple_of: self.number(map, "multipleOf")?,
            max_length: self.integer(map, "maxLength")?,
            min_length: self.integer(map, "minLength")?,
            pattern: self.text(map, "pattern")?.filter(|text| !text.is_empty()).map(Pattern::new),
            max_items: self.integer(map, "maxItems")?,
            min_items: self.integer(map, "minItems")?,
            unique_items: self.flag(map, "uniqueItems")?.unwrap_or(false),
            max_properties: self.integer(map, "maxProperties")?,
            min_properties: self.integer(map, "minProperties")?,
            required: self.texts(map, "required")?,
            allowed: self.list(map, "enum")?.map_or_else(Vec::new, <[Value]>::to_vec),
            all_of: self.schemas(map, "allOf")?,
            any_of: self.schemas(map, "anyOf")?,
            one_of: self.schemas(map, "oneOf")?,
            not: match present(map, "not") {
                None => None,
                Some(json) => Some(Box::new(self.inside("not", json)?)),
            },
        });
        Ok((*rules != ValueRules::default()).then_some(rules))
    }

    fn extra(&self, map: &'a Map<String, Value>) -> Result<Option<Box<Extra>>, SchemaError> {
        let mut unserved: Vec<(Box<str>, Value)> =
            UNSERVED.iter().filter_map(|key| Some(((*key).into(), present(map, key)?.clone()))).collect();
        if let Some(items @ Value::Array(_)) = map.get("items") {
            unserved.push(("items".into(), items.clone()));
        }
        let (go_type, always, key_default) = match self.author {
            Author::User => (None, false, None),
            Author::Us => (
                self.text(map, GO_TYPE)?.map(Into::into),
                self.flag(map, ALWAYS)?.unwrap_or(false),
                map.get(KEY_DEFAULT).cloned(),
            ),
        };
        let extra = Box::new(Extra {
            title: self.text(map, "title")?.map(Into::into),
            example: present(map, "example").cloned(),
            external_docs: self.object(map, "externalDocs")?.map(|docs| Value::Object(docs.clone())),
            list_type: self.text(map, "x-kubernetes-list-type")?.map(Into::into),
            list_map_keys: self.texts(map, "x-kubernetes-list-map-keys")?,
            map_type: self.text(map, "x-kubernetes-map-type")?.map(Into::into),
            validations: self
                .list(map, "x-kubernetes-validations")?
                .filter(|rules| !rules.is_empty())
                .map(|rules| Value::Array(rules.to_vec())),
            unserved,
            go_type,
            always,
            key_default,
        });
        Ok((*extra != Extra::default()).then_some(extra))
    }

    fn schemas(&mut self, map: &'a Map<String, Value>, key: &'a str) -> Result<Vec<Schema>, SchemaError> {
        let list = self.list(map, key)?.unwrap_or_default();
        list.iter().map(|json| self.inside(key, json)).collect()
    }

    fn text(&self, map: &'a Map<String, Value>, key: &str) -> Result<Option<&'a str>, SchemaError> {
        match present(map, key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(key, "a string", other)),
        }
    }

    fn texts(&self, map: &'a Map<String, Value>, key: &str) -> Result<Vec<Box<str>>, SchemaError> {
        let list = self.list(map, key)?.unwrap_or_default();
        list.iter()
            .map(|entry| match entry {
                Value::String(text) => Ok(text.as_str().into()),
                other => Err(self.wrong(key, "a list of strings", other)),
            })
            .collect()
    }

    fn flag(&self, map: &Map<String, Value>, key: &str) -> Result<Option<bool>, SchemaError> {
        match present(map, key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(self.wrong(key, "a boolean", other)),
        }
    }

    fn number(&self, map: &Map<String, Value>, key: &str) -> Result<Option<Number>, SchemaError> {
        match present(map, key) {
            None => Ok(None),
            Some(Value::Number(number)) => Ok(Some(number.clone())),
            Some(other) => Err(self.wrong(key, "a number", other)),
        }
    }

    fn integer(&self, map: &Map<String, Value>, key: &str) -> Result<Option<i64>, SchemaError> {
        match present(map, key) {
            None => Ok(None),
            Some(value) => match value.as_i64() {
                Some(integer) => Ok(Some(integer)),
                None => Err(self.wrong(key, "an integer", value)),
            },
        }
    }

    fn list(&self, map: &'a Map<String, Value>, key: &str) -> Result<Option<&'a [Value]>, SchemaError> {
        match present(map, key) {
            None => Ok(None),
            Some(Value::Array(list)) => Ok(Some(list)),
            Some(other) => Err(self.wrong(key, "a list", other)),
        }
    }

    fn object(
        &self,
        map: &'a Map<String, Value>,
        key: &str,
    ) -> Result<Option<&'a Map<String, Value>>, SchemaError> {
        match present(map, key) {
            None => Ok(None),
            Some(Value::Object(object)) => Ok(Some(object)),
            Some(other) => Err(self.wrong(key, "an object", other)),
        }
    }

    fn wrong(&self, key: &str, expected: &'static str, found: &Value) -> SchemaError {
        let mut path = self.path.join(".");
        if !key.is_empty() {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(key);
        }
        if path.is_empty() {
            path.push_str("the schema");
        }
        SchemaError::WrongType { path, expected, found: json_type(found) }
    }
}

/// A null is the same as nothing, as in every typed decoder.
fn present<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    map.get(key).filter(|value| !value.is_null())
}

/// The JSON type of a value, in the words of Go's decoder.
pub(super) fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
