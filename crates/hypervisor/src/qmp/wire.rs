//! QMP as bytes: one JSON object per line, in both directions.
//!
//! The peer is not trusted: a guest that took over its QEMU can write anything here. So
//! lines are bounded, what does not parse ends the connection, and what parses but means nothing
//! is passed over.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::QmpError;

/// The longest line taken. QEMU's longest answer (its own schema) is a twentieth of this.
pub const MOST_LINE_BYTES: usize = 4 << 20;

/// Something QEMU said.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    Greeting,
    Answer {
        id: u64,
        outcome: Result<Value, Refusal>,
    },
    Event(Event),
    /// Well-formed, and nothing we know: a newer QEMU may say more than we understand.
    Unknown,
}

/// Something happened that nobody asked about.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// In QEMU's capitals: `SHUTDOWN`, `RESET`, `STOP`, `RESUME`, `VSERPORT_CHANGE`...
    pub name: String,
    pub data: Map<String, Value>,
}

/// A command that QEMU would not carry out.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Refusal {
    pub class: String,
    pub desc: String,
}

/// Cuts the stream into messages.
#[derive(Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// Up to here there is no end of line.
    searched: usize,
}

impl Decoder {
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole message, or none until there is more.
    pub fn next_message(&mut self) -> Result<Option<Message>, QmpError> {
        loop {
            let Some(end) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') else {
                self.searched = self.buffer.len();
                return if self.buffer.len() > MOST_LINE_BYTES {
                    Err(QmpError::LineTooLong)
                } else {
                    Ok(None)
                };
            };
            let end = self.searched + end;
            if end > MOST_LINE_BYTES {
                return Err(QmpError::LineTooLong);
            }
            let message = parse(&self.buffer[..end]);
            self.buffer.drain(..=end);
            self.searched = 0;
            if let Some(message) = message? {
                return Ok(Some(message));
            }
        }
    }
}

/// One line; none if it is empty.
fn parse(line: &[u8]) -> Result<Option<Message>, QmpError> {
    let line = line.trim_ascii();
    if line.is_empty() {
        return Ok(None);
    }
    let value: Value = serde_json::from_slice(line).map_err(QmpError::NotJson)?;
    let Value::Object(mut object) = value else { return Err(QmpError::NotAnObject) };
    if object.contains_key("QMP") {
        return Ok(Some(Message::Greeting));
    }
    if let Some(name) = object.get("event").and_then(Value::as_str) {
        let name = name.to_owned();
        let data = match object.remove("data") {
            Some(Value::Object(data)) => data,
            _ => Map::new(),
        };
        return Ok(Some(Message::Event(Event { name, data })));
    }
    let Some(id) = object.get("id").and_then(Value::as_u64) else { return Ok(Some(Message::Unknown)) };
    let outcome = match (object.remove("return"), object.remove("error")) {
        (Some(value), None) => Ok(value),
        (None, Some(error)) => Err(serde_json::from_value(error).map_err(QmpError::NotJson)?),
        _ => return Ok(Some(Message::Unknown)),
    };
    Ok(Some(Message::Answer { id, outcome }))
}

/// A command, with its line end.
pub fn encode(id: u64, command: &str, arguments: &Value) -> Vec<u8> {
    let mut object = serde_json::json!({ "execute": command, "id": id });
    if !arguments.is_null() {
        object["arguments"] = arguments.clone();
    }
    let mut line = object.to_string().into_bytes();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn all(decoder: &mut Decoder) -> Result<Vec<Message>, QmpError> {
        let mut messages = Vec::new();
        while let Some(message) = decoder.next_message()? {
            messages.push(message);
        }
        Ok(messages)
    }

    const SAID: &str = concat!(
        r#"{"QMP": {"version": {}, "capabilities": ["oob"]}}"#,
        "\r\n",
        r#"{"return": {"running": true}, "id": 7}"#,
        "\r\n",
        r#"{"timestamp": {"seconds": 1}, "event": "SHUTDOWN", "data": {"guest": true}}"#,
        "\r\n\r\n",
        r#"{"id": 8, "error": {"class": "GenericError", "desc": "no"}}"#,
        "\n",
    );

    fn understood() -> Vec<Message> {
        let data = json!({ "guest": true }).as_object().unwrap().clone();
        vec![
            Message::Greeting,
            Message::Answer { id: 7, outcome: Ok(json!({ "running": true })) },
            Message::Event(Event { name: "SHUTDOWN".into(), data }),
            Message::Answer {
                id: 8,
                outcome: Err(Refusal { class: "GenericError".into(), desc: "no".into() }),
            },
        ]
    }

    #[test]
    fn a_line_that_never_ends_is_cut_off() {
        let mut decoder = Decoder::default();
        for _ in 0..=MOST_LINE_BYTES / 4096 {
            decoder.push(&[b' '; 4096]);
        }
        assert!(matches!(decoder.next_message(), Err(QmpError::LineTooLong)));
    }

    #[test]
    fn nesting_without_end_is_an_error_and_no_overflow() {
        let mut decoder = Decoder::default();
        decoder.push(&[b'['; 1 << 20]);
        decoder.push(b"\n");
        assert!(decoder.next_message().is_err());
    }

    proptest! {
        #[test]
        fn messages_are_the_same_however_the_bytes_are_cut(cuts in prop::collection::vec(1usize..40, 0..200)) {
            let mut decoder = Decoder::default();
            let mut rest = SAID.as_bytes();
            let mut messages = Vec::new();
            for cut in cuts {
                let (now, later) = rest.split_at(cut.min(rest.len()));
                decoder.push(now);
                rest = later;
                messages.extend(all(&mut decoder).unwrap());
            }
            decoder.push(rest);
            messages.extend(all(&mut decoder).unwrap());
            prop_assert_eq!(messages, understood());
        }

        #[test]
        fn no_bytes_bring_the_decoder_down(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            let mut decoder = Decoder::default();
            decoder.push(&bytes);
            decoder.push(b"\n");
            let _ = all(&mut decoder);
        }

        #[test]
        fn no_well_formed_nonsense_does_either(
            key in "(QMP|event|id|return|error|data)", text in "[a-z0-9{}\\[\\]\":,]{0,40}", number in any::<f64>()
        ) {
            for value in [json!(text), json!(number), json!({ key.clone(): text.clone() }), json!([number])] {
                let mut decoder = Decoder::default();
                decoder.push(json!({ key.clone(): value }).to_string().as_bytes());
                decoder.push(b"\n");
                let _ = all(&mut decoder);
            }
        }
    }
}
