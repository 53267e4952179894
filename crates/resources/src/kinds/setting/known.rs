//! Every setting of Harvester v1.8: what holds while nobody sets it, what it may be, and what becomes of it here.
//!
//! A setting that nothing acts on yet is here too, since clients look for it. Its condition says so, and a value that has
//! a secret in it is refused rather than kept for nothing: see [`super::configured`].

use super::{networks, shapes, values};

/// Clients ask this one which server they speak to.
pub const SERVER_VERSION: &str = "server-version";
pub const OVERCOMMIT_CONFIG: &str = "overcommit-config";
pub const TERMINATION_GRACE_PERIOD: &str = "default-vm-termination-grace-period-seconds";
pub const GUEST_MEMORY_OVERHEAD_RATIO: &str = "additional-guest-memory-overhead-ratio";
pub const CSI_DRIVER_CONFIG: &str = "csi-driver-config";
pub const CSI_ONLINE_EXPAND_VALIDATION: &str = "csi-online-expand-validation";
pub const CSI_CCM_VERSIONS: &str = "harvester-csi-ccm-versions";
pub const CLUSTER_REGISTRATION_URL: &str = "cluster-registration-url";
/// How the cluster reaches what is outside of it.
pub const HTTP_PROXY: &str = "http-proxy";
/// Certificates that are trusted beside those that every host trusts.
pub const ADDITIONAL_CA: &str = "additional-ca";
pub const MAX_HOTPLUG_RATIO: &str = "max-hotplug-ratio";
/// How much the processes of the cluster say in their logs.
pub const LOG_LEVEL: &str = "log-level";
/// How long a token in a kubeconfig lives that somebody had made.
pub const KUBECONFIG_TOKEN_TTL: &str = "kubeconfig-default-token-ttl-minutes";
/// The class of snapshots that a machine is restored from in another namespace.
pub const VOLUME_SNAPSHOT_CLASS: &str = "volume-snapshot-class";
/// Networks of their own for what goes between nodes.
pub const STORAGE_NETWORK: &str = "storage-network";
pub const VM_MIGRATION_NETWORK: &str = "vm-migration-network";
pub const RWX_NETWORK: &str = "rwx-network";
/// What a bundle for support has in it, and how long it may take and stay.
pub const SUPPORT_BUNDLE_NAMESPACES: &str = "support-bundle-namespaces";
pub const SUPPORT_BUNDLE_TIMEOUT: &str = "support-bundle-timeout";
pub const SUPPORT_BUNDLE_EXPIRATION: &str = "support-bundle-expiration";
pub const SUPPORT_BUNDLE_NODE_TIMEOUT: &str = "support-bundle-node-collection-timeout";
pub const SUPPORT_BUNDLE_FILE_NAME: &str = "support-bundle-file-name";

/// The release of Harvester whose API this is.
pub const HARVESTER_VERSION: &str = "v1.8.1";

const SNAPSHOT_CLASSES: &str = r#"{"driver.longhorn.io":{"volumeSnapshotClassName":"longhorn-snapshot","backupVolumeSnapshotClassName":"longhorn"}}"#;

/// What becomes of a value that somebody sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It holds from the moment it is written: who acts on it looks at it each time.
    AtOnce,
    /// The same, except for what the sentence says.
    InPart(&'static str),
    /// The processes of the cluster put it in force, and say whether they could.
    Applied,
    /// Nothing acts on it yet. The sentence says what does not happen.
    NotYet(&'static str),
}

/// One setting that there is.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    pub name: &'static str,
    pub default: &'static str,
    /// What it is set to from the start, where clients read the value alone.
    pub value: &'static str,
    pub effect: Effect,
    /// Whether a value that somebody sets makes sense; the error says what would.
    pub(super) check: fn(&str) -> Result<(), String>,
}

/// The setting of that name, if there is one.
pub fn find(name: &str) -> Option<&'static Known> {
    ALL.iter().find(|known| known.name == name)
}

const fn acts(name: &'static str, default: &'static str, check: fn(&str) -> Result<(), String>) -> Known {
    Known { name, default, value: "", effect: Effect::AtOnce, check }
}

