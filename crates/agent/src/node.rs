//! Keeps this node's Node object and Lease true.
//!
//! ```text
//!   look at the host --> the status it should have --> write, if it says something new or is old
//!          ^                                                        |
//!          +---------------- every few seconds <--------------------+
//! ```
//!
//! The Lease says "alive" and is renewed all the time; the status says "how" and is written when something
//! changed, and every few minutes so that its age tells something. What people wrote into the object
//! (labels, annotations, cordoning) is theirs: only what the node reports is touched.

use std::time::Duration;

use k8s_openapi::api::{coordination::v1::Lease, core::v1::Node};
use kube::{
    Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use sheaf_client::{
    api::{FIELD_MANAGER, is_already_exists, is_not_found},
    objects::Objects,
};
use sheaf_hypervisor::KvmVerdict;
use sheaf_resources::kinds::node::VOLUME_STORAGE;
use sheaf_world::World;
use tokio::time::Instant;

use crate::{Settings, disk_space::reserve_of, host::Host};

const LEASE_NAMESPACE: &str = "kube-node-lease";
const LEASE_SECS: i32 = 40;
const RENEW_EVERY: Duration = Duration::from_secs(10);
/// A status that has nothing new to say is written this often.
const REPORT_EVERY: Duration = Duration::from_secs(5 * 60);
/// Memory the host keeps for itself and for Sheaf.
const RESERVED_BYTES: u64 = 512 << 20;
/// Less than this is a host that will soon kill processes.
const MEMORY_PRESSURE_BYTES: u64 = 100 << 20;
/// One in so many bytes free is a disk that is as good as full.
const DISK_PRESSURE: u64 = 20;
/// How many machines one host is meant for; the column of other systems is made for containers.
const MACHINES: u64 = 250;
/// What KubeVirt calls the right to use KVM; there is enough for everybody.
const KVM_RESOURCE: &str = "devices.kubevirt.io/kvm";

/// The conditions that are ours alone; the rest have their usual names.
pub const KVM_CONDITION: &str = "KvmUsable";
pub use sheaf_resources::kinds::node::TAPS_CONDITION;
pub const APART_CONDITION: &str = "MachinesKeptApart";

#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error("the Node object {name} could not be written")]
    Node {
        name: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("the Lease {name} could not be renewed")]
    Lease {
        name: String,
        #[source]
        source: Box<kube::Error>,
    },
}

pub struct NodeKeeper {
    nodes: Objects<Node>,
    leases: Objects<Lease>,
    world: World,
    settings: Settings,
    /// When the status was last written, and without times what it said.
    reported: Option<(Instant, Value)>,
}

impl NodeKeeper {
    pub fn new(client: Client, world: World, settings: Settings) -> Self {
        NodeKeeper {
            nodes: Objects::all(client.clone()),
            leases: Objects::namespaced(client, LEASE_NAMESPACE),
            world,
            settings,
            reported: None,
        }
    }

    /// Until dropped.
    pub async fn keep(mut self) {
        loop {
            if let Err(why) = self.look_once().await {
                let cause = std::error::Error::source(&why).map(ToString::to_string);
                tracing::warn!(%why, cause, "the node could not report; trying again");
            }
            tokio::time::sleep(RENEW_EVERY).await;
        }
    }

    /// Renews the Lease, and writes the status if that is due.
    pub async fn look_once(&mut self) -> Result<(), NodeError> {
        let host = self.settings.host.look();
        let node = self.ensure().await?;
        let report = report(&self.settings, &host);
        let due = self.reported.as_ref().is_none_or(|(at, said)| {
            *said != report || at.elapsed() >= REPORT_EVERY || !still_says(&node, &report)
        });
        if due {
            self.write(&node, &report).await?;
            self.reported = Some((Instant::now(), report));
        }
        self.renew_lease().await
    }

