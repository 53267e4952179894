//! Decides how a machine becomes again what it was, or how another one becomes that.
//!
//! ```text
//!           Begin          CreateClaim, one per disk           KeepClaim          CreateMachine | ReplaceMachine   Finish
//!   wanted -------> begun ---------------------------> bound -----------> theirs ------------------------------> + ------> done
//! ```
//!
//! - One step per call. The caller acts, looks again, and asks again.
//! - Until the machine has them, the new claims belong to the restore and go with it; from then on they are nobody's,
//!   as claims of machines are.
//! - The machine is changed at the end, all at once, and only while it is off: whatever happens before leaves it as it was.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, TypedLocalObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time},
    jiff::Timestamp,
};
use sheaf_resources::kinds::{
    harvester_condition::set_condition,
    persistent_volume_claim::{PROVISIONER_ANNOTATION, requested_by},
    virtual_machine::{VirtualMachine, claim_templates},
    virtual_machine_backup::{
        ClaimSource, IN_PROGRESS, READY, SecretBackup, VirtualMachineBackup, VirtualMachineBackupStatus,
        VirtualMachineSource, VolumeBackup,
    },
    virtual_machine_restore::{
        LAST_RESTORE_ANNOTATION, NAME_ANNOTATION, VirtualMachineRestore, VirtualMachineRestoreStatus,
        VolumeRestore,
    },
    volume_snapshot,
};

use crate::virtual_machine::copy::{Original, asking, copy_of, secret_name, with_claims};

/// Annotations of claims that are about the volume they had.
const OF_THE_OLD_VOLUME: [&str; 3] =
    ["pv.kubernetes.io", "volume.beta.kubernetes.io", PROVISIONER_ANNOTATION];
/// How far it is when all disks are there.
const DISKS_ARE_THERE: i64 = 90;

/// A restore and all that it depends on.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    pub restore: &'a VirtualMachineRestore,
    pub backup: Option<&'a VirtualMachineBackup>,
    /// The target.
    pub vm: Option<&'a VirtualMachine>,
    /// The target has an instance that is not over.
    pub is_running: bool,
    /// Those of the names that the status says, which are there.
    pub claims: &'a BTreeMap<String, PersistentVolumeClaim>,
    pub now_secs: i64,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Rest,
    WriteStatus(Box<VirtualMachineRestoreStatus>),
    CreateClaim(Box<PersistentVolumeClaim>),
    /// The claim is not the restore's any more.
    KeepClaim {
        name: String,
    },
    CreateMachine(Box<VirtualMachine>),
    /// Write spec and annotations of the target.
    ReplaceMachine(Box<VirtualMachine>),
    /// Make the machine's Secrets that are not there (from, to), then write the status: done.
    Finish {
        secrets: Vec<(String, String)>,
        status: Box<VirtualMachineRestoreStatus>,
        owner: Box<OwnerReference>,
    },
}

pub fn next_step(seen: &Seen<'_>) -> Step {
    if seen.restore.metadata.deletion_timestamp.is_some() || seen.restore.is_complete() {
        return Step::Rest;
    }
    match attempt(seen) {
        Ok(step) => step,
        Err(Hindrance { why, is_error }) => {
            let status = seen.restore.status.clone().unwrap_or_default();
            settled(seen, told(seen, status, &why, is_error))
        }
    }
}

/// Why it goes no further.
struct Hindrance {
    why: String,
    /// It is not only a matter of time.
    is_error: bool,
}

fn error<T>(why: String) -> Result<T, Hindrance> {
    Err(Hindrance { why, is_error: true })
}

