//! How much a run really does, beside what the original charges for it.
//!
//! The original's costs leave out work that is cheap there or that nobody did in good faith: a list that is doubled
//! costs one unit whatever its length, and so does comparing two objects of a megabyte. Costs must stay the
//! original's, so what is touched is counted here, by bytes, with a limit far above what a rule within its costs
//! does. A run that passes it ends as one that costs too much.

use serde_json::Value as Json;

use crate::{
    data::{Declaration, Keyed, Shape},
    fault::Fault,
    library::strings::LONGEST,
    value::{Map, Value},
};

/// What all runs about one object may do: about a second's work.
const MOST: u64 = 1 << 30;

/// Looking at a part of a list or map, whatever it is.
const ELEMENT: u64 = 32;
/// The same for one that is kept: memory is what runs out first.
const KEPT_ELEMENT: u64 = 256;
/// A byte that is kept.
const KEPT: u64 = 8;

/// What the runs about one object have done so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meter {
    effort: u64,
    /// Patterns that came out of the data and had to be compiled.
    patterns: u32,
}

/// So many patterns out of the data are compiled at the price of matching them, and each one more at this price:
/// the original charges nothing for it, but whoever writes an object could keep a processor busy with it.
const CHEAP_PATTERNS: u32 = 100;
const PATTERN: u64 = 1_000;

impl Meter {
    /// Counts bytes touched.
    pub(crate) fn touch(&mut self, bytes: u64) -> Result<(), Fault> {
        self.effort = self.effort.saturating_add(bytes);
        if self.effort > MOST { Err(Fault::OverBudget) } else { Ok(()) }
    }

    /// Counts bytes that are kept until the run ends.
    pub(crate) fn keep(&mut self, bytes: usize) -> Result<(), Fault> {
        self.touch((bytes as u64).saturating_mul(KEPT))
    }

    /// Counts looking at so many parts of a list or map.
    pub(crate) fn look(&mut self, parts: usize) -> Result<(), Fault> {
        self.touch((parts as u64).saturating_mul(ELEMENT))
    }

    /// Counts what a call is about to do.
    pub(crate) fn call(&mut self, function: &str, args: &[Value<'_>]) -> Result<(), Fault> {
        let left = MOST.saturating_sub(self.effort);
        self.touch(of_call(function, args, left))
    }

    /// Counts a pattern that is about to be compiled; gives back what that costs.
    pub(crate) fn pattern(&mut self) -> u64 {
        self.patterns = self.patterns.saturating_add(1);
        if self.patterns > CHEAP_PATTERNS { PATTERN } else { 0 }
    }
}

fn of_call(function: &str, args: &[Value<'_>], left: u64) -> u64 {
    let all = || args.iter().fold(0, |sum: u64, arg| sum.saturating_add(extent(arg, left)));
    match (function, args) {
        ("_+_", [Value::List(one), Value::List(other)]) => {
            ((one.len() + other.len()) as u64).saturating_mul(KEPT_ELEMENT)
        }
        ("cel.@mapInsert", [Value::Map(map), ..]) => (map.len() as u64).saturating_mul(KEPT_ELEMENT),
        ("_==_" | "_!=_", [Value::List(one), Value::List(other)]) if one.len() != other.len() => ELEMENT,
        ("_==_" | "_!=_", [Value::Map(one), Value::Map(other)]) if one.len() != other.len() => ELEMENT,
        ("@in", [Value::String(key), Value::Map(_)]) => key.len() as u64,
        ("sets.contains" | "sets.equivalent" | "sets.intersects", [Value::List(one), Value::List(other)]) => {
            // What cannot be looked up is compared with every other.
            let compound = |item: Option<Result<Value<'_>, Fault>>| {
                item.and_then(Result::ok).is_some_and(|item| item.key().is_none())
            };
            let pairs = compound(one.get(0)) || compound(other.get(0));
            all().saturating_mul(if pairs { one.len().max(other.len()) as u64 } else { 1 })
        }
        // What is written is as long as what is read, more or less, and only now it is known how long.
        ("format", _) => match all() {
            long if long > LONGEST as u64 => u64::MAX,
            fine => fine,
        },
        ("size" | "first" | "last" | "unwrapOpt" | "optional.unwrap", [Value::List(list), ..]) => {
            if ["unwrapOpt", "optional.unwrap"].contains(&function) {
                (list.len() as u64).saturating_mul(KEPT_ELEMENT)
            } else {
                1
            }
        }
        ("size", [Value::Map(_)])
        | ("dyn" | "type" | "optional.of" | "optional.ofNonZeroValue" | "hasValue" | "value", _) => 1,
        _ => all(),
    }
}

/// How much there is to look at in a value, or more than `most`.
fn extent(value: &Value<'_>, most: u64) -> u64 {
    let mut walk = Walk { total: 0, most };
    walk.value(value);
    walk.total
}

/// A look at everything inside a value, given up once it is more than `most`.
pub(crate) struct Walk {
    total: u64,
    most: u64,
}

impl Walk {
    fn add(&mut self, bytes: usize) -> bool {
        self.total = self.total.saturating_add(ELEMENT).saturating_add(bytes as u64);
        self.total <= self.most
    }

