//! harvesterhci.io/v1beta1 VirtualMachineBackup: a whole machine as it was at one moment.
//!
//! Of type `snapshot` it stays in the cluster: one VolumeSnapshot per disk, all of one instant, and what the machine was. Type
//! `backup` goes to a backup target and is refused until there is one.
//!
//! Harvester writes the Secrets of a machine into the status, where everybody reads them who may read backups. Here the
//! status has their names alone; the data is in Secrets that belong to the backup.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaimSpec, TypedLocalObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use serde_json::{Value, json};

use super::{
    age_column, harvester_condition::HarvesterCondition, name_column, text,
    virtual_machine::VirtualMachineSpec,
};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind},
    names::NameRule,
    wire::{root_type, wire_type},
};

/// It can be restored.
pub const READY: &str = "Ready";
/// It is being taken.
pub const IN_PROGRESS: &str = "InProgress";
pub const TYPE_SNAPSHOT: &str = "snapshot";
pub const TYPE_BACKUP: &str = "backup";

root_type! {
    /// A whole virtual machine as it was at one moment.
    VirtualMachineBackup = "io.harvesterhci.v1beta1.VirtualMachineBackup",
    "harvesterhci.io" / "v1beta1" "virtualmachinebackups" NamespaceResourceScope {
        /// What is wanted.
        spec: VirtualMachineBackupSpec,
        /// How far it is.
        status: Option<VirtualMachineBackupStatus>,
    }
}

wire_type! {
    /// Of which machine, and where to.
    VirtualMachineBackupSpec = "io.harvesterhci.v1beta1.VirtualMachineBackupSpec" {
        /// A VirtualMachine of the same namespace.
        source: TypedLocalObjectReference,
        /// `snapshot` stays in the cluster; `backup`, which is what is meant when nothing is said, goes to a backup target.
        #[serde(rename = "type")]
        backup_type: String,
    }
}

wire_type! {
    /// How far a backup is.
    VirtualMachineBackupStatus = "io.harvesterhci.v1beta1.VirtualMachineBackupStatus" {
        /// The machine it is of.
        #[serde(rename = "sourceUID")]
        source_uid: String,
        /// The moment that it is of.
        creation_time: Option<Time>,
        /// Which class the snapshots are of, by driver.
        #[serde(rename = "csiDriverVolumeSnapshotClassNames")]
        snapshot_class_names: BTreeMap<String, String>,
        /// The machine as it was.
        source: Option<VirtualMachineSource>,
        /// Its disks.
        volume_backups: Vec<VolumeBackup>,
        /// Its Secrets.
        secret_backups: Vec<SecretBackup>,
        /// Hundredths that are done.
        progress: i64,
        /// Whether it can be restored.
        ready_to_use: Option<bool>,
        /// What was last in the way.
        error: Option<BackupError>,
        /// Ready and InProgress.
        conditions: Vec<HarvesterCondition>,
    }
}

wire_type! {
    /// A machine as it was.
    VirtualMachineSource = "io.harvesterhci.v1beta1.VirtualMachineSourceSpec" {
        /// Its name, labels and annotations.
        metadata: ObjectMeta,
        /// What was wanted of it.
        spec: VirtualMachineSpec,
    }
}

wire_type! {
    /// A disk of a machine as it was.
    VolumeBackup = "io.harvesterhci.v1beta1.VolumeBackup" {
        /// Its VolumeSnapshot.
        name: String,
        /// The name of the volume in the machine.
        volume_name: String,
        /// Who keeps it.
        #[serde(rename = "csiDriverName")]
        csi_driver_name: String,
        /// The moment that it is of.
        creation_time: Option<Time>,
        /// Its claim as it was.
        persistent_volume_claim: ClaimSource,
        /// Bytes of the disk.
        volume_size: i64,
        /// Hundredths that are done.
        progress: i64,
        /// Whether a disk can be made of it.
        ready_to_use: Option<bool>,
        /// What was last in the way.
        error: Option<BackupError>,
    }
}

wire_type! {
    /// A Secret of a machine as it was.
    SecretBackup = "io.harvesterhci.v1beta1.SecretBackup" {
        /// The name the machine knows it by.
        name: String,
        /// The Secret, of this backup, that has the data.
        secret_name: String,
    }
}

wire_type! {
    /// A claim as it was.
    ClaimSource = "io.harvesterhci.v1beta1.PersistentVolumeClaimSourceSpec" {
        /// Its name, labels and annotations.
        metadata: ObjectMeta,
        /// What it asked for.
        spec: PersistentVolumeClaimSpec,
    }
}