    /// The Node object, made if it is not there, with the labels that say what it is.
    async fn ensure(&self) -> Result<Node, NodeError> {
        let name = &self.settings.name;
        let failed = |source| NodeError::Node { name: name.clone(), source: Box::new(source) };
        let labels = labels(name);
        match self.nodes.get(name).await {
            Ok(node) => {
                let held = node.metadata.labels.clone().unwrap_or_default();
                let missing = labels
                    .as_object()
                    .into_iter()
                    .flatten()
                    .any(|(key, value)| held.get(key).map(String::as_str) != value.as_str());
                if !missing {
                    return Ok(node);
                }
                let change = json!({"metadata": {"labels": labels}});
                self.nodes.patch(name, &writing(), &Patch::Merge(change)).await.map_err(failed)
            }
            Err(why) if is_not_found(&why) => {
                let node = json!({
                    "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
                });
                let node: Node =
                    serde_json::from_value(node).map_err(kube::Error::SerdeError).map_err(failed)?;
                match self.nodes.create(&PostParams::default(), &node).await {
                    Err(why) if is_already_exists(&why) => self.nodes.get(name).await.map_err(failed),
                    made => made.map_err(failed),
                }
            }
            Err(why) => Err(failed(why)),
        }
    }

    async fn write(&self, node: &Node, report: &Value) -> Result<(), NodeError> {
        let name = &self.settings.name;
        let now = self.world.clock.rfc3339();
        let mut status = report.clone();
        for condition in status["conditions"].as_array_mut().into_iter().flatten() {
            let since = transition(node, condition).unwrap_or_else(|| now.clone());
            condition["lastHeartbeatTime"] = now.clone().into();
            condition["lastTransitionTime"] = since.into();
        }
        let change = json!({"status": status});
        self.nodes
            .patch_status(name, &writing(), &Patch::Merge(change))
            .await
            .map_err(|source| NodeError::Node { name: name.clone(), source: Box::new(source) })?;
        Ok(())
    }

    async fn renew_lease(&self) -> Result<(), NodeError> {
        let name = &self.settings.name;
        let failed = |source| NodeError::Lease { name: name.clone(), source: Box::new(source) };
        let spec = json!({
            "holderIdentity": name, "leaseDurationSeconds": LEASE_SECS,
            "renewTime": self.world.clock.rfc3339_micros(),
        });
        let change = Patch::Merge(json!({"spec": spec}));
        match self.leases.patch(name, &writing(), &change).await {
            Err(why) if is_not_found(&why) => {
                let lease = json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": {"name": name, "namespace": LEASE_NAMESPACE}, "spec": spec,
                });
                let lease: Lease =
                    serde_json::from_value(lease).map_err(kube::Error::SerdeError).map_err(failed)?;
                self.leases.create(&PostParams::default(), &lease).await.map(drop).map_err(failed)
            }
            renewed => renewed.map(drop).map_err(failed),
        }
    }
}

fn writing() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

