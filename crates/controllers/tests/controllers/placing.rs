//! Where instances go, and what they say until they can.

use serde_json::{Value, json};
use sheaf_testbed::kubectl::Kubectl;

use crate::{scenario::on_a_cluster, simulated_node::*};

async fn instance(kubectl: &Kubectl, name: &str) -> Value {
    kubectl.get(&format!("{VMIS}/{name}")).await.unwrap()
}

fn condition(object: &Value, sort: &str) -> Value {
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|condition| condition["type"] == sort).unwrap_or_default()
}

async fn word(kubectl: &Kubectl, name: &str) -> Value {
    kubectl.get(&format!("{VMS}/{name}")).await.unwrap()["status"]["printableStatus"].clone()
}

#[test]
fn a_machine_that_fits_nowhere_says_why_and_comes_up_when_there_is_room() {
    on_a_cluster(async |cluster, kubectl| {
        furnish_without_nodes(kubectl).await;
        add_node(kubectl, "n1", "1000Mi").await;
        play_agent(kubectl, "n1");
        for (name, number) in [("first", 1), ("second", 2)] {
            kubectl.create(VMS, &machine(name, number, "Always")).await;
            cluster.settle().await;
        }
        let waits = instance(kubectl, "second").await;
        assert_eq!(waits["status"]["phase"], "Scheduling");
        let unplaced = condition(&waits, "PodScheduled");
        assert_eq!((&unplaced["status"], &unplaced["reason"]), (&json!("False"), &json!("Unschedulable")));
        assert_eq!(
            unplaced["message"],
            "0/1 nodes are available: 1 Insufficient memory (asks for 682Mi, 318Mi left)."
        );
        assert_eq!(word(kubectl, "second").await, "ErrorUnschedulable");
        assert_eq!(reasons(kubectl, "VirtualMachineInstance", "second").await, ["FailedScheduling"]);
        kubectl.patch(&format!("{VMS}/first"), &json!({"spec": {"runStrategy": "Halted"}})).await;
        cluster.settle().await;
        assert_eq!(word(kubectl, "second").await, "Running");
        // The first one cannot come back: where its disk is there is no room.
        kubectl.patch(&format!("{VMS}/first"), &json!({"spec": {"runStrategy": "Always"}})).await;
        cluster.settle().await;
        assert_eq!(word(kubectl, "first").await, "ErrorUnschedulable", "its disk is where there is no room");
    });
}

#[test]
fn a_waiting_machine_is_placed_when_a_node_comes() {
    on_a_cluster(async |cluster, kubectl| {
        furnish_without_nodes(kubectl).await;
        kubectl.create(VMS, &machine("vm", 1, "Always")).await;
        cluster.settle().await;
        assert_eq!(
            condition(&instance(kubectl, "vm").await, "PodScheduled")["message"],
            "no nodes available to schedule pods"
        );
        add_node(kubectl, "n1", "8Gi").await;
        play_agent(kubectl, "n1");
        cluster.settle().await;
        let there = instance(kubectl, "vm").await;
        assert_eq!(there["status"]["phase"], "Running");
        assert_eq!(condition(&there, "PodScheduled"), Value::Null);
    });
}

#[test]
fn a_machine_whose_claim_is_missing_says_which() {
    on_a_cluster(async |cluster, kubectl| {
        furnish(kubectl).await;
        let mut vm = machine("vm", 1, "Always");
        vm["metadata"]["annotations"]["harvesterhci.io/volumeClaimTemplates"] = json!("[]");
        kubectl.create(VMS, &vm).await;
        cluster.settle().await;
        let waits = instance(kubectl, "vm").await;
        assert_eq!(waits["status"]["phase"], "Pending");
        let missing = condition(&waits, "Synchronized");
        assert_eq!(missing["reason"], "FailedPvcNotFound");
        assert_eq!(missing["message"], "PVC default/vm-root does not exist, waiting for it to appear");
        assert_eq!(word(kubectl, "vm").await, "ErrorPvcNotFound");
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "vm-root"},
            "spec": {"accessModes": ["ReadWriteMany"], "volumeMode": "Block", "storageClassName": CLASS,
                "resources": {"requests": {"storage": "1Gi"}}},
        });
        kubectl.create(CLAIMS, &claim).await;
        cluster.settle().await;
        assert_eq!(word(kubectl, "vm").await, "Running");
    });
}

