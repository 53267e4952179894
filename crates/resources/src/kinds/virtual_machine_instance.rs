//! kubevirt.io/v1 VirtualMachineInstance: a machine that runs, or is about to, or did.
//!
//! It has no `status` subresource, as in the original: whoever may write it may write all of
//! it, and admission decides who writes what. Its `spec` is settled when it is created: a
//! running machine is changed through its VirtualMachine.

pub mod access_credential;
pub mod demand;
pub mod devices;
pub mod domain;
pub mod network;
pub mod spec;
pub mod status;
pub mod validation;
pub mod volume;

use std::sync::LazyLock;

use serde_json::Value;

use self::{spec::VirtualMachineInstanceSpec, status::VirtualMachineInstanceStatus};
use super::{age_column, condition_status, name_column};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind},
    names::NameRule,
    not_yet::Unsupported,
    wire::root_type,
};

/// Keeps an instance until its node has let go of it.
pub const FOREGROUND_FINALIZER: &str = "foregroundDeleteVirtualMachine";
/// Keeps an instance until its VirtualMachine has noted how it ended.
pub const CONTROLLER_FINALIZER: &str = "kubevirt.io/virtualMachineControllerFinalize";
/// On an instance: the generation of the VirtualMachine it was made from.
pub const GENERATION_ANNOTATION: &str = "kubevirt.io/vm-generation";
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
    if old.is_some_and(|old| wanted(old) != wanted(new)) {
        errors.push(FieldError::forbidden(
            &path,
            "an instance is settled when it is created: change its VirtualMachine instead",
        ));
    }
    errors
}

/// All of the spec but the grace period, which `virtctl stop --grace-period` shortens.
fn wanted(instance: &Value) -> Value {
    let mut spec = instance["spec"].clone();
    if let Some(fields) = spec.as_object_mut() {
        fields.remove("terminationGracePeriodSeconds");
    }
    spec
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
        assert_eq!(validate(&new, Some(&old))[0].field, "spec");
    }

    #[test]
    fn the_columns_are_those_of_the_original() {
        let names: Vec<String> = kind().columns.into_iter().map(|column| column.name).collect();
        assert_eq!(names, ["Name", "Age", "Phase", "IP", "NodeName", "Ready", "Live-Migratable", "Paused"]);
        assert!(!kind().status, "the original has no status subresource here");
    }
}
