//! What is wrong with one field of an object, said the way Kubernetes says it.
//!
//! Clients match on these texts (`spec.foo: Invalid value: "x": must be ...`), so the
//! wording, the quoting and the reasons are those of the original. This module does not
//! build Status objects: a [`FieldError`] knows its reason and its message, and
//! [`aggregate`] joins several into the one line that an `Invalid` Status carries.

use std::{collections::BTreeSet, fmt};

use serde_json::{Number, Value};

use crate::quote::quoted;

/// What kind of fault a field has. [`FieldErrorKind::reason`] is the `reason` of the
/// Status cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FieldErrorKind {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    Internal,
    TypeInvalid,
}

impl FieldErrorKind {
    /// The machine-readable word in `details.causes[].reason`.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::Internal => "InternalError",
            Self::TypeInvalid => "FieldValueTypeInvalid",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::Internal => "Internal error",
        }
    }

    /// Whether the offending value is part of the message.
    fn shows_value(self) -> bool {
        !matches!(self, Self::Required | Self::Forbidden | Self::TooLong | Self::Internal)
    }
}

/// One fault of one field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    pub kind: FieldErrorKind,
    /// The path of the field, e.g. `spec.foo[0].bar`; `<nil>` when it is the whole object.
    pub field: String,
    pub detail: String,
    /// The value found, where the message shows it. `None` leaves it out.
    pub bad_value: Option<Value>,
}

impl FieldError {
    fn new(kind: FieldErrorKind, field: &FieldPath, bad_value: Option<Value>, detail: String) -> Self {
        Self { kind, field: field.to_string(), detail, bad_value }
    }

    pub fn not_found(field: &FieldPath, value: impl Into<Value>) -> Self {
        Self::new(FieldErrorKind::NotFound, field, Some(value.into()), String::new())
    }

