//! What a schema says about the data that rules read: the types of fields, and how large values can get.
//!
//! Whoever has a schema builds a [`Declaration`] from it; this crate knows no schemas. Sizes are in the units of
//! `size()` and, for [`Declaration::min_size`], in bytes of JSON.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    escape::{escape, is_keyword},
    types::Type,
};

/// The declaration of one value.
#[derive(Clone, Debug)]
pub struct Declaration {
    pub shape: Shape,
    /// How many elements, entries, characters or bytes it can have.
    pub max_elements: u64,
    /// The fewest bytes it can take in a request.
    pub min_size: u64,
    pub nullable: bool,
}

#[derive(Clone, Debug)]
pub enum Shape {
    /// Nothing is known; rules cannot name it, only compare what it is part of.
    Unknown,
    IntOrString,
    Bool,
    Int,
    Double,
    String,
    Bytes,
    Duration,
    Date,
    DateTime,
    List {
        items: Arc<Declaration>,
        keyed: Keyed,
    },
    Map {
        values: Arc<Declaration>,
    },
    Object(Arc<Object>),
}

/// What makes two elements of a list the same one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keyed {
    /// Their position.
    Position,
    /// Their value: the list is a set, and its order means nothing.
    Value,
    /// These fields: the list is a map, and its order means nothing.
    Fields(Vec<String>),
}

/// An object with named fields.
#[derive(Debug)]
pub struct Object {
    /// What it is called in messages: the place of the schema.
    pub name: String,
    /// By the name in the data.
    pub properties: BTreeMap<String, Arc<Declaration>>,
    /// From the name in rules to the name in the data, for those that rules can name.
    pub fields: BTreeMap<String, String>,
}

impl Declaration {
    pub fn new(shape: Shape, max_elements: u64, min_size: u64) -> Self {
        Self { shape, max_elements, min_size, nullable: false }
    }

    pub fn nullable(mut self, nullable: bool) -> Self {
        self.nullable = nullable;
        self
    }

    /// An object of these properties, each with whether it must be given.
    pub fn object(
        name: &str,
        properties: impl IntoIterator<Item = (String, Arc<Declaration>, bool)>,
    ) -> Self {
        let mut object =
            Object { name: name.to_owned(), properties: BTreeMap::new(), fields: BTreeMap::new() };
        let mut min_size = 2;
        for (property, declaration, required) in properties {
            if declaration.is_known() {
                if let Some(field) = escape(&property) {
                    object.fields.insert(field, property.clone());
                }
                if required {
                    min_size += property.len() as u64 + declaration.min_size + 4;
                }
            }
            object.properties.insert(property, declaration);
        }
        Self::new(Shape::Object(Arc::new(object)), 0, min_size)
    }

    pub fn is_known(&self) -> bool {
        !matches!(self.shape, Shape::Unknown)
    }

    pub fn to_type(&self) -> Type {
        match &self.shape {
            Shape::Unknown | Shape::IntOrString => Type::Dyn,
            Shape::Bool => Type::Bool,
            Shape::Int => Type::Int,
            Shape::Double => Type::Double,
            Shape::String => Type::String,
            Shape::Bytes => Type::Bytes,
            Shape::Duration => Type::Duration,
            Shape::Date | Shape::DateTime => Type::Timestamp,
            Shape::List { items, .. } => Type::list(items.to_type()),
            Shape::Map { values } => Type::map(Type::String, values.to_type()),
            Shape::Object(object) => Type::Object(object.clone()),
        }
    }

    /// The declaration of what is inside a list or map.
    pub fn element(&self) -> Option<&Declaration> {
        match &self.shape {
            Shape::List { items, .. } => Some(items),
            Shape::Map { values } => Some(values),
            _ => None,
        }
    }

    /// The declaration of a field by its name in rules.
    pub fn field(&self, name: &str) -> Option<&Declaration> {
        match &self.shape {
            Shape::Object(object) => {
                object.properties.get(object.fields.get(name)?).map(|declared| &**declared)
            }
            _ => None,
        }
    }
}

impl Object {
    /// The name in the data of a field that rules call `name`. Keywords may be written as they are, too.
    pub fn property(&self, name: &str) -> Option<&str> {
        let plain = self.fields.get(name);
        plain.or_else(|| self.fields.get(&escape(name).filter(|_| is_keyword(name))?)).map(String::as_str)
    }

    pub fn field(&self, name: &str) -> Option<&Declaration> {
        self.properties.get(self.property(name)?).map(|declaration| &**declaration)
    }
}
