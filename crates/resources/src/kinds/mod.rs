//! The built-in kinds, one file each: what a row says beyond its schema is in its file.

pub mod access_review;
pub mod addon;
pub mod cluster_network;
pub mod cluster_role;
pub mod cluster_role_binding;
pub mod config_map;
pub mod custom_resource_definition;
pub mod event;
pub mod harvester_condition;
pub mod harvester_resource_quota;
pub mod ip_pool;
pub mod key_pair;
pub mod kube_virt;
pub mod lease;
pub mod limit_range;
pub mod link_monitor;
pub mod load_balancer;
pub mod load_balancer_ip_pool;
pub mod management_setting;
pub mod namespace;
pub mod network_attachment_definition;
pub mod node;
pub mod persistent_volume;
pub mod persistent_volume_claim;
pub mod pod;
pub mod resource_quota;
pub mod role;
pub mod role_binding;
pub mod secret;
pub mod service_account;
pub mod setting;
pub mod storage_class;
pub mod support_bundle;
pub mod token;
pub mod user;
pub mod version;
pub mod virtual_machine;
pub mod virtual_machine_backup;
pub mod virtual_machine_clone;
pub mod virtual_machine_image;
pub mod virtual_machine_instance;
pub mod virtual_machine_network_config;
pub mod virtual_machine_restore;
pub mod virtual_machine_template;
pub mod virtual_machine_template_version;
pub mod vlan_config;
pub mod vlan_status;
pub mod volume_attachment;
pub mod volume_snapshot;
pub mod volume_snapshot_class;
pub mod volume_snapshot_content;

use std::{collections::BTreeSet, sync::OnceLock};

use serde_json::{Value, json};

use crate::{
    age,
    kind::{Column, Kind},
    schema::Schema,
};

/// Every built-in kind, in the order discovery lists them.
pub fn built_in() -> Vec<Kind> {
    let mut rows = vec![
        namespace::kind(),
        secret::kind(),
        config_map::kind(),
        service_account::kind(),
        event::core_kind(),
        event::events_kind(),
        node::kind(),
        persistent_volume_claim::kind(),
        persistent_volume::kind(),
        pod::kind(),
        resource_quota::kind(),
        limit_range::kind(),
        lease::kind(),
        role::kind(),
        role_binding::kind(),
        cluster_role::kind(),
        cluster_role_binding::kind(),
        storage_class::kind(),
        volume_attachment::kind(),
        volume_snapshot_class::kind(),
        volume_snapshot::kind(),
        volume_snapshot_content::kind(),
        custom_resource_definition::kind(),
        user::kind(),
        token::kind(),
        management_setting::kind(),
        virtual_machine::kind(),
        virtual_machine_instance::kind(),
        kube_virt::kind(),
        virtual_machine_clone::kind(),
        virtual_machine_image::kind(),
        virtual_machine_backup::kind(),
        virtual_machine_restore::kind(),
        virtual_machine_template::kind(),
        virtual_machine_template_version::kind(),
        key_pair::kind(),
        setting::kind(),
        addon::kind(),
        version::kind(),
        harvester_resource_quota::kind(),
        support_bundle::kind(),
        network_attachment_definition::kind(),
        cluster_network::kind(),
        vlan_config::kind(),
        vlan_status::kind(),
        link_monitor::kind(),
        ip_pool::kind(),
        virtual_machine_network_config::kind(),
        load_balancer::kind(),
        load_balancer_ip_pool::kind(),
    ];
    rows.extend(access_review::kinds());
    rows
}

/// Whether Sheaf itself serves a resource. What it serves is never a custom resource, whatever a definition says.
pub fn is_built_in(group: &str, plural: &str) -> bool {
    static ALL: OnceLock<BTreeSet<(String, String)>> = OnceLock::new();
    let all = ALL.get_or_init(|| built_in().into_iter().map(|kind| (kind.group, kind.plural)).collect());
    all.contains(&(group.to_owned(), plural.to_owned()))
}

/// The schema of a kind of our own: metadata and the given properties.
fn object_schema(description: &str, properties: Value) -> Schema {
    let mut schema = json!({
        "type": "object",
        "description": description,
        "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}},
    });
    if let Value::Object(properties) = properties {
        for (name, property) in properties {
            schema["properties"][name] = property;
        }
    }
    // Written by us and read by a test for every kind.
    Schema::parse(&schema).expect("a schema of our own is well formed")
}

fn name_column() -> Column {
    Column::computed("Name", |object, _| object["metadata"]["name"].clone()).format("name")
}

fn age_column() -> Column {
    Column::computed("Age", age::of_object)
}

fn created_at_column() -> Column {
    Column::computed("Created At", |object, _| object["metadata"]["creationTimestamp"].clone())
}

/// What is bound, and to whom.
fn binding_columns() -> Vec<Column> {
    fn subjects(binding: &Value, sort: &str) -> Value {
        let of_sort =
            binding["subjects"].as_array().into_iter().flatten().filter(|subject| subject["kind"] == sort);
        let names = of_sort.map(|subject| match text(&subject["namespace"]) {
            "" => text(&subject["name"]).to_string(),
            namespace => format!("{namespace}/{}", text(&subject["name"])),
        });
        names.collect::<Vec<_>>().join(", ").into()
    }
    vec![
        name_column(),
        Column::computed("Role", |binding, _| {
            let role = &binding["roleRef"];
            format!("{}/{}", text(&role["kind"]), text(&role["name"])).into()
        }),
        age_column(),
        Column::computed("Users", |binding, _| subjects(binding, "User")).wide(),
        Column::computed("Groups", |binding, _| subjects(binding, "Group")).wide(),
        Column::computed("ServiceAccounts", |binding, _| subjects(binding, "ServiceAccount")).wide(),
    ]
}

/// The status of one of an object's conditions; null without it.
fn condition_status(object: &Value, condition_type: &str) -> Value {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let mut of_type = conditions.filter(|condition| condition["type"] == condition_type);
    of_type.next().map_or(Value::Null, |condition| condition["status"].clone())
}

/// How many members an object or array has; absent counts as none.
fn count(value: &Value) -> usize {
    match value {
        Value::Object(members) => members.len(),
        Value::Array(items) => items.len(),
        _ => 0,
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_schema_and_a_name_of_its_own() {
        let mut seen = std::collections::BTreeSet::new();
        for kind in built_in() {
            assert!(kind.schema.get().field("metadata").is_some(), "{}", kind.kind);
            assert!(
                seen.insert((kind.group.clone(), kind.version.clone(), kind.plural.clone())),
                "{}",
                kind.kind
            );
        }
    }
}
