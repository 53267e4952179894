//! From one type to another.

use std::sync::Arc;

use crate::{
    fault::Fault,
    library::time::{self, Time},
    value::Value,
};

pub fn call<'a>(function: &str, args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    let [value] = args else { return Err(Fault::no_overload()) };
    match function {
        "dyn" => Ok(value.clone()),
        "type" => Ok(Value::Type(value.type_name().into())),
        "int" => int(value),
        "uint" => uint(value),
        "double" => double(value),
        "string" => string(value),
        "bytes" => match value {
            Value::String(text) => Ok(Value::Bytes(Arc::from(text.as_bytes()))),
            Value::Bytes(_) => Ok(value.clone()),
            _ => Err(Fault::no_overload()),
        },
        "bool" => match value {
            Value::Bool(_) => Ok(value.clone()),
            Value::String(text) => match &**text {
                "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Value::Bool(true)),
                "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(Value::Bool(false)),
                _ => Err(unconvertible(value, "bool")),
            },
            _ => Err(Fault::no_overload()),
        },
        "duration" => match value {
            Value::Duration(_) => Ok(value.clone()),
            Value::Int(nanos) => Ok(Value::Duration(*nanos)),
            Value::String(text) => match time::duration(text) {
                Some(nanos) => Ok(Value::Duration(nanos)),
                None => Err(unconvertible(value, "google.protobuf.Duration")),
            },
            _ => Err(Fault::no_overload()),
        },
        "timestamp" => match value {
            Value::Timestamp(_) => Ok(value.clone()),
            Value::Int(seconds) => match Time::new(*seconds, 0) {
                Some(time) => Ok(Value::Timestamp(time)),
                None => Err(Fault::failed("timestamp overflow")),
            },
            Value::String(text) => match Time::parse(text) {
                Some(time) => Ok(Value::Timestamp(time)),
                None => Err(unconvertible(value, "google.protobuf.Timestamp")),
            },
            _ => Err(Fault::no_overload()),
        },
        _ => Err(Fault::no_overload()),
    }
}

fn unconvertible(value: &Value<'_>, to: &str) -> Fault {
    Fault::failed(format!("type conversion error from '{}' to '{to}'", value.type_name()))
}

fn int<'a>(value: &Value<'a>) -> Result<Value<'a>, Fault> {
    let overflow = || Fault::failed("integer overflow");
    Ok(Value::Int(match value {
        Value::Int(number) => *number,
        Value::Uint(number) => i64::try_from(*number).map_err(|_| overflow())?,
        Value::Double(number) if number.abs() < 9_223_372_036_854_775_808.0 => *number as i64,
        Value::Double(_) => return Err(overflow()),
        Value::String(text) => text.parse().map_err(|_| unconvertible(value, "int"))?,
        Value::Timestamp(time) => time.seconds,
        Value::Duration(nanos) => *nanos,
        _ => return Err(Fault::no_overload()),
    }))
}

fn uint<'a>(value: &Value<'a>) -> Result<Value<'a>, Fault> {
    let overflow = || Fault::failed("unsigned integer overflow");
    Ok(Value::Uint(match value {
        Value::Uint(number) => *number,
        Value::Int(number) => u64::try_from(*number).map_err(|_| overflow())?,
        Value::Double(number) if (0.0..18_446_744_073_709_551_616.0).contains(number) => *number as u64,
        Value::Double(_) => return Err(overflow()),
        Value::String(text) => text.parse().map_err(|_| unconvertible(value, "uint"))?,
        _ => return Err(Fault::no_overload()),
    }))
}

fn double<'a>(value: &Value<'a>) -> Result<Value<'a>, Fault> {
    Ok(Value::Double(match value {
        Value::Double(number) => *number,
        Value::Int(number) => *number as f64,
        Value::Uint(number) => *number as f64,
        Value::String(text) => text.parse().map_err(|_| unconvertible(value, "double"))?,
        _ => return Err(Fault::no_overload()),
    }))
}

fn string<'a>(value: &Value<'a>) -> Result<Value<'a>, Fault> {
    Ok(Value::text(match value {
        Value::String(_) => return Ok(value.clone()),
        Value::Bool(flag) => flag.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        Value::Double(number) => show_double(*number),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => return Err(Fault::failed("invalid UTF-8 in bytes, cannot convert to string")),
        },
        Value::Duration(nanos) => time::show_duration(*nanos),
        Value::Timestamp(time) => time.show(),
        Value::Ip(address) => address.to_string(),
        Value::Cidr(cidr) => format!("{}/{}", cidr.address, cidr.bits),
        _ => return Err(Fault::no_overload()),
    }))
}

/// A float with as few digits as tell it from every other, as Go's `%g` writes one.
pub fn show_double(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return format!("{number}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}
