//! A node that runs nothing: says of machines what an agent would, and furnishes a cluster with what they need.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use sheaf_resources::quantity;

use crate::kubectl::Kubectl;

pub const VMS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
pub const VMIS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";
pub const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
pub const VOLUMES: &str = "/api/v1/persistentvolumes";
pub const PODS: &str = "/api/v1/namespaces/default/pods";
pub const EVENTS: &str = "/api/v1/namespaces/default/events";
pub const NODES: &str = "/api/v1/nodes";
pub const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
pub const IMAGES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachineimages";
pub const SNAPSHOTS: &str = "/apis/snapshot.storage.k8s.io/v1/namespaces/default/volumesnapshots";
pub const CONTENTS: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents";
pub const SNAPSHOT_CLASSES: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotclasses";
pub const BACKUPS: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinebackups";
pub const RESTORES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinerestores";
pub const CONFIGS: &str =
    "/apis/network.harvesterhci.io/v1alpha1/namespaces/default/virtualmachinenetworkconfigs";
pub const POOLS: &str = "/apis/network.harvesterhci.io/v1alpha1/namespaces/harvester-system/ippools";
/// The class disks in tests are made by.
pub const CLASS: &str = "disks";
/// A class whose copies this node cannot make.
pub const BROKEN_CLASS: &str = "broken";
/// How often the node looks at what is bound to it.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A pool, a class and a node with room for a few machines; and somebody who plays its agent.
pub async fn furnish(kubectl: &Kubectl) {
    furnish_without_nodes(kubectl).await;
    add_node(kubectl, "n1", "8Gi").await;
    play_agent(kubectl, "n1");
}

pub async fn furnish_without_nodes(kubectl: &Kubectl) {
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "harvester-system"}});
    ensure(kubectl, "/api/v1/namespaces", &namespace).await;
    let pool = json!({
        "apiVersion": "network.harvesterhci.io/v1alpha1", "kind": "IPPool", "metadata": {"name": "default"},
        "spec": {"networkName": "harvester-system/default",
            "ipv4Config": {"cidr": "10.52.0.0/16", "router": "10.52.0.1", "serverIP": "10.52.0.1"}},
    });
    ensure(kubectl, POOLS, &pool).await;
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": CLASS},
        "provisioner": "driver.longhorn.io", "allowVolumeExpansion": true,
    });
    ensure(kubectl, CLASSES, &class).await;
}

/// Makes what another part of the cluster may have made already.
async fn ensure(kubectl: &Kubectl, path: &str, object: &Value) {
    let (code, answer) = kubectl.try_it(Method::POST, path, Some(object)).await;
    assert!(code == 201 || code == 409, "{path}: {code} {answer}");
}

pub async fn add_node(kubectl: &Kubectl, name: &str, memory: &str) {
    let labels = json!({
        "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "z1", "kubevirt.io/schedulable": "true",
        "network.harvesterhci.io/mgmt": "true",
    });
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
    kubectl.create(NODES, &node).await;
    let status = json!({"status": {
        "allocatable": {"cpu": "8", "memory": memory}, "conditions": [{"type": "Ready", "status": "True"}],
    }});
    kubectl.patch(&format!("{NODES}/{name}/status"), &status).await;
}

/// Plays the agent of a node until the runtime ends.
pub fn play_agent(kubectl: &Kubectl, node: &'static str) {
    play_agent_every(LOOK_EVERY, kubectl, node);
}

/// The same for who does not live in virtual time and looks more often.
pub fn play_agent_every(pause: Duration, kubectl: &Kubectl, node: &'static str) {
    let kubectl = kubectl.clone();
    tokio::spawn(async move {
        let mut seen = Value::Null;
        loop {
            // A list says how far the cluster is, also an empty one: where nothing was written nothing is to do.
            let list =
                kubectl.get("/api/v1/namespaces/kube-public/secrets?limit=1").await.unwrap_or_default();
            let now = list["metadata"]["resourceVersion"].clone();
            if now != seen {
                look(&kubectl, node).await;
                seen = now;
            }
            tokio::time::sleep(pause).await;
        }
    });
}

