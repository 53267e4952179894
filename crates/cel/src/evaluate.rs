//! Runs a program on data, and counts what it costs.
//!
//! A fault is a value that is passed on until something absorbs it (`&&`, `||`, a loop); running out of budget is
//! not: it ends the run wherever it is.

mod fold;

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    Host,
    charge::{self, Argument},
    effort::Meter,
    fault::Fault,
    library::{self, lists, strings},
    plan::{Attribute, Call, Node, Root, Step},
    value::{Map, Value},
};

pub type Result<'a> = std::result::Result<Value<'a>, Fault>;

#[derive(Clone)]
pub enum Slot<'a> {
    Empty,
    /// Worked out when it is first asked for.
    Later(&'a Node),
    Held(Result<'a>),
}

pub struct Run<'a> {
    slots: Vec<Slot<'a>>,
    pub cost: u64,
    limit: u64,
    pub meter: Meter,
    host: &'static Host,
}

impl<'a> Run<'a> {
    /// A run in which the first slots hold `variables`.
    pub fn new(
        variables: Vec<Slot<'a>>,
        slots: usize,
        limit: u64,
        meter: Meter,
        host: &'static Host,
    ) -> Self {
        let mut all = variables;
        all.resize(slots, Slot::Empty);
        Self { slots: all, cost: 0, limit, meter, host }
    }

