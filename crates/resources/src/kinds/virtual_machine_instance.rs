//! kubevirt.io/v1 VirtualMachineInstance: a machine that runs, or is about to, or did.
//!
//! It has no `status` subresource, as in the original: whoever may write it may write all of
//! it, and admission decides who writes what. Its `spec` is settled when it is created, but for what can be changed while
//! it runs ([`live_update`]).

pub mod access_credential;
pub mod demand;
pub mod devices;
pub mod domain;
pub mod live_update;
pub mod network;
pub mod spec;
pub mod status;
pub mod validation;
pub mod volume;

use std::sync::LazyLock;

use serde_json::Value;

use self::{
    devices::Interface,
    live_update::{ABSENT, Running, live_update},
    spec::VirtualMachineInstanceSpec,
    status::VirtualMachineInstanceStatus,
};
use super::{age_column, condition_status, name_column};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind},
    names::NameRule,
    not_yet::Unsupported,
    quantity,
    wire::root_type,
};

/// Keeps an instance until its node has let go of it.
pub const FOREGROUND_FINALIZER: &str = "foregroundDeleteVirtualMachine";
/// Keeps an instance until its VirtualMachine has noted how it ended.
pub const CONTROLLER_FINALIZER: &str = "kubevirt.io/virtualMachineControllerFinalize";
/// On an instance: the generation of the VirtualMachine it was made from.
pub const GENERATION_ANNOTATION: &str = "kubevirt.io/vm-generation";
/// On an instance: volumes that were plugged into it alone, as a JSON array of names. Its VirtualMachine does not have
/// them, and does not take them away.
pub const EPHEMERAL_VOLUMES_ANNOTATION: &str = "kubevirt.io/ephemeral-hotplug-volumes";
/// On an instance: the node it is bound to.
pub const NODE_NAME_LABEL: &str = "kubevirt.io/nodeName";

root_type! {
    /// A virtual machine that runs, or is about to, or did.
    VirtualMachineInstance = "io.kubevirt.v1.VirtualMachineInstance",
    "kubevirt.io" / "v1" "virtualmachineinstances" NamespaceResourceScope {
        /// The machine as it should run.
        spec: VirtualMachineInstanceSpec,
        /// The machine as it runs.
        status: VirtualMachineInstanceStatus,
    }
}

pub fn kind() -> Kind {
    let mut kind = Kind::of_type::<VirtualMachineInstance>("virtualmachineinstances")
        .short(&["vmi", "vmis"])
        .columns(vec![
            name_column(),
            age_column(),
            Column::computed("Phase", |vmi, _| vmi["status"]["phase"].clone()),
            Column::computed("IP", |vmi, _| vmi["status"]["interfaces"][0]["ipAddress"].clone()),
            Column::computed("NodeName", |vmi, _| vmi["status"]["nodeName"].clone()),
            Column::computed("Ready", |vmi, _| condition_status(vmi, "Ready")),
            Column::computed("Live-Migratable", |vmi, _| condition_status(vmi, "LiveMigratable")).wide(),
            Column::computed("Paused", |vmi, _| condition_status(vmi, "Paused")).wide(),
        ])
        .selectable(&["status.nodeName", "status.phase"])
        .behaving(Behaviour {
            validate,
            name_rule: NameRule::DnsSubdomain,
            generation: true,
            ..Behaviour::PLAIN
        });
    kind.categories = vec!["all".into()];
    kind
}

fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    // It was let in as it is, perhaps by an older version: that must not keep anybody from telling its status.
    if old.is_some_and(|old| old["spec"] == new["spec"]) {
        return Vec::new();
    }
    static UNSUPPORTED: LazyLock<Unsupported> = LazyLock::new(Unsupported::of::<VirtualMachineInstance>);
    let mut errors = UNSUPPORTED.refuse(new);
    let path = FieldPath::new("spec");
    match VirtualMachineInstanceSpec::deserialize_from(&new["spec"]) {
        Ok(spec) => errors.extend(validation::validate_spec(&spec, &path)),
        Err(why) => errors.push(FieldError::invalid(&path, "<object>", why)),
    }
    if let Some(old) = old {
        let settled = unchangeable(old, new);
        if !settled.is_empty() {
            let why = format!(
                "an instance is settled when it is created ({}): change its VirtualMachine instead",
                settled.join(", ")
            );
            errors.push(FieldError::forbidden(&path, why));
        }
    }
    errors
}

