//! The descriptors a machine is launched with: which there must be, and the number each
//! has in QEMU.
//!
//! QEMU opens nothing of ours by itself. The numbers follow from the machine alone, in the
//! order of [`DescriptorName`], so the command line needs no others' help.

use std::{collections::BTreeMap, fmt, os::fd::OwnedFd};

use crate::machine::{Backend, DeviceName, Firmware, Machine};

/// What one descriptor is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DescriptorName {
    /// The machine's lock. QEMU does not know that it has it; that it has it is the point.
    Lock,
    MonitorSocket,
    ToolsSocket,
    SerialSocket,
    GuestAgentSocket,
    FirmwareCode,
    FirmwareVariables,
    Kernel,
    Initrd,
    /// One layer of a disk, counted from the bottom.
    Layer {
        disk: DeviceName,
        layer: usize,
    },
    Tap {
        nic: DeviceName,
    },
    /// `/dev/vhost-net`, opened once for each NIC.
    Vhost {
        nic: DeviceName,
    },
}

impl fmt::Display for DescriptorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DescriptorName::Lock => f.write_str("lock"),
            DescriptorName::MonitorSocket => f.write_str("monitor"),
            DescriptorName::ToolsSocket => f.write_str("tools"),
            DescriptorName::SerialSocket => f.write_str("serial"),
            DescriptorName::GuestAgentSocket => f.write_str("guest-agent"),
            DescriptorName::FirmwareCode => f.write_str("firmware-code"),
            DescriptorName::FirmwareVariables => f.write_str("firmware-vars"),
            DescriptorName::Kernel => f.write_str("kernel"),
            DescriptorName::Initrd => f.write_str("initrd"),
            DescriptorName::Layer { disk, layer } => write!(f, "disk-{disk}-{layer}"),
            DescriptorName::Tap { nic } => write!(f, "tap-{nic}"),
            DescriptorName::Vhost { nic } => write!(f, "vhost-{nic}"),
        }
    }
}

/// What QEMU is told about a layer it is handed, and tells again: which one it is, and whose bytes they are.
pub fn told_of(layer: &DescriptorName, source: Option<&str>) -> String {
    match source {
        Some(source) => format!("{layer}@{source}"),
        None => layer.to_string(),
    }
}

/// The disk and the source in what [`told_of`] said; none in what is about something else.
pub fn read_told(told: &str) -> Option<(DeviceName, Option<&str>)> {
    let (layer, source) = match told.split_once('@') {
        Some((layer, source)) => (layer, Some(source)),
        None => (told, None),
    };
    let (disk, number) = layer.strip_prefix("disk-")?.rsplit_once('-')?;
    number.parse::<usize>().ok()?;
    Some((disk.parse().ok()?, source))
}

/// What the caller of a launch opens and hands over: every disk layer, tap, firmware file.
/// A layer that is read-only must be open for reading only, any other for both: QEMU
/// takes a descriptor only if it was opened the way it would have opened the file.
pub type Descriptors = BTreeMap<DescriptorName, OwnedFd>;

/// The numbers that QEMU knows its descriptors by.
pub struct Numbers(BTreeMap<DescriptorName, u32>);

/// 0 to 2 are the standard streams.
const FIRST: u32 = 3;

impl Numbers {
    pub fn of_machine(machine: &Machine) -> Numbers {
        let mut names = vec![DescriptorName::Lock];
        names.extend(sockets(machine));
        names.extend(handed_in(machine));
        names.sort();
        Numbers(names.into_iter().zip(FIRST..).collect())
    }

    /// # Panics
    ///
    /// If the machine these numbers are of has no such descriptor: a mistake in this crate,
    /// which every golden test would meet.
    pub fn of(&self, name: &DescriptorName) -> u32 {
        self.0[name]
    }

    pub fn iter(&self) -> impl Iterator<Item = (&DescriptorName, u32)> {
        self.0.iter().map(|(name, number)| (name, *number))
    }
}

/// The sockets on which QEMU will listen; bound by us.
pub fn sockets(machine: &Machine) -> Vec<DescriptorName> {
    let mut names = vec![DescriptorName::MonitorSocket, DescriptorName::ToolsSocket];
    if machine.serial_console {
        names.push(DescriptorName::SerialSocket);
    }
    if machine.guest_agent {
        names.push(DescriptorName::GuestAgentSocket);
    }
    names
}

/// What the caller must hand in to launch this machine.
pub fn handed_in(machine: &Machine) -> Vec<DescriptorName> {
    let mut names = Vec::new();
    if let Firmware::Uefi { .. } = machine.firmware {
        names.extend([DescriptorName::FirmwareCode, DescriptorName::FirmwareVariables]);
    }
    if let Some(kernel) = &machine.kernel {
        names.push(DescriptorName::Kernel);
        names.extend(kernel.initrd.then_some(DescriptorName::Initrd));
    }
    for disk in &machine.disks {
        names.extend(
            (0..disk.layers.len()).map(|layer| DescriptorName::Layer { disk: disk.name.clone(), layer }),
        );
    }
    for nic in &machine.nics {
        if let Backend::Tap { vhost } = nic.backend {
            names.push(DescriptorName::Tap { nic: nic.name.clone() });
            names.extend(vhost.then(|| DescriptorName::Vhost { nic: nic.name.clone() }));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_qemu_is_told_of_a_layer_is_understood_again() {
        let disk: DeviceName = "a-1".parse().unwrap();
        let layer = DescriptorName::Layer { disk: disk.clone(), layer: 2 };
        assert_eq!(read_told(&told_of(&layer, None)), Some((disk.clone(), None)));
        assert_eq!(read_told(&told_of(&layer, Some("uid"))), Some((disk, Some("uid"))));
        for other in ["firmware-code", "disk-a", "disk-A-1", "", "disk--1"] {
            assert_eq!(read_told(other), None, "{other}");
        }
    }
}
