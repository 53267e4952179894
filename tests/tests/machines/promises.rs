//! What was asked of a machine, looked for on the host: limits, hardware, size; and how often one that dies is tried again.
//!
//! Nothing runs in these machines but their firmware, so no guest is waited for.

use std::{fs, path::Path, time::Instant};

use serde_json::{Value, json};
use sheaf_tests::{
    machines::{
        CLAIMS, Farm, MACHINES, NETWORKS, control_group_files, machine, network, places_of, rich_machine,
    },
    node::Node,
    patience,
};

const UUID: &str = "44444444-0000-4000-8000-000000000001";

/// Kills a machine's QEMU, and waits for the next one.
fn dies_and_comes_back(farm: &Farm, name: &str) -> Value {
    let uid = farm.running(name)["metadata"]["uid"].clone();
    let pid = rustix::process::Pid::from_raw(farm.processes(UUID)[0]).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    patience::until(format!("machine {name} to come back"), || {
        let is_next = |now: &Value| now["metadata"]["uid"] != uid && now["status"]["phase"] == "Running";
        farm.instance(name).filter(is_next)
    })
}

#[test]
fn what_is_asked_of_a_machine_is_kept_on_its_host_and_told_once_it_is() {
    let farm = Farm::start();
    let mut vm = machine("kept", UUID, None);
    vm["spec"]["runStrategy"] = "Always".into();
    let domain = &mut vm["spec"]["template"]["spec"]["domain"];
    domain["resources"] = json!({"limits": {"cpu": "500m"}});
    domain["devices"]["inputs"] = json!([{"name": "pointer", "type": "tablet", "bus": "virtio"}]);
    domain["devices"]["interfaces"][0]["model"] = "pcnet".into();
    farm.api().post(MACHINES, &vm).object();
    let instance = farm.running("kept");

    let ceilings =
        control_group_files(instance["metadata"]["uid"].as_str().unwrap(), &["cpu.cfs_quota_us", "cpu.max"]);
    assert!(
        !ceilings.is_empty() && ceilings.iter().all(|(_, text)| text.starts_with("50000")),
        "{ceilings:?}"
    );
    let line = fs::read(format!("/proc/{}/cmdline", farm.processes(UUID)[0])).unwrap();
    let line = String::from_utf8_lossy(&line);
    assert!(line.contains("virtio-tablet-pci") && line.contains("\"pcnet\""), "{line}");

    // The disk of a machine that is off grows when it is next started.
    let path = format!("{CLAIMS}/kept");
    let ask_for = |size: &str| {
        let larger = json!({"spec": {"resources": {"requests": {"storage": size}}}}).to_string();
        farm.api().patch(&path, "merge", &larger).object();
    };
    let grown_to = |size: &str| {
        patience::until(format!("the claim to have {size}"), || {
            let claim = farm.api().get(&path).object();
            (claim["status"]["capacity"]["storage"] == size).then_some(claim)
        })
    };
    farm.set_run_strategy("kept", "Halted");
    farm.stopped("kept");
    ask_for("24Mi");
    let waiting = patience::until("the claim to say that its volume is to grow", || {
        let claim = farm.api().get(&path).object();
        (claim["status"]["conditions"][0]["type"] == "FileSystemResizePending").then_some(claim)
    });
    assert_eq!(waiting["status"]["capacity"]["storage"], "16Mi", "nobody uses it");
    farm.set_run_strategy("kept", "Always");
    farm.running("kept");
    grown_to("24Mi");

    // That of one that runs grows under it.
    let processes = farm.processes(UUID);
    ask_for("32Mi");
    let grown = grown_to("32Mi");
    assert_eq!(grown["status"]["conditions"].as_array().map_or(0, Vec::len), 0, "{grown:#}");
    assert_eq!(farm.processes(UUID), processes, "it was not started again for that");
    let layer = format!("volumes/{}/layer-0", grown["metadata"]["uid"].as_str().unwrap());
    assert_eq!(fs::metadata(farm.node.data_dir().join(layer)).unwrap().len(), 32 << 20);

    // The first time it is back at once.
    dies_and_comes_back(&farm, "kept");

    // The second time it waits.
    let began = Instant::now();
    dies_and_comes_back(&farm, "kept");
    assert!(began.elapsed().as_secs() >= 9, "after {:?}", began.elapsed());
    let status = farm.api().get(&format!("{MACHINES}/kept")).object()["status"].clone();
    assert!(status["startFailure"]["consecutiveFailCount"].as_i64() >= Some(1), "{status:#}");
    farm.api().delete(&format!("{MACHINES}/kept"));
    patience::until("the machine to be gone", || farm.processes(UUID).is_empty().then_some(()));
}

