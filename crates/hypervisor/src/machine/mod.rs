//! What is launched: everything about one virtual machine, as plain data.
//!
//! A machine is complete: whatever could be resolved (versions, accelerators, ways of
//! doing I/O) was resolved before it was made, so that the same machine gives the same
//! command line today, after an upgrade and on another node. It holds no paths and no
//! descriptors; those are handed in at launch.

mod cpu;
mod disk;
mod id;
mod nic;
mod validation;

pub use cpu::{Cpu, CpuFeature};
pub use disk::{Aio, Bus, Cache, Disk, DiskKind, Format, Layer, LayerStorage};
pub use id::{DeviceName, InvalidName, MachineId};
pub use nic::{Backend, HostForward, MacAddress, Nic, NicModel, Protocol};
pub use validation::InvalidMachine;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Machine {
    pub id: MachineId,
    /// For people who look at the process list; nothing hangs on it.
    pub name: String,
    /// What the guest sees as its own, in the usual hyphenated form.
    pub uuid: String,
    /// A versioned type such as `pc-q35-7.2`, never an alias: what the guest sees must not
    /// change because QEMU was upgraded.
    pub machine_type: String,
    pub accelerator: Accelerator,
    pub cpu: Cpu,
    pub memory_mib: u64,
    /// Whether the guest can be asked for memory, and gives back what it freed.
    pub balloon: bool,
    pub firmware: Firmware,
    /// Boots this kernel instead of what the firmware would find.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<Kernel>,
    #[serde(default)]
    pub system: SystemInformation,
    #[serde(default)]
    pub disks: Vec<Disk>,
    #[serde(default)]
    pub nics: Vec<Nic>,
    pub rng: bool,
    pub guest_agent: bool,
    pub serial_console: bool,
    /// A screen, reachable over VNC.
    pub graphics: bool,
    /// An absolute pointer, so that VNC's and the guest's cursors agree.
    pub tablet: bool,
    /// The same on virtio instead of USB, for guests that have a driver.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub virtio_tablet: bool,
    pub acpi: bool,
    /// Wait for [`crate::Monitor::resume`] before the first instruction.
    #[serde(default)]
    pub start_paused: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Accelerator {
    Kvm,
    /// Emulation in software: works everywhere, many times slower.
    Tcg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "type")]
pub enum Firmware {
    Bios,
    #[serde(rename_all = "camelCase")]
    Uefi {
        secure_boot: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Kernel {
    pub initrd: bool,
    pub command_line: String,
}

/// What the guest reads in its SMBIOS tables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SystemInformation {
    pub manufacturer: Option<String>,
    pub product: Option<String>,
    pub serial: Option<String>,
    pub asset_tag: Option<String>,
}

impl Machine {
    /// Whether QEMU could be handed this at all. What only QEMU can judge (does it know
    /// this CPU model?) it judges at launch.
    pub fn validate(&self) -> Result<(), InvalidMachine> {
        validation::validate(self)
    }
}
