//! kubevirt.io/v1 VirtualMachine: a machine as somebody wants it, running or not.
//!
//! What it is made of is the template of its instance; when it runs is its run strategy.
//! Harvester's clients say the rest in annotations: which claims to make
//! ([`claim_templates`]), which to delete with it, which hardware addresses it has.

pub mod admission;
pub mod claim_templates;
pub mod instance;
pub mod noted_claims;
pub mod run_strategy;
pub mod status;

use std::sync::LazyLock;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use self::{run_strategy::RunStrategy, status::VirtualMachineStatus};
use super::virtual_machine_instance::{spec::VirtualMachineInstanceSpec, validation};
use super::{age_column, condition_status, name_column, text};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind},
    names::NameRule,
    not_yet::{NotYet, Unsupported},
    quantity,
    wire::{root_type, wire_type},
};

/// Keeps a VirtualMachine until its instance and the claims it takes along are gone.
pub const FINALIZER: &str = "kubevirt.io/virtualMachineControllerFinalize";
/// The last strategy it ran by: what it goes back to when it is started again.
pub const RUN_STRATEGY_ANNOTATION: &str = "harvesterhci.io/vmRunStrategy";
/// Hardware addresses by interface, noted while it runs: a JSON object.
pub const MAC_ADDRESS_ANNOTATION: &str = "harvesterhci.io/mac-address";
/// What of the memory limit is QEMU's own: a quantity.
pub const RESERVED_MEMORY_ANNOTATION: &str = "harvesterhci.io/reservedMemory";
/// `true` on a machine whose processors and memory are to grow while it runs: it is given room for that.
pub const HOTPLUG_ANNOTATION: &str = "harvesterhci.io/enableCPUAndMemoryHotplug";
/// Claims to delete with it, separated by commas.
pub const REMOVED_CLAIMS_ANNOTATION: &str = "harvesterhci.io/removedPersistentVolumeClaims";
/// Claims of discs that were taken out of its drives, to delete once nobody holds them, separated by commas.
pub const EJECTED_CLAIMS_ANNOTATION: &str = "sheaf.io/ejected-claims";
/// Secrets of its own that are still to be made, by name, and what each is a copy of: a JSON object.
pub const SECRETS_TO_COPY_ANNOTATION: &str = "sheaf.io/secrets-to-copy";
/// On the template: the KeyPairs whose keys are in its user data, a JSON array of names. Terraform reads it
/// without looking.
pub const SSH_NAMES_ANNOTATION: &str = "harvesterhci.io/sshNames";
/// On what belongs to a machine: its name.
pub const NAME_LABEL: &str = "harvesterhci.io/vmName";

root_type! {
    /// A virtual machine as somebody wants it, running or not.
    VirtualMachine = "io.kubevirt.v1.VirtualMachine",
    "kubevirt.io" / "v1" "virtualmachines" NamespaceResourceScope {
        /// What is wanted.
        spec: VirtualMachineSpec,
        /// How it stands.
        status: VirtualMachineStatus,
    }
}

wire_type! {
    /// What is wanted of a virtual machine.
    VirtualMachineSpec = "io.kubevirt.v1.VirtualMachineSpec" {
        /// Always, RerunOnFailure, Manual, Halted or Once.
        run_strategy: Option<RunStrategy>,
        /// The older way to say Always or Halted; it is turned into a run strategy.
        running: Option<bool>,
        /// What its instances are made from.
        template: Option<Template>,
        /// Not served yet.
        data_volume_templates: NotYet,
        /// Not served yet.
        instancetype: NotYet,
        /// Not served yet.
        preference: NotYet,
        /// Not served yet.
        update_volumes_strategy: NotYet,
    }
}

wire_type! {
    /// What an instance is made from.
    Template = "io.kubevirt.v1.VirtualMachineInstanceTemplateSpec" {
        /// Labels and annotations of the instance.
        metadata: ObjectMeta,
        /// The machine.
        spec: VirtualMachineInstanceSpec,
    }
}

pub fn kind() -> Kind {
    let mut kind = Kind::of_type::<VirtualMachine>("virtualmachines")
        .short(&["vm", "vms"])
        .with_status()
        .columns(vec![
            name_column(),
            age_column(),
            Column::computed("Status", |vm, _| vm["status"]["printableStatus"].clone()),
            Column::computed("Ready", |vm, _| condition_status(vm, "Ready")),
        ])
        .behaving(Behaviour {
            prepare_create: without_status,
            validate,
            // Its name becomes a label's value and a host's name.
            name_rule: NameRule::DnsLabel,
            generation: true,
            finalizer_on_delete: Some(FINALIZER),
            ..Behaviour::PLAIN
        });
    kind.categories = vec!["all".into()];
    kind
}

fn without_status(vm: &mut Value) {
    vm.as_object_mut().map(|fields| fields.remove("status"));
}

