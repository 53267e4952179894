//! Objects as trees of fields: which they have, how two differ, what comes of merging them.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{
    field_set::FieldSet,
    shape::{Form, Misfit, Shape},
    step::{Step, compare as order},
};

/// The fields of an object that somebody asks for.
pub fn fields_of(value: &Value, shape: Shape<'_>) -> Result<FieldSet, Misfit> {
    let mut set = FieldSet::default();
    match shape.form(value) {
        Form::Whole => {}
        Form::Object(members) => {
            for (name, value) in members {
                let step = Step::field(name);
                let (mut is_member, below) = fields_below(value, shape.at(&step))?;
                let is_nothing = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                is_member |= is_nothing || !shape.is_declared(name);
                set.put(step, is_member, below);
            }
        }
        Form::List(elements) => {
            for (step, value) in shape.distinct_elements(elements)? {
                let (_, below) = fields_below(value, shape.at(&step))?;
                set.put(step, true, below);
            }
        }
    }
    Ok(set)
}

/// Whether a value is a field of its own, and the fields in it.
fn fields_below(value: &Value, shape: Shape<'_>) -> Result<(bool, FieldSet), Misfit> {
    match shape.form(value) {
        Form::Whole => Ok((!(value.is_null() && shape.merges()), FieldSet::default())),
        Form::Object(_) | Form::List(_) => Ok((false, fields_of(value, shape)?)),
    }
}

/// How one object differs from another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    pub added: FieldSet,
    pub modified: FieldSet,
    pub removed: FieldSet,
}

impl Comparison {
    pub fn is_same(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    /// Without what nobody owns.
    #[must_use]
    pub fn without(&self, ignored: &FieldSet) -> Comparison {
        Comparison {
            added: self.added.recursive_difference(ignored),
            modified: self.modified.recursive_difference(ignored),
            removed: self.removed.recursive_difference(ignored),
        }
    }
}

/// What must be done to `old` to get `new`.
pub fn compare(old: &Value, new: &Value, shape: Shape<'_>) -> Result<Comparison, Misfit> {
    let mut comparison = Comparison::default();
    compare_below(Some(old), Some(new), shape, &mut Vec::new(), &mut comparison)?;
    Ok(comparison)
}

fn compare_below(
    old: Option<&Value>,
    new: Option<&Value>,
    shape: Shape<'_>,
    way: &mut Vec<Step>,
    comparison: &mut Comparison,
) -> Result<(), Misfit> {
    let is_leaf = match (old.map(|old| shape.form(old)), new.map(|new| shape.form(new))) {
        (None, None) => return Ok(()),
        // A change of form, which a schema does not allow: the old goes and the new comes.
        (Some(Form::Object(_)), Some(Form::List(_))) | (Some(Form::List(_)), Some(Form::Object(_))) => true,
        (Some(Form::Object(a)), Some(Form::Object(b))) if a.is_empty() && b.is_empty() => true,
        (Some(Form::List(a)), Some(Form::List(b))) if a.is_empty() && b.is_empty() => true,
        (Some(Form::Object(one)), None) | (None, Some(Form::Object(one))) if one.is_empty() => true,
        (Some(Form::List(one)), None) | (None, Some(Form::List(one))) if one.is_empty() => true,
        (Some(Form::Whole), Some(Form::Whole) | None) | (None, Some(Form::Whole)) => true,
        // Null beside an object or list: as if it were empty, and two that are empty can differ only as a whole.
        (Some(Form::Whole), Some(other)) => !old.is_some_and(Value::is_null) || other.is_empty(),
        (Some(other), Some(Form::Whole)) => !new.is_some_and(Value::is_null) || other.is_empty(),
        _ => false,
    };
    if is_leaf {
        match (old, new) {
            (None, _) => comparison.added.insert(way),
            (_, None) => comparison.removed.insert(way),
            (Some(old), Some(new)) if order(old, new).is_ne() => comparison.modified.insert(way),
            _ => {}
        }
        return Ok(());
    }
    let (old_parts, new_parts) = (parts(old, shape)?, parts(new, shape)?);
    let mut steps: Vec<&Step> = old_parts.keys().chain(new_parts.keys()).collect();
    steps.sort_unstable();
    steps.dedup();
    for step in steps {
        way.push(step.clone());
        match (old_parts.get(step).map(Vec::as_slice), new_parts.get(step).map(Vec::as_slice)) {
            (Some([_, _, ..]), _) | (_, Some([_, _, ..])) => {
                // An element that is there more than once, as old objects may have it, has no inside.
                let (old, new) = (old_parts.get(step), new_parts.get(step));
                let is_same = |a: &[&Value], b: &[&Value]| {
                    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| order(a, b).is_eq())
                };
                match (old, new) {
                    (None, _) => comparison.added.insert(way),
                    (_, None) => comparison.removed.insert(way),
                    (Some(old), Some(new)) if !is_same(old, new) => comparison.modified.insert(way),
                    _ => {}
                }
            }
            (old, new) => {
                let (old, new) = (old.and_then(<[_]>::first), new.and_then(<[_]>::first));
                compare_below(old.copied(), new.copied(), shape.at(step), way, comparison)?;
            }
        }
        way.pop();
    }
    match (old, new) {
        (None, _) => comparison.added.insert(way),
        (_, None) => comparison.removed.insert(way),
        _ => {}
    }
    Ok(())
}

