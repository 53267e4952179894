//! How claims get their volumes, and what becomes of these.

use http::Method;
use serde_json::{Value, json};
use sheaf_testbed::kubectl::Kubectl;

use crate::{
    scenario::{Scenario, on_a_cluster},
    simulated_node::*,
};

fn claim(name: &str, class: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteMany"], "volumeMode": "Block", "storageClassName": class,
            "resources": {"requests": {"storage": "1Gi"}}},
    })
}

async fn phase(kubectl: &Kubectl, name: &str) -> Value {
    kubectl.get(&format!("{CLAIMS}/{name}")).await.unwrap()["status"]["phase"].clone()
}

async fn volume_of(kubectl: &Kubectl, name: &str) -> Value {
    let claim = kubectl.get(&format!("{CLAIMS}/{name}")).await.unwrap();
    kubectl.get(&format!("{VOLUMES}/{}", claim["spec"]["volumeName"].as_str().unwrap())).await.unwrap()
}

async fn grow(kubectl: &Kubectl, name: &str, size: &str) {
    let requests = json!({"storage": size});
    kubectl.patch(&format!("{CLAIMS}/{name}"), &json!({"spec": {"resources": {"requests": requests}}})).await;
}

fn life() -> Scenario<impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl)> {
    Scenario {
        prepared: async |kubectl: &Kubectl| {
            furnish(kubectl).await;
            for name in ["grows", "goes"] {
                kubectl.create(CLAIMS, &claim(name, CLASS)).await;
            }
        },
        happens: async |kubectl: &Kubectl| {
            kubectl.create(CLAIMS, &claim("comes", CLASS)).await;
            grow(kubectl, "grows", "2Gi").await;
            kubectl.delete(&format!("{CLAIMS}/goes"), "Background").await;
        },
        ends: async |kubectl: &Kubectl| {
            assert_eq!(kubectl.names(CLAIMS).await, ["comes", "grows"]);
            assert_eq!(kubectl.names(VOLUMES).await.len(), 2);
            for (name, size) in [("comes", "1Gi"), ("grows", "2Gi")] {
                let claim = kubectl.get(&format!("{CLAIMS}/{name}")).await.unwrap();
                assert_eq!(
                    (&claim["status"]["phase"], &claim["status"]["capacity"]["storage"]),
                    (&json!("Bound"), &json!(size))
                );
                assert_eq!(
                    claim["metadata"]["annotations"]["volume.kubernetes.io/storage-provisioner"],
                    "driver.longhorn.io"
                );
                let volume = volume_of(kubectl, name).await;
                let uid = claim["metadata"]["uid"].as_str().unwrap();
                assert_eq!(volume["metadata"]["name"], format!("pvc-{uid}"));
                assert_eq!(volume["spec"]["csi"]["volumeHandle"], format!("pvc-{uid}"));
                assert_eq!(volume["spec"]["csi"]["volumeAttributes"], json!({"sheaf.io/backend": "local"}));
                assert_eq!(
                    (&volume["status"]["phase"], &volume["spec"]["capacity"]["storage"]),
                    (&json!("Bound"), &json!(size))
                );
            }
        },
    }
}

#[test]
fn claims_are_bound_grown_and_let_go_with_their_volumes() {
    life().arrives_and_rests();
    life().arrives_however_interrupted();
}

#[test]
fn a_claim_that_an_instance_uses_stays_until_it_is_over() {
    on_a_cluster(async |cluster, kubectl| {
        furnish_without_nodes(kubectl).await;
        add_node(kubectl, "n1", "8Gi").await;
        kubectl.create(CLAIMS, &claim("vm-root", CLASS)).await;
        let spec = machine("vm", 1, "Always")["spec"]["template"]["spec"].clone();
        let bare = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "vm"}, "spec": spec,
        });
        kubectl.create(VMIS, &bare).await;
        cluster.settle().await;
        // Of a claim whose machine is not on its way out the deletion would be refused.
        kubectl.delete(&format!("{VMIS}/vm"), "Background").await;
        kubectl.delete(&format!("{CLAIMS}/vm-root"), "Background").await;
        cluster.settle().await;
        assert_eq!(kubectl.names(CLAIMS).await, ["vm-root"]);
        play_agent(kubectl, "n1");
        cluster.settle().await;
        assert!(kubectl.names(CLAIMS).await.is_empty());
        assert!(kubectl.names(VOLUMES).await.is_empty());
    });
}

