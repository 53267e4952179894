//! Says what is wrong with an object, in the words of the original's validator.
//!
//! A message names the field twice, as clients are used to:
//! `spec.replicas: Invalid value: "string": spec.replicas in body must be of type integer: "string"`.
//! Fields are visited in sorted order, so that the same object always gets the same text.
//!
//! Beyond the schema proper this checks that lists declared sets or maps have no two equal
//! members ([`super::list_type`]), and that embedded resources say what they are
//! ([`super::embedded`]).

use serde_json::{Map, Number, Value};

use super::correlation::Correlation;
use super::trail::Trail;
use super::{Additional, Schema, ValueRules, embedded, format, list_type};
use crate::field_error::{FieldError, FieldPath, MOST_ERRORS, go_float, go_number};
use crate::quote::quoted;

/// Everything that is wrong with `value`, a value at `path` (the root for a whole object).
pub(super) fn validate(value: &Value, schema: &Schema, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = against_schema(value, schema, path);
    errors.extend(embedded::validate(value, schema, path));
    errors.extend(list_type::validate(value, schema, path));
    errors
}

/// The schema's own rules only.
pub(super) fn against_schema(value: &Value, schema: &Schema, path: &FieldPath) -> Vec<FieldError> {
    after(value, schema, path, Correlation::default())
}

/// The same for a value that changed: what is wrong in parts that are as they were is let pass.
pub(super) fn after(
    value: &Value,
    schema: &Schema,
    path: &FieldPath,
    was: Correlation<'_>,
) -> Vec<FieldError> {
    let judge = Judge { base: path };
    judge.value(value, schema, &Trail::Root, was).errors
}

/// What was found, and how many checks passed: of several failing alternatives the one that
/// came closest is reported.
#[derive(Default)]
struct Outcome {
    errors: Vec<FieldError>,
    passed: usize,
}

impl Outcome {
    fn merge(&mut self, other: Outcome) {
        self.passed += other.passed;
        for error in other.errors {
            self.add(error);
        }
    }

    fn add(&mut self, error: FieldError) {
        if self.errors.len() < MOST_ERRORS && !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    fn of(error: FieldError) -> Self {
        Self { errors: vec![error], passed: 0 }
    }

    fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }
}

struct Judge<'a> {
    base: &'a FieldPath,
}

