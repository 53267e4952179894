//! What each controller may do: no more than its work takes.
//!
//! A controller acts as a user of its own, bound to the role of the same name. Three of them touch objects of every
//! kind, since that is their work; none may create what it does not have to.

use serde_json::Value;

use super::defaults::{binding_of_user, on, role};

const CLONE: &str = "clone.kubevirt.io";
const CORE: &str = "";
const EVERY: &str = "*";
const DEFINITIONS: &str = "apiextensions.k8s.io";
const HARVESTER: &str = "harvesterhci.io";
const KUBEVIRT: &str = "kubevirt.io";
const LOAD_BALANCER: &str = "loadbalancer.harvesterhci.io";
const NETWORK: &str = "network.harvesterhci.io";
const SNAPSHOT: &str = "snapshot.storage.k8s.io";
const STORAGE: &str = "storage.k8s.io";

/// The user, and the role, of the controller called `name`.
pub fn controller_user(name: &str) -> String {
    format!("system:controller:{name}")
}

pub(super) fn cluster_roles() -> Vec<Value> {
    all().into_iter().map(|(name, rules)| role(&controller_user(name), rules)).collect()
}

pub(super) fn cluster_role_bindings() -> Vec<Value> {
    all().into_iter().map(|(name, _)| binding_of_user(&controller_user(name))).collect()
}

