//! From what an instance's spec asks for to the machine that QEMU is told to be.
//!
//! A pure function: the same spec on the same host is the same machine. What the spec leaves
//! open (accelerator, way of doing I/O, the version behind `q35`) is settled here, so that
//! the machine that is written down is complete.

use std::collections::BTreeMap;

use sheaf_hypervisor::{
    Capabilities, Machine, MachineId,
    machine::{
        Accelerator, Backend, Bus, Cache, Cpu, DeviceName, Disk, DiskKind, Firmware, InvalidMachine,
        InvalidName, Layer, Nic, NicModel, SystemInformation,
    },
};
use sheaf_resources::{
    kinds::virtual_machine_instance::{
        VirtualMachineInstance, demand::Demand, devices, domain::Domain, spec::VirtualMachineInstanceSpec,
    },
    quantity,
};

/// The longest name that SCSI has room for.
const DEVICE_ID_ROOM: usize = 64;
const MIB: i64 = 1 << 20;

/// What this host has for its machines.
#[derive(Clone, Debug)]
pub struct Abilities {
    pub capabilities: Capabilities,
    pub kvm: bool,
    /// Taps on a bridge; otherwise QEMU's own user-mode network.
    pub taps: bool,
    /// Whether the disks of the data directory can be read and written past the page cache.
    pub direct_io: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum Unbuildable {
    #[error("{0}")]
    Name(#[from] InvalidName),
    #[error("{0}")]
    Part(#[from] InvalidMachine),
    #[error("this node's QEMU {version} has no machine type {asked:?}")]
    MachineType { asked: String, version: String },
    #[error("this node's QEMU {version} has no CPU model {asked:?}")]
    CpuModel { asked: String, version: String },
    #[error("{0} of guest memory is not an amount of memory")]
    Memory(String),
    #[error("disk {disk} has no volume of that name")]
    NoVolume { disk: String },
    #[error("interface {nic} is of model {model:?}, which Sheaf does not have; virtio works everywhere")]
    NicModel { nic: String, model: String },
    #[error(
        "disk {disk} is to bypass the page cache (cache: none), which the file system of this node's data directory \
         does not do; leave cache out, or choose writethrough or writeback"
    )]
    NoDirectIo { disk: String },
}

/// The machine that `instance` asks for. `layers` has the files of every volume, from the bottom up.
pub fn machine_of(
    instance: &VirtualMachineInstance,
    id: MachineId,
    layers: &BTreeMap<String, Vec<Layer>>,
    start_paused: bool,
    host: &Abilities,
) -> Result<Machine, Unbuildable> {
    let (metadata, spec) = (&instance.metadata, &instance.spec);
    let domain = &spec.domain;
    let devices = &domain.devices;
    let uuid = match domain.firmware.as_ref().map(|firmware| firmware.uuid.as_str()) {
        Some(uuid) if !uuid.is_empty() => uuid.to_owned(),
        _ => id.to_string(),
    };
    let serial = domain.firmware.as_ref().map(|firmware| firmware.serial.clone());
    let (namespace, name) =
        (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default());
    Ok(Machine {
        id,
        name: format!("{namespace}_{name}"),
        uuid,
        machine_type: machine_type(domain, host)?,
        accelerator: if host.kvm { Accelerator::Kvm } else { Accelerator::Tcg },
        cpu: cpu(spec, host)?,
        memory_mib: memory_mib(domain)?,
        balloon: devices.autoattach_mem_balloon != Some(false),
        firmware: match domain.efi() {
            Some(efi) => Firmware::Uefi { secure_boot: efi.secure_boot.unwrap_or(true) },
            None => Firmware::Bios,
        },
        kernel: None,
        system: SystemInformation {
            manufacturer: Some("Sheaf".into()),
            product: Some("Virtual Machine".into()),
            serial: serial.filter(|serial| !serial.is_empty()),
            asset_tag: None,
        },
        disks: disks(spec, layers, host)?,
        nics: nics(devices, host)?,
        rng: devices.rng.is_some(),
        guest_agent: true,
        serial_console: devices.autoattach_serial_console != Some(false),
        graphics: devices.autoattach_graphics_device != Some(false),
        tablet: devices.inputs.iter().any(|input| input.bus != "virtio"),
        virtio_tablet: devices.inputs.iter().any(|input| input.bus == "virtio"),
        acpi: domain.acpi_is_on(),
        start_paused,
    })
}

fn machine_type(domain: &Domain, host: &Abilities) -> Result<String, Unbuildable> {
    let asked = domain.machine.as_ref().map_or("", |machine| machine.machine_type.as_str());
    let known = host.capabilities.machine_type(asked);
    known.map(str::to_owned).ok_or_else(|| Unbuildable::MachineType {
        asked: asked.to_owned(),
        version: host.capabilities.version.to_string(),
    })
}

fn cpu(spec: &VirtualMachineInstanceSpec, host: &Abilities) -> Result<Cpu, Unbuildable> {
    let domain = &spec.domain;
    let asked = domain.cpu.clone().unwrap_or_default();
    let model = match asked.model.as_str() {
        // The guest sees what there is: all of the host's, or all that can be emulated.
        "" | "host-model" | "host-passthrough" if host.kvm => "host",
        "" | "host-model" | "host-passthrough" => "max",
        named => named,
    };
    let own = ["host", "max"].contains(&model);
    if !own && !host.capabilities.cpu_models.iter().any(|known| known == model) {
        let version = host.capabilities.version.to_string();
        return Err(Unbuildable::CpuModel { asked: model.to_owned(), version });
    }
    let sockets = match (asked.sockets, processors(domain)) {
        // Nothing is said of the processor but how much of it may be used.
        (0, Some(limit)) if asked.cores == 0 && asked.threads == 0 => limit,
        (sockets, _) => sockets.max(1),
    };
    let mut cpu = Cpu {
        model: model.to_owned(),
        features: Vec::new(),
        sockets,
        cores: asked.cores.max(1),
        threads: asked.threads.max(1),
        max_sockets: asked.max_sockets.max(sockets),
        limit_milli: None,
        request_milli: u32::try_from(Demand::of(spec).requested.cpu_milli).ok(),
    };
    // Processors are a limit by themselves: only a lower one has to be kept, and what QEMU itself needs beside
    // them is not taken from the guest, just as with memory.
    let limit = domain.resources.limits.get("cpu").and_then(|limit| quantity::milli(&limit.0));
    let limit = limit.and_then(|milli| u32::try_from(milli).ok()).filter(|milli| *milli > 0);
    cpu.limit_milli = limit.filter(|milli| *milli < cpu.count().saturating_mul(1000));
    Ok(cpu)
}

/// Whole processors that the limit, else the request, comes to.
fn processors(domain: &Domain) -> Option<u32> {
    let resources = &domain.resources;
    let said = resources.limits.get("cpu").or_else(|| resources.requests.get("cpu"))?;
    let milli = quantity::milli(&said.0)?;
    u32::try_from((milli + 999) / 1000).ok().map(|count| count.max(1))
}

/// What the guest counts: what was said for it, else what is set aside for the machine.
pub fn memory_bytes(domain: &Domain) -> Option<i64> {
    let resources = &domain.resources;
    let guest = domain.memory.as_ref().and_then(|memory| memory.guest.as_ref());
    let said =
        guest.or_else(|| resources.requests.get("memory")).or_else(|| resources.limits.get("memory"))?;
    quantity::value(&said.0)
}

fn memory_mib(domain: &Domain) -> Result<u64, Unbuildable> {
    let bytes = memory_bytes(domain).filter(|bytes| *bytes >= MIB);
    let mib = bytes.and_then(|bytes| u64::try_from(bytes / MIB).ok());
    mib.ok_or_else(|| {
        let said = domain.memory.as_ref().and_then(|memory| memory.guest.clone());
        Unbuildable::Memory(said.map_or_else(|| "nothing".to_owned(), |said| said.0))
    })
}

fn disks(
    spec: &VirtualMachineInstanceSpec,
    layers: &BTreeMap<String, Vec<Layer>>,
    host: &Abilities,
) -> Result<Vec<Disk>, Unbuildable> {
    let disks = &spec.domain.devices.disks;
    // Without any order said, machines boot from their disks as they are listed.
    let ordered = disks.iter().any(|disk| disk.boot_order.is_some())
        || spec.domain.devices.interfaces.iter().any(|nic| nic.boot_order.is_some());
    let mut built = Vec::new();
    for (position, disk) in disks.iter().enumerate() {
        let volume = spec.volumes.iter().find(|volume| volume.name == disk.name);
        let missing = || Unbuildable::NoVolume { disk: disk.name.clone() };
        let layers = layers.get(&disk.name).ok_or_else(missing)?.clone();
        let is_seed = volume.is_some_and(|volume| volume.cloud_init().is_some());
        let bus = match disk.bus() {
            "virtio" => Bus::Virtio,
            "scsi" => Bus::Scsi,
            _ => Bus::Sata,
        };
        // SATA has no read-only disks; a seed there is a disc.
        let is_disc = disk.cdrom.is_some() || is_seed && bus == Bus::Sata;
        let claim = volume.and_then(|volume| volume.persistent_volume_claim.as_ref());
        let direct = host.direct_io && !is_seed;
        let cache = match disk.cache.as_str() {
            "writeback" => Cache::WriteBack,
            "writethrough" => Cache::WriteThrough,
            // Nothing is ever written to a seed.
            "none" if !host.direct_io && !is_seed => {
                return Err(Unbuildable::NoDirectIo { disk: disk.name.clone() });
            }
            _ if direct => Cache::None,
            _ => Cache::WriteBack,
        };
        let boot_index =
            if ordered { disk.boot_order } else { u32::try_from(position + 1).ok().filter(|_| !is_seed) };
        built.push(Disk {
            name: disk.name.parse::<DeviceName>()?,
            bus,
            kind: if is_disc { DiskKind::Cdrom } else { DiskKind::Disk },
            layers,
            boot_index,
            serial: Some(disk.serial.clone()).filter(|serial| !serial.is_empty()),
            device_id: claim
                .filter(|claim| bus == Bus::Scsi && claim.claim_name.len() <= DEVICE_ID_ROOM)
                .map(|claim| claim.claim_name.clone()),
            cache,
            aio: host.capabilities.best_aio(cache),
            io_thread: matches!(bus, Bus::Virtio | Bus::Scsi),
        });
    }
    Ok(built)
}

fn nics(devices: &devices::Devices, host: &Abilities) -> Result<Vec<Nic>, Unbuildable> {
    let mut nics = Vec::new();
    for interface in &devices.interfaces {
        let model = match interface.model.as_str() {
            "" | "virtio" => NicModel::Virtio,
            "e1000" => NicModel::E1000,
            "e1000e" => NicModel::E1000e,
            "rtl8139" => NicModel::Rtl8139,
            "ne2k_pci" => NicModel::Ne2kPci,
            "pcnet" => NicModel::Pcnet,
            model => {
                return Err(Unbuildable::NicModel { nic: interface.name.clone(), model: model.to_owned() });
            }
        };
        nics.push(Nic {
            name: interface.name.parse()?,
            mac: interface.mac_address.parse()?,
            model,
            backend: match host.taps {
                true => Backend::Tap { vhost: false },
                false => Backend::User { forwards: Vec::new() },
            },
            boot_index: interface.boot_order,
            mtu: None,
        });
    }
    Ok(nics)
}

/// What the guest will call each disk, by the disk's name: `vda` and so on. Told to
/// whoever reads the status; guests may disagree.
pub fn targets(devices: &devices::Devices) -> BTreeMap<&str, String> {
    let (mut virtio, mut others) = (0_u8, 0_u8);
    devices
        .disks
        .iter()
        .map(|disk| {
            let (prefix, count) =
                if disk.bus() == "virtio" { ("vd", &mut virtio) } else { ("sd", &mut others) };
            let letter = char::from(b'a' + (*count).min(25));
            *count = count.saturating_add(1);
            (disk.name.as_str(), format!("{prefix}{letter}"))
        })
        .collect()
}

#[cfg(test)]
mod tests;
