//! Operators on numbers, times, texts and lists.

use crate::{
    fault::Fault,
    value::{Key, Map, Value},
};

/// One of `+ - * / %` and the comparisons.
pub fn call<'a>(operator: &str, args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    match args {
        [value] => negate(operator, value),
        [left, right] => match operator {
            "_<_" => compare(left, right, |order| order.is_lt()),
            "_<=_" => compare(left, right, |order| order.is_le()),
            "_>_" => compare(left, right, |order| order.is_gt()),
            "_>=_" => compare(left, right, |order| order.is_ge()),
            "@in" => contains(left, right),
            _ => calculate(operator, left, right),
        },
        _ => Err(Fault::no_overload()),
    }
}

fn negate<'a>(operator: &str, value: &Value<'a>) -> Result<Value<'a>, Fault> {
    match (operator, value) {
        ("!_", Value::Bool(flag)) => Ok(Value::Bool(!flag)),
        ("-_", Value::Int(number)) => number.checked_neg().map(Value::Int).ok_or_else(overflow),
        ("-_", Value::Double(number)) => Ok(Value::Double(-number)),
        _ => Err(Fault::no_overload()),
    }
}

fn compare<'a>(
    left: &Value<'a>,
    right: &Value<'a>,
    holds: fn(std::cmp::Ordering) -> bool,
) -> Result<Value<'a>, Fault> {
    let not_a_number = |value: &Value<'_>| matches!(value, Value::Double(number) if number.is_nan());
    match left.compare(right) {
        Some(order) => Ok(Value::Bool(holds(order))),
        None if not_a_number(left) || not_a_number(right) => {
            Err(Fault::failed("NaN values cannot be ordered"))
        }
        None => Err(Fault::no_overload()),
    }
}

fn contains<'a>(value: &Value<'a>, within: &Value<'a>) -> Result<Value<'a>, Fault> {
    match within {
        Value::List(list) => {
            for item in list.iter() {
                if item?.equals(value) {
                    return Ok(Value::Bool(true));
                }
            }
            Ok(Value::Bool(false))
        }
        Value::Map(map) => match map.find(value) {
            Some(Err(fault)) => Err(fault),
            found => Ok(Value::Bool(found.is_some())),
        },
        _ => Err(Fault::no_overload()),
    }
}

fn overflow() -> Fault {
    Fault::failed("integer overflow")
}

fn calculate<'a>(operator: &str, left: &Value<'a>, right: &Value<'a>) -> Result<Value<'a>, Fault> {
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => ints(operator, *left, *right).map(Value::Int),
        (Value::Uint(left), Value::Uint(right)) => uints(operator, *left, *right).map(Value::Uint),
        (Value::Double(left), Value::Double(right)) => Ok(Value::Double(match operator {
            "_+_" => left + right,
            "_-_" => left - right,
            "_*_" => left * right,
            "_/_" => left / right,
            _ => return Err(Fault::no_overload()),
        })),
        (Value::String(left), Value::String(right)) if operator == "_+_" => {
            Ok(Value::text(format!("{}{}", &**left, &**right)))
        }
        (Value::Bytes(left), Value::Bytes(right)) if operator == "_+_" => {
            Ok(Value::Bytes([&**left, &**right].concat().into()))
        }
        (Value::List(left), Value::List(right)) if operator == "_+_" => Ok(Value::List(left.concat(right)?)),
        (left, right) => times(operator, left, right),
    }
}

fn ints(operator: &str, left: i64, right: i64) -> Result<i64, Fault> {
    match (operator, right) {
        ("_/_", 0) => return Err(Fault::failed("division by zero")),
        ("_%_", 0) => return Err(Fault::failed("modulus by zero")),
        _ => {}
    }
    let result = match operator {
        "_+_" => left.checked_add(right),
        "_-_" => left.checked_sub(right),
        "_*_" => left.checked_mul(right),
        "_/_" => left.checked_div(right),
        "_%_" => left.checked_rem(right),
        _ => return Err(Fault::no_overload()),
    };
    result.ok_or_else(overflow)
}

fn uints(operator: &str, left: u64, right: u64) -> Result<u64, Fault> {
    match (operator, right) {
        ("_/_", 0) => return Err(Fault::failed("division by zero")),
        ("_%_", 0) => return Err(Fault::failed("modulus by zero")),
        _ => {}
    }
    let result = match operator {
        "_+_" => left.checked_add(right),
        "_-_" => left.checked_sub(right),
        "_*_" => left.checked_mul(right),
        "_/_" => left.checked_div(right),
        "_%_" => left.checked_rem(right),
        _ => return Err(Fault::no_overload()),
    };
    result.ok_or_else(|| Fault::failed("unsigned integer overflow"))
}

fn times<'a>(operator: &str, left: &Value<'a>, right: &Value<'a>) -> Result<Value<'a>, Fault> {
    let out_of_time = || Fault::failed("timestamp overflow");
    match (operator, left, right) {
        ("_+_", Value::Duration(left), Value::Duration(right)) => {
            left.checked_add(*right).map(Value::Duration).ok_or_else(overflow)
        }
        ("_-_", Value::Duration(left), Value::Duration(right)) => {
            left.checked_sub(*right).map(Value::Duration).ok_or_else(overflow)
        }
        ("_+_", Value::Timestamp(time), Value::Duration(span))
        | ("_+_", Value::Duration(span), Value::Timestamp(time)) => {
            time.plus(*span).map(Value::Timestamp).ok_or_else(out_of_time)
        }
        ("_-_", Value::Timestamp(time), Value::Duration(span)) => {
            span.checked_neg().and_then(|span| time.plus(span)).map(Value::Timestamp).ok_or_else(out_of_time)
        }
        ("_-_", Value::Timestamp(left), Value::Timestamp(right)) => {
            left.minus(*right).map(Value::Duration).ok_or_else(overflow)
        }
        _ => Err(Fault::no_overload()),
    }
}

/// The map with one more entry, or with those of another. Keys that are there already are no keys to add.
pub fn insert<'a>(mut args: Vec<Value<'a>>) -> Result<Value<'a>, Fault> {
    let mut rest = args.split_off(1);
    let Some(Value::Map(Map::Values(mut map))) = args.pop() else { return Err(Fault::no_overload()) };
    let added: Vec<(Value<'a>, Value<'a>)> = match (rest.pop(), rest.pop()) {
        (Some(value), Some(key)) => vec![(key, value)],
        (Some(Value::Map(Map::Values(other))), None) => other.values().cloned().collect(),
        _ => return Err(Fault::no_overload()),
    };
    let entries = std::sync::Arc::make_mut(&mut map);
    for (key, value) in added {
        let Some(at): Option<Key> = key.key() else { return Err(Fault::no_overload()) };
        if entries.contains_key(&at) {
            let shown = match &at {
                Key::Text(text) => text.to_string(),
                Key::Number(number) => number.to_string(),
                other => format!("{other:?}"),
            };
            return Err(Fault::failed(format!("insert failed: key {shown} already exists")));
        }
        entries.insert(at, (key, value));
    }
    Ok(Value::Map(Map::Values(map)))
}
