//! One rule as it is written in a schema.

use serde_json::Value;

use crate::{field_error::go_value, schema::Schema};

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Rule {
    pub rule: String,
    pub message: Option<String>,
    pub message_expression: Option<String>,
    pub reason: Option<String>,
    pub field_path: Option<String>,
    pub optional_old_self: Option<bool>,
}

/// The rules of a schema, without those inside it.
pub(super) fn written(schema: &Schema) -> Vec<Rule> {
    let validations = schema.extra.as_ref().and_then(|extra| extra.validations.as_ref());
    validations.and_then(Value::as_array).into_iter().flatten().map(Rule::read).collect()
}

/// The parts of a rule that are of the wrong type: which, what was found, what is wanted.
pub(super) fn misfits(json: &Value) -> Vec<(&'static str, Value, &'static str)> {
    let Value::Object(parts) = json else { return vec![("", json.clone(), "an object")] };
    let texts = ["rule", "message", "messageExpression", "reason", "fieldPath"];
    let texts = texts.map(|name| (name, "a string", Value::is_string as fn(&Value) -> bool));
    let all = texts.into_iter().chain([(
        "optionalOldSelf",
        "true or false",
        Value::is_boolean as fn(&Value) -> bool,
    )]);
    all.filter_map(|(name, wanted, fits)| {
        let found = parts.get(name).filter(|found| !found.is_null() && !fits(found))?;
        Some((name, found.clone(), wanted))
    })
    .collect()
}

impl Rule {
    pub(super) fn read(json: &Value) -> Self {
        // What is empty is as good as not there.
        let text = |key: &str| json[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        Self {
            rule: text("rule").unwrap_or_default(),
            message: text("message"),
            message_expression: text("messageExpression"),
            reason: text("reason"),
            field_path: text("fieldPath"),
            optional_old_self: json["optionalOldSelf"].as_bool(),
        }
    }

    /// What is said when it fails and nothing else says why.
    pub(super) fn failure(&self) -> String {
        match &self.message {
            Some(message) => message.trim().to_owned(),
            None => format!("failed rule: {}", self.rule.trim()),
        }
    }

    /// How it is called where it could not be evaluated.
    pub(super) fn name(&self) -> &str {
        self.message.as_deref().unwrap_or(&self.rule).trim()
    }

    /// The whole rule, as the original shows it in a message.
    pub(super) fn show(&self) -> String {
        let text =
            |text: &Option<String>| go_value(&Value::Array(vec![text.clone().unwrap_or_default().into()]));
        let quoted = |field: &Option<String>| {
            let list = text(field);
            list[1..list.len() - 1].to_owned()
        };
        let reason = if self.reason.is_some() { quoted(&self.reason) } else { "null".to_owned() };
        let optional = self.optional_old_self.map_or("null".to_owned(), |flag| flag.to_string());
        format!(
            r#"{{"Rule":{},"Message":{},"MessageExpression":{},"Reason":{reason},"FieldPath":{},"OptionalOldSelf":{optional}}}"#,
            quoted(&Some(self.rule.clone())),
            quoted(&self.message),
            quoted(&self.message_expression),
            quoted(&self.field_path),
        )
    }
}
