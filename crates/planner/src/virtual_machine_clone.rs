//! Decides how a VirtualMachineClone makes its machine.
//!
//! ```text
//!             CreateMachine                 CopySecrets             its claims are bound
//!   wanted ------------------> its machine -------------> complete ---------------------> Succeeded
//!      |                                                                                     (or Failed: the name is taken)
//!      +--+ Wait: no such machine yet
//! ```
//!
//! - One step per call. The caller acts, looks again, and asks again.
//! - What the machine is made of is [`crate::virtual_machine::copy`]. It is made off, unless the clone says otherwise.
//! - A machine of the target's name that somebody else made is left alone.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::PersistentVolumeClaim, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp,
};
use sheaf_resources::{
    kinds::{
        virtual_machine::{VirtualMachine, run_strategy::RunStrategy},
        virtual_machine_clone::{
            CREATING, FAILED, MADE_BY_ANNOTATION, RUN_STRATEGY_ANNOTATION, SUCCEEDED, VirtualMachineClone,
            VirtualMachineCloneStatus, passes,
        },
        virtual_machine_instance::status::Condition,
    },
    names::short_mark,
};

use crate::virtual_machine::copy::{Differences, clone_of, secrets_of};

const NAME_LENGTH: usize = 63;
const MARK_LENGTH: usize = 5;

/// A clone and all that it depends on.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    pub clone: &'a VirtualMachineClone,
    pub source: Option<&'a VirtualMachine>,
    /// The machine of the name that [`target_name`] says.
    pub target: Option<&'a VirtualMachine>,
    /// The claims of both, by name.
    pub claims: &'a BTreeMap<String, PersistentVolumeClaim>,
    pub now_secs: i64,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Rest,
    CreateMachine(Box<VirtualMachine>),
    /// Make the machine's Secrets that are not there (from, to), then write the status.
    CopySecrets {
        secrets: BTreeMap<String, String>,
        status: Box<VirtualMachineCloneStatus>,
    },
    WriteStatus(Box<VirtualMachineCloneStatus>),
}

/// The name of the machine that is made: as was asked for, or one that follows from the clone itself.
pub fn target_name(clone: &VirtualMachineClone) -> String {
    if let Some(target) = &clone.spec.target {
        return target.name.clone();
    }
    let stem: String =
        format!("clone-{}", clone.spec.source.name).chars().take(NAME_LENGTH - MARK_LENGTH - 1).collect();
    format!("{}-{}", stem.trim_end_matches('-'), mark(clone))
}

fn mark(clone: &VirtualMachineClone) -> String {
    short_mark(clone.metadata.uid.as_deref().unwrap_or_default(), MARK_LENGTH)
}

pub fn next_step(seen: &Seen<'_>) -> Step {
    let clone = seen.clone;
    let before = clone.status.clone().unwrap_or_default();
    let is_over = [SUCCEEDED, FAILED].contains(&before.phase.as_str());
    if clone.metadata.deletion_timestamp.is_some() || is_over {
        return Step::Rest;
    }
    let name = target_name(clone);
    let is_own =
        |vm: &VirtualMachine| Some(vm.annotation(MADE_BY_ANNOTATION)) == clone.metadata.uid.as_deref();
    match seen.target {
        Some(vm) if is_own(vm) => completion(seen, &name, vm),
        Some(_) => {
            let why = format!("the virtual machine {name} exists already");
            told(seen, FAILED, ("TargetExists", &why))
        }
        None => match seen.source {
            None => {
                let why = format!("the virtual machine {} does not exist", clone.spec.source.name);
                told(seen, &before.phase, ("SourceDoesNotExist", &why))
            }
            Some(vm) => match made(seen, vm, &name) {
                Ok(copy) => Step::CreateMachine(Box::new(copy)),
                Err(claim) => {
                    let why = format!("the claim {claim} does not exist");
                    told(seen, &before.phase, ("SourceDoesNotExist", &why))
                }
            },
        },
    }
}

/// The machine that is made; `Err` names a claim that is not there.
fn made(seen: &Seen<'_>, vm: &VirtualMachine, name: &str) -> Result<VirtualMachine, String> {
    let spec = &seen.clone.spec;
    let different = Differences {
        mac_addresses: spec.new_mac_addresses.clone(),
        serial: spec.new_smbios_serial.clone(),
        mark: mark(seen.clone),
    };
    // What is left out must not be what makes a copy a copy, so the original is filtered and not the copy.
    let mut original = vm.clone();
    let template = original.spec.template.as_mut().map(|template| &mut template.metadata);
    let of_template =
        template.map(|metadata| (metadata, &spec.template.label_filters, &spec.template.annotation_filters));
    let of_machine = (&mut original.metadata, &spec.label_filters, &spec.annotation_filters);
    for (metadata, labels, annotations) in of_template.into_iter().chain([of_machine]) {
        if let Some(all) = &mut metadata.labels {
            all.retain(|key, _| passes(labels, key));
        }
        if let Some(all) = &mut metadata.annotations {
            all.retain(|key, _| passes(annotations, key));
        }
    }
    let mut copy = clone_of(&original, name, seen.claims, &different)?;
    (copy.spec.run_strategy, copy.spec.running) = (Some(run_strategy(seen.clone)), None);
    let uid = seen.clone.metadata.uid.clone().unwrap_or_default();
    copy.metadata.annotations.get_or_insert_default().insert(MADE_BY_ANNOTATION.into(), uid);
    Ok(copy)
}

