//! harvesterhci.io/v1beta1 Setting: one knob of the cluster, its value a text.
//!
//! `value` is what somebody set, `default` what holds otherwise. [`ALL`] says which settings there are and what
//! each may be: a setting that nobody would act on cannot be made, and the ones there are stay.

mod values;

use std::collections::BTreeMap;

pub use values::ProxySetting;

use serde_json::Value;

use super::{harvester_condition::HarvesterCondition, name_column, text};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind},
    wire::{root_type, wire_type},
};

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

/// The release of Harvester whose API this is.
pub const HARVESTER_VERSION: &str = "v1.8.1";

const SNAPSHOT_CLASSES: &str = r#"{"driver.longhorn.io":{"volumeSnapshotClassName":"longhorn-snapshot","backupVolumeSnapshotClassName":"longhorn"}}"#;

/// One setting that there is.
pub struct Known {
    pub name: &'static str,
    pub default: &'static str,
    /// What it is set to from the start, where clients read the value alone.
    pub value: &'static str,
    /// Whether a value that somebody sets makes sense; the error says what would.
    check: fn(&str) -> Result<(), String>,
}

/// Every setting, in the order of their names.
pub const ALL: [Known; 11] = [
    Known { name: ADDITIONAL_CA, default: "", value: "", check: values::certificates },
    Known {
        name: GUEST_MEMORY_OVERHEAD_RATIO,
        default: "1.5",
        value: "",
        check: values::memory_overhead_ratio,
    },
    // Nothing joins a Rancher yet.
    Known { name: CLUSTER_REGISTRATION_URL, default: "", value: "", check: values::not_yet },
    Known {
        name: CSI_DRIVER_CONFIG,
        default: SNAPSHOT_CLASSES,
        value: SNAPSHOT_CLASSES,
        check: values::object_of_objects,
    },
    Known {
        name: CSI_ONLINE_EXPAND_VALIDATION,
        default: r#"{"driver.longhorn.io":true}"#,
        value: "",
        check: values::object_of_booleans,
    },
    Known { name: TERMINATION_GRACE_PERIOD, default: "120", value: "", check: values::seconds },
    Known {
        name: CSI_CCM_VERSIONS,
        default: r#"{"harvester-cloud-provider":">=0.0.1 <0.3.0","harvester-csi-provider":">=0.0.1 <0.3.0"}"#,
        value: "",
        check: values::object_of_texts,
    },
    Known { name: HTTP_PROXY, default: "{}", value: "", check: values::proxies },
    Known { name: MAX_HOTPLUG_RATIO, default: "4", value: "", check: values::hotplug_ratio },
    Known {
        name: OVERCOMMIT_CONFIG,
        default: r#"{"cpu":1000,"memory":150,"storage":100}"#,
        value: "",
        check: values::overcommit,
    },
    Known {
        name: SERVER_VERSION,
        default: HARVESTER_VERSION,
        value: HARVESTER_VERSION,
        check: values::server_version,
    },
];

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
        .columns(vec![name_column(), Column::computed("Value", |setting, _| setting["value"].clone())])
        .behaving(Behaviour { validate, generation: true, ..Behaviour::PLAIN })
}

fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let name = text(&new["metadata"]["name"]);
    let Some(known) = ALL.iter().find(|known| known.name == name) else {
        let at = FieldPath::new("metadata").child("name");
        return vec![FieldError::not_supported(&at, name, ALL.iter().map(|known| known.name))];
    };
    let changed = |field: &str| old.is_none_or(|old| text(&old[field]) != text(&new[field]));
    let mut errors = Vec::new();
    let value = text(&new["value"]);
    if changed("value")
        && let Err(why) = (known.check)(value)
    {
        errors.push(FieldError::invalid(&FieldPath::new("value"), value, why));
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
        let known = ALL.iter().find(|known| known.name == name).unwrap();
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
        for known in &ALL {
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
            (CLUSTER_REGISTRATION_URL, "https://rancher.example", "is not supported by Sheaf yet"),
        ] {
            let said = said(name, value);
            assert!(said.iter().any(|line| line.contains(words)), "{name} {value}: {said:?}");
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
        ] {
            assert_eq!(said(name, value), Vec::<String>::new(), "{name} {value}");
        }
    }

    #[test]
    fn a_setting_that_nobody_acts_on_cannot_be_made() {
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