#[test]
fn a_running_machine_tells_of_its_volumes_and_networks_what_clients_of_kubevirt_and_harvester_read() {
    let farm = Farm::start();
    farm.furnish();
    // Whoever asks for larger frames than the network has gets the network's.
    let asked = network("jumbo", json!({"mtu": 9000}));
    let made = farm.api().post(NETWORKS, &asked).object();
    let mtu = |definition: &Value| {
        let config = definition["spec"]["config"].as_str().unwrap();
        serde_json::from_str::<Value>(config).unwrap()["mtu"].clone()
    };
    assert_eq!(mtu(&made), 1500);
    let refused = farm.api().patch(&format!("{NETWORKS}/jumbo"), "merge", &asked.to_string());
    assert_eq!(refused.code, 422, "{}", refused.text());
    assert!(
        refused.text().contains("nad MTU 9000 does not match cluster network MTU 1500"),
        "{}",
        refused.text()
    );

    let uuid = "44444444-0000-4000-8000-000000000002";
    let mut vm = rich_machine("told", uuid);
    vm["spec"]["runStrategy"] = "Always".into();
    vm["spec"]["template"]["spec"]["networks"][1]["multus"]["networkName"] = "default/jumbo".into();
    farm.api().post(MACHINES, &vm).object();
    let instance = farm.running("told");
    let mtus: Vec<_> = farm.links().iter().map(|link| link["mtu"].clone()).collect();
    assert_eq!(mtus, [1500, 1500]);

    let told = patience::until("all volumes to be told of", || {
        let volumes = farm.instance("told")?["status"]["volumeStatus"].as_array()?.clone();
        volumes
            .iter()
            .all(|one| !one["persistentVolumeClaimInfo"].is_null() || one["size"] != 0)
            .then_some(volumes)
    });
    let claim = |name: &str, size: &str| {
        json!({"claimName": name, "accessModes": ["ReadWriteOnce"], "volumeMode": "Block",
            "capacity": {"storage": size}, "requests": {"storage": size}})
    };
    let uid = instance["metadata"]["uid"].as_str().unwrap();
    let seed = fs::metadata(farm.node.data_dir().join(format!("seeds/{uid}-1"))).unwrap().len();
    assert!(seed > 0);
    assert_eq!(
        Value::from(told),
        json!([
            {"name": "data", "target": "sda", "persistentVolumeClaimInfo": claim("told-data", "8Mi")},
            {"name": "root", "target": "vda", "persistentVolumeClaimInfo": claim("told", "16Mi")},
            {"name": "seed", "target": "vdb", "size": seed},
        ])
    );
    farm.api().delete(&format!("{MACHINES}/told"));
    patience::until("the machine to be gone", || farm.processes(uuid).is_empty().then_some(()));
}

#[test]
fn a_node_that_a_test_killed_leaves_no_control_group() {
    let mut node = Node::start();
    let places = places_of(node.pid());
    node.kill();
    // On a host that gave the node a place there is none of its own.
    assert!(places.iter().all(|place| Path::new(place).exists()), "{places:?}");
    drop(node);
    patience::until(format!("{places:?} to be gone"), || {
        places.iter().all(|place| !Path::new(place).exists()).then_some(())
    });
}
