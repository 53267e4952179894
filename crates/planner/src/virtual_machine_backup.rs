//! Decides how a VirtualMachineBackup of type snapshot comes to be.
//!
//! ```text
//!            Begin               CreateSnapshot, one per disk          WriteStatus
//!   wanted ---------> noted down ----------------------------> taken --------------> ready
//! ```
//!
//! - One step per call. The caller acts, looks again, and asks again.
//! - What the machine was is noted before any disk is snapshotted, and never again.
//! - All disks are of one instant, which is the node's doing: it waits until all snapshots that belong together are there.
//!   So a snapshot that is missing after others were taken is not made: it would be of another instant.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::PersistentVolumeClaim,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time},
    jiff::Timestamp,
};
use serde_json::{Value, json};
use sheaf_resources::{
    kinds::{
        harvester_condition::set_condition,
        persistent_volume_claim::PROVISIONER_ANNOTATION,
        storage_class::PROVISIONER,
        virtual_machine::VirtualMachine,
        virtual_machine_backup::{
            BackupError, ClaimSource, IN_PROGRESS, READY, SecretBackup, VirtualMachineBackup,
            VirtualMachineBackupStatus, VirtualMachineSource, VolumeBackup, snapshot_name,
        },
        volume_snapshot::{FREEZE_ANNOTATION, TOGETHER_ANNOTATION, TOGETHER_OF_ANNOTATION, VolumeSnapshot},
    },
    quantity,
};

/// A backup and all that it depends on.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    pub backup: &'a VirtualMachineBackup,
    /// Asked of those alone that are not begun.
    pub vm: Option<&'a VirtualMachine>,
    /// Its claims that are there, by name.
    pub claims: &'a BTreeMap<String, PersistentVolumeClaim>,
    /// Which class snapshots are of, by driver.
    pub classes: &'a BTreeMap<String, String>,
    /// Those of the names that the status says, which are there.
    pub snapshots: &'a BTreeMap<String, VolumeSnapshot>,
    /// The machine's Secrets that were copied, and their copies.
    pub secrets: &'a [SecretBackup],
    pub now_secs: i64,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Rest,
    /// Write down what the machine is, and that the backup goes with it.
    Begin {
        status: Box<VirtualMachineBackupStatus>,
        owner: Box<OwnerReference>,
    },
    CreateSnapshot {
        snapshot: Value,
    },
    WriteStatus(Box<VirtualMachineBackupStatus>),
}

pub fn next_step(seen: &Seen<'_>) -> Step {
    let backup = seen.backup;
    if backup.metadata.deletion_timestamp.is_some() {
        return Step::Rest;
    }
    let status = match &backup.status {
        Some(status) if status.source.is_some() => status,
        before => {
            return match begun(seen) {
                Ok((status, owner)) => Step::Begin { status: Box::new(status), owner: Box::new(owner) },
                Err(why) => settled(seen, refused(seen, before.clone().unwrap_or_default(), why)),
            };
        }
    };
    match missing(seen, status) {
        Some(volume) => Step::CreateSnapshot { snapshot: snapshot_of(seen, status, volume) },
        None => settled(seen, mirrored(seen, status)),
    }
}

