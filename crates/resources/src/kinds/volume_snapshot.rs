//! snapshot.storage.k8s.io/v1 VolumeSnapshot: somebody wants a volume as it is now.
//!
//! What is kept is a VolumeSnapshotContent ([`super::volume_snapshot_content`]); a controller makes it, and mirrors its
//! status here.

use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Time};
use serde_json::Value;

use super::{age_column, name_column, text, volume_snapshot_class};
use crate::{
    age,
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind},
    wire::{root_type, wire_type},
};

pub const GROUP: &str = "snapshot.storage.k8s.io";
/// Keeps a snapshot while a volume is made of it.
pub const AS_SOURCE_PROTECTION: &str = "snapshot.storage.kubernetes.io/volumesnapshot-as-source-protection";
/// Keeps a snapshot while it has a content.
pub const BOUND_PROTECTION: &str = "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection";
/// On snapshots and their contents: all of a namespace that say the same are taken at one instant...
pub const TOGETHER_ANNOTATION: &str = "sheaf.io/together";
/// ...once there are so many of them.
pub const TOGETHER_OF_ANNOTATION: &str = "sheaf.io/together-of";
/// Who keeps the volume that a snapshot is of, for those who make a volume of it.
pub const STORAGE_PROVISIONER_ANNOTATION: &str = "harvesterhci.io/storageProvisioner";
/// On machines, their backups, snapshots and contents: `false` leaves the guest's file systems unfrozen.
pub const FREEZE_ANNOTATION: &str = "harvesterhci.io/snapshotFreezeFS";
/// What of a snapshot's annotations is said of its content too.
pub const ANNOTATIONS_OF_CONTENT: [&str; 3] =
    [TOGETHER_ANNOTATION, TOGETHER_OF_ANNOTATION, FREEZE_ANNOTATION];

root_type! {
    /// A volume as it was at one moment.
    VolumeSnapshot = "io.k8s.storage.snapshot.v1.VolumeSnapshot",
    "snapshot.storage.k8s.io" / "v1" "volumesnapshots" NamespaceResourceScope {
        /// What it is a snapshot of.
        spec: VolumeSnapshotSpec,
        /// How far it is.
        status: Option<VolumeSnapshotStatus>,
    }
}

wire_type! {
    /// What a snapshot is of, and how it is taken.
    VolumeSnapshotSpec = "io.k8s.storage.snapshot.v1.VolumeSnapshotSpec" {
        /// What it is a snapshot of. It never changes.
        source: VolumeSnapshotSource,
        /// How it is taken; the default class when left out.
        volume_snapshot_class_name: Option<String>,
    }
}

wire_type! {
    /// What a snapshot is of: one of a claim and a content.
    VolumeSnapshotSource = "io.k8s.storage.snapshot.v1.VolumeSnapshotSource" {
        /// A claim of the same namespace, whose volume is to be snapshotted.
        persistent_volume_claim_name: Option<String>,
        /// A content that is there already and names this snapshot.
        volume_snapshot_content_name: Option<String>,
    }
}

wire_type! {
    /// How far a snapshot is.
    VolumeSnapshotStatus = "io.k8s.storage.snapshot.v1.VolumeSnapshotStatus" {
        /// The content that it has; the content must name this snapshot too.
        bound_volume_snapshot_content_name: Option<String>,
        /// The moment that it is of.
        creation_time: Option<Time>,
        /// Whether volumes can be made of it.
        ready_to_use: Option<bool>,
        /// How large a volume made of it must be at least.
        restore_size: Option<Quantity>,
        /// What was last in the way.
        error: Option<VolumeSnapshotError>,
    }
}

wire_type! {
    /// What was in the way of a snapshot.
    VolumeSnapshotError = "io.k8s.storage.snapshot.v1.VolumeSnapshotError" {
        /// When it was.
        time: Option<Time>,
        /// What it was.
        message: Option<String>,
    }
}

impl VolumeSnapshot {
    pub fn is_ready(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.ready_to_use == Some(true))
    }

    /// What was last in the way.
    pub fn error(&self) -> Option<&str> {
        self.status.as_ref()?.error.as_ref()?.message.as_deref()
    }
}

/// The name of the content that is made for a snapshot.
pub fn content_name(snapshot_uid: &str) -> String {
    format!("snapcontent-{snapshot_uid}")
}

