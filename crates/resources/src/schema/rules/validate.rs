//! Runs the rules of a schema on an object.

use std::cell::OnceCell;

use serde_json::Value as Json;
use sheaf_cel::{Fault, Meter, Program, Value};

use super::{Compiled, Rules};
use crate::{
    field_error::{FieldError, FieldPath},
    schema::{
        Additional, Schema,
        correlation::{Correlation, Elements},
    },
};

/// The most all rules of one object may cost.
pub const BUDGET: i64 = 10_000_000;
/// The most one of them may.
const PER_RULE: u64 = 1_000_000;
/// The longest message an expression may give, in bytes.
const LONGEST_MESSAGE: usize = 5 * 1024;

/// How many errors, and how many warnings, are told of one object: a rule about items can fail for each of a million.
const MOST_TOLD: usize = 1_000;

const SPENT: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// What rules say of an object.
#[derive(Debug, Default)]
pub struct Verdict {
    pub errors: Vec<FieldError>,
    /// What would be errors in a new object, and stands in parts that were not changed.
    pub warnings: Vec<String>,
    /// What is left of the budget; below zero if it did not suffice.
    pub left: i64,
}

impl Rules {
    /// Everything the rules hold against `new`, which stands at `path` and was `old`.
    pub fn validate(
        &self,
        schema: &Schema,
        new: &Json,
        old: Option<&Json>,
        path: &FieldPath,
        budget: i64,
    ) -> Verdict {
        let correlation = old.map_or_else(Correlation::default, |old| Correlation::new(new, old, schema));
        let verdict = Verdict { left: budget, ..Verdict::default() };
        let mut run = Run { verdict, meter: Meter::default(), untold: 0 };
        run.value(self, schema, new, old, correlation, path);
        run.end(path)
    }
}

struct Run {
    verdict: Verdict,
    /// What all rules have done so far, which costs do not tell.
    meter: Meter,
    /// How many errors and warnings there were beyond those that are told.
    untold: usize,
}

impl Run {
    /// What came of it, with a word about what is not told.
    fn end(mut self, path: &FieldPath) -> Verdict {
        if self.untold > 0 {
            let more = format!("{} more errors were truncated", self.untold);
            self.verdict.errors.push(FieldError::invalid(path, "object", more));
        }
        self.verdict
    }

    fn tell(&mut self, error: FieldError) {
        match self.verdict.errors.len() < MOST_TOLD {
            true => self.verdict.errors.push(error),
            false => self.untold += 1,
        }
    }

    fn is_spent(&self) -> bool {
        self.verdict.left < 0
    }

    fn value(
        &mut self,
        rules: &Rules,
        schema: &Schema,
        new: &Json,
        old: Option<&Json>,
        correlation: Correlation<'_>,
        path: &FieldPath,
    ) {
        // Rules are about values; what may be null is judged by what surrounds it.
        if new.is_null() {
            return;
        }
        self.own(rules, schema, new, old.filter(|old| !old.is_null()), correlation, path);
        match new {
            Json::Array(list) => self.list(rules, schema, list, old, correlation, path),
            Json::Object(map) => {
                let before = |name: &str| old.and_then(|old| old.get(name));
                let were = correlation.inside();
                if let (Some(inner), Some(Additional::Schema(values))) =
                    (&rules.additional, &schema.additional_properties)
                {
                    for (name, value) in map {
                        if self.is_spent() {
                            return;
                        }
                        self.value(inner, values, value, before(name), were.field(name), &path.key(name));
                    }
                }
                for (name, value) in map {
                    if self.is_spent() {
                        return;
                    }
                    if let (Some(inner), Some(field)) =
                        (rules.properties.get(name), schema.properties.get(name))
                    {
                        self.value(inner, field, value, before(name), were.field(name), &path.child(name));
                    }
                }
            }
            _ => {}
        }
    }

    fn list(
        &mut self,
        rules: &Rules,
        schema: &Schema,
        list: &[Json],
        old: Option<&Json>,
        correlation: Correlation<'_>,
        path: &FieldPath,
    ) {
        let (Some(inner), Some(items)) = (&rules.items, &schema.items) else { return };
        let before = Elements::of(schema, old.and_then(Json::as_array).map_or(&[], Vec::as_slice));
        let were = correlation.inside();
        for (index, value) in list.iter().enumerate() {
            if self.is_spent() {
                return;
            }
            self.value(inner, items, value, before.find(value), were.element(index), &path.index(index));
        }
    }

