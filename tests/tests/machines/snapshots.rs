//! Snapshots of machines whose guests write: each is one instant of all disks, and what is made of it begins there.

use std::{fs, os::unix::fs::FileExt, sync::OnceLock};

use serde_json::{Value, json};
use sheaf_tests::{
    machines::{CLAIMS, Farm, MACHINES, Serial, claim, machine},
    patience,
};

const BACKUPS: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinebackups";
const RESTORES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinerestores";
const SNAPSHOTS: &str = "/apis/snapshot.storage.k8s.io/v1/namespaces/default/volumesnapshots";

fn farm() -> Option<&'static Farm> {
    static FARM: OnceLock<Option<Farm>> = OnceLock::new();
    FARM.get_or_init(Farm::with_tiny_guest).as_ref()
}

/// A machine with two more disks, and its console once its guest is up.
fn writer(farm: &Farm, name: &str, number: u32) -> Serial {
    let mut vm = machine(name, &format!("88888888-0000-4000-8000-{number:012}"), Some("tiny"));
    let (one, two) = (format!("{name}-one"), format!("{name}-two"));
    let claims =
        json!([claim(name, Some("tiny"), "64Mi"), claim(&one, None, "16Mi"), claim(&two, None, "16Mi")]);
    vm["metadata"]["annotations"] = json!({"harvesterhci.io/volumeClaimTemplates": claims.to_string()});
    vm["spec"]["runStrategy"] = "Always".into();
    let spec = &mut vm["spec"]["template"]["spec"];
    for (disk, claim) in [("one", one), ("two", two)] {
        spec["domain"]["devices"]["disks"]
            .as_array_mut()
            .unwrap()
            .push(json!({"name": disk, "disk": {"bus": "scsi"}}));
        let volume = json!({"name": disk, "persistentVolumeClaim": {"claimName": claim}});
        spec["volumes"].as_array_mut().unwrap().push(volume);
    }
    farm.api().post(MACHINES, &vm).object();
    let mut serial = farm.serial(&farm.running(name));
    // All of the line: what is typed comes back as soon as it is, and would be cut in two by the rest.
    serial.hears("tiny guest is up\r\n");
    serial
}

/// Numbers both disks in turn, from the first on, until told to stop.
const COUNT: &str = "(n=10000; while [ ! -e /run/stop ]; do n=$((n+1)); for d in sda sdb; do \
                     echo $n | dd of=/dev/$d bs=512 conv=notrunc,sync,fsync 2>/dev/null; done; done) >/dev/null 2>&1 &";

fn numbers(serial: &mut Serial) -> (u32, u32) {
    let said =
        serial.runs("echo 3 >/proc/sys/vm/drop_caches; for d in sda sdb; do head -c 5 /dev/$d; echo; done");
    // What was typed comes back, too.
    let found: Vec<u32> = said.lines().filter_map(|line| line.trim().parse().ok()).collect();
    let [one, two] = found[..] else { panic!("{said:?}") };
    (one, two)
}

fn ready(farm: &Farm, path: &str) -> Value {
    patience::until(format!("{path} to be ready"), || {
        let object = farm.api().get(path).object();
        (object["status"]["readyToUse"] == true || object["status"]["complete"] == true).then_some(object)
    })
}

