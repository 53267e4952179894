//! The documents that describe the API: OpenAPI v3, one per group version, and v2, one for all.
//!
//! ```text
//!   /openapi/v3                  which documents there are, each with its hash
//!   /openapi/v3/apis/GROUP/V     one group version
//!   /openapi/v2                  everything, as JSON or protobuf
//! ```
//!
//! Documents are written when somebody asks and mostly forgotten again: what stays is the hash
//! of each, by which clients that have it already are told so, and a few bodies as far as
//! [`KEPT_BYTES`] go. When kinds come or go, only group versions that changed are written anew.
//!
//! v3 in protobuf is not served: no client of Kubernetes asks for it. Nothing here survives a restart,
//! or has to: the same kinds give the same bytes and the same hashes.

mod accept;
mod document;
mod names;
mod operation;
mod parameters;
mod patch_metadata;
mod paths;
mod protobuf;
mod schemas;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Weak},
};

use bytes::Bytes;
use http::HeaderMap;
use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sheaf_resources::{
    kind::{Kind, SchemaSource},
    schema::Schema,
};

use accept::Form;
use document::GroupVersion;

/// How much is kept of documents that may be asked for again.
const KEPT_BYTES: usize = 512 * 1024;

/// What a request for a document is answered with.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    Document {
        content_type: &'static str,
        /// With its quotes.
        etag: String,
        body: Bytes,
        /// Asked for by its hash, so what is at this address never changes.
        immutable: bool,
    },
    /// The client has it already.
    NotModified {
        etag: String,
    },
    /// Asked for by a hash it no longer has; it is at this path now, for good.
    Moved {
        location: String,
    },
    NotFound,
    /// The client takes no form the document comes in.
    NotAcceptable,
}

/// Writes documents and remembers what is worth it.
#[derive(Default)]
pub struct Documents {
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    /// The generation of the catalogue this was last brought up to.
    generation: Option<u64>,
    /// Group versions by path.
    known: BTreeMap<String, Known>,
    /// The hashes of the v2 document.
    whole: BTreeMap<Form, String>,
    kept: VecDeque<(Key, Bytes)>,
}

struct Known {
    rows: Vec<Row>,
    /// None until the document was first written.
    hash: Option<String>,
}

/// What a kind's part of a document is written from.
struct Row {
    words: String,
    /// A custom resource's schema. Held weakly: enough that no other schema gets its address, and
    /// the schema itself can go.
    schema: Weak<Schema>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Key {
    GroupVersion(String),
    Whole(Form),
}

impl Documents {
    /// Answers `/openapi/` followed by `segments`. `generation` changes whenever `kinds` do.
    pub fn answer(
        &self,
        kinds: &[&Kind],
        generation: u64,
        segments: &[&str],
        query_hash: Option<&str>,
        headers: &HeaderMap,
    ) -> Answer {
        let segments: Vec<&str> = segments.iter().copied().filter(|segment| !segment.is_empty()).collect();
        // Held while documents are written: many clients that ask at once after a change are not
        // worth many copies in memory.
        let mut memory = self.memory.lock();
        memory.catch_up(kinds, generation);
        match segments.as_slice() {
            ["v2"] => memory.whole(kinds, headers),
            ["v3"] => memory.index(kinds, headers),
            ["v3", path @ ..] => memory.group_version(kinds, &path.join("/"), query_hash, headers),
            _ => Answer::NotFound,
        }
    }
}

impl Memory {
    /// Forgets what is no longer so.
    fn catch_up(&mut self, kinds: &[&Kind], generation: u64) {
        if self.generation == Some(generation) {
            return;
        }
        self.generation = Some(generation);
        let mut before = std::mem::take(&mut self.known);
        let mut changed = false;
        for group_version in GroupVersion::split(kinds) {
            let path = group_version.path();
            let rows: Vec<Row> = group_version.kinds.iter().map(|kind| Row::of(kind)).collect();
            let known = match before.remove(&path) {
                Some(known) if known.rows == rows => known,
                _ => {
                    changed = true;
                    self.kept.retain(|(key, _)| *key != Key::GroupVersion(path.clone()));
                    Known { rows, hash: None }
                }
            };
            self.known.insert(path, known);
        }
        if changed || !before.is_empty() {
            self.whole.clear();
            let known = &self.known;
            self.kept.retain(|(key, _)| match key {
                Key::GroupVersion(path) => known.contains_key(path),
                Key::Whole(_) => false,
            });
        }
    }

    fn index(&mut self, kinds: &[&Kind], headers: &HeaderMap) -> Answer {
        for group_version in GroupVersion::split(kinds) {
            let path = group_version.path();
            if self.known.get(&path).is_some_and(|known| known.hash.is_none()) {
                let body = self.write_group_version(&path, group_version);
                // Rather one that was asked for by itself than one more of many.
                if self.kept_bytes() + body.len() <= KEPT_BYTES {
                    self.keep(Key::GroupVersion(path), &body);
                }
            }
        }
        let paths = self.known.iter().map(|(path, known)| {
            let address = address(path, known.hash.as_deref().unwrap_or_default());
            (path.clone(), json!({"serverRelativeURL": address}))
        });
        let body = Bytes::from(json!({"paths": Value::Object(paths.collect())}).to_string());
        let etag = quoted(&hash(&body));
        if accept::has_already(headers, &etag) {
            return Answer::NotModified { etag };
        }
        Answer::Document { content_type: Form::Json.content_type(), etag, body, immutable: false }
    }

