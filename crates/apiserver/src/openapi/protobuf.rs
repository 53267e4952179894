//! The v2 document in protobuf, as gnostic's `OpenAPIv2.proto` lays it out: the form client-go asks
//! for.
//!
//! A table per message says where a member of the JSON document goes. Members that no table
//! names are dropped, save extensions (`x-...`), which every message keeps as text. Only messages that
//! our documents use are here.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// A message: its members by their JSON names, with field numbers.
struct Message {
    members: &'static [(&'static str, u32, Form)],
    /// The field that takes `x-...` members.
    extensions: u32,
}

/// How a member is written.
#[derive(Clone, Copy)]
enum Form {
    Text,
    Flag,
    Integer,
    Double,
    Texts,
    One(&'static Message),
    /// A list of messages.
    Many(&'static Message),
    /// An object as a message of `(name, value)` entries.
    Named(fn(&Value) -> Vec<u8>),
    /// Any value, as text.
    Any,
    Anys,
    /// Something with an encoding of its own: a message in one field.
    Own(fn(&Value) -> Vec<u8>),
    /// A list of such.
    Owns(fn(&Value) -> Vec<u8>),
}

static DOCUMENT: Message = Message {
    members: &[
        ("swagger", 1, Form::Text),
        ("info", 2, Form::One(&INFO)),
        ("parameters", 10, Form::Named(parameter)),
        ("security", 12, Form::Owns(security_requirement)),
        ("securityDefinitions", 13, Form::Named(security_definition)),
    ],
    extensions: 16,
};
const DOCUMENT_PATHS: u32 = 8;
const DOCUMENT_DEFINITIONS: u32 = 9;

static INFO: Message =
    Message { members: &[("title", 1, Form::Text), ("version", 2, Form::Text)], extensions: 7 };

static API_KEY: Message = Message {
    members: &[
        ("type", 1, Form::Text),
        ("name", 2, Form::Text),
        ("in", 3, Form::Text),
        ("description", 4, Form::Text),
    ],
    extensions: 5,
};

static PATH_ITEM: Message = Message {
    members: &[
        ("get", 2, Form::One(&OPERATION)),
        ("put", 3, Form::One(&OPERATION)),
        ("post", 4, Form::One(&OPERATION)),
        ("delete", 5, Form::One(&OPERATION)),
        ("patch", 8, Form::One(&OPERATION)),
        ("parameters", 9, Form::Owns(parameter_or_reference)),
    ],
    extensions: 10,
};

static OPERATION: Message = Message {
    members: &[
        ("tags", 1, Form::Texts),
        ("description", 3, Form::Text),
        ("operationId", 5, Form::Text),
        ("produces", 6, Form::Texts),
        ("consumes", 7, Form::Texts),
        ("parameters", 8, Form::Owns(parameter_or_reference)),
        ("responses", 9, Form::Named(response)),
        ("schemes", 10, Form::Texts),
        ("deprecated", 11, Form::Flag),
    ],
    extensions: 13,
};

static RESPONSE: Message = Message {
    members: &[("description", 1, Form::Text), ("schema", 2, Form::Own(|value| wrapped(1, &schema(value))))],
    extensions: 5,
};

static BODY_PARAMETER: Message = Message {
    members: &[
        ("description", 1, Form::Text),
        ("name", 2, Form::Text),
        ("in", 3, Form::Text),
        ("required", 4, Form::Flag),
        ("schema", 5, Form::One(&SCHEMA)),
    ],
    extensions: 6,
};

static PATH_PARAMETER: Message = Message {
    members: &[
        ("required", 1, Form::Flag),
        ("in", 2, Form::Text),
        ("description", 3, Form::Text),
        ("name", 4, Form::Text),
        ("type", 5, Form::Text),
        ("uniqueItems", 19, Form::Flag),
    ],
    extensions: 22,
};

static QUERY_PARAMETER: Message = Message {
    members: &[
        ("required", 1, Form::Flag),
        ("in", 2, Form::Text),
        ("description", 3, Form::Text),
        ("name", 4, Form::Text),
        ("type", 6, Form::Text),
        ("uniqueItems", 20, Form::Flag),
    ],
    extensions: 23,
};

static EXTERNAL_DOCS: Message =
    Message { members: &[("description", 1, Form::Text), ("url", 2, Form::Text)], extensions: 3 };

static SCHEMA: Message = Message {
    members: &[
        ("$ref", 1, Form::Text),
        ("format", 2, Form::Text),
        ("title", 3, Form::Text),
        ("description", 4, Form::Text),
        ("default", 5, Form::Any),
        ("multipleOf", 6, Form::Double),
        ("maximum", 7, Form::Double),
        ("exclusiveMaximum", 8, Form::Flag),
        ("minimum", 9, Form::Double),
        ("exclusiveMinimum", 10, Form::Flag),
        ("maxLength", 11, Form::Integer),
        ("minLength", 12, Form::Integer),
        ("pattern", 13, Form::Text),
        ("maxItems", 14, Form::Integer),
        ("minItems", 15, Form::Integer),
        ("uniqueItems", 16, Form::Flag),
        ("maxProperties", 17, Form::Integer),
        ("minProperties", 18, Form::Integer),
        ("required", 19, Form::Texts),
        ("enum", 20, Form::Anys),
        ("additionalProperties", 21, Form::Own(additional_properties)),
        ("type", 22, Form::Own(|value| texts(1, value))),
        ("items", 23, Form::Own(|value| wrapped(1, &schema(value)))),
        ("allOf", 24, Form::Many(&SCHEMA)),
        ("properties", 25, Form::Named(schema)),
        ("externalDocs", 29, Form::One(&EXTERNAL_DOCS)),
        ("example", 30, Form::Any),
    ],
    extensions: 31,
};

/// The whole document from its head and its encoded pieces.
pub fn document(
    head: &Value,
    paths: BTreeMap<String, Vec<u8>>,
    definitions: BTreeMap<String, Vec<u8>>,
) -> Vec<u8> {
    let mut out = message(&DOCUMENT, head);
    let mut inner = Vec::new();
    for (name, item) in paths {
        field(2, &named(&name, &item), &mut inner);
    }
    field(DOCUMENT_PATHS, &inner, &mut out);
    inner.clear();
    for (name, schema) in definitions {
        field(1, &named(&name, &schema), &mut inner);
    }
    field(DOCUMENT_DEFINITIONS, &inner, &mut out);
    out
}

pub fn path_item(value: &Value) -> Vec<u8> {
    message(&PATH_ITEM, value)
}

pub fn schema(value: &Value) -> Vec<u8> {
    message(&SCHEMA, value)
}

fn response(value: &Value) -> Vec<u8> {
    wrapped(1, &message(&RESPONSE, value))
}

fn parameter(value: &Value) -> Vec<u8> {
    match value["in"].as_str() {
        Some("body") => wrapped(1, &message(&BODY_PARAMETER, value)),
        Some("path") => wrapped(2, &wrapped(4, &message(&PATH_PARAMETER, value))),
        _ => wrapped(2, &wrapped(3, &message(&QUERY_PARAMETER, value))),
    }
}

fn parameter_or_reference(value: &Value) -> Vec<u8> {
    match value["$ref"].as_str() {
        Some(target) => wrapped(2, &wrapped(1, target.as_bytes())),
        None => wrapped(1, &parameter(value)),
    }
}

fn security_definition(value: &Value) -> Vec<u8> {
    wrapped(2, &message(&API_KEY, value))
}

fn security_requirement(value: &Value) -> Vec<u8> {
    entries(value.as_object(), |scopes| texts(1, scopes))
}

fn additional_properties(value: &Value) -> Vec<u8> {
    match value {
        Value::Bool(allowed) => {
            let mut out = Vec::new();
            number(2, u64::from(*allowed), &mut out);
            out
        }
        schema_of_all => wrapped(1, &schema(schema_of_all)),
    }
}

fn message(kind: &Message, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    let Value::Object(map) = value else { return out };
    for (name, at, form) in kind.members {
        if let Some(member) = map.get(*name) {
            write(*at, *form, member, &mut out);
        }
    }
    for (name, extension) in map.iter().filter(|(name, _)| name.starts_with("x-")) {
        field(kind.extensions, &named(name, &any(extension)), &mut out);
    }
    out
}

fn write(at: u32, form: Form, value: &Value, out: &mut Vec<u8>) {
    let list = || value.as_array().into_iter().flatten();
    match form {
        Form::Text => field(at, value.as_str().unwrap_or_default().as_bytes(), out),
        Form::Flag => number(at, u64::from(value == true), out),
        // Negative numbers are written as their two's complement.
        Form::Integer => number(at, value.as_i64().unwrap_or_default() as u64, out),
        Form::Double => {
            varint(u64::from(at << 3 | FIXED_64), out);
            out.extend(value.as_f64().unwrap_or_default().to_le_bytes());
        }
        Form::Texts => out.extend(texts(at, value)),
        Form::One(kind) => field(at, &message(kind, value), out),
        Form::Many(kind) => list().for_each(|one| field(at, &message(kind, one), out)),
        Form::Named(encode) => field(at, &entries(value.as_object(), encode), out),
        Form::Any => field(at, &any(value), out),
        Form::Anys => list().for_each(|one| field(at, &any(one), out)),
        Form::Own(encode) => field(at, &encode(value), out),
        Form::Owns(encode) => list().for_each(|one| field(at, &encode(one), out)),
    }
}

/// A value as its text. The field is meant for YAML, of which JSON is a part.
fn any(value: &Value) -> Vec<u8> {
    wrapped(2, value.to_string().as_bytes())
}

fn entries(map: Option<&Map<String, Value>>, encode: impl Fn(&Value) -> Vec<u8>) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in map.into_iter().flatten() {
        field(1, &named(name, &encode(value)), &mut out);
    }
    out
}

fn named(name: &str, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len() + value.len() + 12);
    field(1, name.as_bytes(), &mut out);
    field(2, value, &mut out);
    out
}

/// One text or several.
fn texts(at: u32, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    match value {
        Value::String(text) => field(at, text.as_bytes(), &mut out),
        Value::Array(list) => {
            list.iter().filter_map(Value::as_str).for_each(|text| field(at, text.as_bytes(), &mut out));
        }
        _ => {}
    }
    out
}

fn wrapped(at: u32, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 6);
    field(at, bytes, &mut out);
    out
}

const VARINT: u32 = 0;
const FIXED_64: u32 = 1;
const BYTES: u32 = 2;

fn field(at: u32, bytes: &[u8], out: &mut Vec<u8>) {
    varint(u64::from(at << 3 | BYTES), out);
    varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn number(at: u32, value: u64, out: &mut Vec<u8>) {
    varint(u64::from(at << 3 | VARINT), out);
    varint(value, out);
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
