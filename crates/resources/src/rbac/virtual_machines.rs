//! What people and Harvester's clients may do with machines, as KubeVirt and Harvester install it.
//!
//! `admin`, `edit` and `view` gather these rules, so whoever has a namespace has its machines. The two roles of
//! guest clusters (their cloud provider and their CSI driver) are bound by whoever makes a kubeconfig for one.
//!
//! Deliberately absent: Harvester lets viewers read Secrets. A machine's user data and passwords are in them.

use serde_json::{Value, json};

use super::defaults::{ALL, READ, STORAGE, aggregation_label, binding, on, role};

const KUBEVIRT: &str = "kubevirt.io";
const LOAD_BALANCER: &str = "loadbalancer.harvesterhci.io";
const CLONE: &str = "clone.kubevirt.io";
const SUBRESOURCES: &str = "subresources.kubevirt.io";
const HARVESTER: &str = "harvesterhci.io";
const NETWORK: &str = "network.harvesterhci.io";
const SNAPSHOT: &str = "snapshot.storage.k8s.io";
const ATTACHMENT: &str = "k8s.cni.cncf.io";

/// Settings that everybody who signed in may read: the clients refuse to start without some of them.
const OPEN_SETTINGS: [&str; 4] = [
    "server-version",
    "default-storage-class",
    "harvester-csi-ccm-versions",
    "default-vm-termination-grace-period-seconds",
];

/// What of Harvester's belongs to who has a namespace.
const NAMESPACED: [&str; 6] = [
    "keypairs",
    "virtualmachinebackups",
    "virtualmachineimages",
    "virtualmachinerestores",
    "virtualmachinetemplates",
    "virtualmachinetemplateversions",
];

/// Bound to everybody who signed in.
pub const AUTHENTICATED_ROLE: &str = "harvester-authenticated";

pub(super) fn cluster_roles() -> Vec<Value> {
    let mut editor = with_streams();
    editor.push(on(ALL, KUBEVIRT, &["virtualmachineinstances", "virtualmachines"]));
    editor.push(on(ALL, CLONE, &["virtualmachineclones"]));
    let mut editor_without_collections = with_streams();
    editor_without_collections.push(on(
        &["create", "delete", "get", "list", "patch", "update", "watch"],
        KUBEVIRT,
        &["virtualmachineinstances", "virtualmachines"],
    ));
    editor_without_collections.push(on(
        &["create", "delete", "get", "list", "patch", "update", "watch"],
        CLONE,
        &["virtualmachineclones"],
    ));
    editor_without_collections.push(on(&["get", "list"], KUBEVIRT, &["kubevirts"]));
    vec![
        role("kubevirt.io:default", vec![on(&["get", "list"], SUBRESOURCES, &["version"])]),
        gathered("kubevirt.io:admin", &["admin"], editor),
        gathered("kubevirt.io:edit", &["edit"], editor_without_collections),
        gathered(
            "kubevirt.io:view",
            &["view"],
            vec![
                on(&["get"], SUBRESOURCES, &guest_questions()),
                on(&["get"], SUBRESOURCES, &["virtualmachines/expand-spec"]),
                expansion(),
                on(READ, KUBEVIRT, &["virtualmachineinstances", "virtualmachines"]),
                on(READ, CLONE, &["virtualmachineclones"]),
            ],
        ),
        gathered(
            "harvesterhci.io:edit",
            &["admin", "edit"],
            vec![
                on(ALL, HARVESTER, &NAMESPACED),
                on(ALL, SNAPSHOT, &["volumesnapshots"]),
                on(ALL, ATTACHMENT, &["network-attachment-definitions"]),
                on(ALL, LOAD_BALANCER, &["loadbalancers"]),
            ],
        ),
        gathered(
            "harvesterhci.io:view",
            &["view"],
            vec![
                on(READ, HARVESTER, &NAMESPACED),
                // Its limits are set by who has the cluster.
                on(READ, HARVESTER, &["resourcequotas"]),
                on(READ, SNAPSHOT, &["volumesnapshots"]),
                on(READ, ATTACHMENT, &["network-attachment-definitions"]),
                on(READ, LOAD_BALANCER, &["loadbalancers"]),
                on(
                    READ,
                    NETWORK,
                    &["linkmonitors", "virtualmachinenetworkconfigs", "vlanconfigs", "vlanstatuses"],
                ),
            ],
        ),
        role(
            AUTHENTICATED_ROLE,
            vec![
                named(on(&["get", "watch"], HARVESTER, &["settings"]), &OPEN_SETTINGS),
                on(READ, NETWORK, &["clusternetworks"]),
                // What a dashboard shows to everybody.
                on(READ, "management.cattle.io", &["settings"]),
            ],
        ),
        role("harvesterhci.io:cloudprovider", cloud_provider()),
        role("harvesterhci.io:csi-driver", csi_driver()),
    ]
}

pub(super) fn cluster_role_bindings() -> Vec<Value> {
    ["kubevirt.io:default", AUTHENTICATED_ROLE]
        .iter()
        .map(|name| binding(name, &["system:authenticated"]))
        .collect()
}

