//! Every field and annotation by which an object names another one, and what such a name must look like.
//!
//! Controllers and agents look up what these say. A text that cannot be the name of such an object is refused when it is
//! written, so that nobody waits for an object that can never be there. Whether the object is there is not asked here.
//!
//! An object that was stored with such a text before stays as it is and can be changed in all else and deleted.
//!
//! Deliberately absent: what is inside the machine of a VirtualMachineTemplateVersion, which is checked when a machine is made
//! from it.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    field_error::{FieldError, FieldPath},
    kind::Kind,
    kinds::{
        persistent_volume_claim::IMAGE_ANNOTATION,
        virtual_machine::{EJECTED_CLAIMS_ANNOTATION, REMOVED_CLAIMS_ANNOTATION, claim_templates, names_in},
    },
    names::{dns_label_problems, dns_subdomain_problems, path_segment_problems},
};

/// What a reference looks like. An empty text refers to nothing and is always let through: where it must not be empty, its
/// kind says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The name of an object of any kind.
    AnyName,
    /// The name of an object in a namespace that follows from elsewhere, or in none.
    Name,
    Namespace,
    /// `namespace/name`.
    NamespacedName,
    /// `name` or `namespace/name`.
    MaybeNamespacedName,
    /// Names that are separated by commas.
    Names,
}

/// A place in an object where another one is named. `*` stands for every item of a list.
#[derive(Clone, Copy, Debug)]
pub struct Reference {
    pub path: &'static [&'static str],
    pub form: Form,
}

const fn at(path: &'static [&'static str], form: Form) -> Reference {
    Reference { path, form }
}

const MACHINES: (&str, &str) = ("kubevirt.io", "virtualmachines");
const CLAIMS: (&str, &str) = ("", "persistentvolumeclaims");

/// The references that every kind has, custom resources among them.
const OWNERS: Reference = at(&["metadata", "ownerReferences", "*", "name"], Form::AnyName);

/// The references of the machine in a VirtualMachine, or of an instance of one, which are the same below their spec.
macro_rules! of_machine {
    ($($spec:literal),+; $($more:expr),*) => {
        &[
            at(&[$($spec),+, "volumes", "*", "persistentVolumeClaim", "claimName"], Form::Name),
            at(&[$($spec),+, "volumes", "*", "cloudInitNoCloud", "secretRef", "name"], Form::Name),
            at(&[$($spec),+, "volumes", "*", "cloudInitNoCloud", "networkDataSecretRef", "name"], Form::Name),
            at(&[$($spec),+, "volumes", "*", "cloudInitConfigDrive", "secretRef", "name"], Form::Name),
            at(&[$($spec),+, "volumes", "*", "cloudInitConfigDrive", "networkDataSecretRef", "name"], Form::Name),
            at(
                &[$($spec),+, "accessCredentials", "*", "sshPublicKey", "source", "secret", "secretName"],
                Form::Name,
            ),
            at(
                &[$($spec),+, "accessCredentials", "*", "userPassword", "source", "secret", "secretName"],
                Form::Name,
            ),
            at(&[$($spec),+, "networks", "*", "multus", "networkName"], Form::MaybeNamespacedName),
            $($more),*
        ]
    };
}

/// The references of a built-in kind.
pub fn of(group: &str, plural: &str) -> &'static [Reference] {
    let row = TABLE.iter().find(|(of_group, of_plural, _)| (*of_group, *of_plural) == (group, plural));
    row.map(|(_, _, references)| *references).unwrap_or_default()
}