/// What is different and cannot be while it runs. The grace period can be: `virtctl stop --grace-period` shortens it.
fn unchangeable(old: &Value, new: &Value) -> Vec<String> {
    let read = |instance: &Value| VirtualMachineInstanceSpec::deserialize_from(&instance["spec"]);
    let (Ok(before), Ok(mut after)) = (read(old), read(new)) else { return vec!["spec".into()] };
    after.termination_grace_period_seconds = before.termination_grace_period_seconds;
    // An instance has the interfaces that it is to have: one that is not there is to be absent.
    let interfaces = &mut after.domain.devices.interfaces;
    for interface in &before.domain.devices.interfaces {
        if !interfaces.iter().any(|there| there.name == interface.name) {
            interfaces.push(Interface { state: ABSENT.into(), ..interface.clone() });
        }
    }
    let at_boot = &old["status"]["memory"]["guestAtBoot"];
    let known = Running { memory_at_boot: at_boot.as_str().and_then(quantity::value), ..Running::default() };
    live_update(&before, &after, &known).needs_restart
}

impl VirtualMachineInstance {
    /// The volumes that were plugged into it alone.
    pub fn ephemeral_volumes(&self) -> Vec<String> {
        let noted = self.metadata.annotations.as_ref().and_then(|all| all.get(EPHEMERAL_VOLUMES_ANNOTATION));
        noted.and_then(|noted| serde_json::from_str(noted).ok()).unwrap_or_default()
    }
}

impl VirtualMachineInstanceSpec {
    /// Reads a spec; the error is for the person who wrote it.
    pub fn deserialize_from(spec: &Value) -> Result<Self, String> {
        match spec {
            Value::Null => Ok(Self::default()),
            spec => serde_json::from_value(spec.clone()).map_err(|why| why.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_running_machine_is_changed_through_its_virtual_machine() {
        let old = json!({"spec": {"domain": {"cpu": {"cores": 1}, "memory": {"guest": "64Mi"}}}});
        let mut new = old.clone();
        new["status"] = json!({"phase": "Running"});
        assert_eq!(validate(&new, Some(&old)), []);
        new["spec"]["terminationGracePeriodSeconds"] = json!(0);
        assert_eq!(validate(&new, Some(&old)), []);
        new["spec"]["domain"]["cpu"]["cores"] = json!(2);
        let refused = validate(&new, Some(&old));
        assert_eq!(refused[0].field, "spec");
        assert!(refused[0].to_string().contains("domain.cpu.cores"), "{}", refused[0]);
    }

    #[test]
    fn what_comes_and_goes_while_it_runs_may_be_written() {
        let interface = |name: &str| json!({"name": name, "bridge": {}});
        let network = |name: &str| json!({"name": name, "multus": {"networkName": name}});
        let old = json!({"spec": {
            "domain": {"cpu": {"sockets": 1, "maxSockets": 2}, "memory": {"guest": "64Mi"}, "devices": {
                "disks": [{"name": "d", "disk": {"bus": "scsi"}}], "interfaces": [interface("a"), interface("b")]}},
            "networks": [network("a"), network("b")],
            "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "c", "hotpluggable": true}}]}});
        let mut new = old.clone();
        new["spec"]["domain"]["cpu"]["sockets"] = json!(2);
        new["spec"]["domain"]["devices"] = json!({"disks": [], "interfaces": [interface("a")]});
        new["spec"]["networks"] = json!([network("a")]);
        new["spec"]["volumes"] = json!([]);
        assert_eq!(validate(&new, Some(&old)), []);
        assert_eq!(validate(&old, Some(&new)).len(), 1, "sockets are not taken away");
    }

    #[test]
    fn the_columns_are_those_of_the_original() {
        let names: Vec<String> = kind().columns.into_iter().map(|column| column.name).collect();
        assert_eq!(names, ["Name", "Age", "Phase", "IP", "NodeName", "Ready", "Live-Migratable", "Paused"]);
        assert!(!kind().status, "the original has no status subresource here");
    }
}