/// What is held against a machine that is to be made as it is written, before it is completed.
pub(super) fn validate_new(vm: &Value) -> Vec<FieldError> {
    validate(vm, None)
}

fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let asks_the_same = |old: &Value| {
        old["spec"] == new["spec"] && old["metadata"]["annotations"] == new["metadata"]["annotations"]
    };
    // It was let in as it is, perhaps by an older version: that must not keep anybody from telling its status.
    if old.is_some_and(asks_the_same) {
        return Vec::new();
    }
    static UNSUPPORTED: LazyLock<Unsupported> = LazyLock::new(Unsupported::of::<VirtualMachine>);
    let mut errors = UNSUPPORTED.refuse(new);
    errors.extend(validate_run_strategy(&new["spec"]));
    let template = FieldPath::new("spec").child("template");
    if new["spec"]["template"].is_null() {
        errors.push(FieldError::required(&template, "missing virtual machine template."));
    } else {
        let path = template.child("spec");
        match VirtualMachineInstanceSpec::deserialize_from(&new["spec"]["template"]["spec"]) {
            Ok(spec) => errors.extend(validation::validate_spec(&spec, &path)),
            Err(why) => errors.push(FieldError::invalid(&path, "<object>", why)),
        }
    }
    errors.extend(validate_reserved_memory(new));
    errors.extend(validate_ssh_names(new, old));
    errors.extend(claim_templates::validate(new, old));
    errors
}

fn validate_run_strategy(spec: &Value) -> Vec<FieldError> {
    let at = FieldPath::new("spec").child("runStrategy");
    let strategy = text(&spec["runStrategy"]);
    if !spec["running"].is_null() && !strategy.is_empty() {
        return vec![FieldError::forbidden(
            &FieldPath::new("spec").child("running"),
            "Running and RunStrategy are mutually exclusive. Note that Running is deprecated, please use \
             RunStrategy instead",
        )];
    }
    if strategy.is_empty() && spec["running"].is_null() {
        return vec![FieldError::required(&at, "RunStrategy must be specified")];
    }
    if !strategy.is_empty() && RunStrategy::parse(strategy).is_none() {
        return vec![FieldError::invalid(&at, strategy, format!("Invalid RunStrategy ({strategy})"))];
    }
    Vec::new()
}

fn validate_reserved_memory(vm: &Value) -> Option<FieldError> {
    let reserved = text(&vm["metadata"]["annotations"][RESERVED_MEMORY_ANNOTATION]);
    if reserved.is_empty() {
        return None;
    }
    let at = FieldPath::new("metadata").child("annotations").key(RESERVED_MEMORY_ANNOTATION);
    let limit = &vm["spec"]["template"]["spec"]["domain"]["resources"]["limits"]["memory"];
    let why = match (quantity::value(reserved), quantity::value(text(limit))) {
        (None, _) => "is not a quantity",
        (Some(reserved), _) if reserved < 0 => "reservedMemory cannot be less than 0",
        (Some(reserved), Some(limit)) if reserved >= limit => {
            "reservedMemory cannot be equal or greater than limits.memory"
        }
        (Some(_), _) => return None,
    };
    Some(FieldError::invalid(&at, reserved, why))
}

/// Clients take it apart without looking whether they can.
fn validate_ssh_names(new: &Value, old: Option<&Value>) -> Option<FieldError> {
    let noted = |vm: &Value| vm["spec"]["template"]["metadata"]["annotations"][SSH_NAMES_ANNOTATION].clone();
    let names = noted(new);
    if names.is_null() || old.is_some_and(|old| noted(old) == names) {
        return None;
    }
    let names = text(&names).to_owned();
    // A list that was never made is written so by clients.
    if serde_json::from_str::<Option<Vec<String>>>(&names).is_ok() {
        return None;
    }
    let at = FieldPath::new("spec").child("template").child("metadata").child("annotations");
    let why = "must be a JSON array of the names of key pairs";
    Some(FieldError::invalid(&at.key(SSH_NAMES_ANNOTATION), names, why))
}

impl VirtualMachine {
    /// When it is to run. One that says nothing is left alone.
    pub fn run_strategy(&self) -> RunStrategy {
        match (self.spec.run_strategy, self.spec.running) {
            (Some(strategy), _) => strategy,
            (None, Some(true)) => RunStrategy::Always,
            (None, Some(false) | None) => RunStrategy::Halted,
        }
    }

    /// Whether it is to have room for more processors and memory.
    pub fn grows_while_it_runs(&self) -> bool {
        self.annotation(HOTPLUG_ANNOTATION).eq_ignore_ascii_case("true")
    }

    /// The claims that are to be deleted with it.
    pub fn removed_claims(&self) -> Vec<&str> {
        names_in(self.annotation(REMOVED_CLAIMS_ANNOTATION)).collect()
    }