wire_type! {
    /// What was in the way.
    BackupError = "io.harvesterhci.v1beta1.Error" {
        /// When it was.
        time: Option<Time>,
        /// What it was.
        message: Option<String>,
    }
}

impl VirtualMachineBackup {
    pub fn is_ready(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.ready_to_use == Some(true))
    }
}

/// Whether a backup is still being taken, as its object says.
pub fn is_in_progress(backup: &Value) -> bool {
    backup["status"]["error"].is_null() && backup["status"]["readyToUse"] != true
}

/// The name of the VolumeSnapshot of a claim in a backup.
pub fn snapshot_name(backup: &str, claim: &str) -> String {
    format!("{backup}-volume-{claim}")
}

pub fn kind() -> Kind {
    Kind::of_type::<VirtualMachineBackup>("virtualmachinebackups")
        .short(&["vmbackup", "vmbackups"])
        .columns(vec![
            name_column(),
            Column::computed("SOURCE_KIND", |backup, _| backup["spec"]["source"]["kind"].clone()),
            Column::computed("SOURCE_NAME", |backup, _| backup["spec"]["source"]["name"].clone()),
            Column::computed("TYPE", |backup, _| backup["spec"]["type"].clone()),
            Column::computed("READY_TO_USE", |backup, _| backup["status"]["readyToUse"].clone()),
            age_column(),
            Column::computed("ERROR", |backup, _| backup["status"]["error"]["message"].clone()),
        ])
        .behaving(Behaviour {
            default,
            validate,
            // Its name begins those of snapshots.
            name_rule: NameRule::DnsSubdomain,
            generation: true,
            ..Behaviour::PLAIN
        })
}

fn default(backup: &mut Value) {
    if backup["spec"].is_object() && text(&backup["spec"]["type"]).is_empty() {
        backup["spec"]["type"] = json!(TYPE_BACKUP);
    }
}

fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let path = FieldPath::new("spec");
    if let Some(old) = old {
        let same = old["spec"] == new["spec"];
        let why = "what a backup is of does not change";
        return if same { Vec::new() } else { vec![FieldError::forbidden(&path, why)] };
    }
    let mut errors = validate_machine(&path.child("source"), &new["spec"]["source"]);
    match text(&new["spec"]["type"]) {
        TYPE_SNAPSHOT => {}
        TYPE_BACKUP => {
            let why =
                "backup target is not set: take a snapshot, which stays in the cluster, with type snapshot";
            errors.push(FieldError::invalid(&path.child("type"), TYPE_BACKUP, why));
        }
        other => {
            let known = [TYPE_BACKUP, TYPE_SNAPSHOT];
            errors.push(FieldError::not_supported(&path.child("type"), other, known));
        }
    }
    errors
}

/// A reference to a VirtualMachine by name.
pub(super) fn validate_machine(at: &FieldPath, machine: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (group, kind) = (text(&machine["apiGroup"]), text(&machine["kind"]));
    if (group, kind) != ("kubevirt.io", "VirtualMachine") {
        let why = "must be a VirtualMachine of kubevirt.io";
        errors.push(FieldError::invalid(&at.child("kind"), format!("{kind}.{group}"), why));
    }
    if text(&machine["name"]).is_empty() {
        errors.push(FieldError::required(&at.child("name"), "the name of the VM is empty"));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backup(sort: &str) -> Value {
        json!({"spec": {"type": sort, "source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "vm"}}})
    }

    #[test]
    fn a_backup_is_of_a_machine_and_stays_so() {
        assert_eq!(validate(&backup(TYPE_SNAPSHOT), None), []);
        let mut odd = backup(TYPE_SNAPSHOT);
        odd["spec"]["source"] = json!({"kind": "Pod", "name": ""});
        assert_eq!(validate(&odd, None).len(), 2);
        assert_eq!(validate(&odd, Some(&backup(TYPE_SNAPSHOT))).len(), 1);
        assert_eq!(
            validate(&odd, Some(&odd)),
            [],
            "what was let in is not held against who tells its status"
        );
    }

    #[test]
    fn a_backup_to_nowhere_is_refused_with_what_to_do_instead() {
        let mut silent = backup("");
        default(&mut silent);
        let said = validate(&silent, None)[0].to_string();
        assert!(said.contains("backup target is not set") && said.contains("type snapshot"), "{said}");
        assert_eq!(validate(&backup("tape"), None).len(), 1);
    }

    #[test]
    fn what_failed_or_is_done_is_not_in_progress() {
        assert!(is_in_progress(&json!({})));
        assert!(!is_in_progress(&json!({"status": {"readyToUse": true}})));
        assert!(!is_in_progress(&json!({"status": {"error": {"message": "x"}}})));
    }
}
