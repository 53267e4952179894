//! How a machine is restored, decision by decision.

use serde_json::json;

use super::*;

struct World {
    restore: VirtualMachineRestore,
    backup: Option<VirtualMachineBackup>,
    vm: Option<VirtualMachine>,
    is_running: bool,
    claims: BTreeMap<String, PersistentVolumeClaim>,
    secrets: Vec<(String, String)>,
    now_secs: i64,
}

fn machine() -> serde_json::Value {
    json!({"metadata": {"name": "vm", "namespace": "default", "uid": "v",
            "annotations": {claim_templates::ANNOTATION: "[]"}},
        "spec": {"runStrategy": "Always", "template": {"spec": {"hostname": "vm",
            "domain": {"devices": {"interfaces": [{"name": "nic", "macAddress": "02:00:00:00:00:01"}]}},
            "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "vm-root"}},
                {"name": "seed", "cloudInitNoCloud": {"secretRef": {"name": "user"}}}]}}}})
}

fn world(new: bool) -> World {
    let source = machine();
    let backup = json!({
        "metadata": {"name": "b", "namespace": "default", "uid": "u"},
        "status": {"readyToUse": true, "sourceUID": "v",
            "source": {"metadata": source["metadata"], "spec": source["spec"]},
            "volumeBackups": [{"name": "b-volume-vm-root", "volumeName": "root", "volumeSize": 2_i64 << 30,
                "persistentVolumeClaim": {
                    "metadata": {"name": "vm-root", "labels": {"a": "b"}, "annotations": {
                        "pv.kubernetes.io/bind-completed": "yes", PROVISIONER_ANNOTATION: "d", "mine": "x"}},
                    "spec": {"accessModes": ["ReadWriteMany"], "volumeMode": "Block", "storageClassName": "disks",
                        "volumeName": "pvc-c", "resources": {"requests": {"storage": "1Gi"}}}}}],
            "secretBackups": [{"name": "user", "secretName": "vmb-u-user"}]},
    });
    let target =
        json!({"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": if new { "copy" } else { "vm" }});
    World {
        restore: serde_json::from_value(json!({
            "metadata": {"name": "r", "namespace": "default", "uid": "w"},
            "spec": {"target": target, "virtualMachineBackupName": "b", "newVM": new, "deletionPolicy": "retain",
                "virtualMachineBackupNamespace": "default"},
        }))
        .unwrap(),
        backup: Some(serde_json::from_value(backup).unwrap()),
        vm: if new { None } else { Some(serde_json::from_value(machine()).unwrap()) },
        is_running: false,
        claims: BTreeMap::new(),
        secrets: Vec::new(),
        now_secs: 100,
    }
}

impl World {
    fn step(&self) -> Step {
        next_step(&Seen {
            restore: &self.restore,
            backup: self.backup.as_ref(),
            vm: self.vm.as_ref(),
            is_running: self.is_running,
            claims: &self.claims,
            now_secs: self.now_secs,
        })
    }

    /// Takes steps until there are none left; claims are bound as they are made when `binding`.
    fn settle(&mut self, binding: bool) -> usize {
        for n in 0..20 {
            self.now_secs += 1;
            match self.step() {
                Step::Rest => return n,
                Step::WriteStatus(status) => self.restore.status = Some(*status),
                Step::CreateClaim(mut claim) => {
                    assert!(claim.metadata.owner_references.is_some());
                    if binding {
                        claim.status = serde_json::from_value(json!({"phase": "Bound"})).unwrap();
                    }
                    self.claims.insert(claim.metadata.name.clone().unwrap(), *claim);
                }
                Step::KeepClaim { name } => {
                    self.claims.get_mut(&name).unwrap().metadata.owner_references = None;
                }
                Step::CreateMachine(mut vm) | Step::ReplaceMachine(mut vm) => {
                    assert!(self.claims.values().all(|claim| claim.metadata.owner_references.is_none()));
                    vm.metadata.uid.get_or_insert("x".into());
                    self.vm = Some(*vm);
                }
                Step::Finish { secrets, status, .. } => {
                    (self.secrets, self.restore.status) = (secrets, Some(*status));
                }
            }
        }
        panic!("never at rest");
    }

    fn message(&self) -> (String, String) {
        let ready = &self.restore.status.as_ref().unwrap().conditions[0];
        (ready.reason.clone(), ready.message.clone())
    }
}

const CLAIM: &str = "restore-b-w-root";

