//! One step of the way from an object to one of its fields, as it is written into `managedFields`.
//!
//! | written | means |
//! |---|---|
//! | `f:name` | the member of that name |
//! | `k:{"port":80,"protocol":"TCP"}` | the element of a list whose keys are these |
//! | `v:"a"` | the element of a set that is this value |
//! | `i:0` | the element at this place; read, but never written here |

use std::{cmp::Ordering, fmt};

use serde_json::{Map, Number, Value};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    Field(Box<str>),
    /// Sorted by name.
    Key(Vec<(Box<str>, Datum)>),
    Value(Datum),
    Index(u64),
}

/// A JSON value with an order. Numbers are compared by what they are worth: `1` is `1.0`.
#[derive(Clone, Debug)]
pub struct Datum(pub Value);

impl Step {
    pub fn field(name: &str) -> Step {
        Step::Field(name.into())
    }

    pub fn key(values: impl IntoIterator<Item = (Box<str>, Value)>) -> Step {
        let mut values: Vec<_> = values.into_iter().map(|(name, value)| (name, Datum(value))).collect();
        values.sort();
        Step::Key(values)
    }

    /// As it is written into `managedFields`.
    pub fn written(&self) -> String {
        match self {
            Step::Field(name) => format!("f:{name}"),
            Step::Key(values) => {
                let members = values.iter().map(|(name, value)| (name.to_string(), value.0.clone()));
                format!("k:{}", Value::Object(members.collect::<Map<_, _>>()))
            }
            Step::Value(value) => format!("v:{}", value.0),
            Step::Index(at) => format!("i:{at}"),
        }
    }

    /// The step that is written so; `None` if none is.
    pub fn read(text: &str) -> Option<Step> {
        let (form, rest) = text.split_once(':')?;
        match form {
            "f" => Some(Step::field(rest)),
            "k" => match serde_json::from_str(rest).ok()? {
                Value::Object(members) => {
                    Some(Step::key(members.into_iter().map(|(name, value)| (name.into(), value))))
                }
                _ => None,
            },
            "v" => serde_json::from_str(rest).ok().map(|value| Step::Value(Datum(value))),
            "i" => rest.parse().ok().map(Step::Index),
            _ => None,
        }
    }
}

/// As conflicts are told to people: `.spec`, `[name="a"]`, `[="a"]`, `[0]`.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Field(name) => write!(f, ".{name}"),
            Step::Key(values) => {
                let members: Vec<String> =
                    values.iter().map(|(name, value)| format!("{name}={}", value.0)).collect();
                write!(f, "[{}]", members.join(","))
            }
            Step::Value(value) => write!(f, "[={}]", value.0),
            Step::Index(at) => write!(f, "[{at}]"),
        }
    }
}

impl PartialEq for Datum {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Datum {}

impl PartialOrd for Datum {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Datum {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(&self.0, &other.0)
    }
}

/// A total order over JSON values.
pub fn compare(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare_numbers(a, b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let differing = a.iter().zip(b).map(|(a, b)| compare(a, b)).find(|order| order.is_ne());
            differing.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => compare_objects(a, b),
        _ => rank(a).cmp(&rank(b)),
    }
}

/// By their exact worth: a whole number made a float may be another's equal that it is not.
fn compare_numbers(a: &Number, b: &Number) -> Ordering {
    let float = |number: &Number| number.as_f64().unwrap_or_default();
    match (a.as_i128(), b.as_i128()) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(a), None) => compare_with_float(a, float(b)),
        (None, Some(b)) => compare_with_float(b, float(a)).reverse(),
        // JSON has no number that is not comparable.
        (None, None) => float(a).partial_cmp(&float(b)).unwrap_or(Ordering::Equal),
    }
}

fn compare_with_float(whole: i128, float: f64) -> Ordering {
    // Exact where it matters: a float too large for the conversion is larger than any whole number of JSON, also when
    // it is cut to the largest there is.
    let below = float.floor();
    whole.cmp(&(below as i128)).then(if float > below { Ordering::Less } else { Ordering::Equal })
}

fn compare_objects(a: &Map<String, Value>, b: &Map<String, Value>) -> Ordering {
    let sorted = |map: &Map<String, Value>| {
        let mut names: Vec<String> = map.keys().cloned().collect();
        names.sort_unstable();
        names
    };
    let (names_a, names_b) = (sorted(a), sorted(b));
    names_a.cmp(&names_b).then_with(|| {
        let values = names_a.iter().map(|name| compare(&a[name], &b[name]));
        values.into_iter().find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    })
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_form_of_a_step_is_written_and_read_again() {
        let steps = [
            (Step::field("data"), "f:data", ".data"),
            (Step::field("a:b/c"), "f:a:b/c", ".a:b/c"),
            (
                Step::key([("protocol".into(), json!("TCP")), ("port".into(), json!(80))]),
                r#"k:{"port":80,"protocol":"TCP"}"#,
                r#"[port=80,protocol="TCP"]"#,
            ),
            (Step::Value(Datum(json!("x"))), r#"v:"x""#, r#"[="x"]"#),
            (Step::Index(3), "i:3", "[3]"),
        ];
        for (step, written, told) in steps {
            assert_eq!(step.written(), written);
            assert_eq!(Step::read(written), Some(step.clone()));
            assert_eq!(step.to_string(), told);
        }
        for nonsense in ["", "data", "x:y", "k:[]", "k:{", "v:", "i:-1"] {
            assert_eq!(Step::read(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn numbers_are_equal_by_worth_and_members_in_any_order() {
        assert_eq!(Datum(json!(1)), Datum(json!(1.0)));
        assert_ne!(Datum(json!(1)), Datum(json!("1")));
        assert_ne!(Datum(json!(u64::MAX)), Datum(json!(u64::MAX - 1)));
        assert_eq!(Datum(json!({"a": 1, "b": [2]})), Datum(json!({"b": [2], "a": 1})));
    }

    #[test]
    fn numbers_have_one_order_however_they_are_written() {
        let numbers = [
            json!(-1e300),
            json!(i64::MIN),
            json!(-1.5),
            json!(-1),
            json!(0),
            json!(0.5),
            json!(9_007_199_254_740_992_u64),
            json!(9_007_199_254_740_993_u64),
            json!(9_007_199_254_740_994.0),
            json!(u64::MAX),
            json!(1e300),
        ];
        for (at, a) in numbers.iter().enumerate() {
            for (other, b) in numbers.iter().enumerate() {
                assert_eq!(compare(a, b), at.cmp(&other), "{a} {b}");
            }
        }
        assert_eq!(
            compare(&json!(9_007_199_254_740_992_u64), &json!(9_007_199_254_740_992.0)),
            Ordering::Equal
        );
        assert_eq!(compare(&json!(-0.0), &json!(0.0)), Ordering::Equal, "both are 0");
    }
}
