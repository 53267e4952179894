//! Which nodes have uplinks of which cluster networks, what is said of those, and how a configuration goes.

use std::time::Duration;

use futures::StreamExt;
use kube::{
    Api,
    api::{DynamicObject, WatchEvent, WatchParams},
};
use serde_json::{Value, json};
use sheaf_client::api::built_in;
use sheaf_resources::kinds::vlan_status::name_of;
use sheaf_testbed::{Cluster, kubectl::Kubectl};

use crate::scenario::{Scenario, on_a_cluster};

const NETWORKS: &str = "/apis/network.harvesterhci.io/v1beta1/clusternetworks";
const CONFIGS: &str = "/apis/network.harvesterhci.io/v1beta1/vlanconfigs";
const STATUSES: &str = "/apis/network.harvesterhci.io/v1beta1/vlanstatuses";
const MONITORS: &str = "/apis/network.harvesterhci.io/v1beta1/linkmonitors";
const NODES: &str = "/api/v1/nodes";

fn network(name: &str) -> Value {
    json!({"apiVersion": "network.harvesterhci.io/v1beta1", "kind": "ClusterNetwork", "metadata": {"name": name}})
}

fn config(name: &str, zone: &str) -> Value {
    json!({"apiVersion": "network.harvesterhci.io/v1beta1", "kind": "VlanConfig", "metadata": {"name": name},
        "spec": {"clusterNetwork": "lab", "nodeSelector": {"zone": zone},
            "uplink": {"nics": ["eth1"], "linkAttributes": {"mtu": 9000}}}})
}

fn node(name: &str, zone: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"zone": zone}}})
}

/// As the agent of a node would say it.
fn status(config: &str, node: &str, ready: &str) -> Value {
    let labels = json!({"network.harvesterhci.io/clusternetwork": "lab",
        "network.harvesterhci.io/vlanconfig": config, "network.harvesterhci.io/node": node});
    json!({"apiVersion": "network.harvesterhci.io/v1beta1", "kind": "VlanStatus",
        "metadata": {"name": name_of("lab", node), "labels": labels},
        "status": {"clusterNetwork": "lab", "vlanConfig": config, "linkMonitor": "lab", "node": node,
            "conditions": [{"type": "ready", "status": ready, "message": "why"}]}})
}

async fn nodes_of(kubectl: &Kubectl, config: &str) -> Value {
    let config = kubectl.get(&format!("{CONFIGS}/{config}")).await.unwrap();
    config["metadata"]["annotations"]["network.harvesterhci.io/matched-nodes"].clone()
}

async fn ready(kubectl: &Kubectl, network: &str) -> Value {
    let network = kubectl.get(&format!("{NETWORKS}/{network}")).await.unwrap();
    network["status"]["conditions"][0].clone()
}

