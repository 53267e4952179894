//! Machines that cannot be, each for one reason.

use super::*;
use crate::machine::{
    Accelerator, Backend, Cpu, DeviceName, Layer, LayerStorage, MachineId, Nic, SystemInformation,
};

fn name(text: &str) -> DeviceName {
    text.parse().unwrap()
}

fn raw(read_only: bool) -> Layer {
    Layer { number: None, format: Format::Raw, storage: LayerStorage::File, read_only }
}

fn disk_on(bus: Bus, kind: DiskKind) -> Disk {
    Disk {
        name: name("root"),
        bus,
        kind,
        layers: vec![raw(kind == DiskKind::Cdrom)],
        boot_index: None,
        serial: None,
        device_id: None,
        cache: Cache::WriteBack,
        aio: Aio::Threads,
        source: None,
        io_thread: false,
    }
}

fn machine() -> Machine {
    Machine {
        id: "a".parse::<MachineId>().unwrap(),
        name: "a".into(),
        uuid: "7d9f1a52-3c0e-4a6b-9b1e-0c2d3e4f5a6b".into(),
        machine_type: "pc-q35-7.2".into(),
        accelerator: Accelerator::Tcg,
        cpu: Cpu {
            model: "max".into(),
            features: vec![],
            sockets: 1,
            cores: 1,
            threads: 1,
            max_sockets: 1,
            limit_milli: None,
            request_milli: None,
        },
        memory_mib: 64,
        max_memory_mib: None,
        balloon: false,
        firmware: Firmware::Bios,
        kernel: None,
        system: SystemInformation::default(),
        disks: vec![disk_on(Bus::Virtio, DiskKind::Disk)],
        nics: vec![],
        rng: false,
        guest_agent: false,
        serial_console: true,
        graphics: false,
        tablet: false,
        virtio_tablet: false,
        acpi: true,
        start_paused: false,
    }
}

#[track_caller]
fn refused(change: impl FnOnce(&mut Machine)) -> String {
    let mut machine = machine();
    assert_eq!(machine.validate(), Ok(()));
    change(&mut machine);
    machine.validate().expect_err("it was taken").to_string()
}

#[test]
fn a_word_that_would_add_options_is_refused() {
    refused(|machine| machine.machine_type = "pc-q35-7.2,accel=kvm".into());
    refused(|machine| machine.machine_type = "q35".into());
    refused(|machine| machine.cpu.model = "max,+vmx".into());
    refused(|machine| machine.uuid = "7d9f1a52".into());
    refused(|machine| machine.name = "a\nb".into());
    refused(|machine| machine.system.serial = Some("\0".into()));
}

#[test]
fn numbers_that_no_machine_has_are_refused() {
    refused(|machine| machine.cpu.sockets = 0);
    refused(|machine| machine.cpu.cores = 256);
    refused(|machine| machine.cpu.max_sockets = 0);
    refused(|machine| (machine.cpu.max_sockets, machine.cpu.cores) = (16, 16));
    refused(|machine| (machine.cpu.cores, machine.cpu.threads) = (u32::MAX, u32::MAX));
    refused(|machine| machine.memory_mib = 0);
    refused(|machine| machine.memory_mib = u64::MAX);
}

#[test]
fn disks_that_cannot_be_are_refused() {
    let refused = |change: fn(&mut Disk)| refused(|machine| change(&mut machine.disks[0]));
    refused(|disk| disk.layers.clear());
    refused(|disk| disk.layers = vec![raw(true), raw(false)]);
    refused(|disk| disk.layers = vec![raw(false), Layer { format: Format::Qcow2, ..raw(false) }]);
    refused(|disk| disk.serial = Some("x".repeat(21)));
    refused(|disk| disk.serial = Some("a b".into()));
    refused(|disk| disk.device_id = Some("pvc-a".into()));
    refused(|disk| *disk = disk_on(Bus::Virtio, DiskKind::Cdrom));
    refused(|disk| {
        *disk = disk_on(Bus::Sata, DiskKind::Cdrom);
        disk.layers[0].read_only = false;
    });
    refused(|disk| {
        *disk = disk_on(Bus::Sata, DiskKind::Disk);
        disk.layers[0].read_only = true;
    });
    refused(|disk| disk.aio = Aio::Native);
}

#[test]
fn an_empty_drive_is_a_drive_and_an_empty_disk_is_none() {
    let mut machine = machine();
    machine.disks[0] = disk_on(Bus::Sata, DiskKind::Cdrom);
    machine.disks[0].layers.clear();
    assert_eq!(machine.validate(), Ok(()));
}

#[test]
fn names_are_unique_and_places_are_limited() {
    let why = refused(|machine| machine.disks.push(machine.disks[0].clone()));
    assert!(why.contains("root"), "{why}");
    refused(|machine| {
        machine.disks = (0..=pci::DISK_PORTS)
            .map(|index| Disk { name: name(&format!("d{index}")), ..disk_on(Bus::Virtio, DiskKind::Disk) })
            .collect();
    });
    refused(|machine| {
        let nic = |index| Nic {
            name: name(&format!("n{index}")),
            mac: "52:54:00:00:00:01".parse().unwrap(),
            model: NicModel::Virtio,
            backend: Backend::Tap { vhost: false },
            boot_index: None,
            mtu: None,
        };
        machine.nics = (0..=pci::NIC_PORTS).map(nic).collect();
    });
}
