//! `sheaf up` as an ordinary user: machines run, on QEMU's own network, and nobody has to guess what is missing.

use std::fs;

use serde_json::{Value, json};
use sheaf_tests::{
    addresses,
    machines::{Farm, MACHINES, rich_machine},
    node::{Node, ORDINARY_USER, Rights},
    patience,
};

const UUID: &str = "77777777-0000-4000-8000-000000000001";

fn condition(node: &Value, kind: &str) -> Value {
    let all = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|one| one["type"] == kind).unwrap_or_default()
}

#[test]
fn an_ordinary_user_runs_machines_and_is_told_what_root_would_add() {
    let node = Node::start_with_rights(Rights::OrdinaryUser, &["--allow-local-images"]);
    let farm = Farm::with_node(node, "");
    farm.furnish();
    let mut vm = rich_machine("plain", UUID);
    vm["spec"]["runStrategy"] = "Always".into();
    farm.api().post(MACHINES, &vm).object();
    let instance = farm.running("plain");
    let interfaces = instance["status"]["interfaces"].as_array().unwrap();
    assert!(interfaces.iter().all(|interface| interface["ipAddress"] == "10.0.2.15"), "{interfaces:?}");
    assert_eq!(interfaces.len(), 2);

    // As whom and in which sandbox.
    let processes = farm.processes(UUID);
    let status = fs::read_to_string(format!("/proc/{}/status", processes[0])).unwrap();
    let field = |field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(field("Uid:").iter().all(|id| *id == ORDINARY_USER.to_string()), "{status}");
    assert_eq!((field("NoNewPrivs:"), field("Seccomp:")), (vec!["1".to_owned()], vec!["2".to_owned()]));

    // Told in the node's status, and at its start.
    let told = patience::until("the node to say what is missing", || {
        let node = farm.api().get("/api/v1/nodes/n1").object();
        (!condition(&node, "MachinesKeptApart").is_null()).then_some(node)
    });
    assert_eq!(condition(&told, "Ready")["status"], "True");
    let log = farm.node.log();
    for (kind, reason, words) in [
        ("TapsUsable", "UserModeNetwork", "run it as root or with CAP_NET_ADMIN"),
        ("MachinesKeptApart", "NotRoot", "all machines run as user id 61234"),
    ] {
        let condition = condition(&told, kind);
        assert_eq!((&condition["status"], &condition["reason"]), (&"False".into(), &reason.into()));
        assert!(condition["message"].as_str().unwrap().contains(words), "{condition}");
        assert!(log.contains(words), "{words:?} is not in {log}");
    }

    lets_go_of_what_it_held_when_it_could(&farm);

    // It outlives its node here, too, and goes without a trace.
    let mut farm = farm;
    farm.node.kill();
    let farm = Farm::with_node(farm.node.start_again_with(&["--allow-local-images"]), "");
    let found = farm.running("plain");
    assert_eq!(found["metadata"]["uid"], instance["metadata"]["uid"]);
    assert_eq!(farm.processes(UUID), processes);
    farm.api().delete(&format!("{MACHINES}/plain"));
    let uids = [instance["metadata"]["uid"].as_str().unwrap().to_owned()];
    patience::until("nothing to be left of it", || {
        (farm.leftovers(&uids).is_empty() && farm.processes(UUID).is_empty()).then_some(())
    });
}

/// A node that had taps once is named by load balancers still.
fn lets_go_of_what_it_held_when_it_could(farm: &Farm) {
    const GROUP: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1";
    let of = |kind: &str, name: &str, spec: Value| {
        json!({"apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": kind, "metadata": {"name": name},
            "spec": spec})
    };
    let everybody = json!([{"namespace": "*", "project": "*", "guestCluster": "*"}]);
    // None that the host may have by chance.
    let subnet = format!("{}.0/29", addresses::next_prefix());
    let pool = json!({"ranges": [{"subnet": subnet}], "selector": {"scope": everybody}});
    farm.api().post(&format!("{GROUP}/ippools"), &of("IPPool", "pool", pool)).object();
    let listeners = json!([{"name": "web", "port": 80, "protocol": "TCP", "backendPort": 8080}]);
    let balancer =
        of("LoadBalancer", "lb", json!({"workloadType": "vm", "ipam": "pool", "listeners": listeners}));
    let all = format!("{GROUP}/namespaces/default/loadbalancers");
    farm.api().post(&all, &balancer).object();
    let path = format!("{all}/lb");
    let address = patience::until("an address to be allocated", || {
        let balancer = farm.api().get(&path).object();
        balancer["status"]["allocatedAddress"]["ip"].as_str().map(str::to_owned)
    });
    let held = json!({"status": {"nodeName": "n1", "address": address}});
    farm.api().patch(&path, "merge", &held.to_string()).object();
    patience::until("the node to let go", || {
        let balancer = farm.api().get(&path).object();
        let forwarding = condition(&balancer, "Forwarding");
        let says_why = forwarding["message"].as_str().is_some_and(|why| why.contains("no taps"));
        (balancer["status"]["address"].is_null() && forwarding["status"] == "False" && says_why).then_some(())
    });
    farm.api().delete(&path);
    patience::until("the balancer to be gone", || (farm.api().get(&path).code == 404).then_some(()));
}
