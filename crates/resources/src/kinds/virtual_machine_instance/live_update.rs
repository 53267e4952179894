//! What of a machine can be changed while it runs, and what has to wait for its next start.
//!
//! One function serves both who asks: the VirtualMachine's controller carries over what can be, and says of the rest that it
//! needs a restart; and an instance lets nobody change anything else.
//!
//! | | while it runs |
//! |---|---|
//! | disks | SCSI and virtio, with a claim that says `hotpluggable` |
//! | discs | any claim, in a drive that is there |
//! | interfaces | virtio; `state: absent` takes one away |
//! | processors | whole sockets, up to `maxSockets`, never fewer |
//! | memory | up to `maxGuest`, never less than it began with |
//! | where it may run | anything: it stays where it is |

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    devices::{Disk, Interface},
    spec::VirtualMachineInstanceSpec,
    volume::Volume,
};
use crate::quantity;

/// `state` of an interface that is to be taken away.
pub const ABSENT: &str = "absent";

/// What a running machine comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveUpdate {
    /// The running spec with all that can be changed.
    pub spec: VirtualMachineInstanceSpec,
    /// What cannot be, in the order of the spec: a field, or a sentence.
    pub needs_restart: Vec<String>,
}

/// What is known of a running machine beside its spec.
#[derive(Clone, Debug, Default)]
pub struct Running<'a> {
    /// Volumes that were plugged into the instance alone, and stay until it ends.
    pub ephemeral: BTreeSet<&'a str>,
    /// The guest's memory when it began.
    pub memory_at_boot: Option<i64>,
}

/// Brings a running spec as near to the wanted one as it can be brought.
pub fn live_update(
    running: &VirtualMachineInstanceSpec,
    wanted: &VirtualMachineInstanceSpec,
    known: &Running<'_>,
) -> LiveUpdate {
    let mut update = LiveUpdate { spec: running.clone(), needs_restart: Vec::new() };
    change_disks(&mut update.spec, wanted, known);
    change_interfaces(&mut update.spec, wanted);
    // What is asked of a node is asked when one is chosen; a network that is plugged in asks for its own.
    update.spec.affinity.clone_from(&wanted.affinity);
    update.spec.node_selector.clone_from(&wanted.node_selector);
    update.spec.tolerations.clone_from(&wanted.tolerations);
    // As far as the two are compared below, it is as if these had been carried over: they have sentences of their own.
    let mut rest = wanted.clone();
    update.needs_restart.extend(change_processors(&mut update.spec, &mut rest));
    update.needs_restart.extend(change_memory(&mut update.spec, &mut rest, known));
    let is_ephemeral = |name: &str| known.ephemeral.contains(name);
    let mut compared = update.spec.clone();
    compared.volumes.retain(|volume| !is_ephemeral(&volume.name));
    compared.domain.devices.disks.retain(|disk| !is_ephemeral(&disk.name));
    remove_absent(&mut rest);
    let (compared, rest) = (serde_json::to_value(&compared), serde_json::to_value(&rest));
    let (compared, rest) = (compared.unwrap_or_default(), rest.unwrap_or_default());
    differences(&compared, &rest, "", &mut update.needs_restart);
    update
}

/// Takes away the interfaces that are to be absent, and their networks.
pub fn remove_absent(spec: &mut VirtualMachineInstanceSpec) {
    let interfaces = &mut spec.domain.devices.interfaces;
    let absent = interfaces.iter().filter(|interface| interface.state == ABSENT);
    let absent: Vec<String> = absent.map(|interface| interface.name.clone()).collect();
    interfaces.retain(|interface| interface.state != ABSENT);
    spec.networks.retain(|network| !absent.contains(&network.name));
}

