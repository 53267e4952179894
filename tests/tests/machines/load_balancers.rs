//! A load balancer in front of real guests: connections reach all that are well, and nothing is left when it goes.

use std::{
    collections::BTreeSet,
    io::Read as _,
    net::{SocketAddr, TcpStream},
    process::Command,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use sheaf_tests::{
    addresses,
    machines::{Farm, MACHINES, Serial, machine},
    patience,
};

const BALANCERS: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/default/loadbalancers";
const POOLS: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1/ippools";

/// A guest that has its address and answers every connection with its name.
fn serve(mut serial: Serial, instance: &Value) -> Serial {
    let name = instance["metadata"]["name"].as_str().unwrap();
    let address = instance["status"]["interfaces"][0]["ipAddress"].as_str().unwrap().to_owned();
    let (network, _) = address.rsplit_once('.').unwrap();
    serial.hears("tiny guest is up");
    serial.runs(&format!(
        "ip link set eth0 up; ip addr add {address}/24 dev eth0; ip route add default via {network}.1"
    ));
    serial.runs(&format!("nc -ll -p 8080 -e echo {name} >/dev/null 2>&1 &"));
    serial
}

fn asks(address: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).ok()?;
    Some(said.trim().to_owned())
}

/// Who answers, in so many connections.
fn answers(address: SocketAddr) -> BTreeSet<Option<String>> {
    (0..6).map(|_| asks(address)).collect()
}

fn only(names: &[&str]) -> BTreeSet<Option<String>> {
    names.iter().map(|name| Some((*name).to_owned())).collect()
}

fn ready(balancer: &Value) -> Option<Value> {
    let conditions = balancer["status"]["conditions"].as_array()?;
    conditions.iter().find(|one| one["type"] == "Ready").cloned()
}

fn on_the_host(program: &str, arguments: &[&str]) -> String {
    String::from_utf8(Command::new(program).args(arguments).output().unwrap().stdout).unwrap()
}

#[test]
fn connections_reach_every_guest_that_is_well_and_nothing_is_left_when_the_balancer_goes() {
    let Some(farm) = Farm::with_tiny_guest() else { return };
    if !rustix::process::geteuid().is_root() {
        return;
    }
    for (number, name) in ["one", "two"].into_iter().enumerate() {
        let mut vm = machine(name, &format!("44444444-0000-4000-8000-{number:012}"), Some("tiny"));
        vm["spec"]["runStrategy"] = json!("Always");
        vm["spec"]["template"]["metadata"] = json!({"labels": {"app": "web"}});
        farm.api().post(MACHINES, &vm).object();
    }
    // Nodes that share a kernel must not share addresses either.
    let subnet = format!("{}.0/29", addresses::next_prefix());
    let pool = json!({"apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "IPPool",
        "metadata": {"name": "pool"}, "spec": {"ranges": [{"subnet": subnet}],
            "selector": {"scope": [{"namespace": "*", "project": "*", "guestCluster": "*"}]}}});
    farm.api().post(POOLS, &pool).object();
    let balancer = json!({"apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "LoadBalancer",
        "metadata": {"name": "lb"}, "spec": {"workloadType": "vm", "ipam": "pool",
            "listeners": [{"name": "web", "port": 80, "protocol": "TCP", "backendPort": 8080}],
            "backendServerSelector": {"app": ["web"]}, "healthCheck": {"port": 8080}}});
    let asked = Instant::now();
    farm.api().post(BALANCERS, &balancer).object();
    let path = format!("{BALANCERS}/lb");
    let given = patience::until("an address to be allocated", || {
        let balancer = farm.api().get(&path).object();
        balancer["status"]["allocatedAddress"]["ip"].as_str().map(str::to_owned)
    });
    assert!(asked.elapsed() < Duration::from_secs(5), "it took {:?}", asked.elapsed());
    let address: SocketAddr = format!("{given}:80").parse().unwrap();

    // Both consoles at once: what a guest says while nobody is at its own is lost.
    let guests = ["one", "two"].map(|name| {
        let instance = farm.running(name);
        (farm.serial(&instance), instance)
    });
    let [mut one, _two] = guests.map(|(serial, instance)| serve(serial, &instance));
    patience::until("the balancer to be ready", || {
        let balancer = farm.api().get(&path).object();
        (ready(&balancer)?["status"] == "True" && balancer["status"]["address"] == given.as_str())
            .then_some(())
    });
    patience::until("both guests to be reached", || {
        (answers(address) == only(&["one", "two"])).then_some(())
    });

    // One stops answering, and nobody is sent there any more.
    one.runs("killall nc");
    let died = Instant::now();
    patience::until("connections to go to the other alone", || {
        (answers(address) == only(&["two"])).then_some(())
    });
    assert!(died.elapsed() < Duration::from_secs(15), "it took {:?}", died.elapsed());
    let events = farm.api().get("/api/v1/namespaces/default/events").object();
    let told = events["items"].as_array().unwrap().iter().any(|event| {
        event["involvedObject"]["kind"] == "LoadBalancer" && event["reason"] == "BackendServerDown"
    });
    assert!(told, "{events}");

    // The node dies, and connections do not notice; comes back, and nothing changes.
    let farm = {
        let mut farm = farm;
        farm.node.kill();
        assert_eq!(answers(address), only(&["two"]), "while nobody is there");
        farm.is_started_again()
    };
    one.runs("nc -ll -p 8080 -e echo one >/dev/null 2>&1 &");
    patience::until("the first to be back", || (answers(address) == only(&["one", "two"])).then_some(()));

    // A machine that is stopped is none of them any more.
    farm.set_run_strategy("two", "Halted");
    farm.stopped("two");
    patience::until("the stopped one to be left out", || (answers(address) == only(&["one"])).then_some(()));

    farm.api().delete(&path);
    patience::until("the balancer to be gone", || (farm.api().get(&path).code == 404).then_some(()));
    assert!(!on_the_host("ip", &["-4", "address"]).contains(&format!("{given}/")), "the address is gone");
    assert_eq!(asks(address), None);
    let tables = on_the_host("nft", &["list", "tables"]);
    let own = farm.bridge().unwrap().replace('-', "_");
    assert!(tables.contains(&own) && !tables.contains(&format!("{own}_lb")), "{tables}");
    let pool = farm.api().get(&format!("{POOLS}/pool")).object();
    assert_eq!(pool["status"]["allocated"], Value::Null);
    for name in ["one", "two"] {
        farm.api().delete(&format!("{MACHINES}/{name}"));
    }
}
