//! From a machine to QEMU's arguments: a pure function.
//!
//! The numbers of the descriptors follow from the machine too (see
//! [`crate::descriptors::Numbers`]), so a golden file holds the whole command line.
//! Everything structured is passed as JSON, where there is nothing to escape; what QEMU
//! 7.2 still only takes as `key=value` has its commas doubled.

pub(crate) mod block;
pub(crate) mod disk;
pub(crate) mod nic;
pub mod pci;

use serde_json::{Value, json};

pub use block::{file_node, format_node, node_name, numbered_node_name, second_node_name, top_node};
pub use disk::device_id as disk_device_id;
pub use nic::device_id as nic_device_id;

use crate::{
    descriptors::{self, DescriptorName, Numbers},
    machine::{Accelerator, Cpu, Firmware, MEMORY_BLOCK_MIB, Machine},
    overhead,
};

/// The name of the channel on which Linux's and Windows' guest agents listen.
const GUEST_AGENT_CHANNEL: &str = "org.qemu.guest_agent.0";

/// The arguments with which QEMU runs `machine`, its own name not included.
pub fn command_line(machine: &Machine) -> Vec<String> {
    let numbers = Numbers::of_machine(machine);
    let mut line = Line::default();
    process(&mut line, machine);
    if machine.is_workshop() {
        line.option("-machine", machine.machine_type.as_str());
        line.option("-display", "none");
        monitors(&mut line, &numbers);
        return line.0;
    }
    board(&mut line, machine);
    descriptor_sets(&mut line, machine, &numbers);
    firmware(&mut line, machine, &numbers);
    monitors(&mut line, &numbers);
    bus(&mut line, machine);
    disks(&mut line, machine, &numbers);
    nics(&mut line, machine, &numbers);
    console_and_channels(&mut line, machine, &numbers);
    rest(&mut line, machine);
    line.0
}

#[derive(Default)]
struct Line(Vec<String>);

impl Line {
    fn flag(&mut self, flag: &str) {
        self.0.push(flag.to_owned());
    }

    fn option(&mut self, option: &str, value: impl Into<String>) {
        self.flag(option);
        self.0.push(value.into());
    }

    fn json(&mut self, option: &str, value: &Value) {
        self.option(option, value.to_string());
    }
}

/// QEMU's `key=value` lists end a value at a comma, unless it is doubled.
fn escaped(text: &str) -> String {
    text.replace(',', ",,")
}

/// How the process behaves, whatever it runs.
fn process(line: &mut Line, machine: &Machine) {
    line.option("-name", format!("guest={},debug-threads=on", escaped(&machine.name)));
    line.flag("-nodefaults");
    line.flag("-no-user-config");
    line.option("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny");
    line.option("-msg", "timestamp=on");
    // A guest that powered itself off stays to be asked about it: an exit is then always
    // our own doing or a crash, also for a caller that was not there when it happened.
    line.flag("-no-shutdown");
    if machine.start_paused {
        line.flag("-S");
    }
}

fn board(line: &mut Line, machine: &Machine) {
    let secure_boot = matches!(machine.firmware, Firmware::Uefi { secure_boot: true });
    let mut board =
        format!("{},usb=off,vmport=off,dump-guest-core=off,memory-backend=ram", machine.machine_type);
    board.push_str(if secure_boot { ",smm=on" } else { ",smm=off" });
    if !machine.acpi {
        board.push_str(",acpi=off");
    }
    if let Firmware::Uefi { .. } = machine.firmware {
        board.push_str(",pflash0=firmware-code,pflash1=firmware-vars");
    }
    line.option("-machine", board);
    line.option(
        "-accel",
        match machine.accelerator {
            Accelerator::Kvm => "kvm".to_owned(),
            Accelerator::Tcg => {
                format!("tcg,thread=multi,tb-size={}", overhead::translation_cache_mib(machine))
            }
        },
    );
    line.option("-cpu", cpu_model(&machine.cpu));
    let Cpu { cores, threads, max_sockets, .. } = machine.cpu;
    line.option(
        "-smp",
        format!(
            "cpus={},maxcpus={},sockets={max_sockets},dies=1,cores={cores},threads={threads}",
            machine.cpu.count(),
            machine.cpu.max_count(),
        ),
    );
    line.option(
        "-m",
        match machine.spare_memory_mib() {
            0 => format!("size={}M", machine.memory_mib),
            // The slot is nobody's: with one, QEMU tells the guest from the start where memory may come to lie.
            spare => format!("size={}M,slots=1,maxmem={}M", machine.memory_mib, machine.memory_mib + spare),
        },
    );
    let ram = json!({ "qom-type": "memory-backend-ram", "id": "ram", "size": machine.memory_mib << 20 });
    line.json("-object", &ram);
    line.option("-rtc", "base=utc,driftfix=slew");
    line.option("-uuid", machine.uuid.as_str());
    smbios(line, machine);
    line.option("-boot", "menu=off,strict=on");
}

