//! What is plugged into a machine: disks, network interfaces, and what goes without
//! asking.

use crate::{
    not_yet::{NotYet, NotYetAtAll},
    wire::wire_type,
};

wire_type! {
    /// Disks, interfaces and all that is plugged in.
    Devices = "io.kubevirt.v1.Devices" {
        /// Disks, each backed by the volume of its name.
        disks: Vec<Disk>,
        /// Network interfaces, each connected to the network of its name.
        interfaces: Vec<Interface>,
        /// Pointing devices.
        inputs: Vec<Input>,
        /// A source of chance for the guest.
        rng: Option<Rng>,
        /// Whether a machine without interfaces gets one on the default network; yes when left out.
        autoattach_pod_interface: Option<bool>,
        /// Whether there is a screen; yes when left out.
        autoattach_graphics_device: Option<bool>,
        /// Whether there is a serial console; yes when left out.
        autoattach_serial_console: Option<bool>,
        /// Whether the guest can give memory back; yes when left out.
        autoattach_mem_balloon: Option<bool>,
        /// Not served yet.
        autoattach_input_device: NotYet,
        /// Not served yet.
        #[serde(rename = "autoattachVSOCK")]
        autoattach_vsock: NotYet,
        /// Not served yet.
        block_multi_queue: NotYet,
        /// Not served yet.
        client_passthrough: NotYetAtAll,
        /// Not served yet.
        disable_hotplug: NotYet,
        /// Not served yet.
        downward_metrics: NotYetAtAll,
        /// Not served yet.
        filesystems: NotYet,
        /// Not served yet.
        gpus: NotYet,
        /// Not served yet.
        host_devices: NotYet,
        /// Not served yet.
        log_serial_console: NotYet,
        /// Not served yet.
        network_interface_multiqueue: NotYet,
        /// Not served yet.
        panic_devices: NotYet,
        /// Not served yet.
        sound: NotYetAtAll,
        /// Not served yet.
        tpm: NotYetAtAll,
        /// Not served yet.
        use_virtio_transitional: NotYet,
        /// Not served yet.
        video: NotYet,
        /// Not served yet.
        watchdog: NotYetAtAll,
    }
}

wire_type! {
    /// A disk as the guest sees it: one of `disk` and `cdrom`.
    Disk = "io.kubevirt.v1.Disk" {
        /// The name of the volume behind it.
        name: String,
        /// A hard disk.
        disk: Option<DiskTarget>,
        /// A CD-ROM drive.
        cdrom: Option<CdRomTarget>,
        /// Lower is tried first when booting.
        boot_order: Option<u32>,
        /// The serial number that the guest reads.
        serial: String,
        /// How the host caches it: `none`, `writethrough` or `writeback`.
        cache: String,
        /// Not served yet.
        lun: NotYetAtAll,
        /// Not served yet.
        block_size: NotYet,
        /// Not served yet.
        changed_block_tracking: NotYet,
        /// Not served yet.
        #[serde(rename = "dedicatedIOThread")]
        dedicated_io_thread: NotYet,
        /// Not served yet.
        error_policy: NotYet,
        /// Not served yet.
        io: NotYet,
        /// Not served yet.
        shareable: NotYet,
        /// Not served yet.
        tag: NotYet,
    }
}

wire_type! {
    /// A hard disk.
    DiskTarget = "io.kubevirt.v1.DiskTarget" {
        /// `virtio`, `scsi` or `sata`.
        bus: String,
        /// Whether the guest may only read it.
        readonly: bool,
        /// Not served yet.
        pci_address: NotYet,
    }
}

wire_type! {
    /// A CD-ROM drive.
    CdRomTarget = "io.kubevirt.v1.CDRomTarget" {
        /// `sata` or `scsi`.
        bus: String,
        /// Always so, when left out.
        readonly: Option<bool>,
        /// Not served yet.
        tray: NotYet,
    }
}

/// The buses a hard disk may be on.
pub const DISK_BUSES: [&str; 3] = ["virtio", "scsi", "sata"];
/// The buses a CD-ROM drive may be on.
pub const CDROM_BUSES: [&str; 2] = ["sata", "scsi"];
pub const CACHE_MODES: [&str; 3] = ["none", "writethrough", "writeback"];

impl Disk {
    /// The bus it is on: what was asked for, else what the original takes.
    pub fn bus(&self) -> &str {
        match (&self.cdrom, &self.disk) {
            (Some(cdrom), _) if !cdrom.bus.is_empty() => &cdrom.bus,
            (None, Some(disk)) if !disk.bus.is_empty() => &disk.bus,
            _ => "sata",
        }
    }
}

wire_type! {
    /// A network interface as the guest sees it: one of `bridge` and `masquerade`.
    Interface = "io.kubevirt.v1.Interface" {
        /// The name of the network it is connected to.
        name: String,
        /// `virtio`, `e1000`, `e1000e`, `rtl8139`, `ne2k_pci` or `pcnet`; virtio when left out.
        model: String,
        /// Plugged straight into the segment.
        bridge: Option<Bridge>,
        /// Reaches the outside with its node's address.
        masquerade: Option<Masquerade>,
        /// Drawn by chance when left out.
        mac_address: String,
        /// Lower is tried first when booting.
        boot_order: Option<u32>,
        /// Not served yet.
        acpi_index: NotYet,
        /// Not served yet.
        binding: NotYetAtAll,
        /// Not served yet.
        dhcp_options: NotYet,
        /// Not served yet.
        macvtap: NotYetAtAll,
        /// Not served yet.
        passt: NotYetAtAll,
        /// Not served yet.
        pci_address: NotYet,
        /// Not served yet.
        ports: NotYet,
        /// Not served yet.
        slirp: NotYetAtAll,
        /// Not served yet.
        sriov: NotYetAtAll,
        /// `absent` takes the interface away from a machine that runs.
        state: String,
        /// Not served yet.
        tag: NotYet,
    }
}

/// The models a network interface may be of.
pub const INTERFACE_MODELS: [&str; 6] = ["e1000", "e1000e", "ne2k_pci", "pcnet", "rtl8139", "virtio"];

wire_type! {
    /// Plugged straight into the segment.
    Bridge = "io.kubevirt.v1.InterfaceBridge" {}
}

wire_type! {
    /// Reaches the outside with its node's address.
    Masquerade = "io.kubevirt.v1.InterfaceMasquerade" {}
}

wire_type! {
    /// A pointing device.
    Input = "io.kubevirt.v1.Input" {
        /// A name for people.
        name: String,
        /// `tablet`.
        #[serde(rename = "type")]
        input_type: String,
        /// `usb` or `virtio`; usb when left out.
        bus: String,
    }
}

wire_type! {
    /// A source of chance for the guest.
    Rng = "io.kubevirt.v1.Rng" {}
}
