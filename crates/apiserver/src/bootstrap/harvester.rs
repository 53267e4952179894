//! What Harvester's clients expect of every cluster: its settings, the default classes, the management network
//! and its addresses, where the API is, and that machines can be run.
//!
//! Made once each. The addresses of the default network are settled by the first start: machines have them.

use serde_json::{Value, json};
use sheaf_resources::{
    kinds::{
        addon, cluster_network,
        ip_pool::DEFAULT_NETWORK,
        link_monitor, management_setting,
        namespace::{HARVESTER_PUBLIC, HARVESTER_SYSTEM},
        setting::{self, Setting},
        storage_class, version, volume_snapshot, volume_snapshot_class,
    },
    rbac,
};

use super::RBAC;
use crate::ApiConfig;

/// The release of KubeVirt whose API this is.
const KUBEVIRT_VERSION: &str = "v1.7.0";

/// An object and where it belongs.
pub(super) struct Wanted {
    pub group: &'static str,
    pub plural: &'static str,
    pub value: Value,
}

pub(super) fn objects(config: &ApiConfig, now: &str) -> Vec<Wanted> {
    let wanted = |group, plural, value| Wanted { group, plural, value };
    let mut objects: Vec<Wanted> = setting::ALL
        .iter()
        .map(|known| wanted("harvesterhci.io", "settings", setting_of(known, now)))
        .collect();
    objects.extend(addon::SHIPPED.iter().map(|addon| wanted("harvesterhci.io", "addons", addon.object())));
    objects.extend(management_setting::ALL.iter().map(|known| {
        let value = json!({
            "apiVersion": "management.cattle.io/v3", "kind": "Setting", "metadata": {"name": known.name},
            "value": "", "default": known.default,
        });
        wanted(management_setting::GROUP, management_setting::PLURAL, value)
    }));
    objects.extend([
        wanted("harvesterhci.io", "versions", version::running()),
        wanted("network.harvesterhci.io", "clusternetworks", management_network(now)),
        wanted("network.harvesterhci.io", link_monitor::LINK_MONITORS, link_monitor::of_nics()),
        wanted("storage.k8s.io", "storageclasses", default_class()),
        wanted(volume_snapshot::GROUP, "volumesnapshotclasses", snapshot_class()),
        wanted(volume_snapshot::GROUP, "volumesnapshotclasses", backup_class()),
        wanted("", "configmaps", vip(config)),
        wanted("kubevirt.io", "kubevirts", kube_virt(now)),
        wanted(RBAC, "rolebindings", public_view()),
    ]);
    objects.extend(default_pool(config).map(|pool| wanted("network.harvesterhci.io", "ippools", pool)));
    objects
}

/// What an older release left otherwise than this one has it, put right: the defaults of settings, and what the server says
/// of itself. What somebody set stays.
pub(super) fn renewed(existing: &Value, wanted: &Wanted) -> Option<Value> {
    if wanted.plural != "settings" {
        return None;
    }
    let mut better = existing.clone();
    better["default"] = wanted.value["default"].clone();
    if wanted.value["metadata"]["name"] == setting::SERVER_VERSION {
        better["value"] = wanted.value["value"].clone();
    }
    (better != *existing).then_some(better)
}

/// With its condition: whether it is in force is known before anybody sets it.
fn setting_of(known: &setting::Known, now: &str) -> Value {
    let mut made = Setting { default: known.default.into(), value: known.value.into(), ..Setting::default() };
    made.metadata.name = Some(known.name.into());
    made.status = setting::configured::status_of(known, &made, Ok(()), now);
    json!(made)
}

/// Says so when what was settled once is no longer what is asked for.
pub(super) fn compare(existing: &Value, wanted: &Wanted) {
    let cidr = |pool: &Value| pool["spec"]["ipv4Config"]["cidr"].clone();
    if wanted.plural == "ippools" && cidr(existing) != cidr(&wanted.value) {
        tracing::warn!(
            settled = %cidr(existing),
            asked = %cidr(&wanted.value),
            "--vm-cidr is settled by the first start of a cluster; the default network keeps its addresses"
        );
    }
}