/// The parts of an object or list by what they are called; several under one name only in a list.
fn parts<'v>(value: Option<&'v Value>, shape: Shape<'_>) -> Result<BTreeMap<Step, Vec<&'v Value>>, Misfit> {
    let mut parts: BTreeMap<Step, Vec<&Value>> = BTreeMap::new();
    match value.map(|value| shape.form(value)) {
        None | Some(Form::Whole) => {}
        Some(Form::Object(members)) => {
            parts.extend(members.iter().map(|(name, value)| (Step::field(name), vec![value])));
        }
        Some(Form::List(elements)) => {
            for (step, element) in shape.elements(elements)? {
                parts.entry(step).or_default().push(element);
            }
        }
    }
    Ok(parts)
}

/// `live` with everything that `asked` has, and all else that it had.
pub fn merge(live: &Value, asked: &Value, shape: Shape<'_>) -> Result<Value, Misfit> {
    match (shape.form(live), shape.form(asked)) {
        (Form::Object(live), Form::Object(asked)) => {
            let mut merged = live.clone();
            for (name, asked) in asked {
                let value = match live.get(name) {
                    Some(live) => merge(live, asked, shape.at(&Step::field(name)))?,
                    None => checked(asked, shape.at(&Step::field(name)))?,
                };
                merged.insert(name.clone(), value);
            }
            Ok(Value::Object(merged))
        }
        (Form::List(live), Form::List(asked)) => merge_lists(live, asked, shape),
        _ => checked(asked, shape),
    }
}

/// What is asked for where there is nothing yet.
fn checked(asked: &Value, shape: Shape<'_>) -> Result<Value, Misfit> {
    fields_of(asked, shape).map(|_| asked.clone())
}

/// The order of what is asked for is kept; what was there beside it keeps its place before what followed it.
fn merge_lists(live: &[Value], asked: &[Value], shape: Shape<'_>) -> Result<Value, Misfit> {
    let (live, asked) = (shape.elements(live)?, shape.distinct_elements(asked)?);
    let of_live: BTreeMap<&Step, &Value> = live.iter().rev().map(|(step, value)| (step, *value)).collect();
    let of_asked: BTreeMap<&Step, &Value> = asked.iter().map(|(step, value)| (step, *value)).collect();
    let mut merged = Vec::new();
    let mut rest = live.iter().peekable();
    for (at, (step, value)) in asked.iter().enumerate() {
        let next_shared = asked[at..].iter().map(|(step, _)| step).find(|step| of_live.contains_key(step));
        while let Some((next, live)) = rest.peek() {
            match of_asked.contains_key(next) {
                false => merged.push((*live).clone()),
                true if Some(next) == next_shared => break,
                // Its turn comes, or came, with what is asked for.
                true => {}
            }
            rest.next();
        }
        if rest.peek().is_some_and(|(next, _)| next == step) {
            rest.next();
        }
        merged.push(match of_live.get(step) {
            Some(live) => merge(live, value, shape.at(step))?,
            None => checked(value, shape.at(step))?,
        });
    }
    merged.extend(rest.filter(|(step, _)| !of_asked.contains_key(step)).map(|(_, live)| (*live).clone()));
    Ok(Value::Array(merged))
}

/// A value without the members of a set. What loses all it had is null, as in the original: whoever owns it as such
/// goes on doing so.
pub fn remove(value: &Value, fields: &FieldSet, shape: Shape<'_>) -> Value {
    if fields.is_empty() {
        return value.clone();
    }
    let kept = |step: &Step, value: &Value| {
        if fields.has(step) {
            return None;
        }
        match fields.below(step) {
            Some(below) => Some(remove(value, below, shape.at(step))),
            None => Some(value.clone()),
        }
    };
    match shape.form(value) {
        Form::Whole => value.clone(),
        Form::Object(members) => {
            let left: Map<String, Value> = members
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), kept(&Step::field(name), value)?)))
                .collect();
            if left.is_empty() { Value::Null } else { Value::Object(left) }
        }
        Form::List(elements) => {
            let left: Vec<Value> = elements
                .iter()
                .enumerate()
                .filter_map(|(index, element)| match shape.step_to(index, element) {
                    Ok(step) => kept(&step, element),
                    Err(_) => Some(element.clone()),
                })
                .collect();
            if left.is_empty() { Value::Null } else { Value::Array(left) }
        }
    }
}
