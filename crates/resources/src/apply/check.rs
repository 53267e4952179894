//! Whether a configuration that somebody applies is one of the kind at all: every field declared, of its type, every
//! element of a list told apart. In the words of the original, down to how its language prints values.

use std::{collections::BTreeSet, fmt::Write};

use serde_json::{Map, Value};

use super::{shape::Shape, step::Step};
use crate::schema::SchemaType;

/// So many findings are told, and no more once this much was said: each carries the whole path to it.
const MOST_FINDINGS: usize = 100;
const MOST_BYTES: usize = 256 * 1024;

/// What is wrong with a configuration, one line per finding.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.told())]
pub struct NoConfiguration(Vec<String>);

impl NoConfiguration {
    fn told(&self) -> String {
        match self.0.as_slice() {
            [only] => only.clone(),
            several => format!("errors:\n  {}", several.join("\n  ")),
        }
    }
}

pub fn check(configuration: &Value, shape: Shape<'_>) -> Result<(), NoConfiguration> {
    let mut findings = Findings::default();
    value(configuration, shape, &mut String::new(), &mut findings);
    match findings.lines.is_empty() {
        true => Ok(()),
        false => Err(NoConfiguration(findings.lines)),
    }
}

#[derive(Default)]
struct Findings {
    lines: Vec<String>,
    bytes: usize,
}

impl Findings {
    fn push(&mut self, path: &str, why: &str) {
        if !self.are_enough() {
            let line = if path.is_empty() { why.to_owned() } else { format!("{path}: {why}") };
            self.bytes += line.len();
            self.lines.push(line);
        }
    }

    fn are_enough(&self) -> bool {
        self.lines.len() >= MOST_FINDINGS || self.bytes >= MOST_BYTES
    }
}

fn value(found: &Value, shape: Shape<'_>, path: &mut String, findings: &mut Findings) {
    let Some(schema) = shape.schema().filter(|_| !findings.are_enough()) else { return };
    let expected = match &schema.kind {
        _ if found.is_null() => return,
        _ if schema.int_or_string => match found {
            Value::Object(_) | Value::Array(_) => "any scalar",
            _ => return,
        },
        None | Some(SchemaType::Other(_)) => return,
        Some(SchemaType::Object) => match found {
            Value::Object(members) => return object(members, shape, path, findings),
            _ => "map",
        },
        Some(SchemaType::Array) => match found {
            Value::Array(elements) => return list(elements, shape, path, findings),
            _ => "list",
        },
        Some(SchemaType::String) if !found.is_string() => "string",
        Some(SchemaType::Boolean) if !found.is_boolean() => "boolean",
        Some(SchemaType::Number | SchemaType::Integer) if !found.is_number() => "numeric (int or float)",
        Some(_) => return,
    };
    let printed = match expected {
        "string" => format!("&value.valueUnstructured{{Value:{}}}", go_syntax(found)),
        "numeric (int or float)" => go_type(found).to_owned(),
        _ => format!("&{{{}}}", go_plain(found)),
    };
    findings.push(path, &format!("expected {expected}, got {printed}"));
}

fn object(members: &Map<String, Value>, shape: Shape<'_>, path: &mut String, findings: &mut Findings) {
    let mut names: Vec<&String> = members.keys().collect();
    names.sort_unstable();
    for name in names {
        let length = path.len();
        let _ = write!(path, "{}", Step::field(name));
        if !shape.allows(name) {
            findings.push(path, "field not declared in schema");
            path.truncate(length);
            // The original looks no further in this object either.
            return;
        }
        if let Some(member) = members.get(name) {
            value(member, shape.field(name), path, findings);
        }
        path.truncate(length);
    }
}

