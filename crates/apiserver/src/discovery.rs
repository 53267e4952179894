//! What there is: the legacy documents, group by group, and the aggregated one.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Value, json};
use sheaf_resources::kind::Kind;

use crate::{machines, registry::Catalogue};

/// The versions of a group, best first, with their kinds.
type Versions<'a> = Vec<(&'a str, Vec<&'a Kind>)>;

fn groups(catalogue: &Catalogue) -> Vec<(&str, Versions<'_>)> {
    let mut groups: BTreeMap<&str, BTreeMap<&str, Vec<&Kind>>> = BTreeMap::new();
    for served in catalogue.all() {
        let kind = &served.kind;
        groups.entry(&kind.group).or_default().entry(&kind.version).or_default().push(kind);
    }
    groups
        .into_iter()
        .map(|(group, versions)| {
            let mut versions: Vec<_> = versions.into_iter().collect();
            versions.sort_by_key(|(version, _)| std::cmp::Reverse(version_rank(version)));
            (group, versions)
        })
        .collect()
}

/// Kubernetes' order of versions: GA before beta before alpha, higher before lower, anything else last.
pub fn version_rank(version: &str) -> (u8, u64, u64, std::cmp::Reverse<String>) {
    let unknown = (0, 0, 0, std::cmp::Reverse(version.to_string()));
    let Some(rest) = version.strip_prefix('v') else { return unknown };
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let Ok(major) = rest[..digits].parse() else { return unknown };
    let (stage, minor) = match &rest[digits..] {
        "" => (3, "0"),
        rest => match (rest.strip_prefix("beta"), rest.strip_prefix("alpha")) {
            (Some(minor), _) => (2, minor),
            (_, Some(minor)) => (1, minor),
            _ => return unknown,
        },
    };
    match minor.parse() {
        Ok(minor) => (stage, major, minor, std::cmp::Reverse(String::new())),
        Err(_) => unknown,
    }
}

/// `/api`
pub fn core_versions(server_address: &str) -> Value {
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
    })
}

