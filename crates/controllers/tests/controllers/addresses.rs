//! Who has which address.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sheaf_testbed::kubectl::Kubectl;

use crate::{
    scenario::{Scenario, on_a_cluster},
    simulated_node::*,
};

fn bare(name: &str, number: u8) -> Value {
    let mut vm = machine(name, number, "Always");
    let spec = &mut vm["spec"]["template"]["spec"];
    spec["volumes"] = json!([]);
    spec["domain"]["devices"]["disks"] = json!([]);
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": name}, "spec": spec,
    })
}

async fn allocated(kubectl: &Kubectl) -> String {
    let pool = kubectl.get(&format!("{POOLS}/default")).await.unwrap();
    pool["status"]["ipv4"]["allocated"].to_string()
}

fn change() -> Scenario<impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl)> {
    Scenario {
        prepared: async |kubectl: &Kubectl| {
            furnish(kubectl).await;
            kubectl.create(VMS, &machine("old", 1, "Halted")).await;
            kubectl.create(VMIS, &bare("bare", 2)).await;
        },
        happens: async |kubectl: &Kubectl| {
            let mut interfaces = json!([{"name": "nic", "masquerade": {}, "macAddress": mac(3)}]);
            interfaces[0]["model"] = json!("virtio");
            let devices = json!({"devices": {"interfaces": interfaces}});
            kubectl
                .patch(&format!("{VMS}/old"), &json!({"spec": {"template": {"spec": {"domain": devices}}}}))
                .await;
            kubectl.delete(&format!("{VMIS}/bare"), "Background").await;
            kubectl.create(VMS, &machine("new", 4, "Halted")).await;
        },
        ends: async |kubectl: &Kubectl| {
            assert_eq!(kubectl.names(CONFIGS).await, ["new", "old"]);
            let (new, old) = (address_of(kubectl, "new").await, address_of(kubectl, "old").await);
            assert_ne!(new, old);
            let allocated = allocated(kubectl).await;
            for (number, there) in [(1, false), (2, false), (3, true), (4, true)] {
                assert_eq!(allocated.contains(&mac(number)), there, "{number}: {allocated}");
            }
        },
    }
}

#[test]
fn addresses_come_and_go_with_interfaces_and_machines() {
    change().arrives_and_rests();
    change().arrives_however_interrupted();
}

#[test]
fn many_machines_at_once_have_as_many_addresses() {
    on_a_cluster(async |cluster, kubectl| {
        furnish(kubectl).await;
        // A second set of controllers, as another manager would run.
        let others = cluster.start_controllers();
        for number in 1..20 {
            kubectl.create(VMS, &machine(&format!("vm-{number}"), number, "Halted")).await;
        }
        cluster.settle().await;
        let mut addresses = BTreeSet::new();
        for number in 1..20 {
            assert!(addresses.insert(address_of(kubectl, &format!("vm-{number}")).await));
        }
        let pool = kubectl.get(&format!("{POOLS}/default")).await.unwrap();
        assert_eq!(pool["status"]["ipv4"]["used"], 19);
        others.stop().await;
    });
}

#[test]
fn a_config_that_somebody_deleted_is_not_let_go_while_the_guest_runs() {
    on_a_cluster(async |cluster, kubectl| {
        furnish(kubectl).await;
        kubectl.create(VMS, &machine("vm", 1, "Always")).await;
        cluster.settle().await;
        let before = address_of(kubectl, "vm").await;
        kubectl.delete(&format!("{CONFIGS}/vm"), "Background").await;
        cluster.settle().await;
        assert_eq!(address_of(kubectl, "vm").await, before);
        assert!(allocated(kubectl).await.contains(&mac(1)));
    });
}

#[test]
fn a_network_on_the_management_bridge_is_the_default_one_and_a_tagged_one_is_not() {
    on_a_cluster(async |cluster, kubectl| {
        furnish(kubectl).await;
        let path = "/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions";
        for (name, vlan) in [("lan", 0), ("vlan", 7)] {
            let config = json!({"cniVersion": "0.3.1", "name": name, "type": "bridge", "bridge": "mgmt-br", "vlan": vlan});
            let definition = json!({
                "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": {"name": name},
                "spec": {"config": config.to_string()},
            });
            let mut vm = machine(name, vlan + 1, "Always");
            let spec = &mut vm["spec"]["template"]["spec"];
            spec["networks"] = json!([{"name": "nic", "multus": {"networkName": format!("default/{name}")}}]);
            spec["domain"]["devices"]["interfaces"] =
                json!([{"name": "nic", "bridge": {}, "macAddress": mac(vlan + 1)}]);
            kubectl.create(VMS, &vm).await;
            cluster.settle().await;
            let waits = kubectl.get(&format!("{VMIS}/{name}")).await.unwrap();
            assert!(
                waits["status"]["conditions"].to_string().contains("failed to locate network"),
                "{waits}"
            );
            kubectl.create(path, &definition).await;
            cluster.settle().await;
            let there = kubectl.get(&format!("{VMIS}/{name}")).await.unwrap();
            assert_eq!(there["status"]["phase"], "Running");
        }
        assert_eq!(kubectl.names(CONFIGS).await, ["lan"]);
    });
}
