//! What a VirtualMachine is given when it is written, as Harvester and KubeVirt give it.
//!
//! Clients leave most of a machine out and read it back: they crash where a machine type,
//! a processor or an annotation is missing. Settings, chance, and the cluster network of
//! each definition are handed in; nothing is looked up here.
//!
//! - Given twice, it is given once: what is there stays.
//! - Nothing that was drawn by chance ever changes: on update it is carried over.
//! - What only follows from limits follows them again when they change, or when it was left out,
//!   and only then, so that a person's own requests survive an unrelated edit.

mod affinity;

use serde_json::Value;

use self::affinity::require_cluster_networks;
use super::super::virtual_machine_instance::{
    devices::Bridge,
    domain::{Cpu, Domain, Firmware, Machine, Memory},
    network::Network,
};
use super::{
    MAC_ADDRESS_ANNOTATION, RESERVED_MEMORY_ANNOTATION, RUN_STRATEGY_ANNOTATION, SSH_NAMES_ANNOTATION,
    VirtualMachine, run_strategy::RunStrategy,
};
use crate::{
    field_error::{FieldError, FieldPath},
    mac_address,
    quantity::{self, MIB},
};

/// What of the limit QEMU itself is thought to need, where no better rule is set.
const RESERVED_BYTES: i64 = 100 * MIB;

/// The settings that decide what a machine is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineDefaults {
    /// What the cluster's nodes are: `amd64` or `arm64`.
    pub architecture: String,
    /// Setting `default-vm-termination-grace-period-seconds`.
    pub termination_grace_period_secs: i64,
    pub overcommit: Overcommit,
    /// What is kept of the memory limit from a machine that does not say it itself.
    pub reserved_bytes: i64,
    /// Setting `max-hotplug-ratio`: how many times as many sockets, and as much memory, a machine may come to have that is
    /// to grow while it runs.
    pub hotplug_ratio: u32,
}

/// Setting `overcommit-config`: how much is promised for each hundred there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overcommit {
    pub cpu_percent: i64,
    pub memory_percent: i64,
    /// Of what a node gives to volumes.
    pub storage_percent: i64,
}

impl Default for Overcommit {
    fn default() -> Self {
        Overcommit { cpu_percent: 1000, memory_percent: 150, storage_percent: 100 }
    }
}

impl Overcommit {
    /// Reads the setting's value. What is missing or makes no sense is as by default.
    pub fn parse(setting: &str) -> Self {
        let value: Value = serde_json::from_str(setting).unwrap_or_default();
        let percent = |field: &str, otherwise: i64| match value[field].as_i64() {
            Some(percent) if percent >= 100 => percent,
            _ => otherwise,
        };
        let usual = Overcommit::default();
        Overcommit {
            cpu_percent: percent("cpu", usual.cpu_percent),
            memory_percent: percent("memory", usual.memory_percent),
            storage_percent: percent("storage", usual.storage_percent),
        }
    }
}

impl Default for MachineDefaults {
    fn default() -> Self {
        MachineDefaults {
            architecture: "amd64".into(),
            termination_grace_period_secs: 120,
            overcommit: Overcommit::default(),
            reserved_bytes: reserved_by_ratio("1.5"),
            hotplug_ratio: 4,
        }
    }
}

/// What setting `additional-guest-memory-overhead-ratio` leaves to reserve: with a ratio,
/// the overhead is on top of the guest's memory and nothing is taken from it.
pub fn reserved_by_ratio(setting: &str) -> i64 {
    match setting.trim().parse::<f64>() {
        Ok(ratio) if ratio >= 1.0 => 0,
        Ok(_) | Err(_) => RESERVED_BYTES,
    }
}

/// What admission looks up or draws for a machine.
pub struct Surroundings<'a> {
    pub defaults: &'a MachineDefaults,
    /// The cluster network of a NetworkAttachmentDefinition, by namespace and name.
    pub cluster_network_of: &'a dyn Fn(&str, &str) -> Option<String>,
    /// Fills with bytes of chance.
    pub random: &'a mut dyn FnMut(&mut [u8]),
}

/// Gives a machine that is about to be written what it lacks. `old` is there on update.
pub fn complete(
    vm: &mut Value,
    old: Option<&Value>,
    surroundings: &mut Surroundings<'_>,
) -> Result<(), FieldError> {
    let read = |value: &Value| {
        serde_json::from_value::<VirtualMachine>(value.clone())
            .map_err(|why| FieldError::invalid(&FieldPath::root(), "<object>", why.to_string()))
    };
    let mut machine = read(vm)?;
    // One that goes is not improved any more.
    if machine.metadata.deletion_timestamp.is_some() || machine.spec.template.is_none() {
        return Ok(());
    }
    let former = old.map(read).transpose()?;
    complete_machine(&mut machine, former.as_ref(), surroundings);
    let Ok(completed) = serde_json::to_value(&machine) else { return Ok(()) };
    for field in ["metadata", "spec"] {
        vm[field] = completed[field].clone();
    }
    Ok(())
}