/// When the machine that is made runs. It waits for its disks and its Secrets by itself.
fn run_strategy(clone: &VirtualMachineClone) -> RunStrategy {
    let annotation = clone.metadata.annotations.as_ref().and_then(|all| all.get(RUN_STRATEGY_ANNOTATION));
    annotation.and_then(|text| RunStrategy::parse(text)).unwrap_or(RunStrategy::Halted)
}

/// The machine is there: its Secrets, then its disks.
fn completion(seen: &Seen<'_>, name: &str, vm: &VirtualMachine) -> Step {
    let before = seen.clone.status.clone().unwrap_or_default();
    if before.phase != CREATING {
        let secrets = seen.source.map(|source| secrets_of(&source.spec, name)).unwrap_or_default();
        let why = format!("the virtual machine {name} is made; waiting for its disks");
        let Step::WriteStatus(status) = told(seen, CREATING, ("Pending", &why)) else { return Step::Rest };
        return Step::CopySecrets { secrets, status };
    }
    let mut disks = vm.spec.template.iter().flat_map(|template| template.spec.claim_names());
    let is_bound = |claim: &str| {
        let status = seen.claims.get(claim).and_then(|claim| claim.status.as_ref());
        status.and_then(|status| status.phase.as_deref()) == Some("Bound")
    };
    match disks.find(|claim| !is_bound(claim)) {
        Some(claim) => {
            let why = format!("waiting for the claim {claim} to be bound; its events say more");
            told(seen, CREATING, ("Pending", &why))
        }
        None => told(seen, SUCCEEDED, ("Succeeded", "the virtual machine and its disks are there")),
    }
}

fn told(seen: &Seen<'_>, phase: &str, (reason, message): (&str, &str)) -> Step {
    let now = Timestamp::from_second(seen.now_secs).ok().map(Time);
    let before = seen.clone.status.clone().unwrap_or_default();
    let mut status = VirtualMachineCloneStatus { phase: phase.to_owned(), ..before };
    status.target_name = Some(target_name(seen.clone));
    if phase == SUCCEEDED {
        status.creation_time.clone_from(&now);
    }
    let truth = |so: bool| if so { "True" } else { "False" };
    for (condition_type, so) in [("Progressing", phase == CREATING), ("Ready", phase == SUCCEEDED)] {
        let mut fresh = Condition {
            condition_type: condition_type.into(),
            status: truth(so).into(),
            last_transition_time: now.clone(),
            reason: reason.into(),
            message: message.into(),
            ..Condition::default()
        };
        let mut of_type = status.conditions.iter_mut().filter(|one| one.condition_type == condition_type);
        match of_type.next() {
            None => status.conditions.push(fresh),
            Some(old) => {
                if old.status == fresh.status {
                    fresh.last_transition_time.clone_from(&old.last_transition_time);
                }
                *old = fresh;
            }
        }
    }
    if seen.clone.status.as_ref() == Some(&status) { Step::Rest } else { Step::WriteStatus(Box::new(status)) }
}

