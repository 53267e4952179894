//! The devices that a guest sees as its disks, one per bus and kind.

use serde_json::{Value, json};

use super::{block, pci};
use crate::machine::{Bus, Cache, DeviceName, Disk, DiskKind, Machine};

/// The id of a disk's device, for whoever wants to unplug it or ask for its numbers.
pub fn device_id(disk: &Disk) -> String {
    device_id_of(&disk.name)
}

/// The same for a disk of which only the name is known.
pub fn device_id_of(disk: &DeviceName) -> String {
    format!("disk-{disk}")
}

/// The id of the thread that serves a virtio disk.
pub fn io_thread_id(disk: &Disk) -> String {
    format!("iothread-{}", disk.name)
}

/// The thread that serves all SCSI disks.
const SCSI_IO_THREAD: &str = "iothread-scsi";

/// The ports of q35's own SATA controller.
const BUILT_IN_SATA_PORTS: usize = 6;

fn on(machine: &Machine, bus: Bus) -> impl Iterator<Item = &Disk> {
    machine.disks.iter().filter(move |disk| disk.bus == bus)
}

/// The threads that disks are served from.
pub fn io_threads(machine: &Machine) -> Vec<String> {
    let own = on(machine, Bus::Virtio).filter(|disk| disk.io_thread).map(io_thread_id);
    let shared = on(machine, Bus::Scsi).any(|disk| disk.io_thread).then(|| SCSI_IO_THREAD.to_owned());
    own.chain(shared).collect()
}

/// Controllers first, then the disks in the machine's order.
pub fn devices(machine: &Machine) -> Vec<Value> {
    let mut devices = controllers(machine);
    let mut seen = [0; 4];
    for disk in &machine.disks {
        let index = seen[disk.bus as usize];
        seen[disk.bus as usize] += 1;
        match (disk.bus, disk.kind) {
            (Bus::Virtio, _) => devices.push(virtio(disk, index)),
            (Bus::Scsi, kind) => devices.push(scsi(disk, kind, Some(index))),
            (Bus::Sata, kind) => devices.push(sata(disk, kind, index)),
            (Bus::Usb, DiskKind::Disk) => devices.push(usb(disk, index)),
            (Bus::Usb, DiskKind::Cdrom) => devices.extend(usb_cdrom(disk, index)),
        }
    }
    devices
}

/// Where a disk goes that is plugged in while the machine runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Socket {
    /// Beside the other SCSI disks, wherever there is room.
    Scsi,
    /// Behind this port, which nothing else is behind.
    Port(String),
}

/// The device of a disk that is plugged in later. It is nothing to boot from: that was settled when the machine began.
pub fn late_device(disk: &Disk, socket: &Socket) -> Value {
    let mut device = match socket {
        Socket::Scsi => scsi(disk, disk.kind, None),
        Socket::Port(port) => {
            let mut device = device("virtio-blk-pci", disk);
            device["bus"] = port.as_str().into();
            device
        }
    };
    if let Some(properties) = device.as_object_mut() {
        properties.remove("bootindex");
    }
    device
}

fn controllers(machine: &Machine) -> Vec<Value> {
    let mut controllers = Vec::new();
    // Always there, so that a SCSI disk can be plugged in later.
    let mut scsi = json!({
        "driver": "virtio-scsi-pci",
        "id": "scsi",
        "bus": "pcie.0",
        "addr": pci::SCSI,
        "disable-legacy": "on",
    });
    if on(machine, Bus::Scsi).any(|disk| disk.io_thread) {
        scsi["iothread"] = SCSI_IO_THREAD.into();
    }
    controllers.push(scsi);
    if on(machine, Bus::Sata).count() > BUILT_IN_SATA_PORTS {
        controllers
            .push(json!({ "driver": "ahci", "id": "sata", "bus": "pcie.0", "addr": pci::SECOND_SATA }));
    }
    controllers
}

/// What a disk's device has on every bus.
fn device(driver: &str, disk: &Disk) -> Value {
    let mut device = json!({ "driver": driver, "id": device_id(disk) });
    if let Some(node) = block::top_node(disk) {
        device["drive"] = node.into();
    }
    if let Some(index) = disk.boot_index {
        device["bootindex"] = index.into();
    }
    if let Some(serial) = &disk.serial {
        device["serial"] = serial.as_str().into();
    }
    // The guest may believe that its flushes are obeyed, because they are.
    if disk.kind == DiskKind::Disk {
        let write_cache = if disk.cache == Cache::WriteThrough { "off" } else { "on" };
        device["write-cache"] = write_cache.into();
    }
    device
}

fn virtio(disk: &Disk, index: usize) -> Value {
    let mut device = device("virtio-blk-pci", disk);
    device["bus"] = pci::disk_port(index).into();
    if disk.io_thread {
        device["iothread"] = io_thread_id(disk).into();
    }
    device
}

/// Without an index QEMU takes the lowest number that is free.
fn scsi(disk: &Disk, kind: DiskKind, index: Option<usize>) -> Value {
    let mut device = device(if kind == DiskKind::Cdrom { "scsi-cd" } else { "scsi-hd" }, disk);
    device["bus"] = "scsi.0".into();
    device["channel"] = 0.into();
    device["scsi-id"] = 0.into();
    if let Some(index) = index {
        device["lun"] = index.into();
    }
    if let Some(id) = &disk.device_id {
        device["device_id"] = id.as_str().into();
    }
    device
}

fn sata(disk: &Disk, kind: DiskKind, index: usize) -> Value {
    let mut device = device(if kind == DiskKind::Cdrom { "ide-cd" } else { "ide-hd" }, disk);
    let bus = match index.checked_sub(BUILT_IN_SATA_PORTS) {
        None => format!("ide.{index}"),
        Some(index) => format!("sata.{index}"),
    };
    device["bus"] = bus.into();
    device
}

fn usb(disk: &Disk, index: usize) -> Value {
    let mut device = device("usb-storage", disk);
    device["bus"] = "usb.0".into();
    device["port"] = usb_port(index);
    // The controller between them knows of no write cache to switch.
    if let Some(properties) = device.as_object_mut() {
        properties.remove("write-cache");
    }
    device
}

fn usb_cdrom(disk: &Disk, index: usize) -> [Value; 2] {
    let bridge = format!("{}-bridge", device_id(disk));
    let mut drive = device("scsi-cd", disk);
    drive["bus"] = format!("{bridge}.0").into();
    [json!({ "driver": "usb-bot", "id": bridge, "bus": "usb.0", "port": usb_port(index) }), drive]
}

/// The first port is the tablet's, whether there is one or not.
fn usb_port(index: usize) -> Value {
    (index + 2).to_string().into()
}
