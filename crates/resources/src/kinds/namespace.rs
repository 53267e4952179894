//! core/v1 Namespace: a room for objects, emptied before it goes.
//!
//! A namespace carries `spec.finalizers` of its own. Deleting it marks it Terminating; the
//! namespace controller empties it and then removes the finalizer through the `finalize` subresource.

use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Value, json};

use super::{
    addon::{LOGGING_NAMESPACE, MONITORING_NAMESPACE},
    age_column, name_column,
};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind, Subresource, Verbs},
    names::NameRule,
    object_meta,
};

/// Every namespace is labelled with its own name, so that selectors can pick it.
pub const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// Namespaces the cluster itself lives in: there from the start.
pub const SYSTEM: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];
/// Where Harvester's clients look for what belongs to the cluster, and where everybody may look.
pub const HARVESTER_SYSTEM: &str = "harvester-system";
pub const HARVESTER_PUBLIC: &str = "harvester-public";
/// Those that cannot be deleted. What is in the last two cannot be, either.
pub const IMMORTAL: [&str; 7] = [
    "default",
    "kube-system",
    "kube-public",
    HARVESTER_SYSTEM,
    HARVESTER_PUBLIC,
    MONITORING_NAMESPACE,
    LOGGING_NAMESPACE,
];

pub fn kind() -> Kind {
    // One careless request must not empty a cluster: there is no deleting all of them at once.
    let kind = Kind { verbs: Verbs::NoCollection, ..Kind::of_type::<Namespace>("namespaces") };
    kind.cluster_scoped()
        .short(&["ns"])
        .with_status()
        .with_subresource(Subresource { name: "finalize", body: None, verbs: &["update"] })
        .columns(vec![
            name_column(),
            Column::computed("Status", |object, _| object["status"]["phase"].clone()),
            age_column(),
        ])
        .selectable(&["status.phase"])
        .behaving(Behaviour {
            default,
            prepare_create,
            prepare_update,
            validate,
            name_rule: NameRule::DnsLabel,
            ..Behaviour::PLAIN
        })
}

fn default(object: &mut Value) {
    let name = object["metadata"]["name"].clone();
    if name.as_str().is_some_and(|name| !name.is_empty()) && object["metadata"].is_object() {
        let labels = &mut object["metadata"]["labels"];
        if !labels.is_object() {
            *labels = json!({});
        }
        labels[NAME_LABEL] = name;
    }
}

fn prepare_create(object: &mut Value) {
    let finalizers = object["spec"]["finalizers"].as_array().cloned().unwrap_or_default();
    let mut finalizers: Vec<Value> = finalizers;
    if !finalizers.iter().any(|f| f == "kubernetes") {
        finalizers.push("kubernetes".into());
    }
    object["spec"] = json!({"finalizers": finalizers});
    object["status"] = json!({"phase": "Active"});
}

/// The spec holds nothing but finalizers, and those change only through `finalize`.
fn prepare_update(new: &mut Value, old: &Value) {
    new["spec"] = old["spec"].clone();
    new["status"] = old["status"].clone();
}

fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let label = &new["metadata"]["labels"][NAME_LABEL];
    if *label != new["metadata"]["name"] {
        errors.push(FieldError::invalid(
            &FieldPath::new("metadata").child("labels").key(NAME_LABEL),
            label.as_str().unwrap_or_default(),
            "must be the name of the namespace",
        ));
    }
    // The phase shuts the door: only a delete may do that.
    let phase = new["status"]["phase"].as_str().unwrap_or_default();
    let wrong = match object_meta::is_being_deleted(new) {
        true if phase != "Terminating" => {
            Some("may only be 'Terminating' if `deletionTimestamp` is not empty")
        }
        false if phase != "Active" => Some("may only be 'Active' if `deletionTimestamp` is empty"),
        _ => None,
    };
    if let Some(wrong) = wrong.filter(|_| old.is_some()) {
        errors.push(FieldError::invalid(&FieldPath::new("status").child("phase"), phase, wrong));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_namespace_is_active_labelled_and_finalized_by_the_cluster() {
        let mut namespace = json!({"metadata": {"name": "a"}, "status": {"phase": "Terminating"}});
        default(&mut namespace);
        prepare_create(&mut namespace);
        assert_eq!(namespace["metadata"]["labels"][NAME_LABEL], "a");
        assert_eq!(namespace["status"]["phase"], "Active");
        assert_eq!(namespace["spec"]["finalizers"], json!(["kubernetes"]));
    }
}
