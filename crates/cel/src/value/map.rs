//! Maps and objects. A field of an object that is null is not there.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Map as JsonMap, Value as Json};

use super::{Key, Text, Value};
use crate::{
    data::{Declaration, Object},
    escape::{escape, unescape},
    fault::Fault,
    read,
};

#[derive(Clone, Debug)]
pub enum Map<'a> {
    Object(&'a JsonMap<String, Json>, &'a Object),
    Json(&'a JsonMap<String, Json>, &'a Declaration),
    /// By key, with the key as it was given.
    Values(Arc<BTreeMap<Key, (Value<'a>, Value<'a>)>>),
}

impl<'a> Map<'a> {
    pub fn len(&self) -> usize {
        match self {
            Map::Object(map, _) | Map::Json(map, _) => map.len(),
            Map::Values(map) => map.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn find(&self, key: &Value<'a>) -> Option<Result<Value<'a>, Fault>> {
        match (self, key) {
            (Map::Values(map), key) => map.get(&key.key()?).map(|(_, value)| Ok(value.clone())),
            (Map::Object(..), Value::String(name)) => self.raw(&unescape(name)?),
            (Map::Json(..), Value::String(name)) => self.raw(name),
            _ => Some(Err(Fault::no_overload())),
        }
    }

    /// The same by the name in the data.
    pub fn raw(&self, name: &str) -> Option<Result<Value<'a>, Fault>> {
        match self {
            // A field that is null is not there.
            Map::Object(map, object) => {
                let (value, declared) = (map.get(name)?, object.properties.get(name)?);
                (!value.is_null()).then(|| read::value(value, declared))
            }
            Map::Json(map, values) => map.get(name).map(|value| read::value(value, values)),
            Map::Values(map) => map.get(&Key::Text(name.into())).map(|(_, value)| Ok(value.clone())),
        }
    }

    /// The keys in their order, as rules write them.
    pub fn keys(&self) -> Vec<Value<'a>> {
        match self {
            Map::Object(map, object) => map
                .keys()
                .filter(|name| object.properties.contains_key(*name))
                .map(|name| match escape(name) {
                    Some(escaped) => Value::text(escaped),
                    None => Value::String(Text::Borrowed(name)),
                })
                .collect(),
            Map::Json(map, _) => map.keys().map(|name| Value::String(Text::Borrowed(name))).collect(),
            Map::Values(map) => map.values().map(|(key, _)| key.clone()).collect(),
        }
    }

    pub(super) fn equals(&self, other: &Map<'a>) -> bool {
        if self.len() != other.len() {
            return false;
        }
        match self {
            Map::Object(map, object) => map.iter().all(|(name, value)| {
                if object.properties.contains_key(name) {
                    return same(self.raw(name), other.raw(name));
                }
                // Nothing is known of the field: it is the same as data.
                match other {
                    Map::Object(theirs, _) => theirs.get(name).is_none_or(|theirs| theirs == value),
                    _ => false,
                }
            }),
            Map::Json(map, _) => map.keys().all(|name| same(self.raw(name), other.raw(name))),
            Map::Values(map) => map.values().all(|(key, value)| {
                other.find(key).is_some_and(|theirs| theirs.is_ok_and(|theirs| value.equals(&theirs)))
            }),
        }
    }
}

fn same<'a>(one: Option<Result<Value<'a>, Fault>>, other: Option<Result<Value<'a>, Fault>>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(Ok(one)), Some(Ok(other))) => one.equals(&other),
        _ => false,
    }
}