/// What is noted of a machine when it is first looked at, and that the backup goes with it.
fn begun(seen: &Seen<'_>) -> Result<(VirtualMachineBackupStatus, OwnerReference), String> {
    let name = &seen.backup.spec.source.name;
    let vm = seen.vm.ok_or_else(|| format!("the virtual machine {name} does not exist"))?;
    if vm.metadata.deletion_timestamp.is_some() {
        return Err(format!("the virtual machine {name} is being deleted"));
    }
    let mut status = VirtualMachineBackupStatus {
        source_uid: vm.metadata.uid.clone().unwrap_or_default(),
        source: Some(VirtualMachineSource { metadata: remembered(&vm.metadata), spec: vm.spec.clone() }),
        secret_backups: seen.secrets.to_vec(),
        ready_to_use: Some(false),
        ..VirtualMachineBackupStatus::default()
    };
    let volumes = vm.spec.template.iter().flat_map(|template| &template.spec.volumes);
    for volume in volumes {
        let Some(source) = &volume.persistent_volume_claim else { continue };
        let claim = seen.claims.get(&source.claim_name);
        let claim = claim.ok_or_else(|| format!("the claim {} does not exist", source.claim_name))?;
        let driver = driver_of(claim);
        let class = seen.classes.get(driver).ok_or_else(|| {
            format!("the setting csi-driver-config names no volumeSnapshotClassName for {driver}")
        })?;
        status.snapshot_class_names.insert(driver.to_owned(), class.clone());
        let backup = seen.backup.metadata.name.as_deref().unwrap_or_default();
        status.volume_backups.push(VolumeBackup {
            name: snapshot_name(backup, &source.claim_name),
            volume_name: volume.name.clone(),
            csi_driver_name: driver.to_owned(),
            persistent_volume_claim: ClaimSource {
                metadata: remembered(&claim.metadata),
                spec: claim.spec.clone().unwrap_or_default(),
            },
            ready_to_use: Some(false),
            ..VolumeBackup::default()
        });
    }
    tell(&mut status, seen.now_secs);
    let owner = OwnerReference {
        api_version: "kubevirt.io/v1".into(),
        kind: "VirtualMachine".into(),
        name: name.clone(),
        uid: status.source_uid.clone(),
        controller: Some(true),
        block_owner_deletion: Some(false),
    };
    Ok((status, owner))
}

/// The driver that keeps a claim's volume.
pub fn driver_of(claim: &PersistentVolumeClaim) -> &str {
    let annotations = claim.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(PROVISIONER_ANNOTATION)).map_or(PROVISIONER, String::as_str)
}

/// What of an object's metadata is worth remembering.
fn remembered(metadata: &ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        name: metadata.name.clone(),
        namespace: metadata.namespace.clone(),
        labels: metadata.labels.clone(),
        annotations: metadata.annotations.clone(),
        ..ObjectMeta::default()
    }
}

/// The first disk without a snapshot that may still have one.
fn missing<'a>(seen: &Seen<'_>, status: &'a VirtualMachineBackupStatus) -> Option<&'a VolumeBackup> {
    let is_taken = |snapshot: &VolumeSnapshot| {
        snapshot.is_ready() || snapshot.status.as_ref().is_some_and(|status| status.creation_time.is_some())
    };
    let none_is_taken = status.volume_backups.iter().all(|volume| volume.creation_time.is_none())
        && !seen.snapshots.values().any(is_taken);
    let mut without =
        status.volume_backups.iter().filter(|volume| !seen.snapshots.contains_key(&volume.name));
    without.next().filter(|_| none_is_taken)
}

fn snapshot_of(seen: &Seen<'_>, status: &VirtualMachineBackupStatus, volume: &VolumeBackup) -> Value {
    let metadata = &seen.backup.metadata;
    let of = |metadata: &ObjectMeta| {
        metadata.annotations.as_ref().and_then(|all| all.get(FREEZE_ANNOTATION)).cloned()
    };
    let mut annotations = json!({
        TOGETHER_ANNOTATION: metadata.uid, TOGETHER_OF_ANNOTATION: status.volume_backups.len().to_string(),
    });
    let machine = status.source.as_ref().map(|source| &source.metadata);
    if let Some(freeze) = of(metadata).or_else(|| machine.and_then(of)) {
        annotations[FREEZE_ANNOTATION] = freeze.into();
    }
    json!({
        "metadata": {
            "name": volume.name, "annotations": annotations,
            "ownerReferences": [{
                "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineBackup", "name": metadata.name,
                "uid": metadata.uid, "controller": true, "blockOwnerDeletion": false,
            }],
        },
        "spec": {
            "source": {"persistentVolumeClaimName": volume.persistent_volume_claim.metadata.name},
            "volumeSnapshotClassName": status.snapshot_class_names.get(&volume.csi_driver_name),
        },
    })
}