#[test]
fn a_machine_is_restored_as_it_was_at_one_instant_while_it_wrote() {
    let Some(farm) = farm() else { return };
    let mut serial = writer(farm, "counts", 1);
    serial.types(&format!("run {COUNT}"));
    serial.hears("ran ");
    for number in 1..=3 {
        let name = format!("counts-{number}");
        let backup = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineBackup",
            "metadata": {"name": name}, "spec": {"type": "snapshot",
                "source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "counts"}}});
        farm.api().post(BACKUPS, &backup).object();
        ready(farm, &format!("{BACKUPS}/{name}"));
    }
    serial.runs("touch /run/stop; sleep 1");
    let last = numbers(&mut serial);
    assert!(last.0 == last.1 && last.0 > 10000, "{last:?}");
    // The one in the middle goes; the others stay what they are.
    farm.api().delete(&format!("{BACKUPS}/counts-2"));
    patience::until("a snapshot to be gone", || {
        (farm.api().get(&format!("{SNAPSHOTS}/counts-2-volume-counts-one")).code == 404).then_some(())
    });

    let mut before = 0;
    for number in [1, 3] {
        let name = format!("again-{number}");
        let restore = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineRestore",
            "metadata": {"name": name}, "spec": {"newVM": true, "virtualMachineBackupName": format!("counts-{number}"),
                "virtualMachineBackupNamespace": "default",
                "target": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": name}}});
        farm.api().post(RESTORES, &restore).object();
        ready(farm, &format!("{RESTORES}/{name}"));
        farm.set_run_strategy(&name, "Always");
        let mut serial = farm.serial(&farm.running(&name));
        serial.hears("tiny guest is up\r\n");
        let (one, two) = numbers(&mut serial);
        assert!(one == two || one == two + 1, "the disks are of different instants: {one} and {two}");
        assert!(before < two && two < last.0, "{before} < {two} < {}", last.0);
        before = two;
        farm.set_run_strategy(&name, "Halted");
    }
    // The original noticed nothing.
    assert_eq!(numbers(&mut serial), last);
    farm.api().delete(&format!("{MACHINES}/counts"));
}

#[test]
fn a_claim_is_copied_while_its_machine_writes() {
    let Some(farm) = farm() else { return };
    let mut serial = writer(farm, "copied", 2);
    serial.runs("echo before | dd of=/dev/sda conv=notrunc,fsync 2>/dev/null");
    let mut copy = claim("copy", None, "16Mi");
    copy["apiVersion"] = "v1".into();
    copy["kind"] = "PersistentVolumeClaim".into();
    copy["spec"]["dataSource"] = json!({"kind": "PersistentVolumeClaim", "name": "copied-one"});
    farm.api().post(CLAIMS, &copy).object();
    patience::until("the copy to be bound", || {
        (farm.api().get(&format!("{CLAIMS}/copy")).object()["status"]["phase"] == "Bound").then_some(())
    });
    serial.runs("echo after_ | dd of=/dev/sda conv=notrunc,fsync 2>/dev/null");

    // Plugged into the very machine it is a copy of.
    let add = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/copied/addvolume";
    let body = json!({"name": "copy", "disk": {"name": "copy", "disk": {"bus": "scsi"}},
        "volumeSource": {"persistentVolumeClaim": {"claimName": "copy"}}});
    let answer = farm.api().put(add, &body);
    assert_eq!(answer.code, 202, "{}", answer.text());
    serial.runs("until [ -e /sys/block/sdc ]; do sleep 0.1; done");
    assert_eq!(serial.runs("head -c 6 /dev/sdc").trim(), "before");
    assert_eq!(serial.runs("echo 3 >/proc/sys/vm/drop_caches; head -c 6 /dev/sda").trim(), "after_");
    farm.api().delete(&format!("{MACHINES}/copied"));
}

#[test]
fn a_merge_that_fails_leaves_nothing_running_and_is_done_when_it_can_be() {
    let Some(farm) = farm() else { return };
    let mut api = farm.api();
    let mut claim = claim("spoilt", None, "16Mi");
    (claim["apiVersion"], claim["kind"]) = ("v1".into(), "PersistentVolumeClaim".into());
    api.post(CLAIMS, &claim).object();
    for number in 1..=3 {
        let name = format!("spoilt-{number}");
        let snapshot = json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
            "metadata": {"name": name}, "spec": {"source": {"persistentVolumeClaimName": "spoilt"}}});
        api.post(SNAPSHOTS, &snapshot).object();
        ready(farm, &format!("{SNAPSHOTS}/{name}"));
    }
    let volume = api.get(&format!("{CLAIMS}/spoilt")).object()["spec"]["volumeName"].clone();
    let id = volume.as_str().unwrap().trim_start_matches("pvc-");
    let directory = farm.node.data_dir().join("volumes").join(id);
    let layer = fs::File::options().read(true).write(true).open(directory.join("layer-1")).unwrap();
    let mut header = [0; 4];
    layer.read_exact_at(&mut header, 0).unwrap();
    layer.write_all_at(b"oops", 0).unwrap();

    let failures = || farm.node.log().matches("two layers could not be made one").count();
    let before = failures();
    api.delete(&format!("{SNAPSHOTS}/spoilt-1"));
    patience::until("a merge to fail", || (failures() > before).then_some(()));
    let workshop = farm.node.data_dir().join("machines/workshop-merge");
    patience::until("its workshop to be closed", || (!workshop.exists()).then_some(()));

    layer.write_all_at(&header, 0).unwrap();
    api.delete(&format!("{SNAPSHOTS}/spoilt-3"));
    patience::until("what was put off to be done", || (!directory.join("layer-1").exists()).then_some(()));
    api.delete(&format!("{CLAIMS}/spoilt"));
    api.delete(&format!("{SNAPSHOTS}/spoilt-2"));
}
