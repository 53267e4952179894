//! The virtual hardware beside its devices: processor, memory, firmware, features.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::devices::Devices;
use crate::{
    not_yet::{NotYet, NotYetAtAll},
    wire::wire_type,
};

wire_type! {
    /// The virtual hardware.
    Domain = "io.kubevirt.v1.DomainSpec" {
        /// What the machine may use of its node.
        resources: ResourceRequirements,
        /// The processor as the guest sees it.
        cpu: Option<Cpu>,
        /// The memory as the guest sees it.
        memory: Option<Memory>,
        /// The main board.
        machine: Option<Machine>,
        /// What runs before the guest, and who the machine says it is.
        firmware: Option<Firmware>,
        /// What the machine can do beyond the ordinary.
        features: Option<Features>,
        /// Disks, interfaces and all that is plugged in.
        devices: Devices,
        /// Not served yet.
        clock: NotYet,
        /// Not served yet.
        io_threads_policy: NotYet,
        /// Not served yet.
        io_threads: NotYet,
        /// Not served yet.
        chassis: NotYet,
        /// Not served yet.
        launch_security: NotYetAtAll,
    }
}

wire_type! {
    /// What the machine may use of its node.
    ResourceRequirements = "io.kubevirt.v1.ResourceRequirements" {
        /// What is set aside for the machine: `cpu` and `memory`.
        requests: BTreeMap<String, Quantity>,
        /// What the machine never goes beyond: `cpu` and `memory`.
        limits: BTreeMap<String, Quantity>,
        /// Not served yet.
        overcommit_guest_overhead: NotYet,
    }
}

wire_type! {
    /// The processor as the guest sees it.
    Cpu = "io.kubevirt.v1.CPU" {
        /// Cores per socket.
        cores: u32,
        /// Sockets.
        sockets: u32,
        /// How many sockets there may ever be while it runs.
        max_sockets: u32,
        /// Threads per core.
        threads: u32,
        /// A model QEMU knows, `host-model` or `host-passthrough`.
        model: String,
        /// Not served yet.
        features: NotYet,
        /// Not served yet.
        dedicated_cpu_placement: NotYet,
        /// Not served yet.
        isolate_emulator_thread: NotYet,
        /// Not served yet.
        numa: NotYetAtAll,
        /// Not served yet.
        realtime: NotYetAtAll,
    }
}

impl Cpu {
    /// How many processors the guest counts.
    pub fn count(&self) -> u64 {
        let at_least_one = |number: u32| u64::from(number.max(1));
        at_least_one(self.cores) * at_least_one(self.sockets) * at_least_one(self.threads)
    }
}

wire_type! {
    /// The memory as the guest sees it.
    Memory = "io.kubevirt.v1.Memory" {
        /// How much the guest counts.
        guest: Option<Quantity>,
        /// How much the guest may ever count while it runs.
        max_guest: Option<Quantity>,
        /// Not served yet.
        hugepages: NotYetAtAll,
    }
}

wire_type! {
    /// The main board.
    Machine = "io.kubevirt.v1.Machine" {
        /// `q35`, or one of its versions.
        #[serde(rename = "type")]
        machine_type: String,
    }
}

wire_type! {
    /// What runs before the guest, and who the machine says it is.
    Firmware = "io.kubevirt.v1.Firmware" {
        /// The machine's id as the guest reads it from its BIOS.
        uuid: String,
        /// The machine's serial number.
        serial: String,
        /// BIOS or EFI; BIOS when left out.
        bootloader: Option<Bootloader>,
        /// Not served yet.
        kernel_boot: NotYetAtAll,
        /// Not served yet.
        acpi: NotYet,
    }
}

wire_type! {
    /// One of BIOS and EFI.
    Bootloader = "io.kubevirt.v1.Bootloader" {
        /// A BIOS.
        bios: Option<Bios>,
        /// UEFI.
        efi: Option<Efi>,
    }
}

wire_type! {
    /// A BIOS.
    Bios = "io.kubevirt.v1.BIOS" {
        /// Not served yet.
        use_serial: NotYet,
    }
}

wire_type! {
    /// UEFI.
    Efi = "io.kubevirt.v1.EFI" {
        /// Boots only what is signed; true when left out, and then SMM must be on.
        secure_boot: Option<bool>,
        /// Not served yet.
        persistent: NotYet,
    }
}

wire_type! {
    /// What the machine can do beyond the ordinary.
    Features = "io.kubevirt.v1.Features" {
        /// Power buttons, among other things; on when left out.
        acpi: FeatureState,
        /// System management mode; off when left out.
        smm: Option<FeatureState>,
        /// Not served yet.
        apic: NotYet,
        /// Not served yet.
        hyperv: NotYet,
        /// Not served yet.
        hyperv_passthrough: NotYet,
        /// Not served yet.
        kvm: NotYet,
        /// Not served yet.
        pvspinlock: NotYet,
    }
}

wire_type! {
    /// Whether a feature is on.
    FeatureState = "io.kubevirt.v1.FeatureState" {
        /// On when left out.
        enabled: Option<bool>,
    }
}

impl FeatureState {
    pub fn is_on(&self) -> bool {
        self.enabled != Some(false)
    }
}

impl Domain {
    pub fn acpi_is_on(&self) -> bool {
        self.features.as_ref().is_none_or(|features| features.acpi.is_on())
    }

    pub fn smm_is_on(&self) -> bool {
        let smm = self.features.as_ref().and_then(|features| features.smm.as_ref());
        smm.is_some_and(FeatureState::is_on)
    }

    pub fn efi(&self) -> Option<&Efi> {
        self.firmware.as_ref()?.bootloader.as_ref()?.efi.as_ref()
    }
}