/// The status of a clone whose machine the API refused, in its words.
pub fn refused(seen: &Seen<'_>, why: &str) -> Option<VirtualMachineCloneStatus> {
    match told(seen, FAILED, ("CreationFailed", why)) {
        Step::WriteStatus(status) => Some(*status),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    struct World {
        clone: VirtualMachineClone,
        source: Option<VirtualMachine>,
        target: Option<VirtualMachine>,
        claims: BTreeMap<String, PersistentVolumeClaim>,
        secrets: BTreeMap<String, String>,
    }

    fn claim(name: &str, phase: &str) -> (String, PersistentVolumeClaim) {
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"resources": {"requests": {"storage": "1Gi"}}}, "status": {"phase": phase}});
        (name.to_owned(), serde_json::from_value(claim).unwrap())
    }

    fn world() -> World {
        let machine = |name: &str| json!({"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": name});
        World {
            clone: serde_json::from_value(json!({
                "metadata": {"name": "c", "namespace": "default", "uid": "u"},
                "spec": {"source": machine("vm"), "target": machine("copy"), "labelFilters": ["*", "!secret"],
                    "template": {"annotationFilters": ["keep"]}},
            }))
            .unwrap(),
            source: serde_json::from_value(json!({
                "metadata": {"name": "vm", "namespace": "default", "labels": {"tier": "web", "secret": "x"}},
                "spec": {"runStrategy": "Always", "template": {
                    "metadata": {"annotations": {"keep": "1", "drop": "2"}},
                    "spec": {"domain": {"devices": {}}, "volumes": [
                        {"name": "root", "persistentVolumeClaim": {"claimName": "vm-root"}},
                        {"name": "seed", "cloudInitNoCloud": {"secretRef": {"name": "user"}}}]}}},
            }))
            .unwrap(),
            target: None,
            claims: [claim("vm-root", "Bound")].into(),
            secrets: BTreeMap::new(),
        }
    }

    impl World {
        fn settle(&mut self, phase: &str) -> usize {
            for n in 0..10 {
                let seen = Seen {
                    clone: &self.clone,
                    source: self.source.as_ref(),
                    target: self.target.as_ref(),
                    claims: &self.claims,
                    now_secs: 100 + i64::try_from(n).unwrap(),
                };
                match next_step(&seen) {
                    Step::Rest => return n,
                    Step::WriteStatus(status) => self.clone.status = Some(*status),
                    Step::CreateMachine(vm) => {
                        let template = vm.spec.template.as_ref().unwrap();
                        let names = template.spec.claim_names().map(|name| claim(name, phase));
                        self.claims.extend(names.collect::<Vec<_>>());
                        self.target = Some(*vm);
                    }
                    Step::CopySecrets { secrets, status } => {
                        (self.secrets, self.clone.status) = (secrets, Some(*status));
                    }
                }
            }
            panic!("never at rest");
        }

        fn told(&self) -> (&str, &str) {
            let status = self.clone.status.as_ref().unwrap();
            (&status.phase, &status.conditions[0].message)
        }
    }

    #[test]
    fn a_clone_that_says_so_makes_a_machine_that_runs() {
        let mut world = world();
        let annotations = [(RUN_STRATEGY_ANNOTATION.to_owned(), "RerunOnFailure".to_owned())];
        world.clone.metadata.annotations = Some(annotations.into());
        world.settle("Bound");
        assert_eq!(world.target.unwrap().run_strategy(), RunStrategy::RerunOnFailure);
    }

    #[test]
    fn a_clone_makes_a_machine_that_is_off_and_waits_for_its_disks() {
        let mut world = world();
        world.settle("Pending");
        assert_eq!(world.told().0, CREATING);
        assert!(world.told().1.contains("copy-root-"));
        for claim in world.claims.values_mut() {
            claim.status.as_mut().unwrap().phase = Some("Bound".into());
        }
        world.settle("Bound");
        assert_eq!(world.told().0, SUCCEEDED);
        let vm = world.target.as_ref().unwrap();
        assert_eq!(vm.run_strategy(), RunStrategy::Halted);
        assert_eq!(vm.metadata.labels.as_ref().unwrap().keys().collect::<Vec<_>>(), ["tier"]);
        let template = &vm.spec.template.as_ref().unwrap().metadata;
        assert_eq!(template.annotations.as_ref().unwrap().keys().collect::<Vec<_>>(), ["keep"]);
        assert_eq!(world.secrets.len(), 1);
        assert_eq!(world.settle("Bound"), 0);
    }

    #[test]
    fn a_clone_waits_for_its_machine_and_leaves_that_of_another_alone() {
        let mut world = world();
        let source = world.source.take();
        world.settle("Bound");
        assert_eq!(world.told(), ("", "the virtual machine vm does not exist"));
        world.target = Some(VirtualMachine::default());
        world.settle("Bound");
        assert_eq!(world.told(), (FAILED, "the virtual machine copy exists already"));
        let mut waiting = super::tests::world();
        (waiting.source, waiting.claims) = (source, BTreeMap::new());
        waiting.settle("Bound");
        assert_eq!(waiting.told(), ("", "the claim vm-root does not exist"));
    }

    #[test]
    fn a_name_that_nobody_chose_follows_from_the_clone() {
        let mut clone = world().clone;
        clone.spec.target = None;
        clone.spec.source.name = "x".repeat(63);
        let name = target_name(&clone);
        assert!(name.len() <= NAME_LENGTH && name == target_name(&clone) && name.starts_with("clone-x"));
        let other = {
            let mut other = clone.clone();
            other.metadata.uid = Some("v".into());
            target_name(&other)
        };
        assert_ne!(name, other);
    }
}
