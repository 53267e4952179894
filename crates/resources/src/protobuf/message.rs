//! From the bytes of a message to its JSON, by the tables.
//!
//! A message is first gathered and then written out, since a field may come twice (the
//! later scalar wins, messages merge, lists grow) and what never came may still have to be
//! written. A body may be hostile: depth and number of messages are bounded, because a
//! message of two bytes can mean a long object full of zeros.

use serde_json::{Map, Value};

use super::{
    leaf::Leaf,
    tables::{self, Field, Message, Shape, Type},
    wire::{Payload, Reader, WireError},
};

/// So many messages inside each other; only schemas nest without an end of their own.
const MAX_DEPTH: usize = 100;
/// So many messages in one body: more than fit into an object of the largest size.
const MAX_MESSAGES: usize = 100_000;

#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("nested deeper than {MAX_DEPTH} messages")]
    TooDeep,
    #[error("more than {MAX_MESSAGES} messages")]
    TooManyMessages,
    #[error("{field} is not a number that JSON can hold")]
    NotANumber { field: String },
    #[error("{field} is not a time")]
    NotATime { field: String },
    #[error("{field} is neither an integer nor a string")]
    NeitherIntNorString { field: String },
    #[error("{field} is not JSON: {why}")]
    NotJson { field: String, why: serde_json::Error },
}

/// The JSON of one object.
pub fn read(message: &'static Message, bytes: &[u8]) -> Result<Value, ObjectError> {
    Transcoder { messages: 0 }.whole(message, bytes, 0)
}

struct Transcoder {
    messages: usize,
}

/// Those fields of a message that have come, each with its place in the table.
#[derive(Default)]
struct Gathered(Vec<(usize, Slot)>);

enum Slot {
    Leaf(Value),
    List(Vec<Value>),
    Map(Map<String, Value>),
    Message(Gathered),
}

