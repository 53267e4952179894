//! Decides the next step for the addresses of one machine: the config that lists them, and the pool they come from.
//!
//! ```text
//!   machine there:   Create -> WriteSpec -> Allocate (in the pool) -> WriteStatus: Allocated, or why not -> Rest
//!   interface gone:  WriteStatus: Stale -> Release (in the pool) -> WriteStatus: forgotten
//!   machine gone:    Delete -> the same for all of them -> RemoveFinalizer
//! ```
//!
//! - One step per call. The caller acts, looks again, and asks again.
//! - The pool is written before the config says that an address is somebody's, and the config stops saying so
//!   before the pool is: interrupted anywhere, an address may be held by nobody for a while, never by two.
//! - Nothing is taken back while an instance may still use it.

use std::collections::{BTreeMap, BTreeSet};

use sheaf_resources::{
    kinds::{
        harvester_condition::set_condition,
        ip_pool::DEFAULT_NETWORK,
        virtual_machine::{VirtualMachine, instance},
        virtual_machine_instance::spec::VirtualMachineInstanceSpec,
        virtual_machine_network_config::{
            ADDRESSES_FINALIZER, ALLOCATED, NetworkConfig, NetworkConfigStatus, PENDING, STALE,
            VirtualMachineNetworkConfig, VirtualMachineNetworkConfigStatus,
        },
    },
    mac_address,
};

use crate::address::Pool;

/// A machine, its config and the pool.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The interfaces of the machine that want an address; `None` when there is no machine.
    pub wanted: Option<&'a [NetworkConfig]>,
    pub config: Option<&'a VirtualMachineNetworkConfig>,
    /// Whether the config belongs to this very machine and not to one that had its name before.
    pub is_own: bool,
    /// Whether an instance of this name may be running.
    pub may_run: bool,
    /// `None` when there is none.
    pub pool: Option<&'a Pool>,
    /// Hardware addresses that somebody else has too, and who.
    pub taken: &'a BTreeMap<String, String>,
    /// Why the last attempt to allocate failed, if it did.
    pub failure: Option<&'a str>,
    /// For people.
    pub now: &'a str,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Rest,
    /// Make the config, with its finalizer.
    Create,
    WriteSpec(Vec<NetworkConfig>),
    WriteStatus(Box<VirtualMachineNetworkConfigStatus>),
    /// Give these interfaces an address, in the pool.
    Allocate(Vec<NetworkConfig>),
    /// Take back what these have, in the pool.
    Release(Vec<String>),
    Delete,
    RemoveFinalizer,
}

pub fn next_step(seen: &Seen<'_>) -> Step {
    match (seen.config, seen.wanted) {
        (None, None) => Step::Rest,
        (None, Some([])) => Step::Rest,
        (None, Some(_)) => Step::Create,
        (Some(config), Some(wanted)) if seen.is_own && config.metadata.deletion_timestamp.is_none() => {
            upkeep(seen, config, wanted)
        }
        // Its guest may still have the address, whoever deleted what.
        (Some(_), _) if seen.may_run => Step::Rest,
        (Some(config), _) if config.metadata.deletion_timestamp.is_none() => Step::Delete,
        (Some(config), _) => farewell(seen, config),
    }
}

fn upkeep(seen: &Seen<'_>, config: &VirtualMachineNetworkConfig, wanted: &[NetworkConfig]) -> Step {
    let wanted = with_requests(wanted, config);
    if wanted != config.spec.network_configs {
        return Step::WriteSpec(wanted);
    }
    if config.spec.paused == Some(true) {
        return Step::Rest;
    }
    let waiting = |one: &&NetworkConfig| {
        !seen.taken.contains_key(&one.mac_address) && !has_address(config, &one.mac_address)
    };
    let waiting: Vec<NetworkConfig> = wanted.iter().filter(waiting).cloned().collect();
    let pool = seen.pool.filter(|_| seen.failure.is_none());
    let lacks = |one: &NetworkConfig| pool.is_some_and(|pool| pool.address_of(&one.mac_address).is_none());
    let status = status_of(seen, config, &wanted);
    if status != config.status {
        // One that has said nothing yet need not say that it waits for what it can have at once.
        let is_new = config.status.network_configs.is_empty();
        return match is_new && waiting.iter().any(lacks) {
            true => Step::Allocate(waiting),
            false => Step::WriteStatus(Box::new(status)),
        };
    }
    if let Some(step) = release(seen, config) {
        return step;
    }
    if waiting.is_empty() || pool.is_none() { Step::Rest } else { Step::Allocate(waiting) }
}

fn farewell(seen: &Seen<'_>, config: &VirtualMachineNetworkConfig) -> Step {
    let status = status_of(seen, config, &[]);
    if status != config.status {
        return Step::WriteStatus(Box::new(status));
    }
    let kept = config.metadata.finalizers.iter().flatten().any(|name| name == ADDRESSES_FINALIZER);
    let done = if kept { Step::RemoveFinalizer } else { Step::Rest };
    release(seen, config).unwrap_or(done)
}

fn release(seen: &Seen<'_>, config: &VirtualMachineNetworkConfig) -> Option<Step> {
    let stale = config.status.network_configs.iter().filter(|one| one.state == STALE);
    let held: Vec<String> =
        stale.filter(|one| is_held(seen.pool, one)).map(|one| one.mac_address.clone()).collect();
    (!held.is_empty()).then_some(Step::Release(held))
}

fn is_held(pool: Option<&Pool>, one: &NetworkConfigStatus) -> bool {
    let held = pool.and_then(|pool| pool.address_of(&one.mac_address));
    held.is_some_and(|address| address.to_string() == one.allocated_ip_address)
}

