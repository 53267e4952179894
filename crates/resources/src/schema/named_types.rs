//! The types of the original by name, for the documents that describe the API.
//!
//! Objects are checked with a [`super::Schema`], where everything is inlined; a document for
//! clients names its types and refers to them. Nothing is kept: the types are written anew each time
//! somebody asks.

use std::{collections::BTreeMap, sync::OnceLock};

use k8s_openapi::{
    api::{authentication::v1::TokenRequest, autoscaling::v1::Scale},
    apimachinery::pkg::{
        apis::meta::v1::{APIResourceList, DeleteOptions, ListMeta, ObjectMeta, Patch, Status, WatchEvent},
        runtime::RawExtension,
    },
};
use schemars::JsonSchema;
use serde_json::Value;

use super::{Flavour, Schema, definitions, from_k8s_openapi};

/// One type and all it is made of.
#[derive(Clone, Copy)]
pub struct NamedTypes {
    root: fn() -> String,
    all: fn(Flavour) -> BTreeMap<String, Value>,
}

impl NamedTypes {
    pub fn of<T: JsonSchema>() -> Self {
        NamedTypes { root: || T::schema_name().into_owned(), all: definitions::<T> }
    }

    /// The type itself: `io.k8s.api.core.v1.ConfigMap`.
    pub fn root(&self) -> String {
        (self.root)()
    }

    /// The type and every type it refers to.
    pub fn all(&self, flavour: Flavour) -> BTreeMap<String, Value> {
        (self.all)(flavour)
    }
}

/// What every group speaks, whatever its kinds: metadata, options, answers, events of a watch.
pub fn of_the_machinery(flavour: Flavour) -> BTreeMap<String, Value> {
    let mut all = definitions::<ObjectMeta>(flavour);
    all.extend(definitions::<ListMeta>(flavour));
    all.extend(definitions::<Status>(flavour));
    all.extend(definitions::<DeleteOptions>(flavour));
    all.extend(definitions::<Patch>(flavour));
    all.extend(definitions::<WatchEvent<RawExtension>>(flavour));
    all.extend(definitions::<APIResourceList>(flavour));
    all
}

/// The bodies of subresources that are not of the kind they belong to.
pub fn of_a_subresource(group: &str, version: &str, kind: &str) -> Option<NamedTypes> {
    match (group, version, kind) {
        ("autoscaling", "v1", "Scale") => Some(NamedTypes::of::<Scale>()),
        ("authentication.k8s.io", "v1", "TokenRequest") => Some(NamedTypes::of::<TokenRequest>()),
        _ => None,
    }
}

/// The schema of a Scale, by which those are judged that are applied.
pub fn scale() -> &'static Schema {
    static SCALE: OnceLock<Schema> = OnceLock::new();
    SCALE.get_or_init(|| from_k8s_openapi::<Scale>().without_descriptions())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;

    #[test]
    fn every_body_of_a_subresource_has_a_type() {
        for kind in kinds::built_in() {
            for (group, version, body) in kind.subresources.iter().filter_map(|sub| sub.body) {
                assert!(of_a_subresource(group, version, body).is_some(), "{body} of {}", kind.kind);
            }
        }
    }

    #[test]
    fn a_type_comes_with_all_it_refers_to() {
        let all = of_the_machinery(Flavour::V3);
        let text = serde_json::to_string(&all).unwrap();
        let mut rest = text.as_str();
        while let Some((_, after)) = rest.split_once("#/components/schemas/") {
            let (name, after) = after.split_once('"').unwrap();
            assert!(all.contains_key(name), "{name}");
            rest = after;
        }
    }
}
