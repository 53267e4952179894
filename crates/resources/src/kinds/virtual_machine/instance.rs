//! The instance a VirtualMachine is run as: its template, and where it came from.

use std::collections::BTreeMap;

use k8s_openapi::{
    Resource,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use serde_json::Value;

use super::super::virtual_machine_instance::{
    CONTROLLER_FINALIZER, FOREGROUND_FINALIZER, GENERATION_ANNOTATION, VirtualMachineInstance,
    devices::{Bridge, Interface},
    live_update,
    network::{Network, PodNetwork},
    spec::START_PAUSED,
};
use super::{MAC_ADDRESS_ANNOTATION, VirtualMachine};
use crate::mac_address;

/// The name of the interface and the network of a machine that names none.
const DEFAULT_NETWORK: &str = "default";

/// The instance to create for `vm`; `None` without a template.
///
/// It has the machine's name, and is its: when the machine goes, so does the instance. It
/// stays until its node has let go of it and the machine's controller has noted how it ended. `random` is drawn from only
/// where an interface has no hardware address of its own yet.
pub fn instance_of(vm: &VirtualMachine, random: &mut dyn FnMut(&mut [u8])) -> Option<VirtualMachineInstance> {
    let mut instance = instance_with_absent(vm, random)?;
    live_update::remove_absent(&mut instance.spec);
    Some(instance)
}

/// The same with the interfaces that are to be taken away from a running one.
pub fn instance_with_absent(
    vm: &VirtualMachine,
    random: &mut dyn FnMut(&mut [u8]),
) -> Option<VirtualMachineInstance> {
    let template = vm.spec.template.as_ref()?;
    let mut annotations = template.metadata.annotations.clone().unwrap_or_default();
    let generation = vm.metadata.generation.unwrap_or_default();
    annotations.insert(GENERATION_ANNOTATION.into(), generation.to_string());
    let owner = OwnerReference {
        api_version: VirtualMachine::API_VERSION.into(),
        kind: VirtualMachine::KIND.into(),
        name: vm.metadata.name.clone().unwrap_or_default(),
        uid: vm.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    let mut instance = VirtualMachineInstance {
        metadata: ObjectMeta {
            name: vm.metadata.name.clone(),
            namespace: vm.metadata.namespace.clone(),
            labels: template.metadata.labels.clone(),
            annotations: Some(annotations),
            owner_references: Some(vec![owner]),
            finalizers: Some(vec![CONTROLLER_FINALIZER.into(), FOREGROUND_FINALIZER.into()]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        ..VirtualMachineInstance::default()
    };
    let spec = &mut instance.spec;
    if vm.status.state_change_requests.first().is_some_and(|request| request.starts_paused()) {
        spec.start_strategy = Some(START_PAUSED.into());
    }
    let devices = &mut spec.domain.devices;
    if devices.interfaces.is_empty()
        && spec.networks.is_empty()
        && devices.autoattach_pod_interface != Some(false)
    {
        devices.interfaces.push(Interface {
            name: DEFAULT_NETWORK.into(),
            bridge: Some(Bridge {}),
            ..Interface::default()
        });
        spec.networks.push(Network {
            name: DEFAULT_NETWORK.into(),
            pod: Some(PodNetwork::default()),
            ..Network::default()
        });
    }
    let noted = noted_addresses(vm);
    for interface in devices.interfaces.iter_mut().filter(|interface| interface.mac_address.is_empty()) {
        interface.mac_address = noted.get(&interface.name).cloned().unwrap_or_else(|| {
            let mut bytes = [0; 6];
            random(&mut bytes);
            mac_address::locally_administered(bytes)
        });
    }
    Some(instance)
}

/// The hardware addresses its last instance had, by interface.
pub fn noted_addresses(vm: &VirtualMachine) -> BTreeMap<String, String> {
    let noted: Value = serde_json::from_str(vm.annotation(MAC_ADDRESS_ANNOTATION)).unwrap_or_default();
    let entries = noted.as_object().into_iter().flatten();
    entries.filter_map(|(name, mac)| Some((name.clone(), mac_address::normalised(mac.as_str()?)?))).collect()
}

/// What [`MAC_ADDRESS_ANNOTATION`] should say while `instance` runs: without it, an address
/// that was drawn for the instance would be another one at the next start.
pub fn addresses_to_note(instance: &VirtualMachineInstance) -> String {
    let interfaces = &instance.spec.domain.devices.interfaces;
    let addresses: BTreeMap<&str, &str> = interfaces
        .iter()
        .filter(|interface| !interface.mac_address.is_empty())
        .map(|interface| (interface.name.as_str(), interface.mac_address.as_str()))
        .collect();
    serde_json::to_string(&addresses).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::virtual_machine::status::StateChangeRequest;

    fn machine() -> VirtualMachine {
        serde_json::from_value(json!({
            "metadata": {"name": "vm", "namespace": "default", "uid": "u-1", "generation": 3},
            "spec": {"runStrategy": "Always", "template": {
                "metadata": {"labels": {"harvesterhci.io/vmName": "vm"}, "annotations": {"a": "b"}},
                "spec": {"domain": {"memory": {"guest": "64Mi"}, "devices": {}}}}},
        }))
        .unwrap()
    }

    fn no_chance(_: &mut [u8]) {
        panic!("nothing was to be drawn");
    }

    fn sevens(bytes: &mut [u8]) {
        bytes.fill(7);
    }

    #[test]
    fn an_instance_is_its_machines_and_says_of_which_generation() {
        let instance = instance_of(&machine(), &mut sevens).unwrap();
        let metadata = &instance.metadata;
        assert_eq!(metadata.name.as_deref(), Some("vm"));
        assert_eq!(metadata.labels.as_ref().unwrap()["harvesterhci.io/vmName"], "vm");
        assert_eq!(metadata.annotations.as_ref().unwrap()[GENERATION_ANNOTATION], "3");
        let owner = &metadata.owner_references.as_ref().unwrap()[0];
        assert_eq!((owner.uid.as_str(), owner.controller), ("u-1", Some(true)));
        assert_eq!(metadata.finalizers.as_ref().unwrap(), &[CONTROLLER_FINALIZER, FOREGROUND_FINALIZER]);
    }

    #[test]
    fn a_machine_without_networks_is_on_the_default_one_unless_it_declines() {
        let mut vm = machine();
        let instance = instance_of(&vm, &mut sevens).unwrap();
        assert_eq!(instance.spec.networks[0].name, "default");
        assert_eq!(instance.spec.domain.devices.interfaces[0].mac_address, "06:07:07:07:07:07");
        let devices = &mut vm.spec.template.as_mut().unwrap().spec.domain.devices;
        devices.autoattach_pod_interface = Some(false);
        assert!(instance_of(&vm, &mut no_chance).unwrap().spec.networks.is_empty());
    }

    #[test]
    fn an_address_that_was_noted_is_used_again() {
        let mut vm = machine();
        let noted = addresses_to_note(&instance_of(&vm, &mut sevens).unwrap());
        assert_eq!(noted, r#"{"default":"06:07:07:07:07:07"}"#);
        vm.metadata.annotations = Some([(MAC_ADDRESS_ANNOTATION.into(), noted)].into());
        let again = instance_of(&vm, &mut no_chance).unwrap();
        assert_eq!(again.spec.domain.devices.interfaces[0].mac_address, "06:07:07:07:07:07");
    }

    #[test]
    fn a_paused_start_is_for_this_instance_only() {
        let mut vm = machine();
        vm.status.state_change_requests = vec![StateChangeRequest::start(true)];
        assert!(instance_of(&vm, &mut sevens).unwrap().spec.starts_paused());
        vm.status.state_change_requests.clear();
        assert!(!instance_of(&vm, &mut sevens).unwrap().spec.starts_paused());
    }
}
