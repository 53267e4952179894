//! The functions a rule may call. What is not in `functions.txt` is refused when a rule is compiled.
//!
//! The table was written by the original (`tests/clients/cel-vectors functions`), without what needs an authorizer:
//! name, overload, style, parameters, result.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use crate::types::Type;

#[derive(Debug)]
pub struct Overload {
    pub id: &'static str,
    pub member: bool,
    pub parameters: Vec<Type>,
    pub result: Type,
}

/// The overloads of a function in the order they are tried.
pub fn overloads(name: &str) -> Option<&'static [Overload]> {
    table().get(name).map(Vec::as_slice)
}

/// Every function by name, operators included.
pub fn names() -> impl Iterator<Item = &'static str> {
    table().keys().copied()
}

fn table() -> &'static BTreeMap<&'static str, Vec<Overload>> {
    static TABLE: OnceLock<BTreeMap<&'static str, Vec<Overload>>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut table: BTreeMap<&'static str, Vec<Overload>> = BTreeMap::new();
        for line in include_str!("functions.txt").lines() {
            let mut columns = line.split('\t');
            let mut column = || columns.next().unwrap_or_default();
            let (name, id, style, parameters, result) = (column(), column(), column(), column(), column());
            let parameters = match parameters {
                "" => Vec::new(),
                some => some.split("; ").map(read).collect(),
            };
            let overload = Overload { id, member: style == "member", parameters, result: read(result) };
            table.entry(name).or_default().push(overload);
        }
        table
    })
}

/// A type as the table writes it: `map<$K, list<string>>`.
fn read(text: &str) -> Type {
    if let Some(name) = text.strip_prefix('$') {
        return Type::Param(name.into());
    }
    let (name, inner) = match text.split_once('<') {
        Some((name, rest)) => (name, split(rest.strip_suffix('>').unwrap_or(rest))),
        None => (text, Vec::new()),
    };
    let mut inner = inner.into_iter().map(read);
    let mut next = || inner.next().unwrap_or(Type::Dyn);
    match name {
        "dyn" => Type::Dyn,
        "null_type" => Type::Null,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        "list" => Type::list(next()),
        "map" => Type::map(next(), next()),
        "type" => Type::Type(Some(Arc::new(next()))),
        "optional_type" => Type::optional(next()),
        "net.IP" | "net.CIDR" => Type::Opaque(name.into(), Vec::new()),
        other => Type::Named(other.into()),
    }
}

/// Cuts at the commas that stand in no bracket.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut begin) = (Vec::new(), 0, 0);
    for (at, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[begin..].trim());
    parts
}
