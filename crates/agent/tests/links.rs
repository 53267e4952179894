//! A node's links and uplinks, in a network namespace of its own, against a real API server, as the node itself.
//!
//! All of it needs root. Without it each test says loudly that it was skipped. What the kernel cannot do (bonding, telling
//! VLANs apart) is expected to be said; what it can is expected to be done.

// clippy.toml allows it inside test functions only, and these tests have helpers.
#![allow(clippy::unwrap_used)]

use std::{
    fs::File,
    io::Write as _,
    os::fd::AsFd as _,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::{Value, json};
use sheaf_agent::links;
use sheaf_network::{NetworkNames, uplinks::Uplinks};
use sheaf_resources::kinds::vlan_status::name_of;
use sheaf_testbed::{Cluster, kubectl::Kubectl};

const NODE: &str = "/api/v1/nodes/n1";
const NETWORKS: &str = "/apis/network.harvesterhci.io/v1beta1/clusternetworks";
const CONFIGS: &str = "/apis/network.harvesterhci.io/v1beta1/vlanconfigs";
const STATUSES: &str = "/apis/network.harvesterhci.io/v1beta1/vlanstatuses";
const MONITORS: &str = "/apis/network.harvesterhci.io/v1beta1/linkmonitors";

/// A namespace with `eth0`, which carries an address, and `eth1` and `eth2`, which are free.
struct Place(String);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

impl Place {
    fn new() -> Option<Place> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root() {
            let name = std::thread::current().name().unwrap_or_default().to_owned();
            let _ = writeln!(
                std::io::stderr(),
                "\n*** SKIPPED {name}: it makes network namespaces; run it as root ***"
            );
            return None;
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let place = Place(format!("shl-{}-{number}", std::process::id()));
        run(&format!("ip netns add {}", place.0));
        for nic in ["eth0", "eth1", "eth2"] {
            place.ip(&format!("link add {nic} type veth peer name far-{nic}"));
            place.ip(&format!("link set far-{nic} up"));
        }
        place.ip("addr add 192.0.2.1/24 dev eth0");
        place.ip("link set eth0 up");
        Some(place)
    }

    fn ip(&self, what: &str) -> String {
        run(&format!("ip -n {} {what}", self.0))
    }

    /// The names of its links.
    fn links(&self) -> Vec<String> {
        let all = self.ip("-o link");
        let name = |line: &str| Some(line.split(": ").nth(1)?.split('@').next()?.to_owned());
        let mut names: Vec<String> = all.lines().filter_map(name).filter(|name| name != "bond0").collect();
        names.sort();
        names
    }

    /// Tells a story with the node's agent and the controllers running.
    fn tell(&self, story: impl AsyncFnOnce(&Kubectl) + Send) {
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                let handle = File::open(format!("/run/netns/{}", self.0)).unwrap();
                move_into_link_name_space(handle.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let cluster = Cluster::start(1).await;
                    let kubectl = Kubectl(cluster.client());
                    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
                    kubectl.create("/api/v1/nodes", &node).await;
                    let controllers = cluster.start_controllers();
                    let client =
                        cluster.client_of("system:node:n1", &["system:nodes", "system:authenticated"]);
                    let agent = links::run(client, cluster.world.clone(), "n1".into(), NetworkNames::plain());
                    let agent = tokio::spawn(agent);
                    story(&kubectl).await;
                    agent.abort();
                    controllers.stop().await;
                });
            });
            inside.join().unwrap_or_else(|why| std::panic::resume_unwind(why));
        });
    }
}

