//! Who uses what: the hardware addresses, claims and networks of all machines.
//!
//! What is found free here may be taken by somebody else at the same moment. Where that would do harm, what
//! hands the thing out looks again: a volume is opened by one machine at a time, and an address is lent to one.

use std::sync::Arc;

use serde_json::Value;
use sheaf_resources::{
    kinds::{virtual_machine::MAC_ADDRESS_ANNOTATION, virtual_machine_instance::network::MultusNetwork},
    mac_address, object_meta,
};

use crate::cache::{Cache, following::Following};

pub const GROUP: &str = "kubevirt.io";
pub const MACHINES: &str = "virtualmachines";
pub const INSTANCES: &str = "virtualmachineinstances";

/// All machines, those that were made without a VirtualMachine too.
pub struct Machines {
    machines: Following<Uses>,
    instances: Following<Uses>,
}

/// What one machine uses that no other may use, or that must not be taken away from under it.
#[derive(Debug, Default, PartialEq)]
pub struct Uses {
    /// Each in its one form.
    pub addresses: Vec<String>,
    /// `namespace/name`.
    pub claims: Vec<String>,
    /// `namespace/name` of their definitions.
    pub networks: Vec<String>,
    /// It is on its way out, and with it all that it uses.
    pub going: bool,
}

impl Default for Machines {
    fn default() -> Self {
        Machines {
            machines: Following::new(GROUP, MACHINES, Uses::of_machine),
            instances: Following::new(GROUP, INSTANCES, Uses::of_instance),
        }
    }
}

impl Machines {
    /// The places of the machines of which `uses` holds, but for the one at `own`. An instance has the place of its
    /// machine and counts as the same.
    pub fn that(&self, cache: &Cache, own: &str, uses: impl Fn(&Uses) -> bool) -> Vec<Arc<str>> {
        let of = |following: &Following<Uses>| {
            following.ask(cache, |all| {
                let found = all.iter().filter(|(place, used)| &***place != own && uses(used));
                found.map(|(place, _)| place.clone()).collect::<Vec<_>>()
            })
        };
        let mut found = of(&self.machines);
        found.extend(of(&self.instances));
        found.sort();
        found.dedup();
        found
    }
}

impl Uses {
    pub fn of_machine(vm: &Value) -> Self {
        let mut uses = Uses::read(vm, &vm["spec"]["template"]["spec"]);
        let noted = vm["metadata"]["annotations"][MAC_ADDRESS_ANNOTATION].as_str().unwrap_or_default();
        let noted: Value = serde_json::from_str(noted).unwrap_or_default();
        let interfaces = vm["spec"]["template"]["spec"]["domain"]["devices"]["interfaces"].as_array();
        for interface in interfaces.into_iter().flatten() {
            // A note counts for an interface that is still there and says nothing itself.
            let name = interface["name"].as_str().unwrap_or_default();
            if interface["macAddress"].as_str().is_none_or(str::is_empty)
                && let Some(address) = noted[name].as_str().and_then(mac_address::normalised)
            {
                uses.addresses.push(address);
            }
        }
        uses
    }

    pub fn of_instance(vmi: &Value) -> Self {
        Uses::read(vmi, &vmi["spec"])
    }

    fn read(object: &Value, spec: &Value) -> Self {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let list = |value: &'_ Value| value.as_array().cloned().unwrap_or_default();
        let interfaces = list(&spec["domain"]["devices"]["interfaces"]);
        let addresses = interfaces.iter().filter_map(|interface| interface["macAddress"].as_str());
        let volumes = list(&spec["volumes"]);
        let claims =
            volumes.iter().filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str());
        let networks = list(&spec["networks"]);
        let networks = networks.iter().filter_map(|network| network["multus"]["networkName"].as_str());
        let networks = networks.filter_map(|name| {
            let multus = MultusNetwork { network_name: name.into(), ..MultusNetwork::default() };
            multus.definition(namespace).map(|(namespace, name)| format!("{namespace}/{name}"))
        });
        Uses {
            addresses: addresses.filter_map(mac_address::normalised).collect(),
            claims: claims.map(|name| format!("{namespace}/{name}")).collect(),
            networks: networks.collect(),
            going: object_meta::is_being_deleted(object),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_machine_uses_is_read_off_its_template_and_its_notes() {
        let vm = json!({
            "metadata": {"namespace": "a", "annotations": {
                MAC_ADDRESS_ANNOTATION: r#"{"noted":"02:00:00:00:00:02","gone":"02:00:00:00:00:03"}"#}},
            "spec": {"template": {"spec": {
                "domain": {"devices": {"interfaces": [
                    {"name": "own", "macAddress": "02-00-00-00-00-0A"}, {"name": "noted"}]}},
                "networks": [{"name": "own", "multus": {"networkName": "vlan"}},
                    {"name": "noted", "multus": {"networkName": "b/other"}}, {"name": "pod", "pod": {}}],
                "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}],
            }}},
        });
        let uses = Uses::of_machine(&vm);
        assert_eq!(uses.addresses, ["02:00:00:00:00:0a", "02:00:00:00:00:02"]);
        assert_eq!(
            (uses.claims, uses.networks),
            (vec!["a/c".into()], vec!["a/vlan".into(), "b/other".into()])
        );
        assert!(!uses.going);
    }
}