fn change_disks(
    spec: &mut VirtualMachineInstanceSpec,
    wanted: &VirtualMachineInstanceSpec,
    known: &Running<'_>,
) {
    let wanted_disk = |name: &str| wanted.domain.devices.disks.iter().find(|disk| disk.name == name);
    let wanted_volume = |name: &str| wanted.volumes.iter().find(|volume| volume.name == name);
    let disks = spec.domain.devices.disks.clone();
    let running_disk = |name: &str| disks.iter().find(|disk| disk.name == name);

    // What goes.
    let goes = |volume: &Volume| {
        let name = volume.name.as_str();
        let (before, after) = (running_disk(name), wanted_disk(name));
        match (before, after, wanted_volume(name)) {
            _ if known.ephemeral.contains(name) => false,
            (Some(disk), None, None) => volume.is_hotpluggable() && is_pluggable(disk),
            (Some(drive), Some(same), None) => is_drive(drive) && drive == same && is_disc(volume),
            _ => false,
        }
    };
    let gone: Vec<Volume> = spec.volumes.iter().filter(|volume| goes(volume)).cloned().collect();
    spec.volumes.retain(|volume| !gone.contains(volume));
    let is_gone = |disk: &Disk| !is_drive(disk) && gone.iter().any(|volume| volume.name == disk.name);
    spec.domain.devices.disks.retain(|disk| !is_gone(disk));

    // What is another one under the same name.
    for volume in &mut spec.volumes {
        let (Some(other), Some(disk)) = (wanted_volume(&volume.name), running_disk(&volume.name)) else {
            continue;
        };
        let is_same_disk = wanted_disk(&volume.name) == Some(disk);
        let is_other_disc = is_drive(disk) && is_disc(volume) && is_disc(other);
        let is_other_disk = is_pluggable(disk) && volume.is_hotpluggable() && other.is_hotpluggable();
        if is_same_disk && (is_other_disc || is_other_disk) {
            *volume = other.clone();
        }
    }

    // What comes.
    for volume in &wanted.volumes {
        if spec.volumes.iter().any(|there| there.name == volume.name) {
            continue;
        }
        let Some(disk) = wanted_disk(&volume.name) else { continue };
        match running_disk(&volume.name).filter(|there| spec.domain.devices.disks.contains(there)) {
            Some(drive) if is_drive(drive) && drive == disk && is_disc(volume) => {
                spec.volumes.push(volume.clone());
            }
            None if volume.is_hotpluggable() && is_pluggable(disk) => {
                spec.volumes.push(volume.clone());
                spec.domain.devices.disks.push(disk.clone());
            }
            Some(_) | None => {}
        }
    }
}

/// A disk that a guest can be given, and can be asked to give back.
fn is_pluggable(disk: &Disk) -> bool {
    !is_drive(disk) && ["scsi", "virtio"].contains(&disk.bus()) && disk.boot_order.is_none()
}

fn is_drive(disk: &Disk) -> bool {
    disk.cdrom.is_some()
}

/// A seed is written when its machine begins.
fn is_disc(volume: &Volume) -> bool {
    volume.persistent_volume_claim.is_some()
}

fn change_interfaces(spec: &mut VirtualMachineInstanceSpec, wanted: &VirtualMachineInstanceSpec) {
    for interface in &wanted.domain.devices.interfaces {
        let there = spec.domain.devices.interfaces.iter().any(|there| there.name == interface.name);
        let network = wanted.networks.iter().find(|network| network.name == interface.name);
        if !can_come_and_go(interface) {
            continue;
        }
        match (there, interface.state == ABSENT, network) {
            (true, true, _) => {
                spec.domain.devices.interfaces.retain(|there| there.name != interface.name);
                spec.networks.retain(|network| network.name != interface.name);
            }
            (false, false, Some(network)) => {
                spec.domain.devices.interfaces.push(interface.clone());
                spec.networks.push(network.clone());
            }
            (true, false, _) | (false, true, _) | (false, false, None) => {}
        }
    }
}