impl Judge<'_> {
    fn value(&self, value: &Value, schema: &Schema, at: &Trail<'_>, was: Correlation<'_>) -> Outcome {
        let outcome = self.anew(value, schema, at, was);
        if !outcome.is_valid() && was.is_kept() {
            return Outcome { passed: outcome.passed, ..Outcome::default() };
        }
        outcome
    }

    fn anew(&self, value: &Value, schema: &Schema, at: &Trail<'_>, was: Correlation<'_>) -> Outcome {
        let mut outcome = self.kind(value, schema, at);
        let rules = schema.rules.as_deref();
        if value.is_null() {
            if let Some(rules) = rules {
                outcome.merge(self.allowed(value, rules, at));
            }
            return outcome;
        }
        if let Some(rules) = rules {
            outcome.merge(self.junctors(value, rules, at));
        }
        outcome.passed += 2;
        match value {
            Value::String(text) => {
                if let Some(rules) = rules {
                    outcome.merge(self.text(text, rules, at));
                }
                outcome.merge(self.format(text, schema, at));
            }
            Value::Number(number) => {
                if let Some(rules) = rules {
                    outcome.merge(self.number(number, rules, at));
                }
            }
            Value::Array(list) => outcome.merge(self.list(list, schema, at, was)),
            Value::Null | Value::Bool(_) | Value::Object(_) => {}
        }
        if let Some(rules) = rules {
            outcome.merge(self.allowed(value, rules, at));
        }
        outcome.passed += 2;
        if let Value::Object(map) = value {
            outcome.merge(self.object(map, schema, at, was));
        }
        outcome.passed += 1;
        outcome
    }

    fn kind(&self, value: &Value, schema: &Schema, at: &Trail<'_>) -> Outcome {
        let types: &[&str] = match &schema.kind {
            _ if schema.int_or_string => &["integer", "string"],
            Some(kind) => &[kind.as_str()],
            None => &[],
        };
        let format = format::effective(schema);
        let fine = Outcome { passed: 1, ..Outcome::default() };
        let (found, found_format) = match value {
            Value::Null => {
                return if types.is_empty() || schema.nullable || types.contains(&"null") {
                    fine
                } else {
                    self.wrong_type(at, &types.join(","), "null")
                };
            }
            Value::Bool(_) => ("boolean", ""),
            Value::Number(number) if number.is_f64() => ("number", "float64"),
            Value::Number(_) => ("integer", "int64"),
            Value::String(_) => ("string", ""),
            Value::Array(_) => ("array", ""),
            Value::Object(_) => ("object", ""),
        };
        if types.is_empty() && format.is_none() {
            return fine;
        }
        // 1.0 is an integer, and an integer is a number.
        let whole = value.as_f64().is_some_and(|float| found == "number" && float.fract() == 0.0);
        let fits = types.contains(&found)
            || (whole && types.contains(&"integer"))
            || (found == "integer" && types.contains(&"number"));
        match format {
            Some(format) if !value.is_string() && !value.is_array() && !fits && found_format != format => {
                self.wrong_type(at, format, found_format)
            }
            // A formatted string is judged by its format.
            Some(_) if value.is_string() && !types.contains(&"number") && !types.contains(&"integer") => fine,
            _ if !fits => self.wrong_type(at, &types.join(","), found),
            _ => fine,
        }
    }

    fn wrong_type(&self, at: &Trail<'_>, expected: &str, found: &str) -> Outcome {
        let detail = format!("{} in body must be of type {expected}: {}", at.name(), quoted(found));
        Outcome::of(FieldError::type_invalid(&self.path(at), found, detail))
    }

    fn junctors(&self, value: &Value, rules: &ValueRules, at: &Trail<'_>) -> Outcome {
        let mut outcome = Outcome::default();
        if !rules.any_of.is_empty() {
            let (valid, best) = self.alternatives(value, &rules.any_of, at, Stop::AtFirst);
            if valid == 0 {
                outcome.add(self.about(at, "must validate at least one schema (anyOf)"));
            }
            outcome.merge(best);
        }
        if !rules.one_of.is_empty() {
            let (valid, best) = self.alternatives(value, &rules.one_of, at, Stop::Never);
            match valid {
                0 => outcome
                    .add(self.about(at, "must validate one and only one schema (oneOf). Found none valid")),
                1 => {}
                many => outcome.add(self.about(
                    at,
                    &format!(
                        "must validate one and only one schema (oneOf). Found {many} valid alternatives"
                    ),
                )),
            }
            if valid <= 1 {
                outcome.merge(best);
            }
        }
        if !rules.all_of.is_empty() {
            let mut valid = 0;
            for schema in &rules.all_of {
                let result = self.value(value, schema, at, Correlation::default());
                valid += usize::from(result.is_valid());
                outcome.merge(result);
            }
            if valid < rules.all_of.len() {
                let none = if valid == 0 { ". None validated" } else { "" };
                outcome.add(self.about(at, &format!("must validate all the schemas (allOf){none}")));
            }
        }
        if let Some(not) = &rules.not
            && self.value(value, not, at, Correlation::default()).is_valid()
        {
            outcome.add(self.about(at, "must not validate the schema (not)"));
        }
        outcome.passed += 1;
        outcome
    }

    /// How many alternatives hold, and the first that does or else the one that came
    /// closest.
    fn alternatives(
        &self,
        value: &Value,
        schemas: &[Schema],
        at: &Trail<'_>,
        stop: Stop,
    ) -> (usize, Outcome) {
        let mut valid = 0;
        let mut best: Option<Outcome> = None;
        for schema in schemas {
            let result = self.value(value, schema, at, Correlation::default());
            if result.is_valid() {
                valid += 1;
                if valid == 1 {
                    best = Some(result);
                }
                if stop == Stop::AtFirst {
                    break;
                }
            } else if valid == 0 && best.as_ref().is_none_or(|best| result.passed > best.passed) {
                best = Some(result);
            }
        }
        (valid, best.unwrap_or_default())
    }

    fn text(&self, text: &str, rules: &ValueRules, at: &Trail<'_>) -> Outcome {
        let length = || i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
        if let Some(max) = rules.max_length
            && length() > max
        {
            return Outcome::of(FieldError::too_long(&self.path(at), u64::try_from(max).unwrap_or(0)));
        }
        if let Some(min) = rules.min_length
            && length() < min
        {
            return self.broken(at, text, &format!("should be at least {min} chars long"));
        }
        match rules.pattern.as_ref().map(|pattern| (pattern, pattern.matches(text))) {
            Some((pattern, Ok(false))) => {
                self.broken(at, text, &format!("should match '{}'", pattern.as_str()))
            }
            Some((pattern, Err(why))) => self.broken(
                at,
                text,
                &format!("should match '{}, but pattern is invalid: {why}'", pattern.as_str()),
            ),
            Some((_, Ok(true))) | None => Outcome::default(),
        }
    }

    fn format(&self, text: &str, schema: &Schema, at: &Trail<'_>) -> Outcome {
        match format::effective(schema) {
            Some(format) if !format::fits(format, text) => self.wrong_type(at, format, text),
            _ => Outcome::default(),
        }
    }

    fn number(&self, number: &Number, rules: &ValueRules, at: &Trail<'_>) -> Outcome {
        let mut outcome = Outcome { passed: 1, ..Outcome::default() };
        let mut broken = |rule: String| outcome.merge(self.broken(at, Value::Number(number.clone()), &rule));
        if let Some(factor) = &rules.multiple_of
            && !is_multiple(number, factor)
        {
            broken(format!("should be a multiple of {}", bound(number, factor)));
        }
        if let Some(min) = &rules.minimum {
            let order = compare(number, min);
            if order.is_lt() || (rules.exclusive_minimum && order.is_eq()) {
                let or_equal = if rules.exclusive_minimum { "" } else { " or equal to" };
                broken(format!("should be greater than{or_equal} {}", bound(number, min)));
            }
        }
        if let Some(max) = &rules.maximum {
            let order = compare(number, max);
            if order.is_gt() || (rules.exclusive_maximum && order.is_eq()) {
                let or_equal = if rules.exclusive_maximum { "" } else { " or equal to" };
                broken(format!("should be less than{or_equal} {}", bound(number, max)));
            }
        }
        outcome
    }

    fn list(&self, list: &[Value], schema: &Schema, at: &Trail<'_>, was: Correlation<'_>) -> Outcome {
        let mut outcome = Outcome { passed: 1, ..Outcome::default() };
        if let Some(items) = &schema.items {
            let were = was.inside();
            for (index, item) in list.iter().enumerate() {
                let was = were.element(index);
                outcome.merge(self.value(item, items, &Trail::Element(at, index), was));
            }
        }
        let Some(rules) = &schema.rules else { return outcome };
        let size = i64::try_from(list.len()).unwrap_or(i64::MAX);
        if let Some(min) = rules.min_items
            && size < min
        {
            outcome.merge(self.broken(at, size, &format!("should have at least {min} items")));
        }
        if let Some(max) = rules.max_items
            && size > max
        {
            outcome.add(self.too_many(at, list.len(), max));
        }
        if rules.unique_items && list.iter().enumerate().any(|(at, item)| list[..at].contains(item)) {
            outcome.merge(self.broken(at, "", "shouldn't contain duplicates"));
        }
        outcome
    }

    fn allowed(&self, value: &Value, rules: &ValueRules, at: &Trail<'_>) -> Outcome {
        if rules.allowed.is_empty() || rules.allowed.iter().any(|allowed| same(value, allowed)) {
            return Outcome::default();
        }
        let supported = rules.allowed.iter().map(|allowed| match allowed {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        });
        Outcome::of(FieldError::not_supported(&self.path(at), value.clone(), supported))
    }

    fn object(
        &self,
        map: &Map<String, Value>,
        schema: &Schema,
        at: &Trail<'_>,
        was: Correlation<'_>,
    ) -> Outcome {
        let size = i64::try_from(map.len()).unwrap_or(i64::MAX);
        if let Some(rules) = &schema.rules {
            if let Some(min) = rules.min_properties
                && size < min
            {
                return self.broken(at, size, &format!("should have at least {min} properties"));
            }
            if let Some(max) = rules.max_properties
                && size > max
            {
                return Outcome::of(self.too_many(at, map.len(), max));
            }
        }
        let were = was.inside();
        let mut outcome = Outcome::default();
        let mut names: Vec<&String> = map.keys().collect();
        names.sort_unstable();
        for name in names {
            let Some(value) = map.get(name) else { continue };
            let here = Trail::Field(at, name);
            match (schema.properties.get(name), &schema.additional_properties) {
                (Some(inner), _) => outcome.merge(self.value(value, inner, &here, were.field(name))),
                (None, Some(Additional::Schema(inner))) => {
                    outcome.merge(self.value(value, inner, &here, were.field(name)));
                }
                (None, Some(Additional::Allowed(false))) => {
                    let detail = format!("{} in body is a forbidden property", here.name());
                    outcome.add(FieldError::invalid(&self.path(at), name.as_str(), detail));
                }
                (None, Some(Additional::Allowed(true)) | None) => {}
            }
        }
        for name in schema.required() {
            if !map.contains_key(&**name) {
                outcome.add(FieldError::required(&self.path(&Trail::Field(at, name)), ""));
            }
        }
        outcome
    }

    fn too_many(&self, at: &Trail<'_>, found: usize, max: i64) -> FieldError {
        FieldError::too_many(&self.path(at), found as u64, u64::try_from(max).unwrap_or(0))
    }

    fn broken(&self, at: &Trail<'_>, value: impl Into<Value>, rule: &str) -> Outcome {
        let detail = format!("{} in body {rule}", at.name());
        Outcome::of(FieldError::invalid(&self.path(at), value, detail))
    }

    /// A fault of a junctor is reported on the object as a whole, with the field in the
    /// text.
    fn about(&self, at: &Trail<'_>, rule: &str) -> FieldError {
        FieldError::invalid(self.base, "", format!("{} {rule}", quoted(&at.name())))
    }

    fn path(&self, at: &Trail<'_>) -> FieldPath {
        at.path(self.base)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    AtFirst,
    Never,
}

