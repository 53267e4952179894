//! Uplinks of cluster networks: what is refused, which nodes they are for, and what stays while it is used.

use http::Method;
use serde_json::{Value, json};
use sheaf_apiserver::identity::{AUTHENTICATED, NODES, User};

use crate::{
    house::{Answer, House},
    machine::{CLUSTER_NETWORKS, DEFINITIONS, INSTANCES, definition, instance},
};

const CONFIGS: &str = "/apis/network.harvesterhci.io/v1beta1/vlanconfigs";
const STATUSES: &str = "/apis/network.harvesterhci.io/v1beta1/vlanstatuses";
const MONITORS: &str = "/apis/network.harvesterhci.io/v1beta1/linkmonitors";
const MATCHED: &str = "network.harvesterhci.io/matched-nodes";

#[track_caller]
fn refused(answer: &Answer, words: &str) {
    assert_eq!(answer.refusal(), (422, "Invalid"), "{:#}", answer.body);
    assert!(answer.message().contains(words), "{}", answer.message());
}

#[track_caller]
fn forbidden(answer: &Answer) {
    assert_eq!(answer.refusal(), (403, "Forbidden"), "{:#}", answer.body);
}

fn config(name: &str, network: &str, zone: &str) -> Value {
    let selector = if zone.is_empty() { json!({}) } else { json!({"zone": zone}) };
    json!({"metadata": {"name": name}, "spec": {"clusterNetwork": network, "nodeSelector": selector,
        "uplink": {"nics": ["eth1"], "linkAttributes": {"mtu": 1500}, "bondOptions": {"mode": "active-backup"}}}})
}

fn status(network: &str, vlan_config: &str, node: &str) -> Value {
    let labels = json!({"network.harvesterhci.io/clusternetwork": network,
        "network.harvesterhci.io/vlanconfig": vlan_config, "network.harvesterhci.io/node": node});
    json!({"metadata": {"name": sheaf_resources::kinds::vlan_status::name_of(network, node), "labels": labels},
        "status": {"clusterNetwork": network, "vlanConfig": vlan_config, "linkMonitor": network, "node": node}})
}

/// Two nodes in two zones, and two cluster networks.
async fn house() -> House {
    let house = House::new().await;
    for (node, zone) in [("n1", "a"), ("n2", "b")] {
        house.post("/api/v1/nodes", json!({"metadata": {"name": node, "labels": {"zone": zone}}})).await.ok();
    }
    for name in ["lab", "dmz"] {
        house.post(CLUSTER_NETWORKS, json!({"metadata": {"name": name}})).await.ok();
    }
    house
}