    fn group_version(
        &mut self,
        kinds: &[&Kind],
        path: &str,
        query_hash: Option<&str>,
        headers: &HeaderMap,
    ) -> Answer {
        let Some(known) = self.known.get(path) else { return Answer::NotFound };
        let Some(form) = accept::choose(headers, &[Form::Json]) else { return Answer::NotAcceptable };
        let key = Key::GroupVersion(path.to_owned());
        let mut body = None;
        let hash = match &known.hash {
            Some(hash) => hash.clone(),
            None => {
                body = self.written_group_version(kinds, path);
                self.known.get(path).and_then(|known| known.hash.clone()).unwrap_or_default()
            }
        };
        let asked_by_hash = query_hash.filter(|hash| !hash.is_empty());
        if asked_by_hash.is_some_and(|asked| asked != hash) {
            return Answer::Moved { location: address(path, &hash) };
        }
        let etag = quoted(&hash);
        if accept::has_already(headers, &etag) {
            return Answer::NotModified { etag };
        }
        let body = body.or_else(|| self.recall(&key)).or_else(|| self.written_group_version(kinds, path));
        let Some(body) = body else { return Answer::NotFound };
        self.keep(key, &body);
        let immutable = asked_by_hash.is_some();
        Answer::Document { content_type: form.content_type(), etag, body, immutable }
    }

    fn written_group_version(&mut self, kinds: &[&Kind], path: &str) -> Option<Bytes> {
        let group_version = GroupVersion::split(kinds).into_iter().find(|one| one.path() == path)?;
        Some(self.write_group_version(path, group_version))
    }

    fn write_group_version(&mut self, path: &str, group_version: GroupVersion<'_>) -> Bytes {
        let body = Bytes::from(document::v3(group_version));
        if let Some(known) = self.known.get_mut(path) {
            known.hash = Some(hash(&body));
        }
        body
    }

    fn whole(&mut self, kinds: &[&Kind], headers: &HeaderMap) -> Answer {
        let Some(form) = accept::choose(headers, &[Form::Json, Form::Protobuf]) else {
            return Answer::NotAcceptable;
        };
        let write = || {
            let group_versions = GroupVersion::split(kinds);
            Bytes::from(match form {
                Form::Json => document::v2_json(&group_versions),
                Form::Protobuf => document::v2_protobuf(&group_versions),
            })
        };
        let mut body = None;
        let hash = self.whole.entry(form).or_insert_with(|| hash(body.insert(write()))).clone();
        let etag = quoted(&hash);
        if accept::has_already(headers, &etag) {
            return Answer::NotModified { etag };
        }
        let key = Key::Whole(form);
        let body = body.or_else(|| self.recall(&key)).unwrap_or_else(write);
        self.keep(key, &body);
        Answer::Document { content_type: form.content_type(), etag, body, immutable: false }
    }

    fn recall(&self, key: &Key) -> Option<Bytes> {
        self.kept.iter().find(|(kept, _)| kept == key).map(|(_, body)| body.clone())
    }

    fn kept_bytes(&self) -> usize {
        self.kept.iter().map(|(_, body)| body.len()).sum()
    }

    /// Keeps a body, and lets go of those not asked for the longest.
    fn keep(&mut self, key: Key, body: &Bytes) {
        self.kept.retain(|(kept, _)| *kept != key);
        if body.len() > KEPT_BYTES {
            return;
        }
        self.kept.push_back((key, body.clone()));
        while self.kept_bytes() > KEPT_BYTES {
            self.kept.pop_front();
        }
    }
}

impl Row {
    fn of(kind: &Kind) -> Self {
        let words = (
            (&kind.kind, &kind.list_kind, &kind.plural, kind.scope, kind.verbs, kind.custom),
            (kind.status, kind.scale.is_some(), &kind.subresources),
            (&kind.selectable_fields, &kind.deprecation),
        );
        let schema = match &kind.schema {
            SchemaSource::BuiltIn { .. } => Weak::new(),
            SchemaSource::Custom(schema) => Arc::downgrade(schema),
        };
        Row { words: format!("{words:?}"), schema }
    }
}

impl PartialEq for Row {
    fn eq(&self, other: &Self) -> bool {
        self.words == other.words && self.schema.ptr_eq(&other.schema)
    }
}

fn address(path: &str, hash: &str) -> String {
    format!("/openapi/v3/{path}?hash={hash}")
}

fn hash(body: &[u8]) -> String {
    Sha256::digest(body).iter().map(|byte| format!("{byte:02X}")).collect()
}

fn quoted(hash: &str) -> String {
    format!("\"{hash}\"")
}