    /// The rules about this value itself.
    fn own(
        &mut self,
        rules: &Rules,
        schema: &Schema,
        new: &Json,
        old: Option<&Json>,
        correlation: Correlation<'_>,
        path: &FieldPath,
    ) {
        if rules.own.is_empty() || self.is_spent() {
            return;
        }
        let invalid = |detail: String| FieldError::invalid(path, schema.type_name(), detail);
        if self.verdict.left == 0 {
            return self.stop(invalid(SPENT.to_owned()));
        }
        // Asked for by each rule that fails, and found out by looking at all of the value.
        let unchanged = OnceCell::new();
        let is_unchanged = || *unchanged.get_or_init(|| correlation.is_unchanged());
        for compiled in &rules.own {
            let program = match &compiled.program {
                Ok(program) => program,
                Err(why) => {
                    self.tell(invalid(format!("rule compile error: {why}")));
                    continue;
                }
            };
            // A rule about a change says nothing about what is new, unless it asks to.
            if program.uses_old_self && old.is_none() && compiled.rule.optional_old_self != Some(true) {
                continue;
            }
            let outcome = program.run_within(new, old, PER_RULE, &mut self.meter);
            if !self.spend(outcome.cost) {
                return self.stop(invalid(SPENT.to_owned()));
            }
            let name = compiled.rule.name();
            match outcome.result {
                Ok(Value::Bool(true)) => {}
                Ok(_) => self.failed(compiled, program, schema, (new, old), &is_unchanged, path),
                Err(Fault::OverBudget) => {
                    let why = Fault::OverBudget;
                    let detail = format!(
                        "'{why}': no further validation rules will be run due to call cost exceeds limit for rule: {name}"
                    );
                    return self.stop(invalid(detail));
                }
                Err(Fault::Failed(why)) if why.starts_with("no such overload") => {
                    let detail = format!(
                        "'{why}': call arguments did not match a supported operator, function or macro signature for rule: {name}"
                    );
                    self.tell(invalid(detail));
                }
                Err(Fault::Failed(why)) => {
                    self.tell(invalid(format!("{why} evaluating rule: {name}")));
                }
            }
            if self.is_spent() {
                return;
            }
        }
    }

    /// Takes a cost from the budget; says whether it was there.
    fn spend(&mut self, cost: u64) -> bool {
        let Some(left) =
            i64::try_from(cost).ok().map(|cost| self.verdict.left - cost).filter(|left| *left >= 0)
        else {
            return false;
        };
        self.verdict.left = left;
        true
    }

    fn stop(&mut self, error: FieldError) {
        self.verdict.errors.push(error);
        self.verdict.left = -1;
    }

    fn failed(
        &mut self,
        compiled: &Compiled,
        program: &Program,
        schema: &Schema,
        (new, old): (&Json, Option<&Json>),
        is_unchanged: &dyn Fn() -> bool,
        path: &FieldPath,
    ) {
        let at = compiled.field_path.as_deref().map_or_else(|| path.clone(), |field| path.child(field));
        let kind = schema.type_name();
        let mut detail = compiled.rule.failure();
        let mut spent = None;
        if let Some(Ok(expression)) = &compiled.message {
            match self.message(compiled, expression, new, old) {
                Ok(Some(message)) => detail = message,
                Ok(None) => {}
                Err(why) => spent = Some(why),
            }
        }
        let error = match (&spent, compiled.rule.reason.as_deref()) {
            (Some(why), _) => FieldError::invalid(&at, kind, why.clone()),
            (None, Some("FieldValueForbidden")) => FieldError::forbidden(&at, detail),
            (None, Some("FieldValueRequired")) => FieldError::required(&at, detail),
            (None, Some("FieldValueDuplicate")) => FieldError::duplicate(&at, kind),
            (None, _) => FieldError::invalid(&at, kind, detail),
        };
        // What was wrong before and was left alone is let pass: a rule may be younger than the object.
        if program.uses_old_self || !is_unchanged() {
            self.tell(error);
        } else if self.verdict.warnings.len() < MOST_TOLD {
            self.verdict.warnings.push(error.to_string());
        }
        if spent.is_some() {
            self.verdict.left = -1;
        }
    }

    /// What the rule's own expression says; nothing if it says nothing of use, an error if there is no budget.
    fn message(
        &mut self,
        compiled: &Compiled,
        expression: &Program,
        new: &Json,
        old: Option<&Json>,
    ) -> Result<Option<String>, String> {
        let outcome = expression.run_within(new, old, PER_RULE, &mut self.meter);
        if !self.spend(outcome.cost) {
            let why = "messageExpression evaluation failed due to running out of cost budget, no further \
                validation rules will be run";
            return Err(why.to_owned());
        }
        match outcome.result {
            Ok(Value::String(text)) => {
                let text = text.trim();
                let fits = !text.is_empty() && text.len() <= LONGEST_MESSAGE && !text.contains('\n');
                Ok(fits.then(|| text.to_owned()))
            }
            Err(Fault::OverBudget) => {
                let source = compiled.rule.message_expression.as_deref().unwrap_or_default();
                let why = "no further validation rules will be run due to call cost exceeds limit for messageExpression";
                Err(format!("{why}: {}", crate::quote::quoted(source)))
            }
            _ => Ok(None),
        }
    }
}
