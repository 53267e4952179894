//! harvesterhci.io/v1beta1 VirtualMachineRestore: a machine becomes again what it was, or another one becomes that.

use k8s_openapi::{api::core::v1::TypedLocalObjectReference, apimachinery::pkg::apis::meta::v1::Time};
use serde_json::Value;

use super::{
    age_column,
    harvester_condition::HarvesterCondition,
    name_column, text,
    virtual_machine_backup::{ClaimSource, validate_machine},
};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind},
    names,
    wire::{root_type, wire_type},
};

/// On machines and claims: the restore that made them what they are.
pub const NAME_ANNOTATION: &str = "restore.harvesterhci.io/name";
/// On a machine: the restore that last changed it, by name and uid.
pub const LAST_RESTORE_ANNOTATION: &str = "restore.harvesterhci.io/last-restore-uid";
/// The disks that a machine had are left when it is restored.
pub const RETAIN: &str = "retain";
pub const DELETE: &str = "delete";

root_type! {
    /// A virtual machine becomes what it was.
    VirtualMachineRestore = "io.harvesterhci.v1beta1.VirtualMachineRestore",
    "harvesterhci.io" / "v1beta1" "virtualmachinerestores" NamespaceResourceScope {
        /// What is wanted.
        spec: VirtualMachineRestoreSpec,
        /// How far it is.
        status: Option<VirtualMachineRestoreStatus>,
    }
}

wire_type! {
    /// From which backup, to which machine.
    VirtualMachineRestoreSpec = "io.harvesterhci.v1beta1.VirtualMachineRestoreSpec" {
        /// A VirtualMachine of the same namespace.
        target: TypedLocalObjectReference,
        /// The backup.
        virtual_machine_backup_name: String,
        /// The backup's namespace. A snapshot is restored in its own.
        virtual_machine_backup_namespace: String,
        /// Whether the target is made.
        #[serde(rename = "newVM")]
        new_vm: bool,
        /// `retain` leaves the disks that the target had; `delete` removes them.
        deletion_policy: String,
        /// Whether a new machine has the hardware addresses of the old one.
        keep_mac_address: bool,
    }
}

wire_type! {
    /// How far a restore is.
    VirtualMachineRestoreStatus = "io.harvesterhci.v1beta1.VirtualMachineRestoreStatus" {
        /// The disks that are made.
        restores: Vec<VolumeRestore>,
        /// When it was done.
        restore_time: Option<Time>,
        /// Claims that went.
        deleted_volumes: Vec<String>,
        /// Whether it is done.
        complete: Option<bool>,
        /// Ready and InProgress.
        conditions: Vec<HarvesterCondition>,
        /// The machine.
        #[serde(rename = "targetUID")]
        target_uid: Option<String>,
        /// Hundredths that are done.
        progress: i64,
    }
}

wire_type! {
    /// A disk that is made.
    VolumeRestore = "io.harvesterhci.v1beta1.VolumeRestore" {
        /// The name of the volume in the machine.
        volume_name: String,
        /// Its claim.
        persistent_volume_claim_spec: ClaimSource,
        /// The VolumeSnapshot it is made of.
        volume_backup_name: String,
        /// Hundredths that are done.
        progress: i64,
        /// Bytes of the disk.
        volume_size: i64,
    }
}

impl VirtualMachineRestore {
    pub fn is_complete(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.complete == Some(true))
    }

    /// What the machine says that it made: its name and uid.
    pub fn id(&self) -> String {
        let metadata = &self.metadata;
        let (name, uid) = (metadata.name.as_deref(), metadata.uid.as_deref());
        format!("{}-{}", name.unwrap_or_default(), uid.unwrap_or_default())
    }
}

/// Whether a restore is not done yet, as its object says.
pub fn is_in_progress(restore: &Value) -> bool {
    restore["status"]["complete"] != true
}

pub fn kind() -> Kind {
    Kind::of_type::<VirtualMachineRestore>("virtualmachinerestores")
        .short(&["vmrestore", "vmrestores"])
        .columns(vec![
            name_column(),
            Column::computed("TARGET_KIND", |restore, _| restore["spec"]["target"]["kind"].clone()),
            Column::computed("TARGET_NAME", |restore, _| restore["spec"]["target"]["name"].clone()),
            Column::computed("COMPLETE", |restore, _| restore["status"]["complete"].clone()),
            age_column(),
            Column::computed("ERROR", |restore, _| error_of(restore).into()),
        ])
        .behaving(Behaviour { validate, generation: true, ..Behaviour::PLAIN })
}

/// What is in the way of a restore; empty when nothing is.
fn error_of(restore: &Value) -> &str {
    let conditions = restore["status"]["conditions"].as_array().into_iter().flatten();
    let mut failed = conditions.filter(|condition| condition["reason"] == "Error");
    failed.next().map_or("", |condition| text(&condition["message"]))
}

fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let path = FieldPath::new("spec");
    if let Some(old) = old {
        let same = old["spec"] == new["spec"];
        let why = "VirtualMachineRestore spec is immutable";
        return if same { Vec::new() } else { vec![FieldError::forbidden(&path, why)] };
    }
    let mut errors = validate_machine(&path.child("target"), &new["spec"]["target"]);
    let target = text(&new["spec"]["target"]["name"]);
    for why in names::dns_label_problems(target).into_iter().filter(|_| !target.is_empty()) {
        let why = format!("Target VM name is invalid, err: {why}");
        errors.push(FieldError::invalid(&path.child("target").child("name"), target, why));
    }
    for field in ["virtualMachineBackupName", "virtualMachineBackupNamespace"] {
        if text(&new["spec"][field]).is_empty() {
            errors.push(FieldError::required(&path.child(field), ""));
        }
    }
    let policy = text(&new["spec"]["deletionPolicy"]);
    if !["", DELETE, RETAIN].contains(&policy) {
        errors.push(FieldError::not_supported(&path.child("deletionPolicy"), policy, [DELETE, RETAIN]));
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn restore() -> Value {
        json!({"spec": {"target": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "vm"},
            "virtualMachineBackupName": "b", "virtualMachineBackupNamespace": "default", "newVM": true}})
    }

    #[test]
    fn a_restore_says_of_what_and_to_what_and_stays_so() {
        assert_eq!(validate(&restore(), None), []);
        assert_eq!(validate(&json!({"spec": {}}), None).len(), 4);
        for (field, value) in [
            ("target", json!({"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "No Name"})),
            ("deletionPolicy", json!("shred")),
            ("virtualMachineBackupName", json!("")),
        ] {
            let mut odd = restore();
            odd["spec"][field] = value;
            assert!(!validate(&odd, None).is_empty(), "{field}");
            let said = validate(&odd, Some(&restore()))[0].to_string();
            assert!(said.ends_with("VirtualMachineRestore spec is immutable"), "{said}");
        }
    }

    #[test]
    fn people_see_what_is_in_the_way() {
        let mut failed = restore();
        failed["status"] =
            json!({"conditions": [{"type": "Ready", "reason": "Error", "message": "the backup is gone"}]});
        assert_eq!(error_of(&failed), "the backup is gone");
        assert_eq!(error_of(&restore()), "");
    }
}
