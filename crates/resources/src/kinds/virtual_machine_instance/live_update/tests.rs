//! Each kind of change by name: what is carried over, and what waits.

use serde_json::json;

use super::*;

fn spec() -> Value {
    json!({
        "domain": {
            "cpu": {"cores": 1, "sockets": 2, "maxSockets": 4, "threads": 1},
            "memory": {"guest": "1Gi", "maxGuest": "4Gi"},
            "devices": {
                "disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "disc", "cdrom": {"bus": "sata"}}],
                "interfaces": [{"name": "default", "bridge": {}, "macAddress": "02:00:00:00:00:01"}],
            },
        },
        "networks": [{"name": "default", "pod": {}}],
        "volumes": [claim("root", "root", false), claim("disc", "install", false)],
    })
}

fn claim(name: &str, claim: &str, hotpluggable: bool) -> Value {
    json!({"name": name, "persistentVolumeClaim": {"claimName": claim, "hotpluggable": hotpluggable}})
}

fn update_from(running: &Value, change: impl FnOnce(&mut Value), known: &Running<'_>) -> LiveUpdate {
    let mut wanted = running.clone();
    change(&mut wanted);
    let read = |spec: Value| serde_json::from_value::<VirtualMachineInstanceSpec>(spec).unwrap();
    live_update(&read(running.clone()), &read(wanted), known)
}

fn update(change: impl FnOnce(&mut Value)) -> LiveUpdate {
    update_from(&spec(), change, &Running::default())
}

fn push(list: &mut Value, value: Value) {
    list.as_array_mut().unwrap().push(value);
}

fn plug(spec: &mut Value, name: &str, target: Value, hotpluggable: bool) {
    let mut disk = target;
    disk["name"] = name.into();
    push(&mut spec["domain"]["devices"]["disks"], disk);
    push(&mut spec["volumes"], claim(name, name, hotpluggable));
}

fn names(spec: &VirtualMachineInstanceSpec) -> (Vec<&str>, Vec<&str>) {
    let disks = spec.domain.devices.disks.iter().map(|disk| disk.name.as_str());
    (disks.collect(), spec.volumes.iter().map(|volume| volume.name.as_str()).collect())
}

#[test]
fn what_did_not_change_needs_nothing() {
    let update = update(|_| {});
    assert_eq!(update.needs_restart, [] as [&str; 0]);
    assert_eq!(names(&update.spec), (vec!["root", "disc"], vec!["root", "disc"]));
}

#[test]
fn a_disk_that_may_be_plugged_in_is_and_goes_again() {
    for bus in ["scsi", "virtio"] {
        let plugged = update(|spec| plug(spec, "data", json!({"disk": {"bus": bus}}), true));
        assert_eq!(plugged.needs_restart, [] as [&str; 0], "{bus}");
        assert_eq!(names(&plugged.spec).0, ["root", "disc", "data"]);
        let running = serde_json::to_value(&plugged.spec).unwrap();
        let back = update_from(&running, |wanted| *wanted = spec(), &Running::default());
        assert_eq!((names(&back.spec).1, back.needs_restart.len()), (vec!["root", "disc"], 0));
    }
}

#[test]
fn a_disk_that_may_not_be_plugged_in_waits_and_is_named() {
    for (target, hotpluggable) in [
        (json!({"disk": {"bus": "scsi"}}), false),
        (json!({"disk": {"bus": "sata"}}), true),
        (json!({"cdrom": {"bus": "sata"}}), true),
        (json!({"disk": {"bus": "scsi"}, "bootOrder": 1}), true),
    ] {
        let update = update(|spec| plug(spec, "data", target.clone(), hotpluggable));
        assert_eq!(update.needs_restart, ["domain.devices.disks[data]", "volumes[data]"], "{target}");
        assert_eq!(names(&update.spec).0, ["root", "disc"]);
    }
    let without_root = update(|spec| {
        spec["volumes"].as_array_mut().unwrap().remove(0);
        spec["domain"]["devices"]["disks"].as_array_mut().unwrap().remove(0);
    });
    assert_eq!(without_root.needs_restart, ["domain.devices.disks[root]", "volumes[root]"]);
}

#[test]
fn what_was_plugged_into_the_instance_alone_stays_there() {
    let mut running = spec();
    plug(&mut running, "extra", json!({"disk": {"bus": "scsi"}}), true);
    let known = Running { ephemeral: ["extra"].into(), memory_at_boot: None };
    let update = update_from(&running, |wanted| *wanted = spec(), &known);
    assert_eq!((names(&update.spec).0, update.needs_restart.len()), (vec!["root", "disc", "extra"], 0));
}

