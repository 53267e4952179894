//! How a backup comes to be, decision by decision.

use serde_json::json;
use sheaf_resources::kinds::virtual_machine_backup::is_in_progress;

use super::*;

/// All that a backup depends on, to be looked at again and again.
struct World {
    backup: VirtualMachineBackup,
    vm: Option<VirtualMachine>,
    claims: BTreeMap<String, PersistentVolumeClaim>,
    classes: BTreeMap<String, String>,
    snapshots: BTreeMap<String, VolumeSnapshot>,
    now_secs: i64,
}

fn world() -> World {
    let claim = |name: &str| {
        let claim = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "default", "uid": "c", "labels": {"a": "b"}},
            "spec": {"volumeMode": "Block", "resources": {"requests": {"storage": "1Gi"}}},
        }));
        (name.to_owned(), claim.unwrap())
    };
    let machine = json!({"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "vm"});
    World {
        backup: serde_json::from_value(json!({
            "metadata": {"name": "b", "namespace": "default", "uid": "u"},
            "spec": {"type": "snapshot", "source": machine},
        }))
        .unwrap(),
        vm: serde_json::from_value(json!({
            "metadata": {"name": "vm", "namespace": "default", "uid": "v", "resourceVersion": "7",
                "annotations": {FREEZE_ANNOTATION: "false"}},
            "spec": {"runStrategy": "Always", "template": {"spec": {"domain": {"devices": {}}, "volumes": [
                {"name": "root", "persistentVolumeClaim": {"claimName": "vm-root"}},
                {"name": "data", "persistentVolumeClaim": {"claimName": "vm-data"}},
                {"name": "seed", "cloudInitNoCloud": {"secretRef": {"name": "user"}}}]}}},
        }))
        .unwrap(),
        claims: [claim("vm-root"), claim("vm-data")].into(),
        classes: BTreeMap::from([(PROVISIONER.to_owned(), "longhorn-snapshot".to_owned())]),
        snapshots: BTreeMap::new(),
        now_secs: 100,
    }
}

impl World {
    fn step(&self) -> Step {
        let secrets = [SecretBackup { name: "user".into(), secret_name: "vmb-u-user".into() }];
        next_step(&Seen {
            backup: &self.backup,
            vm: self.vm.as_ref(),
            claims: &self.claims,
            classes: &self.classes,
            snapshots: &self.snapshots,
            secrets: &secrets,
            now_secs: self.now_secs,
        })
    }

    /// Takes steps until there are none left, as a controller would; answers how many.
    fn settle(&mut self) -> usize {
        for n in 0..20 {
            self.now_secs += 1;
            match self.step() {
                Step::Rest => return n,
                Step::Begin { status, .. } | Step::WriteStatus(status) => self.backup.status = Some(*status),
                Step::CreateSnapshot { snapshot } => {
                    let snapshot: VolumeSnapshot = serde_json::from_value(snapshot).unwrap();
                    let name = snapshot.metadata.name.clone().unwrap();
                    assert!(self.snapshots.insert(name, snapshot).is_none());
                }
            }
        }
        panic!("never at rest");
    }

    fn say(&mut self, snapshot: &str, status: serde_json::Value) {
        self.snapshots.get_mut(snapshot).unwrap().status = serde_json::from_value(status).unwrap();
    }

    fn status(&self) -> &VirtualMachineBackupStatus {
        self.backup.status.as_ref().unwrap()
    }

    fn is_in_progress(&self) -> bool {
        is_in_progress(&serde_json::to_value(&self.backup).unwrap())
    }
}

fn taken() -> serde_json::Value {
    json!({"readyToUse": true, "creationTime": "2030-01-01T00:00:00Z", "restoreSize": "1Gi"})
}

#[test]
fn a_machine_is_noted_down_and_all_its_disks_are_snapshotted_together() {
    let mut world = world();
    world.settle();
    let names: Vec<&String> = world.snapshots.keys().collect();
    assert_eq!(names, ["b-volume-vm-data", "b-volume-vm-root"]);
    for snapshot in world.snapshots.values() {
        let annotations = snapshot.metadata.annotations.as_ref().unwrap();
        assert_eq!(
            (annotations[TOGETHER_ANNOTATION].as_str(), annotations[TOGETHER_OF_ANNOTATION].as_str()),
            ("u", "2")
        );
        assert_eq!(annotations[FREEZE_ANNOTATION], "false", "as the machine has it");
        assert_eq!(snapshot.spec.volume_snapshot_class_name.as_deref(), Some("longhorn-snapshot"));
        assert!(is_of(snapshot, &world.backup));
    }
    let status = world.status();
    assert_eq!((status.source_uid.as_str(), status.secret_backups.len()), ("v", 1));
    let source = status.source.as_ref().unwrap();
    assert_eq!((source.metadata.uid.clone(), source.metadata.resource_version.clone()), (None, None));
    assert!(world.is_in_progress());
    world.say("b-volume-vm-root", taken());
    world.settle();
    assert!(world.is_in_progress() && world.status().progress == 50);
    world.say("b-volume-vm-data", taken());
    world.settle();
    let status = world.status();
    assert_eq!((status.ready_to_use, status.progress), (Some(true), 100));
    assert_eq!(status.creation_time, status.volume_backups[0].creation_time);
    assert_eq!(status.volume_backups[0].volume_size, 1 << 30);
    assert!(!world.is_in_progress());
    assert_eq!(world.settle(), 0, "at rest it rests, times included");
}

#[test]
fn what_changes_of_the_machine_afterwards_is_not_in_the_backup() {
    let mut world = world();
    world.settle();
    let before = world.status().source.clone();
    world.vm = None;
    world.claims.clear();
    for name in ["b-volume-vm-root", "b-volume-vm-data"] {
        world.say(name, taken());
    }
    world.settle();
    assert_eq!((world.status().source.clone(), world.status().ready_to_use), (before, Some(true)));
}

#[test]
fn what_is_in_the_way_is_told_and_goes_with_its_reason() {
    for (spoil, words) in [
        ((|world| world.vm = None) as fn(&mut World), "the virtual machine vm does not exist"),
        (|world| drop(world.claims.remove("vm-data")), "the claim vm-data does not exist"),
        (|world| world.classes.clear(), "names no volumeSnapshotClassName for driver.longhorn.io"),
    ] {
        let mut bad = world();
        spoil(&mut bad);
        bad.settle();
        let why = bad.status().error.clone().unwrap().message.unwrap();
        assert!(why.contains(words), "{why}");
        assert!(bad.snapshots.is_empty() && !bad.is_in_progress());
        assert_eq!(bad.settle(), 0, "told once");
        let fresh = world();
        (bad.vm, bad.claims, bad.classes) = (fresh.vm, fresh.claims, fresh.classes);
        bad.settle();
        assert_eq!((bad.snapshots.len(), bad.status().error.clone()), (2, None));
    }
}

#[test]
fn a_snapshot_that_fails_is_told_by_its_backup() {
    let mut world = world();
    world.settle();
    world.say("b-volume-vm-data", json!({"readyToUse": false, "error": {"message": "no room"}}));
    world.settle();
    assert_eq!(world.status().error.as_ref().unwrap().message.as_deref(), Some("no room"));
    let ready = &world.status().conditions[0];
    assert_eq!(
        (ready.status.as_str(), ready.reason.as_str(), ready.message.as_str()),
        ("False", "Error", "no room")
    );
    assert_eq!(world.settle(), 0);
    for name in ["b-volume-vm-root", "b-volume-vm-data"] {
        world.say(name, taken());
    }
    world.settle();
    assert_eq!((world.status().ready_to_use, world.status().error.clone()), (Some(true), None));
}

#[test]
fn a_snapshot_that_is_missing_after_others_were_taken_is_not_made() {
    let mut world = world();
    world.settle();
    world.snapshots.remove("b-volume-vm-data");
    assert!(matches!(world.step(), Step::CreateSnapshot { .. }), "none was taken yet");
    world.say("b-volume-vm-root", taken());
    world.settle();
    assert!(!world.snapshots.contains_key("b-volume-vm-data"), "it would be of another instant");
    assert!(world.status().error.clone().unwrap().message.unwrap().contains("is gone"));
}

#[test]
fn a_snapshot_of_the_name_that_is_somebody_elses_is_not_taken_for_its_own() {
    let mut world = world();
    let mut foreign = VolumeSnapshot::default();
    foreign.metadata.name = Some("b-volume-vm-root".into());
    world.snapshots.insert("b-volume-vm-root".into(), foreign);
    world.say("b-volume-vm-root", taken());
    world.settle();
    assert!(world.status().error.clone().unwrap().message.unwrap().contains("is not of this backup"));
}

#[test]
fn a_machine_without_disks_is_backed_up_at_once() {
    let mut world = world();
    world.vm.as_mut().unwrap().spec.template.as_mut().unwrap().spec.volumes.clear();
    world.settle();
    assert!(world.status().ready_to_use == Some(true) && world.status().creation_time.is_some());
}
