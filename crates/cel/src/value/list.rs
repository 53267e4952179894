//! Lists: in order, as sets, or as maps of their elements' keys.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::Value as Json;

use super::{Key, Value};
use crate::{
    data::{Declaration, Keyed},
    effort::Walk,
    fault::Fault,
    read,
};

#[derive(Clone, Debug)]
pub struct List<'a> {
    items: Items<'a>,
    keyed: &'a Keyed,
}

#[derive(Clone, Debug)]
enum Items<'a> {
    Json(&'a [Json], &'a Declaration),
    Values(Arc<Vec<Value<'a>>>),
}

impl<'a> Value<'a> {
    pub fn list(items: Vec<Value<'a>>) -> Self {
        Value::List(List { items: Items::Values(Arc::new(items)), keyed: &Keyed::Position })
    }

    pub fn texts<S: AsRef<str>>(items: impl IntoIterator<Item = S>) -> Self {
        Value::list(items.into_iter().map(|item| Value::text(item.as_ref())).collect())
    }

    pub fn json_list(items: &'a [Json], of: &'a Declaration, keyed: &'a Keyed) -> Self {
        Value::List(List { items: Items::Json(items, of), keyed })
    }
}

impl<'a> List<'a> {
    pub fn len(&self) -> usize {
        match &self.items {
            Items::Json(items, _) => items.len(),
            Items::Values(items) => items.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get(&self, index: usize) -> Option<Result<Value<'a>, Fault>> {
        match &self.items {
            Items::Json(items, of) => items.get(index).map(|item| read::value(item, of)),
            Items::Values(items) => items.get(index).cloned().map(Ok),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = Result<Value<'a>, Fault>> + '_ {
        (0..self.len()).map_while(|index| self.get(index))
    }

    /// Its elements, once none of them is a fault.
    pub fn values(&self) -> Result<Vec<Value<'a>>, Fault> {
        self.iter().collect()
    }

    /// One more element at the end. Nobody else holding the list, nothing is copied.
    pub fn push(&mut self, value: Value<'a>) -> Result<(), Fault> {
        if let Items::Json(..) = self.items {
            self.items = Items::Values(Arc::new(self.values()?));
        }
        if let Items::Values(items) = &mut self.items {
            Arc::make_mut(items).push(value);
        }
        Ok(())
    }

    /// Looks at everything inside.
    pub(crate) fn walk(&self, walk: &mut Walk) {
        match &self.items {
            Items::Json(items, of) => walk.list(items, Some(of), *self.keyed == Keyed::Value),
            Items::Values(items) => {
                for item in items.iter() {
                    walk.value(item);
                    if walk.is_over() {
                        return;
                    }
                }
            }
        }
    }

    pub(super) fn equals(&self, other: &List<'a>) -> bool {
        if self.len() != other.len() {
            return false;
        }
        let (Ok(ours), Ok(theirs)) = (self.values(), other.values()) else { return false };
        match self.keyed {
            Keyed::Position => ours.iter().zip(&theirs).all(|(a, b)| a.equals(b)),
            Keyed::Value => match ours.iter().map(Value::key).collect::<Option<BTreeSet<Key>>>() {
                Some(keys) => theirs.iter().all(|value| value.key().is_some_and(|key| keys.contains(&key))),
                None => theirs.iter().all(|value| ours.iter().any(|ours| ours.equals(value))),
            },
            Keyed::Fields(fields) => {
                let by_key: BTreeMap<_, _> =
                    ours.iter().map(|value| (composite(value, fields), value)).collect();
                theirs
                    .iter()
                    .all(|value| by_key.get(&composite(value, fields)).is_some_and(|ours| ours.equals(value)))
            }
        }
    }

    /// Both lists in one: sets and lists that are maps merge.
    pub fn concat(&self, other: &List<'a>) -> Result<List<'a>, Fault> {
        let mut items = self.values()?;
        match self.keyed {
            Keyed::Position => {
                items.reserve(other.len());
                for item in other.iter() {
                    items.push(item?);
                }
            }
            Keyed::Value => {
                let mut seen: BTreeSet<Option<Key>> = items.iter().map(Value::key).collect();
                for item in other.iter() {
                    let item = item?;
                    if seen.insert(item.key()) {
                        items.push(item);
                    }
                }
            }
            Keyed::Fields(fields) => {
                let places: BTreeMap<_, _> =
                    items.iter().enumerate().map(|(n, value)| (composite(value, fields), n)).collect();
                for item in other.iter() {
                    let item = item?;
                    match places.get(&composite(&item, fields)) {
                        Some(place) => items[*place] = item,
                        None => items.push(item),
                    }
                }
            }
        }
        Ok(List { items: Items::Values(Arc::new(items)), keyed: self.keyed })
    }
}

/// What an element of a list that is a map is known by.
fn composite(value: &Value<'_>, fields: &[String]) -> Vec<Option<Key>> {
    let field = |name: &String| match value {
        Value::Map(map) => map.raw(name)?.ok()?.key(),
        _ => None,
    };
    fields.iter().map(field).collect()
}
