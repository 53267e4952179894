//! Another machine that is as one was: what it takes over, and what must be its own.
//!
//! Its disks, its hardware addresses, its ids and its Secrets are its own; notes about the machine it is a copy of are
//! left out. What `clone` makes and what a restore to a new machine makes is the same but for where the disks come from.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec, TypedLocalObjectReference},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde_json::Value;
use sheaf_resources::{
    kinds::{
        persistent_volume_claim::{IMAGE_ANNOTATION, requested_by},
        virtual_machine::{
            EJECTED_CLAIMS_ANNOTATION, MAC_ADDRESS_ANNOTATION, NAME_LABEL, REMOVED_CLAIMS_ANNOTATION,
            SECRETS_TO_COPY_ANNOTATION, VirtualMachine, VirtualMachineSpec, claim_templates,
            noted_claims::UIDS_ANNOTATION,
        },
        virtual_machine_clone::MADE_BY_ANNOTATION,
        virtual_machine_instance::spec::VirtualMachineInstanceSpec,
        virtual_machine_restore::{LAST_RESTORE_ANNOTATION, NAME_ANNOTATION},
    },
    mac_address,
    names::short_mark,
    quantity,
};

/// What is said of one machine alone.
const OF_ONE_MACHINE: [&str; 10] = [
    claim_templates::ANNOTATION,
    EJECTED_CLAIMS_ANNOTATION,
    SECRETS_TO_COPY_ANNOTATION,
    UIDS_ANNOTATION,
    MAC_ADDRESS_ANNOTATION,
    REMOVED_CLAIMS_ANNOTATION,
    NAME_ANNOTATION,
    LAST_RESTORE_ANNOTATION,
    MADE_BY_ANNOTATION,
    "kubectl.kubernetes.io/last-applied-configuration",
];
/// On a template: which keys are in which Secret, a JSON object.
pub const DYNAMIC_KEYS_ANNOTATION: &str = "harvesterhci.io/dynamic-ssh-key-names";

/// A machine that is copied, as it is or was.
#[derive(Clone, Copy, Debug)]
pub struct Original<'a> {
    pub metadata: &'a ObjectMeta,
    pub spec: &'a VirtualMachineSpec,
}

/// The machine called `name` that is otherwise as the original. Its disks are `claims`, by the volume's name; one that is
/// not named stays what it was. `keep_ids` leaves it the hardware addresses and the ids.
pub fn copy_of(
    original: Original<'_>,
    (namespace, name): (&str, &str),
    claims: &BTreeMap<String, String>,
    keep_ids: bool,
) -> VirtualMachine {
    let mut annotations = original.metadata.annotations.clone().unwrap_or_default();
    forget_machine(&mut annotations);
    let mut vm = VirtualMachine {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            labels: original.metadata.labels.clone(),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        spec: with_claims(original.spec, claims),
        ..VirtualMachine::default()
    };
    let Some(template) = vm.spec.template.as_mut() else { return vm };
    if let Some(label) = template.metadata.labels.as_mut().and_then(|labels| labels.get_mut(NAME_LABEL)) {
        *label = name.to_owned();
    }
    let keys = template.metadata.annotations.as_mut().and_then(|all| all.get_mut(DYNAMIC_KEYS_ANNOTATION));
    if let Some(keys) = keys {
        *keys = with_renamed_keys(keys, &|secret| secret_name(name, secret));
    }
    let spec = &mut template.spec;
    spec.rename_secrets(&|secret| secret_name(name, secret));
    if !spec.hostname.is_empty() {
        spec.hostname = name.to_owned();
    }
    if !keep_ids {
        clear_ids(spec);
    }
    vm
}

/// Leaves out the notes that are about one machine alone.
pub fn forget_machine(annotations: &mut BTreeMap<String, String>) {
    annotations.retain(|key, _| !OF_ONE_MACHINE.contains(&key.as_str()));
}

/// Leaves out what no two machines have in common: hardware addresses and ids.
pub fn clear_ids(spec: &mut VirtualMachineInstanceSpec) {
    for interface in &mut spec.domain.devices.interfaces {
        interface.mac_address.clear();
    }
    if let Some(firmware) = &mut spec.domain.firmware {
        firmware.uuid.clear();
        firmware.serial.clear();
    }
}

