//! That a quota of Harvester's says what the snapshots of its namespace take.

use serde_json::{Value, json};
use sheaf_testbed::kubectl::Kubectl;

use crate::{
    scenario::{Scenario, on_a_cluster},
    simulated_node::*,
};

const QUOTAS: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/resourcequotas";

fn backup(name: &str) -> Value {
    json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineBackup", "metadata": {"name": name},
        "spec": {"type": "snapshot", "source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "vm"}},
    })
}

async fn limit(kubectl: &Kubectl) {
    let quota = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "ResourceQuota",
        "metadata": {"name": "default-resource-quota"},
        "spec": {"snapshotLimit": {"namespaceTotalSnapshotSizeQuota": 100_i64 << 30}}});
    kubectl.create(QUOTAS, &quota).await;
}

async fn usage(kubectl: &Kubectl) -> Value {
    let quota = kubectl.get(&format!("{QUOTAS}/default-resource-quota")).await.unwrap();
    quota["status"]["snapshotLimitStatus"].clone()
}

/// Bytes of the machine's only disk.
async fn disk(kubectl: &Kubectl) -> i64 {
    let claim = kubectl.get(&format!("{CLAIMS}/vm-root")).await.unwrap();
    let said = claim["status"]["capacity"]["storage"].as_str().unwrap().to_owned();
    said.strip_suffix("Gi").unwrap().parse::<i64>().unwrap() << 30
}

fn backing_up() -> Scenario<impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl)> {
    Scenario {
        prepared: async |kubectl: &Kubectl| {
            furnish(kubectl).await;
            kubectl.create(VMS, &machine("vm", 1, "Always")).await;
        },
        happens: async |kubectl: &Kubectl| {
            limit(kubectl).await;
            kubectl.create(BACKUPS, &backup("b")).await;
        },
        ends: async |kubectl: &Kubectl| {
            let bytes = disk(kubectl).await;
            let expected =
                json!({"namespaceTotalSnapshotSizeUsage": bytes, "vmTotalSnapshotSizeUsage": {"vm": bytes}});
            assert_eq!(usage(kubectl).await, expected);
        },
    }
}

#[test]
fn a_quota_says_what_snapshots_take() {
    backing_up().arrives_and_rests();
    backing_up().arrives_however_interrupted();
}

#[test]
fn what_is_gone_is_no_longer_counted() {
    on_a_cluster(async |cluster, kubectl| {
        furnish(kubectl).await;
        limit(kubectl).await;
        kubectl.create(VMS, &machine("vm", 1, "Always")).await;
        cluster.settle().await;
        let one = json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
            "metadata": {"name": "s"}, "spec": {"source": {"persistentVolumeClaimName": "vm-root"}}});
        kubectl.create(SNAPSHOTS, &one).await;
        kubectl.create(BACKUPS, &backup("b")).await;
        cluster.settle().await;
        assert_eq!(usage(kubectl).await["vmTotalSnapshotSizeUsage"]["vm"], 2 * disk(kubectl).await);
        kubectl.delete(&format!("{SNAPSHOTS}/s"), "Background").await;
        kubectl.delete(&format!("{BACKUPS}/b"), "Background").await;
        cluster.settle().await;
        assert_eq!(usage(kubectl).await, json!({}));
    });
}
