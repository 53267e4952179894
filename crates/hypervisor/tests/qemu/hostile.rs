//! A QEMU that its guest has taken over gets at nothing but what it was handed.
//!
//! A program that attacks takes QEMU's place and is launched as any machine is. The same program run as root shows that
//! each of its attacks would have got there.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    os::{
        linux::net::SocketAddrExt,
        unix::{
            fs::{DirBuilderExt, PermissionsExt},
            net::{SocketAddr as UnixAddress, UnixListener},
        },
    },
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::json;
use sheaf_hypervisor::machine::{Bus, DiskKind};
use tempfile::TempDir;

use crate::house::{AGENT, House, disk, layer, machine, writable};

/// Where everybody may run it, with what it is to attack.
fn hostile_program(targets: &serde_json::Value) -> (TempDir, PathBuf) {
    let directory =
        tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir().unwrap();
    let program = directory.path().join("hostile-qemu");
    fs::copy(AGENT, &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let list = directory.path().join("targets.json");
    fs::write(&list, targets.to_string()).unwrap();
    fs::set_permissions(&list, fs::Permissions::from_mode(0o644)).unwrap();
    (directory, program)
}

/// A directory and everything below it.
fn everything_in(directory: &Path) -> Vec<PathBuf> {
    let mut found = vec![directory.to_owned()];
    let mut next = 0;
    while let Some(place) = found.get(next) {
        let entries = fs::read_dir(place).into_iter().flatten().flatten();
        let entries: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        found.extend(entries);
        next += 1;
    }
    found
}

fn lines<'a>(said: &'a str, outcome: &str) -> Vec<&'a str> {
    said.lines().filter_map(|line| line.strip_prefix(outcome)).collect()
}

#[tokio::test]
async fn a_qemu_that_was_taken_over_reaches_no_machine_no_file_no_process_and_no_network() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("##  SKIPPED: without privileges machines are not kept apart");
        return;
    }
    let mut house = House::new();
    let mut victim = machine("victim");
    victim.disks = vec![disk("root", Bus::Virtio, DiskKind::Disk)];
    victim.guest_agent = true;
    // As the storage keeps them.
    fs::DirBuilder::new().mode(0o700).create(house.beside("volumes")).unwrap();
    let image = house.image("volumes/root", 1, b"another tenant's");
    let _monitor = house.launch(&victim, [(layer("root", 0), writable(&image))].into()).await;
    let victim_process = house.hypervisor.pid(&victim.id).unwrap().unwrap();
    let attacker = machine("attacker");
    house.hypervisor.define(&attacker).await.unwrap();

    // What the node itself has: a port, a socket without a file, memory and descriptors.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    let name = format!("sheaf-test-{}", std::process::id());
    let _agent = UnixListener::bind_addr(&UnixAddress::from_abstract_name(&name).unwrap()).unwrap();
    let mut paths = everything_in(&house.path());
    paths.push(image.clone());
    paths.extend(everything_in(&house.hypervisor.directory_of(&victim.id)));
    paths.extend(["/etc/shadow", "/root", "/dev/mem", "/proc/kcore"].map(PathBuf::from));
    paths.retain(|path| path.exists());
    let targets = json!({"paths": paths, "processes": [victim_process, std::process::id()],
        "addresses": [address], "abstract_sockets": [name]});
    let (_directory, program) = hostile_program(&targets);

    // As root, each kind of attack arrives: a wall that stops nothing would be noticed.
    let free = Command::new(&program).output().unwrap();
    let free = String::from_utf8_lossy(&free.stderr).into_owned();
    let reached = lines(&free, "reached: ").join("\n");
    for kind in ["read", "write", "connect", "list", "plant in", "link", "signal", "become root"] {
        assert!(reached.lines().any(|line| line.starts_with(kind)), "{kind}: {free}");
    }
    for kind in ["read mem of", "read environ of", "take a descriptor of", "list fd of", "see interface"] {
        assert!(reached.contains(kind), "{kind}: {free}");
    }
    assert!(reached.contains(&format!("connect {address}")) && reached.contains(&format!("connect @{name}")));

    house.replace_qemu(&program);
    assert!(house.hypervisor.launch(&attacker.id, Default::default()).await.is_err());
    let log = fs::read_to_string(house.hypervisor.directory_of(&attacker.id).join("log")).unwrap();
    assert!(log.contains("attacks: over"), "{log}");
    assert_eq!(lines(&log, "reached: "), [] as [&str; 0]);
    assert!(lines(&log, "refused: ").len() >= lines(&free, "reached: ").len(), "{log}");
    for id in [&victim.id, &attacker.id] {
        house.hypervisor.kill(id).await.unwrap();
        house.hypervisor.forget(id).await.unwrap();
    }
    house.assert_nothing_left();
}
