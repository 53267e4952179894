//! Names that tenants write into specs and annotations stay names: whatever they say, they stop no controller, and what
//! carries them can be deleted.
//!
//! Admission refuses such names. Here they are stored behind its back, as by a release that let them in.

use serde_json::{Value, json};
use sheaf_testbed::kubectl::Kubectl;

use crate::{scenario::on_a_cluster, simulated_node::*};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const BALANCERS: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/default/loadbalancers";
/// What is written first and then replaced, in the store itself.
const PLACEHOLDER: &str = "placeholder-name";
/// The first of them once turned a read into a watch, which never ends.
const HOSTILE: [&str; 5] = ["x?watch=true&a=", "../../../../api/v1/namespaces/default", "..", "a%2fb", "a,b"];

fn claim(name: &str, more: &Value) -> Value {
    let mut claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Block", "storageClassName": CLASS,
            "resources": {"requests": {"storage": "1Gi"}}}});
    for (field, value) in more.as_object().unwrap() {
        claim["spec"][field] = value.clone();
    }
    claim
}

/// Objects of a tenant that each name another one, with their collections.
fn of_tenant() -> Vec<(&'static str, Value)> {
    let mut networked = machine("networked", 11, "Always");
    let spec = &mut networked["spec"]["template"]["spec"];
    spec["networks"] = json!([{"name": "nic", "multus": {"networkName": PLACEHOLDER}}]);
    spec["domain"]["devices"]["interfaces"] = json!([{"name": "nic", "bridge": {}}]);
    let mut ejected = machine("ejected", 12, "Always");
    ejected["metadata"]["annotations"]["sheaf.io/ejected-claims"] = PLACEHOLDER.into();
    ejected["metadata"]["annotations"]["harvesterhci.io/removedPersistentVolumeClaims"] = PLACEHOLDER.into();
    let mut imaged = claim("imaged", &json!({}));
    imaged["metadata"]["annotations"] = json!({"harvesterhci.io/imageId": format!("default/{PLACEHOLDER}")});
    let snapshot = |name: &str, spec: Value| {
        json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "metadata": {"name": name},
            "spec": spec})
    };
    let owned = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owned", "ownerReferences": [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": PLACEHOLDER, "uid": "11111111-2222-4333-8444-555555555555"}]}});
    let balancer = json!({"apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "LoadBalancer",
        "metadata": {"name": "balancer"}, "spec": {"workloadType": "vm", "ipam": "pool", "ipPool": PLACEHOLDER,
            "listeners": [{"name": "web", "port": 80, "protocol": "TCP", "backendPort": 80}],
            "backendServerSelector": {"app": ["web"]}}});
    vec![
        (VMS, networked),
        (VMS, ejected),
        (
            CLAIMS,
            claim("copied", &json!({"dataSource": {"kind": "PersistentVolumeClaim", "name": PLACEHOLDER}})),
        ),
        (CLAIMS, claim("bound", &json!({"volumeName": PLACEHOLDER}))),
        (CLAIMS, claim("classed", &json!({"storageClassName": PLACEHOLDER}))),
        (CLAIMS, imaged),
        (SNAPSHOTS, snapshot("of-claim", json!({"source": {"persistentVolumeClaimName": PLACEHOLDER}}))),
        (SNAPSHOTS, snapshot("of-content", json!({"source": {"volumeSnapshotContentName": PLACEHOLDER}}))),
        (
            SNAPSHOTS,
            snapshot(
                "of-class",
                json!({"source": {"persistentVolumeClaimName": "nothing"},
            "volumeSnapshotClassName": PLACEHOLDER}),
            ),
        ),
        (CONFIG_MAPS, owned),
        (BALANCERS, balancer),
    ]
}

async fn is_running(kubectl: &Kubectl, name: &str) -> bool {
    let vm = kubectl.get(&format!("{VMS}/{name}")).await.unwrap();
    vm["status"]["printableStatus"] == "Running"
}

#[test]
fn a_name_that_a_tenant_chose_stops_no_controller_and_can_be_deleted() {
    for hostile in HOSTILE {
        on_a_cluster(async |cluster, kubectl| {
            furnish(kubectl).await;
            let objects = of_tenant();
            for (collection, object) in &objects {
                kubectl.create(collection, object).await;
            }
            let rewritten = cluster.rewrite_stored(PLACEHOLDER, hostile).await;
            assert!(rewritten >= objects.len() - 1, "{rewritten} objects were rewritten");
            cluster.settle().await;

            // Another tenant does not notice.
            kubectl.create(VMS, &machine("honest", 1, "Always")).await;
            let orphan = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "orphan",
                "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone",
                    "uid": "99999999-2222-4333-8444-555555555555"}]}});
            kubectl.create(CONFIG_MAPS, &orphan).await;
            cluster.settle().await;
            assert!(is_running(kubectl, "honest").await, "{hostile}: a machine of another tenant runs");
            for name in ["orphan", "owned"] {
                let garbage = kubectl.get(&format!("{CONFIG_MAPS}/{name}")).await;
                assert_eq!(garbage, None, "{hostile}: {name} has no owner and is collected");
            }

            for (collection, object) in &objects {
                let path = format!("{collection}/{}", object["metadata"]["name"].as_str().unwrap());
                if kubectl.get(&path).await.is_some() {
                    kubectl.delete(&path, "Background").await;
                }
            }
            cluster.settle().await;
            for (collection, object) in &objects {
                let path = format!("{collection}/{}", object["metadata"]["name"].as_str().unwrap());
                assert_eq!(kubectl.get(&path).await, None, "{hostile}: {path} can be deleted");
            }
            assert!(is_running(kubectl, "honest").await, "{hostile}: it still does");
        });
    }
}
