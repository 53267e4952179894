//! Which load balancer has which address, and what it says of its machines.

use std::collections::BTreeSet;

use http::Method;
use serde_json::{Value, json};
use sheaf_testbed::kubectl::Kubectl;

use crate::{
    scenario::{Scenario, on_a_cluster},
    simulated_node::*,
};

const BALANCERS: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/default/loadbalancers";
const BALANCER_POOLS: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1/ippools";

fn pool(name: &str, subnet: &str, scope: Value) -> Value {
    json!({"apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "IPPool", "metadata": {"name": name},
        "spec": {"ranges": [{"subnet": subnet}], "selector": {"scope": scope}}})
}

fn everybody() -> Value {
    json!([{"project": "*", "namespace": "*", "guestCluster": "*"}])
}

fn balancer(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "LoadBalancer", "metadata": {"name": name},
        "spec": spec})
}

fn for_cluster() -> Value {
    json!({"workloadType": "cluster", "ipam": "pool"})
}

fn for_machines() -> Value {
    json!({"workloadType": "vm", "ipam": "pool", "backendServerSelector": {"harvesterhci.io/vmName": ["vm"]},
        "listeners": [{"name": "web", "port": 80, "protocol": "TCP", "backendPort": 8080}]})
}

async fn read(kubectl: &Kubectl, name: &str) -> Value {
    kubectl.get(&format!("{BALANCERS}/{name}")).await.unwrap()
}

async fn address_of_balancer(kubectl: &Kubectl, name: &str) -> String {
    let read = read(kubectl, name).await;
    read["status"]["allocatedAddress"]["ip"].as_str().unwrap_or_default().to_owned()
}

async fn allocated(kubectl: &Kubectl, pool: &str) -> Value {
    let pool = kubectl.get(&format!("{BALANCER_POOLS}/{pool}")).await.unwrap();
    let (status, given) =
        (&pool["status"], pool["status"]["allocated"].as_object().map_or(0, |all| all.len()));
    assert_eq!(status["total"].as_i64().unwrap() - given as i64, status["available"].as_i64().unwrap_or(0));
    status["allocated"].clone()
}

