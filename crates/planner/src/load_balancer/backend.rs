//! Decides which addresses a load balancer forwards to.
//!
//! Only what the allocator gave to a machine of the same namespace, and never what the agent in a guest says: a guest may
//! say anything, and what it says would decide whose traffic goes where. A machine on a network without an allocator has
//! no such address and gets nothing.

use std::net::Ipv4Addr;

use sheaf_resources::{
    kinds::{
        load_balancer::LoadBalancerSpec,
        virtual_machine_instance::{VirtualMachineInstance, status::Phase},
        virtual_machine_network_config::{ALLOCATED, VirtualMachineNetworkConfig},
    },
    mac_address,
};

/// The backend servers of a load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backends {
    /// In the order of their machines' names.
    pub addresses: Vec<Ipv4Addr>,
    /// The machines that run and are selected, and have no address of the allocator.
    pub without: Vec<String>,
}

/// An instance of the balancer's namespace, and the config of its name.
#[derive(Clone, Copy, Debug)]
pub struct Machine<'a> {
    pub instance: &'a VirtualMachineInstance,
    pub config: Option<&'a VirtualMachineNetworkConfig>,
}

impl Backends {
    /// Those of `machines` that are selected and run.
    pub fn of<'a>(spec: &LoadBalancerSpec, machines: impl IntoIterator<Item = Machine<'a>>) -> Backends {
        let mut found: Vec<(String, Option<Ipv4Addr>)> = machines
            .into_iter()
            .filter(|machine| is_selected(spec, machine.instance))
            .map(|machine| (machine.instance.metadata.name.clone().unwrap_or_default(), address_of(&machine)))
            .collect();
        found.sort();
        let mut backends = Backends::default();
        for (name, address) in found {
            match address {
                Some(address) if backends.addresses.contains(&address) => {}
                Some(address) => backends.addresses.push(address),
                None => backends.without.push(name),
            }
        }
        backends
    }

    /// Why there is none, in the original's words and ours.
    pub fn why_none(&self) -> String {
        match self.without.is_empty() {
            true => "no running backend servers".to_owned(),
            false => format!(
                "no running backend servers: {} run and have no address of an allocator; only machines on the default \
                 network get connections",
                self.without.join(", ")
            ),
        }
    }
}

fn is_selected(spec: &LoadBalancerSpec, instance: &VirtualMachineInstance) -> bool {
    let labels = instance.metadata.labels.as_ref();
    instance.status.phase == Phase::Running
        && instance.metadata.deletion_timestamp.is_none()
        && labels.is_some_and(|labels| spec.selects(labels))
}

/// The first address that the allocator gave to an interface of it, in the order of its interfaces.
fn address_of(machine: &Machine<'_>) -> Option<Ipv4Addr> {
    let given = &machine.config?.status.network_configs;
    machine.instance.spec.domain.devices.interfaces.iter().find_map(|interface| {
        let mac = mac_address::normalised(&interface.mac_address)?;
        let of_it = given.iter().find(|one| {
            one.state == ALLOCATED && mac_address::normalised(&one.mac_address).as_ref() == Some(&mac)
        })?;
        of_it.allocated_ip_address.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn instance(name: &str, change: impl FnOnce(&mut Value)) -> VirtualMachineInstance {
        let mut instance = json!({
            "metadata": {"name": name, "labels": {"app": "web"}},
            "spec": {"domain": {"devices": {"interfaces": [
                {"name": "vlan", "bridge": {}, "macAddress": "02:00:00:00:00:0a"},
                {"name": "nic", "masquerade": {}, "macAddress": "02:00:00:00:00:01"}]}}},
            "status": {"phase": "Running", "interfaces": [{"ipAddress": "127.0.0.1", "infoSource": "guest-agent"}]},
        });
        change(&mut instance);
        serde_json::from_value(instance).unwrap()
    }

    fn config(state: &str) -> VirtualMachineNetworkConfig {
        serde_json::from_value(json!({"status": {"networkConfigs": [
            {"macAddress": "02:00:00:00:00:01", "allocatedIPAddress": "10.52.0.7", "state": state}]}}))
        .unwrap()
    }

    fn found(instance: &VirtualMachineInstance, config: Option<&VirtualMachineNetworkConfig>) -> Backends {
        let spec = serde_json::from_value(json!({"backendServerSelector": {"app": ["web"]}})).unwrap();
        Backends::of(&spec, [Machine { instance, config }])
    }

    #[test]
    fn what_the_allocator_gave_counts_and_what_a_guest_says_does_not() {
        let given = found(&instance("a", |_| {}), Some(&config(ALLOCATED)));
        assert_eq!(given.addresses, [Ipv4Addr::new(10, 52, 0, 7)]);
        let liar = found(&instance("a", |_| {}), None);
        assert_eq!((liar.addresses.len(), liar.without.as_slice()), (0, ["a".to_owned()].as_slice()));
        assert!(liar.why_none().contains("a run and have no address of an allocator"));
        assert_eq!(found(&instance("a", |_| {}), Some(&config("Pending"))).addresses, [] as [Ipv4Addr; 0]);
    }

    #[test]
    fn only_machines_that_run_and_are_selected_count() {
        let changes: [fn(&mut Value); 3] = [
            |one| one["status"]["phase"] = json!("Scheduled"),
            |one| one["metadata"]["labels"]["app"] = json!("db"),
            |one| one["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
        ];
        for change in changes {
            assert_eq!(found(&instance("a", change), Some(&config(ALLOCATED))), Backends::default());
        }
    }
}
