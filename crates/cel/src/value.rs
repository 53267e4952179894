//! What expressions work on. Data is read in place: a value of an object is a view of its JSON.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    ops::Deref,
    sync::Arc,
};

use serde_json::{Map as JsonMap, Value as Json};

use crate::{
    data::{Declaration, Keyed, Object},
    escape::{escape, unescape},
    fault::Fault,
    library::{
        cidr::Cidr, named_format::NamedFormat, quantity::Quantity, semver::Semver, time::Time, url::Url,
    },
    read,
};

#[derive(Clone, Debug)]
pub enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Text<'a>),
    Bytes(Arc<[u8]>),
    /// In nanoseconds.
    Duration(i64),
    Timestamp(Time),
    List(List<'a>),
    Map(Map<'a>),
    /// A type, by the name it has when rules run.
    Type(Arc<str>),
    Optional(Option<Arc<Value<'a>>>),
    Quantity(Quantity),
    Ip(IpAddr),
    Cidr(Cidr),
    Url(Arc<Url>),
    Format(&'static NamedFormat),
    Semver(Arc<Semver>),
    /// Data that no schema describes: it can be compared and nothing else.
    Unknown(&'a Json),
}

#[derive(Clone, Debug)]
pub enum Text<'a> {
    Borrowed(&'a str),
    Shared(Arc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Text::Borrowed(text) => text,
            Text::Shared(text) => text,
        }
    }
}

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

#[derive(Clone, Debug)]
pub enum Map<'a> {
    Object(&'a JsonMap<String, Json>, &'a Object),
    Json(&'a JsonMap<String, Json>, &'a Declaration),
    /// By key, with the key as it was given.
    Values(Arc<BTreeMap<Key, (Value<'a>, Value<'a>)>>),
}

/// What a map or set can be looked up by. Numbers are the same whatever type they come in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Null,
    Bool(bool),
    Number(i128),
    Double(u64),
    Text(Box<str>),
    Bytes(Box<[u8]>),
    Time(Time),
    Duration(i64),
}

impl<'a> Value<'a> {
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Value::String(Text::Shared(text.into()))
    }

    pub fn list(items: Vec<Value<'a>>) -> Self {
        Value::List(List { items: Items::Values(Arc::new(items)), keyed: &Keyed::Position })
    }

    pub fn texts<S: AsRef<str>>(items: impl IntoIterator<Item = S>) -> Self {
        Value::list(items.into_iter().map(|item| Value::text(item.as_ref())).collect())
    }

    pub fn json_list(items: &'a [Json], of: &'a Declaration, keyed: &'a Keyed) -> Self {
        Value::List(List { items: Items::Json(items, of), keyed })
    }

    pub fn some(value: Value<'a>) -> Self {
        Value::Optional(Some(Arc::new(value)))
    }

    /// The name of its type when rules run.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Null => "null_type",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Uint(_) => "uint",
            Value::Double(_) => "double",
            Value::String(_) => "string",
            Value::Bytes(_) => "bytes",
            Value::Duration(_) => "google.protobuf.Duration",
            Value::Timestamp(_) => "google.protobuf.Timestamp",
            Value::List(_) => "list",
            Value::Map(_) => "map",
            Value::Type(_) => "type",
            Value::Optional(_) => "optional_type",
            Value::Quantity(_) => "kubernetes.Quantity",
            Value::Ip(_) => "net.IP",
            Value::Cidr(_) => "net.CIDR",
            Value::Url(_) => "kubernetes.URL",
            Value::Format(_) => "kubernetes.NamedFormat",
            Value::Semver(_) => "kubernetes.Semver",
            Value::Unknown(_) => "unknown",
        }
    }

    /// What `size()` would say; nothing for what has no size.
    pub fn size(&self) -> Option<u64> {
        Some(match self {
            Value::String(text) => text.chars().count() as u64,
            Value::Bytes(bytes) => bytes.len() as u64,
            Value::List(list) => list.len() as u64,
            Value::Map(map) => map.len() as u64,
            Value::Ip(IpAddr::V4(_)) => 4,
            Value::Ip(IpAddr::V6(_)) => 16,
            Value::Cidr(cidr) => u64::from(cidr.bits).div_ceil(8),
            _ => return None,
        })
    }

    /// Whether the two are the same. Values of different types are not, except numbers.
    pub fn equals(&self, other: &Value<'a>) -> bool {
        match (self, other) {
            (Value::Null, Value::Null) => true,
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (
                Value::Int(_) | Value::Uint(_) | Value::Double(_),
                Value::Int(_) | Value::Uint(_) | Value::Double(_),
            ) => self.compare(other) == Some(Ordering::Equal),
            (Value::String(a), Value::String(b)) => **a == **b,
            (Value::Bytes(a), Value::Bytes(b)) => a == b,
            (Value::Duration(a), Value::Duration(b)) => a == b,
            (Value::Timestamp(a), Value::Timestamp(b)) => a == b,
            (Value::List(a), Value::List(b)) => a.equals(b),
            (Value::Map(a), Value::Map(b)) => a.equals(b),
            (Value::Type(a), Value::Type(b)) => a == b,
            (Value::Optional(a), Value::Optional(b)) => match (a, b) {
                (None, None) => true,
                (Some(a), Some(b)) => a.equals(b),
                _ => false,
            },
            (Value::Quantity(a), Value::Quantity(b)) => a == b,
            (Value::Ip(a), Value::Ip(b)) => a == b,
            (Value::Cidr(a), Value::Cidr(b)) => a == b,
            (Value::Url(a), Value::Url(b)) => a.text == b.text,
            (Value::Format(a), Value::Format(b)) => a.name == b.name,
            (Value::Semver(a), Value::Semver(b)) => a.compare(b) == Ordering::Equal,
            (Value::Unknown(a), Value::Unknown(b)) => a == b,
            _ => false,
        }
    }

    /// Which comes first; nothing for what has no order, and for numbers that are none.
    pub fn compare(&self, other: &Value<'a>) -> Option<Ordering> {
        match (self, other) {
            (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
            (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
            (Value::Double(a), b) => compare_float(*a, b.whole()?),
            (a, Value::Double(b)) => compare_float(*b, a.whole()?).map(Ordering::reverse),
            (Value::String(a), Value::String(b)) => Some((**a).cmp(&**b)),
            (Value::Bytes(a), Value::Bytes(b)) => Some(a.cmp(b)),
            (Value::Duration(a), Value::Duration(b)) => Some(a.cmp(b)),
            (Value::Timestamp(a), Value::Timestamp(b)) => Some(a.cmp(b)),
            (a, b) => Some(a.whole()?.cmp(&b.whole()?)),
        }
    }

    fn whole(&self) -> Option<i128> {
        match self {
            Value::Int(number) => Some(i128::from(*number)),
            Value::Uint(number) => Some(i128::from(*number)),
            _ => None,
        }
    }

    /// What it is looked up by; nothing for what cannot be a key.
    pub fn key(&self) -> Option<Key> {
        Some(match self {
            Value::Null => Key::Null,
            Value::Bool(flag) => Key::Bool(*flag),
            Value::Int(_) | Value::Uint(_) => Key::Number(self.whole()?),
            Value::Double(float) if float.fract() == 0.0 && float.abs() < 1e18 => Key::Number(*float as i128),
            Value::Double(float) => Key::Double(float.to_bits()),
            Value::String(text) => Key::Text((**text).into()),
            Value::Bytes(bytes) => Key::Bytes((**bytes).into()),
            Value::Timestamp(time) => Key::Time(*time),
            Value::Duration(nanos) => Key::Duration(*nanos),
            _ => return None,
        })
    }
}

fn compare_float(float: f64, whole: i128) -> Option<Ordering> {
    float.partial_cmp(&(whole as f64))
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

    fn equals(&self, other: &List<'a>) -> bool {
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

    fn equals(&self, other: &Map<'a>) -> bool {
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
