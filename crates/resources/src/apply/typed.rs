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
    pub fn without(self, ignored: &FieldSet) -> Comparison {
        Comparison {
            added: self.added.recursive_difference(ignored),
            modified: self.modified.recursive_difference(ignored),
            removed: self.removed.recursive_difference(ignored),
        }
    }
}

/// What must be done to `old` to get `new`.
pub fn compare(old: &Value, new: &Value, shape: Shape<'_>) -> Result<Comparison, Misfit> {
    Ok(compare_below(Some(old), Some(new), shape)?.1)
}

/// What happened to a place as such.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    None,
    Added,
    Modified,
    Removed,
}

impl Change {
    fn of<T: Copy>(old: Option<T>, new: Option<T>, is_same: impl FnOnce(T, T) -> bool) -> Change {
        match (old, new) {
            (None, None) => Change::None,
            (None, Some(_)) => Change::Added,
            (Some(_), None) => Change::Removed,
            (Some(old), Some(new)) if is_same(old, new) => Change::None,
            _ => Change::Modified,
        }
    }
}

impl Comparison {
    /// Puts what happened at a step, and below it, in its place.
    fn put(&mut self, step: impl Fn() -> Step, (change, below): (Change, Comparison)) {
        let sets = [
            (&mut self.added, Change::Added, below.added),
            (&mut self.modified, Change::Modified, below.modified),
            (&mut self.removed, Change::Removed, below.removed),
        ];
        for (set, which, below) in sets {
            if change == which || !below.is_empty() {
                set.put(step(), change == which, below);
            }
        }
    }
}

fn compare_below(
    old: Option<&Value>,
    new: Option<&Value>,
    shape: Shape<'_>,
) -> Result<(Change, Comparison), Misfit> {
    // Most of an object is as it was, and then nobody need look closer.
    if old == new {
        return Ok((Change::None, Comparison::default()));
    }
    let is_leaf = match (old.map(|old| shape.form(old)), new.map(|new| shape.form(new))) {
        (None, None) => true,
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
        let change = Change::of(old, new, |old, new| order(old, new).is_eq());
        return Ok((change, Comparison::default()));
    }
    let below = match (members(old, shape), members(new, shape)) {
        (None, None) => compare_lists(old, new, shape)?,
        (old, new) => compare_members(old, new, shape)?,
    };
    // Only that it came or went; what changed in it is below.
    Ok((Change::of(old, new, |_, _| true), below))
}

fn members<'v>(value: Option<&'v Value>, shape: Shape<'_>) -> Option<&'v Map<String, Value>> {
    match shape.form(value?) {
        Form::Object(members) => Some(members),
        Form::Whole | Form::List(_) => None,
    }
}

fn compare_members(
    old: Option<&Map<String, Value>>,
    new: Option<&Map<String, Value>>,
    shape: Shape<'_>,
) -> Result<Comparison, Misfit> {
    let mut comparison = Comparison::default();
    let is_in = |members: Option<&Map<String, Value>>, name: &str| {
        members.is_some_and(|members| members.contains_key(name))
    };
    let of_old = old.into_iter().flat_map(Map::keys).map(String::as_str);
    let of_new = new.into_iter().flat_map(Map::keys).map(String::as_str).filter(|name| !is_in(old, name));
    // What comes with an object, or goes with it, without anybody writing it.
    let comes_along = (old.is_some() != new.is_some()).then(|| shape.always_there());
    let comes_along = comes_along.into_iter().flatten().filter(|name| !is_in(old, name) && !is_in(new, name));
    for name in of_old.chain(of_new).chain(comes_along) {
        let inside = shape.field(name);
        let old = old.and_then(|old| inside.kept(old.get(name)).or(inside.unwritten()));
        let new = new.and_then(|new| inside.kept(new.get(name)).or(inside.unwritten()));
        comparison.put(|| Step::field(name), compare_below(old, new, inside)?);
    }
    Ok(comparison)
}

fn compare_lists(old: Option<&Value>, new: Option<&Value>, shape: Shape<'_>) -> Result<Comparison, Misfit> {
    let mut comparison = Comparison::default();
    let (old, new) = (elements(old, shape)?, elements(new, shape)?);
    let mut steps: Vec<&Step> = old.keys().chain(new.keys()).collect();
    steps.sort_unstable();
    steps.dedup();
    for step in steps {
        let happened = match (old.get(step).map(Vec::as_slice), new.get(step).map(Vec::as_slice)) {
            // An element that is there more than once, as old objects may have it, has no inside.
            (old @ Some([_, _, ..]), new) | (old, new @ Some([_, _, ..])) => {
                let is_same = |a: &[&Value], b: &[&Value]| {
                    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| order(a, b).is_eq())
                };
                (Change::of(old, new, is_same), Comparison::default())
            }
            (old, new) => {
                let (old, new) = (old.and_then(<[_]>::first), new.and_then(<[_]>::first));
                compare_below(old.copied(), new.copied(), shape.element())?
            }
        };
        comparison.put(|| step.clone(), happened);
    }
    Ok(comparison)
}

/// The elements of a list by what they are called, several where one is there more than once.
fn elements<'v>(
    value: Option<&'v Value>,
    shape: Shape<'_>,
) -> Result<BTreeMap<Step, Vec<&'v Value>>, Misfit> {
    let mut elements: BTreeMap<Step, Vec<&Value>> = BTreeMap::new();
    if let Some(Form::List(list)) = value.map(|value| shape.form(value)) {
        for (step, element) in shape.elements(list)? {
            elements.entry(step).or_default().push(element);
        }
    }
    Ok(elements)
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
    for ((step, value), next_shared) in asked.iter().zip(next_shared(&asked, &of_live)) {
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

/// For each element that is asked for, the first from there on that is there already.
fn next_shared<'s>(
    asked: &'s [(Step, &Value)],
    of_live: &BTreeMap<&Step, &Value>,
) -> impl Iterator<Item = Option<&'s Step>> {
    let mut next = None;
    let mut shared: Vec<Option<&Step>> = Vec::with_capacity(asked.len());
    for (step, _) in asked.iter().rev() {
        if of_live.contains_key(step) {
            next = Some(step);
        }
        shared.push(next);
    }
    shared.into_iter().rev()
}

/// Takes nulls out where a schema says what may be there: who asks for one asks for nothing. Where anything may be,
/// null is a value like any other.
pub fn drop_nulls(value: &mut Value, shape: Shape<'_>) {
    match value {
        Value::Object(members) => {
            members.retain(|name, member| !member.is_null() || shape.field(name).is_anything());
            for (name, member) in members {
                drop_nulls(member, shape.field(name));
            }
        }
        Value::Array(elements) => {
            elements.iter_mut().for_each(|element| drop_nulls(element, shape.element()));
        }
        _ => {}
    }
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
