//! The types of expressions, and how the original writes them.

use std::{fmt, sync::Arc};

use crate::data::Object;

#[derive(Clone, Debug)]
pub enum Type {
    /// Anything; checked when the rule runs.
    Dyn,
    /// Something was wrong with it and was told, so nothing more is.
    Error,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    List(Arc<Type>),
    Map(Arc<Type>, Arc<Type>),
    /// An object of a schema. Two are the same if they are the same place of the schema.
    Object(Arc<Object>),
    /// A type of the library without fields, compared by name: `kubernetes.URL`.
    Named(Arc<str>),
    /// A type of the library that may have parameters: `optional_type(int)`.
    Opaque(Arc<str>, Vec<Type>),
    /// The type of a type.
    Type(Option<Arc<Type>>),
    /// A type to be found out.
    Param(Arc<str>),
}

pub const OPTIONAL: &str = "optional_type";

impl Type {
    /// A type by the name that rules write it with.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "bool" => Type::Bool,
            "bytes" => Type::Bytes,
            "double" => Type::Double,
            "duration" | "google.protobuf.Duration" => Type::Duration,
            "dyn" => Type::Dyn,
            "int" => Type::Int,
            "list" => Type::list(Type::Dyn),
            "map" => Type::map(Type::Dyn, Type::Dyn),
            "net.CIDR" | "net.IP" => Type::Opaque(name.into(), Vec::new()),
            "null_type" => Type::Null,
            "optional_type" => Type::optional(Type::Dyn),
            "string" => Type::String,
            "timestamp" | "google.protobuf.Timestamp" => Type::Timestamp,
            "type" => Type::Type(None),
            "uint" => Type::Uint,
            _ => return None,
        })
    }

    pub fn list(of: Type) -> Self {
        Self::List(Arc::new(of))
    }

    pub fn map(key: Type, value: Type) -> Self {
        Self::Map(Arc::new(key), Arc::new(value))
    }

    pub fn optional(of: Type) -> Self {
        Self::Opaque(OPTIONAL.into(), vec![of])
    }

    /// What an optional would hold, or the type itself, and whether it was one.
    pub fn unwrap_optional(&self) -> (&Type, bool) {
        match self {
            Self::Opaque(name, parameters) if **name == *OPTIONAL => match parameters.first() {
                Some(inner) => (inner, true),
                None => (self, false),
            },
            other => (other, false),
        }
    }

    pub fn is_dyn(&self) -> bool {
        matches!(self, Self::Dyn)
    }

    pub fn is_dyn_or_error(&self) -> bool {
        matches!(self, Self::Dyn | Self::Error)
    }

    /// A value of this type has the same size whatever it is.
    pub fn is_scalar(&self) -> bool {
        match self {
            Self::Bool | Self::Double | Self::Duration | Self::Int | Self::Timestamp | Self::Uint => true,
            other => match other.unwrap_optional() {
                (inner, true) => inner.is_scalar(),
                _ => false,
            },
        }
    }
}

impl PartialEq for Type {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::List(a), Self::List(b)) => a == b,
            (Self::Map(ak, av), Self::Map(bk, bv)) => ak == bk && av == bv,
            (Self::Object(a), Self::Object(b)) => a.name == b.name,
            (Self::Named(a), Self::Named(b)) | (Self::Param(a), Self::Param(b)) => a == b,
            (Self::Opaque(a, ap), Self::Opaque(b, bp)) => a == b && ap == bp,
            (Self::Type(a), Self::Type(b)) => a == b,
            (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn => f.write_str("dyn"),
            Self::Error => f.write_str("!error!"),
            Self::Null => f.write_str("null"),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::String => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Duration => f.write_str("duration"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::List(of) => write!(f, "list({of})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Object(object) => f.write_str(&object.name),
            Self::Named(name) | Self::Param(name) => f.write_str(name),
            Self::Opaque(name, parameters) if parameters.is_empty() => f.write_str(name),
            Self::Opaque(name, parameters) => {
                let shown: Vec<String> = parameters.iter().map(ToString::to_string).collect();
                write!(f, "{name}({})", shown.join(", "))
            }
            Self::Type(None) => f.write_str("type"),
            Self::Type(Some(of)) => write!(f, "type({of})"),
        }
    }
}