fn management_network(now: &str) -> Value {
    json!({
        "apiVersion": "network.harvesterhci.io/v1beta1", "kind": "ClusterNetwork",
        "metadata": {"name": cluster_network::MANAGEMENT},
        "status": {"conditions": [
            {"type": cluster_network::READY, "status": "True", "lastUpdateTime": now, "lastTransitionTime": now},
        ]},
    })
}

fn default_class() -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {
            "name": storage_class::HARVESTER_LONGHORN,
            "annotations": {storage_class::DEFAULT_CLASS: "true", storage_class::RESERVED_CLASS: "true"},
        },
        "provisioner": storage_class::PROVISIONER,
        "parameters": {"numberOfReplicas": "3", "staleReplicaTimeout": "30", "migratable": "true"},
        "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate", "allowVolumeExpansion": true,
    })
}

/// Snapshots that stay in the cluster. Those who name no class mean these.
fn snapshot_class() -> Value {
    json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass",
        "metadata": {
            "name": volume_snapshot_class::LONGHORN_SNAPSHOT,
            "annotations": {volume_snapshot_class::DEFAULT_CLASS: "true"},
        },
        "driver": storage_class::PROVISIONER,
        "parameters": {volume_snapshot_class::TYPE_PARAMETER: volume_snapshot_class::TYPE_SNAPSHOT},
        "deletionPolicy": "Delete",
    })
}

/// Snapshots that go to a backup target. Settings name the class, and there is none to go to yet.
fn backup_class() -> Value {
    json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass",
        "metadata": {"name": volume_snapshot_class::LONGHORN_BACKUP},
        "driver": storage_class::PROVISIONER,
        "parameters": {volume_snapshot_class::TYPE_PARAMETER: volume_snapshot_class::TYPES_BACKUP[0]},
        "deletionPolicy": "Delete",
    })
}

/// Where guest clusters find the API.
fn vip(config: &ApiConfig) -> Value {
    let host = config.address.rsplit_once(':').map_or(config.address.as_str(), |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "vip", "namespace": HARVESTER_SYSTEM},
        "data": {"ip": host},
    })
}

fn kube_virt(now: &str) -> Value {
    let condition = |name: &str, is: &str, reason: &str| json!({"type": name, "status": is, "reason": reason, "lastProbeTime": now, "lastTransitionTime": now});
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt",
        "metadata": {"name": "kubevirt", "namespace": HARVESTER_SYSTEM},
        "status": {
            "phase": "Deployed",
            "conditions": [
                condition("Available", "True", "AllComponentsReady"),
                condition("Progressing", "False", "AllComponentsReady"),
                condition("Degraded", "False", "AllComponentsReady"),
                condition("Created", "True", "AllResourcesCreated"),
            ],
            "observedKubeVirtVersion": KUBEVIRT_VERSION,
            "targetKubeVirtVersion": KUBEVIRT_VERSION,
            "operatorVersion": KUBEVIRT_VERSION,
        },
    })
}

/// Everybody who signed in sees what is shared.
fn public_view() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": rbac::AUTHENTICATED_ROLE, "namespace": HARVESTER_PUBLIC},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": "system:authenticated"}],
    })
}

/// The addresses of the default network. Its first one is the way out, its name server and its DHCP server, on every
/// node the same.
fn default_pool(config: &ApiConfig) -> Option<Value> {
    let (gateway, _) = config.vm_cidr.hosts()?;
    let (namespace, name) = DEFAULT_NETWORK.split_once('/')?;
    Some(json!({
        "apiVersion": "network.harvesterhci.io/v1alpha1", "kind": "IPPool",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "networkName": DEFAULT_NETWORK,
            "ipv4Config": {
                "cidr": config.vm_cidr.to_string(), "serverIP": gateway.to_string(),
                "router": gateway.to_string(), "dns": [gateway.to_string()], "pool": {},
            },
        },
    }))
}