pub fn kind() -> Kind {
    Kind::of_type::<VolumeSnapshot>("volumesnapshots")
        .short(&["vs"])
        .with_status()
        .columns(vec![
            name_column(),
            Column::computed("ReadyToUse", |snapshot, _| snapshot["status"]["readyToUse"].clone()),
            Column::computed("SourcePVC", |snapshot, _| {
                snapshot["spec"]["source"]["persistentVolumeClaimName"].clone()
            }),
            Column::computed("SourceSnapshotContent", |snapshot, _| {
                snapshot["spec"]["source"]["volumeSnapshotContentName"].clone()
            }),
            Column::computed("RestoreSize", |snapshot, _| snapshot["status"]["restoreSize"].clone()),
            Column::computed("SnapshotClass", |snapshot, _| {
                snapshot["spec"]["volumeSnapshotClassName"].clone()
            }),
            Column::computed("SnapshotContent", |snapshot, _| {
                snapshot["status"]["boundVolumeSnapshotContentName"].clone()
            }),
            Column::computed("CreationTime", |snapshot, now| match &snapshot["status"]["creationTime"] {
                Value::Null => Value::Null,
                time => age::of_timestamp(time, now),
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

pub(super) fn without_status(object: &mut Value) {
    object.as_object_mut().map(|fields| fields.remove("status"));
}

/// Gives a snapshot of a claim that names no class the default one of Sheaf's own driver, if there is one alone.
pub fn complete(snapshot: &mut Value, classes: &[Value]) {
    let of_claim = !snapshot["spec"]["source"]["persistentVolumeClaimName"].is_null();
    if of_claim
        && snapshot["spec"]["volumeSnapshotClassName"].is_null()
        && let Some(class) = volume_snapshot_class::default_of(classes)
    {
        snapshot["spec"]["volumeSnapshotClassName"] = class.into();
    }
}

fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let path = FieldPath::new("spec");
    let source = path.child("source");
    let mut errors = Vec::new();
    let fields = ["persistentVolumeClaimName", "volumeSnapshotContentName"];
    let given = |object: &Value, field: &str| !object["spec"]["source"][field].is_null();
    if new["spec"]["source"].is_null() {
        errors.push(FieldError::required(&source, ""));
    } else if fields.iter().filter(|field| given(new, field)).count() != 1 {
        let why = "exactly one of volumeSnapshotContentName and persistentVolumeClaimName must be set";
        errors.push(FieldError::invalid(&source, "object", why));
    }
    for field in fields {
        if given(new, field) && text(&new["spec"]["source"][field]).is_empty() {
            errors.push(FieldError::required(&source.child(field), ""));
        }
        let Some(old) = old.filter(|old| given(old, field)) else { continue };
        if !given(new, field) {
            let why = format!("{field} is required once set");
            errors.push(FieldError::invalid(&source, "object", why));
        } else if new["spec"]["source"][field] != old["spec"]["source"][field] {
            let why = format!("{field} is immutable");
            errors.push(FieldError::invalid(&source.child(field), new["spec"]["source"][field].clone(), why));
        }
    }
    if new["spec"]["volumeSnapshotClassName"] == "" {
        let why = "volumeSnapshotClassName must not be the empty string when set";
        errors.push(FieldError::invalid(&path.child("volumeSnapshotClassName"), "", why));
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(source: Value) -> Value {
        json!({"metadata": {"name": "s"}, "spec": {"source": source}})
    }

    fn said(new: &Value, old: Option<&Value>) -> Vec<String> {
        validate(new, old).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_snapshot_is_of_one_thing_and_stays_so() {
        let claim = of(json!({"persistentVolumeClaimName": "c"}));
        assert!(said(&claim, None).is_empty() && said(&claim, Some(&claim)).is_empty());
        for odd in [json!({}), json!({"persistentVolumeClaimName": "c", "volumeSnapshotContentName": "d"})] {
            assert!(said(&of(odd), None)[0].contains("exactly one of"));
        }
        let other = of(json!({"persistentVolumeClaimName": "d"}));
        assert!(said(&other, Some(&claim))[0].ends_with("persistentVolumeClaimName is immutable"));
        let content = of(json!({"volumeSnapshotContentName": "d"}));
        assert!(said(&content, Some(&claim))[0].ends_with("persistentVolumeClaimName is required once set"));
        assert_eq!(said(&json!({"spec": {}}), None), ["spec.source: Required value"]);
        let mut unclassed = claim.clone();
        unclassed["spec"]["volumeSnapshotClassName"] = json!("");
        assert!(said(&unclassed, None)[0].contains("must not be the empty string"));
    }

    #[test]
    fn a_snapshot_without_a_class_gets_the_default_one_of_our_driver_once() {
        let class = |name: &str, driver: &str, default: &str| {
            json!({"metadata": {"name": name, "annotations": {volume_snapshot_class::DEFAULT_CLASS: default}},
                "driver": driver})
        };
        let ours = crate::kinds::storage_class::PROVISIONER;
        let classes = [class("a", ours, "false"), class("b", "other", "true"), class("c", ours, "true")];
        let mut snapshot = of(json!({"persistentVolumeClaimName": "c"}));
        complete(&mut snapshot, &classes);
        assert_eq!(snapshot["spec"]["volumeSnapshotClassName"], "c");
        let once = snapshot.clone();
        complete(&mut snapshot, &[class("d", ours, "true")]);
        assert_eq!(snapshot, once);
        let mut content = of(json!({"volumeSnapshotContentName": "d"}));
        complete(&mut content, &classes);
        assert!(
            content["spec"]["volumeSnapshotClassName"].is_null(),
            "which class it is of its content says"
        );
        let mut torn = of(json!({"persistentVolumeClaimName": "c"}));
        complete(&mut torn, &[class("a", ours, "true"), class("c", ours, "true")]);
        assert!(torn["spec"]["volumeSnapshotClassName"].is_null(), "of two defaults none is the default");
    }
}