/// `/apis`
pub fn group_list(catalogue: &Catalogue) -> Value {
    let mut groups: Vec<Value> = groups(catalogue)
        .into_iter()
        .filter(|(group, _)| !group.is_empty())
        .map(|(g, v)| group_body(g, &v))
        .collect();
    groups.push(machines::listing::group_body());
    groups.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/<group>`
pub fn group(catalogue: &Catalogue, name: &str) -> Option<Value> {
    let mut body = match name == machines::GROUP {
        true => machines::listing::group_body(),
        false => {
            let (name, versions) =
                groups(catalogue).into_iter().find(|(group, _)| *group == name && !group.is_empty())?;
            group_body(name, &versions)
        }
    };
    body["kind"] = "APIGroup".into();
    body["apiVersion"] = "v1".into();
    Some(body)
}

fn group_body(name: &str, versions: &[(&str, Vec<&Kind>)]) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|(version, _)| json!({"groupVersion": format!("{name}/{version}"), "version": version}))
        .collect();
    json!({"name": name, "preferredVersion": versions.first(), "versions": versions})
}

/// `/api/v1` and `/apis/<group>/<version>`
pub fn resource_list(catalogue: &Catalogue, group: &str, version: &str) -> Option<Value> {
    if group == machines::GROUP {
        return machines::listing::resource_list(version);
    }
    let (_, versions) = groups(catalogue).into_iter().find(|(name, _)| *name == group)?;
    let (_, kinds) = versions.into_iter().find(|(name, _)| *name == version)?;
    let resources: Vec<Value> = kinds.iter().flat_map(|kind| resources_of(kind)).collect();
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1",
        "groupVersion": sheaf_resources::kind::api_version(group, version), "resources": resources,
    }))
}

fn resources_of(kind: &Kind) -> Vec<Value> {
    let mut main = json!({
        "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced(), "kind": kind.kind,
        "verbs": kind.verbs.names(), "storageVersionHash": storage_hash(kind),
    });
    if !kind.short_names.is_empty() {
        main["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        main["categories"] = json!(kind.categories);
    }
    let mut all = vec![main];
    for sub in subresources(kind) {
        let mut entry = json!({
            "name": format!("{}/{}", kind.plural, sub.name), "singularName": "", "namespaced": kind.namespaced(),
            "kind": sub.kind, "verbs": sub.verbs,
        });
        if let Some((group, version)) = sub.other {
            entry["group"] = group.into();
            entry["version"] = version.into();
        }
        all.push(entry);
    }
    all
}

struct Sub<'a> {
    name: &'a str,
    kind: &'a str,
    /// Group and version of its body, when they are others than the kind's.
    other: Option<(&'a str, &'a str)>,
    verbs: &'a [&'a str],
}

fn subresources(kind: &Kind) -> Vec<Sub<'_>> {
    const OBJECT: &[&str] = &["get", "patch", "update"];
    let mut subs = Vec::new();
    if kind.status {
        subs.push(Sub { name: "status", kind: &kind.kind, other: None, verbs: OBJECT });
    }
    if kind.scale.is_some() {
        subs.push(Sub { name: "scale", kind: "Scale", other: Some(("autoscaling", "v1")), verbs: OBJECT });
    }
    for sub in &kind.subresources {
        let (other, body) = match sub.body {
            Some((group, version, body)) => (Some((group, version)), body),
            None => (None, kind.kind.as_str()),
        };
        subs.push(Sub { name: sub.name, kind: body, other, verbs: sub.verbs });
    }
    subs
}

/// Tells clients that cache by it whether the stored form changed. Any stable text will do.
fn storage_hash(kind: &Kind) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    use sha2::{Digest, Sha256};
    let text = format!("{}/{}/{}", kind.stored_under.0, kind.stored_version, kind.kind);
    STANDARD.encode(&Sha256::digest(text)[..8])
}

/// `/api` (core) or `/apis` (the rest) in the aggregated form, encoded once for as long as the catalogue does not change: it
/// is long, and every client begins with it.
pub fn aggregated(catalogue: &Catalogue, core: bool) -> Bytes {
    let encode = || Bytes::from(aggregated_document(catalogue, core).to_string());
    catalogue.aggregated_discovery[usize::from(core)].get_or_init(encode).clone()
}

fn aggregated_document(catalogue: &Catalogue, core: bool) -> Value {
    let mut items: Vec<Value> = groups(catalogue)
        .into_iter()
        .filter(|(group, _)| group.is_empty() == core)
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|(version, kinds)| {
                    let resources: Vec<Value> = kinds.iter().map(|kind| aggregated_resource(kind)).collect();
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let metadata = if group.is_empty() { json!({}) } else { json!({"name": group}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    if !core {
        items.push(machines::listing::aggregated_body());
        items.sort_by(|a, b| a["metadata"]["name"].as_str().cmp(&b["metadata"]["name"].as_str()));
    }
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
    })
}

fn aggregated_resource(kind: &Kind) -> Value {
    let scope = if kind.namespaced() { "Namespaced" } else { "Cluster" };
    let mut resource = json!({
        "resource": kind.plural, "singularResource": kind.singular, "scope": scope, "verbs": kind.verbs.names(),
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
    });
    if !kind.short_names.is_empty() {
        resource["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        resource["categories"] = json!(kind.categories);
    }
    let subs: Vec<Value> = subresources(kind)
        .iter()
        .map(|sub| {
            let (group, version) = sub.other.unwrap_or((&kind.group, &kind.version));
            json!({
                "subresource": sub.name, "verbs": sub.verbs,
                "responseKind": {"group": group, "version": version, "kind": sub.kind},
            })
        })
        .collect();
    if !subs.is_empty() {
        resource["subresources"] = Value::Array(subs);
    }
    resource
}

#[cfg(test)]
mod tests {
    use super::version_rank;

    #[test]
    fn versions_are_ordered_as_clients_expect() {
        let mut versions =
            ["v1alpha1", "foo10", "v1", "v2beta1", "v10", "v1beta2", "v2", "foo1", "v12alpha1"];
        versions.sort_by_key(|version| std::cmp::Reverse(version_rank(version)));
        assert_eq!(
            versions,
            ["v10", "v2", "v1", "v2beta1", "v1beta2", "v12alpha1", "v1alpha1", "foo1", "foo10"]
        );
    }
}
