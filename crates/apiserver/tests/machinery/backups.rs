//! Snapshots, backups of machines and their restores: what is given, and what is refused at the door.

use serde_json::{Value, json};
use sheaf_apiserver::identity::{AUTHENTICATED, User};

use crate::{
    house::{Answer, House},
    machine::{CLAIMS, INSTANCES, MACHINES, claim, instance, machine, on_network, with_claim},
};

const SNAPSHOTS: &str = "/apis/snapshot.storage.k8s.io/v1/namespaces/default/volumesnapshots";
const CLASSES: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotclasses";
const BACKUPS: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinebackups";
const RESTORES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinerestores";

#[track_caller]
fn refused(answer: &Answer, words: &str) {
    assert_eq!(answer.refusal().0, 422, "{:#}", answer.body);
    assert!(answer.message().contains(words), "{}", answer.message());
}

fn target(name: &str) -> Value {
    json!({"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": name})
}

fn backup(name: &str, vm: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"type": "snapshot", "source": target(vm)}})
}

fn restore(name: &str, vm: &str, new: bool) -> Value {
    json!({"metadata": {"name": name}, "spec": {"target": target(vm), "newVM": new, "deletionPolicy": "retain",
        "virtualMachineBackupName": "b", "virtualMachineBackupNamespace": "default"}})
}

/// A machine that is off, and a backup of it.
async fn house() -> House {
    let house = House::new().await;
    house.post(CLAIMS, claim("disk")).await.ok();
    let mut vm = with_claim(machine("vm"), "disk");
    vm["spec"]["runStrategy"] = json!("Halted");
    let vm = house.post(MACHINES, vm).await.ok();
    house.post(BACKUPS, backup("b", "vm")).await.ok();
    let done = json!({"status": {"readyToUse": true, "sourceUID": vm["metadata"]["uid"],
        "source": {"metadata": {"name": "vm"}, "spec": vm["spec"]}}});
    house.patch(&format!("{BACKUPS}/b"), "merge-patch", done).await.ok();
    house
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_names_no_class_is_of_the_default_one() {
    let house = House::new().await;
    let names: Vec<Value> = house.get(CLASSES).await.ok()["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|class| json!([class["metadata"]["name"], class["parameters"]["type"], class["deletionPolicy"]]))
        .collect();
    assert_eq!(json!(names), json!([["longhorn", "bak", "Delete"], ["longhorn-snapshot", "snap", "Delete"]]));
    let snapshot = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {"source": {"persistentVolumeClaimName": "disk"}},
            "status": {"readyToUse": true}})
    };
    let made = house.post(SNAPSHOTS, snapshot("one")).await.ok();
    assert_eq!(made["spec"]["volumeSnapshotClassName"], "longhorn-snapshot");
    assert!(made["status"].is_null(), "how it stands is not its maker's to say");
    let ready = json!({"status": {"readyToUse": true}});
    let after = house.patch(&format!("{SNAPSHOTS}/one"), "merge-patch", ready).await.ok();
    assert!(after["status"].is_null());
    let undefault =
        json!({"metadata": {"annotations": {"snapshot.storage.kubernetes.io/is-default-class": "false"}}});
    house.patch(&format!("{CLASSES}/longhorn-snapshot"), "merge-patch", undefault).await.ok();
    let made = house.post(SNAPSHOTS, snapshot("two")).await.ok();
    assert!(made["spec"]["volumeSnapshotClassName"].is_null());
}

