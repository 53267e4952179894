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

/// The machine that `instance` asks for. `files` has those of every volume.
pub fn machine_of(
    instance: &VirtualMachineInstance,
    id: MachineId,
    files: &BTreeMap<String, Files>,
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
        max_memory_mib: max_memory_mib(domain),
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
        disks: disks(spec, files, host)?,
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

/// The processors, and how much of the host's they may use.
pub fn cpu(spec: &VirtualMachineInstanceSpec, host: &Abilities) -> Result<Cpu, Unbuildable> {
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

/// What the guest may come to count while it runs.
fn max_memory_mib(domain: &Domain) -> Option<u64> {
    let most = domain.memory.as_ref().and_then(|memory| memory.max_guest.as_ref());
    let bytes = most.and_then(|most| quantity::value(&most.0));
    let mib = bytes.and_then(|bytes| u64::try_from(bytes / MIB).ok());
    mib.filter(|most| memory_mib(domain).is_ok_and(|now| now < *most))
}

/// The files of a volume, from the bottom up, and whose they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    pub layers: Vec<Layer>,
    pub source: Option<String>,
}

fn disks(
    spec: &VirtualMachineInstanceSpec,
    files: &BTreeMap<String, Files>,
    host: &Abilities,
) -> Result<Vec<Disk>, Unbuildable> {
    let disks = &spec.domain.devices.disks;
    // Without any order said, machines boot from their disks as they are listed.
    let ordered = disks.iter().any(|disk| disk.boot_order.is_some())
        || spec.domain.devices.interfaces.iter().any(|nic| nic.boot_order.is_some());
    let mut built = Vec::new();
    for (position, disk) in disks.iter().enumerate() {
        let is_empty = disk.cdrom.is_some() && !spec.volumes.iter().any(|volume| volume.name == disk.name);
        let files = match files.get(&disk.name) {
            Some(files) => files.clone(),
            None if is_empty => Files::default(),
            None => return Err(Unbuildable::NoVolume { disk: disk.name.clone() }),
        };
        let mut made = disk_of(spec, disk, files, host)?;
        let is_seed = is_seed(spec, disk);
        made.boot_index =
            if ordered { disk.boot_order } else { u32::try_from(position + 1).ok().filter(|_| !is_seed) };
        built.push(made);
    }
    Ok(built)
}

fn is_seed(spec: &VirtualMachineInstanceSpec, disk: &devices::Disk) -> bool {
    let volume = spec.volumes.iter().find(|volume| volume.name == disk.name);
    volume.is_some_and(|volume| volume.cloud_init().is_some())
}

/// One disk as QEMU is told to have it, without its place in the order of booting.
pub fn disk_of(
    spec: &VirtualMachineInstanceSpec,
    disk: &devices::Disk,
    files: Files,
    host: &Abilities,
) -> Result<Disk, Unbuildable> {
    let volume = spec.volumes.iter().find(|volume| volume.name == disk.name);
    let is_seed = is_seed(spec, disk);
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
    Ok(Disk {
        name: disk.name.parse::<DeviceName>()?,
        bus,
        kind: if is_disc { DiskKind::Cdrom } else { DiskKind::Disk },
        layers: files.layers,
        boot_index: None,
        serial: serial_of(disk, bus),
        device_id: claim
            .filter(|claim| bus == Bus::Scsi && claim.claim_name.len() <= DEVICE_ID_ROOM)
            .map(|claim| claim.claim_name.clone()),
        cache,
        aio: host.capabilities.best_aio(cache),
        source: files.source,
        io_thread: matches!(bus, Bus::Virtio | Bus::Scsi),
    })
}

/// A serial number that is but the disk's own name, as virtctl gives one to what it plugs in, is cut to what there is room
/// for. Any other was chosen, and is refused when it is too long.
fn serial_of(disk: &devices::Disk, bus: Bus) -> Option<String> {
    let room = if bus == Bus::Virtio { 20 } else { 36 };
    let mut serial = Some(disk.serial.clone()).filter(|serial| !serial.is_empty())?;
    if serial == disk.name {
        serial.truncate(room);
    }
    Some(serial)
}

fn nics(devices: &devices::Devices, host: &Abilities) -> Result<Vec<Nic>, Unbuildable> {
    devices.interfaces.iter().map(|interface| nic_of(interface, host)).collect()
}

/// One interface as QEMU is told to have it.
pub fn nic_of(interface: &devices::Interface, host: &Abilities) -> Result<Nic, Unbuildable> {
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
    Ok(Nic {
        name: interface.name.parse()?,
        mac: interface.mac_address.parse()?,
        model,
        backend: match host.taps {
            true => Backend::Tap { vhost: false },
            false => Backend::User { forwards: Vec::new() },
        },
        boot_index: interface.boot_order,
        mtu: None,
    })
}

/// What the guest will call each disk, by the disk's name: `vda` and so on. Told to whoever reads the status; guests may
/// disagree. A disk keeps the name that was told, whatever was plugged in or pulled out beside it.
pub fn targets<'a>(devices: &'a devices::Devices, told: &BTreeMap<&str, &str>) -> BTreeMap<&'a str, String> {
    let mut targets: BTreeMap<&str, String> = BTreeMap::new();
    for disk in &devices.disks {
        if let Some(told) = told.get(disk.name.as_str()).filter(|told| !told.is_empty()) {
            targets.insert(&disk.name, (*told).to_owned());
        }
    }
    for disk in &devices.disks {
        if targets.contains_key(disk.name.as_str()) {
            continue;
        }
        let prefix = if disk.bus() == "virtio" { "vd" } else { "sd" };
        let free = (0..).map(|number| format!("{prefix}{}", letters(number)));
        let free = free.into_iter().find(|name| !targets.values().any(|taken| taken == name));
        targets.insert(&disk.name, free.unwrap_or_default());
    }
    targets
}

/// `a` to `z`, then `aa` and so on, as Linux counts disks.
fn letters(number: u32) -> String {
    let letter = char::from(b'a' + (number % 26) as u8);
    match number / 26 {
        0 => letter.to_string(),
        more => format!("{}{letter}", letters(more - 1)),
    }
}

#[cfg(test)]
mod tests;
