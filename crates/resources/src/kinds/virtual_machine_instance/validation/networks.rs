//! Interfaces and the networks behind them: matched by name, one binding and one source
//! each, one of them on the default network at most.

use std::collections::{BTreeMap, BTreeSet};

use super::super::{
    devices::INTERFACE_MODELS, devices::Interface, live_update::ABSENT, network::Network,
    spec::VirtualMachineInstanceSpec,
};
use crate::{
    field_error::{FieldError, FieldPath},
    mac_address,
};

pub(super) fn validate(spec: &VirtualMachineInstanceSpec, path: &FieldPath) -> Vec<FieldError> {
    let interfaces = path.child("domain").child("devices").child("interfaces");
    let networks = path.child("networks");
    let mut errors = Vec::new();
    let mut by_name: BTreeMap<&str, &Network> = BTreeMap::new();
    for (n, network) in spec.networks.iter().enumerate() {
        let at = networks.index(n);
        if by_name.insert(&network.name, network).is_some() {
            let why = format!(
                "Network with name \"{}\" already exists, every network must have a unique name",
                network.name
            );
            errors.push(FieldError::invalid(&at.child("name"), network.name.as_str(), why));
        }
        if !spec.domain.devices.interfaces.iter().any(|interface| interface.name == network.name) {
            errors.push(not_found(&at.child("name"), &network.name));
        }
        errors.extend(validate_source(network, &at));
    }
    if spec.networks.iter().filter(|network| network.pod.is_some()).count() > 1 {
        let why = format!("more than one interface is connected to a pod network in {interfaces}");
        errors.push(FieldError::forbidden(&interfaces, why));
    }
    let (mut seen, mut addresses) = (BTreeSet::new(), BTreeSet::new());
    for (n, interface) in spec.domain.devices.interfaces.iter().enumerate() {
        let at = interfaces.index(n);
        if !seen.insert(interface.name.as_str()) {
            let why = "Only one interface can be connected to one specific network";
            errors.push(FieldError::invalid(&at.child("name"), interface.name.as_str(), why));
        }
        match by_name.get(interface.name.as_str()) {
            None => errors.push(not_found(&at.child("name"), &interface.name)),
            Some(network) if interface.masquerade.is_some() && network.pod.is_none() => {
                let why = "Masquerade interface only implemented with pod network";
                errors.push(FieldError::invalid(&at.child("name"), interface.name.as_str(), why));
            }
            Some(_) => {}
        }
        errors.extend(validate_interface(interface, &at));
        if let Some(mac) = mac_address::normalised(&interface.mac_address)
            && !addresses.insert(mac)
        {
            let field = at.child("macAddress");
            errors.push(FieldError::duplicate(&field, interface.mac_address.as_str()));
        }
    }
    errors
}

fn not_found(at: &FieldPath, name: &str) -> FieldError {
    FieldError::invalid(at, name, format!("{at} '{name}' not found."))
}

fn validate_source(network: &Network, at: &FieldPath) -> Vec<FieldError> {
    match (&network.pod, &network.multus) {
        (None, None) => vec![FieldError::required(at, "should have a network type")],
        (Some(_), Some(_)) => vec![FieldError::required(at, "should have only one network type")],
        (Some(_), None) => Vec::new(),
        (None, Some(multus)) => {
            let field = at.child("multus").child("networkName");
            if multus.network_name.is_empty() {
                vec![FieldError::required(&field, "CNI delegating plugin must have a networkName")]
            } else if multus.definition("").is_none_or(|(_, name)| name.is_empty()) {
                let why = format!("invalid network name {}", multus.network_name);
                vec![FieldError::invalid(&field, multus.network_name.as_str(), why)]
            } else {
                Vec::new()
            }
        }
    }
}

fn validate_interface(interface: &Interface, at: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = interface.name.as_str();
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    if name.is_empty() || !name.bytes().all(plain) {
        let why = "Network interface name can only contain alphabetical characters, numbers, dashes (-) or underscores (_)";
        errors.push(FieldError::invalid(&at.child("name"), name, why));
    }
    if interface.bridge.is_some() && interface.masquerade.is_some() {
        errors.push(FieldError::invalid(at, name, "should have only one binding method"));
    }
    if !interface.model.is_empty() && !INTERFACE_MODELS.contains(&interface.model.as_str()) {
        let why =
            format!("interface {} uses model {} that is not supported.", at.child("name"), interface.model);
        errors.push(FieldError::invalid(&at.child("model"), interface.model.as_str(), why));
    }
    if !interface.state.is_empty() && interface.state != ABSENT {
        errors.push(FieldError::not_supported(&at.child("state"), interface.state.as_str(), [ABSENT]));
    }
    if !interface.mac_address.is_empty() {
        let field = at.child("macAddress");
        match mac_address::normalised(&interface.mac_address) {
            None => {
                let why = format!(
                    "interface {} has malformed MAC address ({}).",
                    at.child("name"),
                    interface.mac_address
                );
                errors.push(FieldError::invalid(&field, interface.mac_address.as_str(), why));
            }
            Some(mac) if !mac_address::is_unicast(&mac) => {
                let why = "is the address of a group, not of one interface";
                errors.push(FieldError::invalid(&field, interface.mac_address.as_str(), why));
            }
            Some(_) => {}
        }
    }
    errors
}