#[test]
fn a_volume_on_a_node_goes_only_when_the_node_has_removed_its_bytes() {
    on_a_cluster(async |cluster, kubectl| {
        furnish_without_nodes(kubectl).await;
        kubectl.create(CLAIMS, &claim("disk", CLASS)).await;
        cluster.settle().await;
        let volume = volume_of(kubectl, "disk").await["metadata"]["name"].as_str().unwrap().to_owned();
        let expression = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]});
        let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}});
        kubectl.patch(&format!("{VOLUMES}/{volume}"), &json!({"spec": {"nodeAffinity": affinity}})).await;
        kubectl.delete(&format!("{CLAIMS}/disk"), "Background").await;
        cluster.settle().await;
        let left = kubectl.get(&format!("{VOLUMES}/{volume}")).await.unwrap();
        assert_eq!(left["metadata"]["finalizers"], json!(["sheaf.io/volume-data"]));
        play_agent(kubectl, "n1");
        cluster.settle().await;
        assert!(kubectl.names(VOLUMES).await.is_empty());
    });
}

#[test]
fn a_retained_volume_stays_and_a_claim_of_the_old_name_gets_another() {
    on_a_cluster(async |cluster, kubectl| {
        furnish_without_nodes(kubectl).await;
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "kept"},
            "provisioner": "driver.longhorn.io", "reclaimPolicy": "Retain",
        });
        kubectl.create(CLASSES, &class).await;
        kubectl.create(CLAIMS, &claim("disk", "kept")).await;
        cluster.settle().await;
        let first = volume_of(kubectl, "disk").await["metadata"]["name"].clone();
        kubectl.delete(&format!("{CLAIMS}/disk"), "Background").await;
        cluster.settle().await;
        kubectl.create(CLAIMS, &claim("disk", "kept")).await;
        cluster.settle().await;
        assert_ne!(volume_of(kubectl, "disk").await["metadata"]["name"], first);
        let kept = kubectl.get(&format!("{VOLUMES}/{}", first.as_str().unwrap())).await.unwrap();
        assert_eq!(kept["status"]["phase"], "Released");
        // Its class does not let it grow, and it says so.
        grow(kubectl, "disk", "2Gi").await;
        cluster.settle().await;
        assert!(
            reasons(kubectl, "PersistentVolumeClaim", "disk").await.contains(&"VolumeResizeFailed".into())
        );
        assert_eq!(volume_of(kubectl, "disk").await["spec"]["capacity"]["storage"], "1Gi");
    });
}

#[test]
fn a_patient_claim_waits_for_its_first_machine_and_one_of_no_class_for_its_class() {
    on_a_cluster(async |cluster, kubectl| {
        furnish(kubectl).await;
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "patient"},
            "provisioner": "driver.longhorn.io", "volumeBindingMode": "WaitForFirstConsumer",
        });
        kubectl.create(CLAIMS, &claim("vm-root", "patient")).await;
        cluster.settle().await;
        assert_eq!(reasons(kubectl, "PersistentVolumeClaim", "vm-root").await, ["ProvisioningFailed"]);
        kubectl.create(CLASSES, &class).await;
        cluster.settle().await;
        assert_eq!(phase(kubectl, "vm-root").await, "Pending");
        assert!(
            reasons(kubectl, "PersistentVolumeClaim", "vm-root")
                .await
                .contains(&"WaitForFirstConsumer".into())
        );
        kubectl.create(VMS, &machine("vm", 1, "Always")).await;
        cluster.settle().await;
        assert_eq!(phase(kubectl, "vm-root").await, "Bound");
        let there = kubectl.get(&format!("{VMIS}/vm")).await.unwrap();
        assert_eq!(there["status"]["phase"], "Running");
        assert!(volume_of(kubectl, "vm-root").await["spec"]["nodeAffinity"].to_string().contains("\"n1\""));
    });
}

