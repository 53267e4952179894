//! Lists as lists, as sets, and of optionals.

use std::{cmp::Ordering, collections::BTreeSet};

use crate::{
    fault::Fault,
    library::arithmetic,
    value::{Key, List, Value},
};

pub fn call<'a>(function: &str, args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    let Some((Value::List(list), rest)) = args.split_first() else { return Err(Fault::no_overload()) };
    Ok(match (function, rest) {
        ("isSorted", []) => {
            let values = list.values()?;
            let sorted = values.windows(2).all(|pair| match pair {
                [one, other] => one.compare(other) != Some(Ordering::Greater),
                _ => true,
            });
            Value::Bool(sorted)
        }
        ("max", []) => extreme(list, "max", Ordering::Less)?,
        ("min", []) => extreme(list, "min", Ordering::Greater)?,
        ("indexOf", [wanted]) => {
            place(list.iter().position(|item| item.is_ok_and(|item| item.equals(wanted))))
        }
        ("lastIndexOf", [wanted]) => {
            let items = list.values()?;
            place(items.iter().rposition(|item| item.equals(wanted)))
        }
        ("first", []) => optional(list.get(0))?,
        ("last", []) => optional(list.len().checked_sub(1).and_then(|last| list.get(last)))?,
        ("unwrapOpt" | "optional.unwrap", []) => {
            let mut held = Vec::new();
            for item in list.iter() {
                match item? {
                    Value::Optional(Some(value)) => held.push((*value).clone()),
                    Value::Optional(None) => {}
                    _ => return Err(Fault::no_overload()),
                }
            }
            Value::list(held)
        }
        ("sets.contains", [Value::List(other)]) => Value::Bool(includes(list, other)?),
        ("sets.equivalent", [Value::List(other)]) => {
            Value::Bool(includes(list, other)? && includes(other, list)?)
        }
        ("sets.intersects", [Value::List(other)]) => Value::Bool(intersects(list, other)?),
        _ => return Err(Fault::no_overload()),
    })
}

/// The sum of a list; `zero` is what an empty one has.
pub fn sum<'a>(list: &Value<'a>, zero: Value<'a>) -> Result<Value<'a>, Fault> {
    let Value::List(list) = list else { return Err(Fault::no_overload()) };
    let mut total = zero;
    for item in list.iter() {
        total = arithmetic::call("_+_", &[total, item?])?;
    }
    Ok(total)
}

fn place(index: Option<usize>) -> Value<'static> {
    Value::Int(index.and_then(|index| i64::try_from(index).ok()).unwrap_or(-1))
}

fn extreme<'a>(list: &List<'a>, name: &str, worse: Ordering) -> Result<Value<'a>, Fault> {
    let mut best: Option<Value<'a>> = None;
    for item in list.iter() {
        let item = item?;
        best = Some(match best {
            Some(best) if best.compare(&item) != Some(worse) => best,
            _ => item,
        });
    }
    best.ok_or_else(|| Fault::failed(format!("{name} called on empty list")))
}

fn optional<'a>(item: Option<Result<Value<'a>, Fault>>) -> Result<Value<'a>, Fault> {
    Ok(match item {
        Some(item) => Value::some(item?),
        None => Value::Optional(None),
    })
}

fn keys(values: &[Value<'_>]) -> Option<BTreeSet<Key>> {
    values.iter().map(Value::key).collect()
}

/// Whether every member of the second is one of the first.
fn includes<'a>(list: &List<'a>, other: &List<'a>) -> Result<bool, Fault> {
    let (ours, theirs) = (list.values()?, other.values()?);
    Ok(match (keys(&ours), keys(&theirs)) {
        (Some(ours), Some(theirs)) => theirs.is_subset(&ours),
        _ => theirs.iter().all(|value| ours.iter().any(|ours| ours.equals(value))),
    })
}

fn intersects<'a>(list: &List<'a>, other: &List<'a>) -> Result<bool, Fault> {
    let (ours, theirs) = (list.values()?, other.values()?);
    Ok(match (keys(&ours), keys(&theirs)) {
        (Some(ours), Some(theirs)) => !theirs.is_disjoint(&ours),
        _ => theirs.iter().any(|value| ours.iter().any(|ours| ours.equals(value))),
    })
}