/// The spec with other disks.
pub fn with_claims(spec: &VirtualMachineSpec, claims: &BTreeMap<String, String>) -> VirtualMachineSpec {
    let mut spec = spec.clone();
    let volumes = spec.template.iter_mut().flat_map(|template| &mut template.spec.volumes);
    for volume in volumes {
        if let (Some(source), Some(claim)) = (&mut volume.persistent_volume_claim, claims.get(&volume.name)) {
            source.claim_name.clone_from(claim);
        }
    }
    spec
}

/// The Secrets of the original, by their names, and what the copy of each is called.
pub fn secrets_of(spec: &VirtualMachineSpec, name: &str) -> BTreeMap<String, String> {
    let names = spec.template.iter().flat_map(|template| template.spec.secret_names());
    names.map(|secret| (secret.to_owned(), secret_name(name, secret))).collect()
}

/// What a Secret of the original is called for the machine `name`. The mark keeps it short however often a machine is copied
/// from a copy.
pub fn secret_name(name: &str, secret: &str) -> String {
    format!("vm-{name}-{}-ref", short_mark(secret, 8))
}

/// The note about keys in Secrets, with the names that `named` says.
pub fn with_renamed_keys(annotation: &str, named: &dyn Fn(&str) -> String) -> String {
    let Ok(Value::Object(keys)) = serde_json::from_str(annotation) else { return annotation.to_owned() };
    let renamed = keys.into_iter().map(|(secret, keys)| (named(&secret), keys));
    Value::Object(renamed.collect()).to_string()
}

/// What is different of a clone, beside what always is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Differences {
    /// Hardware addresses, by interface.
    pub mac_addresses: BTreeMap<String, String>,
    pub serial: Option<String>,
    /// Makes the names of its claims its own.
    pub mark: String,
}

/// The machine called `name` with copies of the disks of `vm`, whose claims are `claims`, by name. `Err` names a
/// claim that is not there.
///
/// The claims are in the machine's annotation, so they are made with it; each is a copy of the claim it stands for as that is
/// when it is made.
pub fn clone_of(
    vm: &VirtualMachine,
    name: &str,
    claims: &BTreeMap<String, PersistentVolumeClaim>,
    different: &Differences,
) -> Result<VirtualMachine, String> {
    let namespace = vm.metadata.namespace.as_deref().unwrap_or_default();
    let volumes = vm.spec.template.iter().flat_map(|template| &template.spec.volumes);
    let (mut named, mut templates) = (BTreeMap::new(), Vec::new());
    for volume in volumes {
        let Some(source) = &volume.persistent_volume_claim else { continue };
        let claim = claims.get(&source.claim_name).ok_or_else(|| source.claim_name.clone())?;
        let new = claim_name(name, &volume.name, &different.mark);
        templates.push(claim_of(&new, claim));
        named.insert(volume.name.clone(), new);
    }
    let original = Original { metadata: &vm.metadata, spec: &vm.spec };
    let mut copy = copy_of(original, (namespace, name), &named, false);
    let annotations = copy.metadata.annotations.get_or_insert_default();
    if !templates.is_empty() {
        let text = serde_json::to_string(&templates).unwrap_or_default();
        annotations.insert(claim_templates::ANNOTATION.into(), text);
    }
    if let Some(template) = &mut copy.spec.template {
        let domain = &mut template.spec.domain;
        for interface in &mut domain.devices.interfaces {
            if let Some(address) = different.mac_addresses.get(&interface.name) {
                interface.mac_address = mac_address::normalised(address).unwrap_or_default();
            }
        }
        if let Some(serial) = &different.serial {
            domain.firmware.get_or_insert_default().serial.clone_from(serial);
        }
    }
    Ok(copy)
}

/// No longer than a label may be: claims are disks, and disks have serial numbers.
fn claim_name(machine: &str, volume: &str, mark: &str) -> String {
    let whole = format!("{machine}-{volume}-{mark}");
    if whole.len() <= 63 { whole } else { format!("{}-{mark}", short_mark(&whole, 24)) }
}

