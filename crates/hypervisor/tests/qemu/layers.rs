//! A running machine's disk gets layers put on it, and loses them again, while it is written to.

use std::{os::fd::AsFd, path::Path, process::Command};

use serde_json::json;
use sheaf_hypervisor::{
    Descriptors, Machine, Monitor,
    command_line::numbered_node_name,
    machine::{Bus, DiskKind, Format, Layer, LayerStorage},
    qmp::layers::Switch,
};

use crate::house::{House, disk, layer, machine, read_only, turn, writable};

/// Writes as the guest's device does, and reads back.
async fn io(monitor: &Monitor, command: &str) {
    let line = format!("qemu-io -d disk-data \"{command}\"");
    monitor.execute("human-monitor-command", json!({ "command-line": line })).await.unwrap();
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn new_layer(house: &House, name: &str) -> std::path::PathBuf {
    let path = house.beside(name);
    run("qemu-img", &["create", "-q", "-f", "qcow2", path.to_str().unwrap(), "16M"]);
    path
}

async fn active_node(monitor: &Monitor) -> Option<String> {
    let plugged = monitor.plugged().await.unwrap();
    let data = &plugged.disks[&"data".parse().unwrap()];
    assert_eq!(data.source.as_deref(), Some("volume"), "it is known whose it is");
    data.medium.clone().map(|medium| medium.node)
}

fn numbered(number: u32, format: Format, read_only: bool) -> Layer {
    Layer { number: Some(number), format, storage: LayerStorage::File, read_only }
}

/// What QEMU reads through layers that nobody uses.
fn must_read(layers: &[(&str, &Path)], pattern: u8, at: &str, bytes: &str) {
    let mut below = String::from("null");
    for (format, path) in layers {
        let backing = if *format == "qcow2" { format!(r#","backing":{below}"#) } else { String::new() };
        let file = format!(r#"{{"driver":"file","filename":"{}"}}"#, path.display());
        below = format!(r#"{{"driver":"{format}","file":{file}{backing}}}"#);
    }
    let command = format!("read -P {pattern} {at} {bytes}");
    let said = run("qemu-io", &["-r", "-c", &command, &format!("json:{below}")]);
    assert!(!said.contains("verification failed"), "not {pattern} at {at}: {said}");
}

#[tokio::test]
async fn a_disk_is_switched_to_new_layers_and_a_lower_one_is_taken_out_while_it_runs() {
    let _turn = turn().await;
    let house = House::new();
    let raw = house.image("raw", 16, b"");
    let [one, two] = ["one", "two"].map(|name| new_layer(&house, name));
    let mut data = disk("data", Bus::Scsi, DiskKind::Disk);
    data.layers = vec![numbered(0, Format::Raw, false)];
    data.source = Some("volume".into());
    let machine = Machine { disks: vec![data.clone()], ..machine("layers") };
    let monitor = house.launch(&machine, Descriptors::from([(layer("data", 0), writable(&raw))])).await;
    let node = |number| numbered_node_name(&data.name, number);
    assert_eq!(active_node(&monitor).await, Some(node(0)));

    io(&monitor, "write -P 1 0 4M").await;
    for (number, path) in [(1, &one), (2, &two)] {
        let new = numbered(number, Format::Qcow2, false);
        // Twice, as after an attempt that was interrupted.
        for _ in 0..2 {
            monitor.add_layer(&data, &new, &node(number), None, writable(path).as_fd()).await.unwrap();
        }
        let switch = Switch { from: node(number - 1), to: node(number) };
        monitor.switch_layers(&[switch]).await.unwrap();
        assert_eq!(active_node(&monitor).await, Some(node(number)));
        io(&monitor, &format!("write -P {} {}M 2M", number + 1, number)).await;
    }
    must_read(&[("raw", &raw)], 1, "0", "4M");

    // Somebody else puts the middle one into the lowest one, under its eyes.
    commit(&one, &raw);
    io(&monitor, "write -P 8 14M 1M").await;
    let fresh = numbered(0, Format::Raw, true);
    monitor.add_layer(&data, &fresh, "fresh", None, read_only(&raw).as_fd()).await.unwrap();
    assert!(!monitor.remove_layer(&node(1)).await.unwrap(), "the top one lies on it");
    let top = numbered(2, Format::Qcow2, false);
    monitor.rebase_layer(&data, &top, &node(2), "fresh").await.unwrap();
    for gone in [node(1), node(0)] {
        assert!(monitor.remove_layer(&gone).await.unwrap());
        assert!(!monitor.remove_layer(&gone).await.unwrap(), "it is gone already");
    }
    assert_eq!(active_node(&monitor).await, Some(node(2)));
    let open = open_files(&house, &machine.id);
    assert!(!open.contains(&one), "what was taken out is closed: {open:?}");
    io(&monitor, "write -P 9 15M 1M").await;
    monitor.quit().await.unwrap();
    monitor.closed().await;
    house.end(&machine.id).await;

    let chain: [(&str, &Path); 2] = [("raw", &raw), ("qcow2", &two)];
    for (pattern, at, bytes) in [
        (1, "0", "1M"),
        (2, "1M", "1M"),
        (3, "2M", "2M"),
        (0, "4M", "10M"),
        (8, "14M", "1M"),
        (9, "15M", "1M"),
    ] {
        must_read(&chain, pattern, at, bytes);
    }
}

/// Puts what is in a layer into a raw file, whoever has them open for reading.
fn commit(upper: &Path, lower: &Path) {
    let file =
        |path: &Path| format!(r#"{{"driver":"file","locking":"off","filename":"{}"}}"#, path.display());
    let below = format!(r#"{{"driver":"raw","file":{}}}"#, file(lower));
    let chain = format!(r#"json:{{"driver":"qcow2","file":{},"backing":{below}}}"#, file(upper));
    run("qemu-img", &["commit", "-q", "-d", &chain]);
}

fn open_files(house: &House, id: &sheaf_hypervisor::MachineId) -> Vec<std::path::PathBuf> {
    let pid = house.hypervisor.pid(id).unwrap().unwrap();
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    entries.filter_map(|entry| std::fs::read_link(entry.path()).ok()).collect()
}

#[tokio::test]
async fn a_workshop_has_no_machine_and_works_on_what_it_is_handed() {
    let _turn = turn().await;
    let house = House::new();
    let workshop = Machine::workshop("workshop-test".parse().unwrap());
    let monitor = house.launch(&workshop, Descriptors::new()).await;
    let raw = house.image("raw", 16, b"");
    let set = monitor.add_descriptor(writable(&raw).as_fd()).await.unwrap();
    let node = json!({ "driver": "file", "node-name": "f", "filename": format!("/dev/fdset/{set}") });
    monitor.add_block_node(node).await.unwrap();
    monitor.execute("block_resize", json!({ "node-name": "f", "size": 32 << 20 })).await.unwrap();
    assert_eq!(std::fs::metadata(&raw).unwrap().len(), 32 << 20);
    monitor.quit().await.unwrap();
    monitor.closed().await;
    house.end(&workshop.id).await;
}