async fn look(kubectl: &Kubectl, node: &str) {
    let path = format!("/apis/kubevirt.io/v1/virtualmachineinstances?fieldSelector=status.nodeName={node}");
    for instance in items(kubectl, &path).await {
        let metadata = &instance["metadata"];
        let path = path_in("/apis/kubevirt.io/v1", "virtualmachineinstances", metadata);
        let phase = instance["status"]["phase"].as_str().unwrap_or_default();
        let change = match (phase, metadata["deletionTimestamp"].is_null()) {
            ("Succeeded" | "Failed", _) => without(metadata, "foregroundDeleteVirtualMachine"),
            (_, false) => Some(json!({"status": {"phase": "Succeeded", "conditions": [ready("False")]}})),
            ("Scheduled", true) => {
                let mut passed = instance["status"]["phaseTransitionTimestamps"].clone();
                passed.as_array_mut().unwrap().push(json!({"phase": "Running"}));
                let running = json!({
                    "phase": "Running", "phaseTransitionTimestamps": passed, "conditions": [ready("True")],
                });
                Some(json!({"status": running}))
            }
            _ => None,
        };
        write(kubectl, &path, metadata, change).await;
    }
    for volume in items(kubectl, VOLUMES).await {
        let metadata = &volume["metadata"];
        let here = volume["spec"]["nodeAffinity"].to_string().contains(&format!("\"{node}\""));
        let path = format!("{VOLUMES}/{}", metadata["name"].as_str().unwrap());
        if here && !metadata["deletionTimestamp"].is_null() {
            write(kubectl, &path, metadata, without(metadata, "sheaf.io/volume-data")).await;
        } else if here {
            write(kubectl, &path, metadata, copying(&volume)).await;
        }
    }
    keep_snapshots(kubectl, node).await;
    for image in items(kubectl, "/apis/harvesterhci.io/v1beta1/virtualmachineimages").await {
        let metadata = &image["metadata"];
        let path = path_in("/apis/harvesterhci.io/v1beta1", "virtualmachineimages", metadata);
        if metadata["annotations"]["sheaf.io/node"] != node {
            continue;
        }
        let change = match metadata["deletionTimestamp"].is_null() {
            false => without(metadata, "sheaf.io/image-data"),
            true if image["status"].is_null() => Some(json!({"status": {
                "conditions": [{"type": "Imported", "status": "True"}], "virtualSize": 1 << 20, "size": 1000,
            }})),
            true => None,
        };
        write(kubectl, &path, metadata, change).await;
    }
}

/// What a node says of a volume that is a copy.
fn copying(volume: &Value) -> Option<Value> {
    let (attributes, annotations) =
        (&volume["spec"]["csi"]["volumeAttributes"], &volume["metadata"]["annotations"]);
    let is_copy =
        ["sheaf.io/snapshotHandle", "sheaf.io/cloneOf"].iter().any(|key| attributes[key].is_string());
    let is_said = ["sheaf.io/made", "sheaf.io/failed"].iter().any(|key| annotations[key].is_string());
    let said = match volume["spec"]["storageClassName"] == BROKEN_CLASS {
        true => json!({"sheaf.io/failed": "the disk of n1 is full"}),
        false => json!({"sheaf.io/made": "true"}),
    };
    (is_copy && !is_said).then(|| json!({"metadata": {"annotations": said}}))
}

/// Takes the snapshots of this node: those that belong together when all of them are there. Of a volume whose name stands in
/// the annotation `test/broken` of the node none can be taken.
async fn keep_snapshots(kubectl: &Kubectl, node: &str) {
    let contents = items(kubectl, CONTENTS).await;
    let itself = kubectl.get(&format!("{NODES}/{node}")).await.unwrap_or_default();
    let broken = itself["metadata"]["annotations"]["test/broken"].as_str().unwrap_or_default().to_owned();
    let volumes = items(kubectl, VOLUMES).await;
    let size_of = |handle: &Value| {
        let volume = volumes.iter().find(|volume| volume["spec"]["csi"]["volumeHandle"] == *handle);
        let size = volume.and_then(|volume| volume["spec"]["capacity"]["storage"].as_str());
        size.and_then(quantity::value).unwrap_or(0)
    };
    for content in &contents {
        let (metadata, spec) = (&content["metadata"], &content["spec"]);
        if metadata["annotations"]["sheaf.io/node"] != node {
            continue;
        }
        let path = format!("{CONTENTS}/{}", metadata["name"].as_str().unwrap());
        if !metadata["deletionTimestamp"].is_null() {
            let is_bound = metadata["finalizers"].to_string().contains("bound-protection");
            let gone = without(metadata, "sheaf.io/snapshot-data").filter(|_| !is_bound);
            write(kubectl, &path, metadata, gone).await;
            continue;
        }
        let group = &metadata["annotations"]["sheaf.io/together"];
        let of_group = |other: &&Value| {
            other["metadata"]["annotations"]["sheaf.io/together"] == *group
                && other["spec"]["volumeSnapshotRef"]["namespace"] == spec["volumeSnapshotRef"]["namespace"]
        };
        let all = metadata["annotations"]["sheaf.io/together-of"].as_str().and_then(|all| all.parse().ok());
        let is_whole = group.is_null() || contents.iter().filter(of_group).count() >= all.unwrap_or(1);
        if !is_whole || content["status"]["readyToUse"] == true {
            continue;
        }
        let uid = spec["volumeSnapshotRef"]["uid"].as_str().unwrap_or_default();
        let handle = &spec["source"]["volumeHandle"];
        let is_broken = !broken.is_empty() && *handle == broken.as_str();
        let status = match (is_broken, handle.is_null()) {
            (true, _) if !content["status"]["error"].is_null() => continue,
            (true, _) => json!({"readyToUse": false, "error": {"message": "the disk of n1 is full"}}),
            (false, true) => json!({"snapshotHandle": spec["source"]["snapshotHandle"], "readyToUse": true,
                "restoreSize": 1 << 30, "creationTime": 1_900_000_000_000_000_000_i64, "error": null}),
            (false, false) => json!({"snapshotHandle": format!("snap-{uid}"), "readyToUse": true,
                "restoreSize": size_of(handle), "creationTime": 1_900_000_000_000_000_000_i64, "error": null}),
        };
        write(kubectl, &format!("{path}/status"), metadata, Some(json!({"status": status}))).await;
    }
}