    pub fn required(field: &FieldPath, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Required, field, None, detail.into())
    }

    pub fn duplicate(field: &FieldPath, value: impl Into<Value>) -> Self {
        Self::new(FieldErrorKind::Duplicate, field, Some(value.into()), String::new())
    }

    pub fn invalid(field: &FieldPath, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Invalid, field, Some(value.into()), detail.into())
    }

    pub fn type_invalid(field: &FieldPath, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::TypeInvalid, field, Some(value.into()), detail.into())
    }

    /// `supported` is listed in the order given, each quoted.
    pub fn not_supported<S: AsRef<str>>(
        field: &FieldPath,
        value: impl Into<Value>,
        supported: impl IntoIterator<Item = S>,
    ) -> Self {
        let supported: Vec<String> = supported.into_iter().map(|word| quoted(word.as_ref())).collect();
        let detail = if supported.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", supported.join(", "))
        };
        Self::new(FieldErrorKind::NotSupported, field, Some(value.into()), detail)
    }

    pub fn forbidden(field: &FieldPath, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Forbidden, field, None, detail.into())
    }

    /// The value itself is never shown: it may be large.
    pub fn too_long(field: &FieldPath, max_bytes: u64) -> Self {
        let unit = if max_bytes == 1 { "byte" } else { "bytes" };
        let detail = format!("may not be more than {max_bytes} {unit}");
        Self::new(FieldErrorKind::TooLong, field, None, detail)
    }

    pub fn too_many(field: &FieldPath, found: u64, max: u64) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        let detail = format!("must have at most {max} {unit}");
        Self::new(FieldErrorKind::TooMany, field, Some(found.into()), detail)
    }

    pub fn internal(field: &FieldPath, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Internal, field, None, detail.into())
    }

    /// The `reason` of the Status cause.
    pub fn reason(&self) -> &'static str {
        self.kind.reason()
    }

    /// The message without the field: what a Status cause carries as `message`.
    pub fn body(&self) -> String {
        let mut text = String::from(self.kind.words());
        if self.kind.shows_value()
            && let Some(value) = &self.bad_value
        {
            text.push_str(": ");
            text.push_str(&go_value(value));
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

impl FieldError {
    /// About how long it is when it is told.
    fn size(&self) -> usize {
        let value = match &self.bad_value {
            Some(Value::String(text)) => text.len(),
            _ => 0,
        };
        self.field.len() + self.detail.len() + value
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

impl std::error::Error for FieldError {}

/// So many errors of one object are told: nobody reads more, and an object can have a million.
pub const MOST_ERRORS: usize = 1000;
/// And no more once this much was said: each carries the whole path to its field.
const MOST_BYTES: usize = 1024 * 1024;

/// Those of the errors that are told.
pub fn told(errors: &[FieldError]) -> &[FieldError] {
    let mut said = 0;
    let end = errors.iter().take(MOST_ERRORS).take_while(|error| {
        let goes_on = said < MOST_BYTES;
        said += error.size();
        goes_on
    });
    &errors[..end.count()]
}

/// Joins errors into one line: one error stands alone, several are bracketed, and the same
/// text is said once. Only those [`told`] are.
pub fn aggregate(errors: &[FieldError]) -> String {
    let mut said = BTreeSet::new();
    let mut texts: Vec<String> = told(errors).iter().map(ToString::to_string).collect();
    texts.retain(|text| said.insert(text.clone()));
    match texts.len() {
        1 => texts.remove(0),
        _ => format!("[{}]", texts.join(", ")),
    }
}

/// Where a field is: `spec.template[0].labels[app]`. Extending a path copies it, which is
/// fine where paths are made for errors; a walk over every field keeps its own trail.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldPath(String);

impl FieldPath {
    /// The whole object, written `<nil>`.
    pub fn root() -> Self {
        Self::default()
    }

    pub fn new(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// A named field. An empty name is the path itself.
    pub fn child(&self, name: &str) -> Self {
        match (self.0.is_empty(), name.is_empty()) {
            (true, _) => Self(name.to_owned()),
            (false, true) => self.clone(),
            (false, false) => Self(format!("{}.{name}", self.0)),
        }
    }

    /// An element of a list.
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    /// An entry of a map.
    pub fn key(&self, key: &str) -> Self {
        Self(format!("{}[{key}]", self.0))
    }

    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The text, empty for the whole object.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "<nil>" } else { &self.0 })
    }
}

/// A value as the original shows it in a message: scalars plainly, the rest as JSON.
pub(crate) fn go_value(value: &Value) -> String {
    match value {
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => go_number(number),
        Value::String(text) => quoted(text),
        // Go's encoder escapes these three even where JSON does not ask for it.
        other => other.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026"),
    }
}

/// A number as Go's `%v` prints it.
pub(crate) fn go_number(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() => go_float(float),
        _ => number.to_string(),
    }
}

/// A float as Go's `%v` prints it: shortest digits, exponent form from `1e+06` upwards
/// and below `0.0001`.
pub(crate) fn go_float(float: f64) -> String {
    if float == 0.0 {
        return String::from(if float.is_sign_negative() { "-0" } else { "0" });
    }
    let scientific = format!("{float:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..6).contains(&exponent) {
        format!("{float}")
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{mantissa}e{sign}{:02}", exponent.abs())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(path: &str) -> FieldPath {
        FieldPath::new(path)
    }

    #[test]
    fn messages_read_as_the_original_writes_them() {
        let foo = at("spec.foo");
        let cases = [
            (FieldError::required(&foo, ""), "spec.foo: Required value"),
            (FieldError::required(&foo, "must be set"), "spec.foo: Required value: must be set"),
            (FieldError::invalid(&foo, "x", "must be y"), r#"spec.foo: Invalid value: "x": must be y"#),
            (FieldError::invalid(&foo, 3, "too much"), "spec.foo: Invalid value: 3: too much"),
            (FieldError::invalid(&foo, Value::Null, "no"), "spec.foo: Invalid value: null: no"),
            (FieldError::duplicate(&foo, "x"), r#"spec.foo: Duplicate value: "x""#),
            (FieldError::duplicate(&foo, json!({"a": 1})), r#"spec.foo: Duplicate value: {"a":1}"#),
            (
                FieldError::not_supported(&foo, "x", ["a", "b"]),
                r#"spec.foo: Unsupported value: "x": supported values: "a", "b""#,
            ),
            (FieldError::forbidden(&foo, "not now"), "spec.foo: Forbidden: not now"),
            (FieldError::too_long(&foo, 63), "spec.foo: Too long: may not be more than 63 bytes"),
            (FieldError::too_many(&foo, 9, 8), "spec.foo: Too many: 9: must have at most 8 items"),
            (FieldError::not_found(&foo, "x"), r#"spec.foo: Not found: "x""#),
            (FieldError::internal(&foo, "oops"), "spec.foo: Internal error: oops"),
        ];
        for (error, text) in cases {
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn a_type_error_reads_invalid_but_has_its_own_reason() {
        let error = FieldError::type_invalid(&at("a"), "string", "a in body must be of type integer");
        assert_eq!(error.reason(), "FieldValueTypeInvalid");
        assert!(error.body().starts_with("Invalid value: "));
    }

    #[test]
    fn paths_name_fields_elements_and_entries() {
        let path = FieldPath::root().child("spec").child("list").index(2).child("map").key("a/b");
        assert_eq!(path.to_string(), "spec.list[2].map[a/b]");
        assert_eq!(FieldPath::root().to_string(), "<nil>");
    }

    #[test]
    fn one_error_stands_alone_and_several_are_bracketed_without_repeats() {
        let a = FieldError::required(&at("a"), "");
        let b = FieldError::required(&at("b"), "");
        assert_eq!(aggregate(std::slice::from_ref(&a)), "a: Required value");
        assert_eq!(aggregate(&[a.clone(), b, a]), "[a: Required value, b: Required value]");
    }

    #[test]
    fn of_very_many_errors_only_some_are_told() {
        let errors: Vec<_> = (0..500_000).map(|n| FieldError::required(&at("list").index(n), "")).collect();
        assert_eq!(told(&errors).len(), MOST_ERRORS);
        assert_eq!(aggregate(&errors).matches(", ").count(), MOST_ERRORS - 1);
        let long = at(&"x".repeat(MOST_BYTES));
        assert_eq!(told(&[FieldError::required(&long, ""), FieldError::required(&long, "")]).len(), 1);
    }

    #[test]
    fn values_are_shown_the_way_go_shows_them() {
        assert_eq!(go_float(1.5), "1.5");
        assert_eq!(go_float(100000.0), "100000");
        assert_eq!(go_float(2147483648.0), "2.147483648e+09");
        assert_eq!(go_float(0.00001), "1e-05");
        assert_eq!(go_float(-3.0), "-3");
    }
}
