//! clone.kubevirt.io/v1beta1 VirtualMachineClone: another machine with a copy of the disks.

use std::{collections::BTreeMap, sync::LazyLock};

use k8s_openapi::{api::core::v1::TypedLocalObjectReference, apimachinery::pkg::apis::meta::v1::Time};
use serde_json::Value;

use super::{
    age_column, name_column, text, virtual_machine::run_strategy::RunStrategy,
    virtual_machine_backup::validate_machine, virtual_machine_instance::status::Condition,
    volume_snapshot::without_status,
};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind},
    mac_address, names,
    not_yet::{NotYet, Unsupported},
    wire::{root_type, wire_type},
};

pub const GROUP: &str = "clone.kubevirt.io";
/// On a machine: the uid of the clone that made it.
pub const MADE_BY_ANNOTATION: &str = "sheaf.io/made-by";
/// On a clone: the run strategy of the machine that is made. One without it is made off.
pub const RUN_STRATEGY_ANNOTATION: &str = "sheaf.io/run-strategy";

root_type! {
    /// Another virtual machine with a copy of the disks.
    VirtualMachineClone = "io.kubevirt.clone.v1beta1.VirtualMachineClone",
    "clone.kubevirt.io" / "v1beta1" "virtualmachineclones" NamespaceResourceScope {
        /// What is wanted.
        spec: VirtualMachineCloneSpec,
        /// How far it is.
        status: Option<VirtualMachineCloneStatus>,
    }
}

wire_type! {
    /// Which machine is copied, and what is different of the copy.
    VirtualMachineCloneSpec = "io.kubevirt.clone.v1beta1.VirtualMachineCloneSpec" {
        /// A VirtualMachine of the same namespace.
        source: TypedLocalObjectReference,
        /// The machine that is made; one of a drawn name when left out.
        target: Option<TypedLocalObjectReference>,
        /// Which annotations are copied: `*`, `some/key*`, `!some/key`. All of them when left out.
        annotation_filters: Vec<String>,
        /// Which labels are copied.
        label_filters: Vec<String>,
        /// Which annotations and labels of the template are copied.
        template: TemplateFilters,
        /// Hardware addresses by interface; others are drawn.
        new_mac_addresses: BTreeMap<String, String>,
        /// The serial number in the copy's firmware; drawn when left out.
        #[serde(rename = "newSMBiosSerial")]
        new_smbios_serial: Option<String>,
        /// Not served yet.
        patches: NotYet,
        /// `RandomizeNames`: claims of the copy have names of their own.
        volume_name_policy: Option<String>,
    }
}

wire_type! {
    /// Which annotations and labels of the template are copied.
    TemplateFilters = "io.kubevirt.clone.v1beta1.VirtualMachineCloneTemplateFilters" {
        /// Which annotations.
        annotation_filters: Vec<String>,
        /// Which labels.
        label_filters: Vec<String>,
    }
}

wire_type! {
    /// How far a clone is.
    VirtualMachineCloneStatus = "io.kubevirt.clone.v1beta1.VirtualMachineCloneStatus" {
        /// When it was done.
        creation_time: Option<Time>,
        /// CreatingTargetVM, Succeeded or Failed.
        phase: String,
        /// Ready and Progressing.
        conditions: Vec<Condition>,
        /// The machine that is made.
        target_name: Option<String>,
    }
}

pub const CREATING: &str = "CreatingTargetVM";
pub const SUCCEEDED: &str = "Succeeded";
pub const FAILED: &str = "Failed";

pub fn kind() -> Kind {
    Kind::of_type::<VirtualMachineClone>("virtualmachineclones")
        .short(&["vmclone", "vmclones"])
        .with_status()
        .columns(vec![
            name_column(),
            Column::computed("Phase", |clone, _| clone["status"]["phase"].clone()),
            Column::computed("SourceVirtualMachine", |clone, _| clone["spec"]["source"]["name"].clone()),
            Column::computed("TargetVirtualMachine", |clone, _| clone["status"]["targetName"].clone()),
            age_column(),
        ])
        .behaving(Behaviour {
            prepare_create: without_status,
            validate,
            generation: true,
            ..Behaviour::PLAIN
        })
}

fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let path = FieldPath::new("spec");
    if let Some(old) = old {
        let same = old["spec"] == new["spec"];
        return if same { Vec::new() } else { vec![FieldError::forbidden(&path, "spec is immutable")] };
    }
    static UNSUPPORTED: LazyLock<Unsupported> = LazyLock::new(Unsupported::of::<VirtualMachineClone>);
    let mut errors = UNSUPPORTED.refuse(new);
    let strategy = &new["metadata"]["annotations"][RUN_STRATEGY_ANNOTATION];
    if !strategy.is_null() && RunStrategy::parse(text(strategy)).is_none() {
        let at = FieldPath::new("metadata").child("annotations").key(RUN_STRATEGY_ANNOTATION);
        errors.push(FieldError::invalid(&at, text(strategy), "is not a run strategy"));
    }
    let spec = &new["spec"];
    errors.extend(validate_machine(&path.child("source"), &spec["source"]));
    if !spec["target"].is_null() {
        let at = path.child("target");
        errors.extend(validate_machine(&at, &spec["target"]));
        let name = text(&spec["target"]["name"]);
        for why in names::dns_label_problems(name).into_iter().filter(|_| !name.is_empty()) {
            errors.push(FieldError::invalid(&at.child("name"), name, why));
        }
        if name == text(&spec["source"]["name"]) {
            errors.push(FieldError::invalid(&at.child("name"), name, "a machine is no copy of itself"));
        }
    }
    for (filters, at) in [
        (&spec["annotationFilters"], path.child("annotationFilters")),
        (&spec["labelFilters"], path.child("labelFilters")),
        (&spec["template"]["annotationFilters"], path.child("template").child("annotationFilters")),
        (&spec["template"]["labelFilters"], path.child("template").child("labelFilters")),
    ] {
        for (n, filter) in filters.as_array().into_iter().flatten().enumerate() {
            if let Some(why) = problem_of_filter(text(filter)) {
                errors.push(FieldError::invalid(&at.index(n), text(filter), why));
            }
        }
    }
    for (name, address) in spec["newMacAddresses"].as_object().into_iter().flatten() {
        if mac_address::normalised(text(address)).is_none() {
            let at = path.child("newMacAddresses").key(name);
            errors.push(FieldError::invalid(&at, text(address), "is no hardware address"));
        }
    }
    let policy = text(&spec["volumeNamePolicy"]);
    if !["", "RandomizeNames"].contains(&policy) {
        let at = path.child("volumeNamePolicy");
        errors.push(FieldError::not_supported(&at, policy, ["RandomizeNames"]));
    }
    errors
}

/// A filter is a key, with `!` before it to leave it out, and `*` at its end for all that begin so.
fn problem_of_filter(filter: &str) -> Option<&'static str> {
    let key = filter.strip_prefix('!').unwrap_or(filter);
    let stem = key.strip_suffix('*').unwrap_or(key);
    match stem {
        _ if key.is_empty() => Some("cannot be empty"),
        stem if stem.contains('!') => {
            Some("a negation character (\"!\") can be used at the beginning of the filter only")
        }
        stem if stem.contains('*') => {
            Some("a wildcard character (\"*\") can be used at the end of the filter only")
        }
        _ => None,
    }
}

/// Whether a label or annotation passes the filters: it is chosen by one, and left out by none. Without filters all pass,
/// and where filters only leave out, all others do.
pub fn passes(filters: &[String], key: &str) -> bool {
    let matches = |pattern: &str| match pattern.strip_suffix('*') {
        Some(stem) => key.starts_with(stem),
        None => key == pattern,
    };
    let (out, chosen): (Vec<&str>, Vec<&str>) =
        filters.iter().map(String::as_str).partition(|one| one.starts_with('!'));
    let is_out = out.iter().any(|one| matches(one.trim_start_matches('!')));
    !is_out && (chosen.is_empty() || chosen.iter().any(|one| matches(one)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn clone() -> Value {
        let machine = |name: &str| json!({"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": name});
        json!({"spec": {"source": machine("vm"), "target": machine("copy"),
            "newMacAddresses": {"nic": "02:00:00:00:00:01"}, "labelFilters": ["*", "!some/key*"]}})
    }

    #[test]
    fn a_clone_is_of_one_machine_and_another_one() {
        assert_eq!(validate(&clone(), None), []);
        for (field, value) in [
            (
                "source",
                json!({"apiGroup": "snapshot.kubevirt.io", "kind": "VirtualMachineSnapshot", "name": "s"}),
            ),
            ("target", json!({"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "vm"})),
            ("newMacAddresses", json!({"nic": "x"})),
            ("labelFilters", json!(["a*b"])),
            ("annotationFilters", json!(["a!"])),
            ("volumeNamePolicy", json!("KeepNames")),
            ("patches", json!(["{}"])),
        ] {
            let mut odd = clone();
            odd["spec"][field] = value;
            assert_eq!(validate(&odd, None).len(), 1, "{field}: {:?}", validate(&odd, None));
            assert_eq!(validate(&odd, Some(&clone())).len(), 1, "{field}");
        }
    }

    #[test]
    fn filters_choose_and_leave_out() {
        let filters = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        for (given, key, so) in [
            (&[][..], "a/b", true),
            (&["*"], "a/b", true),
            (&["*", "!a/*"], "a/b", false),
            (&["!a/*"], "c", true),
            (&["a/*"], "c", false),
            (&["a/b"], "a/b", true),
        ] {
            assert_eq!(passes(&filters(given), key), so, "{given:?} {key}");
        }
    }
}