/// Group, plural and references of each built-in kind that has some.
const TABLE: &[(&str, &str, &[Reference])] = &[
    (
        "",
        "persistentvolumeclaims",
        &[
            at(&["spec", "volumeName"], Form::Name),
            at(&["spec", "storageClassName"], Form::Name),
            at(&["spec", "dataSource", "name"], Form::Name),
            at(&["spec", "dataSourceRef", "name"], Form::Name),
            at(&["spec", "dataSourceRef", "namespace"], Form::Namespace),
            at(&["metadata", "annotations", IMAGE_ANNOTATION], Form::NamespacedName),
        ],
    ),
    (
        "",
        "persistentvolumes",
        &[
            at(&["spec", "storageClassName"], Form::Name),
            at(&["spec", "claimRef", "name"], Form::Name),
            at(&["spec", "claimRef", "namespace"], Form::Namespace),
        ],
    ),
    ("", "secrets", &[at(&["metadata", "annotations", "kubernetes.io/service-account.name"], Form::Name)]),
    (
        "snapshot.storage.k8s.io",
        "volumesnapshots",
        &[
            at(&["spec", "source", "persistentVolumeClaimName"], Form::Name),
            at(&["spec", "source", "volumeSnapshotContentName"], Form::Name),
            at(&["spec", "volumeSnapshotClassName"], Form::Name),
        ],
    ),
    (
        "snapshot.storage.k8s.io",
        "volumesnapshotcontents",
        &[
            at(&["spec", "volumeSnapshotRef", "name"], Form::Name),
            at(&["spec", "volumeSnapshotRef", "namespace"], Form::Namespace),
            at(&["spec", "volumeSnapshotClassName"], Form::Name),
        ],
    ),
    (
        "kubevirt.io",
        "virtualmachines",
        of_machine!(
            "spec", "template", "spec";
            at(&["metadata", "annotations", REMOVED_CLAIMS_ANNOTATION], Form::Names),
            at(&["metadata", "annotations", EJECTED_CLAIMS_ANNOTATION], Form::Names)
        ),
    ),
    ("kubevirt.io", "virtualmachineinstances", of_machine!("spec";)),
    (
        "clone.kubevirt.io",
        "virtualmachineclones",
        &[at(&["spec", "source", "name"], Form::Name), at(&["spec", "target", "name"], Form::Name)],
    ),
    (
        "harvesterhci.io",
        "virtualmachineimages",
        &[
            at(&["spec", "pvcName"], Form::Name),
            at(&["spec", "pvcNamespace"], Form::Namespace),
            at(&["spec", "targetStorageClassName"], Form::Name),
            at(&["spec", "securityParameters", "sourceImageName"], Form::Name),
            at(&["spec", "securityParameters", "sourceImageNamespace"], Form::Namespace),
        ],
    ),
    ("harvesterhci.io", "virtualmachinebackups", &[at(&["spec", "source", "name"], Form::Name)]),
    (
        "harvesterhci.io",
        "virtualmachinerestores",
        &[
            at(&["spec", "target", "name"], Form::Name),
            at(&["spec", "virtualMachineBackupName"], Form::Name),
            at(&["spec", "virtualMachineBackupNamespace"], Form::Namespace),
        ],
    ),
    (
        "harvesterhci.io",
        "virtualmachinetemplates",
        &[at(&["spec", "defaultVersionId"], Form::NamespacedName)],
    ),
    (
        "harvesterhci.io",
        "virtualmachinetemplateversions",
        &[
            at(&["spec", "templateId"], Form::NamespacedName),
            at(&["spec", "imageId"], Form::NamespacedName),
            at(&["spec", "keyPairIds", "*"], Form::NamespacedName),
        ],
    ),
    ("loadbalancer.harvesterhci.io", "loadbalancers", &[at(&["spec", "ipPool"], Form::Name)]),
    (
        "network.harvesterhci.io",
        "virtualmachinenetworkconfigs",
        &[
            at(&["spec", "vmName"], Form::Name),
            at(&["spec", "networkConfigs", "*", "networkName"], Form::MaybeNamespacedName),
        ],
    ),
    ("network.harvesterhci.io", "ippools", &[at(&["spec", "networkName"], Form::MaybeNamespacedName)]),
    ("network.harvesterhci.io", "vlanconfigs", &[at(&["spec", "clusterNetwork"], Form::Name)]),
];

