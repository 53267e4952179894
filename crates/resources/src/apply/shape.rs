//! How the value at one place of an object merges, read off its [`Schema`].
//!
//! Where the schema says nothing, objects merge member by member and lists are replaced as a whole.

use serde_json::{Map, Value};

use super::step::{Datum, Step};
use crate::schema::{Schema, SchemaType};

/// The schema of one place, or nothing known of it.
#[derive(Clone, Copy, Debug)]
pub struct Shape<'a>(Option<&'a Schema>);

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
        "element {index}: associative list with keys has an element that omits key field {key:?} (and doesn't have default value)"
    )]
    NoKey { index: usize, key: String },
    #[error("element {index}: associative list with keys may not have non-map elements")]
    NoObject { index: usize },
    #[error("duplicate entries for key {key}")]
    Repeated { key: String },
}

impl<'a> Shape<'a> {
    pub fn of(schema: &'a Schema) -> Self {
        Shape(Some(schema))
    }

    pub fn unknown() -> Self {
        Shape(None)
    }

    /// The shape of what a step leads to.
    pub fn at(&self, step: &Step) -> Shape<'a> {
        Shape(self.0.and_then(|schema| match step {
            Step::Field(name) => schema.field(name),
            Step::Key(_) | Step::Value(_) | Step::Index(_) => schema.items.as_deref(),
        }))
    }

    /// Whether the schema names this member of an object, rather than allowing any.
    pub fn is_declared(&self, name: &str) -> bool {
        self.0.is_some_and(|schema| schema.properties.contains(name))
    }

    fn is_atomic(&self) -> bool {
        self.0.is_some_and(|schema| schema.map_type() == Some("atomic"))
    }

    fn is_told_apart(&self) -> bool {
        self.0.is_some_and(|schema| matches!(schema.list_type(), Some("set" | "map")))
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
        match self.0 {
            Some(schema) if schema.is(&SchemaType::Array) => self.is_told_apart(),
            Some(schema) if schema.is(&SchemaType::Object) => !self.is_atomic(),
            _ => false,
        }
    }

    /// What an element of a list is called.
    pub(super) fn step_to(&self, index: usize, element: &Value) -> Result<Step, Misfit> {
        let Some(schema) = self.0.filter(|schema| schema.list_type() == Some("map")) else {
            return Ok(Step::Value(Datum(element.clone())));
        };
        let Value::Object(members) = element else { return Err(Misfit::NoObject { index }) };
        let default_of = |key: &str| {
            let declared = schema.items.as_deref().and_then(|items| items.properties.get(key));
            declared.and_then(|declared| declared.default.as_deref()).cloned()
        };
        let mut values = Vec::new();
        for key in schema.list_map_keys() {
            let value = members.get(&**key).cloned().or_else(|| default_of(key));
            let value = value.ok_or_else(|| Misfit::NoKey { index, key: key.to_string() })?;
            values.push((key.clone(), value));
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
