//! snapshot.storage.k8s.io/v1 VolumeSnapshotClass: who takes snapshots, and what becomes of them.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{age_column, name_column, storage_class, text};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind},
    wire::root_type,
};

pub const DEFAULT_CLASS: &str = "snapshot.storage.kubernetes.io/is-default-class";
/// The class of snapshots that stay in the cluster.
pub const LONGHORN_SNAPSHOT: &str = "longhorn-snapshot";
/// The class of those that go to a backup target.
pub const LONGHORN_BACKUP: &str = "longhorn";
/// Among the parameters: what sort of snapshot it is.
pub const TYPE_PARAMETER: &str = "type";
/// It stays in the cluster; so does one whose class does not say.
pub const TYPE_SNAPSHOT: &str = "snap";
/// It goes to a backup target. The second is the older word.
pub const TYPES_BACKUP: [&str; 2] = ["bak", "bs"];
pub const DELETION_POLICIES: [&str; 2] = ["Delete", "Retain"];

root_type! {
    /// Who takes snapshots, and what becomes of them.
    VolumeSnapshotClass = "io.k8s.storage.snapshot.v1.VolumeSnapshotClass",
    "snapshot.storage.k8s.io" / "v1" "volumesnapshotclasses" ClusterResourceScope {
        /// Who takes them.
        driver: String,
        /// What the driver is told.
        parameters: BTreeMap<String, String>,
        /// Delete or Retain: whether the bytes go with the VolumeSnapshot.
        deletion_policy: String,
    }
}

impl VolumeSnapshotClass {
    /// Whether its snapshots go to a backup target.
    pub fn is_of_backups(&self) -> bool {
        self.parameters.get(TYPE_PARAMETER).is_some_and(|sort| TYPES_BACKUP.contains(&sort.as_str()))
    }
}

pub fn kind() -> Kind {
    Kind::of_type::<VolumeSnapshotClass>("volumesnapshotclasses")
        .cluster_scoped()
        .short(&["vsclass", "vsclasses"])
        .columns(vec![
            name_column(),
            Column::computed("Driver", |class, _| class["driver"].clone()),
            Column::computed("DeletionPolicy", |class, _| class["deletionPolicy"].clone()),
            age_column(),
        ])
        .behaving(Behaviour { validate, generation: true, ..Behaviour::PLAIN })
}

/// The class of Sheaf's own driver that snapshots get that name none. With two of them none is meant.
pub fn default_of(classes: &[Value]) -> Option<&str> {
    let mut defaults = classes.iter().filter(|class| {
        class["metadata"]["annotations"][DEFAULT_CLASS] == "true"
            && class["driver"] == storage_class::PROVISIONER
    });
    match (defaults.next(), defaults.next()) {
        (Some(class), None) => class["metadata"]["name"].as_str(),
        _ => None,
    }
}

fn validate(new: &Value, _: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if text(&new["driver"]).is_empty() {
        errors.push(FieldError::required(&FieldPath::new("driver"), ""));
    }
    errors.extend(validate_deletion_policy(&FieldPath::new("deletionPolicy"), &new["deletionPolicy"]));
    errors
}

pub(super) fn validate_deletion_policy(path: &FieldPath, policy: &Value) -> Option<FieldError> {
    match text(policy) {
        "" => Some(FieldError::required(path, "")),
        known if DELETION_POLICIES.contains(&known) => None,
        other => Some(FieldError::not_supported(path, other, DELETION_POLICIES)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_class_says_who_takes_snapshots_and_what_becomes_of_them() {
        assert_eq!(validate(&json!({"driver": "d", "deletionPolicy": "Retain"}), None), []);
        assert_eq!(validate(&json!({}), None).len(), 2);
        assert_eq!(validate(&json!({"driver": "d", "deletionPolicy": "Shred"}), None).len(), 1);
    }

    #[test]
    fn what_goes_to_a_backup_target_is_told_by_its_type() {
        let of = |sort: &str| VolumeSnapshotClass {
            parameters: BTreeMap::from([(TYPE_PARAMETER.into(), sort.into())]),
            ..VolumeSnapshotClass::default()
        };
        assert!(of("bak").is_of_backups() && of("bs").is_of_backups());
        assert!(!of(TYPE_SNAPSHOT).is_of_backups() && !VolumeSnapshotClass::default().is_of_backups());
    }
}
