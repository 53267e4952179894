//! Whether the rules of a definition may stand: what they say makes sense, and what they can cost is bounded.

use super::{Compiled, Rules, declaration::MAX_REQUEST, field_path, rule, rule::Rule};
use crate::{
    field_error::{FieldError, FieldPath},
    schema::{Additional, Schema, SchemaType},
};

/// The most one rule may be estimated to cost.
const PER_RULE: u64 = 10_000_000;
/// The most all rules of a schema together may.
const PER_SCHEMA: u64 = 100_000_000;
/// How many of the most expensive are named when it is too much together.
const NAMED: usize = 4;

const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// What is wrong with the texts of the rules: what can be told without compiling them.
pub(in crate::schema) fn texts(schema: &Schema, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let here = path.child("x-kubernetes-validations");
    let validations = schema.extra.as_ref().and_then(|extra| extra.validations.as_ref());
    for (index, json) in validations.and_then(|list| list.as_array()).into_iter().flatten().enumerate() {
        let at = here.index(index);
        let wrong = rule::misfits(json);
        if !wrong.is_empty() {
            errors.extend(wrong.into_iter().map(|(field, found, wanted)| {
                FieldError::invalid(&at.child(field), found, format!("must be {wanted}"))
            }));
            continue;
        }
        text(&Rule::read(json), schema, &at, errors);
    }
}

fn text(rule: &Rule, schema: &Schema, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let breaks = |text: &str| text.contains(['\n', '\r']);
    let message = rule.message.as_deref().map(str::trim);
    if rule.rule.trim().is_empty() {
        errors.push(FieldError::required(&at.child("rule"), "rule is not specified"));
    } else if let (Some(given), Some("")) = (&rule.message, message) {
        errors.push(FieldError::invalid(
            &at.child("message"),
            given.as_str(),
            "must be non-empty if specified",
        ));
    } else if let (Some(given), Some(_)) = (&rule.message, message.filter(|message| breaks(message))) {
        errors.push(FieldError::invalid(
            &at.child("message"),
            given.as_str(),
            "must not contain line breaks",
        ));
    } else if message.is_none() && breaks(rule.rule.trim()) {
        let detail = "message must be specified if rule contains line breaks";
        errors.push(FieldError::required(&at.child("message"), detail));
    }
    if rule.message_expression.as_deref().is_some_and(|source| source.trim().is_empty()) {
        let detail = "messageExpression must be non-empty if specified";
        errors.push(FieldError::required(&at.child("messageExpression"), detail));
    }
    if let Some(reason) = rule.reason.as_deref().filter(|reason| !REASONS.contains(reason)) {
        errors.push(FieldError::not_supported(&at.child("reason"), reason, REASONS));
    }
    if let Some(path) = &rule.field_path {
        let here = at.child("fieldPath");
        let mut refuse = |detail: &str| errors.push(FieldError::invalid(&here, path.as_str(), detail));
        if path.trim().is_empty() {
            refuse("must be non-empty if specified");
        }
        if breaks(path) {
            refuse("must not contain line breaks");
        }
        if field_path::resolve(path, schema).is_none() {
            refuse("must be a valid path");
        }
    }
}

/// What is wrong with compiled rules of a schema that is right otherwise.
pub(in crate::schema) fn check(rules: &Rules, schema: &Schema, path: &FieldPath) -> Vec<FieldError> {
    let mut judge = Judge { errors: Vec::new(), total: 0, expensive: Vec::new() };
    judge.node(rules, schema, path, Place { most: Some(1), uncorrelatable: None });
    if judge.total > PER_SCHEMA {
        let detail =
            "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
        for (_, at) in &judge.expensive {
            judge.errors.push(FieldError::forbidden(at, detail));
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        judge.errors.push(FieldError::forbidden(path, too_expensive(what, judge.total, PER_SCHEMA)));
    }
    judge.errors
}

/// The estimated cost of all rules together.
pub(super) fn total(rules: &Rules, schema: &Schema) -> u64 {
    let mut judge = Judge { errors: Vec::new(), total: 0, expensive: Vec::new() };
    judge.node(rules, schema, &FieldPath::root(), Place { most: Some(1), uncorrelatable: None });
    judge.total
}

/// Where in an object a schema applies.
#[derive(Clone, Copy)]
struct Place<'p> {
    /// How often at most; nothing if only the size of a request bounds it.
    most: Option<u64>,
    /// The nearest list around it whose elements cannot be told apart from one write to the next.
    uncorrelatable: Option<&'p FieldPath>,
}

