//! CEL, the language that custom resources' validation rules are written in.
//!
//! ```text
//!   text --syntax--> tree --checker--> types --plan--> program --evaluate--> value, cost
//!                                        |
//!                                        +--estimate--> the most it can cost
//! ```
//!
//! - A rule is compiled once, against a [`data::Declaration`] of what it reads, and run on JSON as often as
//!   wanted. Nothing is copied out of the JSON but what a rule makes of it.
//! - Every rule ends: there are no loops but over data, and what a run may cost and really do is bounded. So is the depth of an
//!   expression, and matching a pattern takes linear time.
//! - Functions, messages and costs are those of Kubernetes v1.34; `tests/clients/cel-vectors` records them from the
//!   original. What is not served is refused when the rule is compiled: functions that are not in
//!   `functions.txt`, named time zones other than UTC.
//! - Pure: no I/O, no clock, no chance. Where order could be seen, it is that of the keys.

mod ast;
mod charge;
mod checker;
pub mod data;
mod effort;
mod escape;
mod estimate;
mod evaluate;
mod fault;
pub mod functions;
mod issues;
mod library;
mod literals;
mod plan;
mod read;
mod syntax;
mod types;
mod unify;
mod value;

use std::{collections::BTreeMap, sync::Arc};

use regex::Regex;
use serde_json::Value as Json;

use self::{
    data::Declaration,
    evaluate::{Run, Slot},
    plan::Plan,
};
pub use self::{
    effort::Meter,
    escape::escape,
    fault::Fault,
    library::named_format::NamedFormat,
    types::Type,
    value::{Text, Value},
};

/// What a rule needs of its surroundings.
#[derive(Debug)]
pub struct Host {
    /// The formats that `format.named` and its like know.
    pub formats: &'static [NamedFormat],
    /// Compiles a pattern in Go's dialect that stands in a rule.
    pub pattern: fn(&str) -> Result<Regex, String>,
    /// The same for one out of data, which whoever writes an object may choose.
    pub foreign_pattern: fn(&str) -> Result<Regex, String>,
}

/// How `oldSelf` is declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldSelf {
    /// As `self` is; rules that use it run only where there is one.
    Required,
    /// As an optional that may be empty.
    Optional,
}

/// A rule, ready to run.
#[derive(Debug)]
pub struct Program {
    plan: Plan,
    declaration: Arc<Declaration>,
    old: OldSelf,
    host: &'static Host,
    /// The type of its result.
    pub result: Type,
    /// The most it can cost.
    pub estimate: u64,
    /// Whether it reads `oldSelf`.
    pub uses_old_self: bool,
}

/// What came of a run, and what it cost.
#[derive(Debug)]
pub struct Outcome<'a> {
    pub result: Result<Value<'a>, Fault>,
    pub cost: u64,
}

/// Compiles a rule about a value of the given declaration. What is wrong is said the way the original says it.
pub fn compile(
    source: &str,
    declaration: &Arc<Declaration>,
    old: OldSelf,
    host: &'static Host,
) -> Result<Program, String> {
    let failed = |issues: &issues::Issues| format!("compilation failed: {}", issues.show(source));
    let ast = syntax::parse(source).map_err(|issues| failed(&issues))?;
    let this = declaration.to_type();
    let before = match old {
        OldSelf::Required => this.clone(),
        OldSelf::Optional => Type::optional(this.clone()),
    };
    let variables = BTreeMap::from([("self".to_owned(), this), ("oldSelf".to_owned(), before)]);
    let checked = checker::check(&ast, &variables).map_err(|issues| failed(&issues))?;
    let wrong = literals::check(&ast, &checked, host);
    if !wrong.is_empty() {
        return Err(failed(&wrong));
    }
    let plan = plan::plan(&ast.root, &checked, &["self", "oldSelf"], host)
        .map_err(|why| format!("program instantiation failed: {why}"))?;
    Ok(Program {
        plan,
        declaration: declaration.clone(),
        old,
        host,
        result: checked.types[ast.root.id].clone(),
        estimate: estimate::estimate(&ast.root, &checked, declaration),
        uses_old_self: checked.names.values().any(|name| name == "oldSelf"),
    })
}

impl Program {
    /// Runs on a value and the one before it, as long as it costs no more than `limit`.
    pub fn run<'a>(&'a self, this: &'a Json, before: Option<&'a Json>, limit: u64) -> Outcome<'a> {
        self.run_within(this, before, limit, &mut Meter::default())
    }

    /// The same, for one of the runs about an object that share what they may do.
    pub fn run_within<'a>(
        &'a self,
        this: &'a Json,
        before: Option<&'a Json>,
        limit: u64,
        meter: &mut Meter,
    ) -> Outcome<'a> {
        let read = |json: &'a Json| read::value(json, &self.declaration);
        let old = match (self.old, before) {
            (OldSelf::Required, Some(before)) => Slot::Held(read(before)),
            (OldSelf::Required, None) => Slot::Empty,
            (OldSelf::Optional, Some(before)) => Slot::Held(read(before).map(Value::some)),
            (OldSelf::Optional, None) => Slot::Held(Ok(Value::Optional(None))),
        };
        let mut run = Run::new(vec![Slot::Held(read(this)), old], self.plan.slots, limit, *meter, self.host);
        let result = run.node(&self.plan.root);
        *meter = run.meter;
        Outcome { result, cost: run.cost }
    }
}