#[test]
fn the_claims_of_a_machine_grow_with_its_annotation_and_never_shrink() {
    on_a_cluster(async |cluster, kubectl| {
        furnish(kubectl).await;
        let vm = machine("vm", 1, "Halted");
        kubectl.create(VMS, &vm).await;
        cluster.settle().await;
        let annotation =
            vm["metadata"]["annotations"]["harvesterhci.io/volumeClaimTemplates"].as_str().unwrap();
        let larger = json!({"metadata": {"annotations": {
            "harvesterhci.io/volumeClaimTemplates": annotation.replace("1Gi", "3Gi")}}});
        kubectl.patch(&format!("{VMS}/vm"), &larger).await;
        cluster.settle().await;
        let claim = kubectl.get(&format!("{CLAIMS}/vm-root")).await.unwrap();
        assert_eq!(claim["status"]["capacity"]["storage"], "3Gi");
        grow(kubectl, "vm-root", "5Gi").await;
        cluster.settle().await;
        let claim = kubectl.get(&format!("{CLAIMS}/vm-root")).await.unwrap();
        assert_eq!(claim["spec"]["resources"]["requests"]["storage"], "5Gi");
    });
}

#[test]
fn a_volume_that_is_on_a_node_has_grown_when_the_node_says_so() {
    on_a_cluster(async |cluster, kubectl| {
        furnish(kubectl).await;
        kubectl.create(VMS, &machine("vm", 1, "Always")).await;
        cluster.settle().await;
        grow(kubectl, "vm-root", "2Gi").await;
        cluster.settle().await;
        let path = format!("{CLAIMS}/vm-root");
        let status = kubectl.get(&path).await.unwrap()["status"].clone();
        assert_eq!(status["capacity"]["storage"], "1Gi", "a running machine keeps the disk it has");
        assert_eq!(status["conditions"][0]["type"], "FileSystemResizePending");
        let volume = volume_of(kubectl, "vm-root").await;
        assert_eq!(volume["spec"]["capacity"]["storage"], "2Gi", "which is what its node makes of it");
        let grown = json!({"metadata": {"annotations": {"sheaf.io/grown-to": "2147483648"}}});
        kubectl.patch(&format!("{VOLUMES}/{}", volume["metadata"]["name"].as_str().unwrap()), &grown).await;
        cluster.settle().await;
        let status = kubectl.get(&path).await.unwrap()["status"].clone();
        assert_eq!((&status["capacity"]["storage"], &status["conditions"]), (&json!("2Gi"), &json!([])));
    });
}

#[test]
fn nobody_but_the_cluster_writes_pods() {
    on_a_cluster(async |_, kubectl| {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "mine"}, "spec": {"containers": []}});
        assert_eq!(kubectl.try_it(Method::POST, PODS, Some(&pod)).await.0, 405);
    });
}

fn ejecting() -> Scenario<impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl)> {
    Scenario {
        prepared: async |kubectl: &Kubectl| {
            furnish(kubectl).await;
            kubectl.create(VMS, &machine("vm", 1, "Halted")).await;
            for name in ["disc", "other"] {
                kubectl.create(CLAIMS, &claim(name, CLASS)).await;
            }
        },
        happens: async |kubectl: &Kubectl| {
            // As `ejectCdRomVolume` leaves it: one write.
            let noted =
                json!({"metadata": {"annotations": {"sheaf.io/ejected-claims": "disc,gone,vm-root"}}});
            kubectl.patch(&format!("{VMS}/vm"), &noted).await;
        },
        ends: async |kubectl: &Kubectl| {
            assert_eq!(kubectl.names(CLAIMS).await, ["other", "vm-root"], "what is in it is not out of it");
            let vm = kubectl.get(&format!("{VMS}/vm")).await.unwrap();
            assert!(vm["metadata"]["annotations"]["sheaf.io/ejected-claims"].is_null(), "{vm}");
        },
    }
}

#[test]
fn the_claim_of_an_ejected_disc_goes_however_interrupted() {
    ejecting().arrives_and_rests();
    ejecting().arrives_however_interrupted();
}
