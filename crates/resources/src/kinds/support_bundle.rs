//! harvesterhci.io/v1beta1 SupportBundle: everything that helps others to find out what is wrong with a cluster, in one
//! file, without its secrets.
//!
//! ```text
//!   "" --a controller chooses a node--> generating --the node made the file--> ready --after `expiration`--> (deleted)
//!                                           |
//!                                           +-- it failed, or took longer than `timeout` --> error
//! ```
//!
//! A bundle has something of every namespace, so it is made in one place, where no tenant has rights: see
//! [`NAMESPACE`]. Every object of every namespace is in it, unless the setting support-bundle-namespaces chooses; those named in
//! `extraCollectionNamespaces` are in it anyway.

use serde_json::Value;

use super::{
    age_column, harvester_condition::HarvesterCondition, name_column, namespace::HARVESTER_SYSTEM, setting,
};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind},
    wire::{root_type, wire_type},
};

/// The only namespace that bundles are made in. Clients that fetch one do not say a namespace, and mean this.
pub const NAMESPACE: &str = HARVESTER_SYSTEM;

/// How a bundle stands, in `status.state`. Empty while nobody has begun.
pub const GENERATING: &str = "generating";
pub const READY: &str = "ready";
pub const ERROR: &str = "error";

/// True once the file can be fetched; False, with a message, once it never will.
pub const INITIALIZED: &str = "Initialized";

/// Minutes that a bundle may take.
pub const TIMEOUT_SETTING: &str = setting::SUPPORT_BUNDLE_TIMEOUT;
/// Minutes that one is kept.
pub const EXPIRATION_SETTING: &str = setting::SUPPORT_BUNDLE_EXPIRATION;
/// Minutes that looking at a host may take.
pub const NODE_TIMEOUT_SETTING: &str = setting::SUPPORT_BUNDLE_NODE_TIMEOUT;

const TIMEOUT_MINUTES: i64 = 50;
const EXPIRATION_MINUTES: i64 = 30;
const NODE_TIMEOUT_MINUTES: i64 = 30;

root_type! {
    /// Everything that helps others to find out what is wrong with a cluster, without its secrets.
    SupportBundle = "io.harvesterhci.v1beta1.SupportBundle",
    "harvesterhci.io" / "v1beta1" "supportbundles" NamespaceResourceScope {
        /// What it is made for.
        spec: SupportBundleSpec,
        /// How far it is.
        status: SupportBundleStatus,
    }
}

wire_type! {
    /// What a bundle is made for, and how long that may take.
    SupportBundleSpec = "io.harvesterhci.v1beta1.SupportBundleSpec" {
        /// Where the trouble is written down.
        #[serde(rename = "issueURL")]
        issue_url: String,
        /// What the trouble is.
        description: String,
        /// Namespaces that are in it, whatever the setting support-bundle-namespaces chooses.
        extra_collection_namespaces: Vec<String>,
        /// Minutes that making it may take; 0 for as long as it takes. Without it the setting support-bundle-timeout holds.
        timeout: Option<i64>,
        /// Minutes that it is kept once it can be fetched. Without it the setting support-bundle-expiration holds.
        expiration: i64,
        /// Minutes that looking at a host may take. Without it the setting support-bundle-node-collection-timeout holds.
        node_timeout: i64,
    }
}

wire_type! {
    /// How far a bundle is.
    SupportBundleStatus = "io.harvesterhci.v1beta1.SupportBundleStatus" {
        /// Nothing, `generating`, `ready` or `error`.
        state: String,
        /// Hundredths that are done.
        progress: i64,
        /// The name that the file is fetched under.
        filename: String,
        /// Bytes of the file.
        filesize: i64,
        /// The node that makes and keeps it.
        node_name: String,
        /// Initialized.
        conditions: Vec<HarvesterCondition>,
    }
}

impl SupportBundle {
    /// Minutes that making it may take; none for as long as it takes. `setting` is what holds cluster-wide, where there is
    /// such a setting.
    pub fn timeout_minutes(&self, setting: Option<&str>) -> Option<i64> {
        let minutes = self.spec.timeout.or_else(|| minutes(setting)).unwrap_or(TIMEOUT_MINUTES);
        Some(minutes).filter(|minutes| *minutes > 0)
    }

    /// Minutes that it is kept once it is ready.
    pub fn expiration_minutes(&self, setting: Option<&str>) -> i64 {
        said(self.spec.expiration).or_else(|| minutes(setting).and_then(said)).unwrap_or(EXPIRATION_MINUTES)
    }

