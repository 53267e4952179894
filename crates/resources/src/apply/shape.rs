//! How the value at one place of an object merges, read off its [`Schema`].
//!
//! Where the schema says nothing, objects merge member by member and lists are replaced as a whole. The metadata of
//! an object, or of one that is embedded in another, has the shape it always has, whatever its schema says.

use std::sync::OnceLock;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value};

use super::step::{Datum, Step};
use crate::schema::{self, Additional, Schema, SchemaType};

/// What a whole object has beside what its schema names.
const OF_RESOURCES: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// The schema of one place, or nothing known of it.
#[derive(Clone, Copy, Debug)]
pub struct Shape<'a> {
    schema: Option<&'a Schema>,
    /// A whole object, with metadata.
    is_resource: bool,
    /// The original reads objects of this kind into structures, which do not tell an empty list from none.
    is_structured: bool,
}

/// How a value is put together.
pub(super) enum Form<'v> {
    /// Taken or left as a whole: scalars, and what is declared atomic.
    Whole,
    Object(&'v Map<String, Value>),
    /// A list whose elements are told apart.
    List(&'v [Value]),
}

impl Form<'_> {
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Form::Whole => false,
            Form::Object(members) => members.is_empty(),
            Form::List(elements) => elements.is_empty(),
        }
    }
}

/// A list with an element that cannot be told apart from others.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    #[error(
        "element {index}: associative list with keys has an element that omits all key fields [{keys}] (and doesn't have default values for any key fields)"
    )]
    NoKey { index: usize, keys: String },
    #[error("element {index}: associative list with keys may not have a null element")]
    Null { index: usize },
    #[error("element {index}: associative list with keys may not have non-map elements")]
    NoObject { index: usize },
    #[error("element {index}: {why}")]
    NoScalar { index: usize, why: &'static str },
    #[error("duplicate entries for key {key}")]
    Repeated { key: String },
}

fn object_meta() -> &'static Schema {
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    SCHEMA.get_or_init(|| schema::from_k8s_openapi::<ObjectMeta>().without_descriptions())
}

impl<'a> Shape<'a> {
    /// The shape of a whole object.
    pub fn of(schema: &'a Schema) -> Self {
        // In the original's own kinds, and nowhere else, metadata is there even when nobody wrote any.
        let is_structured = schema.properties.get("metadata").is_some_and(Schema::is_always);
        Shape { schema: Some(schema), is_resource: true, is_structured }
    }

    fn inside(&self, schema: Option<&'a Schema>) -> Self {
        let is_resource = schema.is_some_and(|schema| schema.embedded_resource);
        Shape { schema, is_resource, is_structured: self.is_structured }
    }

