//! Disks and the volumes behind them: matched by name, one source each.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};

use super::super::{
    devices::{CACHE_MODES, CDROM_BUSES, DISK_BUSES, Disk},
    spec::VirtualMachineInstanceSpec,
    volume::{CloudInitSource, SecretName, Volume},
};
use crate::{
    field_error::{FieldError, FieldPath},
    names,
};

/// Inline data beyond this belongs into a Secret.
const MAX_INLINE: usize = 2048;

pub(super) fn validate(spec: &VirtualMachineInstanceSpec, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let volumes = path.child("volumes");
    let disks = path.child("domain").child("devices").child("disks");
    let mut seen = BTreeMap::new();
    for (n, volume) in spec.volumes.iter().enumerate() {
        let at = volumes.index(n);
        for why in names::dns_label_problems(&volume.name) {
            errors.push(FieldError::invalid(&at.child("name"), volume.name.as_str(), why));
        }
        if let Some(other) = seen.insert(volume.name.as_str(), n) {
            let why = format!("{at} and {} must not have the same Name.", volumes.index(other));
            errors.push(FieldError::invalid(&at.child("name"), volume.name.as_str(), why));
        }
        if !spec.domain.devices.disks.iter().any(|disk| disk.name == volume.name) {
            errors.push(not_found(&at.child("name"), &volume.name));
        }
        errors.extend(validate_volume(volume, &at));
    }
    let mut taken = BTreeMap::new();
    for (n, disk) in spec.domain.devices.disks.iter().enumerate() {
        let at = disks.index(n);
        if let Some(other) = taken.insert(disk.name.as_str(), n) {
            let why = format!("{at} and {} must not have the same Name.", disks.index(other));
            errors.push(FieldError::invalid(&at.child("name"), disk.name.as_str(), why));
        }
        // A drive may be empty.
        if !seen.contains_key(disk.name.as_str()) && disk.cdrom.is_none() {
            errors.push(not_found(&at.child("name"), &disk.name));
        }
        errors.extend(validate_disk(disk, &at));
    }
    errors
}

fn not_found(at: &FieldPath, name: &str) -> FieldError {
    FieldError::invalid(at, name, format!("{at} '{name}' not found."))
}

fn validate_disk(disk: &Disk, at: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if disk.disk.is_some() && disk.cdrom.is_some() {
        let why = "can have either disk or cdrom configured, not both";
        errors.push(FieldError::invalid(at, disk.name.as_str(), why));
    }
    if let Some(target) = disk.disk.as_ref().filter(|target| !target.bus.is_empty())
        && !DISK_BUSES.contains(&target.bus.as_str())
    {
        let bus = at.child("disk").child("bus");
        errors.push(FieldError::not_supported(&bus, target.bus.as_str(), DISK_BUSES));
    }
    if let Some(target) = &disk.cdrom {
        let at = at.child("cdrom");
        if !target.bus.is_empty() && !CDROM_BUSES.contains(&target.bus.as_str()) {
            errors.push(FieldError::not_supported(&at.child("bus"), target.bus.as_str(), CDROM_BUSES));
        }
        if target.readonly == Some(false) {
            errors.push(FieldError::invalid(&at.child("readonly"), false, "a CD-ROM can only be read"));
        }
    }
    if !disk.cache.is_empty() && !CACHE_MODES.contains(&disk.cache.as_str()) {
        errors.push(FieldError::not_supported(&at.child("cache"), disk.cache.as_str(), CACHE_MODES));
    }
    if disk.serial.len() > 256
        || !disk.serial.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.+-".contains(&b))
    {
        let why = "must be made up of the following characters [A-Za-z0-9_.+-], if specified";
        errors.push(FieldError::invalid(&at.child("serial"), disk.serial.as_str(), why));
    }
    errors
}

fn validate_volume(volume: &Volume, at: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let sources = [
        volume.persistent_volume_claim.is_some(),
        volume.cloud_init_no_cloud.is_some(),
        volume.cloud_init_config_drive.is_some(),
    ];
    // A source that is not served yet is refused elsewhere, by its own name.
    if sources.iter().filter(|there| **there).count() > 1 {
        errors.push(FieldError::invalid(at, volume.name.as_str(), "must have exactly one source type set"));
    }
    if sources == [false; 3] && *volume == (Volume { name: volume.name.clone(), ..Volume::default() }) {
        errors.push(FieldError::required(at, "must have exactly one source type set"));
    }
    if let Some(claim) = &volume.persistent_volume_claim {
        let at = at.child("persistentVolumeClaim").child("claimName");
        if claim.claim_name.is_empty() {
            errors.push(FieldError::required(&at, ""));
        } else {
            let problems = names::dns_subdomain_problems(&claim.claim_name).into_iter();
            errors.extend(problems.map(|why| FieldError::invalid(&at, claim.claim_name.as_str(), why)));
        }
    }
    for (field, source) in [
        ("cloudInitNoCloud", &volume.cloud_init_no_cloud),
        ("cloudInitConfigDrive", &volume.cloud_init_config_drive),
    ] {
        if let Some(source) = source {
            errors.extend(validate_seed(source, &at.child(field)));
        }
    }
    errors
}

fn validate_seed(seed: &CloudInitSource, at: &FieldPath) -> Vec<FieldError> {
    let user = validate_data("user", &seed.user_data, &seed.user_data_base64, &seed.secret_ref, at);
    let network = validate_data(
        "network",
        &seed.network_data,
        &seed.network_data_base64,
        &seed.network_data_secret_ref,
        at,
    );
    let (mut errors, network_errors) = (user.1, network.1);
    errors.extend(network_errors);
    if user.0 == 0 && network.0 == 0 {
        let why = "must have at least one userdatasource or one networkdatasource set.";
        errors.push(FieldError::required(at, why));
    }
    errors
}

/// How many places the data comes from, and what is wrong with them.
fn validate_data(
    what: &str,
    plain: &str,
    encoded: &str,
    secret: &Option<SecretName>,
    at: &FieldPath,
) -> (usize, Vec<FieldError>) {
    let mut errors = Vec::new();
    let places = [!plain.is_empty(), !encoded.is_empty(), secret.is_some()];
    let count = places.iter().filter(|there| **there).count();
    if count > 1 {
        let why = match what {
            "user" => "must have only one userdatasource set.",
            _ => "must have only one networkdata source set.",
        };
        errors.push(FieldError::forbidden(at, why));
    }
    let field = at.child(&format!("{what}DataBase64"));
    let mut size = plain.len();
    match STANDARD.decode(encoded) {
        Ok(bytes) => size = size.max(bytes.len()),
        Err(_) => errors.push(FieldError::invalid(&field, "<bytes>", "is not a valid base64 value.")),
    }
    if size > MAX_INLINE {
        let (data, reference) = match what {
            "user" => ("userdata", "UserDataSecretRef"),
            _ => ("networkdata", "NetworkDataSecretRef"),
        };
        let why = format!("{data} exceeds {MAX_INLINE} byte limit. Should use {reference} for larger data.");
        errors.push(FieldError::invalid(at, "<data>", why));
    }
    if secret.as_ref().is_some_and(|secret| secret.name.is_empty()) {
        let field = if what == "user" { "secretRef" } else { "networkDataSecretRef" };
        errors.push(FieldError::required(&at.child(field).child("name"), ""));
    }
    (count, errors)
}
