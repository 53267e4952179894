//! From JSON to values, as its declaration says.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value as Json;

use crate::{
    data::{Declaration, Shape},
    fault::Fault,
    library::time,
    value::{Map, Text, Value},
};

/// The value of some data. Lists and objects are not copied.
pub fn value<'a>(json: &'a Json, declared: &'a Declaration) -> Result<Value<'a>, Fault> {
    let wrong = |what: &str| Err(Fault::failed(format!("invalid data, expected {what}")));
    match (&declared.shape, json) {
        (Shape::Unknown, json) => Ok(Value::Unknown(json)),
        (_, Json::Null) if declared.nullable => Ok(Value::Null),
        (_, Json::Null) => Err(Fault::failed("invalid data, got null for schema with nullable=false")),
        (Shape::IntOrString, Json::String(text)) => Ok(Value::String(Text::Borrowed(text))),
        (Shape::IntOrString | Shape::Int, Json::Number(number)) => match number.as_i64() {
            Some(number) => Ok(Value::Int(number)),
            None => wrong("int, got float64"),
        },
        (Shape::IntOrString, _) => wrong("XIntOrString value to be either a string or integer"),
        (Shape::Bool, Json::Bool(flag)) => Ok(Value::Bool(*flag)),
        (Shape::Double, Json::Number(number)) => Ok(Value::Double(number.as_f64().unwrap_or(f64::NAN))),
        (Shape::String, Json::String(text)) => Ok(Value::String(Text::Borrowed(text))),
        (Shape::Bytes, Json::String(text)) => match STANDARD.decode(text.replace(['\r', '\n'], "")) {
            Ok(bytes) => Ok(Value::Bytes(bytes.into())),
            Err(why) => Err(Fault::failed(format!("Invalid byte formatted string {text}: {why}"))),
        },
        (Shape::Duration, Json::String(text)) => match time::loose_duration(text) {
            Some(nanos) => Ok(Value::Duration(nanos)),
            None => Err(Fault::failed(format!("Invalid duration {text}: unable to parse"))),
        },
        (Shape::Date, Json::String(text)) => match time::Time::parse(&format!("{text}T00:00:00Z")) {
            Some(time) => Ok(Value::Timestamp(time)),
            None => Err(Fault::failed(format!("Invalid date formatted string {text}"))),
        },
        (Shape::DateTime, Json::String(text)) => match time::Time::parse_loosely(text) {
            Some(time) => Ok(Value::Timestamp(time)),
            None => Err(Fault::failed(format!("Invalid date-time formatted string {text}"))),
        },
        (Shape::List { items, keyed }, Json::Array(list)) => Ok(Value::json_list(list, items, keyed)),
        (Shape::Map { values }, Json::Object(map)) => Ok(Value::Map(Map::Json(map, values))),
        (Shape::Object(object), Json::Object(map)) => Ok(Value::Map(Map::Object(map, object))),
        (Shape::List { .. }, _) => wrong("an array for the provided schema with type=array"),
        (Shape::Map { .. } | Shape::Object(_), _) => wrong("a map for the provided schema with type=object"),
        (Shape::Int, found) => wrong(&format!("int, got {}", go_type(found))),
        (Shape::Double, found) => wrong(&format!("float, got {}", go_type(found))),
        (Shape::Bool, found) => wrong(&format!("bool, got {}", go_type(found))),
        (Shape::String | Shape::Bytes | Shape::Duration | Shape::Date | Shape::DateTime, found) => {
            wrong(&format!("string, got {}", go_type(found)))
        }
    }
}

fn go_type(json: &Json) -> &'static str {
    match json {
        Json::Null => "<nil>",
        Json::Bool(_) => "bool",
        Json::Number(number) if number.is_f64() => "float64",
        Json::Number(_) => "int64",
        Json::String(_) => "string",
        Json::Array(_) => "[]interface {}",
        Json::Object(_) => "map[string]interface {}",
    }
}
