//! Formats that texts can be checked against by name. Which there are is handed in: names of objects and the like
//! are no business of a language.

use crate::{fault::Fault, value::Value};

#[derive(Debug)]
pub struct NamedFormat {
    /// What rules call it: `dns1123Label`.
    pub key: &'static str,
    /// What it is called itself. Two formats are the same if this is.
    pub name: &'static str,
    /// How long the pattern is that a check is charged for.
    pub pattern_size: u64,
    /// What is wrong with a text.
    pub problems: fn(&str) -> Vec<String>,
}

pub fn call(
    function: &str,
    args: &[Value<'_>],
    formats: &'static [NamedFormat],
) -> Result<Value<'static>, Fault> {
    let find = |key: &str| formats.iter().find(|format| format.key == key);
    match (function, args) {
        ("validate", [Value::Format(format), Value::String(text)]) => {
            let problems = (format.problems)(text);
            Ok(match problems.is_empty() {
                true => Value::Optional(None),
                false => Value::some(Value::texts(problems)),
            })
        }
        ("format.named", [Value::String(key)]) => {
            Ok(find(key).map_or(Value::Optional(None), |format| Value::some(Value::Format(format))))
        }
        (function, []) => match function.strip_prefix("format.").and_then(find) {
            Some(format) => Ok(Value::Format(format)),
            None => Err(Fault::no_overload()),
        },
        _ => Err(Fault::no_overload()),
    }
}
