//! harvesterhci.io/v1beta1 Setting: one knob of the cluster, its value a text.
//!
//! `value` is what somebody set, `default` what holds otherwise. [`ALL`] says which settings there are and what
//! each may be: none can be made, and the ones there are stay. Whether one is in force its condition says
//! ([`configured`]).

pub mod configured;
mod known;
pub mod networks;
mod shapes;
mod values;

use std::collections::BTreeMap;

pub use known::*;
pub use values::{ProxySetting, kubeconfig_token_ttl};

use serde_json::Value;

use super::{condition_status, harvester_condition::HarvesterCondition, name_column, text};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind},
    wire::{root_type, wire_type},
};

root_type! {
    /// One knob of the cluster.
    Setting = "io.harvesterhci.v1beta1.Setting",
    "harvesterhci.io" / "v1beta1" "settings" ClusterResourceScope {
        /// What somebody set; empty leaves the default.
        value: String,
        /// What holds while nothing is set.
        default: String,
        /// Whether the value is somebody's.
        customized: bool,
        /// Where the value comes from when not from here.
        source: String,
        /// Whether it is in force.
        status: SettingStatus,
    }
}

wire_type! {
    /// Whether a setting is in force.
    SettingStatus = "io.harvesterhci.v1beta1.SettingStatus" {
        /// `configured`.
        conditions: Vec<HarvesterCondition>,
    }
}

/// Which class snapshots are of that stay in the cluster, by driver, as the setting [`CSI_DRIVER_CONFIG`] says: what is set
/// goes before what holds otherwise, driver by driver.
pub fn snapshot_classes(default: &str, value: &str) -> BTreeMap<String, String> {
    let mut classes = BTreeMap::new();
    for text in [default, value] {
        let drivers: Value = serde_json::from_str(text).unwrap_or_default();
        for (driver, said) in drivers.as_object().into_iter().flatten() {
            classes.insert(driver.clone(), super::text(&said["volumeSnapshotClassName"]).to_owned());
        }
    }
    classes.retain(|_, class| !class.is_empty());
    classes
}

impl Setting {
    /// What holds.
    pub fn effective(&self) -> &str {
        if self.value.is_empty() { &self.default } else { &self.value }
    }
}

pub fn kind() -> Kind {
    Kind::of_type::<Setting>("settings")
        .cluster_scoped()
        .columns(vec![
            name_column(),
            Column::computed("Value", |setting, _| setting["value"].clone()),
            Column::computed("Configured", |setting, _| condition_status(setting, configured::CONFIGURED))
                .wide(),
        ])
        .behaving(Behaviour { validate, generation: true, ..Behaviour::PLAIN })
}

fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let name = text(&new["metadata"]["name"]);
    let Some(known) = find(name) else {
        let at = FieldPath::new("metadata").child("name");
        return vec![FieldError::not_supported(&at, name, ALL.iter().map(|known| known.name))];
    };
    let changed = |field: &str| old.is_none_or(|old| text(&old[field]) != text(&new[field]));
    let mut errors = Vec::new();
    let value = text(&new["value"]);
    if changed("value")
        && let Err(why) = (known.check)(value)
    {
        // The value is not said again: it may hold what nobody should read in a log.
        let error = FieldError::invalid(&FieldPath::new("value"), Value::Null, why);
        errors.push(FieldError { bad_value: None, ..error });
    }
    // What holds while nothing is set is the server's to say; a value is how somebody else has a say.
    if changed("default") && text(&new["default"]) != known.default {
        errors
            .push(FieldError::forbidden(&FieldPath::new("default"), "the default of a setting is read-only"));
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(name: &str, value: &str) -> Vec<String> {
        let known = find(name).unwrap();
        let old = json!({"metadata": {"name": name}, "value": known.value, "default": known.default});
        let mut new = old.clone();
        new["value"] = json!(value);
        validate(&new, Some(&old)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_value_wins_over_its_default() {
        let mut setting = Setting { default: "120".into(), ..Setting::default() };
        assert_eq!(setting.effective(), "120");
        setting.value = "60".into();
        assert_eq!(setting.effective(), "60");
    }

    #[test]
    fn what_every_cluster_begins_with_makes_sense() {
        for known in ALL {
            let setting =
                json!({"metadata": {"name": known.name}, "value": known.value, "default": known.default});
            assert_eq!(validate(&setting, None), [], "{}", known.name);
            assert_eq!((known.check)(known.default), Ok(()), "{}", known.name);
        }
        assert!(ALL.is_sorted_by_key(|known| known.name));
    }

    #[test]
    fn nobody_tells_the_server_its_version() {
        assert_eq!(said(SERVER_VERSION, HARVESTER_VERSION), Vec::<String>::new());
        for other in ["v9", ""] {
            assert!(said(SERVER_VERSION, other)[0].contains("server-version is read-only"));
        }
    }

    #[test]
    fn a_value_nobody_could_act_on_is_refused() {
        for (name, value, words) in [
            (OVERCOMMIT_CONFIG, "lots", "is not JSON"),
            (OVERCOMMIT_CONFIG, r#"{"cpu":50,"memory":150,"storage":100}"#, "at least 100"),
            (OVERCOMMIT_CONFIG, r#"{"cpu":"many"}"#, "at least 100"),
            (TERMINATION_GRACE_PERIOD, "-1", "whole number of seconds"),
            (TERMINATION_GRACE_PERIOD, "soon", "whole number of seconds"),
            (GUEST_MEMORY_OVERHEAD_RATIO, "0.5", "between 1.0 and 10.0"),
            (GUEST_MEMORY_OVERHEAD_RATIO, "NaN", "between 1.0 and 10.0"),
            (CSI_ONLINE_EXPAND_VALIDATION, r#"{"a":"b"}"#, "true or false"),
            (CSI_DRIVER_CONFIG, r#"{"a":"b"}"#, "an object for each"),
            (HTTP_PROXY, r#"{"httpProxy":"proxy:3128"}"#, "must begin with http://"),
            (HTTP_PROXY, r#"{"httpsProxy":7}"#, "must be a text"),
            (HTTP_PROXY, r#"{"ftpProxy":""}"#, "only httpProxy, httpsProxy and noProxy"),
            (ADDITIONAL_CA, "trust me", "certificates in PEM"),
            (
                ADDITIONAL_CA,
                "-----BEGIN CERTIFICATE-----\n*\n-----END CERTIFICATE-----",
                "certificates in PEM",
            ),
            (
                ADDITIONAL_CA,
                "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----",
                "certificates in PEM",
            ),
            (CLUSTER_REGISTRATION_URL, "https://rancher.example", "is not JSON"),
            (CLUSTER_REGISTRATION_URL, r#"{"url":"https://rancher/v3/import/hush_c.yaml"}"#, "is a secret"),
            ("backup-target", r#"{"type":"s3","accessKeyId":"a"}"#, "accessKeyId is a secret"),
            ("backup-target", r#"{"type":"s3","secretAccessKey":"hush"}"#, "secretAccessKey is a secret"),
            ("backup-target", r#"{"type":"s3","bucketName":"b"}"#, "type s3 needs accessKeyId"),
            ("backup-target", r#"{"type":"nfs","endpoint":"server:/share"}"#, "must begin with nfs://"),
            ("backup-target", r#"{"type":"tape","endpoint":"x"}"#, "s3 or nfs"),
            ("ssl-certificates", r#"{"privateKey":"hush"}"#, "privateKey is a secret"),
            ("ssl-certificates", r#"{"ca":"trust me"}"#, "certificates in PEM"),
            ("ssl-parameters", r#"{"protocols":"TLSv1.2 TLSv9"}"#, "unsupported SSL protocol: TLSv9"),
            (
                "containerd-registry",
                r#"{"Configs":{"r":{"Auth":{"Username":"u","Password":"hush"}}}}"#,
                "Auth of r is a secret",
            ),
            ("containerd-registry", r#"{"Mirror":{}}"#, "only Mirrors and Configs"),
            ("log-level", "loud", "must be one of panic, fatal"),
            ("ui-source", "both", "must be one of auto"),
            ("upgrade-checker-enabled", "yes", "must be one of true, false"),
            ("upgrade-checker-url", "ftp://x", "begins with https://"),
            ("release-download-url", "https://u:hush@host/x", "no user and no password"),
            ("ntp-servers", r#"{"ntpServers":null}"#, "wrong type"),
            ("ntp-servers", r#"{"ntpServers":["a.b","a.b"]}"#, "duplicate NTP server: a.b"),
            ("ntp-servers", r#"{"ntpServers":["http://a.b"]}"#, "should not start with http://"),
            ("ntp-servers", r#"{"ntpServers":["a b"]}"#, "invalid NTP server: a b"),
            ("auto-rotate-rke2-certs", r#"{"enable":true,"expiringInHours":0}"#, "from 1 to 8759"),
            ("vm-force-reset-policy", r#"{"enable":true,"period":0}"#, "greater than 0, value: 0"),
            ("vm-force-reset-policy", r#"{"enable":true}"#, "missing field `period`"),
            ("kubevirt-migration", r#"{"nodeDrainTaintKey":"x"}"#, "unknown field `nodeDrainTaintKey`"),
            ("kubevirt-migration", r#"{"bandwidthPerMigration":"lots"}"#, "must be a quantity"),
            ("upgrade-config", r#"{"imagePreloadOption":{"strategy":{"type":"x"}}}"#, "strategy type: x"),
            (OVERCOMMIT_CONFIG, r#"{"cpus":1000}"#, "cpus cannot be overcommitted"),
            ("support-bundle-timeout", "-1", "whole number of minutes"),
            ("support-bundle-file-name", "../../etc/passwd", "must be letters, digits"),
            ("support-bundle-namespaces", "a,B!", "namespace B!"),
            ("support-bundle-image", r#"{"repository":"r"}"#, "image field can't be blank"),
            (KUBECONFIG_TOKEN_TTL, "52560001", "from 0 to 52560000"),
            ("instance-manager-resources", r#"{"cpu":{"v1":"41"}}"#, "from \"0\" to \"40\""),
            ("cluster-pod-security-standard", r#"{"enabled":"yes"}"#, "wrong type"),
            (
                "cluster-pod-security-standard",
                r#"{"privilegedNamespacesList":"a","restrictedNamespacesList":"a"}"#,
                "more than one list",
            ),
            (
                "rancher-cluster",
                r#"{"removeUpstreamClusterWhenNamespaceIsDeleted":true}"#,
                "not supported by Sheaf yet",
            ),
            (STORAGE_NETWORK, r#"{"vlan":5000,"clusterNetwork":"a","range":"10.1.0.0/24"}"#, "0 to 4094"),
            (
                STORAGE_NETWORK,
                r#"{"vlan":1,"clusterNetwork":"mgmt","range":"10.1.0.0/24"}"#,
                "not allowed on mgmt",
            ),
            (
                STORAGE_NETWORK,
                r#"{"vlan":5,"clusterNetwork":"a","range":"10.1.0.5/24"}"#,
                "subnet CIDR 10.1.0.0/24",
            ),
            (STORAGE_NETWORK, r#"{"vlan":5,"clusterNetwork":"a","range":"10.0.0.0/8"}"#, "too wide"),
            (
                VM_MIGRATION_NETWORK,
                r#"{"vlan":5,"clusterNetwork":"a","range":"10.1.0.0/24","exclude":["10.2.0.0/28"]}"#,
                "do not overlap",
            ),
            (
                VM_MIGRATION_NETWORK,
                r#"{"vlan":5,"clusterNetwork":"a","range":"10.1.0.0/24","exclude":["10.1.0.0/24"]}"#,
                "leaves no addresses",
            ),
            (RWX_NETWORK, r#"{"share-storage-network":true,"network":{}}"#, "has no place beside"),
            ("vip-pools", r#"{"default":"10.0.0.9-10.0.0.1"}"#, "neither a CIDR nor a range"),
            ("upgradable-versions", "v9", "is not supported by Sheaf yet"),
            ("auto-disk-provision-paths", "/etc/*", "begin with /dev/"),
        ] {
            let said = said(name, value);
            assert!(said.iter().any(|line| line.contains(words)), "{name} {value}: {said:?}");
            assert!(!said.iter().any(|line| line.contains("hush")), "a secret is told again: {said:?}");
        }
        for (name, value) in [
            (OVERCOMMIT_CONFIG, r#"{"cpu":100,"memory":100,"storage":100}"#),
            (TERMINATION_GRACE_PERIOD, "0"),
            (GUEST_MEMORY_OVERHEAD_RATIO, "0"),
            (GUEST_MEMORY_OVERHEAD_RATIO, "10.0"),
            (GUEST_MEMORY_OVERHEAD_RATIO, ""),
            (CSI_ONLINE_EXPAND_VALIDATION, r#"{"a":false}"#),
            (CLUSTER_REGISTRATION_URL, ""),
            (HTTP_PROXY, ""),
            (HTTP_PROXY, r#"{"httpProxy":"http://u:p@proxy:3128","httpsProxy":"","noProxy":"a,10.0.0.0/8"}"#),
            (ADDITIONAL_CA, "-----BEGIN CERTIFICATE-----\nAAAA\nAAAA\n-----END CERTIFICATE-----\n"),
            ("backup-target", r#"{"type":"nfs","endpoint":"nfs://server:/share"}"#),
            ("backup-target", r#"{"type":"","endpoint":"","accessKeyId":"","secretAccessKey":""}"#),
            (
                "containerd-registry",
                r#"{"Mirrors":{"docker.io":{"Endpoints":["https://r"],"Rewrites":null}},"Configs":null}"#,
            ),
            ("log-level", "warning"),
            ("ntp-servers", r#"{"ntpServers":["0.suse.pool.ntp.org","::1"]}"#),
            ("kubevirt-migration", r#"{"bandwidthPerMigration":"40Gi","allowPostCopy":true}"#),
            ("instance-manager-resources", r#"{"cpu":{"v1":"20","v2":"0"}}"#),
            (
                RWX_NETWORK,
                r#"{"share-storage-network":false,"network":{"vlan":2,"clusterNetwork":"a","range":"10.1.0.0/24","exclude":["10.1.0.0/32"]}}"#,
            ),
            (STORAGE_NETWORK, r#"{"vlan":100,"clusterNetwork":"mgmt","range":"192.168.0.0/24"}"#),
            (
                "vip-pools",
                r#"{"default":"172.16.0.0/24","demo":"172.16.2.50-172.16.2.100,172.16.2.150-172.16.3.200"}"#,
            ),
            ("auto-disk-provision-paths", "/dev/sd*,/dev/hd*"),
            (KUBECONFIG_TOKEN_TTL, "90"),
        ] {
            assert_eq!(said(name, value), Vec::<String>::new(), "{name} {value}");
        }
    }

    #[test]
    fn every_setting_can_be_put_back_but_the_servers_own() {
        for known in ALL.iter().filter(|known| known.name != SERVER_VERSION) {
            assert_eq!(said(known.name, ""), Vec::<String>::new(), "{}", known.name);
        }
    }

    #[test]
    fn a_token_lives_for_ever_or_as_long_as_is_said() {
        assert_eq!(kubeconfig_token_ttl("0"), None);
        assert_eq!(kubeconfig_token_ttl("90"), Some(std::time::Duration::from_secs(5400)));
    }

    #[test]
    fn a_network_setting_names_its_cluster_network() {
        assert_eq!(networks::cluster_network_of(""), None);
        assert_eq!(networks::cluster_network_of(r#"{"share-storage-network":false}"#), None);
        let named = r#"{"vlan":2,"clusterNetwork":"a","range":"10.1.0.0/24"}"#;
        assert_eq!(networks::cluster_network_of(named).as_deref(), Some("a"));
        let inside = format!(r#"{{"share-storage-network":false,"network":{named}}}"#);
        assert_eq!(networks::cluster_network_of(&inside).as_deref(), Some("a"));
    }

    #[test]
    fn a_setting_that_there_is_not_cannot_be_made() {
        let errors = validate(&json!({"metadata": {"name": "my-own"}, "value": "x"}), None);
        assert_eq!(errors[0].field, "metadata.name");
        let mut old = json!({"metadata": {"name": TERMINATION_GRACE_PERIOD}, "default": "120"});
        let new = old.clone();
        assert_eq!(validate(&new, Some(&old)), []);
        old["default"] = json!("120");
        let mut moved = old.clone();
        moved["default"] = json!("5");
        assert_eq!(validate(&moved, Some(&old))[0].field, "default");
    }
}
