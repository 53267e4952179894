//! Texts. Positions count characters.

use regex::Regex;

use crate::{
    Host,
    fault::Fault,
    value::{Text, Value},
};

/// The longest text a function makes of others, in bytes. Far more than a rule may pay for where it is charged.
pub const LONGEST: usize = 16 * 1024 * 1024;

pub fn call<'a>(function: &str, args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    let Some((Value::String(text), rest)) = args.split_first() else {
        return Err(Fault::no_overload());
    };
    Ok(match (function, rest) {
        ("contains", [Value::String(part)]) => Value::Bool(text.contains(&**part)),
        ("startsWith", [Value::String(part)]) => Value::Bool(text.starts_with(&**part)),
        ("endsWith", [Value::String(part)]) => Value::Bool(text.ends_with(&**part)),
        ("charAt", [Value::Int(at)]) => char_at(text, *at)?,
        ("indexOf", [Value::String(part)]) => index_of(text, part, 0)?,
        ("indexOf", [Value::String(part), Value::Int(from)]) => index_of(text, part, *from)?,
        ("lastIndexOf", [Value::String(part)]) => last_index_of(text, part, None)?,
        ("lastIndexOf", [Value::String(part), Value::Int(from)]) => last_index_of(text, part, Some(*from))?,
        ("lowerAscii", []) => Value::text(text.to_ascii_lowercase()),
        ("upperAscii", []) => Value::text(text.to_ascii_uppercase()),
        ("replace", [Value::String(old), Value::String(new)]) => replaced(text, old, new, -1)?,
        ("replace", [Value::String(old), Value::String(new), Value::Int(count)]) => {
            replaced(text, old, new, *count)?
        }
        ("split", [Value::String(separator)]) => split(text, separator, -1),
        ("split", [Value::String(separator), Value::Int(count)]) => split(text, separator, *count),
        ("substring", [Value::Int(from)]) => substring(text, *from, None)?,
        ("substring", [Value::Int(from), Value::Int(to)]) => substring(text, *from, Some(*to))?,
        ("trim", []) => match text {
            Text::Borrowed(text) => Value::String(Text::Borrowed(text.trim())),
            Text::Shared(text) => Value::text(text.trim()),
        },
        ("strings.quote", []) => Value::text(quoted(text)),
        _ => return Err(Fault::no_overload()),
    })
}

fn out_of_range(at: i64) -> Fault {
    Fault::failed(format!("index out of range: {at}"))
}

fn length(text: &str) -> i64 {
    i64::try_from(text.chars().count()).unwrap_or(i64::MAX)
}

/// Where the character at a position begins; the end for the position after the last.
fn byte_of(text: &str, at: i64) -> Option<usize> {
    let at = usize::try_from(at).ok()?;
    text.char_indices().map(|(byte, _)| byte).chain([text.len()]).nth(at)
}

fn position(text: &str, byte: usize) -> Value<'static> {
    Value::Int(length(&text[..byte]))
}

fn char_at(text: &str, at: i64) -> Result<Value<'static>, Fault> {
    if at < 0 || at > length(text) {
        return Err(out_of_range(at));
    }
    let found = usize::try_from(at).ok().and_then(|at| text.chars().nth(at));
    Ok(Value::text(found.map(String::from).unwrap_or_default()))
}

fn index_of(text: &str, part: &str, from: i64) -> Result<Value<'static>, Fault> {
    if from < 0 {
        return Err(out_of_range(from));
    }
    if part.is_empty() {
        return Ok(Value::Int(from));
    }
    let found = byte_of(text, from).and_then(|begin| Some(begin + text[begin..].find(part)?));
    Ok(found.map_or(Value::Int(-1), |byte| position(text, byte)))
}

/// The last place, at `from` or before.
fn last_index_of(text: &str, part: &str, from: Option<i64>) -> Result<Value<'static>, Fault> {
    if let Some(from) = from.filter(|from| *from < 0) {
        return Err(out_of_range(from));
    }
    if part.is_empty() {
        return Ok(Value::Int(from.unwrap_or_else(|| length(text))));
    }
    let found = match from {
        None => text.rfind(part),
        Some(from) => match byte_of(text, from) {
            Some(begin) => {
                let end = (begin + part.len()).min(text.len());
                let end = (end..=text.len()).find(|end| text.is_char_boundary(*end)).unwrap_or(text.len());
                text[..end].rfind(part).filter(|found| *found <= begin)
            }
            None => None,
        },
    };
    Ok(found.map_or(Value::Int(-1), |byte| position(text, byte)))
}