fn claim_of(name: &str, claim: &PersistentVolumeClaim) -> PersistentVolumeClaim {
    let spec = claim.spec.clone().unwrap_or_default();
    let bytes = bytes_of(claim);
    let annotations = claim
        .metadata
        .annotations
        .as_ref()
        .and_then(|all| all.get(IMAGE_ANNOTATION))
        .map(|image| BTreeMap::from([(IMAGE_ANNOTATION.to_owned(), image.clone())]));
    PersistentVolumeClaim {
        metadata: ObjectMeta { name: Some(name.to_owned()), annotations, ..ObjectMeta::default() },
        spec: Some(PersistentVolumeClaimSpec {
            data_source: Some(TypedLocalObjectReference {
                api_group: None,
                kind: "PersistentVolumeClaim".into(),
                name: claim.metadata.name.clone().unwrap_or_default(),
            }),
            ..asking(&spec, bytes)
        }),
        status: None,
    }
}

/// How large the disk of a claim is, or is to be.
pub fn bytes_of(claim: &PersistentVolumeClaim) -> i64 {
    let requested = claim.spec.as_ref().and_then(requested_by).unwrap_or(0);
    let capacity = claim.status.as_ref().and_then(|status| status.capacity.as_ref()?.get("storage"));
    requested.max(capacity.and_then(|capacity| quantity::value(&capacity.0)).unwrap_or(0))
}

