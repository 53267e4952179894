//! One object as the cache holds it: already encoded, once.
//!
//! The store keeps an object as JSON that begins with `apiVersion`, `kind` and
//! `metadata`, in that order, and without a `resourceVersion` (the store knows that
//! by itself). The cache cuts the first two off, splices the version in and keeps
//! the rest as `tail`. So a get is a head and a tail, a list item of a built-in kind is
//! a bare tail (as the original answers), and another served version of a custom
//! resource is another head: no answer encodes an object again.

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value};

/// An encoded object with what selectors ask for most.
#[derive(Debug)]
pub struct CachedObject {
    /// `namespace/name`, or `/name` for cluster-scoped objects: its place in the table's order.
    pub place: Arc<str>,
    pub revision: u64,
    /// The version it is stored in.
    pub api_version: Arc<str>,
    pub kind: Arc<str>,
    /// `"metadata":{"resourceVersion":"7",...},...}`: all but the opening brace, apiVersion and kind.
    pub tail: Bytes,
    /// Sorted by key.
    pub labels: Box<[(Box<str>, Box<str>)]>,
}

/// Why stored bytes are not an object. Never seen unless someone else writes the store.
#[derive(Debug, thiserror::Error, PartialEq)]
#[error("the stored object {place} cannot be read: {reason}")]
pub struct Unreadable {
    pub place: String,
    pub reason: String,
}

impl CachedObject {
    /// Reads what [`encode`] wrote.
    pub fn decode(place: Arc<str>, revision: u64, stored: &[u8]) -> Result<Self, Unreadable> {
        let broken = |reason: &str| Unreadable { place: place.to_string(), reason: reason.into() };
        let (head, rest) = split_head(stored).ok_or_else(|| broken("it does not begin as expected"))?;
        let labels = labels_of(stored).map_err(|e| broken(&e.to_string()))?;
        Ok(CachedObject {
            revision,
            api_version: head.api_version.into(),
            kind: head.kind.into(),
            tail: tail_with_version(rest, revision),
            labels,
            place,
        })
    }

    pub fn namespace(&self) -> &str {
        self.place.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    pub fn name(&self) -> &str {
        self.place.split_once('/').map_or(&self.place, |(_, name)| name)
    }

    /// The whole object in the version it is stored in.
    ///
    /// However deep it nests: how deep it may is for whoever lets it in. An object taken for nothing would lose its
    /// finalizers, and go.
    ///
    /// # Panics
    /// On a tail that was not cut out of valid JSON, which would be a bug in this file.
    pub fn to_value(&self) -> Value {
        let mut text = head(&self.api_version, &self.kind);
        text.extend_from_slice(&self.tail);
        let mut reader = serde_json::Deserializer::from_slice(&text);
        reader.disable_recursion_limit();
        Value::deserialize(&mut reader).expect("the tail was cut out of valid JSON")
    }

    /// The tail with another version in place of its own: how an object looks at its deletion.
    pub fn tail_at(&self, revision: u64) -> Bytes {
        let rest = self.tail.strip_prefix(VERSION_OPENING).unwrap_or_default();
        let end = rest.iter().position(|b| *b == b'"').map_or(rest.len(), |quote| quote + 1);
        let mut tail = Vec::with_capacity(self.tail.len() + 4);
        push_version(&mut tail, revision);
        tail.extend_from_slice(&rest[end..]);
        tail.into()
    }

    /// `PartialObjectMetadata` of it: for those who follow many objects and care for none of their contents.
    pub fn only_metadata(&self) -> CachedObject {
        let end = end_of_first_member(&self.tail);
        let mut tail = Vec::with_capacity(end + 1);
        tail.extend_from_slice(&self.tail[..end]);
        tail.push(b'}');
        CachedObject {
            place: self.place.clone(),
            revision: self.revision,
            api_version: "meta.k8s.io/v1".into(),
            kind: "PartialObjectMetadata".into(),
            tail: tail.into(),
            labels: Box::default(),
        }
    }

    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels.iter().map(|(key, value)| (&**key, &**value))
    }
}

/// `{"apiVersion":"v1","kind":"Secret",`: what goes before a tail.
pub fn head(api_version: &str, kind: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(api_version.len() + kind.len() + 26);
    out.extend_from_slice(b"{\"apiVersion\":");
    push_json(&mut out, api_version);
    out.extend_from_slice(b",\"kind\":");
    push_json(&mut out, kind);
    out.push(b',');
    out
}

/// The bytes the store keeps for an object: apiVersion, kind, metadata without
/// resourceVersion, then the rest.
pub fn encode(object: &Value) -> Vec<u8> {
    let empty = Map::new();
    let fields = object.as_object().unwrap_or(&empty);
    let text = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default();
    let mut out = head(text("apiVersion"), text("kind"));
    out.extend_from_slice(b"\"metadata\":{");
    let mut first = true;
    if let Some(Value::Object(metadata)) = fields.get("metadata") {
        let kept = metadata.iter().filter(|(key, _)| *key != "resourceVersion");
        push_members(&mut out, &mut first, kept);
    }
    out.push(b'}');
    let mut first = false;
    let rest = fields.iter().filter(|(key, _)| !matches!(key.as_str(), "apiVersion" | "kind" | "metadata"));
    push_members(&mut out, &mut first, rest);
    out.push(b'}');
    out
}

fn push_members<'a>(
    out: &mut Vec<u8>,
    first: &mut bool,
    members: impl Iterator<Item = (&'a String, &'a Value)>,
) {
    for (key, value) in members {
        if !std::mem::take(first) {
            out.push(b',');
        }
        push_json(out, key);
        out.push(b':');
        push_json(out, value);
    }
}