#[tokio::test(start_paused = true)]
async fn a_configuration_is_answered_with_its_nodes_and_its_label() {
    let house = house().await;
    let mut wanted = config("a", "lab", "a");
    wanted["metadata"]["annotations"] = json!({MATCHED: r#"["n2"]"#, "mine": "1"});
    let made = house.post(CONFIGS, wanted).await.ok();
    assert_eq!(made["metadata"]["annotations"], json!({MATCHED: r#"["n1"]"#, "mine": "1"}));
    assert_eq!(made["metadata"]["labels"]["network.harvesterhci.io/clusternetwork"], "lab");
    assert_eq!(made["spec"]["uplink"]["bondOptions"]["miimon"], -1);
    let forged = json!({"metadata": {"annotations": {MATCHED: r#"["n1","n2"]"#}}});
    let answer = house.patch(&format!("{CONFIGS}/a"), "merge-patch", forged).await.ok();
    assert_eq!(answer["metadata"]["annotations"][MATCHED], r#"["n1"]"#, "nobody says themselves which nodes");
}

#[tokio::test(start_paused = true)]
async fn what_no_node_could_follow_is_refused_and_changes_nothing() {
    let house = house().await;
    let unknown = house.post(CONFIGS, config("a", "none", "")).await;
    refused(&unknown, "can't create vlanConfig a because it refers to a none-existing cluster network none");
    refused(&house.post(CONFIGS, config("a", "mgmt", "")).await, "cluster network can't be mgmt");
    let mut wrong = config("a", "lab", "");
    wrong["spec"]["uplink"]["nics"] = json!([]);
    refused(&house.post(CONFIGS, wrong).await, "spec.uplink.nics: Required value");
    assert_eq!(house.get(CONFIGS).await.ok()["items"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn no_two_configurations_of_a_cluster_network_are_for_one_node() {
    let house = house().await;
    house.post(CONFIGS, config("a", "lab", "a")).await.ok();
    refused(
        &house.post(CONFIGS, config("b", "lab", "")).await,
        "it overlaps with other vlanconfigs matching node(s) n1",
    );
    house.post(CONFIGS, config("b", "lab", "b")).await.ok();
    house.post(CONFIGS, config("c", "dmz", "")).await.ok();
    let wider = json!({"spec": {"nodeSelector": null}});
    refused(
        &house.patch(&format!("{CONFIGS}/b"), "merge-patch", wider).await,
        "can't update vlanConfig b because it overlaps with other vlanconfigs matching node(s) n1",
    );
    let moved = json!({"spec": {"clusterNetwork": "dmz"}});
    refused(&house.patch(&format!("{CONFIGS}/b"), "merge-patch", moved).await, "matching node(s) n2");
    let described = json!({"spec": {"description": "the second"}});
    house.patch(&format!("{CONFIGS}/b"), "merge-patch", described).await.ok();
}

#[tokio::test(start_paused = true)]
async fn frames_are_of_one_size_on_a_cluster_network() {
    let house = house().await;
    house.post(CONFIGS, config("a", "lab", "a")).await.ok();
    let mut jumbo = config("b", "lab", "b");
    jumbo["spec"]["uplink"]["linkAttributes"]["mtu"] = json!(9000);
    refused(
        &house.post(CONFIGS, jumbo.clone()).await,
        "the vlanconfig b MTU 9000 is different with another vlanconfig a MTU 1500",
    );
    jumbo["spec"]["uplink"]["linkAttributes"]["mtu"] = json!(0);
    house.post(CONFIGS, jumbo.clone()).await.ok();
    jumbo["spec"]["clusterNetwork"] = json!("dmz");
    jumbo["metadata"]["name"] = json!("c");
    jumbo["spec"]["uplink"]["linkAttributes"]["mtu"] = json!(9000);
    house.post(CONFIGS, jumbo).await.ok();

    let said = |mtu: &str| json!({"metadata": {"annotations": {"network.harvesterhci.io/uplink-mtu": mtu}}});
    let lab = format!("{CLUSTER_NETWORKS}/lab");
    refused(&house.patch(&lab, "merge-patch", said("9000")).await, "clusternetwork has MTU 9000, but");
    refused(&house.patch(&lab, "merge-patch", said("x")).await, "is not an integer");
    house.patch(&lab, "merge-patch", said("1500")).await.ok();
    let mgmt = house.patch(&format!("{CLUSTER_NETWORKS}/mgmt"), "merge-patch", said("9000")).await;
    refused(&mgmt, "is not supported by Sheaf yet");
    let mut fresh = said("9000");
    fresh["metadata"]["name"] = json!("far");
    refused(&house.post(CLUSTER_NETWORKS, fresh).await, "uplink-mtu can't be added");

    // What is plugged into it has the same.
    house.patch(&format!("{CLUSTER_NETWORKS}/dmz"), "merge-patch", said("9000")).await.ok();
    let mut network = definition("jumbo", "dmz-br");
    let config = network["spec"]["config"].as_str().unwrap();
    let mut read: Value = serde_json::from_str(config).unwrap();
    read["mtu"] = json!(1500);
    network["spec"]["config"] = json!(read.to_string());
    let made = house.post(DEFINITIONS, network).await.ok();
    let read: Value = serde_json::from_str(made["spec"]["config"].as_str().unwrap()).unwrap();
    assert_eq!(read["mtu"], 9000);
}

#[tokio::test(start_paused = true)]
async fn an_uplink_stays_as_it_is_while_machines_use_it() {
    let house = house().await;
    house.post(CONFIGS, config("a", "lab", "")).await.ok();
    house.post(DEFINITIONS, definition("net", "lab-br")).await.ok();
    let mut vmi = instance("vm");
    vmi["spec"]["networks"] = json!([{"name": "n", "multus": {"networkName": "default/net"}}]);
    vmi["spec"]["domain"]["devices"]["interfaces"] = json!([{"name": "n", "bridge": {}}]);
    vmi["status"] = json!({"nodeName": "n2", "phase": "Running"});
    house.post(INSTANCES, vmi).await.ok();
    let path = format!("{CONFIGS}/a");
    let words = "it is blocked by VM(s) default/vm which must be stopped at first";
    refused(&house.delete(&path).await, &format!("can't delete vlanConfig a because {words}"));
    for change in [
        json!({"spec": {"uplink": {"nics": ["eth2"]}}}),
        json!({"spec": {"nodeSelector": {"zone": "a"}}}),
        json!({"spec": {"clusterNetwork": "dmz"}}),
    ] {
        refused(&house.patch(&path, "merge-patch", change).await, words);
    }
    // Of no matter to that machine.
    house.patch(&path, "merge-patch", json!({"spec": {"nodeSelector": {"zone": "b"}}})).await.ok();
    house.patch(&path, "merge-patch", json!({"metadata": {"labels": {"a": "b"}}})).await.ok();
    house
        .patch(&format!("{INSTANCES}/vm"), "merge-patch", json!({"status": {"phase": "Succeeded"}}))
        .await
        .ok();
    house.delete(&path).await.ok();
    let going = house.get(&path).await.ok();
    assert_eq!(going["metadata"]["finalizers"], json!(["sheaf.io/uplink"]), "until its nodes are done");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_network_stays_while_it_has_uplinks() {
    let house = house().await;
    house.post(CONFIGS, config("a", "lab", "")).await.ok();
    let path = format!("{CLUSTER_NETWORKS}/lab");
    refused(&house.delete(&path).await, "vlanconfig(s) a under this clusternetwork are still existing");
    house.post(STATUSES, status("lab", "a", "n1")).await.ok();
    house.delete(&format!("{CONFIGS}/a")).await.ok();
    house.patch(&format!("{CONFIGS}/a"), "merge-patch", json!({"metadata": {"finalizers": null}})).await.ok();
    refused(&house.delete(&path).await, "vlanconfig(s) a under");
    house
        .delete(&format!("{STATUSES}/{}", status("lab", "a", "n1")["metadata"]["name"].as_str().unwrap()))
        .await
        .ok();
    house.delete(&path).await.ok();
}

#[tokio::test(start_paused = true)]
async fn the_monitor_of_real_nics_is_there_from_the_start_and_rules_are_bounded() {
    let house = House::new().await;
    let nic = house.get(&format!("{MONITORS}/nic")).await.ok();
    assert_eq!(nic["spec"]["targetLinkRule"], json!({"typeRule": "device"}));
    let wild =
        json!({"metadata": {"name": "m"}, "spec": {"targetLinkRule": {"nameRule": "((a{99}){99}){99}"}}});
    refused(&house.post(MONITORS, wild).await, "must be a regular expression");
}

#[tokio::test(start_paused = true)]
async fn a_node_says_how_its_own_links_and_uplinks_fare_and_no_others() {
    let mut house = house().await;
    house.post(CONFIGS, config("a", "lab", "")).await.ok();
    house.post(STATUSES, status("lab", "a", "n2")).await.ok();
    let theirs = json!({"status": {"linkStatus": {"n2": [{"name": "eth0"}]}}});
    house.patch(&format!("{MONITORS}/nic"), "merge-patch", theirs).await.ok();
    let groups = vec![NODES.into(), AUTHENTICATED.into()];
    house.user = User { name: "system:node:n1".into(), groups, ..User::default() };

    for path in [CONFIGS, STATUSES, MONITORS] {
        house.get(path).await.ok();
    }
    let monitor = format!("{MONITORS}/nic");
    let links = |node: &str, links: Value| json!({"status": {"linkStatus": {node: links}}});
    house.patch(&monitor, "merge-patch", links("n1", json!([{"name": "eth0"}]))).await.ok();
    house.patch(&monitor, "merge-patch", links("n1", Value::Null)).await.ok();
    forbidden(&house.patch(&monitor, "merge-patch", links("n2", json!([]))).await);
    forbidden(&house.patch(&monitor, "merge-patch", links("n2", Value::Null)).await);
    forbidden(
        &house.patch(&monitor, "merge-patch", json!({"spec": {"targetLinkRule": {"typeRule": ""}}})).await,
    );
    forbidden(&house.delete(&monitor).await);

    let (own, other) = (status("lab", "a", "n1"), status("lab", "a", "n2"));
    let path = |status: &Value| format!("{STATUSES}/{}", status["metadata"]["name"].as_str().unwrap());
    house.post(STATUSES, own.clone()).await.ok();
    forbidden(&house.patch(&path(&other), "merge-patch", json!({"status": {"linkMonitor": "x"}})).await);
    forbidden(&house.delete(&path(&other)).await);
    forbidden(&house.post(STATUSES, status("dmz", "c", "n2")).await);
    house.delete(&path(&own)).await.ok();
    forbidden(
        &house
            .patch(&format!("{CONFIGS}/a"), "merge-patch", json!({"metadata": {"labels": {"x": "y"}}}))
            .await,
    );
    forbidden(&house.delete(&format!("{CONFIGS}/a")).await);
}

async fn table(house: &House, path: &str) -> Value {
    let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    house.send(Method::GET, path, &accept, "").await.ok()
}

#[tokio::test(start_paused = true)]
async fn kubectl_shows_what_the_original_shows() {
    let house = house().await;
    house.post(CONFIGS, config("a", "lab", "")).await.ok();
    let columns = |table: &Value| -> Vec<String> {
        let all = table["columnDefinitions"].as_array().unwrap();
        all.iter()
            .filter(|one| one["priority"] == 0)
            .map(|one| one["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(columns(&table(&house, CONFIGS).await), ["Name", "CLUSTERNETWORK", "DESCRIPTION", "Age"]);
    assert_eq!(
        columns(&table(&house, STATUSES).await),
        ["Name", "CLUSTERNETWORK", "VLANCONFIG", "NODE", "Age"]
    );
    let served = house.get("/apis/network.harvesterhci.io/v1beta1").await.ok();
    let short = |plural: &str| {
        let all = served["resources"].as_array().unwrap();
        all.iter().find(|one| one["name"] == plural).unwrap()["shortNames"].clone()
    };
    assert_eq!(short("vlanconfigs"), json!(["vc", "vcs"]));
    assert_eq!(short("vlanstatuses"), json!(["vss"]));
    assert_eq!(short("linkmonitors"), json!(["lm", "lms"]));
}