#[track_caller]
fn run(command: &str) -> String {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Waits until an object is so.
async fn until(kubectl: &Kubectl, path: &str, is_so: impl Fn(Option<&Value>) -> bool) -> Option<Value> {
    let mut found = None;
    for _ in 0..200 {
        found = kubectl.get(path).await;
        if is_so(found.as_ref()) {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{path} never comes to that: {found:#?}");
}

async fn cluster_network(kubectl: &Kubectl) {
    let kind = json!({"apiVersion": "network.harvesterhci.io/v1beta1", "kind": "ClusterNetwork"});
    let mut network = kind;
    network["metadata"] = json!({"name": "lab"});
    kubectl.create(NETWORKS, &network).await;
}

fn config(nics: &[&str], mtu: u32) -> Value {
    json!({"apiVersion": "network.harvesterhci.io/v1beta1", "kind": "VlanConfig", "metadata": {"name": "a"},
        "spec": {"clusterNetwork": "lab", "uplink": {"nics": nics, "linkAttributes": {"mtu": mtu},
            "bondOptions": {"mode": "active-backup", "miimon": 100}}}})
}

fn condition(object: &Value) -> (&str, &str) {
    let ready = &object["status"]["conditions"][0];
    (ready["status"].as_str().unwrap_or_default(), ready["message"].as_str().unwrap_or_default())
}

fn status_path() -> String {
    format!("{STATUSES}/{}", name_of("lab", "n1"))
}

/// Waits until the node said how it went, this way or that.
async fn said(kubectl: &Kubectl, words: &str) -> Value {
    let is_said = |found: Option<&Value>| found.is_some_and(|found| condition(found).1.contains(words));
    until(kubectl, &status_path(), is_said).await.unwrap()
}

#[test]
fn a_link_that_comes_and_goes_is_shown_and_at_rest_nothing_is_written() {
    let Some(place) = Place::new() else { return };
    place.tell(async |kubectl| {
        let mut monitor = json!({"apiVersion": "network.harvesterhci.io/v1beta1", "kind": "LinkMonitor"});
        monitor["metadata"] = json!({"name": "mine"});
        monitor["spec"] = json!({"targetLinkRule": {"typeRule": "^veth$", "nameRule": "^(eth|new)[0-9]+$"}});
        kubectl.create(MONITORS, &monitor).await;
        let path = format!("{MONITORS}/mine");
        let names = |found: Option<&Value>| -> Vec<String> {
            let links = found.and_then(|found| found["status"]["linkStatus"]["n1"].as_array().cloned());
            links.into_iter().flatten().map(|link| link["name"].as_str().unwrap().to_owned()).collect()
        };
        let found = until(kubectl, &path, |found| names(found).len() == 3).await.unwrap();
        let eth0 = &found["status"]["linkStatus"]["n1"][0];
        assert_eq!((&eth0["type"], &eth0["state"]), (&json!("veth"), &json!("up")), "{eth0}");
        assert_eq!(eth0["mac"].as_str().unwrap().len(), 17);
        place.ip("link add new7 type veth peer name far7");
        until(kubectl, &path, |found| names(found).contains(&"new7".to_owned())).await;
        place.ip("link del new7");
        until(kubectl, &path, |found| names(found).len() == 3).await;
        let state = |found: Option<&Value>| found.unwrap()["status"]["linkStatus"]["n1"][0]["state"].clone();
        place.ip("link set far-eth0 down");
        until(kubectl, &path, |found| state(found) == "down").await;

        // A namespace has no real NICs; and nothing that is not new is written.
        let nic = kubectl.get(&format!("{MONITORS}/nic")).await.unwrap();
        assert_eq!(names(Some(&nic)), Vec::<String>::new());
        tokio::time::sleep(Duration::from_secs(1)).await;
        let before = kubectl.get(&path).await.unwrap();
        place.ip("link add other7 type veth peer name far7");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(kubectl.get(&path).await.unwrap(), before, "a link that it does not show is no news");

        kubectl.patch(&path, &json!({"spec": {"nodeSelector": {"zone": "x"}}})).await;
        until(kubectl, &path, |found| found.unwrap()["status"]["linkStatus"]["n1"].is_null()).await;
    });
}

#[test]
fn one_nic_becomes_an_uplink_on_every_kernel_and_nothing_of_it_is_left_when_it_goes() {
    let Some(place) = Place::new() else { return };
    let before = place.links();
    place.tell(async |kubectl| {
        let abilities = Uplinks::of(&NetworkNames::plain()).probe().await.unwrap();
        cluster_network(kubectl).await;
        kubectl.create(CONFIGS, &config(&["eth1"], 1400)).await;
        let is_ready = |found: Option<&Value>| found.is_some_and(|found| condition(found).0 == "True");
        let status = until(kubectl, &status_path(), is_ready).await.unwrap();
        let message = condition(&status).1;
        assert_eq!(message.contains("CONFIG_BONDING"), !abilities.bonding, "{message}");
        assert_eq!(message.contains("CONFIG_BRIDGE_VLAN_FILTERING"), !abilities.vlan_filtering, "{message}");
        assert_eq!(status["metadata"]["ownerReferences"][0]["name"], "a");
        let eth1 = place.ip("-d link show eth1");
        let to = if abilities.bonding { "master lab-bo" } else { "master lab-br" };
        assert!(eth1.contains(to) && eth1.contains("mtu 1400") && eth1.contains(",UP"), "{eth1}");
        let bridge = place.ip("-d link show lab-br");
        assert!(bridge.contains("mtu 1400") && bridge.contains(",UP"), "{bridge}");
        assert_eq!(bridge.contains("vlan_filtering 1"), abilities.vlan_filtering, "{bridge}");
        if abilities.bonding {
            let bond = place.ip("-d link show lab-bo");
            assert!(bond.contains("active-backup") && bond.contains("miimon 100"), "{bond}");
        }
        let labelled = |found: Option<&Value>| {
            found.unwrap()["metadata"]["labels"]["network.harvesterhci.io/lab"] == "true"
        };
        let node = until(kubectl, NODE, labelled).await.unwrap();
        assert_eq!(node["metadata"]["labels"]["network.harvesterhci.io/vlanconfig"], "a");
        until(kubectl, &format!("{NETWORKS}/lab"), is_ready).await;
        let monitor = format!("{MONITORS}/lab");
        let shows_bridge = |found: Option<&Value>| {
            found.is_some_and(|found| found.to_string().contains(r#""name":"lab-br""#))
        };
        until(kubectl, &monitor, shows_bridge).await;

        // Somebody pulls it out of the bridge by hand.
        place.ip("link set eth1 nomaster");
        for _ in 0..200 {
            if place.ip("-d link show eth1").contains(to) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(place.ip("-d link show eth1").contains(to), "it is put back");

        kubectl.delete(&format!("{CONFIGS}/a"), "Background").await;
        until(kubectl, &format!("{CONFIGS}/a"), |found| found.is_none()).await;
        assert_eq!(kubectl.names(STATUSES).await, Vec::<String>::new());
        let node = kubectl.get(NODE).await.unwrap();
        let labels = node["metadata"]["labels"].to_string();
        assert!(!labels.contains("harvesterhci.io/lab") && !labels.contains("vlanconfig"), "{labels}");
        until(kubectl, &format!("{NETWORKS}/lab"), |found| condition(found.unwrap()).0 == "False").await;
        assert_eq!(place.links(), before);
        assert!(!place.ip("link show eth1").contains("master"));
    });
}

#[test]
fn the_nic_that_carries_the_nodes_address_is_never_taken() {
    let Some(place) = Place::new() else { return };
    let (before, eth0) = (place.links(), place.ip("-4 addr show eth0"));
    place.tell(async |kubectl| {
        cluster_network(kubectl).await;
        kubectl.create(CONFIGS, &config(&["eth0"], 1500)).await;
        let status = said(kubectl, "eth0 carries 192.0.2.1, by which this node is reached").await;
        assert_eq!(condition(&status).0, "False");
        assert_eq!((place.links(), place.ip("-4 addr show eth0")), (before.clone(), eth0.clone()));
        let node = kubectl.get(NODE).await.unwrap();
        assert!(!node["metadata"].to_string().contains("harvesterhci.io/lab"));
        // Another NIC is another matter; and one that is not there is said so, with nothing left behind.
        let other = |nic: &str| json!({"spec": {"uplink": {"nics": [nic]}}});
        kubectl.patch(&format!("{CONFIGS}/a"), &other("eth1")).await;
        until(kubectl, &status_path(), |found| condition(found.unwrap()).0 == "True").await;
        kubectl.patch(&format!("{CONFIGS}/a"), &other("eth9")).await;
        said(kubectl, "this node has no NIC eth9").await;
        assert_eq!(place.links(), before);
        // It comes later.
        place.ip("link add eth9 type veth peer name far-eth9");
        until(kubectl, &status_path(), |found| condition(found.unwrap()).0 == "True").await;
        assert_eq!(place.ip("-4 addr show eth0"), eth0);
    });
}

#[test]
fn the_nic_that_the_node_was_reached_by_is_never_taken_either() {
    let Some(place) = Place::new() else { return };
    place.ip("addr add 198.51.100.1/24 dev eth1");
    place.ip("link set eth1 up");
    place.ip("route add default via 192.0.2.254 dev eth0");
    let before = place.links();
    let annotation = "sheaf.io/own-nics";
    place.tell(async |kubectl| {
        let noted = |node: &Value| -> Value {
            let text = node["metadata"]["annotations"][annotation].as_str().unwrap_or("{}");
            serde_json::from_str(text).unwrap()
        };
        let is_noted =
            |nic: &'static str| move |found: Option<&Value>| noted(found.unwrap())[nic].is_string();
        let node = until(kubectl, NODE, is_noted("eth0")).await.unwrap();
        let why = "the default route of this node goes over it";
        assert_eq!(noted(&node), json!({"eth0": why}), "and none of the others");
        let address = json!({"status": {"addresses": [{"type": "InternalIP", "address": "198.51.100.1"}]}});
        kubectl.patch(&format!("{NODE}/status"), &address).await;
        until(kubectl, NODE, is_noted("eth1")).await;
        // The lease is over and the cable is out: nothing is to be seen of it any more.
        for nic in ["eth0", "eth1"] {
            place.ip(&format!("addr flush dev {nic}"));
            place.ip(&format!("link set {nic} down"));
        }
        cluster_network(kubectl).await;
        for (nic, why) in [("eth0", why), ("eth1", "the address 198.51.100.1 of this node is on it")] {
            match nic {
                "eth0" => drop(kubectl.create(CONFIGS, &config(&[nic], 1500)).await),
                _ => drop(
                    kubectl
                        .patch(&format!("{CONFIGS}/a"), &json!({"spec": {"uplink": {"nics": [nic]}}}))
                        .await,
                ),
            }
            let status = said(kubectl, &format!("{nic} is the node's own: {why}")).await;
            assert_eq!(condition(&status).0, "False");
            assert_eq!(place.links(), before);
        }
        // Whoever says that it is not gets it.
        let free = json!({"metadata": {"annotations": {annotation: json!({"eth0": why}).to_string()}}});
        kubectl.patch(&format!("{NODE}/status"), &json!({"status": {"addresses": []}})).await;
        kubectl.patch(NODE, &free).await;
        until(kubectl, &status_path(), |found| condition(found.unwrap()).0 == "True").await;
    });
}

#[test]
fn two_nics_are_bonded_where_the_kernel_can_and_refused_whole_where_it_cannot() {
    let Some(place) = Place::new() else { return };
    let before = place.links();
    place.tell(async |kubectl| {
        let abilities = Uplinks::of(&NetworkNames::plain()).probe().await.unwrap();
        cluster_network(kubectl).await;
        kubectl.create(CONFIGS, &config(&["eth1", "eth2"], 1500)).await;
        if !abilities.bonding {
            let status = said(kubectl, "no bonding (CONFIG_BONDING), which an uplink of 2 NICs takes").await;
            assert_eq!(condition(&status).0, "False");
            assert_eq!(place.links(), before, "nothing half made is left");
            return;
        }
        until(kubectl, &status_path(), |found| found.is_some_and(|found| condition(found).0 == "True")).await;
        for nic in ["eth1", "eth2"] {
            assert!(place.ip(&format!("link show {nic}")).contains("master lab-bo"), "{nic}");
        }
        // One of them goes and comes back; the other one carries on.
        place.ip("link del eth2");
        let status = said(kubectl, "eth2 is left out: this node has no NIC eth2").await;
        assert_eq!(condition(&status).0, "True");
        assert!(place.ip("link show eth1").contains("master lab-bo"));
        place.ip("link add eth2 type veth peer name far-eth2");
        place.ip("link set far-eth2 up");
        let is_whole = |found: Option<&Value>| !condition(found.unwrap()).1.contains("eth2");
        until(kubectl, &status_path(), is_whole).await;
        assert!(place.ip("link show eth2").contains("master lab-bo"));
        kubectl.delete(&format!("{CONFIGS}/a"), "Background").await;
        until(kubectl, &format!("{CONFIGS}/a"), |found| found.is_none()).await;
        assert_eq!(place.links(), before);
    });
}