    /// A value as the original would have it: nothing, where it would not keep that this is there.
    pub(super) fn kept<'v>(&self, value: Option<&'v Value>) -> Option<&'v Value> {
        let is_lost = |value: &Value| match value {
            Value::Array(elements) => elements.is_empty(),
            Value::Object(members) => {
                let is_free = |schema: &Schema| schema.additional_properties.is_some();
                members.is_empty() && self.schema.is_some_and(is_free)
            }
            Value::Null => true,
            _ => false,
        };
        value.filter(|value| !self.is_structured || !is_lost(value))
    }

    /// The shape of what a step leads to.
    pub fn at(&self, step: &Step) -> Shape<'a> {
        match step {
            Step::Field(name) => self.field(name),
            Step::Key(_) | Step::Value(_) | Step::Index(_) => self.element(),
        }
    }

    pub(super) fn field(&self, name: &str) -> Shape<'a> {
        match name {
            "metadata" if self.is_resource => {
                Shape { is_resource: false, ..self.inside(Some(object_meta())) }
            }
            _ => self.inside(self.schema.and_then(|schema| schema.field(name))),
        }
    }

    pub(super) fn element(&self) -> Shape<'a> {
        self.inside(self.schema.and_then(|schema| schema.items.as_deref()))
    }

    /// Whether the schema names this member of an object, rather than allowing any.
    pub fn is_declared(&self, name: &str) -> bool {
        (self.is_resource && OF_RESOURCES.contains(&name))
            || self.schema.is_some_and(|schema| schema.properties.contains(name))
    }

    /// Whether an object may have this member at all.
    pub(super) fn allows(&self, name: &str) -> bool {
        let Some(schema) = self.schema else { return true };
        let is_open = schema.kind.is_none()
            || schema.preserves_unknown_fields()
            || !matches!(schema.additional_properties, None | Some(Additional::Allowed(false)));
        is_open || self.is_declared(name)
    }

    /// What is here when nobody wrote it.
    pub(super) fn unwritten(&self) -> Option<&'static Value> {
        static EMPTY: OnceLock<Value> = OnceLock::new();
        let schema = self.schema.filter(|schema| schema.is_always())?;
        Some(if schema.is(&SchemaType::Array) {
            &Value::Null
        } else {
            EMPTY.get_or_init(|| Value::Object(Map::new()))
        })
    }

    /// The members that an object has even when nobody wrote them.
    pub(super) fn always_there(&self) -> impl Iterator<Item = &'a str> {
        let all = self.schema.filter(|_| self.is_structured).into_iter();
        all.flat_map(|schema| schema.properties.iter())
            .filter(|(_, one)| one.is_always())
            .map(|(name, _)| name)
    }

    pub(super) fn schema(&self) -> Option<&'a Schema> {
        self.schema
    }

    /// Whether any value may be here.
    pub(super) fn is_anything(&self) -> bool {
        self.schema.is_none_or(|schema| {
            schema.kind.is_none() && !schema.int_or_string && schema.properties.is_empty()
        })
    }

    /// Whether nothing is declared inside, so that what is there has no other shape than it shows.
    fn is_deduced(&self) -> bool {
        self.schema.is_none_or(|schema| {
            schema.kind.is_none() || (schema.preserves_unknown_fields() && schema.properties.is_empty())
        })
    }

    /// Whether what is there is taken or left as a whole although it has an inside.
    pub(super) fn is_whole(&self) -> bool {
        match self.schema {
            Some(schema) if schema.is(&SchemaType::Array) => !self.is_told_apart(),
            _ => !self.is_deduced() && self.is_atomic(),
        }
    }

    fn is_atomic(&self) -> bool {
        self.schema.is_some_and(|schema| schema.map_type() == Some("atomic"))
    }

    fn is_told_apart(&self) -> bool {
        self.schema.is_some_and(|schema| matches!(schema.list_type(), Some("set" | "map")))
    }

    /// The form of a value that is not null.
    pub(super) fn form<'v>(&self, value: &'v Value) -> Form<'v> {
        match value {
            Value::Object(members) if !self.is_atomic() => Form::Object(members),
            Value::Array(elements) if self.is_told_apart() => Form::List(elements),
            _ => Form::Whole,
        }
    }

    /// Whether a null here stands for an object or list that merges.
    pub(super) fn merges(&self) -> bool {
        match self.schema {
            Some(schema) if schema.is(&SchemaType::Array) => self.is_told_apart(),
            Some(schema) if schema.is(&SchemaType::Object) => !self.is_atomic(),
            _ => false,
        }
    }

    /// What an element of a list is called.
    pub(super) fn step_to(&self, index: usize, element: &Value) -> Result<Step, Misfit> {
        let Some(schema) = self.schema.filter(|schema| schema.list_type() == Some("map")) else {
            let why = match element {
                Value::Object(_) => "associative list without keys has an element that's a map type",
                Value::Array(_) => "not supported: associative list with lists as elements",
                Value::Null => "associative list without keys has an element that's an explicit null",
                scalar => return Ok(Step::Value(Datum(scalar.clone()))),
            };
            return Err(Misfit::NoScalar { index, why });
        };
        let members = match element {
            Value::Object(members) => members,
            Value::Null => return Err(Misfit::Null { index }),
            _ => return Err(Misfit::NoObject { index }),
        };
        let mut values = Vec::new();
        for key in schema.list_map_keys() {
            // One that is left out and has no default makes another element than any that has it.
            if let Some(value) = members.get(&**key).or_else(|| schema.key_default(key)) {
                values.push((key.clone(), value.clone()));
            }
        }
        if values.is_empty() {
            let keys: Vec<String> = schema.list_map_keys().iter().map(|key| format!("{key:?}")).collect();
            return Err(Misfit::NoKey { index, keys: keys.join(" ") });
        }
        Ok(Step::key(values))
    }

    /// The elements of a list and what each is called, in their order.
    pub(super) fn elements<'v>(&self, elements: &'v [Value]) -> Result<Vec<(Step, &'v Value)>, Misfit> {
        let named = elements.iter().enumerate();
        named.map(|(index, element)| Ok((self.step_to(index, element)?, element))).collect()
    }

    /// The same for a list that somebody asks for, where none may be there twice.
    pub(super) fn distinct_elements<'v>(
        &self,
        elements: &'v [Value],
    ) -> Result<Vec<(Step, &'v Value)>, Misfit> {
        let elements = self.elements(elements)?;
        let mut steps: Vec<&Step> = elements.iter().map(|(step, _)| step).collect();
        steps.sort_unstable();
        match steps.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(Misfit::Repeated { key: pair[0].to_string() }),
            None => Ok(elements),
        }
    }
}