/// Memory that the guest has none of at start. One device whose size is asked for, rather than modules that are plugged in:
/// how much there is can then be read off it, and the guest can give memory back.
fn spare_memory(line: &mut Line, machine: &Machine) {
    let spare = machine.spare_memory_mib();
    if spare == 0 {
        return;
    }
    let size = spare << 20;
    // Not reserved: it is the cgroup's limit that says how much of it may be used.
    line.json(
        "-object",
        &json!({ "qom-type": "memory-backend-ram", "id": "spare-ram", "size": size, "reserve": false }),
    );
    line.json(
        "-device",
        &json!({
            "driver": "virtio-mem-pci", "id": "memory", "bus": "pcie.0", "addr": pci::MEMORY,
            "memdev": "spare-ram", "block-size": MEMORY_BLOCK_MIB << 20, "requested-size": 0,
        }),
    );
}

fn cpu_model(cpu: &Cpu) -> String {
    let mut model = cpu.model.clone();
    for feature in &cpu.features {
        model.push_str(&format!(",{}={}", feature.name, if feature.enabled { "on" } else { "off" }));
    }
    model
}

fn smbios(line: &mut Line, machine: &Machine) {
    let system = &machine.system;
    let table = |number: u32, fields: &[(&str, &Option<String>)]| {
        let said: Vec<String> = fields
            .iter()
            .filter_map(|(key, text)| Some(format!("{key}={}", escaped(text.as_deref()?))))
            .collect();
        (!said.is_empty()).then(|| format!("type={number},{}", said.join(",")))
    };
    let tables = [
        table(
            1,
            &[
                ("manufacturer", &system.manufacturer),
                ("product", &system.product),
                ("serial", &system.serial),
            ],
        ),
        table(3, &[("manufacturer", &system.manufacturer), ("asset", &system.asset_tag)]),
    ];
    for table in tables.into_iter().flatten() {
        line.option("-smbios", table);
    }
}

/// Makes `/dev/fdset/N` mean something for everything QEMU opens by name.
fn descriptor_sets(line: &mut Line, machine: &Machine, numbers: &Numbers) {
    for (name, number) in numbers.iter() {
        let opened_by_name = matches!(
            name,
            DescriptorName::Layer { .. } | DescriptorName::FirmwareCode | DescriptorName::FirmwareVariables
        );
        if opened_by_name {
            let opaque = match name {
                DescriptorName::Layer { disk, .. } => {
                    let disk = machine.disks.iter().find(|one| one.name == *disk);
                    descriptors::told_of(name, disk.and_then(|disk| disk.source.as_deref()))
                }
                _ => name.to_string(),
            };
            line.option("-add-fd", format!("fd={number},set={number},opaque={opaque}"));
        }
    }
    if let Some(kernel) = &machine.kernel {
        // These two QEMU reads with plain open(2), which knows no sets.
        line.option("-kernel", format!("/proc/self/fd/{}", numbers.of(&DescriptorName::Kernel)));
        if kernel.initrd {
            line.option("-initrd", format!("/proc/self/fd/{}", numbers.of(&DescriptorName::Initrd)));
        }
        line.option("-append", kernel.command_line.as_str());
    }
}

fn firmware(line: &mut Line, machine: &Machine, numbers: &Numbers) {
    let Firmware::Uefi { secure_boot } = machine.firmware else { return };
    for (name, descriptor, read_only) in [
        ("firmware-code", DescriptorName::FirmwareCode, true),
        ("firmware-vars", DescriptorName::FirmwareVariables, false),
    ] {
        let file = format!("{name}-file");
        line.json(
            "-blockdev",
            &json!({
                "driver": "file",
                "node-name": file,
                "filename": format!("/dev/fdset/{}", numbers.of(&descriptor)),
                "read-only": read_only,
            }),
        );
        line.json(
            "-blockdev",
            &json!({ "driver": "raw", "node-name": name, "read-only": read_only, "file": file }),
        );
    }
    if secure_boot {
        // Only code in system management mode may then write the variables.
        line.option("-global", "driver=cfi.pflash01,property=secure,value=on");
    }
}