fn matching() -> Scenario<impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl)> {
    Scenario {
        prepared: async |kubectl: &Kubectl| {
            kubectl.create(NETWORKS, &network("lab")).await;
            kubectl.create(NODES, &node("n1", "a")).await;
            kubectl.create(CONFIGS, &config("one", "a")).await;
            kubectl.create(CONFIGS, &config("two", "b")).await;
        },
        happens: async |kubectl: &Kubectl| {
            kubectl.create(NODES, &node("n2", "b")).await;
            kubectl.create(NODES, &node("n3", "a")).await;
            let moved = json!({"metadata": {"labels": {"zone": "b"}}});
            kubectl.patch(&format!("{NODES}/n1"), &moved).await;
        },
        ends: async |kubectl: &Kubectl| {
            assert_eq!(nodes_of(kubectl, "one").await, r#"["n3"]"#);
            assert_eq!(nodes_of(kubectl, "two").await, r#"["n1","n2"]"#);
            let lab = kubectl.get(&format!("{NETWORKS}/lab")).await.unwrap();
            let annotations = &lab["metadata"]["annotations"];
            assert_eq!(annotations["network.harvesterhci.io/uplink-mtu"], "9000");
            assert_eq!(annotations["network.harvesterhci.io/mtu-source-vc"], "one");
            assert_eq!(ready(kubectl, "lab").await["status"], "False");
            let monitors = kubectl.names(MONITORS).await;
            assert_eq!(monitors, ["lab", "mgmt", "nic"]);
        },
    }
}

#[test]
fn a_configuration_is_for_the_nodes_that_fit_it_also_those_that_come_later() {
    matching().arrives_and_rests();
}

#[test]
fn its_nodes_are_found_however_often_that_is_interrupted() {
    matching().arrives_however_interrupted();
}

#[test]
fn a_cluster_network_is_ready_when_a_node_leads_there_and_says_why_when_none_does() {
    on_a_cluster(async |cluster, kubectl| {
        kubectl.create(NODES, &node("n1", "a")).await;
        kubectl.create(NETWORKS, &network("lab")).await;
        cluster.settle().await;
        assert!(ready(kubectl, "lab").await["message"].as_str().unwrap().contains("no VlanConfig"));
        kubectl.create(CONFIGS, &config("one", "a")).await;
        kubectl.create(STATUSES, &status("one", "n1", "False")).await;
        cluster.settle().await;
        let said = ready(kubectl, "lab").await;
        assert!(said["message"].as_str().unwrap().contains("n1: why"), "{said}");
        let well = json!({"status": {"conditions": [{"type": "ready", "status": "True"}]}});
        kubectl.patch(&format!("{STATUSES}/{}", name_of("lab", "n1")), &well).await;
        cluster.settle().await;
        assert_eq!(ready(kubectl, "lab").await["status"], "True");
        assert_eq!(ready(kubectl, "mgmt").await["status"], "True", "which needs no uplink");
    });
}

#[test]
fn a_configuration_goes_after_its_nodes_are_done_and_not_before() {
    on_a_cluster(async |cluster, kubectl| {
        kubectl.create(NETWORKS, &network("lab")).await;
        for name in ["n1", "n2"] {
            kubectl.create(NODES, &node(name, "a")).await;
        }
        kubectl.create(CONFIGS, &config("one", "a")).await;
        for name in ["n1", "n2"] {
            kubectl.create(STATUSES, &status("one", name, "True")).await;
        }
        kubectl.delete(&format!("{CONFIGS}/one"), "Background").await;
        cluster.settle().await;
        assert!(kubectl.get(&format!("{CONFIGS}/one")).await.is_some(), "two nodes have its uplink");
        kubectl.delete(&format!("{STATUSES}/{}", name_of("lab", "n1")), "Background").await;
        cluster.settle().await;
        assert!(kubectl.get(&format!("{CONFIGS}/one")).await.is_some(), "one node has");
        // One that is no more cannot say that it is done.
        kubectl.delete(&format!("{NODES}/n2"), "Background").await;
        cluster.settle().await;
        assert_eq!(kubectl.get(&format!("{CONFIGS}/one")).await, None);
        assert_eq!(kubectl.names(STATUSES).await, Vec::<String>::new());
    });
}

#[test]
fn what_is_shown_of_a_node_goes_with_it_and_a_monitor_with_its_network() {
    on_a_cluster(async |cluster, kubectl| {
        kubectl.create(NETWORKS, &network("lab")).await;
        for name in ["n1", "n2"] {
            kubectl.create(NODES, &node(name, "a")).await;
        }
        let links = json!({"status": {"linkStatus": {"n1": [{"name": "eth0"}], "n2": [{"name": "eth0"}]}}});
        kubectl.patch(&format!("{MONITORS}/nic"), &links).await;
        cluster.settle().await;
        kubectl.delete(&format!("{NODES}/n2"), "Background").await;
        cluster.settle().await;
        let nic = kubectl.get(&format!("{MONITORS}/nic")).await.unwrap();
        assert_eq!(nic["status"]["linkStatus"], json!({"n1": [{"name": "eth0"}]}));
        kubectl.delete(&format!("{NETWORKS}/lab"), "Background").await;
        cluster.settle().await;
        assert_eq!(kubectl.names(MONITORS).await, ["mgmt", "nic"]);
    });
}

/// What a watch of one object by its name is told until it is told of its end.
async fn told(cluster: &Cluster, version: &str) -> Vec<&'static str> {
    let kind = built_in("network.harvesterhci.io", "v1beta1", "VlanConfig", "vlanconfigs");
    let configs: Api<DynamicObject> = Api::all_with(cluster.client(), &kind);
    let only = WatchParams::default().fields("metadata.name=one").timeout(60).disable_bookmarks();
    let mut events = configs.watch(&only, version).await.unwrap().boxed();
    let mut told = Vec::new();
    while let Some(event) = events.next().await {
        told.push(match event.unwrap() {
            WatchEvent::Added(_) => "ADDED",
            WatchEvent::Modified(_) => "MODIFIED",
            WatchEvent::Deleted(_) => "DELETED",
            WatchEvent::Bookmark(_) => "BOOKMARK",
            WatchEvent::Error(_) => "ERROR",
        });
        if told.last() == Some(&"DELETED") {
            break;
        }
    }
    told
}

/// Harvester's Terraform provider deletes a VlanConfig and then watches for its end, without a version: one that was gone
/// by then would be waited for in vain.
#[test]
fn trap_6_a_watch_opened_after_a_vlan_config_was_deleted_still_sees_it_go() {
    on_a_cluster(async |cluster, kubectl| {
        kubectl.create(NETWORKS, &network("lab")).await;
        kubectl.create(NODES, &node("n1", "a")).await;
        cluster.settle().await;
        for (slow, version_is_known) in [(0, false), (1_500, false), (0, true), (60_000, true)] {
            let made = kubectl.create(CONFIGS, &config("one", "a")).await;
            cluster.settle().await;
            let version = made["metadata"]["resourceVersion"].as_str().unwrap();
            let version = if version_is_known { version } else { "" };
            kubectl.delete(&format!("{CONFIGS}/one"), "Background").await;
            tokio::time::sleep(Duration::from_millis(slow)).await;
            let told = told(cluster, version).await;
            assert_eq!(told.last(), Some(&"DELETED"), "{slow} ms later, {version:?}: {told:?}");
            assert_eq!(kubectl.get(&format!("{CONFIGS}/one")).await, None);
        }
    });
}
