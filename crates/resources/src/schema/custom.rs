//! Everything a definition says of an object of its kind.

use serde_json::Value;

use super::correlation::Correlation;
use super::rules::{BUDGET, Rules};
use super::validate::{after, validate};
use super::{Schema, embedded, list_type};
use crate::field_error::{FieldError, FieldErrorKind, FieldPath};

/// Adds what is wrong with `new` to `errors`, and gives back what is only to be warned of.
///
/// What an update left alone is let pass, so that a definition may grow stricter than the objects there are. Rules
/// are not asked about an object whose shape is wrong already; `errors` may hold faults of its metadata.
pub fn judge(
    new: &Value,
    old: Option<&Value>,
    schema: &Schema,
    rules: Option<&Rules>,
    errors: &mut Vec<FieldError>,
) -> Vec<String> {
    let root = FieldPath::root();
    match old {
        None => errors.extend(validate(new, schema, &root)),
        Some(old) => {
            errors.extend(after(new, schema, &root, Correlation::new(new, old, schema)));
            errors.extend(embedded::validate(new, schema, &root));
            if list_type::validate(old, schema, &root).is_empty() {
                errors.extend(list_type::validate(new, schema, &root));
            }
        }
    }
    let Some(rules) = rules else { return Vec::new() };
    if errors.iter().any(is_about_the_shape) {
        let detail = "some validation rules were not checked because the object was invalid; correct the existing \
            errors to complete validation";
        errors.push(FieldError::invalid(&root, Value::Null, detail));
        return Vec::new();
    }
    let verdict = rules.validate(schema, new, old, &root, BUDGET);
    errors.extend(verdict.errors);
    verdict.warnings
}

fn is_about_the_shape(error: &FieldError) -> bool {
    matches!(
        error.kind,
        FieldErrorKind::NotSupported
            | FieldErrorKind::Required
            | FieldErrorKind::TooLong
            | FieldErrorKind::TooMany
            | FieldErrorKind::TypeInvalid
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn judged(schema: Value, new: Value, old: Option<Value>) -> (Vec<String>, Vec<String>) {
        let schema = Schema::parse(&schema).unwrap();
        let rules = Rules::compile(&schema);
        let mut errors = Vec::new();
        let warnings = judge(&new, old.as_ref(), &schema, rules.as_ref(), &mut errors);
        (errors.iter().map(ToString::to_string).collect(), warnings)
    }

    fn schema() -> Value {
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "short": {"type": "string", "maxLength": 3},
            "even": {"type": "integer", "x-kubernetes-validations": [{"rule": "self % 2 == 0", "message": "is odd"}]},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}}}}})
    }

    #[test]
    fn rules_are_not_asked_about_an_object_of_the_wrong_shape() {
        let (errors, _) = judged(schema(), json!({"spec": {"short": "long", "even": 3}}), None);
        assert_eq!(
            errors,
            [
                "spec.short: Too long: may not be more than 3 bytes",
                "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; \
                 correct the existing errors to complete validation",
            ]
        );
    }

    #[test]
    fn what_an_update_left_alone_is_not_held_against_it() {
        let old = json!({"spec": {"short": "long", "even": 3, "set": ["a", "a"]}});
        let (errors, warnings) = judged(schema(), old.clone(), None);
        assert!(errors.len() > 1 && warnings.is_empty());
        let new = json!({"spec": {"short": "long", "even": 3, "set": ["a", "a", "b"]}, "status": {}});
        let (errors, warnings) = judged(schema(), new, Some(old.clone()));
        assert_eq!(errors, Vec::<String>::new());
        assert_eq!(warnings, [r#"spec.even: Invalid value: "integer": is odd"#]);
        let changed = json!({"spec": {"short": "longer", "even": 5, "set": ["a"]}});
        assert!(judged(schema(), changed, Some(old)).0[0].starts_with("spec.short: Too long"));
    }
}
