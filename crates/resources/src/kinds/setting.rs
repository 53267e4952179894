//! harvesterhci.io/v1beta1 Setting: one knob of the cluster, its value a text.
//!
//! `value` is what somebody set, `default` what holds otherwise. Which settings there are,
//! and what each may be, is for whoever acts on them.

use serde_json::Value;

use super::{harvester_condition::HarvesterCondition, name_column};
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

/// Which server this is is not for clients to say.
fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let fixed = new["metadata"]["name"] == SERVER_VERSION;
    if fixed && old.is_some_and(|old| old["value"] != new["value"]) {
        return vec![FieldError::forbidden(&FieldPath::new("value"), "server-version is read-only")];
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_wins_over_its_default() {
        let mut setting = Setting { default: "120".into(), ..Setting::default() };
        assert_eq!(setting.effective(), "120");
        setting.value = "60".into();
        assert_eq!(setting.effective(), "60");
    }

    #[test]
    fn nobody_tells_the_server_its_version() {
        let old = json!({"metadata": {"name": SERVER_VERSION}, "value": "v1.8.1"});
        let mut new = old.clone();
        assert!(validate(&new, Some(&old)).is_empty());
        new["value"] = json!("v9");
        assert_eq!(validate(&new, Some(&old)).len(), 1);
    }
}
