//! Fields of the original that Sheaf knows of and does not act on yet.
//!
//! A client that sets one would be lied to if it were dropped, so it is refused by name. A
//! type marks such a field with [`NotYet`] or [`NotYetAtAll`]; which fields these are is
//! read off the kind's schema once, so that a type cannot have one that goes unrefused.
//!
//! What says nothing is let through: clients of the original send `false`, `""` and `{}`
//! for fields they do not use.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema as Json, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    field_error::{FieldError, FieldPath},
    schema::{self, Schema},
};

const WORDS: &str = "is not supported by Sheaf yet";

/// A field that may be there as long as it asks for nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NotYet(Value);

/// A field whose mere presence asks for something, such as `tpm: {}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NotYetAtAll(Value);

macro_rules! open_schema {
    ($type:ident, $name:literal) => {
        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                concat!("io.sheaf.", $name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Json {
                json_schema!({
                    "description": "Known, and refused until Sheaf acts on it.",
                    "x-kubernetes-preserve-unknown-fields": true,
                })
            }
        }
    };
}

open_schema!(NotYet, "NotYet");
open_schema!(NotYetAtAll, "NotYetAtAll");

/// Where a kind's unsupported fields are.
pub struct Unsupported(Vec<(Vec<Segment>, bool)>);

#[derive(Clone)]
enum Segment {
    Field(String),
    Each,
}

impl Unsupported {
    pub fn of<T: JsonSchema>() -> Self {
        let mut found = Vec::new();
        collect(&schema::from_k8s_openapi::<T>(), &mut Vec::new(), &mut found);
        Unsupported(found)
    }

    /// One refusal per unsupported field that asks for something.
    pub fn refuse(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        for (trail, at_all) in &self.0 {
            follow(object, trail, *at_all, &FieldPath::root(), &mut errors);
        }
        errors
    }
}

fn collect(schema: &Schema, trail: &mut Vec<Segment>, found: &mut Vec<(Vec<Segment>, bool)>) {
    let marked = schema.extra.as_ref().and_then(|extra| extra.go_type.as_deref());
    match marked {
        Some("sheaf.NotYet") => found.push((trail.clone(), false)),
        Some("sheaf.NotYetAtAll") => found.push((trail.clone(), true)),
        _ => {}
    }
    for (name, field) in schema.properties.iter() {
        trail.push(Segment::Field(name.to_owned()));
        collect(field, trail, found);
        trail.pop();
    }
    if let Some(items) = &schema.items {
        trail.push(Segment::Each);
        collect(items, trail, found);
        trail.pop();
    }
}

fn follow(value: &Value, trail: &[Segment], at_all: bool, path: &FieldPath, errors: &mut Vec<FieldError>) {
    match trail {
        [] if value.is_null() || (!at_all && asks_for_nothing(value)) => {}
        [] => errors.push(FieldError::forbidden(path, WORDS)),
        [Segment::Field(name), rest @ ..] => {
            if let Some(inner) = value.get(name) {
                follow(inner, rest, at_all, &path.child(name), errors);
            }
        }
        [Segment::Each, rest @ ..] => {
            for (n, item) in value.as_array().into_iter().flatten().enumerate() {
                follow(item, rest, at_all, &path.index(n), errors);
            }
        }
    }
}

fn asks_for_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.iter().all(asks_for_nothing),
        Value::Object(fields) => fields.values().all(asks_for_nothing),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::wire::wire_type;

    wire_type! {
        Inner = "test.Inner" {
            plain: String,
            later: NotYet,
            choice: NotYetAtAll,
        }
    }
    wire_type! {
        Outer = "test.Outer" {
            list: Vec<Inner>,
        }
    }

    #[test]
    fn what_would_be_ignored_is_refused_by_name() {
        let unsupported = Unsupported::of::<Outer>();
        let object = json!({"list": [{"plain": "x"}, {"later": {"a": [1]}}, {"choice": {}}]});
        let said: Vec<String> = unsupported.refuse(&object).iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "list[2].choice: Forbidden: is not supported by Sheaf yet",
                "list[1].later: Forbidden: is not supported by Sheaf yet"
            ]
        );
    }

    #[test]
    fn what_asks_for_nothing_passes() {
        let unsupported = Unsupported::of::<Outer>();
        for nothing in
            [json!(null), json!(false), json!({}), json!({"a": {"b": false}}), json!([]), json!("")]
        {
            assert!(unsupported.refuse(&json!({"list": [{"later": nothing, "choice": null}]})).is_empty());
        }
    }
}
