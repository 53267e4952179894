//! harvesterhci.io/v1beta1 ResourceQuota: how much the snapshots of a namespace may take, and those of each machine.
//!
//! One object per namespace is looked at, by its name; another one would be obeyed by nobody and is refused. What is used is
//! in the status; what counts is `planner::snapshot_usage`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{name_column, text};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind},
    wire::{root_type, wire_type},
};

/// The only one that is looked at.
pub const DEFAULT_NAME: &str = "default-resource-quota";

root_type! {
    /// How much the snapshots of a namespace may take.
    ResourceQuota = "io.harvesterhci.v1beta1.ResourceQuota",
    "harvesterhci.io" / "v1beta1" "resourcequotas" NamespaceResourceScope {
        /// What is allowed.
        spec: ResourceQuotaSpec,
        /// What is used.
        status: ResourceQuotaStatus,
    }
}

wire_type! {
    /// What is allowed.
    ResourceQuotaSpec = "io.harvesterhci.v1beta1.ResourceQuotaSpec" {
        /// Of snapshots.
        snapshot_limit: SnapshotLimit,
    }
}

wire_type! {
    /// How much snapshots may take. 0 is no limit.
    SnapshotLimit = "io.harvesterhci.v1beta1.SnapshotLimit" {
        /// Bytes, of all snapshots of the namespace.
        namespace_total_snapshot_size_quota: i64,
        /// Bytes, by machine.
        vm_total_snapshot_size_quota: BTreeMap<String, i64>,
    }
}

wire_type! {
    /// What is used.
    ResourceQuotaStatus = "io.harvesterhci.v1beta1.ResourceQuotaStatus" {
        /// By snapshots.
        snapshot_limit_status: SnapshotLimitStatus,
    }
}

wire_type! {
    /// What snapshots take.
    SnapshotLimitStatus = "io.harvesterhci.v1beta1.SnapshotLimitStatus" {
        /// Bytes, of all snapshots of the namespace.
        namespace_total_snapshot_size_usage: i64,
        /// Bytes, by machine.
        vm_total_snapshot_size_usage: BTreeMap<String, i64>,
    }
}

pub fn kind() -> Kind {
    Kind::of_type::<ResourceQuota>("resourcequotas")
        .short(&["hrq", "hrqs"])
        .with_status()
        .columns(vec![
            name_column(),
            Column::computed("NAMESPACE_TOTAL_SNAPSHOT_SIZE_QUOTA", |quota, _| {
                quota["spec"]["snapshotLimit"]["namespaceTotalSnapshotSizeQuota"].clone()
            }),
            Column::computed("NAMESPACE_TOTAL_SNAPSHOT_SIZE_USAGE", |quota, _| {
                quota["status"]["snapshotLimitStatus"]["namespaceTotalSnapshotSizeUsage"].clone()
            }),
        ])
        .behaving(Behaviour {
            prepare_create: without_status,
            validate,
            generation: true,
            ..Behaviour::PLAIN
        })
}

fn without_status(quota: &mut Value) {
    quota.as_object_mut().map(|fields| fields.remove("status"));
}

fn validate(new: &Value, _old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = text(&new["metadata"]["name"]);
    if name != DEFAULT_NAME {
        let at = FieldPath::new("metadata").child("name");
        errors.push(FieldError::not_supported(&at, name, [DEFAULT_NAME]));
    }
    let limit = &new["spec"]["snapshotLimit"];
    let at = FieldPath::new("spec").child("snapshotLimit");
    let below_zero = |bytes: &Value| bytes.as_i64().is_some_and(|bytes| bytes < 0);
    let of_namespace = &limit["namespaceTotalSnapshotSizeQuota"];
    if below_zero(of_namespace) {
        let at = at.child("namespaceTotalSnapshotSizeQuota");
        errors.push(FieldError::invalid(&at, of_namespace.clone(), "must not be below 0"));
    }
    for (machine, bytes) in limit["vmTotalSnapshotSizeQuota"].as_object().into_iter().flatten() {
        if below_zero(bytes) {
            let at = at.child("vmTotalSnapshotSizeQuota").key(machine);
            errors.push(FieldError::invalid(&at, bytes.clone(), "must not be below 0"));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_quota_that_nobody_would_look_at_is_refused() {
        let quota =
            |name: &str, limit: Value| json!({"metadata": {"name": name}, "spec": {"snapshotLimit": limit}});
        assert_eq!(validate(&quota(DEFAULT_NAME, json!({})), None), []);
        assert_eq!(validate(&quota("mine", json!({})), None)[0].field, "metadata.name");
        let odd =
            json!({"namespaceTotalSnapshotSizeQuota": -1, "vmTotalSnapshotSizeQuota": {"vm": -1, "b": 0}});
        assert_eq!(validate(&quota(DEFAULT_NAME, odd), None).len(), 2);
    }
}