    pub(crate) fn value(&mut self, value: &Value<'_>) {
        let bytes = match value {
            Value::String(text) => text.len(),
            Value::Bytes(bytes) => bytes.len(),
            Value::Url(url) => url.text.len(),
            _ => 0,
        };
        if !self.add(bytes) {
            return;
        }
        match value {
            Value::List(list) => list.walk(self),
            Value::Map(Map::Values(map)) => {
                for (key, value) in map.values() {
                    self.value(key);
                    self.value(value);
                    if self.total > self.most {
                        return;
                    }
                }
            }
            Value::Map(Map::Object(map, object)) => {
                for (name, value) in *map {
                    self.entry(name, value, object.properties.get(name).map(|declared| &**declared));
                }
            }
            Value::Map(Map::Json(map, values)) => {
                for (name, value) in *map {
                    self.entry(name, value, Some(values));
                }
            }
            Value::Optional(Some(held)) => self.value(held),
            Value::Unknown(json) => self.json(json, None),
            _ => {}
        }
    }

    fn entry(&mut self, name: &str, json: &Json, declared: Option<&Declaration>) {
        if self.add(name.len()) {
            self.json(json, declared);
        }
    }

    fn json(&mut self, json: &Json, declared: Option<&Declaration>) {
        if !self.add(json.as_str().map_or(0, str::len)) {
            return;
        }
        match (json, declared.map(|declared| &declared.shape)) {
            (Json::Array(list), Some(Shape::List { items, keyed })) => {
                self.list(list, Some(items), *keyed == Keyed::Value);
            }
            (Json::Array(list), _) => self.list(list, None, false),
            (Json::Object(map), Some(Shape::Object(object))) => {
                for (name, value) in map {
                    self.entry(name, value, object.properties.get(name).map(|declared| &**declared));
                }
            }
            (Json::Object(map), shape) => {
                let values = match shape {
                    Some(Shape::Map { values }) => Some(&**values),
                    _ => None,
                };
                for (name, value) in map {
                    self.entry(name, value, values);
                }
            }
            _ => {}
        }
    }

    pub(crate) fn list(&mut self, list: &[Json], items: Option<&Declaration>, is_set: bool) {
        let before = self.total;
        for item in list {
            self.json(item, items);
            if self.total > self.most {
                return;
            }
        }
        // Members of a set that cannot be looked up are compared with every other.
        if is_set && list.first().is_some_and(|item| item.is_object() || item.is_array()) {
            let inside = (self.total - before).saturating_mul(list.len() as u64);
            self.total = before.saturating_add(inside);
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.total > self.most
    }
}
