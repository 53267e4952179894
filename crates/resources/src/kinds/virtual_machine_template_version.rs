//! harvesterhci.io/v1beta1 VirtualMachineTemplateVersion: what a machine of a template is, once and for all.
//!
//! It holds a whole VirtualMachine, and that must be one that Sheaf would run: what a machine would be refused for, its
//! version is refused for. Whoever makes a machine of it makes it of what they read here, so nothing is hidden in it.

use serde_json::{Value, json};

use super::{
    age_column,
    harvester_condition::HarvesterCondition,
    name_column,
    persistent_volume_claim::IMAGE_ANNOTATION,
    text,
    virtual_machine::{self, claim_templates},
    virtual_machine_backup::VirtualMachineSource,
};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind},
    wire::{root_type, wire_type},
};

/// On a version: the name of its template.
pub const TEMPLATE_LABEL: &str = "template.harvesterhci.io/templateID";
/// It has its number.
pub const ASSIGNED: &str = "assigned";
/// All images that it names are imported.
pub const READY: &str = "ready";

root_type! {
    /// What a virtual machine of a template is.
    VirtualMachineTemplateVersion = "io.harvesterhci.v1beta1.VirtualMachineTemplateVersion",
    "harvesterhci.io" / "v1beta1" "virtualmachinetemplateversions" NamespaceResourceScope {
        /// What it is. It does not change.
        spec: VirtualMachineTemplateVersionSpec,
        /// Its number.
        status: VirtualMachineTemplateVersionStatus,
    }
}

wire_type! {
    /// What a virtual machine of a template is.
    VirtualMachineTemplateVersionSpec = "io.harvesterhci.v1beta1.VirtualMachineTemplateVersionSpec" {
        /// The template, as namespace/name, of the same namespace.
        template_id: String,
        /// For people.
        description: String,
        /// The image that it is about, as namespace/name.
        image_id: String,
        /// KeyPairs, as namespace/name.
        key_pair_ids: Vec<String>,
        /// The machine.
        vm: VirtualMachineSource,
    }
}

wire_type! {
    /// The number of a version.
    VirtualMachineTemplateVersionStatus = "io.harvesterhci.v1beta1.VirtualMachineTemplateVersionStatus" {
        /// Its number, from 1.
        version: i64,
        /// assigned and ready.
        conditions: Vec<HarvesterCondition>,
    }
}

impl VirtualMachineTemplateVersion {
    /// Namespace and name of the template.
    pub fn template(&self) -> Option<(&str, &str)> {
        self.spec.template_id.split_once('/')
    }

    pub fn is_assigned(&self) -> bool {
        self.status.conditions.iter().any(|one| one.condition_type == ASSIGNED && one.status == "True")
    }

    /// The images that its disks are copies of and the one it is about, as namespace/name.
    pub fn images(&self) -> Vec<String> {
        let claims = self.spec.vm.metadata.annotations.iter().flatten();
        let claims = claims.filter(|(key, _)| *key == claim_templates::ANNOTATION);
        let claims = claims.flat_map(|(_, text)| claim_templates::parse(text).unwrap_or_default());
        let named = claims.filter_map(|claim| claim.metadata.annotations?.remove(IMAGE_ANNOTATION));
        let mut images: Vec<String> = named.chain([self.spec.image_id.clone()]).collect();
        images.retain(|image| !image.is_empty());
        images.sort();
        images.dedup();
        images
    }
}

pub fn kind() -> Kind {
    Kind::of_type::<VirtualMachineTemplateVersion>("virtualmachinetemplateversions")
        .short(&["vmtemplateversion", "vmtemplateversions"])
        .columns(vec![
            name_column(),
            Column::computed("TEMPLATE_ID", |version, _| version["spec"]["templateId"].clone()),
            Column::computed("DESCRIPTION", |version, _| version["spec"]["description"].clone()).wide(),
            Column::computed("VERSION", |version, _| version["status"]["version"].clone()).integer(),
            age_column(),
        ])
        .behaving(Behaviour { default, validate, generation: true, ..Behaviour::PLAIN })
}

/// One without a name is called after its template.
fn default(version: &mut Value) {
    let is_nameless = |field: &str| text(&version["metadata"][field]).is_empty();
    let template = text(&version["spec"]["templateId"]).rsplit('/').next().unwrap_or_default().to_owned();
    if is_nameless("name")
        && is_nameless("generateName")
        && !template.is_empty()
        && version["metadata"].is_object()
    {
        version["metadata"]["generateName"] = json!(format!("{template}-"));
    }
}