impl Gathered {
    fn slot(&mut self, place: usize, empty: impl FnOnce() -> Slot) -> &mut Slot {
        let at = self.0.iter().position(|(found, _)| *found == place).unwrap_or_else(|| {
            self.0.push((place, empty()));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }

    fn take(&mut self, place: usize) -> Option<Slot> {
        let at = self.0.iter().position(|(found, _)| *found == place)?;
        Some(self.0.swap_remove(at).1)
    }
}

impl Field {
    fn unless_left_out(&self, leaf: Leaf, value: Value) -> Option<Value> {
        let left_out = (self.omit_empty && leaf.is_empty(&value)) || (self.omit_zero && value.is_null());
        (!left_out).then_some(value)
    }
}

impl Transcoder {
    fn whole(&mut self, message: &'static Message, bytes: &[u8], depth: usize) -> Result<Value, ObjectError> {
        let mut gathered = Gathered::default();
        self.gather(message, &mut gathered, bytes, depth)?;
        self.write(message, gathered)
    }

    fn gather(
        &mut self,
        message: &'static Message,
        gathered: &mut Gathered,
        bytes: &[u8],
        depth: usize,
    ) -> Result<(), ObjectError> {
        if depth >= MAX_DEPTH {
            return Err(ObjectError::TooDeep);
        }
        self.count()?;
        let mut reader = Reader::new(bytes);
        while let Some((number, payload)) = reader.field()? {
            // Fields of a later version are dropped without a word, as in the original.
            let Some(place) = message.fields.iter().position(|field| field.number == number) else {
                continue;
            };
            let field = &message.fields[place];
            match field.shape {
                Shape::Plain | Shape::Pointer => self.single(field, place, gathered, payload, depth)?,
                Shape::List => {
                    let slot = gathered.slot(place, || Slot::List(Vec::new()));
                    let Slot::List(items) = slot else { continue };
                    self.items(field, items, payload, depth)?;
                }
                Shape::Map => {
                    let slot = gathered.slot(place, || Slot::Map(Map::new()));
                    let Slot::Map(entries) = slot else { continue };
                    let (key, value) = self.entry(field, payload.bytes(field.name)?, depth)?;
                    entries.insert(key, value);
                }
            }
        }
        Ok(())
    }

    fn single(
        &mut self,
        field: &Field,
        place: usize,
        gathered: &mut Gathered,
        payload: Payload<'_>,
        depth: usize,
    ) -> Result<(), ObjectError> {
        let inner = match field.of {
            Type::Message(inner) => inner,
            Type::Leaf(leaf) => {
                let value = leaf.read(payload, field.name)?;
                *gathered.slot(place, || Slot::Leaf(Value::Null)) = Slot::Leaf(value);
                return Ok(());
            }
        };
        let slot = gathered.slot(place, || Slot::Message(Gathered::default()));
        let Slot::Message(inside) = slot else { return Ok(()) };
        self.gather(tables::message(inner), inside, payload.bytes(field.name)?, depth + 1)
    }

    fn items(
        &mut self,
        field: &Field,
        items: &mut Vec<Value>,
        payload: Payload<'_>,
        depth: usize,
    ) -> Result<(), ObjectError> {
        match (field.of, payload) {
            (Type::Leaf(leaf), Payload::Bytes(packed)) if leaf.may_be_packed() => {
                let mut reader = Reader::new(packed);
                while !reader.is_at_end() {
                    let one = Payload::Varint(reader.varint()?);
                    items.push(leaf.read(one, field.name)?);
                }
            }
            _ => items.push(self.value(field, payload, depth)?),
        }
        Ok(())
    }

    /// An entry of a map: a message of a key and a value, either of which may be left out.
    fn entry(&mut self, field: &Field, bytes: &[u8], depth: usize) -> Result<(String, Value), ObjectError> {
        let (mut key, mut sent) = (String::new(), None);
        let mut reader = Reader::new(bytes);
        while let Some((number, payload)) = reader.field()? {
            match number {
                1 => key = String::from_utf8_lossy(payload.bytes(field.name)?).into_owned(),
                2 => sent = Some(payload),
                _ => {}
            }
        }
        let value = match (sent, field.of) {
            (Some(payload), _) => self.value(field, payload, depth)?,
            (None, Type::Message(_)) => self.value(field, Payload::Bytes(&[]), depth)?,
            // Bytes that were not sent are none here, though null in a field.
            (None, Type::Leaf(Leaf::Bytes)) => "".into(),
            (None, Type::Leaf(leaf)) => leaf.zero(),
        };
        Ok((key, value))
    }

    fn value(&mut self, field: &Field, payload: Payload<'_>, depth: usize) -> Result<Value, ObjectError> {
        match field.of {
            Type::Message(inner) => self.whole(tables::message(inner), payload.bytes(field.name)?, depth + 1),
            Type::Leaf(leaf) => leaf.read(payload, field.name),
        }
    }

    fn write(&mut self, message: &'static Message, gathered: Gathered) -> Result<Value, ObjectError> {
        if message.is_choice {
            return self.write_choice(message, gathered);
        }
        let mut object = Map::new();
        self.write_fields(message, gathered, &mut object)?;
        Ok(Value::Object(object))
    }

    fn write_choice(
        &mut self,
        message: &'static Message,
        mut gathered: Gathered,
    ) -> Result<Value, ObjectError> {
        for (place, field) in message.fields.iter().enumerate() {
            if let Some(value) = self.written(field, gathered.take(place))? {
                return Ok(value);
            }
        }
        Ok(Value::Null)
    }

    fn write_fields(
        &mut self,
        message: &'static Message,
        mut gathered: Gathered,
        object: &mut Map<String, Value>,
    ) -> Result<(), ObjectError> {
        for (place, field) in message.fields.iter().enumerate() {
            let slot = gathered.take(place);
            if let (true, Type::Message(inner)) = (field.is_inline(), field.of) {
                let inside = match slot {
                    Some(Slot::Message(inside)) => inside,
                    _ => Gathered::default(),
                };
                self.write_fields(tables::message(inner), inside, object)?;
            } else if let Some(value) = self.written(field, slot)? {
                object.insert(field.name.into(), value);
            }
        }
        Ok(())
    }

    /// What the JSON has for a field; nothing when it is left out.
    fn written(&mut self, field: &Field, slot: Option<Slot>) -> Result<Option<Value>, ObjectError> {
        let value = match (slot, field.of) {
            // Numbers packed into no bytes are no list.
            (Some(Slot::List(items)), _) if !items.is_empty() => Value::Array(items),
            (Some(Slot::Map(entries)), _) => Value::Object(entries),
            (Some(Slot::Message(inside)), Type::Message(inner)) => {
                self.write(tables::message(inner), inside)?
            }
            (Some(Slot::Leaf(value)), _) if field.shape == Shape::Pointer => value,
            (Some(Slot::Leaf(value)), Type::Leaf(leaf)) => return Ok(field.unless_left_out(leaf, value)),
            (_, _) if field.shape != Shape::Plain => return Ok((!field.omit_empty).then_some(Value::Null)),
            (_, Type::Leaf(leaf)) => return Ok(field.unless_left_out(leaf, leaf.zero())),
            (_, Type::Message(inner)) => {
                self.count()?;
                self.write(tables::message(inner), Gathered::default())?
            }
        };
        Ok(Some(value))
    }

    fn count(&mut self) -> Result<(), ObjectError> {
        self.messages += 1;
        match self.messages > MAX_MESSAGES {
            true => Err(ObjectError::TooManyMessages),
            false => Ok(()),
        }
    }
}
