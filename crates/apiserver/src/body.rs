//! Request bodies: read within bounds, decoded from JSON, YAML or protobuf.
//!
//! A body may be hostile: its size, its depth and the number of its nodes are bounded
//! before anything else looks at it. Repeated keys are noticed, since which one wins would
//! otherwise be an accident.

pub(crate) mod yaml;

use std::fmt;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body_util::BodyExt;
use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use sheaf_resources::protobuf::{self, ProtobufError};

use crate::status::ApiError;

/// The largest request body, as the original has it; objects are held to the same limit.
pub const MAX_BODY: usize = 3 * 1024 * 1024;
/// Deeper nesting than any real object needs. Well below the 128 at which many readers of JSON give up: an object that
/// gets in must be readable for everybody, with the owners of its fields, which nest a little deeper than it.
const MAX_DEPTH: usize = 100;
/// So many unknown or repeated fields are named; the rest is counted.
const MAX_NAMED: usize = 100;

/// A decoded document and what was odd about it.
#[derive(Debug, PartialEq)]
pub struct Document {
    pub value: Value,
    /// Paths of keys that came twice.
    pub repeated: Vec<String>,
}

/// Reads the whole body, refusing one that is larger than `limit`.
pub async fn read<B>(body: B, limit: usize) -> Result<Bytes, ApiError>
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: fmt::Display,
{
    let most = limit + ignored(limit);
    if body.size_hint().lower() > most as u64 {
        return Err(ApiError::body_too_large(limit));
    }
    let mut body = body;
    let mut whole = BytesMut::new();
    let mut length = 0;
    while length <= most
        && let Some(frame) = body.frame().await
    {
        let frame =
            frame.map_err(|why| ApiError::bad_request(format!("the body could not be read: {why}")))?;
        let Ok(data) = frame.into_data() else { continue };
        length += data.len();
        match length <= limit {
            true => whole.extend_from_slice(&data),
            false => whole = BytesMut::new(),
        }
    }
    if length > limit {
        return Err(ApiError::body_too_large(limit));
    }
    Ok(whole.freeze())
}

/// How much more of a body that is too large is read and forgotten. A client that is still writing when
/// the connection closes does not see the answer.
fn ignored(limit: usize) -> usize {
    2 * limit
}

/// The media type of a request body without parameters; JSON when the client says nothing.
pub fn media_type(headers: &HeaderMap) -> String {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .map(|value| value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
        .filter(|value| !value.is_empty())
        .unwrap_or_else(|| "application/json".into())
}

/// Decodes an object in whatever format the client said.
pub fn decode(headers: &HeaderMap, body: &Bytes) -> Result<Document, ApiError> {
    match media_type(headers).as_str() {
        "application/json" => json(body),
        "application/yaml" | "application/x-yaml" | "text/yaml" => yaml(body),
        protobuf::MEDIA_TYPE => protobuf(body),
        _ => Err(ApiError::unsupported_media_type(
            "application/json, application/yaml, application/vnd.kubernetes.protobuf",
        )),
    }
}

pub fn json(body: &[u8]) -> Result<Document, ApiError> {
    let mut repeated = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(body);
    // Our own visitor counts the depth, with a limit of our choosing.
    reader.disable_recursion_limit();
    let seed = Node { depth: 0, path: &mut Path::default(), repeated: &mut repeated };
    let value =
        seed.deserialize(&mut reader).and_then(|value| reader.end().map(|()| value)).map_err(|why| {
            ApiError::bad_request(format!(
                "the object provided is unrecognized (must be of type JSON): {why}"
            ))
        })?;
    Ok(Document { value, repeated })
}

pub fn yaml(body: &[u8]) -> Result<Document, ApiError> {
    // Most YAML that programs send is JSON, which has the faster reader.
    if body.first() == Some(&b'{')
        && let Ok(document) = json(body)
    {
        return Ok(document);
    }
    let unrecognized = |why: String| {
        ApiError::bad_request(format!("the object provided is unrecognized (must be of type YAML): {why}"))
    };
    let text = std::str::from_utf8(body).map_err(|why| unrecognized(why.to_string()))?;
    yaml::read(text).map_err(unrecognized)
}

/// Keys cannot come twice here: what a field number that does means is settled.
pub fn protobuf(body: &[u8]) -> Result<Document, ApiError> {
    let refused = |why| match why {
        ProtobufError::BrokenObject { .. } => ApiError::bad_request(why.to_string()),
        // Custom resources have no numbers for their fields: the original takes no protobuf for
        // them, and this is how the client learns what it does take.
        ProtobufError::UnknownKind { .. } => {
            ApiError::unsupported_media_type("application/json, application/yaml")
        }
        why => ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type protobuf): {why}"
        )),
    };
    let decoded = protobuf::decode(body).map_err(refused)?;
    check_depth(&decoded.value)?;
    Ok(Document { value: decoded.value, repeated: Vec::new() })
}

