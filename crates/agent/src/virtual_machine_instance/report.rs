//! The status of an instance, from what was seen of it. Pure; at rest it is the one it has.

use std::{collections::BTreeMap, net::Ipv4Addr};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use sheaf_hypervisor::Machine;
use sheaf_planner::virtual_machine_instance::Seen;
use sheaf_resources::{
    kinds::virtual_machine_instance::{
        VirtualMachineInstance, domain,
        status::{
            ClaimInfo, Condition, CpuTopology, InterfaceStatus, MemoryStatus, Phase, PhaseTransition,
            VirtualMachineInstanceStatus, VolumeStatus,
        },
    },
    mac_address, quantity,
};

use super::{
    guest::{GuestFacts, GuestInterface},
    hardware,
};

/// What is known of an instance at one moment.
pub struct Observed<'a> {
    pub seen: Seen,
    pub phase: Phase,
    pub now: Timestamp,
    /// As it was launched.
    pub machine: Option<&'a Machine>,
    /// The user it runs as.
    pub user: Option<u32>,
    /// What the allocator gave, by hardware address.
    pub addresses: &'a BTreeMap<String, Vec<Ipv4Addr>>,
    /// What the agent in the guest says, while it is connected.
    pub guest: Option<&'a GuestFacts>,
    /// The claims behind the volumes, by volume.
    pub claims: &'a BTreeMap<String, ClaimInfo>,
    /// A disk failed, and the guest was stopped because of it.
    pub disk_failed: bool,
    /// What stands in the way, in words for its owner.
    pub trouble: Option<&'a str>,
    /// Whether the credentials for the guest's agent are in the guest; none without any.
    pub credentials: Option<Result<(), &'a str>>,
}

pub fn status_of(instance: &VirtualMachineInstance, observed: &Observed<'_>) -> VirtualMachineInstanceStatus {
    let mut status = instance.status.clone();
    if status.phase != observed.phase {
        status.phase = observed.phase;
        status.phase_transition_timestamps.push(PhaseTransition {
            phase: observed.phase,
            phase_transition_timestamp: Some(Time(observed.now)),
        });
    }
    conditions(&mut status, instance, observed);
    let here = matches!(observed.seen, Seen::Running { .. } | Seen::Stopping { .. });
    if !here {
        return status;
    }
    status.interfaces = interfaces(instance, observed);
    status.guest_os_info = observed.guest.map(|guest| guest.os.clone()).unwrap_or_default();
    status.volume_status = volumes(instance, observed.claims);
    status.qos_class = Some(quality(&instance.spec.domain).to_owned());
    if let Some(machine) = observed.machine {
        status.machine = Some(domain::Machine { machine_type: machine.machine_type.clone() });
        status.current_cpu_topology = Some(CpuTopology {
            cores: machine.cpu.cores,
            sockets: machine.cpu.sockets,
            threads: machine.cpu.threads,
        });
        let memory = quantity::bytes(i64::try_from(machine.memory_mib << 20).unwrap_or(i64::MAX));
        status.memory = Some(MemoryStatus {
            guest_at_boot: Some(memory.clone()),
            guest_current: Some(memory.clone()),
            guest_requested: Some(memory),
        });
    }
    status.runtime_user = observed.user.map_or(0, u64::from);
    status
}

fn conditions(
    status: &mut VirtualMachineInstanceStatus,
    instance: &VirtualMachineInstance,
    observed: &Observed<'_>,
) {
    let mut say = |kind: &str, truth: Option<(&str, &str, &str)>| {
        set_condition(&mut status.conditions, kind, truth, observed.now);
    };
    let running = matches!(observed.seen, Seen::Running { paused: false } | Seen::Stopping { .. });
    say(
        "Ready",
        Some(match (observed.seen, observed.phase) {
            (_, Phase::Succeeded | Phase::Failed) => ("False", "PodTerminating", "the machine is over"),
            _ if running => ("True", "", ""),
            (Seen::Running { paused: true }, _) => ("False", "GuestNotRunning", "the machine is paused"),
            _ => ("False", "GuestNotRunning", "Guest VM is not reported as running"),
        }),
    );
    let paused = matches!(observed.seen, Seen::Running { paused: true });
    say(
        "Paused",
        match (observed.disk_failed, paused) {
            (true, _) => Some(("True", "PausedIOError", "VMI was paused, IO error")),
            (false, true) => Some(("True", "PausedByUser", "VMI was paused by user")),
            (false, false) => None,
        },
    );
    say("AgentConnected", observed.guest.map(|_| ("True", "", "")));
    say("Synchronized", observed.trouble.map(|why| ("False", "Synchronizing with the Domain failed.", why)));
    say(
        "AccessCredentialsSynchronized",
        observed.credentials.map(|outcome| match outcome {
            Ok(()) => ("True", "", ""),
            Err(why) => ("False", "AccessCredentialsNotSynchronized", why),
        }),
    );
    let on_local_disks = instance.spec.claim_names().next().is_some();
    say(
        "LiveMigratable",
        Some(match on_local_disks {
            true => ("False", "DisksNotLiveMigratable", "its disks are files of this node"),
            false => ("False", "NotMigratable", "this cluster cannot move machines"),
        }),
    );
}

