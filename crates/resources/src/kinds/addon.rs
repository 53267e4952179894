//! harvesterhci.io/v1beta1 Addon: a part of Harvester that can be switched on.
//!
//! Each is a Helm chart there, which runs in containers. Sheaf runs none of them, and says so: the shipped ones are listed
//! for clients that look for them, all of them off, and nothing about them can be changed.

use serde_json::{Value, json};

use super::{
    age_column, harvester_condition::HarvesterCondition, name_column, namespace::HARVESTER_SYSTEM, text,
};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind},
    wire::{root_type, wire_type},
};

pub const DISABLED: &str = "AddonDisabled";
/// What is not finished in the original, either.
pub const EXPERIMENTAL_LABEL: &str = "addon.harvesterhci.io/experimental";
/// What people are shown instead of the name.
pub const DISPLAY_NAME_LABEL: &str = "addon.harvesterhci.io/displayName";
/// Where the charts of the original are.
const REPOSITORY: &str = "http://harvester-cluster-repo.cattle-system.svc/charts";
pub const MONITORING_NAMESPACE: &str = "cattle-monitoring-system";
pub const LOGGING_NAMESPACE: &str = "cattle-logging-system";

root_type! {
    /// A part of Harvester that can be switched on. Sheaf runs none of them.
    Addon = "io.harvesterhci.v1beta1.Addon",
    "harvesterhci.io" / "v1beta1" "addons" NamespaceResourceScope {
        /// What it is.
        spec: AddonSpec,
        /// Whether it is on.
        status: AddonStatus,
    }
}

// Written out, since all of it is always said: clients read a missing `enabled` as nothing.
/// An addon, as Harvester knows it.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "io.harvesterhci.v1beta1.AddonSpec")]
pub struct AddonSpec {
    /// Where its chart is.
    pub repo: String,
    /// The chart.
    pub chart: String,
    /// The chart's version.
    pub version: String,
    /// Whether it is to be on. None can be.
    pub enabled: bool,
    /// What the chart is given.
    pub values_content: String,
}

wire_type! {
    /// Whether an addon is on.
    AddonStatus = "io.harvesterhci.v1beta1.AddonStatus" {
        /// AddonDisabled.
        status: String,
        /// What is being done with it.
        conditions: Vec<HarvesterCondition>,
    }
}

/// An addon that Harvester ships.
pub struct Shipped {
    pub name: &'static str,
    pub namespace: &'static str,
    chart: &'static str,
    version: &'static str,
    is_experimental: bool,
    shown_as: &'static str,
}

const fn shipped(
    name: &'static str,
    namespace: &'static str,
    chart: &'static str,
    version: &'static str,
) -> Shipped {
    Shipped { name, namespace, chart, version, is_experimental: false, shown_as: "" }
}

const KUBE_SYSTEM: &str = "kube-system";

pub const SHIPPED: [Shipped; 8] = [
    shipped("vm-import-controller", HARVESTER_SYSTEM, "harvester-vm-import-controller", "1.8.1"),
    shipped("pcidevices-controller", HARVESTER_SYSTEM, "harvester-pcidevices-controller", "1.8.1"),
    Shipped {
        is_experimental: true,
        ..shipped("harvester-seeder", HARVESTER_SYSTEM, "harvester-seeder", "1.8.1")
    },
    shipped("nvidia-driver-toolkit", HARVESTER_SYSTEM, "nvidia-driver-runtime", "1.8.1"),
    shipped("rancher-monitoring", MONITORING_NAMESPACE, "rancher-monitoring", "108.0.2+up77.9.1-rancher.11"),
    shipped("rancher-logging", LOGGING_NAMESPACE, "rancher-logging", "108.0.2+up4.10.0-rancher.18"),
    Shipped {
        is_experimental: true,
        ..shipped("kubeovn-operator", KUBE_SYSTEM, "kubeovn-operator", "1.15.4-r2")
    },
    Shipped {
        is_experimental: true,
        shown_as: "virtual-machine-auto-balance",
        ..shipped("descheduler", KUBE_SYSTEM, "descheduler", "0.33.0")
    },
];