struct Judge {
    errors: Vec<FieldError>,
    total: u64,
    expensive: Vec<(u64, FieldPath)>,
}

impl Judge {
    fn node(&mut self, rules: &Rules, schema: &Schema, path: &FieldPath, place: Place<'_>) {
        let inner =
            Place { most: place.most.and_then(|most| Some(most.saturating_mul(elements(schema)?))), ..place };
        if let (Some(rules), Some(Additional::Schema(values))) =
            (&rules.additional, &schema.additional_properties)
        {
            self.node(rules, values, &path.child("additionalProperties"), inner);
        }
        for (name, rules) in &rules.properties {
            if let Some(field) = schema.properties.get(name) {
                self.node(rules, field, &path.child("properties").key(name), inner);
            }
        }
        if let (Some(rules), Some(items)) = (&rules.items, &schema.items) {
            let mut place = inner;
            if schema.list_type() != Some("map") {
                place.uncorrelatable = place.uncorrelatable.or(Some(path));
            }
            self.node(rules, items, &path.child("items"), place);
        }
        let here = path.child("x-kubernetes-validations");
        if rules.untyped {
            let detail = "internal error: failed to construct type information for x-kubernetes-validations rules: \
                unable to convert structural schema to CEL declarations";
            self.errors.push(FieldError::internal(&here, detail));
        }
        for (index, compiled) in rules.own.iter().enumerate() {
            self.rule(compiled, rules, &here.index(index), place);
        }
    }

    fn rule(&mut self, compiled: &Compiled, rules: &Rules, at: &FieldPath, place: Place<'_>) {
        let here = at.child("rule");
        let times = place.most.unwrap_or(MAX_REQUEST / (rules.min_size + 1));
        let program = match &compiled.program {
            Ok(program) => program,
            Err(why) => return self.uncompiled(&here, compiled, why),
        };
        self.cost(program.estimate.saturating_mul(times), "estimated rule cost", &here);
        match &compiled.message {
            Some(Err(why)) => {
                let here = at.child("messageExpression");
                let why = match why.starts_with("messageExpression") {
                    true => why.clone(),
                    false => {
                        format!("messageExpression {}", why.replace("program instantiation", "instantiation"))
                    }
                };
                self.uncompiled(&here, compiled, &why);
            }
            Some(Ok(message)) => {
                self.cost(
                    message.estimate,
                    "estimated messageExpression cost",
                    &at.child("messageExpression"),
                );
            }
            None => {}
        }
        if program.uses_old_self {
            if let Some(list) = place.uncorrelatable {
                let detail = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {list}"
                );
                self.errors.push(FieldError::invalid(&here, compiled.rule.rule.as_str(), detail));
            }
        } else if let Some(given) = compiled.rule.optional_old_self {
            let detail = "may not be set if oldSelf is not used in rule";
            self.errors.push(FieldError::invalid(&at.child("optionalOldSelf"), given, detail));
        }
    }

    fn uncompiled(&mut self, at: &FieldPath, compiled: &Compiled, why: &str) {
        // The whole rule is shown, its parts in their own order, which a JSON object here does not keep.
        let mut error = FieldError::invalid(at, "", format!("{}: {why}", compiled.rule.show()));
        error.bad_value = None;
        self.errors.push(error);
    }

    fn cost(&mut self, cost: u64, what: &str, at: &FieldPath) {
        if cost > PER_RULE {
            self.errors.push(FieldError::forbidden(at, too_expensive(what, cost, PER_RULE)));
        }
        self.total = self.total.saturating_add(cost);
        if cost >= PER_SCHEMA / 100 {
            self.expensive.push((cost, at.clone()));
            self.expensive.sort_by(|(one, _), (other, _)| other.cmp(one));
            self.expensive.truncate(NAMED);
        }
    }
}

/// By how much a schema multiplies what is inside it; nothing if there is no bound.
fn elements(schema: &Schema) -> Option<u64> {
    let rules = schema.rules.as_deref();
    let bound = match (&schema.kind, &schema.additional_properties) {
        (Some(SchemaType::Array), _) => rules?.max_items?,
        (Some(SchemaType::Object), Some(_)) => rules?.max_properties?,
        _ => 1,
    };
    Some(u64::try_from(bound).unwrap_or(0))
}

fn too_expensive(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let shown = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {shown} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}