/// What is wrong with the references of an object, but for those that were wrong before.
pub fn validate(kind: &Kind, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let of_kind = if kind.custom { &[] } else { of(&kind.group, &kind.plural) };
    let is_machine = (kind.group.as_str(), kind.plural.as_str()) == MACHINES;
    let all_wrong = |object: &Value| {
        let mut found = if is_machine { wrong_in_claim_templates(object) } else { Vec::new() };
        for reference in of_kind.iter().chain([&OWNERS]) {
            collect(object, reference.path, None, reference.form, &mut found);
        }
        found
    };
    let found = all_wrong(new);
    if found.is_empty() {
        return Vec::new();
    }
    let before: BTreeSet<String> = old.into_iter().flat_map(all_wrong).map(|wrong| wrong.text).collect();
    let is_new = |wrong: &Wrong| !before.contains(&wrong.text);
    found
        .into_iter()
        .filter(is_new)
        .map(|wrong| FieldError::invalid(&wrong.at, wrong.text, wrong.why))
        .collect()
}

/// The claims that a machine brings along are written into an annotation, and made by a controller.
fn wrong_in_claim_templates(vm: &Value) -> Vec<Wrong> {
    let at = FieldPath::new("metadata").child("annotations").key(claim_templates::ANNOTATION);
    let annotation = vm["metadata"]["annotations"][claim_templates::ANNOTATION].as_str().unwrap_or_default();
    // What cannot be read is refused by the machine's own kind.
    let claims: Vec<Value> = serde_json::from_str(annotation).unwrap_or_default();
    let mut found = Vec::new();
    for (claim, reference) in
        claims.iter().flat_map(|claim| of(CLAIMS.0, CLAIMS.1).iter().map(move |one| (claim, one)))
    {
        collect(claim, reference.path, None, reference.form, &mut found);
    }
    let in_annotation =
        |wrong: Wrong| Wrong { why: format!("{}: {}", wrong.at, wrong.why), at: at.clone(), ..wrong };
    found.into_iter().map(in_annotation).collect()
}

/// A reference to what can never be there.
struct Wrong {
    at: FieldPath,
    text: String,
    why: String,
}

fn collect(value: &Value, path: &[&str], here: Option<FieldPath>, form: Form, found: &mut Vec<Wrong>) {
    match path {
        [] => {
            if let (Value::String(text), Some(at)) = (value, here)
                && let Some(why) = form.problem(text)
            {
                found.push(Wrong { at, text: text.clone(), why });
            }
        }
        ["*", rest @ ..] => {
            for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                collect(item, rest, here.as_ref().map(|here| here.index(index)), form, found);
            }
        }
        [field, rest @ ..] => {
            let Some(member) = value.get(field) else { return };
            let there = match &here {
                None => FieldPath::new(field),
                // The keys of annotations are written as such.
                Some(here) if rest.is_empty() && field.contains('/') => here.key(field),
                Some(here) => here.child(field),
            };
            collect(member, rest, Some(there), form, found);
        }
    }
}

impl Form {
    /// Why a text is not of this form.
    pub fn problem(self, text: &str) -> Option<String> {
        if text.is_empty() {
            return None;
        }
        let problems = match self {
            Form::AnyName => path_segment_problems(text),
            Form::Name => dns_subdomain_problems(text),
            Form::Namespace => dns_label_problems(text),
            Form::NamespacedName => match text.split_once('/') {
                Some((namespace, name)) => namespaced_problems(namespace, name),
                None => vec!["must be the namespace and the name of an object: namespace/name".to_owned()],
            },
            Form::MaybeNamespacedName => match text.split_once('/') {
                Some((namespace, name)) => namespaced_problems(namespace, name),
                None => dns_subdomain_problems(text),
            },
            Form::Names => names_in(text).flat_map(dns_subdomain_problems).collect(),
        };
        problems.into_iter().next()
    }
}