/// QEMU serves one connection per monitor, so there is a second one for whoever looks in
/// while the agent holds the first.
fn monitors(line: &mut Line, numbers: &Numbers) {
    for (id, descriptor) in
        [("monitor", DescriptorName::MonitorSocket), ("tools", DescriptorName::ToolsSocket)]
    {
        listening_socket(line, id, numbers.of(&descriptor));
        line.option("-mon", format!("chardev={id},mode=control"));
    }
}

fn listening_socket(line: &mut Line, id: &str, number: u32) {
    line.option("-chardev", format!("socket,id={id},fd={number},server=on,wait=off"));
}

fn bus(line: &mut Line, machine: &Machine) {
    let virtio_disks = machine.disks.iter().filter(|disk| disk.bus == crate::machine::Bus::Virtio).count();
    for port in pci::ports(machine.nics.len(), virtio_disks) {
        line.json("-device", &port);
    }
    let usb_disks = machine.disks.iter().any(|disk| disk.bus == crate::machine::Bus::Usb);
    if machine.tablet || usb_disks {
        let ports = pci::USB_PORTS;
        let controller = json!({
            "driver": "qemu-xhci", "id": "usb", "bus": "pcie.0", "addr": pci::USB, "p2": ports, "p3": ports,
        });
        line.json("-device", &controller);
    }
    if machine.tablet {
        line.json("-device", &json!({ "driver": "usb-tablet", "id": "tablet", "bus": "usb.0", "port": "1" }));
    }
    if machine.virtio_tablet {
        let device = json!({ "driver": "virtio-tablet-pci", "id": "virtio-tablet", "bus": "pcie.0", "addr": pci::TABLET });
        line.json("-device", &device);
    }
}

fn disks(line: &mut Line, machine: &Machine, numbers: &Numbers) {
    for thread in disk::io_threads(machine) {
        line.json("-object", &json!({ "qom-type": "iothread", "id": thread }));
    }
    for disk in &machine.disks {
        let set_of = |layer| numbers.of(&DescriptorName::Layer { disk: disk.name.clone(), layer }).into();
        for node in block::nodes(disk, set_of) {
            line.json("-blockdev", &node);
        }
    }
    for device in disk::devices(machine) {
        line.json("-device", &device);
    }
}

fn nics(line: &mut Line, machine: &Machine, numbers: &Numbers) {
    for (index, nic) in machine.nics.iter().enumerate() {
        line.json("-netdev", &nic::backend(nic, numbers));
        line.json("-device", &nic::device(nic, index));
    }
}

fn console_and_channels(line: &mut Line, machine: &Machine, numbers: &Numbers) {
    if machine.serial_console {
        listening_socket(line, "serial", numbers.of(&DescriptorName::SerialSocket));
        line.json(
            "-device",
            &json!({ "driver": "isa-serial", "id": "serial0", "chardev": "serial", "index": 0 }),
        );
    }
    if machine.guest_agent {
        listening_socket(line, "guest-agent", numbers.of(&DescriptorName::GuestAgentSocket));
        line.json(
            "-device",
            &json!({
                "driver": "virtio-serial-pci", "id": "channels", "bus": "pcie.0", "addr": pci::CHANNELS,
                "disable-legacy": "on",
            }),
        );
        line.json(
            "-device",
            &json!({
                "driver": "virtserialport", "id": "guest-agent-port", "bus": "channels.0", "nr": 1,
                "chardev": "guest-agent", "name": GUEST_AGENT_CHANNEL,
            }),
        );
    }
}

fn rest(line: &mut Line, machine: &Machine) {
    spare_memory(line, machine);
    line.option("-display", "none");
    if machine.graphics {
        // No port and no path to listen on: each viewer's socket is handed in over the
        // monitor (see `Monitor::add_vnc_client`).
        line.option("-vnc", "none");
        line.json(
            "-device",
            &json!({ "driver": "VGA", "id": "screen", "bus": "pcie.0", "addr": pci::SCREEN }),
        );
    }
    if machine.balloon {
        line.json(
            "-device",
            &json!({
                "driver": "virtio-balloon-pci", "id": "balloon", "bus": "pcie.0", "addr": pci::BALLOON,
                "disable-legacy": "on", "free-page-reporting": true, "deflate-on-oom": true,
            }),
        );
    }
    if machine.rng {
        line.json("-object", &json!({ "qom-type": "rng-builtin", "id": "rng-source" }));
        line.json(
            "-device",
            &json!({
                "driver": "virtio-rng-pci", "id": "rng", "bus": "pcie.0", "addr": pci::RNG,
                "disable-legacy": "on", "rng": "rng-source",
            }),
        );
    }
}
