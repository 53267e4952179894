//! Label selectors: a conjunction of requirements on labels.
//!
//! They come in two spellings, the query string's (`app=web,tier in (a,b),!old`) and
//! the object's (`matchLabels`, `matchExpressions`), and mean the same thing afterwards.

use std::{collections::BTreeMap, fmt};

use serde::Deserialize;
use serde_json::{Map, Value};

use super::label_parser;
use crate::{names, quote::quoted};

/// What an object's labels must be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    /// Sorted by key, so that equal selectors print equally.
    requirements: Vec<Requirement>,
    /// An absent `labelSelector` in an object chooses nothing; an empty one everything.
    nothing: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    key: String,
    operator: LabelOperator,
    /// Sorted, without repeats.
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelOperator {
    Equals,
    DoubleEquals,
    NotEquals,
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

/// Why a selector is none. The sentences are the original's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelSelectorError {
    #[error("unable to parse requirement: {0}")]
    BadRequirement(String),
    #[error("found '{found}', expected: {expected}")]
    Unexpected { found: String, expected: &'static str },
    #[error("{} is not a valid label selector operator", quoted(.0))]
    UnknownOperator(String),
    #[error("cannot read the label selector: {0}")]
    Unreadable(String),
}

/// Where labels are looked up. A slice must be sorted by key.
pub trait Labels {
    fn label(&self, key: &str) -> Option<&str>;
}

impl<K: AsRef<str>, V: AsRef<str>> Labels for [(K, V)] {
    fn label(&self, key: &str) -> Option<&str> {
        let at = self.binary_search_by(|(candidate, _)| candidate.as_ref().cmp(key)).ok()?;
        Some(self[at].1.as_ref())
    }
}

impl Labels for BTreeMap<String, String> {
    fn label(&self, key: &str) -> Option<&str> {
        self.get(key).map(String::as_str)
    }
}

/// `metadata.labels` as it stands in an object.
impl Labels for Map<String, Value> {
    fn label(&self, key: &str) -> Option<&str> {
        self.get(key).and_then(Value::as_str)
    }
}

impl LabelSelector {
    pub fn everything() -> Self {
        Self::default()
    }

    pub fn nothing() -> Self {
        LabelSelector { requirements: Vec::new(), nothing: true }
    }

    /// Reads the query string's spelling.
    pub fn parse(text: &str) -> Result<Self, LabelSelectorError> {
        label_parser::parse(text).map(Self::all_of)
    }

    pub fn all_of(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        LabelSelector { requirements, nothing: false }
    }

    /// Reads the object's spelling (`metav1.LabelSelector`); null chooses nothing.
    pub fn from_object(selector: &Value) -> Result<Self, LabelSelectorError> {
        let spelled = Option::<Spelled>::deserialize(selector)
            .map_err(|error| LabelSelectorError::Unreadable(error.to_string()))?;
        let Some(spelled) = spelled else { return Ok(Self::nothing()) };
        let mut requirements = Vec::new();
        for (key, value) in spelled.match_labels.unwrap_or_default() {
            requirements.push(Requirement::new(key, LabelOperator::Equals, vec![value]));
        }
        for expression in spelled.match_expressions.unwrap_or_default() {
            let operator = match expression.operator.as_str() {
                "In" => LabelOperator::In,
                "NotIn" => LabelOperator::NotIn,
                "Exists" => LabelOperator::Exists,
                "DoesNotExist" => LabelOperator::DoesNotExist,
                _ => return Err(LabelSelectorError::UnknownOperator(expression.operator)),
            };
            requirements.push(Requirement::new(
                expression.key,
                operator,
                expression.values.unwrap_or_default(),
            ));
        }
        let requirements: Result<Vec<_>, String> = requirements.into_iter().collect();
        requirements.map(Self::all_of).map_err(LabelSelectorError::Unreadable)
    }

    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// Whether every object is chosen, whatever its labels.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty() && !self.nothing
    }

    pub fn matches<L: Labels + ?Sized>(&self, labels: &L) -> bool {
        !self.nothing && self.requirements.iter().all(|requirement| requirement.matches(labels))
    }
}

