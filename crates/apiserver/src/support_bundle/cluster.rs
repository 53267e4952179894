//! Every object of every kind that is served, in the namespaces that are chosen, without its secrets, as one stream: a line of JSON for each.
//!
//! ```text
//!   {"objects": 1234, "kubernetesVersion": "v1.34.1", "namespaceUID": "..."}
//!   {"resource": "v1/nodes", "namespace": "", "object": {...}}        by kind, then by namespace, then by name
//!   {"file": "metrics.txt", "text": "..."}
//!   {"end": true}
//! ```
//!
//! An object is read, redacted and encoded when whoever asked has taken the one before; what is held meanwhile are the maps
//! of the cache, which cost nothing. Each kind is as it was when the stream began. A stream without its last line broke off.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures::stream;
use serde_json::{Value, json};
use sheaf_resources::{
    kinds::{
        namespace,
        setting::SUPPORT_BUNDLE_NAMESPACES,
        support_bundle::{NAMESPACE, SupportBundle},
    },
    redaction,
};

use crate::{
    ApiServer, KUBERNETES_VERSION,
    cache::{Resource, place, table::Snapshot},
    respond::{ApiBody, ApiResponse},
};

/// Objects are handed on in pieces of about this size.
const PIECE: usize = 64 * 1024;

impl ApiServer {
    /// Those that the setting and the bundle name, and those of the cluster itself; all of them where no setting chooses.
    pub(super) fn cluster_part(&self, bundle: &SupportBundle) -> ApiResponse {
        let chosen = chosen(&self.setting(SUPPORT_BUNDLE_NAMESPACES), bundle);
        let catalogue = self.registry.catalogue();
        let kinds: Vec<(String, String, String, Snapshot)> = catalogue
            .all()
            .filter(|served| {
                let kind = &served.kind;
                // Each object once, however many versions and groups show it.
                kind.verbs.are_kept()
                    && kind.conversion.is_none()
                    && kind.api_version() == kind.stored_version
            })
            .map(|served| {
                let kind = &served.kind;
                let resource = format!("{}/{}", kind.api_version(), kind.plural);
                let mut objects = self.cache.snapshot(&served.resource).0;
                if let Some(chosen) = chosen.as_ref().filter(|_| kind.namespaced()) {
                    objects = within(objects, chosen);
                }
                (kind.group.clone(), kind.plural.clone(), resource, objects)
            })
            .collect();
        let count: usize = kinds.iter().map(|(_, _, _, objects)| objects.len()).sum();
        let own = self.cache.get(&Resource::new("", "namespaces"), &place("", NAMESPACE));
        let uid = own.map(|own| own.to_value()["metadata"]["uid"].clone()).unwrap_or_default();
        let head = json!({"objects": count, "kubernetesVersion": KUBERNETES_VERSION, "namespaceUID": uid});
        let tail = [json!({"file": "metrics.txt", "text": self.metrics_page()}), json!({"end": true})];
        let objects = kinds.into_iter().flat_map(|(group, plural, resource, objects)| {
            objects.into_iter().map(move |(_, object)| {
                let mut value = object.to_value();
                redaction::object::redact(&group, &plural, &mut value);
                json!({"resource": resource, "namespace": object.namespace(), "object": value})
            })
        });
        let lines = std::iter::once(head).chain(objects).chain(tail);
        ApiResponse::new(ApiBody::Stream(Box::pin(stream::iter(Pieces(lines)))))
    }
}

/// The namespaces whose objects are in a bundle; `None` for all of them.
fn chosen(setting: &str, bundle: &SupportBundle) -> Option<BTreeSet<String>> {
    let mut named = setting.split(',').map(str::trim).filter(|name| !name.is_empty()).peekable();
    named.peek()?;
    let extra = bundle.spec.extra_collection_namespaces.iter().map(String::as_str);
    Some(named.chain(extra).chain(namespace::SYSTEM).chain(namespace::IMMORTAL).map(str::to_owned).collect())
}

fn within(objects: Snapshot, namespaces: &BTreeSet<String>) -> Snapshot {
    let is_within =
        |place: &str| place.split_once('/').is_some_and(|(namespace, _)| namespaces.contains(namespace));
    objects.into_iter().filter(|(place, _)| is_within(place)).collect()
}

/// Lines, several at a time.
struct Pieces<L>(L);

impl<L: Iterator<Item = Value>> Iterator for Pieces<L> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let mut piece = Vec::new();
        for line in self.0.by_ref() {
            piece.extend_from_slice(line.to_string().as_bytes());
            piece.push(b'\n');
            if piece.len() >= PIECE {
                break;
            }
        }
        (!piece.is_empty()).then(|| piece.into())
    }
}