/// Whether a value that did not come through a reader of this file, as the result of a patch, nests as it may.
pub fn check_depth(value: &Value) -> Result<(), ApiError> {
    match is_within(value, MAX_DEPTH) {
        true => Ok(()),
        false => Err(ApiError::bad_request(format!(
            "the object provided is nested deeper than {MAX_DEPTH} levels"
        ))),
    }
}

fn is_within(value: &Value, levels: usize) -> bool {
    match value {
        Value::Object(_) | Value::Array(_) if levels == 0 => false,
        Value::Object(members) => members.values().all(|member| is_within(member, levels - 1)),
        Value::Array(elements) => elements.iter().all(|element| is_within(element, levels - 1)),
        _ => true,
    }
}

#[derive(Default)]
struct Path(Vec<String>);

impl Path {
    fn with(&self, key: &str) -> String {
        let mut out = self.0.concat();
        if !out.is_empty() {
            out.push('.');
        }
        out + key
    }
}

/// Builds a `Value` while counting depth and noticing repeated keys.
struct Node<'a> {
    depth: usize,
    path: &'a mut Path,
    repeated: &'a mut Vec<String>,
}

impl<'a> Node<'a> {
    fn child<'b>(&'b mut self) -> Node<'b> {
        Node { depth: self.depth + 1, path: self.path, repeated: self.repeated }
    }

    fn check_depth<E: de::Error>(&self) -> Result<(), E> {
        if self.depth >= MAX_DEPTH {
            return Err(E::custom(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: de::Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number that JSON cannot hold"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.into()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: de::Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Value, A::Error> {
        self.check_depth()?;
        let mut out = Vec::new();
        loop {
            self.path.0.push(format!("[{}]", out.len()));
            let item = items.next_element_seed(self.child())?;
            self.path.0.pop();
            match item {
                Some(item) => out.push(item),
                None => return Ok(Value::Array(out)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<Value, A::Error> {
        self.check_depth()?;
        let mut out = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            if out.contains_key(&key) && self.repeated.len() < MAX_NAMED {
                let path = self.path.with(&key);
                self.repeated.push(path);
            }
            let segment = if self.path.0.is_empty() { key.clone() } else { format!(".{key}") };
            self.path.0.push(segment);
            let value = members.next_value_seed(self.child())?;
            self.path.0.pop();
            out.insert(key, value);
        }
        Ok(Value::Object(out))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn repeated_keys_are_named_by_their_path() {
        let read = json(br#"{"a":1,"a":2,"b":{"c":[{"d":1,"d":2}]}}"#).unwrap();
        assert_eq!(read.repeated, ["a", "b.c[0].d"]);
        assert_eq!(read.value, json!({"a": 2, "b": {"c": [{"d": 2}]}}));
    }

    #[test]
    fn deep_nesting_is_refused_not_followed() {
        let deep = "[".repeat(100_000);
        let error = json(deep.as_bytes()).unwrap_err();
        assert_eq!(error.reason(), "BadRequest");
        assert!(error.message().contains("nested deeper"), "{error}");
        let deep = "a: ".to_string() + &"[".repeat(1_000_000);
        assert_eq!(yaml(deep.as_bytes()).unwrap_err().reason(), "BadRequest");
    }

    #[test]
    fn all_formats_nest_equally_deep() {
        let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        // Not JSON, so that the reader of YAML sees it.
        let in_yaml = |levels: usize| format!("# yaml\n{}", nested(levels));
        let fits = nested(MAX_DEPTH);
        let value = json(fits.as_bytes()).unwrap().value;
        assert!(serde_json::from_str::<Value>(&fits).is_ok(), "what is let in is readable for everybody");
        assert_eq!(yaml(in_yaml(MAX_DEPTH).as_bytes()).unwrap().value, value);
        assert!(check_depth(&value).is_ok());
        assert!(json(nested(MAX_DEPTH + 1).as_bytes()).is_err());
        assert!(yaml(in_yaml(MAX_DEPTH + 1).as_bytes()).is_err());
        assert!(check_depth(&Value::Array(vec![value])).is_err());
    }

    #[test]
    fn truncated_and_trailing_bytes_are_bad_requests() {
        for body in ["", "{", "{\"a\":}", "{} {}", "nul", "\u{0}"] {
            assert_eq!(json(body.as_bytes()).unwrap_err().reason(), "BadRequest", "{body:?}");
        }
    }

    #[test]
    fn yaml_reads_as_the_same_object() {
        let read = yaml(b"a: 1\nb: [x, true, null, 1.5]\n8080: z\n").unwrap();
        assert_eq!(read.value, json!({"a": 1, "b": ["x", true, null, 1.5], "8080": "z"}));
    }

    #[test]
    fn protobuf_reads_as_the_same_object() {
        let headers = |media| HeaderMap::from_iter([(header::CONTENT_TYPE, media)]);
        let said = headers(http::HeaderValue::from_static("application/vnd.kubernetes.protobuf"));
        // A ConfigMap named a, in an envelope.
        let body = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x05\x0a\x03\x0a\x01a";
        let read = decode(&said, &Bytes::from_static(body)).unwrap();
        assert_eq!(read.value, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}));
        assert!(read.repeated.is_empty());
        let error = decode(&said, &Bytes::from_static(b"{}")).unwrap_err();
        assert_eq!(error.reason(), "BadRequest");
        assert!(error.message().contains("expected prefix [107 56 115 0]"), "{error}");
        let custom = b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Gadget\x12\x00";
        let error = decode(&said, &Bytes::from_static(custom)).unwrap_err();
        assert_eq!(error.reason(), "UnsupportedMediaType");
        let error =
            decode(&headers(http::HeaderValue::from_static("text/plain")), &Bytes::new()).unwrap_err();
        assert_eq!(error.reason(), "UnsupportedMediaType");
    }

    #[test]
    fn yaml_anchors_cannot_grow_without_bound() {
        let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x]\n");
        for n in 1..12 {
            let previous = n - 1;
            bomb += &format!("a{n}: &a{n} [{}]\n", vec![format!("*a{previous}"); 9].join(","));
        }
        assert_eq!(yaml(bomb.as_bytes()).unwrap_err().reason(), "BadRequest");
    }

    #[test]
    fn large_numbers_keep_their_value() {
        let read = json(br#"{"a":9007199254740993,"b":18446744073709551615,"c":-1}"#).unwrap();
        assert_eq!(read.value.to_string(), r#"{"a":9007199254740993,"b":18446744073709551615,"c":-1}"#);
    }

    #[tokio::test]
    async fn an_oversized_body_is_refused_while_it_is_read() {
        let body = http_body_util::Full::new(Bytes::from(vec![b' '; MAX_BODY + 1]));
        assert_eq!(read(body, MAX_BODY).await.unwrap_err().reason(), "RequestEntityTooLarge");
    }

    proptest::proptest! {
        #[test]
        fn no_body_makes_the_reader_panic(bytes in proptest::collection::vec(0u8.., 0..300)) {
            let _ = json(&bytes);
            let _ = yaml(&bytes);
        }

        #[test]
        fn json_is_read_as_serde_reads_it(text in "[\\[\\]{}\",:0-9a-z .-]{0,60}") {
            let ours = json(text.as_bytes()).ok().map(|d| d.value);
            let theirs = serde_json::from_str::<Value>(&text).ok();
            proptest::prop_assert_eq!(ours, theirs);
        }
    }
}
