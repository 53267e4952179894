//! How much of each kind may be shown.

/// From what is shown whole, but for secrets, to what shows nothing but its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// Thought about: its words are shown, but for those in places where secrets are.
    Known,
    /// A definition, whose defaults and examples are somebody's.
    Definition,
    /// The names of the values it holds, and these fields.
    Names(&'static [&'static str]),
    /// These fields and no others.
    Only(&'static [&'static str]),
    /// A value that is shown where the object has one of these names.
    Named { field: &'static [&'static str], names: &'static [&'static str] },
    /// Nobody knows what it holds: its fields, numbers and conditions are shown, its words are not.
    Shape,
}

const USER: &[&str] = &["username", "enabled", "mustChangePassword", "principalIds", "groups"];
const TOKEN: &[&str] = &["authProvider", "enabled", "expiresAt", "isDerived", "ttl", "userId"];

/// Settings that hold numbers, versions and names of ours, in order. The others may hold credentials: of a proxy, a
/// registry, a backup target, in a URL.
const HARMLESS_SETTINGS: &[&str] = &[
    "additional-guest-memory-overhead-ratio",
    "auto-disk-provision-paths",
    "csi-driver-config",
    "csi-online-expand-validation",
    "default-storage-class",
    "default-vm-termination-grace-period-seconds",
    "harvester-csi-ccm-versions",
    "log-level",
    "max-hotplug-ratio",
    "overcommit-config",
    "server-version",
    "support-bundle-expiration",
    "support-bundle-namespaces",
    "support-bundle-node-collection-timeout",
    "support-bundle-timeout",
    "upgrade-checker-enabled",
    "vm-force-reset-policy",
];

pub(super) fn of(group: &str, plural: &str) -> Rule {
    match (group, plural) {
        ("", "secrets") => Rule::Names(&["type", "immutable"]),
        ("", "configmaps") => Rule::Names(&["immutable"]),
        ("management.cattle.io", "users") => Rule::Only(USER),
        ("management.cattle.io", "tokens") => Rule::Only(TOKEN),
        ("harvesterhci.io", "settings") => {
            Rule::Named { field: &["value", "default"], names: HARMLESS_SETTINGS }
        }
        ("apiextensions.k8s.io", "customresourcedefinitions") => Rule::Definition,
        (
            "",
            "events"
            | "limitranges"
            | "namespaces"
            | "nodes"
            | "persistentvolumeclaims"
            | "persistentvolumes"
            | "pods"
            | "resourcequotas"
            | "serviceaccounts",
        )
        | ("events.k8s.io", "events")
        | ("coordination.k8s.io", "leases")
        | ("rbac.authorization.k8s.io", "clusterrolebindings" | "clusterroles" | "rolebindings" | "roles")
        | ("storage.k8s.io", "storageclasses" | "volumeattachments")
        | (
            "snapshot.storage.k8s.io",
            "volumesnapshotclasses" | "volumesnapshotcontents" | "volumesnapshots",
        )
        | ("kubevirt.io", "kubevirts" | "virtualmachineinstances" | "virtualmachines")
        | ("clone.kubevirt.io", "virtualmachineclones")
        | (
            "harvesterhci.io",
            "keypairs"
            | "supportbundles"
            | "virtualmachinebackups"
            | "virtualmachineimages"
            | "virtualmachinerestores",
        )
        | ("k8s.cni.cncf.io", "network-attachment-definitions")
        | (
            "network.harvesterhci.io",
            "clusternetworks"
            | "ippools"
            | "linkmonitors"
            | "virtualmachinenetworkconfigs"
            | "vlanconfigs"
            | "vlanstatuses",
        ) => Rule::Known,
        // Also of ours, until somebody has thought about it here.
        _ => Rule::Shape,
    }
}