const fn idle(
    name: &'static str,
    default: &'static str,
    check: fn(&str) -> Result<(), String>,
    why: &'static str,
) -> Known {
    Known { name, default, value: "", effect: Effect::NotYet(why), check }
}

const CONSOLE: &str = "the web console is built in and never loaded from elsewhere";
const UPGRADES: &str = "clusters are not upgraded from within yet";
const RANCHER: &str = "clusters do not join a Rancher yet";

/// Every setting, in the order of their names.
pub const ALL: &[Known] = &[
    acts(ADDITIONAL_CA, "", values::certificates),
    Known {
        effect: Effect::InPart(
            "0 keeps 100Mi of a machine's memory back, any other ratio keeps nothing back; how much memory QEMU itself \
             may take is computed for each machine and not multiplied",
        ),
        ..acts(GUEST_MEMORY_OVERHEAD_RATIO, "1.5", values::memory_overhead_ratio)
    },
    idle("api-ui-version", "1.1.9", values::word, CONSOLE),
    idle(
        "auto-disk-provision-paths",
        "",
        values::device_patterns,
        "disks are not taken into use by themselves",
    ),
    idle(
        "auto-rotate-rke2-certs",
        r#"{"enable":false,"expiringInHours":240}"#,
        shapes::certificate_rotation,
        "there is no RKE2 here; the certificates of a node are always renewed before they end",
    ),
    idle("backup-target", "", shapes::backup_target, "nothing is backed up to outside of the cluster yet"),
    idle(
        "cluster-pod-security-standard",
        r#"{"enabled":false,"whitelistedNamespacesList":"","privilegedNamespacesList":"","restrictedNamespacesList":""}"#,
        shapes::pod_security,
        "there are no pods of anybody's that could be held to a standard",
    ),
    idle(
        CLUSTER_REGISTRATION_URL,
        r#"{"url":"","insecureSkipTLSVerify":false}"#,
        shapes::registration,
        RANCHER,
    ),
    idle("containerd-registry", "", shapes::registry, "there is no containerd here that would pull images"),
    Known {
        value: SNAPSHOT_CLASSES,
        effect: Effect::InPart("backupVolumeSnapshotClassName waits for backups to outside of the cluster"),
        ..acts(CSI_DRIVER_CONFIG, SNAPSHOT_CLASSES, values::object_of_objects)
    },
    acts(CSI_ONLINE_EXPAND_VALIDATION, r#"{"driver.longhorn.io":true}"#, values::object_of_booleans),
    Known {
        // The class of that name is not here; clients that go by this setting find one that is.
        value: "harvester-longhorn",
        ..idle(
            "default-storage-class",
            "longhorn",
            values::object_name,
            "the default class is the one with the annotation storageclass.kubernetes.io/is-default-class",
        )
    },
    acts(TERMINATION_GRACE_PERIOD, "120", values::seconds),
    acts(
        CSI_CCM_VERSIONS,
        r#"{"harvester-cloud-provider":">=0.0.1 <0.3.0","harvester-csi-provider":">=0.0.1 <0.3.0"}"#,
        values::object_of_texts,
    ),
    acts(HTTP_PROXY, "{}", values::proxies),
    idle(
        "instance-manager-resources",
        r#"{"cpu":{}}"#,
        shapes::instance_manager,
        "there are no instance managers here: disks are served by QEMU itself",
    ),
    acts(KUBECONFIG_TOKEN_TTL, "0", values::token_minutes),
    idle(
        "kubevirt-migration",
        r#"{"parallelOutboundMigrationsPerNode":2,"parallelMigrationsPerCluster":5,"allowAutoConverge":false,"bandwidthPerMigration":0,"completionTimeoutPerGiB":150,"progressTimeout":150,"unsafeMigrationOverride":false,"allowPostCopy":false,"allowWorkloadDisruption":false,"disableTLS":false,"matchSELinuxLevelOnMigration":false}"#,
        shapes::migration,
        "machines do not move from node to node yet",
    ),
    Known { effect: Effect::Applied, ..acts(LOG_LEVEL, "info", values::log_level) },
    idle(
        "longhorn-v2-data-engine-enabled",
        "false",
        values::boolean,
        "there is no Longhorn here whose engine could be chosen",
    ),
    acts(MAX_HOTPLUG_RATIO, "4", values::hotplug_ratio),
    idle("ntp-servers", "", shapes::time_servers, "the clock of a host is kept by the host"),
    acts(OVERCOMMIT_CONFIG, r#"{"cpu":1000,"memory":150,"storage":100}"#, values::overcommit),
    idle("rancher-cluster", "{}", shapes::rancher_cluster, RANCHER),
    idle("release-download-url", "https://releases.rancher.com/harvester", values::url, UPGRADES),
    idle(
        RWX_NETWORK,
        r#"{"share-storage-network":false}"#,
        networks::of_shared_volumes,
        "disks are on one node and go over no network",
    ),
    Known { value: HARVESTER_VERSION, ..acts(SERVER_VERSION, HARVESTER_VERSION, values::server_version) },
    idle(
        "ssl-certificates",
        "{}",
        shapes::certificates,
        "the API shows the certificate of its node, which kubeconfigs know",
    ),
    idle("ssl-parameters", "{}", shapes::tls_parameters, "the API speaks TLS 1.2 and 1.3, and nothing older"),
    idle(STORAGE_NETWORK, "", networks::of_nodes, "disks are on one node and go over no network"),
    acts(SUPPORT_BUNDLE_EXPIRATION, "30", values::minutes),
    idle(
        SUPPORT_BUNDLE_FILE_NAME,
        "",
        values::file_name_part,
        "bundles for support are called after their uid and when they were made",
    ),
    idle("support-bundle-image", "{}", shapes::container_image, "nodes make bundles for support themselves"),
    acts(SUPPORT_BUNDLE_NAMESPACES, "", values::namespaces),
    acts(SUPPORT_BUNDLE_NODE_TIMEOUT, "30", values::minutes),
    acts(SUPPORT_BUNDLE_TIMEOUT, "50", values::minutes),
    idle(
        "ui-index",
        "https://releases.rancher.com/harvester-ui/dashboard/release-harvester-v1.8/index.html",
        values::url,
        CONSOLE,
    ),
    idle("ui-path", "/usr/share/harvester/harvester", values::absolute_path, CONSOLE),
    idle(
        "ui-plugin-index",
        "https://releases.rancher.com/harvester-ui/plugin/harvester-release-harvester-v1.8/harvester-release-harvester-v1.8.umd.min.js",
        values::url,
        CONSOLE,
    ),
    idle("ui-source", "auto", values::ui_source, CONSOLE),
    idle("upgradable-versions", "", values::not_yet, UPGRADES),
    idle("upgrade-checker-enabled", "true", values::boolean, "nobody is asked for newer versions"),
    idle(
        "upgrade-checker-url",
        "https://harvester-upgrade-responder.rancher.io/v1/checkupgrade",
        values::url,
        "nobody is asked for newer versions",
    ),
    idle(
        "upgrade-config",
        r#"{"imagePreloadOption":{"strategy":{"type":"sequential"}},"nodeUpgradeOption":{"strategy":{"mode":"auto"}},"restoreVM":false,"logReadyTimeout":"5"}"#,
        shapes::upgrade,
        UPGRADES,
    ),
    idle("vip-pools", "", networks::address_pools, "it is the older form of address pools"),
    idle(
        "vm-force-reset-policy",
        r#"{"enable":true,"period":15,"vmMigrationTimeout":180}"#,
        shapes::force_reset,
        "there is no other node yet that a machine could be started on",
    ),
    idle(VM_MIGRATION_NETWORK, "", networks::of_nodes, "machines do not move from node to node yet"),
    idle(
        VOLUME_SNAPSHOT_CLASS,
        "longhorn",
        values::object_name,
        "machines are restored in their own namespace alone",
    ),
];