fn list(elements: &[Value], shape: Shape<'_>, path: &mut String, findings: &mut Findings) {
    let mut seen = BTreeSet::new();
    for (index, element) in elements.iter().enumerate() {
        let step = match shape.is_whole() {
            true => Step::Index(index as u64),
            false => match shape.step_to(index, element) {
                Ok(step) => step,
                Err(why) => {
                    findings.push(path, &why.to_string());
                    return;
                }
            },
        };
        if seen.contains(&step) {
            findings.push(path, &format!("duplicate entries for key {step}"));
        }
        let length = path.len();
        let _ = write!(path, "{step}");
        value(element, shape.element(), path, findings);
        path.truncate(length);
        if !shape.is_whole() {
            seen.insert(step);
        }
    }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// As `%#v` prints it.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".into(),
        Value::String(text) => format!("{text:?}"),
        Value::Array(elements) => {
            let elements: Vec<String> = elements.iter().map(go_syntax).collect();
            format!("[]interface {{}}{{{}}}", elements.join(", "))
        }
        Value::Object(members) => {
            let members = sorted(members).into_iter();
            let members: Vec<String> =
                members.map(|(name, value)| format!("{name:?}:{}", go_syntax(value))).collect();
            format!("map[string]interface {{}}{{{}}}", members.join(", "))
        }
        scalar => scalar.to_string(),
    }
}

/// As `%v` prints it.
fn go_plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".into(),
        Value::String(text) => text.clone(),
        Value::Array(elements) => {
            let elements: Vec<String> = elements.iter().map(go_plain).collect();
            format!("[{}]", elements.join(" "))
        }
        Value::Object(members) => {
            let members = sorted(members).into_iter();
            let members: Vec<String> =
                members.map(|(name, value)| format!("{name}:{}", go_plain(value))).collect();
            format!("map[{}]", members.join(" "))
        }
        scalar => scalar.to_string(),
    }
}

fn sorted(members: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut members: Vec<_> = members.iter().collect();
    members.sort_unstable_by_key(|(name, _)| *name);
    members
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::Schema;

    fn found(spec: Value) -> String {
        let schema = Schema::parse(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "text": {"type": "string"}, "count": {"type": "integer"}, "on": {"type": "boolean"},
            "either": {"x-kubernetes-int-or-string": true}, "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "named": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
            "plain": {"type": "array", "items": {"type": "string"}},
        }}}}))
        .unwrap();
        let object = json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "x", "labels": {"a": "b"}}, "spec": spec});
        match check(&object, Shape::of(&schema)) {
            Ok(()) => String::new(),
            Err(why) => why.to_string(),
        }
    }

    #[test]
    fn what_fits_is_let_through() {
        let spec = json!({"text": "t", "count": 1, "on": true, "either": 1, "free": {"x": [1]}, "set": ["a", "b"],
            "named": [{"name": "a"}], "plain": ["a", "a"]});
        assert_eq!(found(spec), "");
        assert_eq!(found(json!({"text": null, "set": null})), "");
    }

    #[test]
    fn what_does_not_fit_is_told_in_the_originals_words() {
        assert_eq!(found(json!({"odd": 1})), ".spec.odd: field not declared in schema");
        assert_eq!(
            found(json!({"text": 1})),
            ".spec.text: expected string, got &value.valueUnstructured{Value:1}"
        );
        assert_eq!(found(json!({"count": "1"})), ".spec.count: expected numeric (int or float), got string");
        assert_eq!(found(json!({"on": "yes"})), ".spec.on: expected boolean, got &{yes}");
        assert_eq!(
            found(json!({"set": {"b": 1, "a": [2]}})),
            ".spec.set: expected list, got &{map[a:[2] b:1]}"
        );
        assert_eq!(found(json!({"free": "x"})), ".spec.free: expected map, got &{x}");
        assert_eq!(
            found(json!({"plain": [1]})),
            ".spec.plain[0]: expected string, got &value.valueUnstructured{Value:1}"
        );
        assert_eq!(found(json!({"set": ["a", "a"]})), r#".spec.set: duplicate entries for key [="a"]"#);
        assert_eq!(
            found(json!({"named": [{}]})),
            r#".spec.named: element 0: associative list with keys has an element that omits all key fields ["name"] (and doesn't have default values for any key fields)"#
        );
        assert_eq!(
            found(json!({"text": 1, "count": "x"})),
            "errors:\n  .spec.count: expected numeric (int or float), got string\n  .spec.text: expected string, got &value.valueUnstructured{Value:1}"
        );
    }

    #[test]
    fn only_so_many_findings_are_told() {
        let told = found(json!({"plain": vec![1; 100_000]}));
        assert_eq!(told.lines().count(), 1 + MOST_FINDINGS);
    }
}
