//! harvesterhci.io/v1beta1 VirtualMachineTemplate: a name for machines of one sort, whose versions say what they are.
//!
//! Which version is meant when none is said is in the spec; the numbers in the status are the controller's.

pub mod made_of;

use serde_json::Value;

use super::{age_column, name_column, text};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind},
    names::NameRule,
    wire::{root_type, wire_type},
};

root_type! {
    /// A sort of virtual machines, in numbered versions.
    VirtualMachineTemplate = "io.harvesterhci.v1beta1.VirtualMachineTemplate",
    "harvesterhci.io" / "v1beta1" "virtualmachinetemplates" NamespaceResourceScope {
        /// What is wanted.
        spec: VirtualMachineTemplateSpec,
        /// Which versions there are.
        status: VirtualMachineTemplateStatus,
    }
}

wire_type! {
    /// Which version is meant.
    VirtualMachineTemplateSpec = "io.harvesterhci.v1beta1.VirtualMachineTemplateSpec" {
        /// The version that is meant when none is said, as namespace/name. Empty, it becomes the first one.
        default_version_id: String,
        /// For people.
        description: String,
    }
}

wire_type! {
    /// Which versions there are.
    VirtualMachineTemplateStatus = "io.harvesterhci.v1beta1.VirtualMachineTemplateStatus" {
        /// The number of the version that is meant when none is said.
        default_version: i64,
        /// The number of the newest version.
        latest_version: i64,
    }
}

pub fn kind() -> Kind {
    Kind::of_type::<VirtualMachineTemplate>("virtualmachinetemplates")
        .short(&["vmtemplate", "vmtemplates"])
        .with_status()
        .columns(vec![
            name_column(),
            Column::computed("VERSION_ID", |template, _| template["spec"]["defaultVersionId"].clone()),
            Column::computed("DESCRIPTION", |template, _| template["spec"]["description"].clone()).wide(),
            Column::computed("VERSION_DEFAULT", |template, _| template["status"]["defaultVersion"].clone())
                .integer()
                .wide(),
            Column::computed("VERSION_LATEST", |template, _| template["status"]["latestVersion"].clone())
                .integer()
                .wide(),
            age_column(),
        ])
        .behaving(Behaviour {
            prepare_create: without_status,
            validate,
            // Its name becomes the value of a label.
            name_rule: NameRule::DnsLabel,
            generation: true,
            ..Behaviour::PLAIN
        })
}

fn without_status(template: &mut Value) {
    template.as_object_mut().map(|fields| fields.remove("status"));
}

fn validate(new: &Value, _old: Option<&Value>) -> Vec<FieldError> {
    let id = text(&new["spec"]["defaultVersionId"]);
    let own = text(&new["metadata"]["namespace"]);
    let at = FieldPath::new("spec").child("defaultVersionId");
    match id.split_once('/') {
        None if id.is_empty() => Vec::new(),
        Some((namespace, name)) if namespace == own && !name.is_empty() && !name.contains('/') => Vec::new(),
        _ => vec![FieldError::invalid(&at, id, format!("must be {own}/NAME: a version of this template"))],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_version_that_is_meant_is_one_of_the_same_namespace() {
        let template = |id: &str| json!({"metadata": {"namespace": "a"}, "spec": {"defaultVersionId": id}});
        for fits in ["", "a/v"] {
            assert_eq!(validate(&template(fits), None), [], "{fits}");
        }
        for odd in ["v", "b/v", "a/", "a/v/w", "/v"] {
            assert_eq!(validate(&template(odd), None).len(), 1, "{odd}");
        }
    }
}
