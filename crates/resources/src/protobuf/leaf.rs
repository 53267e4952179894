//! Values without fields of their own in JSON: scalars, and messages that JSON writes as one.

use base64::{Engine, prelude::BASE64_STANDARD};
use jiff::Timestamp;
use serde_json::{Number, Value};

use super::{
    message::ObjectError,
    wire::{Payload, Reader},
};

/// Go's zero time, the first second of year 1, counted from 1970.
const NEVER: i64 = -62_135_596_800;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaf {
    String,
    Bool,
    Int32,
    Int64,
    Double,
    Bytes,
    /// A list of strings inside a message of one field.
    Strings,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    /// JSON as text inside a message of one field.
    Json,
}

impl Leaf {
    /// As the tables call it.
    pub fn named(name: &str) -> Option<Leaf> {
        Some(match name {
            "string" => Leaf::String,
            "bool" => Leaf::Bool,
            "int32" => Leaf::Int32,
            "int64" => Leaf::Int64,
            "double" => Leaf::Double,
            "bytes" => Leaf::Bytes,
            "strings" => Leaf::Strings,
            "time" => Leaf::Time,
            "microTime" => Leaf::MicroTime,
            "quantity" => Leaf::Quantity,
            "intOrString" => Leaf::IntOrString,
            "json" => Leaf::Json,
            _ => return None,
        })
    }

    /// Reads one; `field` is what errors call it.
    pub fn read(self, payload: Payload<'_>, field: &str) -> Result<Value, ObjectError> {
        Ok(match self {
            Leaf::String => text(payload.bytes(field)?),
            Leaf::Bool => Value::Bool(payload.varint(field)? != 0),
            // Larger ones lose their upper bits, as they do in the original.
            Leaf::Int32 => (payload.varint(field)? as i32).into(),
            Leaf::Int64 => (payload.varint(field)? as i64).into(),
            Leaf::Double => double(f64::from_bits(payload.fixed64(field)?), field)?,
            Leaf::Bytes => BASE64_STANDARD.encode(payload.bytes(field)?).into(),
            Leaf::Strings => strings(payload.bytes(field)?)?,
            Leaf::Time => time(payload.bytes(field)?, field)?,
            Leaf::MicroTime => micro_time(payload.bytes(field)?, field)?,
            Leaf::Quantity => quantity(payload.bytes(field)?)?,
            Leaf::IntOrString => int_or_string(payload.bytes(field)?, field)?,
            Leaf::Json => json(payload.bytes(field)?, field)?,
        })
    }

    /// What Go makes of one that was not sent.
    pub fn zero(self) -> Value {
        match self {
            Leaf::String => "".into(),
            Leaf::Bool => false.into(),
            Leaf::Int32 | Leaf::Int64 | Leaf::Double | Leaf::IntOrString => 0.into(),
            Leaf::Quantity => "0".into(),
            Leaf::Bytes | Leaf::Strings | Leaf::Time | Leaf::MicroTime | Leaf::Json => Value::Null,
        }
    }

    /// Whether Go's `omitempty` leaves it out. What is a struct in Go is never empty.
    pub fn is_empty(self, value: &Value) -> bool {
        match self {
            Leaf::String | Leaf::Bytes => value.as_str().is_none_or(str::is_empty),
            Leaf::Strings => value.is_null(),
            Leaf::Bool => value == false,
            Leaf::Int32 | Leaf::Int64 | Leaf::Double => value.as_f64() == Some(0.0),
            Leaf::Time | Leaf::MicroTime | Leaf::Quantity | Leaf::IntOrString | Leaf::Json => false,
        }
    }

    /// Numbers of a list may come one by one or many in one.
    pub fn may_be_packed(self) -> bool {
        matches!(self, Leaf::Bool | Leaf::Int32 | Leaf::Int64)
    }
}

fn text(bytes: &[u8]) -> Value {
    String::from_utf8_lossy(bytes).into()
}

/// Go writes a whole number without a point, so it comes back as an integer.
fn double(value: f64, field: &str) -> Result<Value, ObjectError> {
    let whole = value as i64;
    if whole as f64 == value && whole != i64::MAX && !(whole == 0 && value.is_sign_negative()) {
        return Ok(whole.into());
    }
    Number::from_f64(value).map(Value::Number).ok_or_else(|| ObjectError::NotANumber { field: field.into() })
}

fn strings(bytes: &[u8]) -> Result<Value, ObjectError> {
    let mut items = Vec::new();
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.field()? {
        if number == 1 {
            items.push(text(payload.bytes("items")?));
        }
    }
    Ok(if items.is_empty() { Value::Null } else { Value::Array(items) })
}

/// Seconds and nanoseconds; nothing when the message is empty, which is a time never set.
fn timestamp(bytes: &[u8]) -> Result<Option<(i64, i32)>, ObjectError> {
    let (mut seconds, mut nanos) = (0, 0);
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.field()? {
        match number {
            1 => seconds = payload.varint("seconds")? as i64,
            2 => nanos = payload.varint("nanos")? as i32,
            _ => {}
        }
    }
    Ok((!bytes.is_empty()).then_some((seconds, nanos)))
}

fn time(bytes: &[u8], field: &str) -> Result<Value, ObjectError> {
    match timestamp(bytes)? {
        None | Some((NEVER, _)) => Ok(Value::Null),
        // Fractions are dropped on the way in: JSON never had them.
        Some((seconds, _)) => Ok(moment(seconds, 0, field)?.to_string().into()),
    }
}

fn micro_time(bytes: &[u8], field: &str) -> Result<Value, ObjectError> {
    match timestamp(bytes)? {
        None | Some((NEVER, -999..=999)) => Ok(Value::Null),
        Some((seconds, nanos)) => Ok(format!("{:.6}", moment(seconds, nanos / 1000 * 1000, field)?).into()),
    }
}

fn moment(seconds: i64, nanos: i32, field: &str) -> Result<Timestamp, ObjectError> {
    Timestamp::new(seconds, nanos).map_err(|_| ObjectError::NotATime { field: field.into() })
}

fn quantity(bytes: &[u8]) -> Result<Value, ObjectError> {
    let mut amount = Leaf::Quantity.zero();
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.field()? {
        if number == 1 {
            amount = text(payload.bytes("string")?);
        }
    }
    Ok(amount)
}

fn int_or_string(bytes: &[u8], field: &str) -> Result<Value, ObjectError> {
    let (mut which, mut number_value, mut string_value) = (0, 0, "".into());
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.field()? {
        match number {
            1 => which = payload.varint("type")?,
            2 => number_value = payload.varint("intVal")? as i32,
            3 => string_value = text(payload.bytes("strVal")?),
            _ => {}
        }
    }
    match which {
        0 => Ok(number_value.into()),
        1 => Ok(string_value),
        _ => Err(ObjectError::NeitherIntNorString { field: field.into() }),
    }
}

fn json(bytes: &[u8], field: &str) -> Result<Value, ObjectError> {
    let mut raw: &[u8] = b"";
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.field()? {
        if number == 1 {
            raw = payload.bytes("raw")?;
        }
    }
    if raw.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(raw).map_err(|why| ObjectError::NotJson { field: field.into(), why })
}
