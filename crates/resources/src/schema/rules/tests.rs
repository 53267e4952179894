//! What the original makes of the same rules: see `tests/clients/cel-vectors`.

use std::sync::Arc;

use serde_json::Value as Json;
use sheaf_cel::{OldSelf, Value, compile};

use super::{Rules, declaration, host::HOST};
use crate::{
    field_error::FieldPath,
    schema::{Schema, structural},
};

#[test]
fn expressions_mean_what_the_original_says() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in include_str!("expressions.txt").lines() {
        let group: Json = serde_json::from_str(line).unwrap();
        let schema = Schema::parse(&group["schema"]).unwrap();
        let declared = Arc::new(declaration::of(&schema, group["root"] == true));
        let optional = group["optional"] == true;
        let old = if optional { OldSelf::Optional } else { OldSelf::Required };
        for told in group["expressions"].as_array().unwrap() {
            count += 1;
            let rule = told["rule"].as_str().unwrap();
            let expected = Expected::read(told);
            let found = match compile(rule, &declared, old, &HOST) {
                Err(issues) => Expected {
                    issues: issues.strip_prefix("compilation failed: ").unwrap_or(&issues).to_owned(),
                    ..Expected::default()
                },
                Ok(program) => {
                    let before = group.get("oldSelf");
                    let outcome = program.run(&group["self"], before, 1_000_000);
                    Expected {
                        issues: String::new(),
                        result_type: program.result.to_string(),
                        estimate: Some(program.estimate),
                        result: match &outcome.result {
                            Ok(Value::Bool(flag)) => flag.to_string(),
                            Ok(_) => "?".to_owned(),
                            Err(_) => String::new(),
                        },
                        error: outcome.result.as_ref().err().map(ToString::to_string).unwrap_or_default(),
                        cost: Some(outcome.cost),
                    }
                }
            };
            if !expected.agrees_with(&found) {
                wrong.push(format!("{rule}\n   theirs: {expected:?}\n   ours:   {found:?}"));
            }
        }
    }
    assert!(count > 900, "only {count} expressions");
    assert!(wrong.is_empty(), "{} of {count} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[derive(Debug, Default, PartialEq)]
struct Expected {
    issues: String,
    result_type: String,
    estimate: Option<u64>,
    result: String,
    error: String,
    cost: Option<u64>,
}

impl Expected {
    fn read(told: &Json) -> Self {
        let text = |key: &str| told[key].as_str().unwrap_or_default().to_owned();
        Self {
            issues: text("issues"),
            result_type: text("type"),
            estimate: told["estimate"].as_u64(),
            result: text("result"),
            error: text("error"),
            cost: told["cost"].as_u64(),
        }
    }

    /// Syntax errors are the words of a parser generator: both must refuse, in their own words.
    fn agrees_with(&self, found: &Self) -> bool {
        let syntax = |text: &str| text.contains("Syntax error") || text.contains("error parsing regexp");
        if !self.issues.is_empty() {
            return self.issues == found.issues || (syntax(&self.issues) && syntax(&found.issues));
        }
        *self == *found
    }
}

fn sorted(errors: impl IntoIterator<Item = impl ToString>) -> Vec<String> {
    let mut texts: Vec<String> = errors.into_iter().map(|error| error.to_string()).collect();
    texts.sort();
    texts
}

fn told(document: &Json, key: &str) -> Vec<String> {
    document[key].as_array().into_iter().flatten().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// Without the words of a parser that is not ours.
fn settled(mut texts: Vec<String>) -> Vec<String> {
    for text in &mut texts {
        for words in ["Syntax error", "error parsing regexp"] {
            if let Some(at) = text.find(words) {
                text.truncate(at + words.len());
            }
        }
    }
    texts
}

#[test]
fn definitions_are_refused_as_the_original_refuses_them() {
    let path = FieldPath::new("spec.validation.openAPIV3Schema");
    let mut wrong = Vec::new();
    for line in include_str!("definitions.txt").lines() {
        let document: Json = serde_json::from_str(line).unwrap();
        let schema = Schema::parse(&document["schema"]).unwrap();
        let found = settled(sorted(structural::check(&schema, &path, false)));
        let expected = settled(told(&document, "errors"));
        if found != expected {
            wrong.push(format!("{}\n   theirs: {expected:#?}\n   ours:   {found:#?}", document["schema"]));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn objects_are_judged_as_the_original_judges_them() {
    let mut wrong = Vec::new();
    for line in include_str!("objects.txt").lines() {
        let document: Json = serde_json::from_str(line).unwrap();
        let schema = Schema::parse(&document["schema"]).unwrap();
        let rules = Rules::compile(&schema).unwrap();
        let budget = document["budget"].as_i64().unwrap();
        let verdict =
            rules.validate(&schema, &document["new"], document.get("old"), &FieldPath::root(), budget);
        let reasons = sorted(verdict.errors.iter().map(|error| error.reason()));
        let found = (sorted(&verdict.errors), reasons, sorted(&verdict.warnings), verdict.left);
        let expected = (
            told(&document, "errors"),
            told(&document, "reasons"),
            told(&document, "warnings"),
            document["left"].as_i64().unwrap(),
        );
        if found != expected {
            wrong.push(format!("{line}\n   theirs: {expected:#?}\n   ours:   {found:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

fn judged(schema: &Json, new: &Json, old: Option<&Json>) -> super::Verdict {
    let schema = Schema::parse(schema).unwrap();
    let rules = Rules::compile(&schema).unwrap();
    rules.validate(&schema, new, old, &FieldPath::root(), super::BUDGET)
}

/// An object with a list `l` of texts, each of which a rule is about.
fn list_with(rule: &str) -> Json {
    serde_json::json!({"type": "object", "properties": {"l": {"type": "array", "items": {
        "type": "string", "x-kubernetes-validations": [{"rule": rule}]}}}})
}

#[test]
fn a_rule_may_have_a_pattern_whose_program_is_large() {
    let verdict =
        judged(&list_with("self.matches('^[^/]{1,1024}$')"), &serde_json::json!({"l": ["a"]}), None);
    assert!(verdict.errors.is_empty(), "{:?}", verdict.errors);
    // Out of data, that takes too long for every object anew.
    let new = serde_json::json!({"l": ["[^/]{1,1024}"]});
    let verdict = judged(&list_with("'a'.matches(self)"), &new, None);
    assert!(verdict.errors[0].to_string().contains("error parsing regexp"), "{:?}", verdict.errors);
}

#[test]
fn patterns_out_of_data_are_counted_for_the_object_and_not_for_each_of_its_parts() {
    let items = |count: usize| serde_json::json!({"l": vec!["a"; count]});
    let schema = list_with("'a'.matches(self)");
    let spent = |count: usize| super::BUDGET - judged(&schema, &items(count), None).left;
    assert_eq!(spent(200), 2 * spent(100) + 100 * 1_000);
}

#[test]
fn a_rule_that_fails_for_every_item_is_told_a_thousand_times() {
    let new = serde_json::json!({"l": vec!["a"; 5_000]});
    let schema = list_with("self == 'b'");
    let verdict = judged(&schema, &new, None);
    assert_eq!(verdict.errors.len(), 1_001);
    assert!(verdict.errors[1_000].to_string().contains("4000 more errors were truncated"));
    let verdict = judged(&schema, &new, Some(&new));
    assert_eq!((verdict.errors.len(), verdict.warnings.len()), (0, 1_000));
}

#[test]
fn a_long_name_of_a_field_is_not_kept_for_every_field_inside() {
    use sheaf_cel::data::{Declaration, Shape};
    fn longest(declared: &Declaration) -> usize {
        let Shape::Object(object) = &declared.shape else { return 0 };
        object.properties.values().map(|inner| longest(inner)).fold(object.name.len(), usize::max)
    }
    let inside: serde_json::Map<String, Json> =
        (0..100).map(|n| (format!("f{n}"), serde_json::json!({"type": "object"}))).collect();
    let mut properties = serde_json::Map::new();
    properties.insert("x".repeat(100_000), serde_json::json!({"type": "object", "properties": inside}));
    let schema = serde_json::json!({"type": "object", "properties": properties});
    let declared = declaration::of(&Schema::parse(&schema).unwrap(), false);
    assert!((1..2_000).contains(&longest(&declared)), "{}", longest(&declared));
}