fn labels(name: &str) -> Value {
    json!({
        "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": architecture(),
        // By this Rancher tells such a cluster from others.
        "harvesterhci.io/managed": "true",
        "kubevirt.io/schedulable": "true",
        // Machines on the cluster network `mgmt` ask for nodes that have it.
        "network.harvesterhci.io/mgmt": "true",
    })
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// What the node's status should say, without times.
fn report(settings: &Settings, host: &Host) -> Value {
    let virtualisation = &settings.virtualisation;
    let kvm = if virtualisation.kvm.is_usable() { "1k" } else { "0" };
    let resources = |memory: u64, volumes: u64| {
        let mut resources = json!({
            "cpu": host.cpus.to_string(), "memory": format!("{}Ki", memory / 1024),
            "ephemeral-storage": format!("{}Ki", host.disk_bytes / 1024), "pods": MACHINES.to_string(),
            KVM_RESOURCE: kvm,
        });
        // A disk that could not be looked at is not one without room.
        if host.disk_bytes > 0 {
            resources[VOLUME_STORAGE] = format!("{}Ki", volumes / 1024).into();
        }
        resources
    };
    let volumes = host.disk_bytes.saturating_sub(reserve_of(host.disk_bytes));
    let qemu =
        virtualisation.qemu.as_ref().map_or_else(|_| "none".to_owned(), |qemu| qemu.version.to_string());
    json!({
        "capacity": resources(host.memory_bytes, host.disk_bytes),
        "allocatable": resources(host.memory_bytes.saturating_sub(RESERVED_BYTES), volumes),
        "addresses": [
            {"type": "InternalIP", "address": settings.address},
            {"type": "Hostname", "address": settings.name},
        ],
        "nodeInfo": {
            "machineID": host.machine_id, "systemUUID": host.system_uuid, "bootID": host.boot_id,
            "kernelVersion": host.kernel, "osImage": host.os_image, "operatingSystem": "linux",
            "architecture": architecture(), "containerRuntimeVersion": format!("qemu://{qemu}"),
            "kubeletVersion": settings.version, "kubeProxyVersion": "",
        },
        "daemonEndpoints": settings.stream_port.map(|port| json!({"kubeletEndpoint": {"Port": port}})),
        "conditions": conditions(settings, host),
    })
}

fn conditions(settings: &Settings, host: &Host) -> Vec<Value> {
    let condition = |kind: &str, status: bool, reason: &str, message: &str| {
        let status = if status { "True" } else { "False" };
        json!({"type": kind, "status": status, "reason": reason, "message": message})
    };
    let memory_low = host.memory_available_bytes < MEMORY_PRESSURE_BYTES;
    let disk_low = host.disk_available_bytes < host.disk_bytes / DISK_PRESSURE;
    // In whole percent, so that not every write of a guest is one of this object.
    let used = 100 - host.disk_available_bytes.saturating_mul(100) / host.disk_bytes.max(1);
    let has_room = format!("the data directory's disk has room: {used} % of it are used");
    let virtualisation = &settings.virtualisation;
    vec![
        match memory_low {
            true => {
                condition("MemoryPressure", true, "HostHasLittleMemory", "less than 100 MiB are available")
            }
            false => condition("MemoryPressure", false, "HostHasMemory", "memory is available"),
        },
        match disk_low {
            true => condition(
                "DiskPressure",
                true,
                "DataDirIsFull",
                "less than 5 % of the data directory's disk is free",
            ),
            false => condition("DiskPressure", false, "DataDirHasRoom", &has_room),
        },
        condition("PIDPressure", false, "HostHasProcesses", "processes can be started"),
        match &virtualisation.kvm {
            KvmVerdict::Usable => condition(KVM_CONDITION, true, "KvmRunsGuests", "machines run on KVM"),
            KvmVerdict::Unusable { reason } => condition(
                KVM_CONDITION,
                false,
                "SoftwareEmulation",
                &format!("machines are emulated in software, which is slow: {reason}"),
            ),
        },
        match &virtualisation.no_taps {
            None => {
                condition(TAPS_CONDITION, true, "MachinesHaveTaps", "machines are on networks of this node")
            }
            Some(why) => condition(TAPS_CONDITION, false, "UserModeNetwork", why),
        },
        match &virtualisation.not_apart {
            None => condition(
                APART_CONDITION,
                true,
                "EveryMachineHasItsUser",
                "every machine runs as a user of its own",
            ),
            Some(why) => condition(APART_CONDITION, false, "NotRoot", why),
        },
        match &virtualisation.qemu {
            Ok(_) => condition("Ready", true, "AgentIsReady", "the agent is ready"),
            Err(why) => {
                condition("Ready", false, "NoHypervisor", &format!("machines cannot run here: {why}"))
            }
        },
    ]
}

/// Since when a condition of that status holds, if the object says so.
fn transition(node: &Node, condition: &Value) -> Option<String> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let held = conditions
        .iter()
        .find(|held| condition["type"] == *held.type_ && condition["status"] == *held.status)?;
    serde_json::to_value(held.last_transition_time.as_ref()?).ok()?.as_str().map(str::to_owned)
}

/// Whether the object still has what was reported: somebody may have written over it.
fn still_says(node: &Node, report: &Value) -> bool {
    let Ok(status) = serde_json::to_value(&node.status) else { return false };
    let same = |field: &str| status[field] == report[field];
    let conditions = |status: &Value| -> Vec<Value> {
        let each = status["conditions"].as_array().into_iter().flatten();
        each.map(|condition| json!([condition["type"], condition["status"], condition["message"]])).collect()
    };
    ["capacity", "allocatable", "addresses", "daemonEndpoints"].into_iter().all(same)
        && report["conditions"].as_array().is_some()
        && conditions(report).iter().all(|wanted| conditions(&status).contains(wanted))
}
