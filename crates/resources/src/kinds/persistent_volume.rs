//! core/v1 PersistentVolume: a disk that there is, and whose it is.

use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::{Value, json};

use super::{
    age_column, name_column,
    persistent_volume_claim::{short_access_modes, volume_mode},
    text,
};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind},
    quantity,
};

/// Keeps a volume while a claim has it.
pub const PROTECTION_FINALIZER: &str = "kubernetes.io/pv-protection";
/// Keeps a volume until its bytes are gone.
pub const DATA_FINALIZER: &str = "sheaf.io/volume-data";
/// `namespace/name` of the claim a volume was made for, where metadata alone is looked at.
pub const CLAIM_ANNOTATION: &str = "sheaf.io/claim";
/// In `spec.csi.volumeAttributes`: what keeps the bytes.
pub const BACKEND_ATTRIBUTE: &str = "sheaf.io/backend";
/// The backend that keeps them in files on one node.
pub const LOCAL_BACKEND: &str = "local";
/// In `spec.csi.volumeAttributes`: the uid of the image it is a copy of.
pub const IMAGE_UID_ATTRIBUTE: &str = "sheaf.io/imageUid";
/// In `spec.csi.volumeAttributes`: the snapshot it is a copy of, as its node knows that snapshot.
pub const SNAPSHOT_ATTRIBUTE: &str = "sheaf.io/snapshotHandle";
/// In `spec.csi.volumeAttributes`: the `volumeHandle` of the volume it is a copy of.
pub const CLONE_ATTRIBUTE: &str = "sheaf.io/cloneOf";
/// `true` on a copy of a snapshot or a volume, written by its node once the copy is there.
pub const MADE_ANNOTATION: &str = "sheaf.io/made";
/// On a copy that can never be made, written by its node: why.
pub const FAILED_ANNOTATION: &str = "sheaf.io/failed";
/// The bytes that a volume has on its node, written by that node once it made it larger than its claim knows.
pub const GROWN_ANNOTATION: &str = "sheaf.io/grown-to";
/// On a node and in a volume's affinity: the node's name.
pub const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";
const RECLAIM_POLICIES: [&str; 2] = ["Delete", "Retain"];

pub fn kind() -> Kind {
    Kind::of_type::<PersistentVolume>("persistentvolumes")
        .cluster_scoped()
        .short(&["pv"])
        .with_status()
        .columns(vec![
            name_column(),
            Column::computed("Capacity", |volume, _| volume["spec"]["capacity"]["storage"].clone()),
            Column::computed("Access Modes", |volume, _| {
                short_access_modes(&volume["spec"]["accessModes"]).into()
            }),
            Column::computed("Reclaim Policy", |volume, _| {
                volume["spec"]["persistentVolumeReclaimPolicy"].clone()
            }),
            Column::computed("Status", |volume, _| match volume["metadata"]["deletionTimestamp"].is_null() {
                true => volume["status"]["phase"].clone(),
                false => "Terminating".into(),
            }),
            Column::computed("Claim", |volume, _| {
                let claim = &volume["spec"]["claimRef"];
                match text(&claim["name"]) {
                    "" => "".into(),
                    name => format!("{}/{name}", text(&claim["namespace"])).into(),
                }
            }),
            Column::computed("StorageClass", |volume, _| text(&volume["spec"]["storageClassName"]).into()),
            Column::computed("VolumeAttributesClass", |_, _| "<unset>".into()),
            Column::computed("Reason", |volume, _| text(&volume["status"]["reason"]).into()),
            age_column(),
            Column::computed("VolumeMode", |volume, _| volume_mode(&volume["spec"])).wide(),
        ])
        .behaving(Behaviour {
            default,
            prepare_create,
            validate,
            finalizer_on_delete: Some(PROTECTION_FINALIZER),
            ..Behaviour::PLAIN
        })
}

/// The node that a volume is on, or is to be made on; `None` while it is nowhere.
pub fn node_of(volume: &PersistentVolume) -> Option<&str> {
    let required = volume.spec.as_ref()?.node_affinity.as_ref()?.required.as_ref()?;
    let terms = required.node_selector_terms.iter();
    let mut expressions = terms.flat_map(|term| term.match_expressions.iter().flatten());
    let here = expressions.find(|one| one.key == HOSTNAME_LABEL && one.operator == "In")?;
    here.values.as_ref()?.first().map(String::as_str)
}

fn default(volume: &mut Value) {
    let Some(spec) = volume["spec"].as_object_mut() else { return };
    spec.entry("persistentVolumeReclaimPolicy").or_insert_with(|| "Retain".into());
    spec.entry("volumeMode").or_insert_with(|| "Filesystem".into());
}

fn prepare_create(volume: &mut Value) {
    volume["status"] = json!({"phase": "Pending"});
}

fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let path = FieldPath::new("spec");
    let spec = &new["spec"];
    let mut errors = Vec::new();
    if spec["accessModes"].as_array().is_none_or(Vec::is_empty) {
        errors.push(FieldError::required(&path.child("accessModes"), ""));
    }
    let size = quantity::value(text(&spec["capacity"]["storage"]));
    if size.is_none_or(|size| size <= 0) {
        errors.push(FieldError::required(&path.child("capacity"), "must be greater than zero"));
    }
    let policy = text(&spec["persistentVolumeReclaimPolicy"]);
    if !RECLAIM_POLICIES.contains(&policy) {
        let at = path.child("persistentVolumeReclaimPolicy");
        errors.push(FieldError::not_supported(&at, policy, RECLAIM_POLICIES));
    }
    // Volumes are made by Sheaf's own backends; a disk of somebody else's would never be attached.
    if spec["csi"].is_null() {
        errors.push(FieldError::required(
            &path,
            "must specify a volume type: csi is the one that Sheaf serves",
        ));
    }
    if let Some(old) = old {
        for field in ["csi", "volumeMode"] {
            if old["spec"][field] != spec[field] {
                let why = "spec.persistentvolumesource is immutable after creation";
                errors.push(FieldError::forbidden(&path.child(field), why));
            }
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume() -> Value {
        json!({"spec": {"accessModes": ["ReadWriteMany"], "capacity": {"storage": "1Gi"}, "volumeMode": "Block",
            "persistentVolumeReclaimPolicy": "Delete", "csi": {"driver": "driver.longhorn.io", "volumeHandle": "u"}}})
    }

    #[test]
    fn what_a_volume_is_stays() {
        assert_eq!(validate(&volume(), Some(&volume())), []);
        let mut other = volume();
        other["spec"]["csi"]["volumeHandle"] = json!("v");
        assert_eq!(validate(&other, Some(&volume())).len(), 1);
    }

    #[test]
    fn a_volume_nobody_could_attach_is_refused() {
        let mut foreign = volume();
        foreign["spec"].as_object_mut().unwrap().remove("csi");
        foreign["spec"]["hostPath"] = json!({"path": "/etc"});
        assert_eq!(validate(&foreign, None).len(), 1);
    }
}