/// What comes from its template: the label, and whose it is. `template` is the template as it stands.
pub fn complete(version: &mut Value, template: &Value) {
    let metadata = &template["metadata"];
    if !version["metadata"]["labels"].is_object() {
        version["metadata"]["labels"] = json!({});
    }
    version["metadata"]["labels"][TEMPLATE_LABEL] = metadata["name"].clone();
    let owner = json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineTemplate", "name": metadata["name"],
        "uid": metadata["uid"], "controller": true, "blockOwnerDeletion": true,
    });
    match version["metadata"]["ownerReferences"].as_array_mut() {
        Some(owners) => {
            owners.retain(|held| held["uid"] != owner["uid"]);
            // An object has one controller at most, and a version is its template's.
            owners
                .iter_mut()
                .filter(|held| held["controller"] == true)
                .for_each(|held| held["controller"] = json!(false));
            owners.insert(0, owner);
        }
        None => version["metadata"]["ownerReferences"] = json!([owner]),
    }
}

/// What is wrong with a version.
pub fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let path = FieldPath::new("spec");
    if let Some(old) = old {
        let same = old["spec"] == new["spec"];
        let why = "Update templateVersion is not supported: make another version";
        return if same { Vec::new() } else { vec![FieldError::forbidden(&path, why)] };
    }
    let mut errors = validate_ids(new);
    let limits = &new["spec"]["vm"]["spec"]["template"]["spec"]["domain"]["resources"]["limits"];
    let at = path
        .child("vm")
        .child("spec")
        .child("template")
        .child("spec")
        .child("domain")
        .child("resources")
        .child("limits");
    let has = |what: &str| !limits[what].is_null();
    match (has("cpu"), has("memory")) {
        (true, true) => {}
        (false, false) => {
            let why = "CPU and Memory limits are required fields, but are missing from the input";
            errors.push(FieldError::required(&at, why));
        }
        (false, true) => {
            let why = "CPU limit is an required field, but is missing from the input";
            errors.push(FieldError::required(&at, why));
        }
        (true, false) => {
            let why = "Memory limit is an required field, but is missing from the input";
            errors.push(FieldError::required(&at, why));
        }
    }
    errors.extend(validate_machine(&new["spec"]["vm"]));
    errors
}

fn validate_ids(new: &Value) -> Vec<FieldError> {
    let path = FieldPath::new("spec");
    let mut errors = Vec::new();
    let id = text(&new["spec"]["templateId"]);
    let at = path.child("templateId");
    match id.split_once('/') {
        None if id.is_empty() => errors.push(FieldError::required(&at, "TemplateId is empty")),
        Some((namespace, name)) if !name.is_empty() && !name.contains('/') => {
            if namespace != text(&new["metadata"]["namespace"]) {
                let why = "Template version and template should reside in the same namespace";
                errors.push(FieldError::invalid(&at, id, why));
            }
        }
        _ => errors.push(FieldError::invalid(&at, id, "must be NAMESPACE/NAME")),
    }
    let is_id = |id: &str| {
        id.split_once('/').is_some_and(|(a, b)| !a.is_empty() && !b.is_empty() && !b.contains('/'))
    };
    let image = text(&new["spec"]["imageId"]);
    if !image.is_empty() && !is_id(image) {
        errors.push(FieldError::invalid(&path.child("imageId"), image, "must be NAMESPACE/NAME"));
    }
    for (n, key) in new["spec"]["keyPairIds"].as_array().into_iter().flatten().enumerate() {
        if !is_id(text(key)) {
            let at = path.child("keyPairIds").index(n);
            errors.push(FieldError::invalid(&at, text(key), "must be NAMESPACE/NAME"));
        }
    }
    errors
}

