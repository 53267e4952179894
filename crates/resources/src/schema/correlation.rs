//! Which part of an object was which before: what an update left alone is not held against it.

use std::{cell::OnceCell, collections::BTreeMap};

use serde_json::Value;

use super::Schema;

/// A value and what it was before.
#[derive(Clone, Copy)]
struct Pair<'a> {
    new: &'a Value,
    old: &'a Value,
    schema: &'a Schema,
}

/// Where a walk over an object is: at a value that was there before, or below one that was.
#[derive(Clone, Copy, Default)]
pub(super) struct Correlation<'a> {
    here: Option<Pair<'a>>,
    above: Option<&'a Inside<'a>>,
}

impl<'a> Correlation<'a> {
    pub(super) fn new(new: &'a Value, old: &'a Value, schema: &'a Schema) -> Self {
        Self { here: Some(Pair { new, old, schema }), above: None }
    }

    /// Ready to go into the value that is here.
    pub(super) fn inside(self) -> Inside<'a> {
        let before = self.here.and_then(|pair| Some(Elements::of(pair.schema, pair.old.as_array()?)));
        Inside { of: self, before, unchanged: OnceCell::new() }
    }

    /// Whether the value was there before and is as it was.
    pub(super) fn is_kept(self) -> bool {
        self.here.is_some_and(Pair::is_unchanged)
    }

    /// Whether the value, or else the nearest one above that was there before, is as it was.
    pub(super) fn is_unchanged(self) -> bool {
        match self.here {
            Some(pair) => pair.is_unchanged(),
            None => self.above.is_some_and(Inside::is_unchanged),
        }
    }
}

/// A list or object that a walk goes into. What is the same for everything in it is found out once.
pub(super) struct Inside<'a> {
    of: Correlation<'a>,
    before: Option<Elements<'a>>,
    unchanged: OnceCell<bool>,
}

impl Inside<'_> {
    pub(super) fn field(&self, name: &str) -> Correlation<'_> {
        match self.of.here {
            None => self.of,
            // Both are converted to the same version before they come here, so nothing can be said of these.
            Some(_) if self.of.above.is_none() && ["apiVersion", "kind"].contains(&name) => {
                Correlation::default()
            }
            Some(pair) => Correlation { here: pair.field(name), above: Some(self) },
        }
    }

    pub(super) fn element(&self, index: usize) -> Correlation<'_> {
        let Some(pair) = self.of.here else { return self.of };
        let found = || {
            let new = pair.new.as_array()?.get(index)?;
            Some(Pair { new, old: self.before.as_ref()?.find(new)?, schema: pair.schema.items.as_deref()? })
        };
        Correlation { here: found(), above: Some(self) }
    }

    fn is_unchanged(&self) -> bool {
        *self.unchanged.get_or_init(|| self.of.is_kept())
    }
}

impl<'a> Pair<'a> {
    fn field(self, name: &str) -> Option<Self> {
        Some(Self { new: self.new.get(name)?, old: self.old.get(name)?, schema: self.schema.field(name)? })
    }

    fn is_unchanged(self) -> bool {
        match (self.new, self.old) {
            (Value::Array(new), Value::Array(old)) if self.schema.list_type() == Some("map") => {
                let Some(items) = self.schema.items.as_deref() else { return new == old };
                let before = Elements::of(self.schema, old);
                new.len() == old.len()
                    && new.iter().all(|new| {
                        before.find(new).is_some_and(|old| Pair { new, old, schema: items }.is_unchanged())
                    })
            }
            (Value::Object(new), Value::Object(old)) => {
                new.len() == old.len()
                    && new.keys().all(|name| self.field(name).is_some_and(Pair::is_unchanged))
            }
            (new, old) => new == old,
        }
    }
}

/// The elements of a list that is a map, by their keys. Lists of other types have none.
pub(super) struct Elements<'a> {
    schema: &'a Schema,
    by_key: BTreeMap<String, &'a Value>,
}

impl<'a> Elements<'a> {
    pub(super) fn of(schema: &'a Schema, list: &'a [Value]) -> Self {
        let mut by_key = BTreeMap::new();
        if schema.list_type() == Some("map") && !schema.list_map_keys().is_empty() {
            for element in list {
                if let Some(key) = key(schema, element) {
                    by_key.entry(key).or_insert(element);
                }
            }
        }
        Self { schema, by_key }
    }

    pub(super) fn find(&self, element: &Value) -> Option<&'a Value> {
        if self.by_key.is_empty() {
            return None;
        }
        self.by_key.get(&key(self.schema, element)?).copied()
    }
}

/// What an element is known by; nothing unless all its keys are there and plain.
fn key(schema: &Schema, element: &Value) -> Option<String> {
    let mut text = String::new();
    for name in schema.list_map_keys() {
        match element.get(&**name)? {
            Value::Array(_) | Value::Object(_) | Value::Null => return None,
            plain => text.push_str(&format!("{plain}\0")),
        }
    }
    Some(text)
}
