//! Whether a machine makes sense: names that match, amounts that fit, choices that exist.
//!
//! The same checks serve a VirtualMachine's template and an instance; the path says which.
//! Sentences are the original's where it has one. What other objects say (whether a claim or
//! a network exists) is not asked here: a machine waits for what is missing.

mod credentials;
mod disks;
mod networks;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{
    devices::Disk,
    domain::Domain,
    spec::{EVICTION_STRATEGIES, START_PAUSED, VirtualMachineInstanceSpec},
};
use crate::{
    field_error::{FieldError, FieldPath},
    names, quantity,
};

/// Below this no firmware comes up.
const MIN_GUEST_MEMORY: i64 = 10 * quantity::MIB;
/// What QEMU's q35 can have.
const MAX_PROCESSORS: u64 = 288;
/// Architectures there are machines for.
pub const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];

/// All that is wrong with a machine, `path` being where its spec stands.
pub fn validate_spec(spec: &VirtualMachineInstanceSpec, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    errors.extend(validate_words(spec, path));
    errors.extend(validate_domain(&spec.domain, &path.child("domain")));
    errors.extend(disks::validate(spec, path));
    errors.extend(networks::validate(spec, path));
    errors.extend(validate_boot_orders(spec, path));
    errors.extend(credentials::validate(spec, path));
    errors
}

fn validate_words(spec: &VirtualMachineInstanceSpec, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if !spec.hostname.is_empty() {
        for why in names::dns_label_problems(&spec.hostname) {
            let why = format!("does not conform to the kubernetes DNS_LABEL rules : {why}");
            errors.push(FieldError::invalid(&path.child("hostname"), spec.hostname.as_str(), why));
        }
    }
    let choices = [
        ("evictionStrategy", spec.eviction_strategy.as_deref(), EVICTION_STRATEGIES.as_slice()),
        ("startStrategy", spec.start_strategy.as_deref(), &[START_PAUSED]),
        ("architecture", Some(spec.architecture.as_str()), &ARCHITECTURES),
    ];
    for (field, value, allowed) in choices {
        if let Some(value) = value.filter(|value| !value.is_empty() && !allowed.contains(value)) {
            errors.push(FieldError::not_supported(&path.child(field), value, allowed));
        }
    }
    if let Some(seconds) = spec.termination_grace_period_seconds.filter(|seconds| *seconds < 0) {
        let field = path.child("terminationGracePeriodSeconds");
        errors.push(FieldError::invalid(&field, seconds, "Termination grace period can't be negative"));
    }
    errors
}

fn validate_domain(domain: &Domain, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    errors.extend(validate_amounts(domain, path));
    errors.extend(validate_memory(domain, path));
    errors.extend(validate_firmware(domain, path));
    if let Some(cpu) = &domain.cpu {
        let at = path.child("cpu");
        if cpu.max_sockets != 0 && cpu.sockets > cpu.max_sockets {
            errors.push(FieldError::invalid(
                &at.child("sockets"),
                cpu.sockets,
                "Number of sockets in CPU topology is greater than the maximum sockets allowed",
            ));
        }
        if cpu.count() > MAX_PROCESSORS {
            let why = format!("must be at most {MAX_PROCESSORS} processors in all");
            errors.push(FieldError::invalid(&at, cpu.count(), why));
        }
        if !is_a_word(&cpu.model) {
            errors.push(FieldError::invalid(&at.child("model"), cpu.model.as_str(), "is not a CPU model"));
        }
    }
    let machine_type = domain.machine.as_ref().map_or("", |machine| &machine.machine_type);
    let plain =
        machine_type == "q35" || machine_type.starts_with("pc-q35-") || machine_type.starts_with("virt");
    let fine = machine_type.is_empty() || (plain && is_a_word(machine_type));
    if !fine {
        errors.push(FieldError::invalid(
            &path.child("machine").child("type"),
            machine_type,
            format!("is not supported: {machine_type} (allowed values: [q35* pc-q35* virt*])"),
        ));
    }
    for (n, input) in domain.devices.inputs.iter().enumerate() {
        let at = path.child("devices").child("inputs").index(n);
        if !["", "usb", "virtio"].contains(&input.bus.as_str()) {
            let why = "Input device can have only virtio or usb bus.";
            errors.push(FieldError::invalid(&at.child("bus"), input.bus.as_str(), why));
        }
        if input.input_type != "tablet" {
            let why = "Input device can have only tablet type.";
            errors.push(FieldError::invalid(&at.child("type"), input.input_type.as_str(), why));
        }
    }
    errors
}

/// It will stand in QEMU's command line: letters, digits, and what joins them.
fn is_a_word(text: &str) -> bool {
    text.len() <= 63 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.+".contains(&b))
}

fn validate_amounts(domain: &Domain, path: &FieldPath) -> Vec<FieldError> {
    let resources = path.child("resources");
    let mut errors = Vec::new();
    for (field, amounts) in [("requests", &domain.resources.requests), ("limits", &domain.resources.limits)] {
        for (name, amount) in amounts {
            let at = resources.child(field).child(name);
            match quantity::milli(&amount.0) {
                None => errors.push(FieldError::invalid(&at, amount.0.as_str(), "is not a quantity")),
                Some(found) if found < 0 => {
                    let why = "must be greater than or equal to 0.";
                    errors.push(FieldError::invalid(&at, amount.0.as_str(), why));
                }
                Some(_) => {}
            }
        }
    }
    for name in ["cpu", "memory"] {
        let asked = amount(&domain.resources.requests, name);
        let most = amount(&domain.resources.limits, name);
        if let (Some((asked, asked_text)), Some((most, most_text))) = (asked, most)
            && most > 0
            && asked > most
        {
            let limit = resources.child("limits").child(name);
            errors.push(FieldError::invalid(
                &resources.child("requests").child(name),
                asked_text,
                format!("is greater than {limit} '{most_text}'"),
            ));
        }
    }
    errors
}

