//! Templates that are made of a machine: what is still to be done is written on them, and done by their controller.
//!
//! ```text
//!   template, "made of that machine" --> its version, "these are to be copied" --> copies --> neither says so any more
//! ```
//!
//! Both notes are JSON in an annotation. The first is whoever's who may read all that it names; the second is the
//! controller's own.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{kinds::virtual_machine::VirtualMachine, names::short_mark};

/// On a template: the machine that its first version is made of.
pub const MADE_OF_ANNOTATION: &str = "sheaf.io/made-of";
/// On a version: what it names and is not there yet.
pub const TO_COPY_ANNOTATION: &str = "sheaf.io/to-copy";

/// How long what a version brings along may be called: it becomes the value of labels.
const NAME_LENGTH: usize = 63;
const MARK_LENGTH: usize = 6;

/// Which machine a template is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MadeOf {
    /// A VirtualMachine of the same namespace.
    pub machine: String,
    /// That one, and no other of its name.
    pub uid: String,
    /// The Secrets that are copied along, which are all that the machine names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// The claims whose disks become images, which are all that the machine has. None of them when left out: machines
    /// of the template begin with disks like those it was made with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claims: Option<Vec<String>>,
}

/// What is still to be made for a version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ToCopy {
    /// Secrets by their names, and the Secret that each is a copy of.
    pub secrets: BTreeMap<String, String>,
    /// Images by their names, and what each is made of.
    pub images: BTreeMap<String, Exported>,
}

/// A claim whose disk becomes an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Exported {
    pub claim: String,
    /// The class whose parameters the image takes over; the default one when empty.
    #[serde(default)]
    pub class: String,
}

/// The claims that a machine's disks are, each once and in the order of its volumes.
pub fn claims_of(vm: &VirtualMachine) -> Vec<String> {
    let mut claims: Vec<String> = Vec::new();
    for claim in vm.spec.template.iter().flat_map(|template| template.spec.claim_names()) {
        if !claims.iter().any(|known| known == claim) {
            claims.push(claim.to_owned());
        }
    }
    claims
}

/// The Secrets that a machine names, each once.
pub fn secrets_of(vm: &VirtualMachine) -> Vec<String> {
    let names = vm.spec.template.iter().flat_map(|template| template.spec.secret_names());
    names.map(str::to_owned).collect()
}

/// What the version is called that is made of a machine for the template: always the same, so that it is made once.
pub fn version_name(template: &str, uid: &str) -> String {
    format!("{template}-{}", short_mark(uid, MARK_LENGTH))
}

/// What something that a version brings along is called.
pub fn name_within(version: &str, what: &str) -> String {
    let whole = format!("templateversion-{version}-{what}");
    match whole.len() <= NAME_LENGTH {
        true => whole,
        false => format!("templateversion-{}", short_mark(&whole, 24)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_those_that_clients_know_and_stay_short() {
        assert_eq!(name_within("web-abc123", "image-0"), "templateversion-web-abc123-image-0");
        let (one, other) = (name_within(&"x".repeat(70), "image-0"), name_within(&"x".repeat(70), "image-1"));
        assert!(one.len() <= NAME_LENGTH && one != other, "{one} {other}");
        assert_eq!(version_name("web", "u"), version_name("web", "u"));
        assert_ne!(version_name("web", "u"), version_name("web", "v"));
    }

    #[test]
    fn a_note_is_read_as_it_was_written_and_with_nothing_unknown_in_it() {
        let note = MadeOf {
            machine: "vm".into(),
            uid: "u".into(),
            secrets: vec!["seed".into()],
            claims: Some(vec!["root".into()]),
        };
        let text = serde_json::to_string(&note).unwrap();
        assert_eq!(serde_json::from_str::<MadeOf>(&text).unwrap(), note);
        assert!(serde_json::from_str::<MadeOf>(r#"{"machine":"vm","uid":"u","images":["s"]}"#).is_err());
        assert!(serde_json::from_str::<MadeOf>("[]").is_err());
    }

    #[test]
    fn a_claim_that_two_volumes_are_of_is_one_claim() {
        let vm: VirtualMachine =
            serde_json::from_value(json!({"metadata": {"name": "vm"}, "spec": {"template": {"spec": {
            "domain": {"devices": {}}, "volumes": [
                {"name": "a", "persistentVolumeClaim": {"claimName": "one"}},
                {"name": "b", "persistentVolumeClaim": {"claimName": "two"}},
                {"name": "c", "persistentVolumeClaim": {"claimName": "one"}}]}}}}))
            .unwrap();
        assert_eq!(claims_of(&vm), ["one", "two"]);
    }
}
