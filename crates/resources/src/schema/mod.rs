//! The shape of an object: which fields it may have, their defaults and their limits.
//!
//! One [`Schema`] serves both worlds: built-in kinds (made from the types of `k8s-openapi`
//! by [`from_k8s_openapi`]) and custom resources (parsed from `openAPIV3Schema` by
//! [`Schema::parse`]). Objects stay `serde_json::Value`; everything here is a function of
//! its arguments.
//!
//! The order in which an API server uses them:
//!
//! ```text
//!   check_types -> prune -> apply_defaults -> judge
//!   (built-in)     (drops     (fills in)      (custom: says what
//!                  unknown                     is wrong, rules
//!                  fields)                     in CEL included)
//! ```
//!
//! - The walk follows the schema, so its depth is bounded by the schema's own
//!   ([`parse::MAX_DEPTH`]); the depth of an *object* is for whoever reads it off the wire
//!   to bound.
//! - Rules in CEL (`x-kubernetes-validations`) are [`rules`].

mod builtin;
mod correlation;
mod custom;
mod decode;
mod defaulting;
mod embedded;
mod emit;
mod format;
pub mod json_path;
#[cfg(test)]
mod laws;
mod list_type;
pub mod named_types;
pub mod parse;
mod pattern;
mod prune;
pub mod rules;
pub mod structural;
mod topology;
mod trail;
mod validate;

use serde_json::{Number, Value};

pub use builtin::{Flavour, definitions, from_k8s_openapi};
pub use custom::judge;
pub(crate) use decode::time_fault;
pub use decode::{DecodeError, check_types};
pub use defaulting::{TooManyDefaults, apply_defaults};
pub use format::is_recognised as is_recognised_format;
pub use json_path::{JsonPath, JsonPathError};
pub use named_types::NamedTypes;
pub use parse::SchemaError;
pub use pattern::Pattern;
pub use prune::prune;

/// The schema of one value. Most nodes of a real schema are leaves with a type and a
/// description, so what is rare sits behind a box.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schema {
    pub kind: Option<SchemaType>,
    pub nullable: bool,
    pub int_or_string: bool,
    pub embedded_resource: bool,
    /// `Some(false)` is kept apart from `None` because it is an error in a CRD.
    pub preserve_unknown_fields: Option<bool>,
    pub description: Option<Box<str>>,
    pub format: Option<Box<str>>,
    pub properties: Properties,
    pub additional_properties: Option<Additional>,
    pub items: Option<Box<Schema>>,
    pub default: Option<Box<Value>>,
    pub rules: Option<Box<ValueRules>>,
    pub extra: Option<Box<Extra>>,
}

/// The `type` of a value. A name that OpenAPI does not know is kept so that it can be
/// reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemaType {
    String,
    Number,
    Integer,
    Boolean,
    Array,
    Object,
    Other(Box<str>),
}

impl SchemaType {
    pub fn as_str(&self) -> &str {
        match self {
            Self::String => "string",
            Self::Number => "number",
            Self::Integer => "integer",
            Self::Boolean => "boolean",
            Self::Array => "array",
            Self::Object => "object",
            Self::Other(name) => name,
        }
    }
}

impl From<&str> for SchemaType {
    fn from(name: &str) -> Self {
        match name {
            "string" => Self::String,
            "number" => Self::Number,
            "integer" => Self::Integer,
            "boolean" => Self::Boolean,
            "array" => Self::Array,
            "object" => Self::Object,
            other => Self::Other(other.into()),
        }
    }
}

/// Named fields, sorted by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Properties(Box<[(Box<str>, Schema)]>);

impl Properties {
    pub fn get(&self, name: &str) -> Option<&Schema> {
        let at = self.0.binary_search_by(|(key, _)| (**key).cmp(name)).ok()?;
        self.0.get(at).map(|(_, schema)| schema)
    }

    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Schema)> {
        self.0.iter().map(|(name, schema)| (&**name, schema))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut Schema)> {
        self.0.iter_mut().map(|(name, schema)| (&**name, schema))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(Box<str>, Schema)> for Properties {
    fn from_iter<I: IntoIterator<Item = (Box<str>, Schema)>>(entries: I) -> Self {
        let mut entries: Vec<_> = entries.into_iter().collect();
        entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        entries.dedup_by(|(a, _), (b, _)| a == b);
        Self(entries.into_boxed_slice())
    }
}

/// `additionalProperties`: a yes or no, or the schema of every value.
#[derive(Clone, Debug, PartialEq)]
pub enum Additional {
    Allowed(bool),
    Schema(Box<Schema>),
}

impl Additional {
    pub fn schema(&self) -> Option<&Schema> {
        match self {
            Self::Allowed(_) => None,
            Self::Schema(schema) => Some(schema),
        }
    }
}

/// Limits on a value beyond its type. Numbers keep the form they were written in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ValueRules {
    pub maximum: Option<Number>,
    pub exclusive_maximum: bool,
    pub minimum: Option<Number>,
    pub exclusive_minimum: bool,
    pub multiple_of: Option<Number>,
    pub max_length: Option<i64>,
    pub min_length: Option<i64>,
    pub pattern: Option<Pattern>,
    pub max_items: Option<i64>,
    pub min_items: Option<i64>,
    pub unique_items: bool,
    pub max_properties: Option<i64>,
    pub min_properties: Option<i64>,
    pub required: Vec<Box<str>>,
    pub allowed: Vec<Value>,
    pub all_of: Vec<Schema>,
    pub any_of: Vec<Schema>,
    pub one_of: Vec<Schema>,
    pub not: Option<Box<Schema>>,
}

