//! A node and an outside, with a wire between them, in namespaces of their own.
//!
//! ```text
//!   guests --- taps, bridge 10.52.0.1 | node | 192.0.2.1 --- 192.0.2.2 | outside
//! ```
//!
//! The outside knows no way to the guests, so whatever it answers to them went through
//! the node's NAT.

use std::{
    fs::File,
    io::Write as _,
    net::Ipv4Addr,
    os::fd::AsFd as _,
    process::{Command, Output},
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sheaf_network::{Mac, Network, NetworkConfig, NetworkNames, NicId, Port};

pub const NODE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub const OUTSIDE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 52, 0, 1);

pub struct Place {
    prefix: String,
    namespaces: parking_lot::Mutex<Vec<String>>,
}

impl Place {
    /// None, loudly, where there is no right to make one.
    pub fn new() -> Option<Place> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root() {
            let name = thread::current().name().unwrap_or_default().to_owned();
            // Straight to the stream: what goes through `eprintln!` a passing test keeps to itself.
            let _ = writeln!(
                std::io::stderr(),
                "\n*** SKIPPED {name}: it makes network namespaces; run it as root ***"
            );
            return None;
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let place =
            Place { prefix: format!("shn-{}-{number}", std::process::id()), namespaces: Vec::new().into() };
        let (node, outside) = (place.add("node"), place.add("outside"));
        run(&format!("ip -n {node} link add uplink0 type veth peer name eth0 netns {outside}"));
        run(&format!("ip -n {node} addr add {NODE}/24 dev uplink0"));
        run(&format!("ip -n {outside} addr add {OUTSIDE}/24 dev eth0"));
        run(&format!("ip -n {node} link set uplink0 up"));
        run(&format!("ip -n {outside} link set eth0 up"));
        run(&format!("ip -n {node} route add default via {OUTSIDE}"));
        Some(place)
    }

    /// Another namespace of this place; its name.
    pub fn add(&self, what: &str) -> String {
        let name = format!("{}-{what}", self.prefix);
        run(&format!("ip netns add {name}"));
        self.namespaces.lock().push(name.clone());
        run(&format!("ip -n {name} link set lo up"));
        name
    }

    pub fn node(&self) -> String {
        format!("{}-node", self.prefix)
    }

    pub fn outside(&self) -> String {
        format!("{}-outside", self.prefix)
    }

    /// Runs `work` on a runtime of its own inside the node.
    pub fn on_the_node<T: Send>(&self, work: impl AsyncFnOnce() -> T + Send) -> T {
        within(&self.node(), || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(work())
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for name in self.namespaces.lock().iter() {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

/// Runs `work` on a thread inside a namespace. Children it starts are inside too.
pub fn within<T: Send>(namespace: &str, work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let inside = scope.spawn(|| {
            let handle = File::open(format!("/run/netns/{namespace}")).unwrap();
            move_into_link_name_space(handle.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            work()
        });
        inside.join().unwrap_or_else(|why| std::panic::resume_unwind(why))
    })
}

pub fn attempt(command: &str) -> Output {
    let mut words = command.split_whitespace();
    Command::new(words.next().unwrap()).args(words).output().unwrap()
}

/// Runs a command that must succeed; what it printed.
#[track_caller]
pub fn run(command: &str) -> String {
    let output = attempt(command);
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

pub fn config() -> NetworkConfig {
    NetworkConfig::new(NetworkNames::plain(), "10.52.0.0/16".parse().unwrap()).unwrap()
}

pub fn network() -> Network {
    Network::new(config()).unwrap()
}

/// The one NIC of machine `number`, whose MAC and address end in it.
pub fn port(number: u8) -> Port {
    Port {
        id: NicId { machine: format!("default/vm-{number}"), nic: 0 },
        mac: Mac([2, 0, 0, 0, 0, number]),
        addresses: vec![Ipv4Addr::new(10, 52, 0, number)],
        hostname: Some(format!("vm-{number}")),
        bridge: "mgmt-br".to_owned(),
        owner_uid: 4242,
    }
}
