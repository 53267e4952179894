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
pub use validation::{InvalidMachine, validate_disk};

use serde::{Deserialize, Serialize};

/// Memory that is added or taken away while a guest runs goes by blocks of this.
pub const MEMORY_BLOCK_MIB: u64 = 2;

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
    /// How much the guest may come to have while it runs; none if it stays with what it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_memory_mib: Option<u64>,
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

/// The type of a machine that is none.
const NO_MACHINE: &str = "none";

impl Machine {
    /// A QEMU that runs nobody: for work on disks that no machine uses, in the same sandbox as any. What it works on is
    /// handed to it while it runs.
    pub fn workshop(id: MachineId) -> Machine {
        Machine {
            name: format!("workshop {id}"),
            id,
            uuid: "00000000-0000-0000-0000-000000000000".to_owned(),
            machine_type: NO_MACHINE.to_owned(),
            accelerator: Accelerator::Tcg,
            cpu: Cpu {
                model: NO_MACHINE.to_owned(),
                features: Vec::new(),
                sockets: 1,
                cores: 1,
                threads: 1,
                max_sockets: 1,
                limit_milli: None,
                // Whatever waits for it can wait a little longer than a guest.
                request_milli: Some(100),
            },
            memory_mib: 256,
            max_memory_mib: None,
            balloon: false,
            firmware: Firmware::Bios,
            kernel: None,
            system: SystemInformation::default(),
            disks: Vec::new(),
            nics: Vec::new(),
            rng: false,
            guest_agent: false,
            serial_console: false,
            graphics: false,
            tablet: false,
            virtio_tablet: false,
            acpi: false,
            start_paused: true,
        }
    }

    /// Whether all it needs of any network is handed to it open. One that began without a NIC cannot get one of user mode
    /// that leads outside before it is started again.
    pub fn needs_no_network(&self) -> bool {
        self.nics.iter().all(|nic| matches!(nic.backend, Backend::Tap { .. }))
    }

    pub fn is_workshop(&self) -> bool {
        self.machine_type == NO_MACHINE
    }

    /// What can be added to the guest's memory while it runs, in whole blocks.
    pub fn spare_memory_mib(&self) -> u64 {
        let spare = self.max_memory_mib.unwrap_or(0).saturating_sub(self.memory_mib);
        spare / MEMORY_BLOCK_MIB * MEMORY_BLOCK_MIB
    }

    /// Whether QEMU could be handed this at all. What only QEMU can judge (does it know
    /// this CPU model?) it judges at launch.
    pub fn validate(&self) -> Result<(), InvalidMachine> {
        validation::validate(self)
    }
}