fn all() -> Vec<(&'static str, Vec<Value>)> {
    let follow = &["get", "list", "watch"];
    vec![
        (
            "cluster-network",
            vec![
                on(&["get", "list", "patch", "watch"], NETWORK, &["clusternetworks"]),
                on(&["create", "get", "list", "patch", "watch"], NETWORK, &["linkmonitors"]),
                on(follow, NETWORK, &["vlanconfigs", "vlanstatuses"]),
                on(follow, CORE, &["nodes"]),
            ],
        ),
        (
            "cluster-role",
            // It writes rules that it does not hold: whoever wrote the aggregation rule had to hold everything.
            vec![on(&["escalate", "get", "list", "patch", "watch"], super::GROUP, &["clusterroles"])],
        ),
        (
            "custom-resource-definition",
            vec![
                on(&["get", "list", "patch", "update", "watch"], DEFINITIONS, &["customresourcedefinitions"]),
                on(&["update"], DEFINITIONS, &["customresourcedefinitions/status"]),
                on(&["delete", "deletecollection", "list"], EVERY, &["*"]),
            ],
        ),
        ("event", vec![on(&["delete", "get", "list"], CORE, &["events"])]),
        (
            "garbage-collection",
            vec![
                on(&["delete", "get", "list", "patch", "watch"], EVERY, &["*"]),
                on(&["create"], CORE, &["events"]),
            ],
        ),
        (
            "harvester-resource-quota",
            vec![
                on(follow, HARVESTER, &["resourcequotas", "virtualmachinebackups"]),
                on(&["update"], HARVESTER, &["resourcequotas/status"]),
                on(follow, SNAPSHOT, &["volumesnapshots"]),
                on(follow, CORE, &["persistentvolumeclaims"]),
                on(follow, KUBEVIRT, &["virtualmachines"]),
            ],
        ),
        (
            "load-balancer",
            vec![
                on(
                    &["get", "list", "patch", "update", "watch"],
                    LOAD_BALANCER,
                    &["ippools", "loadbalancers"],
                ),
                on(follow, KUBEVIRT, &["virtualmachineinstances"]),
                on(follow, NETWORK, &["ippools", "virtualmachinenetworkconfigs"]),
                on(follow, CORE, &["nodes"]),
                on(&["create"], CORE, &["events"]),
            ],
        ),
        (
            "namespace",
            vec![
                on(follow, CORE, &["namespaces"]),
                on(&["patch"], CORE, &["namespaces/status"]),
                on(&["update"], CORE, &["namespaces/finalize"]),
                on(&["delete", "deletecollection", "list"], EVERY, &["*"]),
            ],
        ),
        (
            "node",
            vec![
                on(&["get", "list", "patch", "watch"], CORE, &["nodes"]),
                on(follow, CORE, &["persistentvolumes"]),
                on(follow, HARVESTER, &["settings"]),
            ],
        ),
        (
            "persistent-volume",
            vec![
                on(follow, CORE, &["persistentvolumeclaims"]),
                on(&["delete", "get", "list", "patch", "watch"], CORE, &["persistentvolumes"]),
                on(&["patch"], CORE, &["persistentvolumes/status"]),
            ],
        ),
        (
            "persistent-volume-claim",
            vec![
                on(&["get", "list", "patch", "watch"], CORE, &["persistentvolumeclaims"]),
                on(&["create", "get", "list", "patch", "watch"], CORE, &["persistentvolumes"]),
                on(
                    &["patch", "update"],
                    CORE,
                    &["persistentvolumeclaims/status", "persistentvolumes/status"],
                ),
                on(follow, CORE, &["nodes"]),
                on(follow, STORAGE, &["storageclasses"]),
                on(follow, HARVESTER, &["settings", "virtualmachineimages"]),
                on(follow, KUBEVIRT, &["virtualmachineinstances", "virtualmachines"]),
                on(follow, SNAPSHOT, &["volumesnapshotcontents", "volumesnapshots"]),
                on(&["create"], CORE, &["events"]),
            ],
        ),
        (
            "root-ca",
            vec![
                on(follow, CORE, &["namespaces"]),
                on(&["create", "get", "list", "patch", "watch"], CORE, &["configmaps"]),
            ],
        ),
        (
            "service-account",
            vec![
                on(follow, CORE, &["namespaces"]),
                on(&["create", "get", "list", "watch"], CORE, &["serviceaccounts"]),
            ],
        ),
        (
            "service-account-token",
            vec![
                on(follow, CORE, &["serviceaccounts"]),
                on(&["delete", "get", "list", "patch", "watch"], CORE, &["secrets"]),
            ],
        ),
        ("setting", vec![on(&["get", "list", "patch", "watch"], HARVESTER, &["settings"])]),
        (
            "support-bundle",
            vec![
                on(&["delete", "get", "list", "update", "watch"], HARVESTER, &["supportbundles"]),
                on(follow, CORE, &["nodes"]),
                on(follow, HARVESTER, &["settings"]),
                on(&["create"], CORE, &["events"]),
            ],
        ),
        ("token", vec![on(&["delete", "list"], "management.cattle.io", &["tokens"])]),
        (
            "user",
            vec![
                on(&["get", "list", "patch", "watch"], "management.cattle.io", &["users"]),
                on(
                    &["delete", "get", "list", "patch"],
                    super::GROUP,
                    &["clusterrolebindings", "rolebindings"],
                ),
                // It writes bindings to roles that it does not hold, and only ever takes names out of them.
                on(&["bind"], super::GROUP, &["clusterroles", "roles"]),
            ],
        ),
        (
            "virtual-machine",
            vec![
                on(&["get", "list", "patch", "update", "watch"], KUBEVIRT, &["virtualmachines"]),
                on(&["update"], KUBEVIRT, &["virtualmachines/status"]),
                on(
                    &["create", "delete", "get", "list", "patch", "update", "watch"],
                    KUBEVIRT,
                    &["virtualmachineinstances"],
                ),
                on(&["create", "delete", "get", "list", "patch", "watch"], CORE, &["persistentvolumeclaims"]),
                on(follow, HARVESTER, &["virtualmachineimages"]),
                on(follow, STORAGE, &["storageclasses"]),
                // Copies of what belongs to a template.
                on(&["create", "get"], CORE, &["secrets"]),
                on(&["create"], CORE, &["events"]),
            ],
        ),
        (
            "virtual-machine-backup",
            vec![
                on(&["get", "list", "update", "watch"], HARVESTER, &["virtualmachinebackups"]),
                on(follow, HARVESTER, &["settings"]),
                on(&["create", "get", "list", "watch"], SNAPSHOT, &["volumesnapshots"]),
                on(follow, KUBEVIRT, &["virtualmachines"]),
                on(follow, CORE, &["persistentvolumeclaims"]),
                on(&["create", "get"], CORE, &["secrets"]),
                on(&["create"], CORE, &["events"]),
            ],
        ),
        (
            "virtual-machine-clone",
            vec![
                on(&["get", "list", "watch"], CLONE, &["virtualmachineclones"]),
                on(&["update"], CLONE, &["virtualmachineclones/status"]),
                on(&["create", "get", "list", "watch"], KUBEVIRT, &["virtualmachines"]),
                on(follow, CORE, &["persistentvolumeclaims"]),
                on(&["create", "get"], CORE, &["secrets"]),
            ],
        ),
        (
            "virtual-machine-image",
            vec![
                on(&["get", "list", "patch", "watch"], HARVESTER, &["virtualmachineimages"]),
                on(&["create", "delete", "get", "list", "watch"], STORAGE, &["storageclasses"]),
                on(follow, CORE, &["nodes"]),
                // To find the node that has the disk an image is made of, or to choose one for it.
                on(&["get"], CORE, &["persistentvolumeclaims"]),
                on(&["get", "list", "patch", "watch"], CORE, &["persistentvolumes"]),
                on(follow, HARVESTER, &["settings"]),
                on(&["create"], CORE, &["events"]),
            ],
        ),
        (
            "virtual-machine-instance",
            vec![
                on(&["get", "list", "update", "watch"], KUBEVIRT, &["virtualmachineinstances"]),
                on(follow, CORE, &["nodes", "persistentvolumeclaims"]),
                on(&["get", "list", "patch", "watch"], CORE, &["persistentvolumes"]),
                on(follow, HARVESTER, &["settings"]),
                on(follow, NETWORK, &["ippools", "virtualmachinenetworkconfigs"]),
                on(follow, "k8s.cni.cncf.io", &["network-attachment-definitions"]),
                on(&["create"], CORE, &["events"]),
            ],
        ),
        (
            "virtual-machine-instance-topology",
            vec![
                on(&["get", "list", "patch", "watch"], KUBEVIRT, &["virtualmachineinstances"]),
                on(follow, CORE, &["nodes"]),
            ],
        ),
        (
            "virtual-machine-network-config",
            vec![
                on(follow, KUBEVIRT, &["virtualmachineinstances", "virtualmachines"]),
                on(
                    &["create", "delete", "get", "list", "patch", "update", "watch"],
                    NETWORK,
                    &["virtualmachinenetworkconfigs"],
                ),
                on(&["get", "list", "update", "watch"], NETWORK, &["ippools"]),
                on(follow, "k8s.cni.cncf.io", &["network-attachment-definitions"]),
            ],
        ),
        (
            "virtual-machine-restore",
            vec![
                on(&["get", "list", "update", "watch"], HARVESTER, &["virtualmachinerestores"]),
                on(follow, HARVESTER, &["virtualmachinebackups"]),
                on(&["create", "get", "list", "update", "watch"], KUBEVIRT, &["virtualmachines"]),
                on(follow, KUBEVIRT, &["virtualmachineinstances"]),
                on(&["create", "get", "list", "patch", "watch"], CORE, &["persistentvolumeclaims"]),
                on(&["create", "get"], CORE, &["secrets"]),
                on(&["create"], CORE, &["events"]),
            ],
        ),
        (
            "virtual-machine-template",
            vec![
                on(&["delete", "get", "list", "patch", "watch"], HARVESTER, &["virtualmachinetemplates"]),
                on(&["update"], HARVESTER, &["virtualmachinetemplates/status"]),
                on(
                    &["create", "get", "list", "patch", "watch"],
                    HARVESTER,
                    &["virtualmachinetemplateversions"],
                ),
                // For templates that are made of a machine: what it is, and copies of what it names.
                on(&["create", "get", "list", "watch"], HARVESTER, &["virtualmachineimages"]),
                on(&["get"], KUBEVIRT, &["virtualmachines"]),
                on(&["get"], CORE, &["persistentvolumeclaims"]),
                on(&["create", "get"], CORE, &["secrets"]),
                on(&["create"], CORE, &["events"]),
            ],
        ),
        (
            "vlan-config",
            vec![
                on(&["get", "list", "patch", "watch"], NETWORK, &["vlanconfigs"]),
                on(&["delete", "get", "list", "watch"], NETWORK, &["vlanstatuses"]),
                on(follow, CORE, &["nodes"]),
            ],
        ),
        (
            "volume-snapshot",
            vec![
                on(&["get", "list", "patch", "watch"], SNAPSHOT, &["volumesnapshots"]),
                on(&["update"], SNAPSHOT, &["volumesnapshots/status"]),
                on(
                    &["create", "delete", "get", "list", "patch", "watch"],
                    SNAPSHOT,
                    &["volumesnapshotcontents"],
                ),
                on(follow, SNAPSHOT, &["volumesnapshotclasses"]),
                on(follow, CORE, &["nodes", "persistentvolumeclaims"]),
                on(&["get", "list", "patch", "watch"], CORE, &["persistentvolumes"]),
                on(follow, HARVESTER, &["settings"]),
                on(&["create"], CORE, &["events"]),
            ],
        ),
        (
            "volume-snapshot-content",
            vec![
                on(&["delete", "get", "list", "patch", "watch"], SNAPSHOT, &["volumesnapshotcontents"]),
                on(follow, SNAPSHOT, &["volumesnapshots"]),
            ],
        ),
    ]
}