fn ready(balancer: &Value) -> (String, String) {
    let conditions = balancer["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let ready = conditions.iter().find(|one| one["type"] == "Ready").cloned().unwrap_or_default();
    let text = |field: &str| ready[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("message"))
}

/// What a node says that holds the address.
async fn hold(kubectl: &Kubectl, name: &str, address: &str) {
    let path = format!("{BALANCERS}/{name}");
    let mut conditions =
        read(kubectl, name).await["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.retain(|one| one["type"] != "Forwarding");
    let truth = if address.is_empty() { "False" } else { "True" };
    conditions.push(json!({"type": "Forwarding", "status": truth}));
    kubectl.patch(&path, &json!({"status": {"address": address, "conditions": conditions}})).await;
}

fn comings_and_goings() -> Scenario<impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl)> {
    Scenario {
        prepared: async |kubectl: &Kubectl| {
            kubectl.create(BALANCER_POOLS, &pool("all", "192.0.2.0/29", everybody())).await;
            kubectl.create(BALANCER_POOLS, &pool("named", "198.51.100.0/29", json!([]))).await;
            for name in ["stays", "goes", "forced", "moves"] {
                kubectl.create(BALANCERS, &balancer(name, for_cluster())).await;
            }
        },
        happens: async |kubectl: &Kubectl| {
            kubectl.delete(&format!("{BALANCERS}/goes"), "Background").await;
            kubectl.delete(&format!("{BALANCERS}/forced"), "Background").await;
            let force = json!({"metadata": {"finalizers": null}});
            kubectl.patch(&format!("{BALANCERS}/forced"), &force).await;
            kubectl.patch(&format!("{BALANCERS}/moves"), &json!({"spec": {"ipPool": "named"}})).await;
            kubectl.create(BALANCERS, &balancer("comes", for_cluster())).await;
        },
        ends: async |kubectl: &Kubectl| {
            assert_eq!(kubectl.names(BALANCERS).await, ["comes", "moves", "stays"]);
            let (comes, stays) =
                (address_of_balancer(kubectl, "comes").await, address_of_balancer(kubectl, "stays").await);
            let moves = address_of_balancer(kubectl, "moves").await;
            assert_eq!(
                allocated(kubectl, "all").await,
                json!({comes: "default/comes", stays: "default/stays"})
            );
            assert_eq!(allocated(kubectl, "named").await, json!({moves: "default/moves"}));
            assert_eq!(ready(&read(kubectl, "comes").await).0, "True");
        },
    }
}

#[test]
fn addresses_come_and_go_with_balancers_however_interrupted() {
    comings_and_goings().arrives_and_rests();
    comings_and_goings().arrives_however_interrupted();
}

#[test]
fn many_balancers_at_once_have_as_many_addresses_and_who_waits_gets_what_is_given_back() {
    on_a_cluster(async |cluster, kubectl| {
        // A second set of controllers, as another manager would run.
        let others = cluster.start_controllers();
        kubectl.create(BALANCER_POOLS, &pool("all", "192.0.2.0/28", everybody())).await;
        for number in 0..14 {
            kubectl.create(BALANCERS, &balancer(&format!("lb{number}"), for_cluster())).await;
        }
        cluster.settle().await;
        let mut addresses = BTreeSet::new();
        let mut waits = Vec::new();
        for number in 0..14 {
            match address_of_balancer(kubectl, &format!("lb{number}")).await {
                none if none.is_empty() => waits.push(format!("lb{number}")),
                address => assert!(addresses.insert(address)),
            }
        }
        assert_eq!((addresses.len(), waits.len()), (13, 1), "{waits:?}");
        let (truth, why) = ready(&read(kubectl, &waits[0]).await);
        assert!(truth == "False" && why.contains("no available IP in IPPool all"), "{why}");
        let gone = if waits[0] == "lb3" { "lb4" } else { "lb3" };
        let freed = address_of_balancer(kubectl, gone).await;
        kubectl.delete(&format!("{BALANCERS}/{gone}"), "Background").await;
        cluster.settle().await;
        assert_eq!(address_of_balancer(kubectl, &waits[0]).await, freed);
        others.stop().await;
    });
}

#[test]
fn a_pool_that_forgot_is_told_again_and_the_same_balancer_gets_the_same_address() {
    on_a_cluster(async |cluster, kubectl| {
        kubectl.create(BALANCER_POOLS, &pool("all", "192.0.2.0/24", everybody())).await;
        for name in ["a", "b"] {
            kubectl.create(BALANCERS, &balancer(name, for_cluster())).await;
        }
        cluster.settle().await;
        let (a, b) = (address_of_balancer(kubectl, "a").await, address_of_balancer(kubectl, "b").await);
        let both = json!({a.clone(): "default/a", b.clone(): "default/b"});
        kubectl.patch(&format!("{BALANCER_POOLS}/all"), &json!({"status": null})).await;
        cluster.settle().await;
        assert_eq!(allocated(kubectl, "all").await, both);
        kubectl.delete(&format!("{BALANCERS}/a"), "Background").await;
        kubectl.create(BALANCERS, &balancer("c", for_cluster())).await;
        cluster.settle().await;
        assert_ne!(address_of_balancer(kubectl, "c").await, a);
        kubectl.create(BALANCERS, &balancer("a", for_cluster())).await;
        cluster.settle().await;
        assert_eq!(address_of_balancer(kubectl, "a").await, a);
    });
}

#[test]
fn an_address_is_released_by_hand_only_from_one_that_is_gone() {
    on_a_cluster(async |cluster, kubectl| {
        let path = format!("{BALANCER_POOLS}/all");
        kubectl.create(BALANCER_POOLS, &pool("all", "192.0.2.0/24", everybody())).await;
        kubectl.create(BALANCERS, &balancer("a", for_cluster())).await;
        cluster.settle().await;
        let a = address_of_balancer(kubectl, "a").await;
        for request in [format!("{a}: default/a"), "nonsense".to_owned()] {
            let by_hand = json!({"metadata": {"annotations": {"loadbalancer.harvesterhci.io/manuallyReleaseIP": request}}});
            kubectl.patch(&path, &by_hand).await;
            cluster.settle().await;
            let pool = kubectl.get(&path).await.unwrap();
            assert!(
                pool["metadata"]["annotations"]["loadbalancer.harvesterhci.io/manuallyReleaseIP"].is_null()
            );
            assert_eq!(pool["status"]["allocated"], json!({a.clone(): "default/a"}));
        }
        assert_eq!(reasons(kubectl, "IPPool", "all").await, ["NotReleased", "NotReleased"]);
    });
}

#[test]
fn a_pool_is_for_whom_it_says_and_dhcp_is_what_a_cluster_does_itself() {
    on_a_cluster(async |cluster, kubectl| {
        kubectl.create(BALANCER_POOLS, &pool("bank", "192.0.2.0/24", json!([{"namespace": "bank"}]))).await;
        let mut thief = for_cluster();
        thief["ipPool"] = json!("bank");
        kubectl.create(BALANCERS, &balancer("thief", thief)).await;
        let dhcp = json!({"workloadType": "cluster", "ipam": "dhcp"});
        kubectl.create(BALANCERS, &balancer("dhcp", dhcp)).await;
        let mut vm = for_machines();
        vm["ipam"] = json!("dhcp");
        kubectl.create(BALANCERS, &balancer("vm", vm)).await;
        cluster.settle().await;
        assert_eq!(address_of_balancer(kubectl, "thief").await, "");
        assert!(ready(&read(kubectl, "thief").await).1.contains("IPPool bank is not for namespace default"));
        assert_eq!(address_of_balancer(kubectl, "dhcp").await, "0.0.0.0");
        assert!(ready(&read(kubectl, "vm").await).1.contains("use ipam `pool`"));
    });
}

#[test]
fn a_balancer_names_its_node_and_its_machines_and_is_let_go_after_its_node_let_go() {
    on_a_cluster(async |cluster, kubectl| {
        furnish(kubectl).await;
        kubectl.create(BALANCER_POOLS, &pool("all", "192.0.2.0/24", everybody())).await;
        kubectl.create(BALANCERS, &balancer("lb", for_machines())).await;
        cluster.settle().await;
        let lb = read(kubectl, "lb").await;
        assert_eq!(
            (&lb["status"]["nodeName"], ready(&lb).1.as_str()),
            (&json!("n1"), "no running backend servers")
        );
        kubectl.create(VMS, &machine("vm", 1, "Always")).await;
        kubectl.create(VMS, &machine("other", 2, "Always")).await;
        cluster.settle().await;
        let lb = read(kubectl, "lb").await;
        assert_eq!(lb["status"]["backendServers"], json!([address_of(kubectl, "vm").await]));
        assert_eq!(ready(&lb).1, "waiting for node n1 to hold the address");
        let address = address_of_balancer(kubectl, "lb").await;
        hold(kubectl, "lb", &address).await;
        cluster.settle().await;
        assert_eq!(ready(&read(kubectl, "lb").await), ("True".to_owned(), String::new()));
        kubectl.patch(&format!("{VMS}/vm"), &json!({"spec": {"runStrategy": "Halted"}})).await;
        cluster.settle().await;
        let lb = read(kubectl, "lb").await;
        assert_eq!((&lb["status"]["backendServers"], ready(&lb).0.as_str()), (&Value::Null, "False"));

        kubectl.delete(&format!("{BALANCERS}/lb"), "Background").await;
        cluster.settle().await;
        assert_eq!(
            allocated(kubectl, "all").await,
            json!({address.clone(): "default/lb"}),
            "the node holds it"
        );
        hold(kubectl, "lb", "").await;
        cluster.settle().await;
        assert_eq!(kubectl.names(BALANCERS).await, [] as [String; 0]);
        assert_eq!(allocated(kubectl, "all").await, Value::Null);
    });
}

#[test]
fn where_no_node_can_forward_a_balancer_says_why() {
    on_a_cluster(async |cluster, kubectl| {
        furnish_without_nodes(kubectl).await;
        add_node(kubectl, "n1", "8Gi").await;
        let conditions = json!([{"type": "Ready", "status": "True"},
            {"type": "TapsUsable", "status": "False", "message": "run it as root"}]);
        kubectl.patch(&format!("{NODES}/n1/status"), &json!({"status": {"conditions": conditions}})).await;
        kubectl.create(BALANCER_POOLS, &pool("all", "192.0.2.0/24", everybody())).await;
        kubectl.create(BALANCERS, &balancer("lb", for_machines())).await;
        cluster.settle().await;
        let why = ready(&read(kubectl, "lb").await).1;
        assert!(why.contains("node n1: run it as root"), "{why}");
        // A pool of what machines may get is refused, also when it comes by way of a change.
        let overlapping = pool("machines", "10.52.7.0/24", json!([]));
        let (code, answer) = kubectl.try_it(Method::POST, BALANCER_POOLS, Some(&overlapping)).await;
        assert!(
            code >= 400 && answer["message"].as_str().unwrap().contains("exclude those there"),
            "{answer}"
        );
    });
}
