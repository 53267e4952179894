//! Whole documents, as the bytes that go over the wire.
//!
//! A v3 document tells one group version. The v2 document tells all. Both are put together from
//! encoded pieces, so that never more than one group version stands in memory as a tree, and never
//! beside its own copy.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sheaf_resources::{kind::Kind, schema::Flavour};

use super::{parameters, paths, protobuf, schemas};

/// One version of a group, with what is served in it.
pub struct GroupVersion<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub kinds: Vec<&'a Kind>,
}

impl<'a> GroupVersion<'a> {
    /// Kinds by group version, in the order of their paths.
    pub fn split(kinds: &[&'a Kind]) -> Vec<GroupVersion<'a>> {
        let mut all: BTreeMap<(&str, &str), Vec<&Kind>> = BTreeMap::new();
        for kind in kinds {
            all.entry((&kind.group, &kind.version)).or_default().push(kind);
        }
        all.into_iter().map(|((group, version), kinds)| GroupVersion { group, version, kinds }).collect()
    }

    /// `api/v1`, `apis/apps/v1`.
    pub fn path(&self) -> String {
        match self.group {
            "" => format!("api/{}", self.version),
            group => format!("apis/{group}/{}", self.version),
        }
    }
}

fn info() -> Value {
    json!({"title": "Kubernetes", "version": crate::KUBERNETES_VERSION})
}

fn bearer_token() -> Value {
    json!({"BearerToken": {
        "type": "apiKey", "in": "header", "name": "authorization", "description": "A bearer token.",
    }})
}

pub fn v3(group_version: GroupVersion<'_>) -> Vec<u8> {
    let paths = paths::of(&group_version, Flavour::V3);
    let group_versions = [group_version];
    let mut types = schemas::of_the_machinery(&group_versions, Flavour::V3);
    for kind in group_versions.iter().flat_map(|one| &one.kinds) {
        schemas::add(kind, Flavour::V3, &mut types);
    }
    let mut out = opened(&json!({"openapi": "3.0.0", "info": info()}));
    member("paths", encoded(paths), &mut out);
    out.extend_from_slice(b",\"components\":");
    out.extend(opened(&json!({"securitySchemes": bearer_token()})));
    member("schemas", encoded(types), &mut out);
    out.extend_from_slice(b"}}");
    out
}

/// Each tree is gone once its text is there.
fn encoded(trees: BTreeMap<String, Value>) -> impl Iterator<Item = (String, Vec<u8>)> {
    trees.into_iter().map(|(name, tree)| (name, json_bytes(&tree)))
}

/// The head of the v2 document: all but paths and definitions.
fn v2_head() -> Map<String, Value> {
    let mut head = Map::new();
    head.insert("swagger".into(), "2.0".into());
    head.insert("info".into(), info());
    head.insert("parameters".into(), parameters::shared().into());
    head.insert("securityDefinitions".into(), bearer_token());
    head.insert("security".into(), json!([{"BearerToken": []}]));
    head
}

pub fn v2_json(group_versions: &[GroupVersion<'_>]) -> Vec<u8> {
    let pieces = Pieces::of(group_versions, json_bytes, json_bytes);
    let mut out = opened(&Value::Object(v2_head()));
    member("paths", pieces.paths, &mut out);
    member("definitions", pieces.definitions, &mut out);
    out.push(b'}');
    out
}

/// An object with at least one member, left open for more.
fn opened(object: &Value) -> Vec<u8> {
    let mut out = json_bytes(object);
    out.pop();
    out
}

/// Adds one more member to an object left open: an object of encoded values.
fn member(name: &str, values: impl IntoIterator<Item = (String, Vec<u8>)>, out: &mut Vec<u8>) {
    out.extend_from_slice(format!(",\"{name}\":{{").as_bytes());
    for (n, (name, value)) in values.into_iter().enumerate() {
        if n > 0 {
            out.push(b',');
        }
        out.extend(json_bytes(&Value::String(name)));
        out.push(b':');
        out.extend(value);
    }
    out.push(b'}');
}

pub fn v2_protobuf(group_versions: &[GroupVersion<'_>]) -> Vec<u8> {
    let pieces = Pieces::of(group_versions, protobuf::path_item, protobuf::schema);
    protobuf::document(&Value::Object(v2_head()), pieces.paths, pieces.definitions)
}

/// Paths and definitions by name, encoded.
struct Pieces {
    paths: BTreeMap<String, Vec<u8>>,
    definitions: BTreeMap<String, Vec<u8>>,
}

impl Pieces {
    fn of(
        group_versions: &[GroupVersion<'_>],
        encode_path: fn(&Value) -> Vec<u8>,
        encode_schema: fn(&Value) -> Vec<u8>,
    ) -> Self {
        let mut definitions = BTreeMap::new();
        let mut paths = BTreeMap::new();
        let mut add = |types: schemas::Schemas| {
            for (name, schema) in types {
                // A kind's own group version says more of it than those that merely use it.
                let says_all = schema.get(schemas::KIND_EXTENSION).is_some();
                if says_all || !definitions.contains_key(&name) {
                    definitions.insert(name, encode_schema(&schema));
                }
            }
        };
        add(schemas::of_the_machinery(group_versions, Flavour::V2));
        for group_version in group_versions {
            let own = paths::of(group_version, Flavour::V2);
            paths.extend(own.into_iter().map(|(path, item)| (path, encode_path(&item))));
            let mut types = schemas::Schemas::new();
            for kind in &group_version.kinds {
                schemas::add(kind, Flavour::V2, &mut types);
            }
            add(types);
        }
        Pieces { paths, definitions }
    }
}

/// A tree of our own making always has a text.
fn json_bytes(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}