/// Equality of JSON values where `1` and `1.0` are the same number.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare(a, b).is_eq(),
        _ => a == b,
    }
}

fn compare(a: &Number, b: &Number) -> std::cmp::Ordering {
    match (a.as_i128(), b.as_i128()) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ => {
            let (a, b) = (a.as_f64().unwrap_or_default(), b.as_f64().unwrap_or_default());
            a.partial_cmp(&b).unwrap_or(std::cmp::Ordering::Equal)
        }
    }
}

fn is_multiple(number: &Number, factor: &Number) -> bool {
    match (number.as_i128(), factor.as_i128()) {
        (_, Some(0)) => true,
        (Some(number), Some(factor)) => number % factor == 0,
        _ => {
            let (number, factor) = (number.as_f64().unwrap_or_default(), factor.as_f64().unwrap_or(1.0));
            let quotient = if factor < 1.0 { 1.0 / factor * number } else { number / factor };
            // Decimal fractions are not exact, so a hair's breadth is forgiven.
            !quotient.is_finite() || (quotient - quotient.round()).abs() <= 1e-9 * quotient.abs().max(1.0)
        }
    }
}

/// A bound as it is printed next to the number it was compared with.
fn bound(number: &Number, bound: &Number) -> String {
    match bound.as_f64() {
        Some(float) if number.is_f64() => go_float(float),
        Some(float) if float.fract() == 0.0 && float.abs() < 9e15 => format!("{float:.0}"),
        _ => go_number(bound),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn errors(schema: Value, value: Value) -> Vec<String> {
        let schema = Schema::parse(&schema).unwrap();
        validate(&value, &schema, &FieldPath::root()).iter().map(ToString::to_string).collect()
    }

    fn on_field(field: Value, value: Value) -> Vec<String> {
        let schema = json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {"f": field}}}});
        errors(schema, json!({"spec": {"f": value}}))
    }

    #[test]
    fn of_very_many_errors_only_some_are_found() {
        let found =
            on_field(json!({"type": "array", "items": {"type": "integer"}}), json!(vec!["x"; 200_000]));
        assert_eq!(found.len(), MOST_ERRORS);
    }

    #[test]
    fn a_wrong_type_is_named_twice_as_clients_expect() {
        assert_eq!(
            on_field(json!({"type": "integer"}), json!("x")),
            [r#"spec.f: Invalid value: "string": spec.f in body must be of type integer: "string""#]
        );
        assert_eq!(
            on_field(json!({"type": "integer", "format": "int32"}), json!(1.5)),
            [r#"spec.f: Invalid value: "float64": spec.f in body must be of type int32: "float64""#]
        );
        assert_eq!(
            on_field(json!({"type": "string"}), json!(null)),
            [r#"spec.f: Invalid value: "null": spec.f in body must be of type string: "null""#]
        );
        assert_eq!(
            on_field(json!({"x-kubernetes-int-or-string": true}), json!(true)),
            [r#"spec.f: Invalid value: "boolean": spec.f in body must be of type integer,string: "boolean""#]
        );
    }

    #[test]
    fn whole_floats_are_integers_and_integers_are_numbers() {
        assert!(on_field(json!({"type": "integer"}), json!(3.0)).is_empty());
        assert!(on_field(json!({"type": "number"}), json!(3)).is_empty());
        assert!(on_field(json!({"type": "string", "nullable": true}), json!(null)).is_empty());
    }

    #[test]
    fn limits_are_worded_as_the_original_words_them() {
        let cases = [
            (
                json!({"minimum": 1}),
                json!(0),
                "Invalid value: 0: spec.f in body should be greater than or equal to 1",
            ),
            (
                json!({"minimum": 1, "exclusiveMinimum": true}),
                json!(1),
                "Invalid value: 1: spec.f in body should be greater than 1",
            ),
            (
                json!({"maximum": 9}),
                json!(10),
                "Invalid value: 10: spec.f in body should be less than or equal to 9",
            ),
            (
                json!({"maximum": 9.5}),
                json!(10.25),
                "Invalid value: 10.25: spec.f in body should be less than or equal to 9.5",
            ),
            (
                json!({"multipleOf": 3}),
                json!(10),
                "Invalid value: 10: spec.f in body should be a multiple of 3",
            ),
            (
                json!({"minLength": 2}),
                json!("é"),
                r#"Invalid value: "é": spec.f in body should be at least 2 chars long"#,
            ),
            (json!({"maxLength": 2}), json!("abc"), "Too long: may not be more than 2 bytes"),
            (
                json!({"pattern": "^a$"}),
                json!("b"),
                r#"Invalid value: "b": spec.f in body should match '^a$'"#,
            ),
            (
                json!({"minItems": 1}),
                json!([]),
                "Invalid value: 0: spec.f in body should have at least 1 items",
            ),
            (json!({"maxItems": 1}), json!([1, 2]), "Too many: 2: must have at most 1 item"),
            (
                json!({"uniqueItems": true}),
                json!([1, 1]),
                r#"Invalid value: "": spec.f in body shouldn't contain duplicates"#,
            ),
            (
                json!({"minProperties": 1}),
                json!({}),
                "Invalid value: 0: spec.f in body should have at least 1 properties",
            ),
            (json!({"maxProperties": 1}), json!({"a": 1, "b": 2}), "Too many: 2: must have at most 1 item"),
            (
                json!({"enum": ["a", "b", 3]}),
                json!("c"),
                r#"Unsupported value: "c": supported values: "a", "b", "3""#,
            ),
            (
                json!({"type": "string", "format": "ipv4"}),
                json!("x"),
                r#"Invalid value: "x": spec.f in body must be of type ipv4: "x""#,
            ),
            (
                json!({"type": "object", "additionalProperties": false}),
                json!({"q": 1}),
                r#"Invalid value: "q": spec.f.q in body is a forbidden property"#,
            ),
        ];
        for (schema, value, text) in cases {
            assert_eq!(on_field(schema, value), [format!("spec.f: {text}")]);
        }
    }

    #[test]
    fn lengths_count_characters_not_bytes() {
        assert!(on_field(json!({"type": "string", "maxLength": 2}), json!("éé")).is_empty());
    }

    #[test]
    fn required_fields_are_asked_for_where_their_parent_is() {
        let schema = json!({"type": "object", "required": ["spec"], "properties": {
            "spec": {"type": "object", "required": ["a"]},
            "list": {"type": "array", "items": {"type": "object", "required": ["b"]}}}});
        assert_eq!(errors(schema.clone(), json!({})), ["spec: Required value"]);
        assert_eq!(
            errors(schema, json!({"spec": {}, "list": [{}]})),
            ["list[0].b: Required value", "spec.a: Required value"]
        );
    }

    #[test]
    fn junctors_complain_about_the_whole_object_and_show_the_nearest_miss() {
        assert_eq!(
            on_field(json!({"anyOf": [{"minimum": 5}, {"maximum": -5}]}), json!(0)),
            [
                r#"<nil>: Invalid value: "": "spec.f" must validate at least one schema (anyOf)"#,
                "spec.f: Invalid value: 0: spec.f in body should be greater than or equal to 5",
            ]
        );
        assert_eq!(
            on_field(json!({"oneOf": [{"minimum": 1}, {"minimum": 2}]}), json!(3)),
            [
                r#"<nil>: Invalid value: "": "spec.f" must validate one and only one schema (oneOf). Found 2 valid alternatives"#
            ]
        );
        assert_eq!(
            on_field(json!({"not": {"minimum": 1}}), json!(3)),
            [r#"<nil>: Invalid value: "": "spec.f" must not validate the schema (not)"#]
        );
        assert_eq!(
            on_field(json!({"allOf": [{"minimum": 1}, {"maximum": 2}]}), json!(3)),
            [
                "spec.f: Invalid value: 3: spec.f in body should be less than or equal to 2",
                r#"<nil>: Invalid value: "": "spec.f" must validate all the schemas (allOf)"#,
            ]
        );
    }

    #[test]
    fn a_path_given_stands_before_every_field() {
        let schema =
            Schema::parse(&json!({"type": "object", "properties": {"a": {"type": "string"}}})).unwrap();
        let found = validate(&json!({"a": 1}), &schema, &FieldPath::new("default"));
        assert_eq!(found[0].field, "default.a");
    }
}
