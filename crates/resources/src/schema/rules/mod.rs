//! Rules in CEL (`x-kubernetes-validations`): read, compiled, judged when a definition is written, run when an object
//! is.
//!
//! ```text
//!   definition written:  Rules::compile -> definition::check   (types, costs, where oldSelf may stand)
//!   object written:      Rules::validate                       (within a budget; unchanged parts are let pass)
//! ```
//!
//! - Compiled once per version of a definition, on its first use; running one copies nothing of the object.
//! - The language, its functions and its costs are `sheaf_cel`'s; this module knows where rules stand in a schema
//!   and in an object, and the original's words for what is wrong.
//! - Rules inside junctors are refused, as in the original, so they are not looked for here.

mod declaration;
pub(super) mod definition;
mod field_path;
mod host;
mod rule;
#[cfg(test)]
mod tests;
mod validate;

use std::{collections::BTreeMap, sync::Arc};

use sheaf_cel::{OldSelf, Program, Type, compile};

use self::{host::HOST, rule::Rule};
use super::{Additional, Schema};
use crate::field_error::FieldPath;

pub use self::validate::{BUDGET, Verdict};

/// The rules of a schema and of everything inside it that has some.
#[derive(Debug)]
pub struct Rules {
    own: Vec<Compiled>,
    /// Why there are none although some are written: no types are known here.
    untyped: bool,
    /// The fewest bytes a value here takes in a request.
    min_size: u64,
    properties: BTreeMap<String, Rules>,
    additional: Option<Box<Rules>>,
    items: Option<Box<Rules>>,
}

/// A rule and what became of it.
#[derive(Debug)]
struct Compiled {
    rule: Rule,
    program: Result<Program, String>,
    /// What says why it failed, if something does.
    message: Option<Result<Program, String>>,
    /// Where its failure is reported, below the value it is about.
    field_path: Option<String>,
}

impl Rules {
    /// The rules of a custom resource's schema; nothing if it has none.
    pub fn compile(schema: &Schema) -> Option<Self> {
        Self::of(schema, true)
    }

    /// The most that running them on one object can cost, before the budget ends it.
    pub fn estimate(&self, schema: &Schema) -> u64 {
        definition::total(self, schema)
    }

    fn of(schema: &Schema, is_resource: bool) -> Option<Self> {
        let child = |schema: &Schema| Self::of(schema, schema.embedded_resource);
        let properties: BTreeMap<String, Rules> = schema
            .properties
            .iter()
            .filter_map(|(name, field)| Some((name.to_owned(), child(field)?)))
            .collect();
        let additional = match &schema.additional_properties {
            Some(Additional::Schema(values)) => child(values).map(Box::new),
            _ => None,
        };
        let items = schema.items.as_deref().and_then(child).map(Box::new);
        let written = rule::written(schema);
        if written.is_empty() && properties.is_empty() && additional.is_none() && items.is_none() {
            return None;
        }
        let mut rules = Self { own: Vec::new(), untyped: false, min_size: 0, properties, additional, items };
        if !written.is_empty() {
            let declared = Arc::new(declaration::of(schema, is_resource));
            rules.min_size = declared.min_size;
            rules.untyped = !declared.is_known();
            if !rules.untyped {
                rules.own = written.into_iter().map(|rule| Compiled::of(rule, schema, &declared)).collect();
            }
        }
        Some(rules)
    }

    /// The rules right inside these, each with its schema and where that stands in the definition.
    pub(super) fn inside<'a>(
        &'a self,
        schema: &'a Schema,
        path: &FieldPath,
    ) -> Vec<(&'a Rules, &'a Schema, FieldPath)> {
        let mut found = Vec::new();
        if let (Some(rules), Some(Additional::Schema(values))) =
            (&self.additional, &schema.additional_properties)
        {
            found.push((&**rules, &**values, path.child("additionalProperties")));
        }
        for (name, rules) in &self.properties {
            if let Some(field) = schema.properties.get(name) {
                found.push((rules, field, path.child("properties").key(name)));
            }
        }
        if let (Some(rules), Some(items)) = (&self.items, &schema.items) {
            found.push((&**rules, &**items, path.child("items")));
        }
        found
    }
}

impl Compiled {
    fn of(rule: Rule, schema: &Schema, declared: &Arc<sheaf_cel::data::Declaration>) -> Self {
        let old = match rule.optional_old_self {
            Some(true) => OldSelf::Optional,
            _ => OldSelf::Required,
        };
        let compiled =
            |source: &str, wanted: Type, otherwise: &str| match compile(source, declared, old, &HOST) {
                Ok(program) if program.result == wanted => Ok(program),
                Ok(_) => Err(otherwise.to_owned()),
                Err(why) => Err(why),
            };
        let program = compiled(&rule.rule, Type::Bool, "cel expression must evaluate to a bool");
        let message = match (&rule.message_expression, &program) {
            (Some(source), Ok(_)) => {
                Some(compiled(source, Type::String, "messageExpression must evaluate to a string"))
            }
            _ => None,
        };
        let field_path = rule.field_path.as_deref().and_then(|path| field_path::resolve(path, schema));
        Self { rule, program, message, field_path }
    }
}