#[test]
fn a_disc_is_ejected_inserted_and_changed_and_its_drive_stays() {
    let ejected = update(|spec| drop(spec["volumes"].as_array_mut().unwrap().pop()));
    assert_eq!(names(&ejected.spec), (vec!["root", "disc"], vec!["root"]));
    assert_eq!(ejected.needs_restart, [] as [&str; 0]);
    let empty = serde_json::to_value(&ejected.spec).unwrap();
    let inserted = update_from(
        &empty,
        |spec| push(&mut spec["volumes"], claim("disc", "other", false)),
        &Running::default(),
    );
    assert_eq!((names(&inserted.spec).1, inserted.needs_restart.len()), (vec!["root", "disc"], 0));
    let changed = update(|spec| spec["volumes"][1] = claim("disc", "other", false));
    assert_eq!(changed.spec.volumes[1].persistent_volume_claim.as_ref().unwrap().claim_name, "other");
    assert_eq!(changed.needs_restart, [] as [&str; 0]);
    // The claim of a disk that stays is not changed under it.
    let root = update(|spec| spec["volumes"][0] = claim("root", "other", false));
    assert_eq!(root.needs_restart, ["volumes[root].persistentVolumeClaim.claimName"]);
}

#[test]
fn an_interface_comes_by_being_named_and_goes_by_being_absent() {
    let plugged = update(|spec| {
        push(&mut spec["domain"]["devices"]["interfaces"], json!({"name": "second", "bridge": {}}));
        push(&mut spec["networks"], json!({"name": "second", "multus": {"networkName": "a/b"}}));
    });
    assert_eq!((plugged.spec.networks.len(), plugged.needs_restart.len()), (2, 0));
    let running = serde_json::to_value(&plugged.spec).unwrap();
    let pulled = update_from(
        &running,
        |spec| spec["domain"]["devices"]["interfaces"][1]["state"] = json!("absent"),
        &Running::default(),
    );
    assert_eq!((pulled.spec.networks.len(), pulled.needs_restart.len()), (1, 0));
    let old = update(|spec| {
        let interface = json!({"name": "old", "bridge": {}, "model": "e1000"});
        push(&mut spec["domain"]["devices"]["interfaces"], interface);
        push(&mut spec["networks"], json!({"name": "old", "multus": {"networkName": "a/b"}}));
    });
    assert_eq!(old.needs_restart, ["domain.devices.interfaces[old]", "networks[old]"]);
}

#[test]
fn sockets_and_memory_grow_up_to_what_was_declared() {
    let grown = update(|spec| {
        spec["domain"]["cpu"]["sockets"] = json!(4);
        spec["domain"]["memory"]["guest"] = json!("4096Mi");
    });
    assert_eq!(grown.needs_restart, [] as [&str; 0]);
    assert_eq!(grown.spec.domain.cpu.as_ref().unwrap().sockets, 4);
    assert_eq!(grown.spec.domain.memory.as_ref().unwrap().guest.as_ref().unwrap().0, "4096Mi");
    for (sockets, guest, why) in [
        (5, "1Gi", "CPU sockets updated in template spec to a value higher than what's available"),
        (1, "1Gi", "Reduction of CPU socket count requires a restart"),
        (2, "5Gi", "Memory updated in template spec to a value higher than what's available"),
        (2, "512Mi", "Memory updated in template spec to a value lower than what the VM started with"),
    ] {
        let refused = update(|spec| {
            spec["domain"]["cpu"]["sockets"] = json!(sockets);
            spec["domain"]["memory"]["guest"] = json!(guest);
        });
        assert_eq!(refused.needs_restart, [why]);
        assert_eq!(refused.spec.domain.cpu.as_ref().unwrap().sockets, 2);
    }
}

#[test]
fn memory_is_given_back_down_to_what_it_began_with() {
    let mut running = spec();
    running["domain"]["memory"]["guest"] = json!("2Gi");
    let known = Running { memory_at_boot: Some(1 << 30), ..Running::default() };
    let less = update_from(&running, |spec| spec["domain"]["memory"]["guest"] = json!("1Gi"), &known);
    assert_eq!(less.needs_restart, [] as [&str; 0]);
}

#[test]
fn where_it_may_run_is_no_reason_to_restart_what_runs() {
    let moved = update(|spec| {
        spec["nodeSelector"] = json!({"zone": "a"});
        spec["affinity"] = json!({"nodeAffinity": {}});
        spec["tolerations"] = json!([{"key": "k", "operator": "Exists"}]);
    });
    assert_eq!(moved.needs_restart, [] as [&str; 0]);
    assert_eq!(moved.spec.node_selector["zone"], "a");
}

#[test]
fn everything_else_waits_for_a_restart_and_is_said_by_name() {
    let update = update(|spec| {
        spec["domain"]["cpu"]["cores"] = json!(2);
        spec["hostname"] = json!("other");
        spec["domain"]["devices"]["disks"][0]["cache"] = json!("none");
        spec["domain"]["devices"]["rng"] = json!({});
    });
    assert_eq!(
        update.needs_restart,
        ["domain.cpu.cores", "domain.devices.disks[root].cache", "domain.devices.rng", "hostname"]
    );
}
