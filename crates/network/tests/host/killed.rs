//! The process is killed after every single step, and the next start carries on.

use std::{
    collections::BTreeSet,
    net::Ipv4Addr,
    os::unix::process::ExitStatusExt as _,
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
};

use rustix::process::{Signal, getpid, kill_process};
use sheaf_network::{AfterStep, Balanced, Listener, Network, Protocol};

use crate::place::{Place, network, port, run};

/// Tells the test binary that it is the child, and after which step it dies.
const STEP: &str = "SHEAF_NETWORK_KILLED_AFTER";

/// A load balancer with an address that ends in this.
fn balanced(last: u8) -> Balanced {
    let listeners = vec![Listener { protocol: Protocol::Tcp, port: 80, guest_port: 80 }];
    let guests = vec![Ipv4Addr::new(10, 52, 0, 2)];
    Balanced { address: Ipv4Addr::new(192, 0, 2, last), listeners, guests }
}

/// A whole life: the network comes up, a machine comes and goes, everything is removed.
async fn live(network: &Network) {
    network.ensure().await.unwrap();
    network.set_ports(&[port(2)]).await.unwrap();
    drop(network.open_tap(&port(2)).await.unwrap());
    network.set_balanced(&[balanced(60)]).await.unwrap();
    network.set_balanced(&[balanced(61)]).await.unwrap();
    network.remove_everything().await.unwrap();
}

#[test]
fn killed_after_any_step_the_next_start_arrives_and_leaves_nothing_behind() {
    let Some(place) = Place::new() else { return };
    let node = place.node();
    let seen =
        || (run(&format!("ip -n {node} -br link")), run(&format!("ip netns exec {node} nft list ruleset")));
    let untouched = seen();
    let mut steps = 0;
    loop {
        let child = Command::new("ip")
            .args(["netns", "exec", &node])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "killed::the_child", "--ignored"])
            .env(STEP, steps.to_string())
            .output()
            .unwrap();
        if child.status.success() {
            break;
        }
        assert_eq!(child.status.signal(), Some(9), "{}", String::from_utf8_lossy(&child.stdout));
        steps += 1;
        place.on_the_node(async || {
            let network = network();
            network.ensure().await.unwrap();
            assert!(network.found_taps().await.unwrap().len() <= 1);
            network.set_ports(&[port(2)]).await.unwrap();
            drop(network.open_tap(&port(2)).await.unwrap());
            assert_eq!(network.found_taps().await.unwrap()[0].id, Some(port(2).id));
            network.set_balanced(&[balanced(61)]).await.unwrap();
            let held = network.addresses().await.unwrap().held;
            assert_eq!(held, BTreeSet::from([balanced(61).address]), "after step {steps}");
            network.remove_everything().await.unwrap();
        });
        assert_eq!(seen(), untouched, "something was left behind after step {steps}");
        run(&format!("ip netns exec {node} busybox sysctl -w net.ipv4.ip_forward=0"));
    }
    assert!(steps >= 24, "only {steps} steps were seen");
}

#[test]
#[ignore = "the child of the test above"]
fn the_child() {
    let last: usize = std::env::var(STEP).unwrap().parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let taken = AtomicUsize::new(0);
    let network = network().after_step(AfterStep::call(move |_| {
        if taken.fetch_add(1, Ordering::Relaxed) == last {
            kill_process(getpid(), Signal::KILL).unwrap();
        }
    }));
    runtime.block_on(live(&network));
}
