//! What the original makes of the same rules: see `tests/clients/cel-vectors`.

use std::sync::Arc;

use serde_json::Value as Json;
use sheaf_cel::{OldSelf, Value, compile};

use super::{declaration, host::HOST};
use crate::schema::Schema;

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