    /// Minutes that looking at a host may take.
    pub fn node_timeout_minutes(&self, setting: Option<&str>) -> i64 {
        said(self.spec.node_timeout)
            .or_else(|| minutes(setting).and_then(said))
            .unwrap_or(NODE_TIMEOUT_MINUTES)
    }

    pub fn is_being_made(&self) -> bool {
        self.status.state == GENERATING
    }

    /// The name its file is fetched under. It follows from the object alone, so it is the same whoever asks and after a
    /// restart.
    pub fn file_name(&self) -> String {
        let uid = self.metadata.uid.as_deref().unwrap_or_default();
        let made = self.metadata.creation_timestamp.as_ref().map(|at| at.0.to_string()).unwrap_or_default();
        format!("supportbundle_{uid}_{}.zip", made.replace(':', "-"))
    }
}

fn minutes(setting: Option<&str>) -> Option<i64> {
    setting?.trim().parse().ok().filter(|minutes| *minutes >= 0)
}

/// Zero says nothing.
fn said(minutes: i64) -> Option<i64> {
    Some(minutes).filter(|minutes| *minutes > 0)
}

pub fn kind() -> Kind {
    Kind::of_type::<SupportBundle>("supportbundles")
        .short(&["sb", "sbs"])
        .columns(vec![
            name_column(),
            Column::computed("ISSUE_URL", |bundle, _| bundle["spec"]["issueURL"].clone()),
            Column::computed("DESCRIPTION", |bundle, _| bundle["spec"]["description"].clone()),
            age_column(),
        ])
        .behaving(Behaviour { validate, generation: true, ..Behaviour::PLAIN })
}

/// That a bundle stays what it was asked for, and that the namespaces it names exist, is seen where other objects are.
fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let path = FieldPath::new("spec");
    let spec = &new["spec"];
    if old.is_some_and(|old| old["spec"] == *spec) {
        return Vec::new();
    }
    let mut errors = Vec::new();
    if !spec["description"].is_string() {
        errors.push(FieldError::required(&path.child("description"), ""));
    }
    for field in ["timeout", "expiration", "nodeTimeout"] {
        if let Some(minutes) = spec[field].as_i64().filter(|minutes| *minutes < 0) {
            let why = "should be greater than or equal to 0";
            errors.push(FieldError::invalid(&path.child(field), minutes, why));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn bundle(spec: Value) -> SupportBundle {
        serde_json::from_value(json!({"metadata": {"name": "b"}, "spec": spec})).unwrap()
    }

    #[test]
    fn a_bundle_says_what_the_trouble_is_and_waits_no_negative_time() {
        let checked = |spec: Value| validate(&json!({"spec": spec}), None).len();
        assert_eq!(
            checked(json!({"description": ""})),
            0,
            "an empty one is a description, as in the original"
        );
        assert_eq!(checked(json!({})), 1);
        assert_eq!(checked(json!({"description": "x", "timeout": 0, "expiration": 0, "nodeTimeout": 0})), 0);
        assert_eq!(
            checked(json!({"description": "x", "timeout": -1, "expiration": -1, "nodeTimeout": -1})),
            3
        );
    }

    #[test]
    fn what_a_bundle_says_goes_before_the_setting_and_the_setting_before_what_is_usual() {
        let silent = bundle(json!({"description": "x"}));
        assert_eq!(silent.timeout_minutes(None), Some(50));
        assert_eq!(silent.timeout_minutes(Some("7")), Some(7));
        assert_eq!(silent.timeout_minutes(Some("0")), None, "no end");
        assert_eq!(silent.timeout_minutes(Some("soon")), Some(50));
        assert_eq!((silent.expiration_minutes(None), silent.expiration_minutes(Some("9"))), (30, 9));
        assert_eq!(silent.expiration_minutes(Some("0")), 30);
        let loud = bundle(json!({"description": "x", "timeout": 0, "expiration": 5, "nodeTimeout": 6}));
        assert_eq!(loud.timeout_minutes(Some("7")), None);
        assert_eq!((loud.expiration_minutes(Some("9")), loud.node_timeout_minutes(Some("9"))), (5, 6));
    }

    #[test]
    fn a_file_name_means_nothing_to_a_path() {
        let mut bundle = bundle(json!({"description": "../../x"}));
        bundle.metadata.uid = Some("0b1d9c3e-6d56-4f5f-8d7c-8a2f3f1f0c11".into());
        bundle.metadata.creation_timestamp = serde_json::from_value(json!("2026-01-02T03:04:05Z")).unwrap();
        assert_eq!(
            bundle.file_name(),
            "supportbundle_0b1d9c3e-6d56-4f5f-8d7c-8a2f3f1f0c11_2026-01-02T03-04-05Z.zip"
        );
    }
}