/// A spec that asks for the same sort of volume, of this size, and for none in particular.
pub fn asking(spec: &PersistentVolumeClaimSpec, bytes: i64) -> PersistentVolumeClaimSpec {
    let mut resources = spec.resources.clone().unwrap_or_default();
    resources.requests.get_or_insert_default().insert("storage".into(), quantity::bytes(bytes));
    PersistentVolumeClaimSpec {
        access_modes: spec.access_modes.clone(),
        volume_mode: spec.volume_mode.clone(),
        storage_class_name: spec.storage_class_name.clone(),
        resources: Some(resources),
        ..PersistentVolumeClaimSpec::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn machine() -> VirtualMachine {
        serde_json::from_value(json!({
            "metadata": {"name": "vm", "namespace": "default", "uid": "u", "labels": {"tier": "web"}, "annotations": {
                MAC_ADDRESS_ANNOTATION: "{}", claim_templates::ANNOTATION: "[]", REMOVED_CLAIMS_ANNOTATION: "vm-root",
                "harvesterhci.io/reservedMemory": "256Mi"}},
            "spec": {"runStrategy": "Always", "template": {
                "metadata": {"labels": {NAME_LABEL: "vm"},
                    "annotations": {DYNAMIC_KEYS_ANNOTATION: r#"{"keys":["a"]}"#}},
                "spec": {
                    "hostname": "vm",
                    "domain": {"firmware": {"uuid": "f", "serial": "s"}, "devices": {
                        "interfaces": [{"name": "nic", "macAddress": "02:00:00:00:00:01"}, {"name": "other",
                            "macAddress": "02:00:00:00:00:02"}]}},
                    "accessCredentials": [{"sshPublicKey": {"source": {"secret": {"secretName": "keys"}}}}],
                    "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "vm-root"}},
                        {"name": "seed", "cloudInitNoCloud": {"secretRef": {"name": "user"},
                            "networkDataSecretRef": {"name": "user"}}}],
                }}},
            "status": {"created": true},
        }))
        .unwrap()
    }

    fn claim(requested: &str, capacity: &str) -> BTreeMap<String, PersistentVolumeClaim> {
        let claim = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "vm-root", "uid": "c", "labels": {"a": "b"},
                "annotations": {IMAGE_ANNOTATION: "default/debian", "pv.kubernetes.io/bind-completed": "yes"}},
            "spec": {"accessModes": ["ReadWriteMany"], "volumeMode": "Block", "storageClassName": "disks",
                "volumeName": "pvc-c", "resources": {"requests": {"storage": requested}}},
            "status": {"phase": "Bound", "capacity": {"storage": capacity}},
        }))
        .unwrap();
        BTreeMap::from([("vm-root".to_owned(), claim)])
    }

    fn clone() -> VirtualMachine {
        let different = Differences { mark: "abcde".into(), ..Differences::default() };
        clone_of(&machine(), "copy", &claim("1Gi", "2Gi"), &different).unwrap()
    }

    #[test]
    fn a_copy_has_disks_addresses_ids_and_secrets_of_its_own() {
        let vm = clone();
        let template = vm.spec.template.as_ref().unwrap();
        let spec = &template.spec;
        assert_eq!(spec.claim_names().collect::<Vec<_>>(), ["copy-root-abcde"]);
        assert!(spec.domain.devices.interfaces.iter().all(|interface| interface.mac_address.is_empty()));
        let firmware = spec.domain.firmware.as_ref().unwrap();
        assert_eq!((firmware.uuid.as_str(), firmware.serial.as_str()), ("", ""));
        let (keys, user) = (secret_name("copy", "keys"), secret_name("copy", "user"));
        assert_eq!(spec.secret_names().into_iter().collect::<Vec<_>>(), {
            let mut both = [keys.as_str(), user.as_str()];
            both.sort();
            both
        });
        let renamed = template.metadata.annotations.as_ref().unwrap()[DYNAMIC_KEYS_ANNOTATION].clone();
        assert_eq!(renamed, format!(r#"{{"{keys}":["a"]}}"#));
        assert_eq!(secrets_of(&machine().spec, "copy").len(), 2);
        assert_eq!(
            (spec.hostname.as_str(), template.metadata.labels.as_ref().unwrap()[NAME_LABEL].as_str()),
            ("copy", "copy")
        );
    }

    #[test]
    fn what_is_said_of_one_machine_alone_is_not_said_of_its_copy() {
        let vm = clone();
        let annotations = vm.metadata.annotations.unwrap();
        let keys: Vec<&str> = annotations.keys().map(String::as_str).collect();
        assert_eq!(keys, ["harvesterhci.io/reservedMemory", claim_templates::ANNOTATION]);
        assert_eq!((vm.metadata.uid, vm.status.created), (None, false));
        assert_eq!(vm.metadata.labels.unwrap()["tier"], "web");
    }

    #[test]
    fn the_claims_of_a_clone_are_copies_as_large_as_what_they_copy() {
        let vm = clone();
        let templates = claim_templates::parse(vm.annotation(claim_templates::ANNOTATION)).unwrap();
        let spec = templates[0].spec.as_ref().unwrap();
        assert_eq!(requested_by(spec), Some(2 << 30), "it grew");
        assert_eq!(spec.data_source.as_ref().unwrap().name, "vm-root");
        assert_eq!((spec.volume_name.as_deref(), spec.storage_class_name.as_deref()), (None, Some("disks")));
        let annotations = templates[0].metadata.annotations.as_ref().unwrap();
        assert_eq!(annotations.keys().collect::<Vec<_>>(), [IMAGE_ANNOTATION]);
        assert_eq!(
            clone_of(&machine(), "copy", &BTreeMap::new(), &Differences::default()),
            Err("vm-root".into())
        );
    }

    #[test]
    fn a_clone_is_as_different_as_was_asked_for() {
        let different = Differences {
            mac_addresses: BTreeMap::from([("nic".into(), "02-00-00-00-00-0A".into())]),
            serial: Some("mine".into()),
            mark: "m".into(),
        };
        let vm = clone_of(&machine(), "copy", &claim("1Gi", "1Gi"), &different).unwrap();
        let domain = &vm.spec.template.as_ref().unwrap().spec.domain;
        let addresses: Vec<&str> =
            domain.devices.interfaces.iter().map(|interface| interface.mac_address.as_str()).collect();
        assert_eq!(addresses, ["02:00:00:00:00:0a", ""]);
        assert_eq!(domain.firmware.as_ref().unwrap().serial, "mine");
    }

    #[test]
    fn a_copy_that_stands_for_the_original_keeps_its_ids() {
        let vm = machine();
        let original = Original { metadata: &vm.metadata, spec: &vm.spec };
        let copy = copy_of(original, ("default", "copy"), &BTreeMap::new(), true);
        let domain = &copy.spec.template.as_ref().unwrap().spec.domain;
        assert_eq!(domain.firmware.as_ref().unwrap().uuid, "f");
        assert_eq!(domain.devices.interfaces[0].mac_address, "02:00:00:00:00:01");
    }

    #[test]
    fn names_stay_short_however_long_those_of_the_original_are() {
        let long = "x".repeat(63);
        assert!(claim_name(&long, "root", "abcde").len() <= 63);
        assert_eq!(secret_name("vm", &"y".repeat(253)).len(), "vm-vm-12345678-ref".len());
    }
}