impl Requirement {
    /// Errors are field errors as the original prints them, with a path relative to the
    /// requirement.
    pub fn new(key: String, operator: LabelOperator, mut values: Vec<String>) -> Result<Self, String> {
        use LabelOperator::*;
        let mut problems = Vec::new();
        let about_key = names::qualified_name_problems(&key);
        if !about_key.is_empty() {
            problems.push(format!("key: Invalid value: {}: {}", quoted(&key), about_key.join("; ")));
        }
        values.sort();
        values.dedup();
        let about_values = match operator {
            In | NotIn if values.is_empty() => Some("for 'in', 'notin' operators, values set can't be empty"),
            Equals | DoubleEquals | NotEquals if values.len() != 1 => {
                Some("exact-match compatibility requires one single value")
            }
            Exists | DoesNotExist if !values.is_empty() => {
                Some("values set must be empty for exists and does not exist")
            }
            GreaterThan | LessThan if values.len() != 1 => {
                Some("for 'Gt', 'Lt' operators, exactly one value is required")
            }
            In | NotIn | Equals | DoubleEquals | NotEquals | Exists | DoesNotExist | GreaterThan
            | LessThan => None,
        };
        if let Some(why) = about_values {
            let shown = if values.is_empty() { Value::Null } else { Value::from(values.clone()) };
            problems.push(format!("values: Invalid value: {shown}: {why}"));
        }
        for (at, value) in values.iter().enumerate() {
            if matches!(operator, GreaterThan | LessThan) && value.parse::<i64>().is_err() {
                problems.push(format!(
                    "values[{at}]: Invalid value: {}: for 'Gt', 'Lt' operators, the value must be an integer",
                    quoted(value)
                ));
            }
        }
        for (at, value) in values.iter().enumerate() {
            let why = names::label_value_problems(value);
            if !why.is_empty() {
                problems.push(format!(
                    "values[{at}][{key}]: Invalid value: {}: {}",
                    quoted(value),
                    why.join("; ")
                ));
            }
        }
        match problems.len() {
            0 => Ok(Requirement { key, operator, values }),
            1 => Err(problems.remove(0)),
            _ => Err(format!("[{}]", problems.join(", "))),
        }
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    pub fn operator(&self) -> LabelOperator {
        self.operator
    }

    pub fn values(&self) -> &[String] {
        &self.values
    }

    pub fn matches<L: Labels + ?Sized>(&self, labels: &L) -> bool {
        let found = labels.label(&self.key);
        match self.operator {
            LabelOperator::In | LabelOperator::Equals | LabelOperator::DoubleEquals => {
                found.is_some_and(|value| self.has_value(value))
            }
            LabelOperator::NotIn | LabelOperator::NotEquals => {
                !found.is_some_and(|value| self.has_value(value))
            }
            LabelOperator::Exists => found.is_some(),
            LabelOperator::DoesNotExist => found.is_none(),
            LabelOperator::GreaterThan => self.compared(found).is_some_and(|(label, bound)| label > bound),
            LabelOperator::LessThan => self.compared(found).is_some_and(|(label, bound)| label < bound),
        }
    }

    fn has_value(&self, value: &str) -> bool {
        self.values.iter().any(|candidate| candidate == value)
    }

    fn compared(&self, found: Option<&str>) -> Option<(i64, i64)> {
        Some((found?.parse().ok()?, self.values.first()?.parse().ok()?))
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, requirement) in self.requirements.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        let values = self.values.join(",");
        match self.operator {
            LabelOperator::Equals => write!(f, "{key}={values}"),
            LabelOperator::DoubleEquals => write!(f, "{key}=={values}"),
            LabelOperator::NotEquals => write!(f, "{key}!={values}"),
            LabelOperator::In => write!(f, "{key} in ({values})"),
            LabelOperator::NotIn => write!(f, "{key} notin ({values})"),
            LabelOperator::Exists => write!(f, "{key}"),
            LabelOperator::DoesNotExist => write!(f, "!{key}"),
            LabelOperator::GreaterThan => write!(f, "{key}>{values}"),
            LabelOperator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spelled {
    match_labels: Option<BTreeMap<String, String>>,
    match_expressions: Option<Vec<Expression>>,
}

#[derive(Deserialize)]
struct Expression {
    #[serde(default)]
    key: String,
    #[serde(default)]
    operator: String,
    values: Option<Vec<String>>,
}

#[cfg(test)]
#[path = "label_tests.rs"]
mod tests;