fn complete_machine(vm: &mut VirtualMachine, old: Option<&VirtualMachine>, around: &mut Surroundings<'_>) {
    settle_run_strategy(vm, old);
    let limits_changed = old.is_none_or(|old| limits(old) != limits(vm));
    let reserved = quantity::value(vm.annotation(RESERVED_MEMORY_ANNOTATION));
    let reserved = reserved.unwrap_or(around.defaults.reserved_bytes);
    let noted_addresses: Value =
        serde_json::from_str(vm.annotation(MAC_ADDRESS_ANNOTATION)).unwrap_or_default();
    let namespace = vm.metadata.namespace.clone().unwrap_or_default();
    let ratio = vm.grows_while_it_runs().then_some(around.defaults.hotplug_ratio);
    let grew_before = old.is_some_and(VirtualMachine::grows_while_it_runs);
    let former = old.and_then(|old| old.spec.template.as_ref()).map(|template| &template.spec);
    let Some(template) = vm.spec.template.as_mut() else { return };
    let annotations = template.metadata.annotations.get_or_insert_default();
    let names = annotations.entry(SSH_NAMES_ANNOTATION.into()).or_default();
    if names.trim().is_empty() {
        *names = "[]".into();
    }
    let spec = &mut template.spec;

    if spec.architecture.is_empty() {
        spec.architecture = around.defaults.architecture.clone();
    }
    let board = if spec.architecture == "arm64" { "virt" } else { "q35" };
    let machine = spec.domain.machine.get_or_insert_with(Machine::default);
    if machine.machine_type.is_empty() {
        machine.machine_type = board.into();
    }
    let cpu = spec.domain.cpu.get_or_insert_with(Cpu::default);
    for number in [&mut cpu.cores, &mut cpu.sockets, &mut cpu.threads] {
        *number = (*number).max(1);
    }
    // Sockets cannot be added on arm64, and nobody is refused for a default.
    if spec.architecture != "arm64" {
        // A maximum that was given because there was none follows the sockets. One that leaves room was chosen.
        let given = former.filter(|_| !grew_before).and_then(|former| former.domain.cpu.as_ref());
        complete_processor(&mut spec.domain, given, ratio);
    }
    let said =
        spec.domain.memory.as_ref().and_then(|memory| memory.guest.clone()).filter(|_| ratio.is_some());
    follow_limits(&mut spec.domain, around.defaults.overcommit, reserved, limits_changed);
    if let Some(memory) = &mut spec.domain.memory {
        // Limits are what such a machine may come to, not what it has.
        memory.guest = said.or(memory.guest.take());
        make_room(memory, ratio);
    }
    settle_secure_boot(&mut spec.domain);
    complete_firmware(&mut spec.domain, former.map(|spec| &spec.domain), around.random);
    spec.termination_grace_period_seconds.get_or_insert(around.defaults.termination_grace_period_secs);

    for interface in &mut spec.domain.devices.interfaces {
        let chosen = interface.bridge.is_some() || interface.masquerade.is_some();
        let unserved = serde_json::to_value(&interface.binding).is_ok_and(|binding| !binding.is_null());
        if !chosen && !unserved {
            interface.bridge = Some(Bridge {});
        }
        if interface.mac_address.is_empty() && noted_addresses[&interface.name].is_null() {
            let before = former.into_iter().flat_map(|spec| &spec.domain.devices.interfaces);
            let before = before.filter(|old| old.name == interface.name && !old.mac_address.is_empty());
            interface.mac_address = match before.map(|old| old.mac_address.clone()).next() {
                Some(address) => address,
                None => {
                    let mut random = [0; 6];
                    (around.random)(&mut random);
                    mac_address::locally_administered(random)
                }
            };
        }
    }
    let networks: Vec<String> = cluster_networks(&spec.networks, &namespace, around.cluster_network_of);
    require_cluster_networks(&mut spec.affinity, &networks);
}

/// Turns the older `running` into a strategy, brings a halted machine back to the strategy
/// it last ran by, and notes the one it runs by now.
fn settle_run_strategy(vm: &mut VirtualMachine, old: Option<&VirtualMachine>) {
    if vm.spec.run_strategy.is_none()
        && let Some(running) = vm.spec.running.take()
    {
        vm.spec.run_strategy = Some(if running { RunStrategy::Always } else { RunStrategy::Halted });
    }
    let Some(mut strategy) = vm.spec.run_strategy else { return };
    let remembered = RunStrategy::parse(vm.annotation(RUN_STRATEGY_ANNOTATION));
    let was_halted = old.is_some_and(|old| old.run_strategy() == RunStrategy::Halted);
    if was_halted && strategy != RunStrategy::Halted {
        strategy = remembered.unwrap_or(RunStrategy::RerunOnFailure);
        vm.spec.run_strategy = Some(strategy);
    }
    let noted = match strategy {
        RunStrategy::Halted => remembered.unwrap_or(RunStrategy::RerunOnFailure),
        running => running,
    };
    let annotations = vm.metadata.annotations.get_or_insert_default();
    annotations.insert(RUN_STRATEGY_ANNOTATION.into(), noted.as_str().into());
}