fn attempt(seen: &Seen<'_>) -> Result<Step, Hindrance> {
    let spec = &seen.restore.spec;
    let name = &spec.virtual_machine_backup_name;
    let Some(backup) = seen.backup else { return error(format!("the backup {name} does not exist")) };
    let status = backup.status.as_ref().filter(|_| backup.is_ready());
    let Some(was) = status.and_then(|status| Some((status, status.source.as_ref()?))) else {
        return error(format!("the backup {name} is not ready"));
    };
    let Some(before) = seen.restore.status.as_ref().filter(|status| status.complete.is_some()) else {
        let begun = told(seen, begun(seen, was.0), "Initializing VirtualMachineRestore", false);
        return Ok(Step::WriteStatus(Box::new(begun)));
    };
    let target = spec.target.name.clone();
    let is_done = |vm: &&VirtualMachine| vm.annotation(LAST_RESTORE_ANNOTATION) == seen.restore.id();
    if let Some(vm) = seen.vm.filter(is_done) {
        return Ok(finish(seen, before, was.0, vm));
    }
    // Before anything is made for a machine that it cannot become.
    match (spec.new_vm, seen.vm) {
        (true, Some(_)) => return error(format!("VM {target} is already exists")),
        (false, None) => return error(format!("can't replace nonexistent vm {target}")),
        (true, None) | (false, Some(_)) => {}
    }
    let mut waits = None;
    for volume in &before.restores {
        let claim = volume.persistent_volume_claim_spec.metadata.name.clone().unwrap_or_default();
        match seen.claims.get(&claim) {
            None => return Ok(Step::CreateClaim(Box::new(claim_of(seen, was.0, volume)))),
            Some(found) if !is_of(found, seen.restore) => {
                return error(format!("the claim {claim} is not of this restore: remove it"));
            }
            Some(found) if !is_bound(found) => waits = Some(claim),
            Some(_) => {}
        }
    }
    if let Some(claim) = waits {
        let why = format!("Waiting for new PVCs: {claim} is not bound yet; its events say more");
        return Err(Hindrance { why, is_error: false });
    }
    if seen.is_running {
        let why = format!("Waiting for the VM {target} to be stopped");
        return Err(Hindrance { why, is_error: false });
    }
    let is_owned = |claim: &&PersistentVolumeClaim| {
        let mut owners = claim.metadata.owner_references.iter().flatten();
        owners.any(|owner| Some(&owner.uid) == seen.restore.metadata.uid.as_ref())
    };
    let owned = seen.claims.values().find(is_owned);
    if let Some(claim) = owned {
        return Ok(Step::KeepClaim { name: claim.metadata.name.clone().unwrap_or_default() });
    }
    Ok(match seen.vm {
        Some(vm) => Step::ReplaceMachine(Box::new(replaced(seen, vm, before, was.1))),
        None => Step::CreateMachine(Box::new(made(seen, before, was.1))),
    })
}

fn begun(seen: &Seen<'_>, backup: &VirtualMachineBackupStatus) -> VirtualMachineRestoreStatus {
    let restores = backup.volume_backups.iter().map(|volume| VolumeRestore {
        volume_name: volume.volume_name.clone(),
        persistent_volume_claim_spec: ClaimSource {
            metadata: ObjectMeta {
                name: Some(claim_name(seen.restore, &volume.volume_name)),
                namespace: seen.restore.metadata.namespace.clone(),
                ..ObjectMeta::default()
            },
            spec: volume.persistent_volume_claim.spec.clone(),
        },
        volume_backup_name: volume.name.clone(),
        progress: 0,
        volume_size: volume.volume_size,
    });
    VirtualMachineRestoreStatus {
        restores: restores.collect(),
        complete: Some(false),
        ..VirtualMachineRestoreStatus::default()
    }
}

/// The name of the claim that a disk is restored to.
fn claim_name(restore: &VirtualMachineRestore, volume: &str) -> String {
    let uid = restore.metadata.uid.as_deref().unwrap_or_default();
    format!("restore-{}-{uid}-{volume}", restore.spec.virtual_machine_backup_name)
}