/// Sets a condition, or takes it away. Its time changes only when its status does.
pub fn set_condition(
    conditions: &mut Vec<Condition>,
    kind: &str,
    said: Option<(&str, &str, &str)>,
    now: Timestamp,
) {
    let Some((truth, reason, message)) = said else {
        conditions.retain(|condition| condition.condition_type != kind);
        return;
    };
    let known = conditions.iter_mut().find(|condition| condition.condition_type == kind);
    let condition = match known {
        Some(known) => known,
        None => {
            conditions.push(Condition { condition_type: kind.to_owned(), ..Condition::default() });
            // It was pushed a line ago.
            let Some(last) = conditions.last_mut() else { return };
            last
        }
    };
    if condition.status != truth {
        condition.status = truth.to_owned();
        condition.last_transition_time = Some(Time(now));
    }
    condition.reason = reason.to_owned();
    condition.message = message.to_owned();
}

/// The interfaces of the spec in its order, then those that only the guest knows.
fn interfaces(instance: &VirtualMachineInstance, observed: &Observed<'_>) -> Vec<InterfaceStatus> {
    let in_guest = observed.guest.map(|guest| guest.interfaces.as_slice()).unwrap_or_default();
    let specified = &instance.spec.domain.devices.interfaces;
    let macs: Vec<String> = specified
        .iter()
        .map(|interface| mac_address::normalised(&interface.mac_address).unwrap_or_default())
        .collect();
    let mut all: Vec<InterfaceStatus> = specified
        .iter()
        .zip(&macs)
        .map(|(interface, mac)| {
            let given = observed.addresses.get(mac).map(Vec::as_slice).unwrap_or_default();
            let inside = in_guest.iter().find(|inside| inside.mac == *mac);
            let addresses = addresses(given, inside);
            InterfaceStatus {
                name: interface.name.clone(),
                mac: mac.clone(),
                ip_address: addresses.first().cloned().unwrap_or_default(),
                ip_addresses: addresses,
                interface_name: inside.map(|inside| inside.name.clone()).unwrap_or_default(),
                info_source: if inside.is_some() { "domain, guest-agent" } else { "domain" }.to_owned(),
                queue_count: 1,
                link_state: "up".to_owned(),
                ..InterfaceStatus::default()
            }
        })
        .collect();
    let others = in_guest.iter().filter(|inside| !macs.contains(&inside.mac));
    all.extend(others.map(|inside| InterfaceStatus {
        mac: inside.mac.clone(),
        ip_address: inside.addresses.first().cloned().unwrap_or_default(),
        ip_addresses: inside.addresses.clone(),
        interface_name: inside.name.clone(),
        info_source: "guest-agent".to_owned(),
        ..InterfaceStatus::default()
    }));
    all
}

/// What the guest has, the one the allocator gave first; before the guest says anything, the
/// one it will get.
fn addresses(given: &[Ipv4Addr], inside: Option<&GuestInterface>) -> Vec<String> {
    let given: Vec<String> = given.iter().map(Ipv4Addr::to_string).collect();
    let said = inside.map(|inside| inside.addresses.as_slice()).unwrap_or_default();
    if said.iter().all(|address| is_link_local(address)) {
        return given.into_iter().chain(said.iter().cloned()).collect();
    }
    let (first, rest): (Vec<&String>, Vec<&String>) =
        said.iter().partition(|address| given.contains(address));
    first.into_iter().chain(rest).cloned().collect()
}

fn is_link_local(address: &str) -> bool {
    address.starts_with("fe80:") || address.starts_with("169.254.")
}

fn volumes(instance: &VirtualMachineInstance, claims: &BTreeMap<String, ClaimInfo>) -> Vec<VolumeStatus> {
    let targets = hardware::targets(&instance.spec.domain.devices);
    let volumes = instance.spec.volumes.iter();
    volumes
        .map(|volume| VolumeStatus {
            name: volume.name.clone(),
            target: targets.get(volume.name.as_str()).cloned().unwrap_or_default(),
            persistent_volume_claim_info: claims.get(&volume.name).cloned(),
            ..VolumeStatus::default()
        })
        .collect()
}

/// How firmly its share of the node is set aside, in the words of pods.
fn quality(domain: &domain::Domain) -> &'static str {
    let (requests, limits) = (&domain.resources.requests, &domain.resources.limits);
    let equal = |name: &str| {
        limits.contains_key(name) && requests.get(name).unwrap_or(&limits[name]) == &limits[name]
    };
    match (requests.is_empty() && limits.is_empty(), equal("cpu") && equal("memory")) {
        (true, _) => "BestEffort",
        (false, true) => "Guaranteed",
        (false, false) => "Burstable",
    }
}

#[cfg(test)]
mod tests;
