//! The JSONPath of printer columns and scale subresources.
//!
//! Understood: `.a.b`, `['a']`, `["a"]`, `\.` inside a name, `[0]`, `[-1]`, `[1:3]`, `[*]`,
//! `.*`, `..name`, and filters `[?(@.type=="Ready")]` with `==`, `!=`, `<`, `<=`, `>`, `>=`
//! or plain existence. A path that leads nowhere finds nothing; that is not an error.
//! Functions, scripts and unions are not understood.

use serde_json::{Map, Value};

use crate::field_error::go_number;

/// A path, ready to be followed.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    text: Box<str>,
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(Box<str>),
    Index(i64),
    Slice {
        from: Option<i64>,
        to: Option<i64>,
    },
    All,
    /// Every field of that name, at any depth.
    Anywhere(Box<str>),
    Filter {
        left: Vec<Step>,
        test: Option<(Comparison, Operand)>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Debug, PartialEq)]
enum Operand {
    Literal(Value),
    Path(Vec<Step>),
}

/// Why a text is not a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonPathError {
    #[error("a path is made of .name and [..]: unexpected {found:?} at byte {at}")]
    Unexpected { at: usize, found: char },
    #[error("the bracket opened at byte {at} is not closed")]
    Unclosed { at: usize },
    #[error("{inside:?} in brackets is neither an index, a range, a quoted name nor a filter")]
    Bracket { inside: String },
}

impl JsonPath {
    /// Reads a path such as `.spec.replicas`. Surrounding braces, as kubectl writes them, are
    /// allowed.
    pub fn parse(text: &str) -> Result<Self, JsonPathError> {
        let text = text.trim();
        let inner = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(text);
        Ok(Self { text: text.into(), steps: steps(inner.strip_prefix('$').unwrap_or(inner))? })
    }

    /// The path as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Everything the path leads to, in order.
    pub fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        follow(&self.steps, value)
    }

    /// The first thing the path leads to.
    pub fn first<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        self.find(value).into_iter().next()
    }

    /// Writes `new` where the path leads, making objects on the way. Only for paths of
    /// names; `false` says that nothing was written.
    pub fn set(&self, value: &mut Value, new: Value) -> bool {
        let mut at = value;
        for step in &self.steps {
            let Step::Field(name) = step else { return false };
            if at.is_null() {
                *at = Value::Object(Map::new());
            }
            let Value::Object(map) = at else { return false };
            at = map.entry(&**name).or_insert(Value::Null);
        }
        *at = new;
        true
    }

    /// The names of a path made of names only.
    pub fn names(&self) -> Option<Vec<&str>> {
        self.steps
            .iter()
            .map(|step| match step {
                Step::Field(name) => Some(&**name),
                _ => None,
            })
            .collect()
    }
}

/// How a value is written into a text column: strings bare, the rest as JSON.
pub fn as_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => go_number(number),
        other => other.to_string(),
    }
}

fn steps(text: &str) -> Result<Vec<Step>, JsonPathError> {
    let mut steps = Vec::new();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        match c {
            '.' if text[at + 1..].starts_with('.') => {
                let (name, next) = name_at(text, at + 2);
                if name.is_empty() {
                    return Err(unexpected(text, next));
                }
                steps.push(Step::Anywhere(name.into()));
                at = next;
            }
            '.' => {
                let (name, next) = name_at(text, at + 1);
                match name.as_str() {
                    // A lone dot is the whole object; a dot before a bracket adds nothing.
                    "" if next < text.len() && !text[next..].starts_with('[') => {
                        return Err(unexpected(text, next));
                    }
                    "" => {}
                    "*" => steps.push(Step::All),
                    name => steps.push(Step::Field(name.into())),
                }
                at = next;
            }
            '[' => {
                let end = closing(text, at).ok_or(JsonPathError::Unclosed { at })?;
                steps.push(bracket(&text[at + 1..end])?);
                at = end + 1;
            }
            _ => return Err(unexpected(text, at)),
        }
    }
    Ok(steps)
}

fn unexpected(text: &str, at: usize) -> JsonPathError {
    JsonPathError::Unexpected { at, found: text[at..].chars().next().unwrap_or('.') }
}

/// A name from `start` on and where it ends; a backslash takes the next character as it is.
fn name_at(text: &str, start: usize) -> (String, usize) {
    let mut name = String::new();
    let mut chars = text[start..].char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '.' | '[' => return (name, start + at),
            '\\' => name.extend(chars.next().map(|(_, c)| c)),
            c => name.push(c),
        }
    }
    (name, text.len())
}