fn claim_of(
    seen: &Seen<'_>,
    backup: &VirtualMachineBackupStatus,
    volume: &VolumeRestore,
) -> PersistentVolumeClaim {
    let nothing = VolumeBackup::default();
    let mut of = backup.volume_backups.iter().filter(|one| one.name == volume.volume_backup_name);
    let of = of.next().unwrap_or(&nothing);
    let was = &of.persistent_volume_claim;
    let metadata = &seen.restore.metadata;
    let mut annotations = was.metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|key, _| !OF_THE_OLD_VOLUME.iter().any(|prefix| key.starts_with(prefix)));
    annotations.insert(NAME_ANNOTATION.into(), metadata.name.clone().unwrap_or_default());
    let bytes = requested_by(&was.spec).unwrap_or(0).max(of.volume_size);
    let mut spec = asking(&was.spec, bytes);
    spec.data_source = Some(TypedLocalObjectReference {
        api_group: Some(volume_snapshot::GROUP.into()),
        kind: "VolumeSnapshot".into(),
        name: of.name.clone(),
    });
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: volume.persistent_volume_claim_spec.metadata.name.clone(),
            namespace: metadata.namespace.clone(),
            labels: was.metadata.labels.clone(),
            annotations: Some(annotations),
            owner_references: Some(vec![OwnerReference {
                api_version: "harvesterhci.io/v1beta1".into(),
                kind: "VirtualMachineRestore".into(),
                name: metadata.name.clone().unwrap_or_default(),
                uid: metadata.uid.clone().unwrap_or_default(),
                controller: Some(true),
                block_owner_deletion: Some(false),
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    }
}

/// Whether a claim was made by this very restore: its name has the uid in it, and it says so.
fn is_of(claim: &PersistentVolumeClaim, restore: &VirtualMachineRestore) -> bool {
    let said = claim.metadata.annotations.as_ref().and_then(|all| all.get(NAME_ANNOTATION));
    said == restore.metadata.name.as_ref() && claim.metadata.deletion_timestamp.is_none()
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
}

fn new_claims(status: &VirtualMachineRestoreStatus) -> BTreeMap<String, String> {
    let claims = status.restores.iter().map(|volume| {
        let claim = volume.persistent_volume_claim_spec.metadata.name.clone().unwrap_or_default();
        (volume.volume_name.clone(), claim)
    });
    claims.collect()
}

/// The machine that is made.
fn made(seen: &Seen<'_>, status: &VirtualMachineRestoreStatus, was: &VirtualMachineSource) -> VirtualMachine {
    let restore = seen.restore;
    let namespace = restore.metadata.namespace.as_deref().unwrap_or_default();
    let original = Original { metadata: &was.metadata, spec: &was.spec };
    let place = (namespace, restore.spec.target.name.as_str());
    let mut vm = copy_of(original, place, &new_claims(status), restore.spec.keep_mac_address);
    vm.metadata.annotations.get_or_insert_default().extend(marks(restore));
    vm
}

/// The machine as it becomes: what was wanted of it then, with the new disks.
fn replaced(
    seen: &Seen<'_>,
    vm: &VirtualMachine,
    status: &VirtualMachineRestoreStatus,
    was: &VirtualMachineSource,
) -> VirtualMachine {
    let mut vm = vm.clone();
    vm.spec = with_claims(&was.spec, &new_claims(status));
    let annotations = vm.metadata.annotations.get_or_insert_default();
    // They would be made again beside the new ones.
    annotations.remove(claim_templates::ANNOTATION);
    annotations.extend(marks(seen.restore));
    vm
}

fn marks(restore: &VirtualMachineRestore) -> [(String, String); 2] {
    let name = restore.metadata.name.clone().unwrap_or_default();
    [(LAST_RESTORE_ANNOTATION.to_owned(), restore.id()), (NAME_ANNOTATION.to_owned(), name)]
}

fn finish(
    seen: &Seen<'_>,
    before: &VirtualMachineRestoreStatus,
    backup: &VirtualMachineBackupStatus,
    vm: &VirtualMachine,
) -> Step {
    let target = &seen.restore.spec.target.name;
    let secrets = backup.secret_backups.iter().map(|SecretBackup { name, secret_name: kept }| {
        let to = if seen.restore.spec.new_vm { secret_name(target, name) } else { name.clone() };
        (kept.clone(), to)
    });
    let mut status = before.clone();
    status.restores.iter_mut().for_each(|volume| volume.progress = 100);
    status.complete = Some(true);
    status.restore_time = Timestamp::from_second(seen.now_secs).ok().map(Time);
    status.target_uid = vm.metadata.uid.clone();
    let status = told(seen, status, "Operation complete", false);
    let owner = OwnerReference {
        api_version: "kubevirt.io/v1".into(),
        kind: "VirtualMachine".into(),
        name: target.clone(),
        uid: vm.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(false),
    };
    Step::Finish { secrets: secrets.collect(), status: Box::new(status), owner: Box::new(owner) }
}

/// The status with this said of it. A target that is known by its uid is done.
fn told(
    seen: &Seen<'_>,
    mut status: VirtualMachineRestoreStatus,
    why: &str,
    is_error: bool,
) -> VirtualMachineRestoreStatus {
    let now = Timestamp::from_second(seen.now_secs).map(|now| now.to_string()).unwrap_or_default();
    let is_done = status.complete == Some(true);
    let bound = |volume: &VolumeRestore| {
        let claim = volume.persistent_volume_claim_spec.metadata.name.clone().unwrap_or_default();
        seen.claims.get(&claim).is_some_and(is_bound)
    };
    let count = i64::try_from(status.restores.len()).unwrap_or(0);
    let there = status.restores.iter().filter(|volume| bound(volume)).count();
    status.progress = match (is_done, count) {
        (true, _) => 100,
        (false, 0) => 0,
        (false, count) => DISKS_ARE_THERE * i64::try_from(there).unwrap_or(0) / count,
    };
    let reason = if is_error { "Error" } else { "" };
    let truth = |so: bool| if so { "True" } else { "False" };
    set_condition(&mut status.conditions, READY, truth(is_done), (reason, why), &now);
    set_condition(&mut status.conditions, IN_PROGRESS, truth(!is_done && !is_error), (reason, why), &now);
    status
}

/// The status of a restore whose machine the API refused, in its words.
pub fn refused(seen: &Seen<'_>, why: &str) -> Option<VirtualMachineRestoreStatus> {
    let status = told(seen, seen.restore.status.clone().unwrap_or_default(), why, true);
    (seen.restore.status.as_ref() != Some(&status)).then_some(status)
}

fn settled(seen: &Seen<'_>, status: VirtualMachineRestoreStatus) -> Step {
    if seen.restore.status.as_ref() == Some(&status) {
        Step::Rest
    } else {
        Step::WriteStatus(Box::new(status))
    }
}

#[cfg(test)]
mod tests;