impl Shipped {
    /// The object that every cluster has of it.
    pub fn object(&self) -> Value {
        let mut labels = json!({});
        if self.is_experimental {
            labels[EXPERIMENTAL_LABEL] = json!("true");
        }
        if !self.shown_as.is_empty() {
            labels[DISPLAY_NAME_LABEL] = json!(self.shown_as);
        }
        json!({
            "apiVersion": "harvesterhci.io/v1beta1", "kind": "Addon",
            "metadata": {"name": self.name, "namespace": self.namespace, "labels": labels},
            "spec": {"repo": REPOSITORY, "chart": self.chart, "version": self.version, "enabled": false,
                "valuesContent": ""},
            "status": {"status": DISABLED},
        })
    }
}

/// Whether an addon is one of those that every cluster has.
pub fn is_shipped(namespace: &str, name: &str) -> bool {
    SHIPPED.iter().any(|addon| (addon.namespace, addon.name) == (namespace, name))
}

pub fn kind() -> Kind {
    Kind::of_type::<Addon>("addons")
        .with_status()
        .columns(vec![
            name_column(),
            Column::computed("HelmRepo", |addon, _| addon["spec"]["repo"].clone()),
            Column::computed("ChartName", |addon, _| addon["spec"]["chart"].clone()),
            Column::computed("Enabled", |addon, _| addon["spec"]["enabled"].clone()),
            age_column(),
        ])
        .behaving(Behaviour { validate, generation: true, ..Behaviour::PLAIN })
}

fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let (namespace, name) = (text(&new["metadata"]["namespace"]), text(&new["metadata"]["name"]));
    let spec = FieldPath::new("spec");
    if new["spec"]["enabled"] == true {
        let why = format!("Sheaf does not run the addon {name}: it cannot be enabled");
        return vec![FieldError::forbidden(&spec.child("enabled"), why)];
    }
    match old {
        None if !is_shipped(namespace, name) => {
            let why = "Sheaf runs no addons: there are those that Harvester ships, and no others can be made";
            vec![FieldError::forbidden(&FieldPath::new("metadata").child("name"), why)]
        }
        Some(old) if old["spec"] != new["spec"] => {
            let why = format!("Sheaf does not run the addon {name}: a change of it would have no effect");
            vec![FieldError::forbidden(&spec, why)]
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_addon_is_listed_and_off() {
        for addon in &SHIPPED {
            let object = addon.object();
            assert_eq!(validate(&object, None), [], "{}", addon.name);
            let typed: Addon = serde_json::from_value(object.clone()).unwrap();
            assert_eq!((typed.status.status.as_str(), typed.spec.enabled), (DISABLED, false));
            assert_eq!(serde_json::to_value(typed).unwrap()["spec"], object["spec"], "all of it is said");
        }
    }

    #[test]
    fn none_is_switched_on_or_changed_or_made() {
        let old = SHIPPED[0].object();
        for (pointer, value, words) in [
            ("/spec/enabled", json!(true), "Sheaf does not run the addon vm-import-controller"),
            ("/spec/valuesContent", json!("a: b"), "would have no effect"),
            ("/spec/chart", json!("other"), "would have no effect"),
        ] {
            let mut new = old.clone();
            *new.pointer_mut(pointer).unwrap() = value;
            let errors = validate(&new, Some(&old));
            assert!(errors[0].to_string().contains(words), "{pointer}: {errors:?}");
        }
        let mut other = old.clone();
        other["metadata"]["name"] = json!("my-own");
        assert!(validate(&other, None)[0].to_string().contains("no others can be made"));
        let mut labelled = old.clone();
        labelled["metadata"]["labels"] = json!({"a": "b"});
        assert_eq!(validate(&labelled, Some(&old)), []);
    }
}
