//! The status of an instance, from what was seen of it. Pure; at rest it is the one it has.

use std::{collections::BTreeMap, net::Ipv4Addr};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use sheaf_hypervisor::Machine;
use sheaf_planner::virtual_machine_instance::Seen;
use sheaf_resources::{
    kinds::{
        pod,
        virtual_machine_instance::{
            VirtualMachineInstance, domain,
            status::{
                ClaimInfo, Condition, CpuTopology, HotplugVolumeStatus, InterfaceStatus, MemoryStatus, Phase,
                PhaseTransition, VirtualMachineInstanceStatus, VolumeStatus,
            },
            volume::Volume,
        },
    },
    mac_address, quantity,
};

use super::{
    guest::{GuestFacts, GuestInterface},
    hardware,
    plugging::{DiskNow, Now},
};

/// Why a machine is paused that the disk stopped, as KubeVirt says it.
const PAUSED_BY_DISK: &str = "PausedIOError";

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
    /// The bytes of the seeds, by volume.
    pub seeds: &'a BTreeMap<String, i64>,
    /// What is plugged in, once that was looked at.
    pub plugged: Option<&'a Now>,
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
    status.volume_status = volumes(instance, observed);
    status.qos_class = Some(quality(&instance.spec.domain).to_owned());
    if let Some(machine) = observed.machine {
        status.machine = Some(domain::Machine { machine_type: machine.machine_type.clone() });
        let per_socket = machine.cpu.cores.saturating_mul(machine.cpu.threads).max(1);
        let sockets = observed.plugged.map_or(machine.cpu.sockets, |now| now.processors / per_socket);
        status.current_cpu_topology =
            Some(CpuTopology { cores: machine.cpu.cores, sockets, threads: machine.cpu.threads });
        let added = observed.plugged.and_then(|now| now.added_memory).unwrap_or_default();
        let with = |added: u64| {
            let bytes = (machine.memory_mib << 20).saturating_add(added);
            Some(quantity::bytes(i64::try_from(bytes).unwrap_or(i64::MAX)))
        };
        status.memory = Some(MemoryStatus {
            guest_at_boot: with(0),
            guest_current: with(added.bytes),
            guest_requested: with(added.requested_bytes),
        });
    }
    status.runtime_user = observed.user.map_or(0, u64::from);
    status
}

/// What is told when the disk stopped a machine, and when it goes on.
pub fn event_of_full_disk<'a>(
    before: &VirtualMachineInstanceStatus,
    now: &'a VirtualMachineInstanceStatus,
) -> Option<(&'static str, &'static str, &'a str)> {
    fn stopped(status: &VirtualMachineInstanceStatus) -> Option<&str> {
        let paused = status.condition("Paused").filter(|paused| paused.reason == PAUSED_BY_DISK);
        paused.map(|paused| paused.message.as_str())
    }
    match (stopped(before), stopped(now)) {
        (None, Some(why)) => Some(("Warning", PAUSED_BY_DISK, why)),
        (Some(_), None) if now.phase == Phase::Running => {
            Some(("Normal", "Resumed", "the guest goes on: it is not held back by the node's disk any more"))
        }
        (None, None) | (Some(_), _) => None,
    }
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
            (true, _) => {
                Some(("True", PAUSED_BY_DISK, observed.trouble.unwrap_or("VMI was paused, IO error")))
            }
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
    let growing = |waits: Option<&String>, reason: &'static str| {
        waits.map(|why| ("True", reason, why.as_str().to_owned()))
    };
    let processors = observed.plugged.and_then(|now| growing(now.processors_wait.as_ref(), "VCPUChange"));
    let memory = observed.plugged.and_then(|now| growing(now.memory_waits.as_ref(), "MemoryChange"));
    for (kind, change) in [("HotVCPUChange", &processors), ("HotMemoryChange", &memory)] {
        say(kind, change.as_ref().map(|(truth, reason, why)| (*truth, *reason, why.as_str())));
    }
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

/// By name, as KubeVirt has them: the volumes of the spec, and those that are on their way out.
fn volumes(instance: &VirtualMachineInstance, observed: &Observed<'_>) -> Vec<VolumeStatus> {
    let before = &instance.status.volume_status;
    let told = before.iter().map(|status| (status.name.as_str(), status.target.as_str())).collect();
    let targets = hardware::targets(&instance.spec.domain.devices, &told);
    let of_pod =
        || Some(HotplugVolumeStatus { attach_pod_name: pod::launcher_name(instance), ..Default::default() });
    let disks = observed.plugged.map(|now| &now.disks);
    let status_of = |volume: &Volume| {
        let mut status = VolumeStatus {
            name: volume.name.clone(),
            target: targets.get(volume.name.as_str()).cloned().unwrap_or_default(),
            persistent_volume_claim_info: observed.claims.get(&volume.name).cloned(),
            size: observed.seeds.get(&volume.name).copied().unwrap_or(0),
            ..VolumeStatus::default()
        };
        if volume.is_hotpluggable() {
            status.hotplug_volume = of_pod();
            let now = disks.and_then(|disks| disks.get(&volume.name));
            (status.phase, status.reason, status.message) = phase_of(volume, now);
        }
        status
    };
    let mut all: Vec<VolumeStatus> = instance.spec.volumes.iter().map(status_of).collect();
    let is_going = |(name, disk): &(&String, &DiskNow)| {
        !disk.is_wanted && !all.iter().any(|status| status.name == **name)
    };
    let going: Vec<VolumeStatus> = disks
        .into_iter()
        .flatten()
        .filter(is_going)
        .map(|(name, disk)| VolumeStatus {
            name: name.clone(),
            target: told_target(before, name),
            phase: "Detaching".into(),
            reason: "Detaching".into(),
            message: disk.why.clone().unwrap_or_else(|| format!("volume {name} is being unplugged")),
            hotplug_volume: of_pod(),
            ..VolumeStatus::default()
        })
        .collect();
    all.extend(going);
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

fn told_target(before: &[VolumeStatus], name: &str) -> String {
    before.iter().find(|status| status.name == name).map(|status| status.target.clone()).unwrap_or_default()
}

/// Phase, reason and message of a volume that comes and goes while its machine runs, in the original's words.
fn phase_of(volume: &Volume, now: Option<&DiskNow>) -> (String, String, String) {
    let name = &volume.name;
    let (phase, reason, message) = match now {
        Some(DiskNow { is_there: true, why: None, .. }) => {
            ("Ready", "VolumeReady", format!("Successfully attach hotplugged volume {name} to VM"))
        }
        Some(DiskNow { is_there: true, why: Some(why), .. }) => ("Ready", "VolumeReady", why.clone()),
        Some(DiskNow { is_bound: true, why, .. }) => {
            let why = why.clone().unwrap_or_else(|| format!("volume {name} is being plugged in"));
            ("Bound", "PVCNotReady", why)
        }
        Some(DiskNow { is_bound: false, why, .. }) => {
            ("Pending", "PVCNotReady", why.clone().unwrap_or_else(|| "PVC is in phase Pending".into()))
        }
        None => ("Pending", "PVCNotReady", String::new()),
    };
    (phase.into(), reason.into(), message)
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