fn can_come_and_go(interface: &Interface) -> bool {
    ["", "virtio"].contains(&interface.model.as_str()) && interface.boot_order.is_none()
}

fn change_processors(
    spec: &mut VirtualMachineInstanceSpec,
    wanted: &mut VirtualMachineInstanceSpec,
) -> Option<String> {
    let (Some(cpu), Some(asked)) = (&mut spec.domain.cpu, &mut wanted.domain.cpu) else { return None };
    let (before, after) = (cpu.sockets.max(1), asked.sockets.max(1));
    // Another maximum is for the next start: it is told as the field it is.
    let refused = match after {
        _ if after == before => return None,
        _ if after < before => "Reduction of CPU socket count requires a restart".to_owned(),
        _ if after > cpu.max_sockets.max(before) => {
            "CPU sockets updated in template spec to a value higher than what's available".to_owned()
        }
        _ => {
            cpu.sockets = asked.sockets;
            return None;
        }
    };
    asked.sockets = cpu.sockets;
    Some(refused)
}

fn change_memory(
    spec: &mut VirtualMachineInstanceSpec,
    wanted: &mut VirtualMachineInstanceSpec,
    known: &Running<'_>,
) -> Option<String> {
    let (Some(memory), Some(asked)) = (&mut spec.domain.memory, &mut wanted.domain.memory) else {
        return None;
    };
    let bytes = |amount: &Option<quantity::Quantity>| quantity::value(&amount.as_ref()?.0);
    let (before, after) = (bytes(&memory.guest)?, bytes(&asked.guest)?);
    let most = bytes(&memory.max_guest).unwrap_or(before);
    let least = known.memory_at_boot.unwrap_or(before);
    let refused = match after {
        _ if after == before => {
            // Written another way.
            asked.guest.clone_from(&memory.guest);
            return None;
        }
        _ if after > most => "Memory updated in template spec to a value higher than what's available",
        _ if after < least => {
            "Memory updated in template spec to a value lower than what the VM started with"
        }
        _ => {
            memory.guest.clone_from(&asked.guest);
            return None;
        }
    };
    asked.guest.clone_from(&memory.guest);
    Some(refused.to_owned())
}

/// The fields in which two documents differ. What has a name is known by it, wherever it stands in its list.
fn differences(one: &Value, other: &Value, path: &str, found: &mut Vec<String>) {
    let below = |field: &str| if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") };
    match (one, other) {
        _ if one == other || (says_nothing(one) && says_nothing(other)) => {}
        (Value::Object(left), Value::Object(right)) => {
            let fields: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            for field in fields {
                let (left, right) = (left.get(field), right.get(field));
                differences(
                    left.unwrap_or(&Value::Null),
                    right.unwrap_or(&Value::Null),
                    &below(field),
                    found,
                );
            }
        }
        (Value::Array(left), Value::Array(right)) if have_names(left) && have_names(right) => {
            let names: BTreeSet<&str> = left.iter().chain(right).filter_map(name_of).collect();
            for name in names {
                let of = |list: &[Value]| list.iter().find(|one| name_of(one) == Some(name)).cloned();
                let at = format!("{path}[{name}]");
                match (of(left), of(right)) {
                    (Some(left), Some(right)) => differences(&left, &right, &at, found),
                    _ => found.push(at),
                }
            }
        }
        (Value::Null, Value::Array(right)) if have_names(right) => {
            differences(&Value::Array(Vec::new()), other, path, found);
        }
        (Value::Array(left), Value::Null) if have_names(left) => {
            differences(one, &Value::Array(Vec::new()), path, found);
        }
        _ => found.push(path.to_owned()),
    }
}

fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        // Some fields ask for something by being there.
        Value::Object(_) | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn have_names(list: &[Value]) -> bool {
    list.iter().all(|one| name_of(one).is_some())
}

fn name_of(value: &Value) -> Option<&str> {
    value["name"].as_str()
}

#[cfg(test)]
mod tests;