#[test]
fn a_machine_that_is_off_becomes_what_it_was() {
    let mut world = world(false);
    world.vm.as_mut().unwrap().spec.template.as_mut().unwrap().spec.hostname = "changed".into();
    world.settle(true);
    let vm = world.vm.as_ref().unwrap();
    let spec = &vm.spec.template.as_ref().unwrap().spec;
    assert_eq!((spec.hostname.as_str(), spec.claim_names().collect::<Vec<_>>()), ("vm", vec![CLAIM]));
    assert_eq!(spec.domain.devices.interfaces[0].mac_address, "02:00:00:00:00:01");
    assert_eq!((vm.annotation(NAME_ANNOTATION), vm.annotation(LAST_RESTORE_ANNOTATION)), ("r", "r-w"));
    assert_eq!(vm.annotation(claim_templates::ANNOTATION), "");
    assert_eq!(world.secrets, [("vmb-u-user".to_owned(), "user".to_owned())]);
    let status = world.restore.status.as_ref().unwrap();
    assert_eq!(
        (status.complete, status.progress, status.target_uid.as_deref()),
        (Some(true), 100, Some("v"))
    );
    assert_eq!(world.settle(true), 0, "what is done is done, whatever becomes of the machine");
    world.vm = None;
    assert_eq!(world.settle(true), 0);
}

#[test]
fn another_machine_becomes_what_one_was_with_addresses_of_its_own() {
    let mut world = world(true);
    world.settle(true);
    let vm = world.vm.as_ref().unwrap();
    let spec = &vm.spec.template.as_ref().unwrap().spec;
    assert_eq!((vm.metadata.name.as_deref(), spec.hostname.as_str()), (Some("copy"), "copy"));
    assert_eq!(spec.domain.devices.interfaces[0].mac_address, "");
    assert_eq!(world.secrets, [("vmb-u-user".to_owned(), secret_name("copy", "user"))]);
    let mut keeping = super::tests::world(true);
    keeping.restore.spec.keep_mac_address = true;
    keeping.settle(true);
    let vm = keeping.vm.unwrap();
    let interfaces = &vm.spec.template.as_ref().unwrap().spec.domain.devices.interfaces;
    assert_eq!(interfaces[0].mac_address, "02:00:00:00:00:01");
}

#[test]
fn a_disk_is_restored_from_its_snapshot_as_large_as_that_is() {
    let mut world = world(false);
    world.settle(false);
    let claim = &world.claims[CLAIM];
    let spec = claim.spec.as_ref().unwrap();
    let source = spec.data_source.as_ref().unwrap();
    assert_eq!((source.kind.as_str(), source.name.as_str()), ("VolumeSnapshot", "b-volume-vm-root"));
    assert_eq!((requested_by(spec), spec.volume_name.clone()), (Some(2 << 30), None));
    let annotations = claim.metadata.annotations.as_ref().unwrap();
    assert_eq!(annotations.keys().collect::<Vec<_>>(), ["mine", NAME_ANNOTATION]);
    let (reason, message) = world.message();
    assert!(reason.is_empty() && message.starts_with("Waiting for new PVCs"), "{message}");
    assert_eq!(world.vm.as_ref().unwrap().annotation(NAME_ANNOTATION), "", "the machine is as it was");
}

#[test]
fn a_machine_that_runs_is_left_alone_until_it_is_off() {
    let mut world = world(false);
    world.is_running = true;
    world.settle(true);
    assert_eq!(world.message(), (String::new(), "Waiting for the VM vm to be stopped".into()));
    world.is_running = false;
    world.settle(true);
    assert_eq!(world.restore.status.unwrap().complete, Some(true));
}

#[test]
fn what_cannot_be_is_told_and_nothing_is_made() {
    for (spoil, new, words) in [
        ((|world| world.backup = None) as fn(&mut World), false, "the backup b does not exist"),
        (
            |world| world.backup.as_mut().unwrap().status.as_mut().unwrap().ready_to_use = None,
            false,
            "is not ready",
        ),
        (|world| world.vm = None, false, "can't replace nonexistent vm vm"),
        (|world| world.vm = serde_json::from_value(machine()).unwrap(), true, "VM copy is already exists"),
    ] {
        let mut world = world(new);
        spoil(&mut world);
        world.settle(true);
        let (reason, message) = world.message();
        assert!(reason == "Error" && message.contains(words), "{message}");
        assert!(world.claims.is_empty(), "{words}");
        assert_eq!(world.settle(true), 0, "told once");
    }
}

#[test]
fn a_claim_of_the_name_that_is_somebody_elses_is_not_taken() {
    let mut world = world(false);
    world.claims.insert(CLAIM.into(), PersistentVolumeClaim::default());
    world.settle(true);
    assert!(world.message().1.contains("is not of this restore"));
}
