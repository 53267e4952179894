//! snapshot.storage.k8s.io/v1 VolumeSnapshotContent: a snapshot that there is, and whose it is.
//!
//! A controller makes one for each VolumeSnapshot of a claim; the node that has the volume takes the snapshot, says how
//! it went, and removes the bytes before the content goes. Whoever administers the cluster may make one for a snapshot that
//! is there already.

use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::Value;

use super::{
    age_column, name_column, text,
    volume_snapshot::{VolumeSnapshotError, without_status},
    volume_snapshot_class::validate_deletion_policy,
};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind},
    wire::{root_type, wire_type},
};

/// Keeps a content while a VolumeSnapshot has it.
pub const BOUND_PROTECTION: &str = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection";
/// Keeps a content until its bytes are gone.
pub const DATA_FINALIZER: &str = "sheaf.io/snapshot-data";
/// The node that takes the snapshot and keeps it.
pub const NODE_ANNOTATION: &str = "sheaf.io/node";
/// `true` lets a volume of another mode be made of it.
pub const MODE_CHANGE_ANNOTATION: &str = "snapshot.storage.kubernetes.io/allow-volume-mode-change";

root_type! {
    /// A snapshot that there is.
    VolumeSnapshotContent = "io.k8s.storage.snapshot.v1.VolumeSnapshotContent",
    "snapshot.storage.k8s.io" / "v1" "volumesnapshotcontents" ClusterResourceScope {
        /// What it is, and whose.
        spec: VolumeSnapshotContentSpec,
        /// How far it is.
        status: Option<VolumeSnapshotContentStatus>,
    }
}

wire_type! {
    /// What a snapshot is, and whose.
    VolumeSnapshotContentSpec = "io.k8s.storage.snapshot.v1.VolumeSnapshotContentSpec" {
        /// The VolumeSnapshot that has it.
        volume_snapshot_ref: ObjectReference,
        /// Delete or Retain: whether the bytes go with the VolumeSnapshot.
        deletion_policy: String,
        /// Who takes it.
        driver: String,
        /// The class it was taken by.
        volume_snapshot_class_name: Option<String>,
        /// What it is a snapshot of, or which one it is. It never changes.
        source: VolumeSnapshotContentSource,
        /// Block or Filesystem: the mode of the volume it is of.
        source_volume_mode: Option<String>,
    }
}

wire_type! {
    /// One of a volume that is to be snapshotted, and a snapshot that is there.
    VolumeSnapshotContentSource = "io.k8s.storage.snapshot.v1.VolumeSnapshotContentSource" {
        /// The volume, as its driver knows it.
        volume_handle: Option<String>,
        /// The snapshot, as its driver knows it.
        snapshot_handle: Option<String>,
    }
}

wire_type! {
    /// How far a snapshot is.
    VolumeSnapshotContentStatus = "io.k8s.storage.snapshot.v1.VolumeSnapshotContentStatus" {
        /// The snapshot, as its driver knows it.
        snapshot_handle: Option<String>,
        /// The moment that it is of: nanoseconds since 1970.
        creation_time: Option<i64>,
        /// Bytes that a volume made of it must have at least.
        restore_size: Option<i64>,
        /// Whether volumes can be made of it.
        ready_to_use: Option<bool>,
        /// What was last in the way.
        error: Option<VolumeSnapshotError>,
        /// The group snapshot it is of, as its driver knows it.
        volume_group_snapshot_handle: Option<String>,
    }
}

/// What a node calls the snapshot that it takes for a VolumeSnapshot.
pub fn handle_of(snapshot_uid: &str) -> String {
    format!("snap-{snapshot_uid}")
}

pub fn kind() -> Kind {
    Kind::of_type::<VolumeSnapshotContent>("volumesnapshotcontents")
        .cluster_scoped()
        .short(&["vsc", "vscs"])
        .with_status()
        .columns(vec![
            name_column(),
            Column::computed("ReadyToUse", |content, _| content["status"]["readyToUse"].clone()),
            Column::computed("RestoreSize", |content, _| content["status"]["restoreSize"].clone()).integer(),
            Column::computed("DeletionPolicy", |content, _| content["spec"]["deletionPolicy"].clone()),
            Column::computed("Driver", |content, _| content["spec"]["driver"].clone()),
            Column::computed("VolumeSnapshotClass", |content, _| {
                content["spec"]["volumeSnapshotClassName"].clone()
            }),
            Column::computed("VolumeSnapshot", |content, _| {
                content["spec"]["volumeSnapshotRef"]["name"].clone()
            }),
            Column::computed("VolumeSnapshotNamespace", |content, _| {
                content["spec"]["volumeSnapshotRef"]["namespace"].clone()
            }),
            age_column(),
        ])
        .behaving(Behaviour {
            prepare_create: without_status,
            validate,
            generation: true,
            ..Behaviour::PLAIN
        })
}

fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let path = FieldPath::new("spec");
    let mut errors = Vec::new();
    if text(&new["spec"]["driver"]).is_empty() {
        errors.push(FieldError::required(&path.child("driver"), ""));
    }
    errors.extend(validate_deletion_policy(&path.child("deletionPolicy"), &new["spec"]["deletionPolicy"]));
    let holder = &new["spec"]["volumeSnapshotRef"];
    if text(&holder["name"]).is_empty() || text(&holder["namespace"]).is_empty() {
        let why = "both spec.volumeSnapshotRef.name and spec.volumeSnapshotRef.namespace must be set";
        errors.push(FieldError::invalid(&path.child("volumeSnapshotRef"), "object", why));
    }
    let source = path.child("source");
    let handles = ["volumeHandle", "snapshotHandle"];
    let given = |object: &Value, field: &str| !object["spec"]["source"][field].is_null();
    if handles.iter().filter(|field| given(new, field)).count() != 1 {
        let why = "exactly one of volumeHandle and snapshotHandle must be set";
        errors.push(FieldError::invalid(&source, "object", why));
    }
    let Some(old) = old else { return errors };
    for (field, word) in handles.into_iter().zip(["VolumeHandle", "SnapshotHandle"]) {
        if given(old, field) && !given(new, field) {
            errors.push(FieldError::invalid(&source, "object", format!("{field} is required once set")));
        } else if given(old, field) && old["spec"]["source"][field] != new["spec"]["source"][field] {
            let why = format!("Spec.Source.{word} is immutable");
            errors.push(FieldError::invalid(&source.child(field), new["spec"]["source"][field].clone(), why));
        }
    }
    let (mode, before) = (&new["spec"]["sourceVolumeMode"], &old["spec"]["sourceVolumeMode"]);
    if !before.is_null() && mode.is_null() {
        errors.push(FieldError::invalid(&path, "object", "sourceVolumeMode is required once set"));
    } else if !before.is_null() && mode != before {
        let why = "Spec.sourceVolumeMode is immutable";
        errors.push(FieldError::invalid(&path.child("sourceVolumeMode"), mode.clone(), why));
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn content() -> Value {
        json!({"spec": {"driver": "d", "deletionPolicy": "Delete", "source": {"volumeHandle": "v"},
            "sourceVolumeMode": "Block", "volumeSnapshotRef": {"namespace": "default", "name": "s"}}})
    }

    fn said(new: &Value, old: Option<&Value>) -> Vec<String> {
        validate(new, old).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_content_says_what_it_is_and_whose() {
        assert!(said(&content(), None).is_empty() && said(&content(), Some(&content())).is_empty());
        assert_eq!(said(&json!({"spec": {}}), None).len(), 4);
        for (field, value) in [
            ("source", json!({"volumeHandle": "v", "snapshotHandle": "s"})),
            ("volumeSnapshotRef", json!({"name": "s"})),
            ("deletionPolicy", json!("Shred")),
        ] {
            let mut odd = content();
            odd["spec"][field] = value;
            assert_eq!(said(&odd, None).len(), 1, "{field}");
        }
    }

    #[test]
    fn what_a_content_is_of_stays() {
        for (field, value, words) in [
            ("source", json!({"volumeHandle": "w"}), "Spec.Source.VolumeHandle is immutable"),
            ("source", json!({"snapshotHandle": "w"}), "volumeHandle is required once set"),
            ("sourceVolumeMode", json!("Filesystem"), "Spec.sourceVolumeMode is immutable"),
            ("sourceVolumeMode", json!(null), "sourceVolumeMode is required once set"),
        ] {
            let mut other = content();
            other["spec"][field] = value;
            assert!(said(&other, Some(&content()))[0].ends_with(words), "{field}");
        }
        let mut bound = content();
        bound["spec"]["volumeSnapshotRef"]["uid"] = json!("u");
        assert!(said(&bound, Some(&content())).is_empty());
    }
}