/// A machine of this version is one that would be let in.
fn validate_machine(vm: &Value) -> Vec<FieldError> {
    if vm.is_null() {
        return vec![FieldError::required(
            &FieldPath::new("spec").child("vm"),
            "a version says what its machines are",
        )];
    }
    let mut errors = virtual_machine::validate_new(&json!({"metadata": vm["metadata"], "spec": vm["spec"]}));
    for error in &mut errors {
        error.field = format!("spec.vm.{}", error.field);
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version() -> Value {
        json!({
            "metadata": {"name": "v", "namespace": "a", "uid": "u"},
            "spec": {"templateId": "a/t", "vm": {
                "metadata": {"annotations": {claim_templates::ANNOTATION: json!([{
                    "metadata": {"name": "d", "annotations": {IMAGE_ANNOTATION: "a/image"}},
                    "spec": {"accessModes": ["ReadWriteMany"], "volumeMode": "Block",
                        "resources": {"requests": {"storage": "10Gi"}}},
                }]).to_string()}},
                "spec": {"runStrategy": "RerunOnFailure", "template": {"spec": {"domain": {
                    "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}, "devices": {}}}}},
            }},
        })
    }

    #[track_caller]
    fn refused(change: impl FnOnce(&mut Value), words: &str) {
        let mut odd = version();
        change(&mut odd);
        let said: Vec<String> = validate(&odd, None).iter().map(ToString::to_string).collect();
        assert!(said.iter().any(|line| line.contains(words)), "{words}: {said:?}");
    }

    #[test]
    fn a_version_says_which_template_it_is_of_and_what_a_machine_takes() {
        assert_eq!(validate(&version(), None), []);
        refused(|odd| odd["spec"]["templateId"] = json!(""), "TemplateId is empty");
        refused(|odd| odd["spec"]["templateId"] = json!("b/t"), "reside in the same namespace");
        refused(|odd| odd["spec"]["templateId"] = json!("t"), "must be NAMESPACE/NAME");
        refused(|odd| odd["spec"]["keyPairIds"] = json!(["k"]), "spec.keyPairIds[0]");
        refused(|odd| odd["spec"]["imageId"] = json!("a/b/c"), "spec.imageId");
        refused(|odd| odd["spec"]["vm"] = json!(null), "spec.vm: Required");
        let limits = "/spec/vm/spec/template/spec/domain/resources/limits";
        refused(|odd| *odd.pointer_mut(limits).unwrap() = json!({}), "CPU and Memory limits are required");
        refused(|odd| *odd.pointer_mut(limits).unwrap() = json!({"cpu": 1}), "Memory limit is an required");
        refused(
            |odd| *odd.pointer_mut(limits).unwrap() = json!({"memory": "1Gi"}),
            "CPU limit is an required",
        );
    }

    #[test]
    fn what_a_machine_would_be_refused_for_its_version_is_refused_for() {
        let devices = "/spec/vm/spec/template/spec/domain/devices";
        refused(
            |odd| *odd.pointer_mut(devices).unwrap() = json!({"tpm": {}}),
            "spec.vm.spec.template.spec.domain.devices.tpm: Forbidden: is not supported by Sheaf yet",
        );
        refused(
            |odd| odd["spec"]["vm"]["metadata"]["annotations"][claim_templates::ANNOTATION] = json!("{"),
            "the volumeClaimTemplates annotation is invalid",
        );
    }

    #[test]
    fn a_version_stays_as_it_is_and_its_status_can_be_told() {
        let old = version();
        let mut new = old.clone();
        new["status"] = json!({"version": 1});
        new["metadata"]["labels"] = json!({"a": "b"});
        assert_eq!(validate(&new, Some(&old)), []);
        new["spec"]["description"] = json!("other");
        assert!(
            validate(&new, Some(&old))[0].to_string().contains("Update templateVersion is not supported")
        );
    }

    #[test]
    fn a_version_without_a_name_is_called_after_its_template() {
        let mut nameless = json!({"metadata": {}, "spec": {"templateId": "a/t"}});
        default(&mut nameless);
        assert_eq!(nameless["metadata"]["generateName"], "t-");
        let mut named = version();
        default(&mut named);
        assert_eq!(named, version());
    }

    #[test]
    fn a_version_is_its_templates_and_nobody_elses() {
        let template = json!({"metadata": {"name": "t", "namespace": "a", "uid": "tu"}});
        let mut mine = version();
        mine["metadata"]["ownerReferences"] = json!([{"kind": "ConfigMap", "uid": "x", "controller": true}]);
        complete(&mut mine, &template);
        let once = mine.clone();
        complete(&mut mine, &template);
        assert_eq!(mine, once);
        assert_eq!(mine["metadata"]["labels"][TEMPLATE_LABEL], "t");
        let owners = mine["metadata"]["ownerReferences"].as_array().unwrap();
        assert_eq!((&owners[0]["uid"], &owners[1]["controller"]), (&json!("tu"), &json!(false)));
    }

    #[test]
    fn a_version_uses_the_images_of_its_disks_and_the_one_it_names() {
        let mut version = version();
        version["spec"]["imageId"] = json!("a/other");
        let typed: VirtualMachineTemplateVersion = serde_json::from_value(version).unwrap();
        assert_eq!(typed.images(), ["a/image", "a/other"]);
        assert_eq!(typed.template(), Some(("a", "t")));
        assert!(!typed.is_assigned());
    }
}
