//! How much snapshots may take: reached, and not passed.

use serde_json::{Value, json};
use sheaf_apiserver::identity::{AUTHENTICATED, User};

use crate::{
    house::{Answer, House},
    machine::{CLAIMS, MACHINES, claim, machine, with_claim},
};

const QUOTAS: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/resourcequotas";
const BACKUPS: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinebackups";
const SNAPSHOTS: &str = "/apis/snapshot.storage.k8s.io/v1/namespaces/default/volumesnapshots";
const GIB: i64 = 1 << 30;

#[track_caller]
fn refused(answer: &Answer, words: &str) {
    assert_eq!(answer.refusal(), (422, "Invalid"), "{:#}", answer.body);
    assert!(answer.message().contains(words), "{}", answer.message());
}

fn backup(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"type": "snapshot",
        "source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "vm"}}})
}

fn snapshot(name: &str, claim: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"source": {"persistentVolumeClaimName": claim}}})
}

/// A machine with a disk of 1 GiB, a disk of nobody's, and limits.
async fn house(namespace: i64, machine_limit: i64) -> House {
    let house = House::new().await;
    for name in ["disk", "free"] {
        house.post(CLAIMS, claim(name)).await.ok();
    }
    house.post(MACHINES, with_claim(machine("vm"), "disk")).await.ok();
    let limit = json!({"namespaceTotalSnapshotSizeQuota": namespace * GIB,
        "vmTotalSnapshotSizeQuota": {"vm": machine_limit * GIB}});
    let quota = json!({"metadata": {"name": "default-resource-quota"}, "spec": {"snapshotLimit": limit}});
    house.post(QUOTAS, quota).await.ok();
    house
}

#[tokio::test(start_paused = true)]
async fn a_backup_is_refused_once_its_machines_limit_is_used_up() {
    let house = house(0, 2).await;
    house.post(BACKUPS, backup("a")).await.ok();
    house.post(BACKUPS, backup("b")).await.ok();
    refused(
        &house.post(BACKUPS, backup("c")).await,
        "total snapshot size limit 2Gi is less than total snapshot usage 3Gi",
    );
    refused(&house.post(SNAPSHOTS, snapshot("s", "disk")).await, "snapshots of VM vm take 2Gi");
    house.post(SNAPSHOTS, snapshot("s", "free")).await.ok();
    house.delete(&format!("{BACKUPS}/a")).await.ok();
    house.post(BACKUPS, backup("c")).await.ok();
}

#[tokio::test(start_paused = true)]
async fn single_snapshots_count_against_the_namespace() {
    let house = house(2, 0).await;
    house.post(SNAPSHOTS, snapshot("s", "free")).await.ok();
    house.post(BACKUPS, backup("a")).await.ok();
    refused(&house.post(BACKUPS, backup("b")).await, "snapshots of the namespace take 2Gi");
    refused(&house.post(SNAPSHOTS, snapshot("t", "free")).await, "this one would take 1Gi more");
    let none = json!({"spec": {"snapshotLimit": {"namespaceTotalSnapshotSizeQuota": 0}}});
    house.patch(&format!("{QUOTAS}/default-resource-quota"), "merge-patch", none).await.ok();
    house.post(BACKUPS, backup("b")).await.ok();
}

#[tokio::test(start_paused = true)]
async fn who_has_a_namespace_reads_its_limits_and_does_not_set_them() {
    let mut house = house(1, 0).await;
    refused(&house.post(QUOTAS, json!({"metadata": {"name": "mine"}})).await, "Unsupported value: \"mine\"");
    let role = json!({"metadata": {"name": "tenant"}, "subjects": [{"kind": "User", "name": "tenant",
        "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "harvesterhci.io:view"}});
    house.post("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", role).await.ok();
    house.user = User { name: "tenant".into(), groups: vec![AUTHENTICATED.into()], ..User::default() };
    let uri = format!("{QUOTAS}/default-resource-quota");
    house.get(&uri).await.ok();
    let more = json!({"spec": {"snapshotLimit": {"namespaceTotalSnapshotSizeQuota": 0}}});
    assert_eq!(house.patch(&uri, "merge-patch", more).await.refusal().0, 403);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_says_it_is_a_backups_is_counted_all_the_same() {
    let house = house(1, 0).await;
    let backup = house.post(BACKUPS, backup("a")).await.ok();
    let mut forged = snapshot("s", "free");
    forged["metadata"]["ownerReferences"] = json!([{"apiVersion": "harvesterhci.io/v1beta1",
        "kind": "VirtualMachineBackup", "name": "a", "uid": backup["metadata"]["uid"]}]);
    refused(&house.post(SNAPSHOTS, forged).await, "snapshots of the namespace take 1Gi");
}