fn path_in(group: &str, plural: &str, metadata: &Value) -> String {
    let (namespace, name) = (metadata["namespace"].as_str().unwrap(), metadata["name"].as_str().unwrap());
    format!("{group}/namespaces/{namespace}/{plural}/{name}")
}

fn ready(truth: &str) -> Value {
    json!({"type": "Ready", "status": truth})
}

/// The change that takes a finalizer off, if it is there.
fn without(metadata: &Value, finalizer: &str) -> Option<Value> {
    let held = metadata["finalizers"].as_array()?;
    let kept: Vec<&Value> = held.iter().filter(|held| *held != finalizer).collect();
    (kept.len() < held.len()).then(|| json!({"metadata": {"finalizers": kept}}))
}

/// Provided that nobody wrote meanwhile; otherwise at the next look.
async fn write(kubectl: &Kubectl, path: &str, metadata: &Value, change: Option<Value>) {
    let Some(mut change) = change else { return };
    change["metadata"]["resourceVersion"] = metadata["resourceVersion"].clone();
    let (code, answer) = kubectl.try_it(Method::PATCH, path, Some(&change)).await;
    assert!([200, 404, 409].contains(&code), "{path}: {code} {answer}");
}

pub async fn items(kubectl: &Kubectl, path: &str) -> Vec<Value> {
    let list = kubectl.get(path).await.unwrap();
    list["items"].as_array().cloned().unwrap_or_default()
}

/// A machine with one disk, which it brings along, and one interface on the default network. `number` makes its hardware
/// address its own.
pub fn machine(name: &str, number: u8, strategy: &str) -> Value {
    let claim = format!("{name}-root");
    let templates = json!([{
        "metadata": {"name": claim},
        "spec": {"accessModes": ["ReadWriteMany"], "volumeMode": "Block", "storageClassName": CLASS,
            "resources": {"requests": {"storage": "1Gi"}}},
    }]);
    let resources = json!({"cpu": "100m", "memory": "1Gi"});
    // What it runs by when it is started.
    let runs_by = if strategy == "Halted" { "Always" } else { strategy };
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": name, "annotations": {
            "harvesterhci.io/volumeClaimTemplates": templates.to_string(), "harvesterhci.io/vmRunStrategy": runs_by}},
        "spec": {"runStrategy": strategy, "template": {
            "metadata": {"labels": {"harvesterhci.io/vmName": name}},
            "spec": {
                "domain": {
                    "machine": {"type": "q35"}, "cpu": {"cores": 1, "sockets": 1, "threads": 1},
                    "memory": {"guest": "900Mi"}, "resources": {"requests": resources, "limits": resources},
                    "firmware": {"uuid": "6a4f7a0c-7f2c-4a5e-9d0e-000000000000", "serial": "s"},
                    "devices": {
                        "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                        "interfaces": [{"name": "nic", "masquerade": {}, "macAddress": mac(number)}],
                    },
                },
                "networks": [{"name": "nic", "pod": {}}],
                "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": claim}}],
                "terminationGracePeriodSeconds": 30, "evictionStrategy": "LiveMigrateIfPossible",
            },
        }},
    })
}

pub fn mac(number: u8) -> String {
    format!("02:00:00:00:00:{number:02x}")
}

/// The address a machine has, as its config says.
pub async fn address_of(kubectl: &Kubectl, machine: &str) -> String {
    let config = kubectl.get(&format!("{CONFIGS}/{machine}")).await.unwrap();
    assert_eq!(config["status"]["networkConfigs"][0]["state"], "Allocated", "{config}");
    config["status"]["networkConfigs"][0]["allocatedIPAddress"].as_str().unwrap().to_owned()
}

/// The reasons of all events about an object, in their order.
pub async fn reasons(kubectl: &Kubectl, kind: &str, name: &str) -> Vec<String> {
    let events = items(kubectl, EVENTS).await;
    let about = events
        .iter()
        .filter(|event| event["involvedObject"]["kind"] == kind && event["involvedObject"]["name"] == name);
    about.map(|event| event["reason"].as_str().unwrap().to_owned()).collect()
}

/// Asks for something through the status, as the subresources do.
pub async fn request(kubectl: &Kubectl, machine: &str, requests: Value) {
    let status = json!({"status": {"stateChangeRequests": requests}});
    kubectl.patch(&format!("{VMS}/{machine}/status"), &status).await;
}
