//! Which fields the messages have: `tables.txt`, read when the first body comes.
//!
//! The file is generated from the types of the original by
//! `scripts/generate-protobuf-tables` and holds a line per fact:
//!
//! ```text
//! kind v1 ConfigMap core.v1.ConfigMap        a kind and its message; `*`: in every group
//! message core.v1.ConfigMap                  its fields follow
//! 1 metadata meta.v1.ObjectMeta omitempty    number, name in JSON, type, when it is left out
//! 2 data map:string omitempty                `map:`: of strings to this; `[]`: a list
//! 4 immutable *bool omitempty                `*`: being there at all is told apart from zero
//! 1 . core.v1.LocalObjectReference           `.`: its fields stand among those around it
//! choice apiextensions.v1.…OrBool            its JSON is that of its first field that is not
//!                                            left out, in this order; null without one
//! ```

use std::{collections::BTreeMap, sync::LazyLock};

use super::leaf::Leaf;

static TABLES: LazyLock<Tables> =
    LazyLock::new(|| Tables::parse(include_str!("tables.txt")).expect("a table of our own is well formed"));

/// The message of a kind, where it is known.
pub fn message_of(api_version: &str, kind: &str) -> Option<&'static Message> {
    let kinds = &TABLES.kinds;
    let at = kinds.get(&(api_version, kind)).or_else(|| kinds.get(&("*", kind)))?;
    Some(message(*at))
}

pub fn message(at: MessageId) -> &'static Message {
    &TABLES.messages[at.0]
}

#[derive(Debug)]
pub struct Message {
    pub is_choice: bool,
    pub fields: Vec<Field>,
}

#[derive(Debug)]
pub struct Field {
    pub number: u32,
    pub name: &'static str,
    pub shape: Shape,
    pub of: Type,
    /// Left out of the JSON when empty, as Go means empty.
    pub omit_empty: bool,
    /// Left out when it is a time that was never set.
    pub omit_zero: bool,
}

impl Field {
    pub fn is_inline(&self) -> bool {
        self.name == "."
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Always there, if only as its zero.
    Plain,
    /// There or not.
    Pointer,
    List,
    Map,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Leaf(Leaf),
    Message(MessageId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageId(usize);

#[derive(Debug)]
struct Tables {
    kinds: BTreeMap<(&'static str, &'static str), MessageId>,
    messages: Vec<Message>,
}

impl Tables {
    /// Reads the tables; the error is the line that makes no sense.
    fn parse(text: &'static str) -> Result<Tables, &'static str> {
        let ids = message_ids(text);
        let mut tables = Tables { kinds: BTreeMap::new(), messages: Vec::with_capacity(ids.len()) };
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<&'static str> = line.split(' ').collect();
            match words[..] {
                ["kind", api_version, kind, name] => {
                    tables.kinds.insert((api_version, kind), *ids.get(name).ok_or(line)?);
                }
                [what @ ("message" | "choice"), _] => {
                    tables.messages.push(Message { is_choice: what == "choice", fields: Vec::new() });
                }
                [number, name, of, ref omit @ ..] => {
                    let field = field(&ids, number, name, of, omit).ok_or(line)?;
                    tables.messages.last_mut().ok_or(line)?.fields.push(field);
                }
                _ => return Err(line),
            }
        }
        tables.messages.iter_mut().for_each(|message| message.fields.shrink_to_fit());
        Ok(tables)
    }
}

fn message_ids(text: &'static str) -> BTreeMap<&'static str, MessageId> {
    let named = |line: &'static str| line.strip_prefix("message ").or_else(|| line.strip_prefix("choice "));
    text.lines().filter_map(named).enumerate().map(|(at, name)| (name, MessageId(at))).collect()
}

fn field(
    ids: &BTreeMap<&'static str, MessageId>,
    number: &'static str,
    name: &'static str,
    of: &'static str,
    omit: &[&'static str],
) -> Option<Field> {
    let shapes = [("*", Shape::Pointer), ("[]", Shape::List), ("map:", Shape::Map)];
    let (shape, of) = shapes
        .into_iter()
        .find_map(|(prefix, shape)| Some((shape, of.strip_prefix(prefix)?)))
        .unwrap_or((Shape::Plain, of));
    let of = match Leaf::named(of) {
        Some(leaf) => Type::Leaf(leaf),
        None => Type::Message(*ids.get(of)?),
    };
    let omit_empty = omit.contains(&"omitempty");
    let omit_zero = omit.contains(&"omitzero");
    Some(Field { number: number.parse().ok()?, name, shape, of, omit_empty, omit_zero })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_tables_makes_sense() {
        let tables = Tables::parse(include_str!("tables.txt")).unwrap();
        assert!(tables.kinds.len() > 50 && tables.messages.len() > 200);
        let fields = tables.messages.iter().flat_map(|message| &message.fields);
        for field in fields {
            let inlines = field.shape == Shape::Plain && matches!(field.of, Type::Message(_));
            assert!(!field.is_inline() || inlines, "{field:?} cannot be inlined");
        }
    }

    #[test]
    fn a_line_that_makes_no_sense_is_named() {
        for line in
            ["1 name string", "message a.B\n1 name nonsense", "kind v1 A a.A", "message a.B\nx name string"]
        {
            assert!(Tables::parse(line).is_err(), "{line:?}");
        }
    }

    #[test]
    fn options_belong_to_every_group() {
        let names = |api_version, kind| -> Vec<&str> {
            message_of(api_version, kind).unwrap().fields.iter().map(|field| field.name).collect()
        };
        for group in ["v1", "rbac.authorization.k8s.io/v1", "meta.k8s.io/v1"] {
            assert!(names(group, "DeleteOptions").contains(&"propagationPolicy"), "{group}");
        }
        assert!(names("v1", "Event").contains(&"involvedObject"));
        assert!(names("events.k8s.io/v1", "Event").contains(&"regarding"));
        assert!(message_of("v1", "Unheard").is_none());
        assert!(message_of("v2", "ConfigMap").is_none());
    }
}