/// What the requests and the guest's memory follow from.
fn limits(vm: &VirtualMachine) -> (Option<i64>, Option<i64>, String) {
    let limits = vm.spec.template.as_ref().map(|template| &template.spec.domain.resources.limits);
    let amount = |name: &str| limits.and_then(|limits| quantity::milli(&limits.get(name)?.0));
    (amount("cpu"), amount("memory"), vm.annotation(RESERVED_MEMORY_ANNOTATION).to_owned())
}

/// Sockets can be added to a machine up to its maximum.
fn complete_processor(domain: &mut Domain, given: Option<&Cpu>, ratio: Option<u32>) {
    let cpu = domain.cpu.get_or_insert_with(Cpu::default);
    let was_given = |given: &Cpu| given.max_sockets == given.sockets && given.max_sockets == cpu.max_sockets;
    if cpu.max_sockets == 0 || given.is_some_and(was_given) {
        cpu.max_sockets = cpu.sockets.saturating_mul(ratio.unwrap_or(1));
    }
}

/// Memory that may grow says how far.
fn make_room(memory: &mut Memory, ratio: Option<u32>) {
    let guest = memory.guest.as_ref().and_then(|guest| quantity::value(&guest.0));
    if let (Some(ratio), Some(guest), None) = (ratio, guest, &memory.max_guest) {
        memory.max_guest = Some(quantity::bytes(guest.saturating_mul(ratio.into())));
    }
}

/// Works out what follows from the limits where it is missing, and `anew` where it is not.
fn follow_limits(domain: &mut Domain, overcommit: Overcommit, reserved: i64, anew: bool) {
    let follows = |domain: &Domain, name: &str| anew || !domain.resources.requests.contains_key(name);
    let cpu = domain.resources.limits.get("cpu").and_then(|limit| quantity::milli(&limit.0));
    let memory = domain.resources.limits.get("memory").and_then(|limit| quantity::value(&limit.0));
    if let Some(cpu) = cpu.filter(|cpu| *cpu > 0)
        && follows(domain, "cpu")
    {
        let request = quantity::cores(share(cpu, overcommit.cpu_percent));
        domain.resources.requests.insert("cpu".into(), request);
    }
    if let Some(memory) = memory.filter(|memory| *memory > 0) {
        if follows(domain, "memory") {
            let request = share(memory, overcommit.memory_percent) / MIB * MIB;
            domain.resources.requests.insert("memory".into(), quantity::bytes(request));
        }
        let guest = &mut domain.memory.get_or_insert_with(Memory::default).guest;
        if anew || guest.is_none() {
            *guest = Some(quantity::bytes(memory.saturating_sub(reserved)));
        }
    }
    // A plain KubeVirt manifest may say nothing but what to set aside.
    let asked = domain.resources.requests.get("memory").cloned();
    let memory = domain.memory.get_or_insert_with(Memory::default);
    if memory.guest.is_none() {
        memory.guest = asked;
    }
    if *memory == Memory::default() {
        domain.memory = None;
    }
}

fn share(amount: i64, percent: i64) -> i64 {
    i64::try_from(i128::from(amount) * 100 / i128::from(percent.max(100))).unwrap_or(amount)
}

fn complete_firmware(domain: &mut Domain, former: Option<&Domain>, random: &mut dyn FnMut(&mut [u8])) {
    let former = former.and_then(|domain| domain.firmware.as_ref());
    let firmware = domain.firmware.get_or_insert_with(Firmware::default);
    for (id, before) in [
        (&mut firmware.uuid, former.map(|former| &former.uuid)),
        (&mut firmware.serial, former.map(|former| &former.serial)),
    ] {
        if id.is_empty() {
            *id = before.filter(|id| !id.is_empty()).cloned().unwrap_or_else(|| uuid(random));
        }
    }
}

/// Says what is meant when nothing is said: Terraform reads it without looking.
fn settle_secure_boot(domain: &mut Domain) {
    let bootloader = domain.firmware.as_mut().and_then(|firmware| firmware.bootloader.as_mut());
    if let Some(efi) = bootloader.and_then(|bootloader| bootloader.efi.as_mut()) {
        efi.secure_boot.get_or_insert(true);
    }
}

/// A random UUID (version 4).
fn uuid(random: &mut dyn FnMut(&mut [u8])) -> String {
    let mut bytes = [0_u8; 16];
    random(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

fn cluster_networks(
    networks: &[Network],
    namespace: &str,
    cluster_network_of: &dyn Fn(&str, &str) -> Option<String>,
) -> Vec<String> {
    let definitions = networks.iter().filter_map(|network| network.multus.as_ref()?.definition(namespace));
    let mut found: Vec<String> =
        definitions.filter_map(|(namespace, name)| cluster_network_of(namespace, name)).collect();
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests;
