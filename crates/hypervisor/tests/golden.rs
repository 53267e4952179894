//! The whole command line of a machine of every kind, one file each under `golden/`.
//!
//! A change to any of these files is a change to what guests see or to how they are
//! guarded, and is to be looked at as such. To accept it: `INSTA_UPDATE=always`.

#![expect(clippy::unwrap_used, reason = "a name that is none is a failed test")]

use sheaf_hypervisor::{
    Machine, command_line,
    machine::{
        Accelerator, Aio, Backend, Bus, Cache, Cpu, CpuFeature, Disk, DiskKind, Firmware, Format,
        HostForward, Kernel, Layer, LayerStorage, Nic, NicModel, Protocol, SystemInformation,
    },
};

fn machine() -> Machine {
    Machine {
        id: "0e9ad7f6-6f2c-4a3e-9d8c-0a1b2c3d4e5f".parse().unwrap(),
        name: "default_web".into(),
        uuid: "7d9f1a52-3c0e-4a6b-9b1e-0c2d3e4f5a6b".into(),
        machine_type: "pc-q35-7.2".into(),
        accelerator: Accelerator::Kvm,
        cpu: Cpu {
            model: "host".into(),
            features: vec![],
            sockets: 1,
            cores: 2,
            threads: 1,
            max_sockets: 4,
            limit_milli: None,
            request_milli: None,
        },
        memory_mib: 2048,
        max_memory_mib: None,
        balloon: true,
        firmware: Firmware::Bios,
        kernel: None,
        system: SystemInformation::default(),
        disks: vec![],
        nics: vec![],
        rng: true,
        guest_agent: true,
        serial_console: true,
        graphics: true,
        tablet: true,
        virtio_tablet: false,
        acpi: true,
        start_paused: false,
    }
}

/// As little as a machine can have, so that a file shows one thing.
fn bare() -> Machine {
    Machine {
        balloon: false,
        rng: false,
        guest_agent: false,
        serial_console: false,
        graphics: false,
        tablet: false,
        virtio_tablet: false,
        ..machine()
    }
}

fn layer(format: Format, read_only: bool) -> Layer {
    Layer { number: None, format, storage: LayerStorage::File, read_only }
}

fn disk(name: &str, bus: Bus) -> Disk {
    Disk {
        name: name.parse().unwrap(),
        bus,
        kind: DiskKind::Disk,
        layers: vec![layer(Format::Raw, false)],
        boot_index: None,
        serial: None,
        device_id: None,
        cache: Cache::None,
        aio: Aio::Native,
        source: None,
        io_thread: false,
    }
}

fn cdrom(name: &str, bus: Bus) -> Disk {
    Disk { kind: DiskKind::Cdrom, layers: vec![layer(Format::Raw, true)], ..disk(name, bus) }
}

fn nic(name: &str, model: NicModel, backend: Backend) -> Nic {
    Nic {
        name: name.parse().unwrap(),
        mac: "52:54:00:12:34:56".parse().unwrap(),
        model,
        backend,
        boot_index: None,
        mtu: None,
    }
}

/// One option to a line, as one would type it.
#[track_caller]
fn golden(name: &str, machine: &Machine) {
    assert_eq!(machine.validate(), Ok(()), "no such machine can be");
    let mut text = String::new();
    for argument in command_line(machine) {
        let separator = if argument.starts_with('-') { "\n" } else { " " };
        text.push_str(separator);
        text.push_str(&argument);
    }
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("golden");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text.trim_start()));
}

#[test]
fn an_ordinary_machine() {
    let mut machine = machine();
    machine.disks = vec![
        Disk {
            layers: vec![layer(Format::Raw, true), layer(Format::Qcow2, true), layer(Format::Qcow2, false)],
            boot_index: Some(1),
            serial: Some("root".into()),
            aio: Aio::IoUring,
            io_thread: true,
            ..disk("root", Bus::Virtio)
        },
        cdrom("cloudinit", Bus::Sata),
    ];
    machine.nics =
        vec![Nic { mtu: Some(1450), ..nic("default", NicModel::Virtio, Backend::Tap { vhost: true }) }];
    golden("ordinary", &machine);
}

