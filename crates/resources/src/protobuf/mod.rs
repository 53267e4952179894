//! Kubernetes' protobuf bodies, turned into the JSON of the same object.
//!
//! kubectl since 1.34 and typed Go clients send built-in kinds this way and do not fall back
//! to JSON. Bodies only come in like this; answers are JSON, which every client accepts.
//! No kind is known by hand here: [`tables`] says which fields there are, generated from
//! the types of the original.
//!
//! What comes out is what the original would write as JSON after decoding the body into its
//! own types: fields it would leave out when empty are left out, others are there as `{}`,
//! `null`, `""` or `0` even when they were never sent, and fields of a version later than
//! the tables are dropped. Where it differs:
//!
//! - A quantity is taken as it was sent; the original would write `1024Mi` as `1Gi`. Its own
//!   clients send what they would write.
//! - Bytes of a string that are not UTF-8 become `U+FFFD` for each run, not for each byte.
//! - A time outside the years -9999 to 9999 is refused.
//! - Depth and number of messages are bounded.
//! - The envelope must name the kind; it is not guessed from the path.
//! - Raw JSON inside a field may not nest deeper than 128 levels.
//!
//! Deliberately absent: encoding, and kinds that are not in the tables. Custom resources
//! never come as protobuf.

mod leaf;
mod message;
mod tables;
mod wire;

#[cfg(test)]
mod tests;

use serde_json::Value;

pub use message::ObjectError;
pub use wire::WireError;

pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// What every body begins with.
const PREFIX: &[u8] = b"k8s\0";

#[derive(Debug, thiserror::Error)]
pub enum ProtobufError {
    #[error("empty data")]
    NothingSent,
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoPrefix,
    #[error("empty body")]
    NoEnvelope,
    #[error(transparent)]
    BrokenEnvelope(WireError),
    #[error("Object 'Kind' is missing in 'the envelope'")]
    NoKind,
    #[error("Object 'apiVersion' is missing in 'the envelope'")]
    NoVersion,
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    UnknownKind { api_version: String, kind: String },
    #[error("{kind} in version {version:?} cannot be handled as a {kind}: {why}")]
    BrokenObject { version: String, kind: String, why: ObjectError },
}

#[derive(Debug, PartialEq)]
pub struct Decoded {
    pub api_version: String,
    pub kind: String,
    /// The object, with `apiVersion` and `kind` as the envelope has them.
    pub value: Value,
}

/// Decodes a whole body: prefix, envelope, object.
pub fn decode(body: &[u8]) -> Result<Decoded, ProtobufError> {
    if body.is_empty() {
        return Err(ProtobufError::NothingSent);
    }
    let body = body.strip_prefix(PREFIX).ok_or(ProtobufError::NoPrefix)?;
    if body.is_empty() {
        return Err(ProtobufError::NoEnvelope);
    }
    let Envelope { api_version, kind, raw } = Envelope::read(body).map_err(ProtobufError::BrokenEnvelope)?;
    if kind.is_empty() {
        return Err(ProtobufError::NoKind);
    }
    if api_version.is_empty() {
        return Err(ProtobufError::NoVersion);
    }
    let broken = |why| ProtobufError::BrokenObject {
        version: api_version.rsplit('/').next().unwrap_or_default().into(),
        kind: kind.clone(),
        why,
    };
    let message = tables::message_of(&api_version, &kind)
        .ok_or_else(|| ProtobufError::UnknownKind { api_version: api_version.clone(), kind: kind.clone() })?;
    let mut value = message::read(message, raw).map_err(broken)?;
    if let Value::Object(object) = &mut value {
        object.insert("apiVersion".into(), api_version.as_str().into());
        object.insert("kind".into(), kind.as_str().into());
    }
    Ok(Decoded { api_version, kind, value })
}

/// Says what the object is and carries it.
#[derive(Default)]
struct Envelope<'a> {
    api_version: String,
    kind: String,
    raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut envelope = Envelope::default();
        let mut reader = wire::Reader::new(bytes);
        while let Some((number, payload)) = reader.field()? {
            match number {
                1 => envelope.read_type(payload.bytes("TypeMeta")?)?,
                2 => envelope.raw = payload.bytes("Raw")?,
                // What it says to carry (4) is not looked at, as in the original: it is always protobuf.
                _ => {}
            }
        }
        Ok(envelope)
    }

    fn read_type(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        let mut reader = wire::Reader::new(bytes);
        while let Some((number, payload)) = reader.field()? {
            match number {
                1 => self.api_version = text(payload.bytes("APIVersion")?),
                2 => self.kind = text(payload.bytes("Kind")?),
                _ => {}
            }
        }
        Ok(())
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
