//! Counts what the snapshots of a namespace take, and whether one more is allowed.
//!
//! A snapshot counts as large as the disk that it is of: so large it may become as the disk changes, and how much of it
//! there is already only its node could say. That is more than the original counts, which looks at what was written, and it is known
//! before the snapshot is taken, so nothing goes beyond a limit.
//!
//! - A backup of type snapshot counts from the moment it is there, before its snapshots are.
//! - A snapshot that belongs to a backup is counted with it. Any other is counted by itself, and with the machine that has
//!   its disk.
//! - What is being deleted counts until it is gone.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::PersistentVolumeClaim, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use sheaf_resources::{
    kinds::{
        harvester_resource_quota::{SnapshotLimit, SnapshotLimitStatus},
        persistent_volume_claim::requested_by,
        virtual_machine::VirtualMachine,
        virtual_machine_backup::{TYPE_SNAPSHOT, VirtualMachineBackup, snapshot_name},
        volume_snapshot::VolumeSnapshot,
    },
    quantity,
};

/// What there is in a namespace.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub backups: Vec<VirtualMachineBackup>,
    pub snapshots: Vec<VolumeSnapshot>,
    /// Bytes of disks, by the names of their claims.
    pub claims: BTreeMap<String, i64>,
    /// Claims of machines, by the names of the machines.
    pub machines: BTreeMap<String, Vec<String>>,
}

impl Seen {
    pub fn of<'a>(
        backups: impl Iterator<Item = &'a VirtualMachineBackup>,
        snapshots: impl Iterator<Item = &'a VolumeSnapshot>,
        claims: impl Iterator<Item = &'a PersistentVolumeClaim>,
        machines: impl Iterator<Item = &'a VirtualMachine>,
    ) -> Self {
        let name = |metadata: &ObjectMeta| metadata.name.clone().unwrap_or_default();
        let claims_of = |vm: &VirtualMachine| {
            let template = vm.spec.template.iter();
            template.flat_map(|template| template.spec.claim_names()).map(str::to_owned).collect()
        };
        Seen {
            backups: backups.cloned().collect(),
            snapshots: snapshots.cloned().collect(),
            claims: claims.map(|claim| (name(&claim.metadata), size_of(claim))).collect(),
            machines: machines.map(|vm| (name(&vm.metadata), claims_of(vm))).collect(),
        }
    }

    /// What is used.
    pub fn usage(&self) -> SnapshotLimitStatus {
        let mut usage = SnapshotLimitStatus::default();
        let mut count = |machine: Option<&str>, bytes: i64| {
            usage.namespace_total_snapshot_size_usage =
                usage.namespace_total_snapshot_size_usage.saturating_add(bytes);
            if let Some(machine) = machine {
                let of_machine = usage.vm_total_snapshot_size_usage.entry(machine.to_owned()).or_default();
                *of_machine = of_machine.saturating_add(bytes);
            }
        };
        let backups = || self.backups.iter().filter(|backup| backup.spec.backup_type == TYPE_SNAPSHOT);
        for backup in backups() {
            count(Some(&backup.spec.source.name), self.size_of_backup(backup));
        }
        for snapshot in &self.snapshots {
            if !backups().any(|backup| self.is_of(snapshot, backup)) {
                count(self.machine_of(snapshot), self.size_of_snapshot(snapshot));
            }
        }
        usage
    }

    /// Whether a snapshot was taken for a backup, and so is counted with it. What the snapshot says is anybody's to write:
    /// the backup must mean it, too.
    fn is_of(&self, snapshot: &VolumeSnapshot, backup: &VirtualMachineBackup) -> bool {
        let mut owners = snapshot.metadata.owner_references.iter().flatten();
        let says_so = owners.any(|owner| {
            owner.kind == "VirtualMachineBackup" && backup.metadata.uid.as_deref() == Some(owner.uid.as_str())
        });
        let name = snapshot.metadata.name.as_deref().unwrap_or_default();
        let of_backup = backup.metadata.name.as_deref().unwrap_or_default();
        let taken = backup.status.as_ref().map(|status| status.volume_backups.as_slice()).unwrap_or_default();
        let mut claims = self.machines.get(&backup.spec.source.name).into_iter().flatten();
        says_so
            && match taken.is_empty() {
                true => claims.any(|claim| snapshot_name(of_backup, claim) == name),
                false => taken.iter().any(|volume| volume.name == name),
            }
    }

    /// What a backup of that machine would take.
    pub fn size_of_machine(&self, machine: &str) -> i64 {
        let claims = self.machines.get(machine).into_iter().flatten();
        claims.map(|claim| self.size_of_claim(claim)).fold(0, i64::saturating_add)
    }

    pub fn size_of_claim(&self, claim: &str) -> i64 {
        self.claims.get(claim).copied().unwrap_or(0)
    }

    /// The machine that has a claim.
    pub fn machine_with(&self, claim: &str) -> Option<&str> {
        let mut machines = self.machines.iter();
        machines.find(|(_, claims)| claims.iter().any(|one| one == claim)).map(|(name, _)| name.as_str())
    }

    fn machine_of(&self, snapshot: &VolumeSnapshot) -> Option<&str> {
        self.machine_with(snapshot.spec.source.persistent_volume_claim_name.as_deref()?)
    }

    fn size_of_snapshot(&self, snapshot: &VolumeSnapshot) -> i64 {
        let restored = snapshot.status.as_ref().and_then(|status| status.restore_size.as_ref());
        let claim = snapshot.spec.source.persistent_volume_claim_name.as_deref().unwrap_or_default();
        restored.and_then(|size| quantity::value(&size.0)).unwrap_or_else(|| self.size_of_claim(claim))
    }

    /// As its status says once it is begun; a machine may have other disks by then.
    fn size_of_backup(&self, backup: &VirtualMachineBackup) -> i64 {
        let volumes = backup.status.iter().flat_map(|status| &status.volume_backups);
        let sizes: Vec<i64> = volumes
            .map(|volume| {
                let asked = requested_by(&volume.persistent_volume_claim.spec);
                volume.volume_size.max(asked.unwrap_or(0))
            })
            .collect();
        match sizes.is_empty() {
            true => self.size_of_machine(&backup.spec.source.name),
            false => sizes.into_iter().fold(0, i64::saturating_add),
        }
    }
}