/// Where the bracket opened at `open` closes, quotes and inner brackets skipped.
fn closing(text: &str, open: usize) -> Option<usize> {
    let mut depth = 0usize;
    let mut quote = None;
    let mut escaped = false;
    for (at, c) in text[open..].char_indices() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(q), c) if c == q => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') => {
                depth -= 1;
                if depth == 0 {
                    return Some(open + at);
                }
            }
            (None, _) => {}
        }
    }
    None
}

fn bracket(inside: &str) -> Result<Step, JsonPathError> {
    let wrong = || JsonPathError::Bracket { inside: inside.to_owned() };
    let inside = inside.trim();
    if inside == "*" {
        return Ok(Step::All);
    }
    if let Some(name) = unquote(inside) {
        return Ok(Step::Field(name.into()));
    }
    if let Some(filter) = inside.strip_prefix("?(").and_then(|rest| rest.strip_suffix(')')) {
        return self::filter(filter.trim()).ok_or_else(wrong);
    }
    let bound = |text: &str| match text.trim() {
        "" => Ok(None),
        number => number.parse::<i64>().map(Some).map_err(|_| wrong()),
    };
    match inside.split_once(':') {
        Some((from, to)) => Ok(Step::Slice { from: bound(from)?, to: bound(to)? }),
        None => bound(inside)?.map(Step::Index).ok_or_else(wrong),
    }
}

fn unquote(text: &str) -> Option<String> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
    let mut out = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.extend(chars.next()),
            // Two quoted names side by side are a union, which is not understood.
            c if c == quote => return None,
            c => out.push(c),
        }
    }
    Some(out)
}

fn filter(text: &str) -> Option<Step> {
    let (at, operator) = operator_in(text).unwrap_or((text.len(), ""));
    let left = steps(text[..at].trim().strip_prefix('@')?).ok()?;
    let comparison = match operator {
        "" => return Some(Step::Filter { left, test: None }),
        "==" => Comparison::Equal,
        "!=" => Comparison::NotEqual,
        "<" => Comparison::Less,
        "<=" => Comparison::LessOrEqual,
        ">" => Comparison::Greater,
        _ => Comparison::GreaterOrEqual,
    };
    let right = text[at + operator.len()..].trim();
    let operand = match right.strip_prefix('@') {
        Some(path) => Operand::Path(steps(path).ok()?),
        None => Operand::Literal(match unquote(right) {
            Some(text) => Value::String(text),
            None => serde_json::from_str(right).ok()?,
        }),
    };
    Some(Step::Filter { left, test: Some((comparison, operand)) })
}

/// The first comparison outside quotes.
fn operator_in(text: &str) -> Option<(usize, &'static str)> {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, _) => {
                let found =
                    ["==", "!=", "<=", ">=", "<", ">"].into_iter().find(|op| text[at..].starts_with(op));
                if let Some(operator) = found {
                    return Some((at, operator));
                }
            }
        }
    }
    None
}

fn follow<'a>(steps: &[Step], value: &'a Value) -> Vec<&'a Value> {
    let mut found = vec![value];
    for step in steps {
        let mut next = Vec::new();
        for value in found {
            take(step, value, &mut next);
        }
        found = next;
    }
    found
}

fn take<'a>(step: &Step, value: &'a Value, out: &mut Vec<&'a Value>) {
    match (step, value) {
        (Step::Field(name), Value::Object(map)) => out.extend(map.get(&**name)),
        (Step::Index(index), Value::Array(list)) => {
            out.extend(position(*index, list.len()).and_then(|at| list.get(at)));
        }
        (Step::Slice { from, to }, Value::Array(list)) => {
            let clamp = |bound: i64| {
                let length = i64::try_from(list.len()).unwrap_or(i64::MAX);
                let at = if bound < 0 { bound.saturating_add(length) } else { bound };
                usize::try_from(at.clamp(0, length)).unwrap_or(0)
            };
            let (from, to) = (from.map_or(0, clamp), to.map_or(list.len(), clamp));
            out.extend(list.get(from..to).unwrap_or_default());
        }
        (Step::All, Value::Array(list)) => out.extend(list),
        (Step::All, Value::Object(map)) => out.extend(map.values()),
        (Step::Anywhere(name), value) => anywhere(name, value, out),
        (Step::Filter { left, test }, Value::Array(list)) => {
            out.extend(list.iter().filter(|item| passes(left, test.as_ref(), item)));
        }
        _ => {}
    }
}

fn position(index: i64, length: usize) -> Option<usize> {
    if index < 0 {
        length.checked_sub(usize::try_from(index.unsigned_abs()).ok()?)
    } else {
        index.try_into().ok()
    }
}