    /// Claims of discs that were taken out of its drives.
    pub fn ejected_claims(&self) -> Vec<&str> {
        names_in(self.annotation(EJECTED_CLAIMS_ANNOTATION)).collect()
    }

    pub fn annotation(&self, key: &str) -> &str {
        self.metadata.annotations.as_ref().and_then(|all| all.get(key)).map_or("", String::as_str)
    }
}

/// Names that are separated by commas.
pub fn names_in(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn machine() -> Value {
        json!({
            "metadata": {"name": "vm"},
            "spec": {"runStrategy": "RerunOnFailure", "template": {"spec": {"domain": {
                "resources": {"limits": {"memory": "1Gi"}}, "devices": {}}}}},
        })
    }

    fn said(vm: &Value) -> Vec<String> {
        validate(vm, None).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn running_never_stands_beside_a_run_strategy() {
        let mut vm = machine();
        vm["spec"]["running"] = json!(true);
        assert!(said(&vm)[0].contains("Running and RunStrategy are mutually exclusive"));
    }

    #[test]
    fn a_machine_says_when_it_runs_in_words_there_are() {
        let mut vm = machine();
        vm["spec"]["runStrategy"] = json!("Often");
        assert!(said(&vm)[0].ends_with("Invalid RunStrategy (Often)"));
        vm["spec"]["runStrategy"] = json!(null);
        assert_eq!(said(&vm), ["spec.runStrategy: Required value: RunStrategy must be specified"]);
        for strategy in RunStrategy::ALL {
            vm["spec"]["runStrategy"] = json!(strategy);
            assert_eq!(vm["spec"]["runStrategy"], strategy.as_str());
            assert!(said(&vm).is_empty(), "{strategy}");
        }
    }

    #[test]
    fn a_machine_without_a_template_is_no_machine() {
        let mut vm = machine();
        vm["spec"]["template"] = json!(null);
        assert_eq!(said(&vm), ["spec.template: Required value: missing virtual machine template."]);
    }

    #[test]
    fn what_sheaf_would_ignore_it_refuses() {
        let domain = "/spec/template/spec/domain";
        for (pointer, field, value) in [
            ("/spec", "dataVolumeTemplates", json!([{"metadata": {"name": "a"}}])),
            ("/spec", "instancetype", json!({"name": "u1.small"})),
            (domain, "launchSecurity", json!({"sev": {}})),
            (domain, "cpu", json!({"dedicatedCpuPlacement": true})),
            (domain, "memory", json!({"hugepages": {"pageSize": "2Mi"}})),
            (domain, "features", json!({"hyperv": {"relaxed": {"enabled": true}}})),
            ("/spec/template/spec/domain/devices", "gpus", json!([{"name": "g", "deviceName": "d"}])),
            ("/spec/template/spec/domain/devices", "tpm", json!({})),
            ("/spec/template/spec", "livenessProbe", json!({"tcpSocket": {"port": 22}})),
        ] {
            let mut vm = machine();
            vm.pointer_mut(pointer).unwrap()[field] = value;
            let said = said(&vm);
            assert!(
                said.iter().any(|line| line.ends_with(": Forbidden: is not supported by Sheaf yet")),
                "{field}: {said:?}"
            );
        }
    }

    #[test]
    fn what_clients_send_and_do_not_mean_passes() {
        let mut vm = machine();
        vm["spec"]["template"]["spec"]["domain"]["cpu"] =
            json!({"cores": 1, "dedicatedCpuPlacement": false, "isolateEmulatorThread": false});
        vm["spec"]["template"]["spec"]["domain"]["features"] = json!({"acpi": {}, "kvm": {"hidden": false}});
        vm["spec"]["template"]["spec"]["domain"]["devices"]["hostDevices"] = json!([]);
        assert!(said(&vm).is_empty());
    }

    #[test]
    fn what_is_reserved_is_less_than_all() {
        for (reserved, why) in [
            ("1Gi", "reservedMemory cannot be equal or greater than limits.memory"),
            ("-1", "reservedMemory cannot be less than 0"),
            ("some", "is not a quantity"),
        ] {
            let mut vm = machine();
            vm["metadata"]["annotations"] = json!({RESERVED_MEMORY_ANNOTATION: reserved});
            assert!(said(&vm)[0].ends_with(why), "{reserved}");
        }
    }

    #[test]
    fn claims_to_remove_are_read_from_a_comma_list() {
        let mut vm = machine();
        vm["metadata"]["annotations"] = json!({REMOVED_CLAIMS_ANNOTATION: "a, b,,c "});
        let vm: VirtualMachine = serde_json::from_value(vm).unwrap();
        assert_eq!(vm.removed_claims(), ["a", "b", "c"]);
    }

    #[test]
    fn the_columns_are_those_of_the_original() {
        let names: Vec<String> = kind().columns.into_iter().map(|column| column.name).collect();
        assert_eq!(names, ["Name", "Age", "Status", "Ready"]);
    }
}