#[tokio::test(start_paused = true)]
async fn a_backup_is_of_a_machine_that_is_there_with_disks_that_can_be_snapshotted() {
    let house = house().await;
    refused(&house.post(BACKUPS, backup("c", "nobody")).await, "\"nobody\" not found");
    let mut remote = backup("c", "vm");
    remote["spec"]["type"] = json!("backup");
    refused(&house.post(BACKUPS, remote).await, "backup target is not set");
    house.post(MACHINES, with_claim(machine("bare"), "missing")).await.ok();
    refused(&house.post(BACKUPS, backup("c", "bare")).await, "failed to get PVC default/missing");
    refused(&house.post(BACKUPS, backup(&"x".repeat(250), "vm")).await, "would have no name");
    let setting = "/apis/harvesterhci.io/v1beta1/settings/csi-driver-config";
    let none = json!({"value": r#"{"driver.longhorn.io":{"volumeSnapshotClassName":""}}"#});
    house.patch(setting, "merge-patch", none).await.ok();
    refused(&house.post(BACKUPS, backup("c", "vm")).await, "has no volumeSnapshotClassName");
}

#[tokio::test(start_paused = true)]
async fn how_a_backup_stands_is_said_by_controllers_alone() {
    let mut house = house().await;
    let admin = json!({"metadata": {"name": "maker"}, "subjects": [{"kind": "User", "name": "maker",
        "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "harvesterhci.io:edit"}});
    house.post("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", admin).await.ok();
    house.user = User { name: "maker".into(), groups: vec![AUTHENTICATED.into()], ..User::default() };
    let mut forged = backup("forged", "vm");
    forged["status"] = json!({"readyToUse": true, "sourceUID": "u"});
    assert!(house.post(BACKUPS, forged).await.ok()["status"].is_null());
    let forged = json!({"status": {"secretBackups": [{"name": "x", "secretName": "somebody-elses"}]}});
    let after = house.patch(&format!("{BACKUPS}/b"), "merge-patch", forged.clone()).await.ok();
    assert!(after["status"]["secretBackups"].is_null() && after["status"]["readyToUse"] == true);
    let mut complete = restore("r", "copy", true);
    complete["status"] = json!({"complete": true});
    assert!(house.post(RESTORES, complete).await.ok()["status"].is_null());
}

#[tokio::test(start_paused = true)]
async fn a_restore_is_of_a_backup_that_is_ready_and_may_be_read() {
    let mut house = house().await;
    let with = |field: &str, value: Value| {
        let mut odd = restore("r", "copy", true);
        odd["spec"][field] = value;
        odd
    };
    let missing = house.post(RESTORES, with("virtualMachineBackupName", json!("nothing"))).await;
    refused(&missing, "can't get vmbackup default/nothing");
    house.post(BACKUPS, backup("unready", "vm")).await.ok();
    let unready = house.post(RESTORES, with("virtualMachineBackupName", json!("unready"))).await;
    refused(&unready, "VMBackup default/unready is not ready");
    house.post("/api/v1/namespaces", json!({"metadata": {"name": "room"}})).await.ok();
    let elsewhere = RESTORES.replace("/default/", "/room/");
    refused(&house.post(&elsewhere, restore("r", "copy", true)).await, "restore to other namespace");
    // Whoever may make restores in a room learns nothing about backups in another.
    let role = json!({"metadata": {"name": "maker"}, "subjects": [{"kind": "User", "name": "maker",
        "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "harvesterhci.io:edit"}});
    house.post("/apis/rbac.authorization.k8s.io/v1/namespaces/room/rolebindings", role).await.ok();
    house.user = User { name: "maker".into(), groups: vec![AUTHENTICATED.into()], ..User::default() };
    for name in ["b", "nothing"] {
        let mut guess = restore("r", "copy", true);
        guess["spec"]["virtualMachineBackupName"] = json!(name);
        let answer = house.post(&elsewhere, guess).await;
        assert_eq!(answer.refusal(), (403, "Forbidden"));
        assert!(answer.message().contains(&format!("not authorized to access VMBackup default/{name}")));
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_replaced_while_it_is_off_and_made_where_none_is() {
    let house = house().await;
    refused(&house.post(RESTORES, restore("r", "vm", true)).await, "VM vm is already exists");
    refused(
        &house.post(RESTORES, restore("r", "nobody", false)).await,
        "can't replace nonexistent vm nobody",
    );
    let mut deleting = restore("r", "vm", false);
    deleting["spec"]["deletionPolicy"] = json!("delete");
    refused(&house.post(RESTORES, deleting).await, "delete policy with backup type snapshot");
    let mut keeping = restore("r", "copy", true);
    keeping["spec"]["keepMacAddress"] = json!(true);
    refused(&house.post(RESTORES, keeping).await, "source vm is still existent");
    let mut running = instance("vm");
    running["status"] = json!({"phase": "Running"});
    house.post(INSTANCES, running).await.ok();
    refused(
        &house.post(RESTORES, restore("r", "vm", false)).await,
        "Please stop the VM \"vm\" before doing a restore",
    );
    let over = json!({"status": {"phase": "Succeeded"}});
    house.patch(&format!("{INSTANCES}/vm"), "merge-patch", over).await.ok();
    house.post(RESTORES, restore("r", "vm", false)).await.ok();
    refused(
        &house.post(RESTORES, restore("s", "vm", false)).await,
        "Please wait for the previous VM restore",
    );
    // What is being restored from stays.
    let busy = json!({"status": {"conditions": [{"type": "InProgress", "status": "True"}]}});
    house.patch(&format!("{RESTORES}/r"), "merge-patch", busy).await.ok();
    refused(&house.delete(&format!("{BACKUPS}/b")).await, "vmrestore default/r is in progress");
    let done =
        json!({"status": {"complete": true, "conditions": [{"type": "InProgress", "status": "False"}]}});
    house.patch(&format!("{RESTORES}/r"), "merge-patch", done).await.ok();
    house.delete(&format!("{BACKUPS}/b")).await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_restore_to_networks_that_are_gone_is_refused() {
    let house = house().await;
    let vm = on_network(machine("vm"), "vlan7");
    let was = json!({"status": {"source": {"metadata": {"name": "vm"}, "spec": vm["spec"]}}});
    house.patch(&format!("{BACKUPS}/b"), "merge-patch", was).await.ok();
    let answer = house.post(RESTORES, restore("r", "copy", true)).await;
    refused(&answer, "failed to get network attachment definition vlan7");
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_not_stopped_while_it_is_being_backed_up() {
    let house = house().await;
    let vm = format!("{MACHINES}/vm");
    house.patch(&vm, "merge-patch", json!({"spec": {"runStrategy": "RerunOnFailure"}})).await.ok();
    let pending = json!({"status": {"readyToUse": false}});
    house.patch(&format!("{BACKUPS}/b"), "merge-patch", pending).await.ok();
    let stop = json!({"spec": {"runStrategy": "Halted"}});
    let words = "there is vmbackup in progress for vm default/vm";
    let answer = house.patch(&vm, "merge-patch", stop.clone()).await;
    assert!(answer.code == 400 && answer.message().contains(words), "{:#}", answer.body);
    let restart =
        json!({"status": {"stateChangeRequests": [{"action": "Stop", "uid": "u"}, {"action": "Start"}]}});
    let answer = house.patch(&format!("{vm}/status"), "merge-patch", restart).await;
    assert!(answer.code == 400 && answer.message().contains(words), "{:#}", answer.body);
    house.patch(&vm, "merge-patch", json!({"metadata": {"labels": {"a": "b"}}})).await.ok();
    let failed = json!({"status": {"error": {"message": "no room"}}});
    house.patch(&format!("{BACKUPS}/b"), "merge-patch", failed).await.ok();
    house.patch(&vm, "merge-patch", stop).await.ok();
}
