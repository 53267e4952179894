//! Loops. What a loop has gathered so far may itself be a fault: it goes on, and only what it ends with counts.

use super::{Result, Run, Slot};
use crate::{
    charge,
    fault::Fault,
    library,
    plan::{Call, Fold, Node, Root},
    value::Value,
};

impl<'a> Run<'a> {
    pub(super) fn fold(&mut self, fold: &'a Fold) -> Result<'a> {
        let range = self.node(&fold.range)?;
        self.slots[fold.accumulator] = Slot::Later(&fold.start);
        match &range {
            Value::List(list) => {
                for (n, item) in list.iter().enumerate() {
                    let (first, second) = match fold.second {
                        Some(_) => (Ok(Value::Int(i64::try_from(n).unwrap_or(i64::MAX))), Some(item)),
                        None => (item, None),
                    };
                    if !self.iterate(fold, first, second)? {
                        break;
                    }
                }
            }
            Value::Map(map) => {
                self.meter.look(map.len())?;
                for key in map.keys() {
                    let second =
                        fold.second.map(|_| map.find(&key).unwrap_or_else(|| Err(Fault::no_overload())));
                    if !self.iterate(fold, Ok(key), second)? {
                        break;
                    }
                }
            }
            other => {
                return Err(Fault::failed(format!("got '{}', expected iterable type", other.type_name())));
            }
        }
        let result = self.node(&fold.result);
        self.slots[fold.accumulator] = Slot::Empty;
        result
    }

    /// One time round. Says whether to go on.
    fn iterate(
        &mut self,
        fold: &'a Fold,
        first: Result<'a>,
        second: Option<Result<'a>>,
    ) -> std::result::Result<bool, Fault> {
        self.slots[fold.variable] = Slot::Held(first);
        if let (Some(slot), Some(second)) = (fold.second, second) {
            self.slots[slot] = Slot::Held(second);
        }
        match self.node(&fold.condition) {
            Err(Fault::OverBudget) => return Err(Fault::OverBudget),
            Ok(Value::Bool(false)) => return Ok(false),
            _ => {}
        }
        let next = match self.append(fold) {
            Some(next) => next,
            None => self.node(&fold.step),
        };
        if matches!(next, Err(Fault::OverBudget)) {
            return Err(Fault::OverBudget);
        }
        self.slots[fold.accumulator] = Slot::Held(next);
        Ok(true)
    }

    /// A step that only makes the accumulated list or map longer, done without copying it: at the same cost as
    /// the step itself, but in constant time. Nothing for steps that are something else.
    fn append(&mut self, fold: &'a Fold) -> Option<Result<'a>> {
        let (condition, call) = growth(fold)?;
        let mut grown = self.root_of(fold.accumulator).ok()?;
        if let Some(condition) = condition {
            match self.node(condition) {
                Ok(Value::Bool(true)) => {}
                Ok(Value::Bool(false)) => return Some(Ok(grown)),
                Ok(_) => return Some(Err(Fault::no_overload())),
                Err(fault) => return Some(Err(fault)),
            }
        }
        // Let go of it in the slot, so that nobody else holds it.
        self.slots[fold.accumulator] = Slot::Empty;
        let added = self.added(call);
        Some(added.and_then(|mut added| match (&mut grown, call.function.as_str()) {
            (Value::List(list), "_+_") => {
                for value in added {
                    list.push(value)?;
                }
                Ok(grown)
            }
            _ => {
                match added.first() {
                    Some(Value::String(key)) => self.meter.keep(key.len())?,
                    Some(Value::Map(map)) => self.meter.look(map.len())?,
                    _ => {}
                }
                added.insert(0, grown);
                library::call(&call.function, added, self.host)
            }
        }))
    }

    /// What a growing step adds, charged as the step is: the name of what grows, what is added, the call.
    fn added(&mut self, call: &'a Call) -> std::result::Result<Vec<Value<'a>>, Fault> {
        self.charge(1)?;
        let mut values = Vec::with_capacity(2);
        for arg in &call.args[1..] {
            match (arg, call.function.as_str()) {
                (Node::List(items), "_+_") => {
                    let value = match items.first() {
                        Some((item, _)) => self.node(item),
                        None => Err(Fault::no_overload()),
                    };
                    self.charge(charge::LIST + 1)?;
                    values.push(value?);
                }
                (Node::Const(Value::List(list)), "_+_") => {
                    self.charge(1)?;
                    values.extend(list.values()?);
                }
                (other, _) => values.push(self.node(other)?),
            }
        }
        if call.function != "_+_" {
            self.charge(1)?;
        }
        Ok(values)
    }
}

/// The condition and the call of a step that adds to the accumulator, if it is one.
fn growth(fold: &Fold) -> Option<(Option<&Node>, &Call)> {
    let (condition, call) = match &fold.step {
        Node::Call(call) => (None, call),
        Node::Attribute(attribute) if attribute.qualifiers.is_empty() => match &attribute.root {
            Root::Choice { condition, yes: Node::Call(call), .. } => (Some(condition), call),
            _ => return None,
        },
        _ => return None,
    };
    let grows = match (call.function.as_str(), call.args.as_slice()) {
        ("_+_", [_, Node::List(items)]) => items.len() == 1,
        ("_+_", [_, Node::Const(Value::List(_))]) | ("cel.@mapInsert", _) => true,
        _ => false,
    };
    let Some(Node::Attribute(first)) = call.args.first() else { return None };
    let itself =
        matches!(first.root, Root::Slot(slot) if slot == fold.accumulator) && first.qualifiers.is_empty();
    (grows && itself).then_some((condition, call))
}