#[test]
fn an_instance_that_is_deleted_before_it_had_a_node_is_let_go() {
    on_a_cluster(async |cluster, kubectl| {
        furnish_without_nodes(kubectl).await;
        kubectl.create(VMS, &machine("vm", 1, "Always")).await;
        cluster.settle().await;
        kubectl.patch(&format!("{VMS}/vm"), &json!({"spec": {"runStrategy": "Halted"}})).await;
        cluster.settle().await;
        assert!(kubectl.names(VMIS).await.is_empty());
        assert_eq!(word(kubectl, "vm").await, "Stopped");
        let status = kubectl.get(&format!("{VMS}/vm")).await.unwrap()["status"].clone();
        assert!(status["startFailure"].is_null(), "one that was told to go did not fail");
    });
}

#[test]
fn an_instance_goes_where_its_disk_is() {
    on_a_cluster(async |cluster, kubectl| {
        furnish(kubectl).await;
        kubectl.create(VMS, &machine("vm", 1, "Always")).await;
        cluster.settle().await;
        add_node(kubectl, "a-larger-one", "64Gi").await;
        play_agent(kubectl, "a-larger-one");
        let uid = instance(kubectl, "vm").await["metadata"]["uid"].clone();
        request(kubectl, "vm", json!([{"action": "Stop", "uid": uid}, {"action": "Start"}])).await;
        cluster.settle().await;
        let there = instance(kubectl, "vm").await;
        assert_ne!(there["metadata"]["uid"], uid);
        assert_eq!(there["status"]["nodeName"], "n1");
        // One without a disk goes where there is more room.
        let mut diskless = machine("diskless", 2, "Always");
        diskless["metadata"]["annotations"] = json!({"harvesterhci.io/vmRunStrategy": "Always"});
        diskless["spec"]["template"]["spec"]["volumes"] = json!([]);
        diskless["spec"]["template"]["spec"]["domain"]["devices"]["disks"] = json!([]);
        kubectl.create(VMS, &diskless).await;
        cluster.settle().await;
        assert_eq!(instance(kubectl, "diskless").await["status"]["nodeName"], "a-larger-one");
    });
}

#[test]
fn machines_of_guest_clusters_learn_where_they_are() {
    on_a_cluster(async |cluster, kubectl| {
        furnish(kubectl).await;
        let mut vm = machine("vm", 1, "Always");
        vm["spec"]["template"]["metadata"]["labels"]["harvesterhci.io/creator"] =
            json!("docker-machine-driver-harvester");
        kubectl.create(VMS, &vm).await;
        kubectl.create(VMS, &machine("plain", 2, "Always")).await;
        cluster.settle().await;
        let annotations = instance(kubectl, "vm").await["metadata"]["annotations"].clone();
        assert_eq!(annotations["topology.kubernetes.io/zone"], "z1");
        assert_eq!(annotations["kubernetes.io/hostname"], "n1");
        assert!(
            instance(kubectl, "plain").await["metadata"]["annotations"]["kubernetes.io/hostname"].is_null()
        );
        // They learn it again when their node is labelled otherwise, and only they.
        let plain = instance(kubectl, "plain").await["metadata"]["resourceVersion"].clone();
        let labels = json!({
            "topology.kubernetes.io/zone": "z2", "topology.kubernetes.io/region": "r1", "color": "blue",
        });
        kubectl.patch("/api/v1/nodes/n1", &json!({"metadata": {"labels": labels}})).await;
        cluster.settle().await;
        let annotations = instance(kubectl, "vm").await["metadata"]["annotations"].clone();
        assert_eq!(annotations["topology.kubernetes.io/zone"], "z2");
        assert_eq!(annotations["topology.kubernetes.io/region"], "r1");
        assert!(annotations["color"].is_null());
        let unlabelled = json!({"metadata": {"labels": {"topology.kubernetes.io/region": null}}});
        kubectl.patch("/api/v1/nodes/n1", &unlabelled).await;
        cluster.settle().await;
        let there = instance(kubectl, "vm").await;
        assert!(there["metadata"]["annotations"]["topology.kubernetes.io/region"].is_null());
        assert_eq!(there["metadata"]["annotations"]["kubernetes.io/hostname"], "n1");
        assert_eq!(instance(kubectl, "plain").await["metadata"]["resourceVersion"], plain);
    });
}