/// What the status says once every disk has its snapshot, or cannot have it any more.
fn mirrored(seen: &Seen<'_>, before: &VirtualMachineBackupStatus) -> VirtualMachineBackupStatus {
    let mut status = before.clone();
    for volume in &mut status.volume_backups {
        let owned = seen.snapshots.get(&volume.name).filter(|snapshot| is_of(snapshot, seen.backup));
        let Some(snapshot) = owned else {
            let name = &volume.name;
            let why = match seen.snapshots.get(name) {
                Some(_) => format!(
                    "the VolumeSnapshot {name} is not of this backup: remove it, and take another backup"
                ),
                None => format!("the VolumeSnapshot {name} is gone"),
            };
            volume.ready_to_use = Some(false);
            volume.error = error(volume.error.as_ref(), why, seen.now_secs);
            continue;
        };
        let of = snapshot.status.clone().unwrap_or_default();
        volume.creation_time = of.creation_time.clone();
        volume.ready_to_use = Some(of.ready_to_use == Some(true));
        volume.progress = if of.ready_to_use == Some(true) { 100 } else { 0 };
        volume.volume_size = of.restore_size.and_then(|size| quantity::value(&size.0)).unwrap_or(0);
        let why = of.error.and_then(|error| error.message);
        volume.error = why.and_then(|why| error(volume.error.as_ref(), why, seen.now_secs));
    }
    let volumes = &status.volume_backups;
    let is_ready = volumes.iter().all(|volume| volume.ready_to_use == Some(true));
    status.error = volumes.iter().find_map(|volume| volume.error.clone());
    status.ready_to_use = Some(is_ready);
    let count = i64::try_from(volumes.len().max(1)).unwrap_or(1);
    status.progress =
        if is_ready { 100 } else { volumes.iter().map(|volume| volume.progress).sum::<i64>() / count };
    if is_ready && status.creation_time.is_none() {
        // One that has no disks is of the moment at which it was noted down.
        let taken = volumes.iter().find_map(|volume| volume.creation_time.clone());
        status.creation_time = taken.or_else(|| time(seen.now_secs));
    }
    tell(&mut status, seen.now_secs);
    status
}

/// Whether a snapshot is this very backup's.
fn is_of(snapshot: &VolumeSnapshot, backup: &VirtualMachineBackup) -> bool {
    let mut owners = snapshot.metadata.owner_references.iter().flatten();
    owners.any(|owner| Some(&owner.uid) == backup.metadata.uid.as_ref())
}

fn refused(
    seen: &Seen<'_>,
    mut status: VirtualMachineBackupStatus,
    why: String,
) -> VirtualMachineBackupStatus {
    status.error = error(status.error.as_ref(), why, seen.now_secs);
    status.ready_to_use = Some(false);
    tell(&mut status, seen.now_secs);
    status
}

/// Says in conditions how it stands.
fn tell(status: &mut VirtualMachineBackupStatus, now_secs: i64) {
    let now = Timestamp::from_second(now_secs).map(|now| now.to_string()).unwrap_or_default();
    let why = status.error.as_ref().and_then(|error| error.message.clone());
    let (ready, progressing, words) = match (status.ready_to_use == Some(true), why) {
        (true, _) => ("True", "False", ("", "Operation complete".to_owned())),
        (false, Some(why)) => ("False", "False", ("Error", why)),
        (false, None) => ("False", "True", ("", "Not Ready".to_owned())),
    };
    for (condition, truth) in [(READY, ready), (IN_PROGRESS, progressing)] {
        set_condition(&mut status.conditions, condition, truth, (words.0, &words.1), &now);
    }
}

/// The time moves only with what it is the time of.
fn error(before: Option<&BackupError>, why: String, now_secs: i64) -> Option<BackupError> {
    let same = before.filter(|before| before.message.as_ref() == Some(&why));
    Some(same.cloned().unwrap_or_else(|| BackupError { time: time(now_secs), message: Some(why) }))
}

fn settled(seen: &Seen<'_>, status: VirtualMachineBackupStatus) -> Step {
    if seen.backup.status.as_ref() == Some(&status) {
        Step::Rest
    } else {
        Step::WriteStatus(Box::new(status))
    }
}

fn time(seconds: i64) -> Option<Time> {
    Timestamp::from_second(seconds).ok().map(Time)
}

#[cfg(test)]
mod tests;
