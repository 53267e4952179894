//! kubevirt.io/v1 KubeVirt: what clients read to learn how machines are run here.
//!
//! Sheaf is set by its own settings, so a configuration in here would be obeyed by nobody:
//! it is refused. The status is ours.

use std::sync::LazyLock;

use serde_json::Value;

use super::{age_column, name_column, virtual_machine_instance::status::Condition};
use crate::{
    field_error::FieldError,
    kind::{Behaviour, Column, Kind},
    not_yet::{NotYet, Unsupported},
    wire::{root_type, wire_type},
};

root_type! {
    /// How virtual machines are run here.
    KubeVirt = "io.kubevirt.v1.KubeVirt",
    "kubevirt.io" / "v1" "kubevirts" NamespaceResourceScope {
        /// What is wanted.
        spec: KubeVirtSpec,
        /// How it stands.
        status: KubeVirtStatus,
    }
}

wire_type! {
    /// What is wanted. Sheaf has settings of its own.
    KubeVirtSpec = "io.kubevirt.v1.KubeVirtSpec" {
        /// Not served yet.
        certificate_rotate_strategy: NotYet,
        /// Not served yet.
        configuration: NotYet,
        /// Not served yet.
        customize_components: NotYet,
        /// Not served yet.
        image_pull_policy: NotYet,
        /// Not served yet.
        image_pull_secrets: NotYet,
        /// Not served yet.
        image_registry: NotYet,
        /// Not served yet.
        image_tag: NotYet,
        /// Not served yet.
        infra: NotYet,
        /// Not served yet.
        monitor_account: NotYet,
        /// Not served yet.
        monitor_namespace: NotYet,
        /// Not served yet.
        product_component: NotYet,
        /// Not served yet.
        product_name: NotYet,
        /// Not served yet.
        product_version: NotYet,
        /// Not served yet.
        service_monitor_namespace: NotYet,
        /// Not served yet.
        synchronization_port: NotYet,
        /// Not served yet.
        uninstall_strategy: NotYet,
        /// Not served yet.
        workload_update_strategy: NotYet,
        /// Not served yet.
        workloads: NotYet,
    }
}

wire_type! {
    /// How it stands.
    KubeVirtStatus = "io.kubevirt.v1.KubeVirtStatus" {
        /// Deployed, when machines can be run.
        phase: String,
        /// Available, Created, Progressing and Degraded.
        conditions: Vec<Condition>,
        /// The version whose API is served.
        observed_kube_virt_version: String,
        /// The same.
        target_kube_virt_version: String,
        /// The same.
        operator_version: String,
        /// What machines are when they do not say.
        default_architecture: String,
        /// The generation that was last seen.
        observed_generation: Option<i64>,
        /// Machines that run on an older QEMU than there is.
        outdated_virtual_machine_instance_workloads: Option<i64>,
    }
}

pub fn kind() -> Kind {
    let mut kind = Kind::of_type::<KubeVirt>("kubevirts")
        .short(&["kv", "kvs"])
        .with_status()
        .columns(vec![
            name_column(),
            age_column(),
            Column::computed("Phase", |object, _| object["status"]["phase"].clone()),
        ])
        .behaving(Behaviour { validate, generation: true, ..Behaviour::PLAIN });
    kind.categories = vec!["all".into()];
    kind
}

fn validate(new: &Value, _old: Option<&Value>) -> Vec<FieldError> {
    static UNSUPPORTED: LazyLock<Unsupported> = LazyLock::new(Unsupported::of::<KubeVirt>);
    UNSUPPORTED.refuse(new)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_configuration_nobody_would_obey_is_refused() {
        assert!(validate(&json!({"spec": {"configuration": {}}}), None).is_empty());
        let errors = validate(&json!({"spec": {"configuration": {"cpuModel": "EPYC"}}}), None);
        assert_eq!(errors[0].to_string(), "spec.configuration: Forbidden: is not supported by Sheaf yet");
    }
}