/// What a claim asks for, or more where it got more.
fn size_of(claim: &PersistentVolumeClaim) -> i64 {
    let asked = claim.spec.as_ref().and_then(requested_by).unwrap_or(0);
    let capacity = claim.status.as_ref().and_then(|status| status.capacity.as_ref()?.get("storage"));
    asked.max(capacity.and_then(|size| quantity::value(&size.0)).unwrap_or(0))
}

/// Why so many bytes more, of a machine or of none, would be too much; nothing where they are not.
pub fn over_limit(
    limit: &SnapshotLimit,
    usage: &SnapshotLimitStatus,
    machine: Option<&str>,
    more: i64,
) -> Option<String> {
    let of_machine = machine.and_then(|machine| {
        let used = usage.vm_total_snapshot_size_usage.get(machine).copied().unwrap_or(0);
        Some((*limit.vm_total_snapshot_size_quota.get(machine)?, used, format!("VM {machine}")))
    });
    let of_namespace = (
        limit.namespace_total_snapshot_size_quota,
        usage.namespace_total_snapshot_size_usage,
        "the namespace".to_owned(),
    );
    let mut limits = of_machine.into_iter().chain([of_namespace]).filter(|(limit, ..)| *limit > 0);
    limits.find(|(limit, used, _)| used.saturating_add(more) > *limit).map(|(limit, used, of)| {
        let words = |bytes: i64| quantity::bytes(bytes).0;
        format!(
            "total snapshot size limit {} is less than total snapshot usage {}: snapshots of {of} take {}, and this one \
             would take {} more",
            words(limit),
            words(used.saturating_add(more)),
            words(used),
            words(more)
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const GIB: i64 = 1 << 30;

    fn backup(name: &str, machine: &str, volumes: Value) -> VirtualMachineBackup {
        let whole = json!({
            "metadata": {"name": name, "uid": format!("{name}-uid")},
            "spec": {"type": "snapshot", "source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": machine}},
            "status": {"volumeBackups": volumes},
        });
        serde_json::from_value(whole).unwrap()
    }

    fn snapshot(claim: &str, owner: &str, size: Value) -> VolumeSnapshot {
        let whole = json!({
            "metadata": {"name": snapshot_name("b", claim), "ownerReferences": [
                {"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineBackup", "name": "b", "uid": owner}]},
            "spec": {"source": {"persistentVolumeClaimName": claim}},
            "status": {"restoreSize": size},
        });
        serde_json::from_value(whole).unwrap()
    }

    fn seen() -> Seen {
        Seen {
            claims: BTreeMap::from([
                ("root".into(), 10 * GIB),
                ("data".into(), 20 * GIB),
                ("free".into(), GIB),
            ]),
            machines: BTreeMap::from([("vm".into(), vec!["root".into(), "data".into()])]),
            ..Seen::default()
        }
    }

    fn of(usage: &SnapshotLimitStatus) -> (i64, Option<i64>) {
        let machine = usage.vm_total_snapshot_size_usage.get("vm").copied();
        (usage.namespace_total_snapshot_size_usage / GIB, machine.map(|bytes| bytes / GIB))
    }

    #[test]
    fn a_snapshot_that_only_says_it_is_of_a_backup_counts_by_itself() {
        let mut seen = seen();
        seen.backups.push(backup("b", "vm", json!([])));
        seen.snapshots.push(snapshot("free", "b-uid", json!("1Gi")));
        assert_eq!(of(&seen.usage()), (31, Some(30)), "no disk of the machine");
        seen.backups[0] = backup("b", "vm", json!([{"name": "b-volume-root", "volumeSize": 5 * GIB}]));
        seen.snapshots[0] = snapshot("data", "b-uid", json!("20Gi"));
        assert_eq!(of(&seen.usage()).0, 25, "not one that the backup has");
    }

    #[test]
    fn a_backup_counts_before_its_snapshots_are_there_and_once_with_them() {
        let mut seen = seen();
        assert_eq!(of(&seen.usage()), (0, None));
        seen.backups.push(backup("b", "vm", json!([])));
        assert_eq!(of(&seen.usage()), (30, Some(30)));
        seen.snapshots.push(snapshot("root", "b-uid", json!("10Gi")));
        assert_eq!(of(&seen.usage()), (30, Some(30)));
        // The machine's disks may be others by now.
        seen.backups[0] = backup("b", "vm", json!([{"name": "b-volume-root", "volumeSize": 5 * GIB}]));
        assert_eq!(of(&seen.usage()), (5, Some(5)));
    }

    #[test]
    fn a_snapshot_of_nobodys_disk_counts_for_the_namespace_alone() {
        let mut seen = seen();
        seen.snapshots.push(snapshot("free", "", json!(null)));
        assert_eq!(of(&seen.usage()), (1, None));
        seen.snapshots.push(snapshot("data", "gone-uid", json!("20Gi")));
        assert_eq!(of(&seen.usage()), (21, Some(20)), "one of a backup that is gone counts by itself");
    }

    #[test]
    fn a_limit_is_reached_and_never_passed() {
        let limit = |namespace: i64, machine: i64| SnapshotLimit {
            namespace_total_snapshot_size_quota: namespace * GIB,
            vm_total_snapshot_size_quota: BTreeMap::from([("vm".into(), machine * GIB)]),
        };
        let mut seen = seen();
        seen.backups.push(backup("b", "vm", json!([])));
        let usage = seen.usage();
        let over = |limit: &SnapshotLimit, machine: Option<&str>, more: i64| {
            over_limit(limit, &usage, machine, more * GIB)
        };
        assert_eq!(over(&limit(60, 60), Some("vm"), 30), None);
        let said = over(&limit(60, 59), Some("vm"), 30).unwrap();
        assert!(
            said.starts_with("total snapshot size limit 59Gi is less than total snapshot usage 60Gi"),
            "{said}"
        );
        assert!(
            over(&limit(59, 60), Some("vm"), 30).unwrap().contains("snapshots of the namespace take 30Gi")
        );
        assert_eq!(
            over(&limit(60, 1), None, 30),
            None,
            "what is no machine's is not held to a machine's limit"
        );
        assert_eq!(over(&limit(0, 0), Some("vm"), 1000), None, "0 is no limit");
    }
}