    fn charge(&mut self, cost: u64) -> std::result::Result<(), Fault> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limit { Err(Fault::OverBudget) } else { Ok(()) }
    }

    /// Counts a text or bytes that are read from end to end.
    fn touch(&mut self, value: &Value<'a>) -> std::result::Result<(), Fault> {
        match value {
            Value::String(text) => self.meter.touch(text.len() as u64),
            Value::Bytes(bytes) => self.meter.touch(bytes.len() as u64),
            _ => Ok(()),
        }
    }

    pub fn node(&mut self, node: &'a Node) -> Result<'a> {
        match node {
            Node::Const(value) => Ok(value.clone()),
            Node::Attribute(attribute) => {
                let found = self.resolve(attribute);
                if !matches!(attribute.root, Root::Choice { .. }) {
                    self.charge(1)?;
                }
                found
            }
            Node::Test(tested) => self.test(&tested.0, &tested.1),
            Node::And(terms) => self.logical(terms, false),
            Node::Or(terms) => self.logical(terms, true),
            Node::Call(call) => self.call(call),
            Node::OneOf(value, keys) => {
                let value = self.node(value)?;
                self.touch(&value)?;
                Ok(Value::Bool(value.key().is_some_and(|key| keys.contains(&key))))
            }
            Node::List(items) => self.list(items),
            Node::Map(entries) => self.map(entries),
            Node::Fold(fold) => self.fold(fold),
        }
    }

    /// `&&` and `||`: the first term that decides does, and makes up for faults before it.
    fn logical(&mut self, terms: &'a [Node], decides: bool) -> Result<'a> {
        let mut fault = None;
        for term in terms {
            match self.node(term) {
                Ok(Value::Bool(flag)) if flag == decides => return Ok(Value::Bool(decides)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => fault = fault.or(Some(Fault::no_overload())),
                Err(Fault::OverBudget) => return Err(Fault::OverBudget),
                Err(why) => fault = fault.or(Some(why)),
            }
        }
        match fault {
            Some(fault) => Err(fault),
            None => Ok(Value::Bool(!decides)),
        }
    }

    fn list(&mut self, items: &'a [(Node, bool)]) -> Result<'a> {
        let made = self.items(items);
        self.charge(charge::LIST)?;
        made
    }

    fn items(&mut self, items: &'a [(Node, bool)]) -> Result<'a> {
        let mut values = Vec::with_capacity(items.len());
        for (item, optional) in items {
            match (self.node(item)?, optional) {
                (value, false) => values.push(value),
                (Value::Optional(held), true) => values.extend(held.map(|held| (*held).clone())),
                _ => {
                    return Err(Fault::failed(
                        "cannot initialize optional list element from non-optional value",
                    ));
                }
            }
        }
        Ok(Value::list(values))
    }

    fn map(&mut self, entries: &'a [(Node, Node, bool)]) -> Result<'a> {
        let made = self.entries(entries);
        self.charge(charge::MAP)?;
        made
    }

    fn entries(&mut self, entries: &'a [(Node, Node, bool)]) -> Result<'a> {
        let mut map = BTreeMap::new();
        for (key, value, optional) in entries {
            let key = self.node(key)?;
            let value = match (self.node(value)?, optional) {
                (value, false) => value,
                (Value::Optional(Some(held)), true) => (*held).clone(),
                (Value::Optional(None), true) => continue,
                _ => return Err(Fault::failed("cannot initialize optional entry from non-optional value")),
            };
            if let Value::String(text) = &key {
                self.meter.keep(text.len())?;
            }
            let Some(at) = key.key() else { return Err(Fault::failed("unsupported key type")) };
            map.insert(at, (key, value));
        }
        Ok(Value::Map(Map::Values(Arc::new(map))))
    }

    fn root(&mut self, root: &'a Root) -> Result<'a> {
        match root {
            Root::Slot(slot) => self.root_of(*slot),
            Root::Value(node) => self.node(node),
            Root::Choice { condition, yes, no } => {
                let branch = match self.node(condition)? {
                    Value::Bool(true) => yes,
                    Value::Bool(false) => no,
                    _ => return Err(Fault::no_overload()),
                };
                self.unobserved(branch)
            }
        }
    }

    /// An attribute that stands inside another costs its qualifiers only.
    fn unobserved(&mut self, node: &'a Node) -> Result<'a> {
        match node {
            Node::Attribute(attribute) => self.resolve(attribute),
            other => self.node(other),
        }
    }

    fn resolve(&mut self, attribute: &'a Attribute) -> Result<'a> {
        let mut value = self.root(&attribute.root)?;
        if attribute.qualifiers.is_empty() {
            return Ok(value);
        }
        let mut optional = false;
        if let Value::Optional(held) = value {
            optional = true;
            match held {
                Some(held) => value = (*held).clone(),
                None => return Ok(Value::Optional(None)),
            }
        }
        for qualifier in &attribute.qualifiers {
            optional = optional || qualifier.optional;
            let key = self.key(&qualifier.step)?;
            if let Some(key) = &key {
                self.touch(key)?;
            }
            let found = find(&value, &qualifier.step, key.as_ref());
            // Bytes are decoded each time they are read.
            if let Ok(Some(bytes @ Value::Bytes(_))) = &found {
                self.touch(bytes)?;
            }
            if optional && matches!(found, Ok(None)) {
                return Ok(Value::Optional(None));
            }
            self.charge(1)?;
            value = match found? {
                Some(found) => found,
                None => return Err(missing(&value, &qualifier.step, key.as_ref())),
            };
        }
        Ok(if optional { Value::some(value) } else { value })
    }

    fn key(&mut self, step: &'a Step) -> std::result::Result<Option<Value<'a>>, Fault> {
        Ok(match step {
            Step::Computed(node) => Some(self.unobserved(node)?),
            Step::Key(key) => Some(key.clone()),
            Step::Field { .. } => None,
        })
    }

    fn test(&mut self, attribute: &'a Attribute, step: &'a Step) -> Result<'a> {
        let mut value = self.resolve(attribute)?;
        if let Value::Optional(held) = value {
            match held {
                Some(held) => value = (*held).clone(),
                None => return Ok(Value::Bool(false)),
            }
        }
        let key = self.key(step)?;
        let found = find(&value, step, key.as_ref());
        self.charge(1)?;
        Ok(Value::Bool(found?.is_some()))
    }

    fn call(&mut self, call: &'a Call) -> Result<'a> {
        match (call.function.as_str(), call.args.as_slice()) {
            ("@not_strictly_false", _) => return self.not_strictly_false(call),
            ("or" | "orValue", [held, other]) => return self.or(held, other, call.function == "orValue"),
            _ => {}
        }
        let several = call.args.len() > 2;
        let mut args: Vec<Result<'a>> = Vec::with_capacity(call.args.len());
        for arg in &call.args {
            let value = self.node(arg);
            match &value {
                Err(Fault::OverBudget) => return Err(Fault::OverBudget),
                // Calls of more than two arguments give up at the first fault.
                Err(_) if several => return value,
                _ => args.push(value),
            }
        }
        let mut faults = args.iter().filter_map(|arg| arg.as_ref().err().cloned());
        let result = match faults.next() {
            Some(fault) => Err(fault),
            None => self.invoke(call, &args),
        };
        let arguments: Vec<Argument<'_, 'a>> =
            args.iter().map(Result::as_ref).map(std::result::Result::ok).collect();
        let cost = charge::call(&call.function, call.overload, &arguments, result.as_ref().ok());
        self.charge(cost)?;
        result
    }

    fn invoke(&mut self, call: &'a Call, args: &[Result<'a>]) -> Result<'a> {
        let values = args.iter().filter_map(|arg| arg.as_ref().ok()).cloned().collect::<Vec<_>>();
        self.meter.call(&call.function, &values)?;
        match (call.function.as_str(), &call.pattern) {
            (function, Some(pattern)) => strings::matched(function, pattern, &values),
            ("_==_", _) => match values.as_slice() {
                [left, right] => Ok(Value::Bool(left.equals(right))),
                _ => Err(Fault::no_overload()),
            },
            ("_!=_", _) => match values.as_slice() {
                [left, right] => Ok(Value::Bool(!left.equals(right))),
                _ => Err(Fault::no_overload()),
            },
            ("sum", _) => {
                let zero = match call.overload {
                    "list_uint_sum_uint" => Value::Uint(0),
                    "list_double_sum_double" => Value::Double(0.0),
                    "list_duration_sum_duration" => Value::Duration(0),
                    _ => Value::Int(0),
                };
                values.first().map_or(Err(Fault::no_overload()), |list| lists::sum(list, zero))
            }
            (function, None) => {
                if ["matches", "find", "findAll"].contains(&function) {
                    let cost = self.meter.pattern();
                    self.charge(cost)?;
                }
                let made = library::call(function, values, self.host)?;
                if let ("format" | "replace", Value::String(text)) = (function, &made) {
                    self.meter.keep(text.len())?;
                }
                Ok(made)
            }
        }
    }

    /// What an optional holds, or else something else, which is looked at only then.
    fn or(&mut self, held: &'a Node, other: &'a Node, unwrap: bool) -> Result<'a> {
        match self.node(held)? {
            Value::Optional(Some(held)) if unwrap => Ok((*held).clone()),
            Value::Optional(Some(held)) => Ok(Value::Optional(Some(held))),
            Value::Optional(None) => self.node(other),
            _ => Err(Fault::no_overload()),
        }
    }

    fn not_strictly_false(&mut self, call: &'a Call) -> Result<'a> {
        let Some(arg) = call.args.first() else { return Err(Fault::no_overload()) };
        let held = match self.node(arg) {
            Err(Fault::OverBudget) => return Err(Fault::OverBudget),
            Ok(Value::Bool(flag)) => flag,
            _ => true,
        };
        self.charge(1)?;
        Ok(Value::Bool(held))
    }

    fn root_of(&mut self, slot: usize) -> Result<'a> {
        match self.slots[slot].clone() {
            Slot::Held(held) => held,
            Slot::Later(node) => {
                let found = self.node(node);
                self.slots[slot] = Slot::Held(found.clone());
                found
            }
            Slot::Empty => Err(Fault::failed("no such attribute")),
        }
    }
}

/// What stands at a step of a value; nothing if nothing does.
fn find<'a>(
    value: &Value<'a>,
    step: &Step,
    key: Option<&Value<'a>>,
) -> std::result::Result<Option<Value<'a>>, Fault> {
    match (value, step, key) {
        (Value::Map(map), Step::Field { property, .. }, _) if !matches!(map, Map::Values(_)) => {
            map.raw(property).transpose()
        }
        (Value::Map(map), Step::Field { name, .. }, _) => map.find(&Value::text(name.as_str())).transpose(),
        (Value::Map(map), _, Some(key)) => map.find(key).transpose(),
        (Value::List(list), _, Some(Value::Int(at))) => match usize::try_from(*at) {
            Ok(at) => list.get(at).transpose(),
            Err(_) => Ok(None),
        },
        (Value::List(list), _, Some(Value::Uint(at))) => match usize::try_from(*at) {
            Ok(at) => list.get(at).transpose(),
            Err(_) => Ok(None),
        },
        (Value::List(_), _, Some(_)) => Err(Fault::failed("unsupported index type")),
        _ => Ok(None),
    }
}

fn missing(value: &Value<'_>, step: &Step, key: Option<&Value<'_>>) -> Fault {
    let shown = match (step, key) {
        (Step::Field { name, .. }, _) => name.clone(),
        (_, Some(Value::String(text))) => text.to_string(),
        (_, Some(Value::Int(number))) => number.to_string(),
        (_, Some(Value::Uint(number))) => number.to_string(),
        (_, Some(Value::Bool(flag))) => flag.to_string(),
        (_, Some(Value::Double(number))) => library::conversion::show_double(*number),
        _ => String::new(),
    };
    Fault::failed(match value {
        Value::List(_) => format!("index out of bounds: {shown}"),
        _ => format!("no such key: {shown}"),
    })
}