fn namespaced_problems(namespace: &str, name: &str) -> Vec<String> {
    [dns_label_problems(namespace), dns_subdomain_problems(name)].concat()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds;

    /// Texts that can be the name of nothing. The forms with several names let some of them through in part, and find the rest.
    pub const HOSTILE: [&str; 7] =
        ["x?watch=true&a=", "../../secrets/x", "..", "a%2fb", "a/b/c", "A B", "\u{fc}"];

    fn put(object: &mut Value, path: &[&str], text: &str) {
        match path {
            [] => *object = text.into(),
            ["*", rest @ ..] => {
                let mut item = json!({});
                put(&mut item, rest, text);
                *object = json!([item]);
            }
            [field, rest @ ..] => put(&mut object[*field], rest, text),
        }
    }

    #[test]
    fn a_text_that_can_be_no_name_is_refused_wherever_a_kind_names_another_object() {
        let mut places = 0;
        for kind in kinds::built_in() {
            for reference in of(&kind.group, &kind.plural) {
                places += 1;
                for hostile in HOSTILE.map(str::to_owned).into_iter().chain(["x".repeat(300)]) {
                    let mut object = json!({});
                    put(&mut object, reference.path, &hostile);
                    let errors = validate(&kind, &object, None);
                    assert_eq!(errors.len(), 1, "{} {:?} {hostile}", kind.kind, reference.path);
                    assert_eq!(validate(&kind, &object, Some(&object)), [], "it was there before");
                }
                for fine in ["", "default/fine.name-1", "fine.name-1", "fine-1"] {
                    let mut object = json!({});
                    put(&mut object, reference.path, fine);
                    let is_fine = match reference.form {
                        Form::AnyName | Form::Name | Form::Names => !fine.contains('/'),
                        Form::Namespace => !fine.contains(['/', '.']),
                        Form::NamespacedName => fine.is_empty() || fine.contains('/'),
                        Form::MaybeNamespacedName => true,
                    };
                    assert_eq!(
                        validate(&kind, &object, None).is_empty(),
                        is_fine,
                        "{:?} {fine}",
                        reference.path
                    );
                }
            }
        }
        assert!(places > 45, "every kind of the table is served: {places}");
    }

    #[test]
    fn the_name_of_an_owner_can_be_part_of_a_path() {
        let owned = |name: &str| json!({"metadata": {"ownerReferences": [{"name": name}]}});
        for kind in kinds::built_in() {
            assert_eq!(validate(&kind, &owned("a/../b"), None).len(), 1, "{}", kind.kind);
            // Roles have such names.
            assert_eq!(validate(&kind, &owned("system:any?name"), None), [], "{}", kind.kind);
        }
    }

    #[test]
    fn the_claims_that_a_machine_brings_along_are_looked_at_too() {
        let vm = kinds::built_in().into_iter().find(|kind| kind.plural == MACHINES.1).unwrap();
        let with = |claim: Value| json!({"metadata": {"annotations": {claim_templates::ANNOTATION: json!([claim]).to_string()}}});
        let fine = with(json!({"spec": {"storageClassName": "disks"}}));
        assert_eq!(validate(&vm, &fine, None), []);
        for wrong in [
            json!({"metadata": {"annotations": {IMAGE_ANNOTATION: "x?watch=true"}}}),
            json!({"spec": {"storageClassName": "a/b"}}),
            json!({"spec": {"dataSource": {"name": "../x"}}}),
        ] {
            let wrong = with(wrong);
            let errors = validate(&vm, &wrong, None);
            assert_eq!(errors.len(), 1, "{wrong}");
            assert!(errors[0].field.contains(claim_templates::ANNOTATION), "{errors:?}");
            assert_eq!(validate(&vm, &wrong, Some(&wrong)), []);
        }
    }

    #[test]
    fn an_error_says_where_it_is() {
        let vm = kinds::built_in().into_iter().find(|kind| kind.plural == "virtualmachines").unwrap();
        let object = json!({
            "metadata": {"annotations": {EJECTED_CLAIMS_ANNOTATION: "fine, x?"}},
            "spec": {"template": {"spec": {"networks": [{"pod": {}}, {"multus": {"networkName": "a/b/c"}}]}}},
        });
        let fields: Vec<String> = validate(&vm, &object, None).into_iter().map(|error| error.field).collect();
        assert_eq!(
            fields,
            [
                "spec.template.spec.networks[1].multus.networkName",
                "metadata.annotations[sheaf.io/ejected-claims]"
            ]
        );
    }
}
