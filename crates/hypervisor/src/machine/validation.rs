//! Whether a machine makes sense before QEMU is asked.
//!
//! Two reasons to look first: free text must not break out of the option it stands in,
//! and limits that QEMU meets by cutting off or by crashing should be met by a sentence.

use std::collections::BTreeSet;

use super::{Aio, Bus, Cache, DeviceName, Disk, DiskKind, Firmware, Format, Machine, NicModel};
use crate::command_line::pci;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum InvalidMachine {
    #[error("{text:?} is not the hardware address of one interface")]
    Mac { text: String },
    #[error("{what} may not be {text:?}: {why}")]
    Text { what: &'static str, text: String, why: &'static str },
    #[error("{what} is {number}, and must be {range}")]
    Number { what: &'static str, number: u64, range: &'static str },
    #[error("two {what} are called {name}")]
    Twice { what: &'static str, name: DeviceName },
    #[error("disk {disk}: {why}")]
    Disk { disk: DeviceName, why: String },
    #[error("NIC {nic}: {why}")]
    Nic { nic: DeviceName, why: String },
    #[error("there are {number} {what}, and room for {room}")]
    TooMany { what: &'static str, number: usize, room: usize },
}

/// Whether a disk makes sense that is to be plugged into a running machine.
pub fn validate_disk(one: &Disk) -> Result<(), InvalidMachine> {
    disk(one).map_err(|why| InvalidMachine::Disk { disk: one.name.clone(), why })
}

pub fn validate(machine: &Machine) -> Result<(), InvalidMachine> {
    texts(machine)?;
    numbers(machine)?;
    disks(machine)?;
    nics(machine)
}

fn texts(machine: &Machine) -> Result<(), InvalidMachine> {
    word("the machine type", &machine.machine_type)?;
    if !machine.machine_type.starts_with("pc-q35-") && *machine != Machine::workshop(machine.id.clone()) {
        let why = "it must be a versioned q35 such as pc-q35-7.2";
        return Err(InvalidMachine::Text {
            what: "the machine type",
            text: machine.machine_type.clone(),
            why,
        });
    }
    word("the CPU model", &machine.cpu.model)?;
    for feature in &machine.cpu.features {
        word("a CPU feature", &feature.name)?;
    }
    if !is_uuid(&machine.uuid) {
        let why = "it is not a uuid";
        return Err(InvalidMachine::Text { what: "the uuid", text: machine.uuid.clone(), why });
    }
    printable("the name", &machine.name)?;
    let system = &machine.system;
    for (what, text) in [
        ("the manufacturer", &system.manufacturer),
        ("the product", &system.product),
        ("the serial number", &system.serial),
        ("the asset tag", &system.asset_tag),
    ] {
        if let Some(text) = text {
            printable(what, text)?;
        }
    }
    if let Some(kernel) = &machine.kernel {
        printable("the kernel's command line", &kernel.command_line)?;
    }
    Ok(())
}

fn numbers(machine: &Machine) -> Result<(), InvalidMachine> {
    let in_range = |what, number: u64, allowed: std::ops::RangeInclusive<u64>, range| {
        if allowed.contains(&number) { Ok(()) } else { Err(InvalidMachine::Number { what, number, range }) }
    };
    let cpu = &machine.cpu;
    in_range("the number of sockets", cpu.sockets.into(), 1..=255, "1 to 255")?;
    in_range("the number of cores", cpu.cores.into(), 1..=255, "1 to 255")?;
    in_range("the number of threads", cpu.threads.into(), 1..=255, "1 to 255")?;
    in_range(
        "the greatest number of sockets",
        cpu.max_sockets.into(),
        cpu.sockets.into()..=255,
        "from the number of sockets to 255",
    )?;
    // Past 255 q35 needs an interrupt remapper that we do not plug in.
    in_range("the number of CPUs with all sockets filled", cpu.max_count().into(), 1..=255, "1 to 255")?;
    in_range("the memory in MiB", machine.memory_mib, 1..=(16 << 20), "1 MiB to 16 TiB")?;
    if let Some(most) = machine.max_memory_mib {
        let range = machine.memory_mib..=(16 << 20);
        in_range("the greatest memory in MiB", most, range, "from the memory to 16 TiB")?;
    }
    Ok(())
}

fn disks(machine: &Machine) -> Result<(), InvalidMachine> {
    let mut names = BTreeSet::new();
    for disk in &machine.disks {
        if !names.insert(&disk.name) {
            return Err(InvalidMachine::Twice { what: "disks", name: disk.name.clone() });
        }
        validate_disk(disk)?;
    }
    for (bus, what, room) in [
        (Bus::Virtio, "virtio disks", pci::DISK_PORTS),
        (Bus::Scsi, "SCSI disks", 255),
        (Bus::Sata, "SATA disks", pci::SATA_PORTS),
        (Bus::Usb, "USB disks", pci::USB_PORTS - 1),
    ] {
        let number = machine.disks.iter().filter(|disk| disk.bus == bus).count();
        if number > room {
            return Err(InvalidMachine::TooMany { what, number, room });
        }
    }
    if matches!(machine.firmware, Firmware::Uefi { secure_boot: true }) && !machine.acpi {
        let why = "secure boot needs ACPI";
        return Err(InvalidMachine::Text { what: "acpi", text: "off".into(), why });
    }
    Ok(())
}

fn disk(disk: &Disk) -> Result<(), String> {
    let serial_room = if disk.bus == Bus::Virtio { 20 } else { 36 };
    for (what, text, room) in
        [("serial number", &disk.serial, serial_room), ("device id", &disk.device_id, 64)]
    {
        let Some(text) = text else { continue };
        if text.is_empty() || text.len() > room || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!("the {what} {text:?} must be 1 to {room} visible ASCII characters"));
        }
    }
    if let Some(source) = disk.source.as_deref()
        && word("the source", source).is_err()
    {
        return Err(format!("its source {source:?} must be 1 to 64 letters, digits, '-', '_' and '.'"));
    }
    if disk.device_id.is_some() && disk.bus != Bus::Scsi {
        return Err("only a SCSI disk has a device id".into());
    }
    if disk.kind == DiskKind::Cdrom && disk.bus == Bus::Virtio {
        return Err("virtio has no CD-ROM drives".into());
    }
    if disk.aio == Aio::Native && disk.cache != Cache::None {
        return Err("native AIO only works past the page cache".into());
    }
    let Some((top, below)) = disk.layers.split_last() else {
        let empty_drive = disk.kind == DiskKind::Cdrom;
        return if empty_drive { Ok(()) } else { Err("it has no layers".into()) };
    };
    if disk.kind == DiskKind::Cdrom && !top.read_only {
        return Err("a CD-ROM is read-only".into());
    }
    if disk.kind == DiskKind::Disk && disk.bus == Bus::Sata && top.read_only {
        return Err("a SATA disk cannot be read-only; SCSI and virtio disks can".into());
    }
    if below.iter().any(|layer| !layer.read_only) {
        return Err("only the topmost layer may be written to".into());
    }
    if disk.layers[1..].iter().any(|layer| layer.format == Format::Raw) {
        return Err("a raw layer cannot lie on top of another".into());
    }
    Ok(())
}

