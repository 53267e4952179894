//! network.harvesterhci.io/v1alpha1 VirtualMachineNetworkConfig: the interfaces of one
//! machine that want an address, and the addresses they have.
//!
//! It lives as long as its machine, not its instance: that is why an address stays across
//! restarts.

use std::net::Ipv4Addr;

use serde_json::Value;

use super::{age_column, condition_status, harvester_condition::HarvesterCondition, name_column};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind},
    mac_address,
    wire::{root_type, wire_type},
};

/// Keeps a config until its addresses are back in the pool.
pub const ADDRESSES_FINALIZER: &str = "sheaf.io/addresses";
/// The state of an interface that has its address.
pub const ALLOCATED: &str = "Allocated";
/// The state of an interface that waits for one.
pub const PENDING: &str = "Pending";
/// The state of an interface that is gone and whose address is about to go back.
pub const STALE: &str = "Stale";

root_type! {
    /// The addresses of one machine.
    VirtualMachineNetworkConfig = "io.harvesterhci.network.v1alpha1.VirtualMachineNetworkConfig",
    "network.harvesterhci.io" / "v1alpha1" "virtualmachinenetworkconfigs" NamespaceResourceScope {
        /// The interfaces that want an address.
        spec: VirtualMachineNetworkConfigSpec,
        /// The addresses they have.
        status: VirtualMachineNetworkConfigStatus,
    }
}

wire_type! {
    /// The interfaces that want an address.
    VirtualMachineNetworkConfigSpec = "io.harvesterhci.network.v1alpha1.VirtualMachineNetworkConfigSpec" {
        /// The machine, in the same namespace.
        vm_name: String,
        /// Its interfaces.
        network_configs: Vec<NetworkConfig>,
        /// True keeps things as they are.
        paused: Option<bool>,
    }
}

wire_type! {
    /// An interface that wants an address.
    NetworkConfig = "io.harvesterhci.network.v1alpha1.NetworkConfig" {
        /// `namespace/name` of the network it is on.
        network_name: String,
        /// Its hardware address.
        mac_address: String,
        /// The address it must have; any when left out.
        ip_address: Option<String>,
    }
}

wire_type! {
    /// The addresses they have.
    VirtualMachineNetworkConfigStatus = "io.harvesterhci.network.v1alpha1.VirtualMachineNetworkConfigStatus" {
        /// One per interface.
        network_configs: Vec<NetworkConfigStatus>,
        /// Allocated, Disabled and InSynced.
        conditions: Vec<HarvesterCondition>,
    }
}

wire_type! {
    /// The address an interface has.
    NetworkConfigStatus = "io.harvesterhci.network.v1alpha1.NetworkConfigStatus" {
        /// The address.
        #[serde(rename = "allocatedIPAddress")]
        allocated_ip_address: String,
        /// The interface's hardware address.
        mac_address: String,
        /// `namespace/name` of the network it is on.
        network_name: String,
        /// Allocated, Pending or Stale.
        state: String,
    }
}

pub fn kind() -> Kind {
    Kind::of_type::<VirtualMachineNetworkConfig>("virtualmachinenetworkconfigs")
        .short(&["vmnetcfg", "vmnetcfgs"])
        .columns(vec![
            name_column(),
            Column::computed("VMName", |config, _| config["spec"]["vmName"].clone()),
            Column::computed("Allocated", |config, _| condition_status(config, "Allocated")),
            age_column(),
        ])
        .behaving(Behaviour { validate, generation: true, ..Behaviour::PLAIN })
}

fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let path = FieldPath::new("spec");
    let spec: VirtualMachineNetworkConfigSpec = match serde_json::from_value(new["spec"].clone()) {
        Ok(spec) => spec,
        Err(why) => return vec![FieldError::invalid(&path, "<object>", why.to_string())],
    };
    let mut errors = Vec::new();
    if spec.vm_name.is_empty() {
        errors.push(FieldError::required(&path.child("vmName"), ""));
    }
    if old.is_some_and(|old| old["spec"]["vmName"] != new["spec"]["vmName"]) {
        let at = path.child("vmName");
        errors.push(FieldError::invalid(&at, spec.vm_name.as_str(), "field is immutable"));
    }
    for (n, config) in spec.network_configs.iter().enumerate() {
        let at = path.child("networkConfigs").index(n);
        if config.network_name.is_empty() {
            errors.push(FieldError::required(&at.child("networkName"), ""));
        }
        if mac_address::normalised(&config.mac_address).is_none() {
            let field = at.child("macAddress");
            errors.push(FieldError::invalid(&field, config.mac_address.as_str(), "is not a MAC address"));
        }
        if let Some(address) =
            config.ip_address.as_deref().filter(|address| address.parse::<Ipv4Addr>().is_err())
        {
            errors.push(FieldError::invalid(&at.child("ipAddress"), address, "is not an IPv4 address"));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_interface_says_who_it_is_and_where() {
        let fine = json!({"spec": {"vmName": "vm", "networkConfigs": [
            {"networkName": "default/n", "macAddress": "02:00:00:00:00:01", "ipAddress": "10.0.0.5"}]}});
        assert_eq!(validate(&fine, None), []);
        let wrong = json!({"spec": {"networkConfigs": [{"macAddress": "x", "ipAddress": "y"}]}});
        let fields: Vec<String> = validate(&wrong, None).into_iter().map(|error| error.field).collect();
        assert_eq!(
            fields,
            [
                "spec.vmName",
                "spec.networkConfigs[0].networkName",
                "spec.networkConfigs[0].macAddress",
                "spec.networkConfigs[0].ipAddress"
            ]
        );
        let mut other = fine.clone();
        other["spec"]["vmName"] = json!("other");
        assert_eq!(validate(&other, Some(&fine)).len(), 1);
    }
}
