//! A machine to try things on, as a client would send it, and where its kinds are.

use serde_json::{Value, json};

pub const MACHINES: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
pub const INSTANCES: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";
pub const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
pub const VOLUMES: &str = "/api/v1/persistentvolumes";
pub const IMAGES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachineimages";
pub const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
pub const DEFINITIONS: &str = "/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions";
pub const SETTINGS: &str = "/apis/harvesterhci.io/v1beta1/settings";
pub const CLUSTER_NETWORKS: &str = "/apis/network.harvesterhci.io/v1beta1/clusternetworks";
pub const POOLS: &str = "/apis/network.harvesterhci.io/v1alpha1/namespaces/harvester-system/ippools";

/// What the node driver sends: limits, one interface, and next to nothing else.
pub fn machine(name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"runStrategy": "RerunOnFailure", "template": {"spec": spec()}},
    })
}

pub fn instance(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": spec()})
}

fn spec() -> Value {
    json!({
        "domain": {
            "resources": {"limits": {"cpu": "2", "memory": "2Gi"}},
            "devices": {"interfaces": [{"name": "nic-0", "model": "virtio", "bridge": {}}]},
        },
        "networks": [{"name": "nic-0", "pod": {}}],
    })
}

/// Adds a disk that is the claim.
pub fn with_claim(mut machine: Value, claim: &str) -> Value {
    let spec = &mut machine["spec"]["template"]["spec"];
    spec["domain"]["devices"]["disks"] = json!([{"name": "disk-0", "disk": {"bus": "virtio"}}]);
    spec["volumes"] = json!([{"name": "disk-0", "persistentVolumeClaim": {"claimName": claim}}]);
    machine
}

pub fn on_network(mut machine: Value, network: &str) -> Value {
    machine["spec"]["template"]["spec"]["networks"] =
        json!([{"name": "nic-0", "multus": {"networkName": network}}]);
    machine
}

pub fn claim(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteMany"], "volumeMode": "Block",
        "resources": {"requests": {"storage": "1Gi"}}}})
}

pub fn image(name: &str, shown: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"displayName": shown, "sourceType": "download",
        "url": "https://example.com/debian.qcow2"}})
}

pub fn definition(name: &str, bridge: &str) -> Value {
    let config = json!({"cniVersion": "0.3.1", "name": name, "type": "bridge", "bridge": bridge, "vlan": 7});
    json!({"metadata": {"name": name}, "spec": {"config": config.to_string()}})
}