/// Whether the config says that an interface has its address.
pub fn has_address(config: &VirtualMachineNetworkConfig, mac: &str) -> bool {
    let mut configs = config.status.network_configs.iter();
    configs
        .any(|one| one.mac_address == mac && one.state == ALLOCATED && !one.allocated_ip_address.is_empty())
}

/// What is wanted, with the addresses somebody asked for in the config.
fn with_requests(wanted: &[NetworkConfig], config: &VirtualMachineNetworkConfig) -> Vec<NetworkConfig> {
    let asked = |mac: &str| {
        let before = config.spec.network_configs.iter().find(|one| one.mac_address == mac);
        before.and_then(|one| one.ip_address.clone())
    };
    wanted.iter().map(|one| NetworkConfig { ip_address: asked(&one.mac_address), ..one.clone() }).collect()
}

/// The status a config should have. At rest it is the one it has.
fn status_of(
    seen: &Seen<'_>,
    config: &VirtualMachineNetworkConfig,
    wanted: &[NetworkConfig],
) -> VirtualMachineNetworkConfigStatus {
    let mut status = config.status.clone();
    let before = std::mem::take(&mut status.network_configs);
    for one in wanted {
        let settled = has_address(config, &one.mac_address);
        let held = seen.pool.and_then(|pool| pool.address_of(&one.mac_address));
        let held = held.filter(|_| !seen.taken.contains_key(&one.mac_address));
        let old = before.iter().find(|old| old.mac_address == one.mac_address);
        let address = match (held, old) {
            (Some(address), _) => address.to_string(),
            // A pool that cannot be read takes nothing away.
            (None, Some(old)) if seen.pool.is_none() => old.allocated_ip_address.clone(),
            (None, _) => String::new(),
        };
        let kept = settled && seen.pool.is_none();
        status.network_configs.push(NetworkConfigStatus {
            state: if held.is_some() || kept { ALLOCATED } else { PENDING }.into(),
            allocated_ip_address: address,
            mac_address: one.mac_address.clone(),
            network_name: one.network_name.clone(),
        });
    }
    let gone = before.into_iter().filter(|old| !wanted.iter().any(|one| one.mac_address == old.mac_address));
    for old in gone.filter(|old| old.state != PENDING && (seen.pool.is_none() || is_held(seen.pool, old))) {
        status.network_configs.push(NetworkConfigStatus { state: STALE.into(), ..old });
    }
    let waiting: Vec<&NetworkConfigStatus> =
        status.network_configs.iter().filter(|one| one.state == PENDING).collect();
    let twice =
        waiting.iter().find_map(|one| Some((one.mac_address.as_str(), seen.taken.get(&one.mac_address)?)));
    let (truth, reason, message) = match (waiting.is_empty(), twice, seen.pool, seen.failure) {
        (true, _, _, _) => ("True", "", String::new()),
        (false, Some((mac, other)), _, _) => {
            ("False", "MACAddressInUse", format!("the MAC address {mac} belongs to {other} already"))
        }
        (false, None, None, _) => {
            ("False", "NoPool", format!("there is no IPPool of network {DEFAULT_NETWORK}"))
        }
        (false, None, Some(_), Some(why)) => ("False", "AllocationFailed", why.to_owned()),
        (false, None, Some(_), None) => ("False", "Allocating", String::new()),
    };
    set_condition(&mut status.conditions, ALLOCATED, truth, (reason, &message), seen.now);
    status
}

/// The interfaces of a machine's description that are on the default network. `is_default` tells by
/// `namespace/name` whether a network of another name is the default one all the same.
pub fn interfaces_on_default_network(
    spec: &VirtualMachineInstanceSpec,
    namespace: &str,
    is_default: &dyn Fn(&str) -> bool,
) -> Vec<NetworkConfig> {
    let network_of = |name: &str| {
        let network = spec.networks.iter().find(|network| network.name == name)?;
        if network.pod.is_some() {
            return Some(DEFAULT_NETWORK.to_owned());
        }
        let (namespace, name) = network.multus.as_ref()?.definition(namespace)?;
        Some(format!("{namespace}/{name}")).filter(|name| is_default(name))
    };
    let interfaces = spec.domain.devices.interfaces.iter();
    interfaces
        .filter_map(|interface| {
            Some(NetworkConfig {
                network_name: network_of(&interface.name)?,
                mac_address: mac_address::normalised(&interface.mac_address)?,
                ip_address: None,
            })
        })
        .collect()
}

/// The interfaces of a machine that want an address: those it would be started with next, as far as their hardware
/// addresses are settled, and those it runs with.
pub fn wanted(
    vm: Option<&VirtualMachine>,
    running: Option<&VirtualMachineInstanceSpec>,
    namespace: &str,
    is_default: &dyn Fn(&str) -> bool,
) -> Vec<NetworkConfig> {
    let next = vm.and_then(|vm| {
        let noted = instance::noted_addresses(vm);
        let template = vm.spec.template.as_ref()?;
        let settled = |name: &str| {
            let mut interfaces = template.spec.domain.devices.interfaces.iter();
            noted.contains_key(name)
                || interfaces.any(|interface| interface.name == name && !interface.mac_address.is_empty())
        };
        let mut spec = instance::instance_of(vm, &mut |_| {})?.spec;
        spec.domain.devices.interfaces.retain(|interface| settled(&interface.name));
        Some(spec)
    });
    let mut known = BTreeSet::new();
    let all = running.into_iter().chain(next.as_ref());
    all.flat_map(|spec| interfaces_on_default_network(spec, namespace, is_default))
        .filter(|one| known.insert(one.mac_address.clone()))
        .collect()
}

#[cfg(test)]
mod tests;
