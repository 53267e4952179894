//! What a schema tells a rule about its data: types, and how large values can get.

use std::sync::Arc;

use sheaf_cel::{
    data::{Declaration, Keyed, Shape},
    escape,
};

use crate::schema::{Additional, Schema, SchemaType};

/// The largest request the original takes, which bounds what no schema bounds.
pub(super) const MAX_REQUEST: u64 = 3 * 1024 * 1024;

/// What the type of `self` is called in messages.
pub(super) const ROOT_TYPE: &str = "selfType";

/// The longest name of a type that tells where in the schema it stands, in bytes; below that, fields are numbered.
const LONGEST_NAME: usize = 1024;

/// The longest a time or a span of it is written.
const LONGEST_TIME: u64 = 32;
/// A date in quotes.
const DATE: u64 = 12;

/// The declaration of the value a schema describes. `is_resource` says that it is a whole object with a kind and a
/// name, its own or embedded.
pub(super) fn of(schema: &Schema, is_resource: bool) -> Declaration {
    named(schema, is_resource, ROOT_TYPE)
}

fn named(schema: &Schema, is_resource: bool, name: &str) -> Declaration {
    shaped(schema, is_resource, name).nullable(schema.nullable)
}

fn shaped(schema: &Schema, is_resource: bool, name: &str) -> Declaration {
    let max_length = schema.rules.as_ref().and_then(|rules| rules.max_length);
    if schema.int_or_string {
        let max = max_length.map_or(MAX_REQUEST - 2, in_bytes);
        return Declaration::new(Shape::IntOrString, max, 1);
    }
    let unknown = || Declaration::new(Shape::Unknown, 0, 0);
    match &schema.kind {
        Some(SchemaType::Array) => match &schema.items {
            Some(items) => list(schema, items, name),
            None => unknown(),
        },
        Some(SchemaType::Object) => match &schema.additional_properties {
            Some(Additional::Schema(values)) => map(schema, values, name),
            _ => object(schema, is_resource, name),
        },
        Some(SchemaType::String) => text(schema, max_length),
        Some(SchemaType::Boolean) => Declaration::new(Shape::Bool, 0, 4),
        Some(SchemaType::Number) => Declaration::new(Shape::Double, 0, 1),
        Some(SchemaType::Integer) => Declaration::new(Shape::Int, 0, 1),
        Some(SchemaType::Other(_)) | None => unknown(),
    }
}

/// Lengths in schemas count characters, of up to four bytes each.
fn in_bytes(length: i64) -> u64 {
    u64::try_from(length).unwrap_or(0).saturating_mul(4)
}

fn list(schema: &Schema, items: &Schema, name: &str) -> Declaration {
    let items = named(items, items.embedded_resource, &format!("{name}.@idx"));
    if !items.is_known() {
        return Declaration::new(Shape::Unknown, 0, 0);
    }
    let given = schema.rules.as_ref().and_then(|rules| rules.max_items);
    let max = match given {
        Some(max) => u64::try_from(max).unwrap_or(0),
        None => (MAX_REQUEST - 2) / (items.min_size + 1),
    };
    let keyed = match schema.list_type() {
        Some("set") => Keyed::Value,
        Some("map") => Keyed::Fields(schema.list_map_keys().iter().map(ToString::to_string).collect()),
        _ => Keyed::Position,
    };
    Declaration::new(Shape::List { items: Arc::new(items), keyed }, max, 2)
}

fn map(schema: &Schema, values: &Schema, name: &str) -> Declaration {
    let values = named(values, values.embedded_resource, &format!("{name}.@elem"));
    if !values.is_known() {
        return Declaration::new(Shape::Unknown, 0, 0);
    }
    let given = schema.rules.as_ref().and_then(|rules| rules.max_properties);
    let max = match given {
        Some(max) => u64::try_from(max).unwrap_or(0),
        // A key of two bytes with its quotes, a colon and a comma.
        None => (MAX_REQUEST - 2) / (values.min_size + 6),
    };
    Declaration::new(Shape::Map { values: Arc::new(values) }, max, 2)
}

fn object(schema: &Schema, is_resource: bool, name: &str) -> Declaration {
    let field_name = |index: usize, property: &str| match name.len() + property.len() > LONGEST_NAME {
        // Every object inside repeats the whole name: a long one would be kept thousands of times.
        true => format!("{name}.#{index}"),
        false => format!("{name}.{}", escape(property).unwrap_or_else(|| property.to_owned())),
    };
    let mut properties: Vec<(String, Arc<Declaration>, bool)> = schema
        .properties
        .iter()
        .enumerate()
        .map(|(index, (property, field))| {
            // What has a default is never missing, but need not be sent.
            let required =
                field.default.is_none() && schema.required().iter().any(|known| **known == *property);
            let declared = named(field, field.embedded_resource, &field_name(index, property));
            (property.to_owned(), Arc::new(declared), required)
        })
        .collect();
    if is_resource && !says_what_it_is(schema) {
        properties.retain(|(property, ..)| !["kind", "apiVersion", "metadata"].contains(&property.as_str()));
        let required = |property: &str| schema.required().iter().any(|known| **known == *property);
        let plain = || Arc::new(Declaration::new(Shape::String, MAX_REQUEST - 2, 2));
        let metadata = Declaration::object(
            &field_name(0, "metadata"),
            [("name".to_owned(), plain(), false), ("generateName".to_owned(), plain(), false)],
        );
        properties.push(("kind".to_owned(), plain(), required("kind")));
        properties.push(("apiVersion".to_owned(), plain(), required("apiVersion")));
        properties.push(("metadata".to_owned(), Arc::new(metadata), required("metadata")));
    }
    Declaration::object(name, properties)
}

/// Whether the schema declares by itself all of a resource's fields that rules may always read.
fn says_what_it_is(schema: &Schema) -> bool {
    let is = |schema: Option<&Schema>, kind: &SchemaType| schema.is_some_and(|schema| schema.is(kind));
    let metadata = schema.properties.get("metadata");
    let of_metadata = |name: &str| metadata.and_then(|metadata| metadata.properties.get(name));
    is(schema.properties.get("kind"), &SchemaType::String)
        && is(schema.properties.get("apiVersion"), &SchemaType::String)
        && is(metadata, &SchemaType::Object)
        && is(of_metadata("name"), &SchemaType::String)
        && is(of_metadata("generateName"), &SchemaType::String)
}

fn text(schema: &Schema, max_length: Option<i64>) -> Declaration {
    let unquoted = MAX_REQUEST - 2;
    match schema.format.as_deref() {
        Some("byte") => {
            let max = max_length.map_or(unquoted, |length| u64::try_from(length).unwrap_or(0));
            Declaration::new(Shape::Bytes, max, 2)
        }
        Some("duration") => Declaration::new(Shape::Duration, LONGEST_TIME, 3),
        Some("date") => Declaration::new(Shape::Date, DATE, DATE),
        Some("date-time") => Declaration::new(Shape::DateTime, LONGEST_TIME, 21),
        _ => {
            let allowed = schema.rules.as_ref().map_or(&[][..], |rules| &rules.allowed);
            let longest =
                allowed.iter().filter_map(|value| value.as_str()).map(|text| text.len() as u64).max();
            let max = match (max_length, allowed.is_empty()) {
                (Some(length), _) => in_bytes(length),
                (None, false) => longest.unwrap_or(0),
                (None, true) => unquoted,
            };
            Declaration::new(Shape::String, max, 2)
        }
    }
}