#[test]
fn a_machine_with_room_for_more() {
    let mut machine = bare();
    (machine.cpu.max_sockets, machine.max_memory_mib) = (4, Some(machine.memory_mib * 4 + 1));
    let claim = "pvc-0e9ad7f6-6f2c-4a3e-9d8c-0a1b2c3d4e5f";
    let source = Some("1b2c3d4e-0000-4000-8000-000000000000".into());
    machine.disks = vec![Disk { source, ..disk(claim, Bus::Scsi) }];
    golden("room-for-more", &machine);
}

#[test]
fn virtio_disks() {
    let mut machine = bare();
    machine.disks = vec![
        disk("a", Bus::Virtio),
        Disk { io_thread: true, cache: Cache::WriteBack, aio: Aio::Threads, ..disk("b", Bus::Virtio) },
        Disk {
            layers: vec![Layer { storage: LayerStorage::BlockDevice, ..layer(Format::Raw, false) }],
            ..disk("c", Bus::Virtio)
        },
    ];
    golden("virtio", &machine);
}

#[test]
fn scsi_disks_with_the_names_of_claims() {
    let mut machine = bare();
    machine.disks = vec![
        Disk {
            device_id: Some("pvc-0e9ad7f6-6f2c-4a3e-9d8c-0a1b2c3d4e5f".into()),
            io_thread: true,
            ..disk("data", Bus::Scsi)
        },
        cdrom("install", Bus::Scsi),
    ];
    golden("scsi", &machine);
}

#[test]
fn sata_disks_past_the_built_in_ports_and_an_empty_drive() {
    let mut machine = bare();
    machine.disks = (0..7).map(|index| disk(&format!("s{index}"), Bus::Sata)).collect();
    machine.disks.push(Disk { layers: vec![], ..cdrom("empty", Bus::Sata) });
    golden("sata", &machine);
}

#[test]
fn usb_disks() {
    let mut machine = bare();
    machine.disks = vec![disk("stick", Bus::Usb), cdrom("install", Bus::Usb)];
    golden("usb", &machine);
}

#[test]
fn nics_of_every_model() {
    let mut machine = bare();
    let forwards = vec![HostForward {
        protocol: Protocol::Tcp,
        host_address: "127.0.0.1".parse().unwrap(),
        host_port: 2222,
        guest_port: 22,
    }];
    machine.nics = vec![
        nic("a", NicModel::Virtio, Backend::Tap { vhost: false }),
        nic("b", NicModel::E1000e, Backend::User { forwards }),
        nic("c", NicModel::E1000, Backend::User { forwards: vec![] }),
        Nic { boot_index: Some(1), ..nic("d", NicModel::Rtl8139, Backend::Tap { vhost: false }) },
    ];
    golden("nics", &machine);
}

#[test]
fn uefi() {
    golden("uefi", &Machine { firmware: Firmware::Uefi { secure_boot: false }, ..bare() });
}

#[test]
fn uefi_with_secure_boot() {
    golden("secure-boot", &Machine { firmware: Firmware::Uefi { secure_boot: true }, ..bare() });
}

#[test]
fn emulation_a_kernel_and_text_that_looks_like_options() {
    let mut machine = bare();
    machine.name = "web,debug-threads=off".into();
    machine.accelerator = Accelerator::Tcg;
    machine.cpu.model = "max".into();
    machine.cpu.features = vec![
        CpuFeature { name: "avx2".into(), enabled: false },
        CpuFeature { name: "pcid".into(), enabled: true },
    ];
    machine.kernel = Some(Kernel { initrd: true, command_line: "console=ttyS0 a,b=c".into() });
    machine.system = SystemInformation {
        manufacturer: Some("Sheaf, Inc".into()),
        product: Some("None".into()),
        serial: Some("s,uuid=x".into()),
        asset_tag: Some("asset".into()),
    };
    machine.acpi = false;
    machine.start_paused = true;
    golden("emulation", &machine);
}