fn anywhere<'a>(name: &str, value: &'a Value, out: &mut Vec<&'a Value>) {
    match value {
        Value::Object(map) => {
            out.extend(map.get(name));
            map.values().for_each(|inner| anywhere(name, inner, out));
        }
        Value::Array(list) => list.iter().for_each(|inner| anywhere(name, inner, out)),
        _ => {}
    }
}

fn passes(left: &[Step], test: Option<&(Comparison, Operand)>, item: &Value) -> bool {
    let left = follow(left, item);
    let Some((comparison, operand)) = test else { return !left.is_empty() };
    let right = match operand {
        Operand::Literal(value) => Some(value),
        Operand::Path(path) => follow(path, item).into_iter().next(),
    };
    let (Some(left), Some(right)) = (left.into_iter().next(), right) else { return false };
    let order = match (left, right) {
        (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        // Values of different types are merely not equal.
        _ => None,
    };
    match comparison {
        Comparison::Equal => order.is_some_and(|order| order.is_eq()),
        Comparison::NotEqual => order.is_none_or(|order| order.is_ne()),
        Comparison::Less => order.is_some_and(|order| order.is_lt()),
        Comparison::LessOrEqual => order.is_some_and(|order| order.is_le()),
        Comparison::Greater => order.is_some_and(|order| order.is_gt()),
        Comparison::GreaterOrEqual => order.is_some_and(|order| order.is_ge()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn found(path: &str, value: &Value) -> Vec<Value> {
        JsonPath::parse(path).unwrap().find(value).into_iter().cloned().collect()
    }

    #[test]
    fn names_indexes_and_ranges_are_followed() {
        let object = json!({"a": {"b.c": 1, "list": [10, 20, 30]}, "m": {"x": 1, "y": 2}});
        assert_eq!(found(".a.b\\.c", &object), [1]);
        assert_eq!(found(".a['b.c']", &object), [1]);
        assert_eq!(found("{.a.list[0]}", &object), [10]);
        assert_eq!(found("$.a.list[-1]", &object), [30]);
        assert_eq!(found(".a.list[1:]", &object), [20, 30]);
        assert_eq!(found(".a.list[*]", &object), [10, 20, 30]);
        assert_eq!(found(".m.*", &object), [1, 2]);
        assert_eq!(found("..x", &object), [1]);
        assert_eq!(found(".", &object).first(), Some(&object));
    }

    #[test]
    fn filters_pick_elements() {
        let object = json!({"status": {"conditions": [
            {"type": "Ready", "status": "True", "n": 3}, {"type": "Failed", "status": "False"}]}});
        assert_eq!(found(r#".status.conditions[?(@.type=="Ready")].status"#, &object), ["True"]);
        assert_eq!(found(".status.conditions[?(@.type == 'Failed')].status", &object), ["False"]);
        assert_eq!(found(".status.conditions[?(@.type != 'Failed')].type", &object), ["Ready"]);
        assert_eq!(found(".status.conditions[?(@.n >= 3)].type", &object), ["Ready"]);
        assert_eq!(found(".status.conditions[?(@.n)].type", &object), ["Ready"]);
    }

    #[test]
    fn a_path_that_leads_nowhere_finds_nothing() {
        let object = json!({"a": 1});
        for path in [".b", ".a.b", ".a[0]", ".a[*].x", ".a[?(@.b==1)]", "..zz"] {
            assert!(found(path, &object).is_empty(), "{path}");
        }
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for path in ["a", ".a..", ".a[", ".a[x]", ".a['b", ".a b[?(x)]", ".a[0]b", ".a['x','y']"] {
            assert!(JsonPath::parse(path).is_err(), "{path}");
        }
    }

    #[test]
    fn setting_makes_the_way_it_needs() {
        let mut object = json!({"spec": {"a": 1}});
        assert!(JsonPath::parse(".spec.replicas").unwrap().set(&mut object, json!(3)));
        assert!(JsonPath::parse(".status.count").unwrap().set(&mut object, json!(4)));
        assert!(!JsonPath::parse(".spec.a.b").unwrap().set(&mut object, json!(5)));
        assert_eq!(object, json!({"spec": {"a": 1, "replicas": 3}, "status": {"count": 4}}));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in r#"[.a\[\]'"?(@=<>)*:0-9\\é{}$ -]{0,40}"#) {
            if let Ok(path) = JsonPath::parse(&text) {
                path.find(&json!({"a": [{"a": 1}, "x"], "0": {"a": null}}));
            }
        }
    }
}