fn push_json<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    // Writing to a Vec cannot fail, and neither strings nor `Value`s refuse to be written.
    let _ = serde_json::to_writer(out, value);
}

struct Head<'a> {
    api_version: &'a str,
    kind: &'a str,
}

/// Splits stored bytes into what [`head`] wrote and what follows `"metadata":{`.
fn split_head(stored: &[u8]) -> Option<(Head<'_>, &[u8])> {
    // apiVersion and kind are plain names: no escapes, so the next quote ends them.
    let rest = stored.strip_prefix(b"{\"apiVersion\":\"")?;
    let end = rest.iter().position(|b| *b == b'"')?;
    let api_version = std::str::from_utf8(&rest[..end]).ok()?;
    let rest = rest[end..].strip_prefix(b"\",\"kind\":\"")?;
    let end = rest.iter().position(|b| *b == b'"')?;
    let kind = std::str::from_utf8(&rest[..end]).ok()?;
    let rest = rest[end..].strip_prefix(b"\",\"metadata\":{")?;
    Some((Head { api_version, kind }, rest))
}

const VERSION_OPENING: &[u8] = b"\"metadata\":{\"resourceVersion\":\"";

fn push_version(tail: &mut Vec<u8>, revision: u64) {
    tail.extend_from_slice(VERSION_OPENING);
    tail.extend_from_slice(revision.to_string().as_bytes());
    tail.push(b'"');
}

fn tail_with_version(rest: &[u8], revision: u64) -> Bytes {
    let mut tail = Vec::with_capacity(rest.len() + 52);
    push_version(&mut tail, revision);
    if rest.first() != Some(&b'}') {
        tail.push(b',');
    }
    tail.extend_from_slice(rest);
    tail.shrink_to_fit();
    tail.into()
}

/// Where the first member of an encoded object ends. The bytes are our own, so counting braces
/// outside strings is enough.
fn end_of_first_member(tail: &[u8]) -> usize {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for (at, byte) in tail.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' => depth += 1,
            b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    tail.len()
}

type Labels = Box<[(Box<str>, Box<str>)]>;

fn labels_of(stored: &[u8]) -> Result<Labels, serde_json::Error> {
    #[derive(Deserialize)]
    struct Peek {
        metadata: PeekMetadata,
    }
    #[derive(Deserialize)]
    struct PeekMetadata {
        #[serde(default)]
        labels: Option<std::collections::BTreeMap<Box<str>, Box<str>>>,
    }
    let peek: Peek = serde_json::from_slice(stored)?;
    Ok(peek.metadata.labels.unwrap_or_default().into_iter().collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn roundtrip(object: &Value, revision: u64) -> CachedObject {
        CachedObject::decode("ns/x".into(), revision, &encode(object)).unwrap()
    }

    #[test]
    fn an_object_comes_back_with_its_version_and_nothing_else_changed() {
        let object = json!({
            "kind": "Secret", "apiVersion": "v1", "type": "Opaque", "data": {"a": "Yg=="},
            "metadata": {"name": "x", "namespace": "ns", "resourceVersion": "3", "labels": {"b": "2", "a": "1"}},
        });
        let cached = roundtrip(&object, 7);
        let mut expected = object.clone();
        expected["metadata"]["resourceVersion"] = "7".into();
        assert_eq!(cached.to_value(), expected);
        assert_eq!(cached.labels().collect::<Vec<_>>(), [("a", "1"), ("b", "2")]);
        assert_eq!((cached.namespace(), cached.name()), ("ns", "x"));
    }

    #[test]
    fn an_object_that_nests_deeper_than_readers_like_keeps_its_finalizers() {
        let deep = (0..200).fold(json!({}), |below, _| json!({"a": below}));
        let object =
            json!({"apiVersion": "v1", "kind": "X", "metadata": {"finalizers": ["x.io/hold"]}, "spec": deep});
        assert_eq!(roundtrip(&object, 1).to_value()["metadata"]["finalizers"], json!(["x.io/hold"]));
    }

    #[test]
    fn the_store_never_holds_a_resource_version() {
        let stored = encode(&json!({"apiVersion": "v1", "kind": "X", "metadata": {"resourceVersion": "3"}}));
        assert_eq!(stored, br#"{"apiVersion":"v1","kind":"X","metadata":{}}"#);
        assert_eq!(
            roundtrip(&json!({"apiVersion": "v1", "kind": "X"}), 1).to_value()["metadata"]["resourceVersion"],
            "1"
        );
    }

    #[test]
    fn a_deleted_object_shows_when_it_went() {
        let cached =
            roundtrip(&json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "x"}, "v": 1}), 99);
        assert_eq!(&cached.tail_at(100)[..], br#""metadata":{"resourceVersion":"100","name":"x"},"v":1}"#);
    }

    #[test]
    fn foreign_bytes_are_refused_and_say_where() {
        let error = CachedObject::decode("ns/x".into(), 1, b"{\"kind\":1}").unwrap_err();
        assert_eq!(error.place, "ns/x");
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_bytes_never_make_the_reader_panic(bytes in proptest::collection::vec(0u8.., 0..200)) {
            let _ = CachedObject::decode("n/x".into(), 1, &bytes);
        }

        #[test]
        fn arbitrary_strings_survive(name in ".{0,20}", value in ".{0,40}") {
            let object = json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": name, "labels": {name.clone(): value}}, "v": value});
            let cached = roundtrip(&object, 9);
            proptest::prop_assert_eq!(&cached.to_value()["v"], &object["v"]);
            proptest::prop_assert_eq!(&cached.to_value()["metadata"]["labels"], &object["metadata"]["labels"]);
            let partial = json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                "metadata": cached.to_value()["metadata"],
            });
            proptest::prop_assert_eq!(cached.only_metadata().to_value(), partial);
        }
    }
}