fn nics(machine: &Machine) -> Result<(), InvalidMachine> {
    let mut names = BTreeSet::new();
    for nic in &machine.nics {
        if !names.insert(&nic.name) {
            return Err(InvalidMachine::Twice { what: "NICs", name: nic.name.clone() });
        }
        if nic.mtu.is_some() && nic.model != NicModel::Virtio {
            let why = "only a virtio NIC can be told its MTU".into();
            return Err(InvalidMachine::Nic { nic: nic.name.clone(), why });
        }
    }
    let number = machine.nics.len();
    if number > pci::NIC_PORTS {
        return Err(InvalidMachine::TooMany { what: "NICs", number, room: pci::NIC_PORTS });
    }
    Ok(())
}

/// A name in QEMU's own catalogues.
fn word(what: &'static str, text: &str) -> Result<(), InvalidMachine> {
    let fits = (1..=64).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if fits {
        Ok(())
    } else {
        let why = "only 1 to 64 letters, digits, '-', '_' and '.' can name one";
        Err(InvalidMachine::Text { what, text: text.to_owned(), why })
    }
}

/// Free text; what has a meaning to QEMU's option parser is escaped where it is used.
fn printable(what: &'static str, text: &str) -> Result<(), InvalidMachine> {
    if text.len() <= 2048 && !text.chars().any(char::is_control) {
        Ok(())
    } else {
        let why = "it must be at most 2048 bytes, without control characters";
        Err(InvalidMachine::Text { what, text: text.to_owned(), why })
    }
}

fn is_uuid(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    parts.iter().map(|part| part.len()).eq([8, 4, 4, 4, 12])
        && parts.iter().all(|part| part.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests;
