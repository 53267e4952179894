//! A node's own object and Lease, kept against a real API server in virtual time, as the node itself.

// clippy.toml allows it inside test functions only, and these tests have helpers.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use serde_json::json;
use sheaf_agent::{
    Settings,
    host::HostView,
    node::{APART_CONDITION, KVM_CONDITION, NodeKeeper, TAPS_CONDITION},
    virtualisation::Virtualisation,
};
use sheaf_hypervisor::{Capabilities, KvmVerdict, capabilities::Version};
use sheaf_testbed::{Cluster, in_virtual_time, kubectl::Kubectl};

const NODE: &str = "/api/v1/nodes/n1";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1";

fn settings(kvm: KvmVerdict) -> Settings {
    Settings {
        name: "n1".into(),
        address: "192.0.2.7".into(),
        stream_port: Some(10250),
        version: "v1.34.0+sheaf".into(),
        host: HostView::new(std::env::temp_dir()),
        virtualisation: Virtualisation {
            qemu: Ok(capabilities()),
            kvm,
            no_taps: None,
            not_apart: Some("all machines run as user id 7".into()),
        },
        allow_local_images: false,
    }
}

fn capabilities() -> Capabilities {
    Capabilities {
        version: Version { major: 7, minor: 2, micro: 0 },
        machine_types: vec!["pc-q35-7.2".into()],
        default_machine_type: "pc-q35-7.2".into(),
        cpu_models: Vec::new(),
        io_uring: false,
        native_aio: true,
    }
}

fn no_kvm() -> KvmVerdict {
    KvmVerdict::Unusable { reason: "the processor offers no virtualisation".into() }
}

async fn on_a_node(story: impl AsyncFnOnce(&mut NodeKeeper, &Kubectl)) {
    let cluster = Cluster::start(1).await;
    let client = cluster.client_of("system:node:n1", &["system:nodes", "system:authenticated"]);
    let mut keeper = NodeKeeper::new(client, cluster.world.clone(), settings(no_kvm()));
    story(&mut keeper, &Kubectl(cluster.client())).await;
}

fn condition(node: &serde_json::Value, kind: &str) -> serde_json::Value {
    let conditions = node["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|condition| condition["type"] == kind).unwrap().clone()
}

#[test]
fn a_node_says_what_it_is_and_that_it_lives() {
    in_virtual_time(on_a_node(async |keeper, kubectl| {
        keeper.look_once().await.unwrap();
        let node = kubectl.get(NODE).await.unwrap();
        assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], "n1");
        assert_eq!(node["metadata"]["labels"]["harvesterhci.io/managed"], "true");
        assert_eq!(node["status"]["addresses"][0], json!({"type": "InternalIP", "address": "192.0.2.7"}));
        assert_eq!(node["status"]["nodeInfo"]["containerRuntimeVersion"], "qemu://7.2.0");
        assert_eq!(node["status"]["capacity"]["devices.kubevirt.io/kvm"], "0");
        assert_ne!(node["status"]["capacity"]["memory"], "0Ki");
        let volumes = |field: &str| {
            let said = node["status"][field]["sheaf.io/volume-storage"].as_str().unwrap();
            said.trim_end_matches("Ki").parse::<u64>().unwrap()
        };
        assert!(0 < volumes("allocatable") && volumes("allocatable") < volumes("capacity"), "{node}");
        let disk = condition(&node, "DiskPressure");
        assert!(disk["message"].as_str().unwrap().contains('%'), "{disk}");
        assert_eq!(condition(&node, "Ready")["status"], "True");
        let kvm = condition(&node, KVM_CONDITION);
        assert_eq!((&kvm["status"], &kvm["reason"]), (&json!("False"), &json!("SoftwareEmulation")));
        assert!(kvm["message"].as_str().unwrap().contains("the processor offers no virtualisation"));
        assert_eq!(condition(&node, TAPS_CONDITION)["status"], "True");
        let apart = condition(&node, APART_CONDITION);
        assert_eq!((&apart["status"], &apart["reason"]), (&json!("False"), &json!("NotRoot")));
        assert_eq!(apart["message"], "all machines run as user id 7");
        assert_eq!(kubectl.get(LEASE).await.unwrap()["spec"]["holderIdentity"], "n1");
    }));
}

#[test]
fn a_node_at_rest_renews_its_lease_and_writes_no_status() {
    in_virtual_time(on_a_node(async |keeper, kubectl| {
        keeper.look_once().await.unwrap();
        let (node, lease) = (kubectl.get(NODE).await.unwrap(), kubectl.get(LEASE).await.unwrap());
        tokio::time::sleep(Duration::from_secs(10)).await;
        keeper.look_once().await.unwrap();
        assert_eq!(kubectl.get(NODE).await.unwrap(), node);
        assert_ne!(kubectl.get(LEASE).await.unwrap()["spec"]["renewTime"], lease["spec"]["renewTime"]);
        tokio::time::sleep(Duration::from_secs(300)).await;
        keeper.look_once().await.unwrap();
        let later = kubectl.get(NODE).await.unwrap();
        assert_ne!(
            condition(&later, "Ready")["lastHeartbeatTime"],
            condition(&node, "Ready")["lastHeartbeatTime"]
        );
        assert_eq!(
            condition(&later, "Ready")["lastTransitionTime"],
            condition(&node, "Ready")["lastTransitionTime"]
        );
    }));
}

#[test]
fn what_people_wrote_stays_and_what_they_wrote_over_is_put_right() {
    in_virtual_time(on_a_node(async |keeper, kubectl| {
        keeper.look_once().await.unwrap();
        let theirs = json!({
            "metadata": {"labels": {"rack": "7", "harvesterhci.io/managed": null}}, "spec": {"unschedulable": true},
        });
        kubectl.patch(NODE, &theirs).await;
        kubectl.patch(&format!("{NODE}/status"), &json!({"status": {"capacity": {"cpu": "99"}}})).await;
        keeper.look_once().await.unwrap();
        let node = kubectl.get(NODE).await.unwrap();
        assert_eq!(node["metadata"]["labels"]["rack"], "7");
        assert_eq!(node["metadata"]["labels"]["harvesterhci.io/managed"], "true");
        assert_eq!(node["spec"]["unschedulable"], true);
        assert_ne!(node["status"]["capacity"]["cpu"], "99");
    }));
}

#[test]
fn a_node_whose_object_was_deleted_reports_anew() {
    in_virtual_time(on_a_node(async |keeper, kubectl| {
        keeper.look_once().await.unwrap();
        kubectl.delete(NODE, "Background").await;
        kubectl.delete(LEASE, "Background").await;
        keeper.look_once().await.unwrap();
        let node = kubectl.get(NODE).await.unwrap();
        assert_eq!(condition(&node, "Ready")["status"], "True");
        assert!(kubectl.get(LEASE).await.is_some());
    }));
}
