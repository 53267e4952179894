//! Values that may not be there. `or` and `orValue` look at their argument only if they need it, so they are no
//! functions but parts of [`crate::evaluate`].

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
