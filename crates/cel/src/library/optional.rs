//! Values that may not be there.

use crate::{fault::Fault, value::Value};

pub fn call<'a>(function: &str, args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    Ok(match (function, args) {
        ("optional.none", []) => Value::Optional(None),
        ("optional.of", [value]) => Value::some(value.clone()),
        ("optional.ofNonZeroValue", [value]) if is_zero(value) => Value::Optional(None),
        ("optional.ofNonZeroValue", [value]) => Value::some(value.clone()),
        ("hasValue", [Value::Optional(held)]) => Value::Bool(held.is_some()),
        ("value", [Value::Optional(Some(held))]) => (**held).clone(),
        ("value", [Value::Optional(None)]) => return Err(Fault::failed("optional.none() dereference")),
        ("or", [Value::Optional(held), other @ Value::Optional(_)]) => match held {
            Some(_) => Value::Optional(held.clone()),
            None => other.clone(),
        },
        ("orValue", [Value::Optional(held), other]) => match held {
            Some(held) => (**held).clone(),
            None => other.clone(),
        },
        _ => return Err(Fault::no_overload()),
    })
}

fn is_zero(value: &Value<'_>) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Int(number) => *number == 0,
        Value::Uint(number) => *number == 0,
        Value::Double(number) => *number == 0.0,
        Value::Duration(nanos) => *nanos == 0,
        other => other.size() == Some(0),
    }
}
