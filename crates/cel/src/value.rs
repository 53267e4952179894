//! What expressions work on. Data is read in place: a value of an object is a view of its JSON.

mod list;
mod map;

use std::{cmp::Ordering, net::IpAddr, ops::Deref, sync::Arc};

use serde_json::Value as Json;

pub use self::{list::List, map::Map};
use crate::library::{
    cidr::Cidr, named_format::NamedFormat, quantity::Quantity, semver::Semver, time::Time, url::Url,
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