/// What few schemas have: documentation beyond the description, how lists and maps merge,
/// and keywords that are carried but not served.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extra {
    pub title: Option<Box<str>>,
    pub example: Option<Value>,
    pub external_docs: Option<Value>,
    pub list_type: Option<Box<str>>,
    pub list_map_keys: Vec<Box<str>>,
    pub map_type: Option<Box<str>>,
    /// `x-kubernetes-validations`, as written.
    pub validations: Option<Value>,
    /// Keywords that a CRD may not use (`$ref`, `definitions`, ...), as written, so that
    /// the refusal can name them.
    pub unserved: Vec<(Box<str>, Value)>,
    /// The name of the type in the original's source, e.g. `v1.ObjectMeta`. Built-in kinds
    /// only; never written out.
    pub go_type: Option<Box<str>>,
    /// Whether the original shows it, empty, when nobody wrote it. Built-in kinds only; never written out.
    pub always: bool,
    /// What a key of a list is taken to be where it was left out. Built-in kinds only, where such a default is for
    /// telling elements apart and not for filling in; never written out.
    pub key_default: Option<Value>,
}

impl Schema {
    /// An empty value that allows everything and keeps everything.
    pub fn anything() -> Self {
        Self { preserve_unknown_fields: Some(true), ..Self::default() }
    }

    pub fn preserves_unknown_fields(&self) -> bool {
        self.preserve_unknown_fields == Some(true)
    }

    pub fn is(&self, kind: &SchemaType) -> bool {
        self.kind.as_ref() == Some(kind)
    }

    /// The `type` as text, empty when there is none.
    pub fn type_name(&self) -> &str {
        self.kind.as_ref().map_or("", SchemaType::as_str)
    }

    pub fn required(&self) -> &[Box<str>] {
        self.rules.as_ref().map_or(&[], |rules| &rules.required)
    }

    pub fn list_type(&self) -> Option<&str> {
        self.extra.as_ref()?.list_type.as_deref()
    }

    pub fn list_map_keys(&self) -> &[Box<str>] {
        self.extra.as_ref().map_or(&[], |extra| &extra.list_map_keys)
    }

    pub fn map_type(&self) -> Option<&str> {
        self.extra.as_ref()?.map_type.as_deref()
    }

    /// What a key of this list is taken to be in an element that leaves it out.
    pub fn key_default(&self, key: &str) -> Option<&Value> {
        let declared = self.items.as_deref()?.properties.get(key)?;
        let of_built_in = declared.extra.as_ref().and_then(|extra| extra.key_default.as_ref());
        of_built_in.or(declared.default.as_deref())
    }

    /// Whether it is there, and empty, even when nobody wrote it.
    pub fn is_always(&self) -> bool {
        self.extra.as_ref().is_some_and(|extra| extra.always)
    }

    /// The schema that applies to one field of an object, named or additional.
    pub fn field(&self, name: &str) -> Option<&Schema> {
        self.properties.get(name).or_else(|| self.additional_properties.as_ref().and_then(Additional::schema))
    }

    /// Calls `look` on this schema and on every schema inside it, outermost first.
    pub fn visit(&self, look: &mut impl FnMut(&Schema)) {
        look(self);
        for (_, schema) in self.properties.iter() {
            schema.visit(look);
        }
        if let Some(schema) = self.additional_properties.as_ref().and_then(Additional::schema) {
            schema.visit(look);
        }
        if let Some(items) = &self.items {
            items.visit(look);
        }
        if let Some(rules) = &self.rules {
            let junctors = rules.all_of.iter().chain(&rules.any_of).chain(&rules.one_of);
            for schema in junctors.chain(rules.not.as_deref()) {
                schema.visit(look);
            }
        }
    }

    /// The same schema without the texts for people, which are most of its memory. Enough
    /// to prune, default and validate with.
    pub fn without_descriptions(mut self) -> Self {
        self.drop_descriptions();
        self
    }

    fn drop_descriptions(&mut self) {
        self.description = None;
        if let Some(extra) = &mut self.extra {
            extra.title = None;
            extra.example = None;
            extra.external_docs = None;
            if **extra == Extra::default() {
                self.extra = None;
            }
        }
        for (_, schema) in self.properties.iter_mut() {
            schema.drop_descriptions();
        }
        if let Some(Additional::Schema(schema)) = &mut self.additional_properties {
            schema.drop_descriptions();
        }
        if let Some(items) = &mut self.items {
            items.drop_descriptions();
        }
        if let Some(rules) = &mut self.rules {
            let junctors = rules.all_of.iter_mut().chain(&mut rules.any_of).chain(&mut rules.one_of);
            for schema in junctors.chain(rules.not.as_deref_mut()) {
                schema.drop_descriptions();
            }
        }
    }
}