fn substring(text: &str, from: i64, to: Option<i64>) -> Result<Value<'static>, Fault> {
    let end = length(text);
    let to_given = to.unwrap_or(end);
    if to.is_some() && from > to_given {
        return Err(Fault::failed(format!("invalid substring range. start: {from}, end: {to_given}")));
    }
    if from < 0 || from > end {
        return Err(out_of_range(from));
    }
    if to_given < 0 || to_given > end {
        return Err(out_of_range(to_given));
    }
    match (byte_of(text, from), byte_of(text, to_given)) {
        (Some(begin), Some(end)) => Ok(Value::text(&text[begin..end])),
        _ => Err(out_of_range(from)),
    }
}

/// Counted before it is made: what a rule is charged for says nothing about how long the result gets.
fn replaced(text: &str, old: &str, new: &str, count: i64) -> Result<Value<'static>, Fault> {
    let most = usize::try_from(count).unwrap_or(usize::MAX);
    let found = text.matches(old).take(most).count();
    let added = found.saturating_mul(new.len());
    if (text.len() - found * old.len()).saturating_add(added) > LONGEST {
        return Err(Fault::OverBudget);
    }
    Ok(Value::text(text.replacen(old, new, most)))
}

fn split(text: &str, separator: &str, count: i64) -> Value<'static> {
    let limit = usize::try_from(count).unwrap_or(usize::MAX);
    if limit == 0 {
        return Value::list(Vec::new());
    }
    if !separator.is_empty() {
        return Value::texts(text.splitn(limit, separator));
    }
    let mut parts: Vec<String> = text.chars().take(limit.saturating_sub(1)).map(String::from).collect();
    let rest: String = text.chars().skip(parts.len()).collect();
    if !rest.is_empty() {
        parts.push(rest);
    }
    Value::texts(parts)
}

pub fn join(args: &[Value<'_>]) -> Result<Value<'static>, Fault> {
    let (list, separator) = match args {
        [Value::List(list)] => (list, ""),
        [Value::List(list), Value::String(separator)] => (list, &**separator),
        _ => return Err(Fault::no_overload()),
    };
    let mut out = String::new();
    for (n, item) in list.iter().enumerate() {
        let Value::String(item) = item? else { return Err(Fault::no_overload()) };
        if out.len() + separator.len() + item.len() > LONGEST {
            return Err(Fault::OverBudget);
        }
        if n > 0 {
            out.push_str(separator);
        }
        out.push_str(&item);
    }
    Ok(Value::text(out))
}

/// The longest pattern out of data, in bytes: compiling one takes longer than matching it, and costs nothing.
const LONGEST_PATTERN: usize = 4 * 1024;

/// A pattern of a rule, compiled. Matching takes time linear in the text whatever the pattern.
pub fn pattern(text: &str, host: &'static Host) -> Result<Regex, Fault> {
    (host.pattern)(text).map_err(|why| unreadable(text, &why))
}

/// The same for a pattern out of data.
pub fn foreign_pattern(text: &str, host: &'static Host) -> Result<Regex, Fault> {
    if text.len() > LONGEST_PATTERN {
        return Err(unreadable(text, "expression too large"));
    }
    (host.foreign_pattern)(text).map_err(|why| unreadable(text, &why))
}

fn unreadable(text: &str, why: &str) -> Fault {
    Fault::failed(format!("error parsing regexp: {why}: `{text}`"))
}

/// What a function that takes a pattern says, with the pattern compiled.
pub fn matched<'a>(function: &str, pattern: &Regex, args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    Ok(match (function, args) {
        ("matches", [Value::String(text), _]) => Value::Bool(pattern.is_match(text)),
        ("find", [Value::String(text), _]) => {
            Value::text(pattern.find(text).map_or("", |found| found.as_str()))
        }
        ("findAll", [Value::String(text), _]) => find_all(pattern, text, -1),
        ("findAll", [Value::String(text), _, Value::Int(count)]) => find_all(pattern, text, *count),
        _ => return Err(Fault::no_overload()),
    })
}

fn find_all<'a>(pattern: &Regex, text: &str, count: i64) -> Value<'a> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    Value::texts(pattern.find_iter(text).take(count).map(|found| found.as_str()))
}

/// In quotes, with what would end them escaped.
pub fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}