/// Entering a machine, asking its guest, and switching it.
fn with_streams() -> Vec<Value> {
    let mut read = vec![
        "virtualmachineinstances/console",
        "virtualmachineinstances/portforward",
        "virtualmachineinstances/vnc",
        "virtualmachineinstances/vnc/screenshot",
        "virtualmachines/expand-spec",
        "virtualmachines/portforward",
    ];
    read.extend(guest_questions());
    let instance = ["addvolume", "pause", "removevolume", "reset", "softreboot", "unpause"];
    let machine = ["addvolume", "migrate", "removevolume", "restart", "start", "stop"];
    let switches: Vec<String> = instance
        .iter()
        .map(|name| format!("virtualmachineinstances/{name}"))
        .chain(machine.iter().map(|name| format!("virtualmachines/{name}")))
        .collect();
    let switches: Vec<&str> = switches.iter().map(String::as_str).collect();
    vec![on(&["get"], SUBRESOURCES, &read), on(&["update"], SUBRESOURCES, &switches), expansion()]
}

/// Writing out what a machine refers to changes nothing, though it is asked with the verb of a change.
fn expansion() -> Value {
    on(&["update"], SUBRESOURCES, &["expand-vm-spec"])
}

fn guest_questions() -> [&'static str; 4] {
    [
        "virtualmachineinstances/filesystemlist",
        "virtualmachineinstances/guestosinfo",
        "virtualmachineinstances/history",
        "virtualmachineinstances/userlist",
    ]
}

/// The cloud provider of a guest cluster: its own nodes, as the machines that they are. Bound in one namespace, so what the
/// CSI driver does to machines and snapshots is here, too: its own role is bound for the whole cluster, and Harvester's lets
/// every guest cluster change everybody's machines.
fn cloud_provider() -> Vec<Value> {
    vec![
        on(&["create", "delete", "get", "list", "update", "watch"], LOAD_BALANCER, &["loadbalancers"]),
        on(READ, KUBEVIRT, &["virtualmachineinstances", "virtualmachines"]),
        on(
            &["get", "update"],
            SUBRESOURCES,
            &[
                "virtualmachineinstances/addvolume",
                "virtualmachineinstances/guestosinfo",
                "virtualmachineinstances/removevolume",
                "virtualmachines/addvolume",
                "virtualmachines/removevolume",
            ],
        ),
        on(READ, "", &["pods"]),
        on(&["*"], "", &["persistentvolumeclaims", "persistentvolumeclaims/status"]),
        // A volume is plugged in by changing the machine's own list.
        on(&["patch"], KUBEVIRT, &["virtualmachines"]),
        on(&["*"], SNAPSHOT, &["volumesnapshots"]),
    ]
}

/// The CSI driver of a guest cluster, beside [`cloud_provider`].
fn csi_driver() -> Vec<Value> {
    vec![
        on(READ, STORAGE, &["storageclasses", "volumeattachments"]),
        on(
            &["*"],
            HARVESTER,
            &[
                "networkfilesystems",
                "networkfilesystems/status",
                "volumeremotebackups",
                "volumeremoterestores",
            ],
        ),
        named(
            on(&["get", "list"], HARVESTER, &["settings"]),
            &["csi-driver-config", "csi-online-expand-validation"],
        ),
        on(&["get", "list"], "longhorn.io", &["volumes"]),
    ]
}

/// A role whose rules others gather.
fn gathered(name: &str, into: &[&str], rules: Vec<Value>) -> Value {
    let mut part = role(name, rules);
    for target in into {
        part["metadata"]["labels"][aggregation_label(target)] = json!("true");
    }
    part
}

/// The rule, for objects of these names only.
fn named(mut rule: Value, names: &[&str]) -> Value {
    rule["resourceNames"] = json!(names);
    rule
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(name: &str) -> String {
        let roles = cluster_roles();
        roles.iter().find(|role| role["metadata"]["name"] == name).unwrap()["rules"].to_string()
    }

    #[test]
    fn a_viewer_sees_machines_and_enters_none() {
        let view = rules("kubevirt.io:view") + &rules("harvesterhci.io:view");
        // The one thing that is asked with the verb of a change, and changes nothing, as in the original.
        let only_answered = expansion().to_string();
        assert!(view.contains(&only_answered), "{view}");
        let view = view.replace(&only_answered, "");
        for absent in ["console", "vnc", "portforward", "\"update\"", "\"create\"", "secrets"] {
            assert!(!view.contains(absent), "{absent}");
        }
        assert!(view.contains("guestosinfo"));
    }

    #[test]
    fn an_editor_enters_and_switches_machines() {
        for name in ["kubevirt.io:edit", "kubevirt.io:admin"] {
            for present in
                ["virtualmachineinstances/console", "virtualmachines/start", "virtualmachineinstances/reset"]
            {
                assert!(rules(name).contains(present), "{name} {present}");
            }
        }
    }

    #[test]
    fn what_is_bound_for_the_whole_cluster_touches_no_machine_of_others() {
        let csi = rules("harvesterhci.io:csi-driver");
        for absent in ["virtualmachines", "volumesnapshots", "persistentvolumeclaims", "secrets"] {
            assert!(!csi.contains(absent), "{absent}");
        }
        let provider = rules("harvesterhci.io:cloudprovider");
        assert!(
            provider.contains("volumesnapshots")
                && provider.contains("patch")
                && !provider.contains("secrets")
        );
    }

    #[test]
    fn everybody_reads_which_server_this_is_and_no_other_setting() {
        let roles = cluster_roles();
        let role = roles.iter().find(|role| role["metadata"]["name"] == AUTHENTICATED_ROLE).unwrap();
        assert_eq!(role["rules"][0]["resourceNames"], json!(OPEN_SETTINGS));
        assert_eq!(role["rules"][0]["verbs"], json!(["get", "watch"]));
    }
}