fn amount<'a>(amounts: &'a BTreeMap<String, Quantity>, name: &str) -> Option<(i64, &'a str)> {
    let text = amounts.get(name)?.0.as_str();
    Some((quantity::milli(text)?, text))
}

fn validate_memory(domain: &Domain, path: &FieldPath) -> Vec<FieldError> {
    let guest = domain.memory.as_ref().and_then(|memory| memory.guest.as_ref());
    let limit = domain.resources.limits.get("memory");
    let request = domain.resources.requests.get("memory");
    let at = path.child("memory").child("guest");
    let Some(guest) = guest else {
        if limit.is_none() && request.is_none() {
            let why = "either memory.guest or resources.limits.memory must be set";
            return vec![FieldError::required(&at, why)];
        }
        return Vec::new();
    };
    let Some(size) = quantity::value(&guest.0) else {
        return vec![FieldError::invalid(&at, guest.0.as_str(), "is not a quantity")];
    };
    let mut errors = Vec::new();
    if size < MIN_GUEST_MEMORY {
        let why = "guest memory is under the minimum requirement (10 Mi)";
        errors.push(FieldError::invalid(&at, guest.0.as_str(), why));
    }
    if let Some(limit) = limit
        && quantity::value(&limit.0).is_some_and(|limit| limit > 0 && size > limit)
    {
        let why = format!(
            "must be equal to or less than the memory limit {} '{}'",
            path.child("resources").child("limits").child("memory"),
            limit.0
        );
        errors.push(FieldError::invalid(&at, guest.0.as_str(), why));
    }
    if let Some(most) = domain.memory.as_ref().and_then(|memory| memory.max_guest.as_ref()) {
        match quantity::value(&most.0) {
            None => {
                let at = path.child("memory").child("maxGuest");
                errors.push(FieldError::invalid(&at, most.0.as_str(), "is not a quantity"));
            }
            Some(most) if size > most => {
                let why = "Guest memory is greater than the configured maxGuest memory";
                errors.push(FieldError::invalid(&at, guest.0.as_str(), why));
            }
            Some(_) => {}
        }
    }
    errors
}

fn validate_firmware(domain: &Domain, path: &FieldPath) -> Vec<FieldError> {
    let at = path.child("firmware");
    let mut errors = Vec::new();
    let Some(firmware) = &domain.firmware else { return errors };
    if !firmware.uuid.is_empty() && !is_uuid(&firmware.uuid) {
        errors.push(FieldError::invalid(&at.child("uuid"), firmware.uuid.as_str(), "is not a UUID"));
    }
    // It is handed to QEMU among options that commas separate.
    if !firmware.serial.bytes().all(|b| b.is_ascii_graphic() && b != b',') || firmware.serial.len() > 256 {
        let why = "must be printable characters without spaces and commas";
        errors.push(FieldError::invalid(&at.child("serial"), firmware.serial.as_str(), why));
    }
    let bootloader = at.child("bootloader");
    if firmware.bootloader.as_ref().is_some_and(|one| one.bios.is_some() && one.efi.is_some()) {
        let why = "has both EFI and BIOS configured, but they are mutually exclusive.";
        errors.push(FieldError::forbidden(&bootloader, why));
    }
    if let Some(efi) = domain.efi()
        && efi.secure_boot != Some(false)
        && !domain.smm_is_on()
    {
        let why = "has EFI SecureBoot enabled. SecureBoot requires SMM, which is currently disabled.";
        errors.push(FieldError::forbidden(&bootloader.child("efi"), why));
    }
    errors
}

fn is_uuid(text: &str) -> bool {
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    lengths == [8, 4, 4, 4, 12] && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
}

/// Disks and interfaces stand in one line: no two at one place.
fn validate_boot_orders(spec: &VirtualMachineInstanceSpec, path: &FieldPath) -> Vec<FieldError> {
    let devices = path.child("domain").child("devices");
    let disks = spec.domain.devices.disks.iter().map(|disk: &Disk| disk.boot_order);
    let interfaces = spec.domain.devices.interfaces.iter().map(|interface| interface.boot_order);
    let disks = disks.enumerate().map(|(n, order)| (devices.child("disks").index(n), order));
    let interfaces = interfaces.enumerate().map(|(n, order)| (devices.child("interfaces").index(n), order));
    let mut taken = BTreeSet::new();
    let mut errors = Vec::new();
    for (at, order) in disks.chain(interfaces) {
        let at = at.child("bootOrder");
        match order {
            Some(0) => errors.push(FieldError::invalid(&at, 0, "must have a boot order > 0, if supplied")),
            Some(order) if !taken.insert(order) => {
                let why = format!("Boot order for {at} already set for a different device.");
                errors.push(FieldError::invalid(&at, order, why));
            }
            Some(_) | None => {}
        }
    }
    errors
}

#[cfg(test)]
mod tests;
