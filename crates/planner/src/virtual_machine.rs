//! Decides the next step for one VirtualMachine: when it has an instance, and when not.
//!
//! ```text
//!                        CreateInstance                     instance is final
//!   no instance --------------------------> instance ------------------------+
//!       ^  ^                                   |                             |
//!       |  | Wait: it failed to come up,       | DeleteInstance: asked to    | WriteStatus: how it ended
//!       |  | and tries again later             | stop, or over and not kept  v
//!       |  +--+                                v                      ReleaseInstance
//!       +--------------------------------- going <-------------------------- +
//! ```
//!
//! - One step per call. The caller acts, looks again, and asks again.
//! - What was asked for, how an instance ended and how often it failed are in the status, and would be lost with the
//!   instance: they are written before anything is done. What else the status says can be seen at any time, and is
//!   written after what people wait for (see [`is_for_reading_only`]).
//! - "Deleting" outranks "on": a machine marked for deletion is never started.
//! - The rules of the run strategies are KubeVirt's, with two differences. A machine that
//!   changes to RerunOnFailure while it is still going down comes up again; and a failed one
//!   is noted to be started again before its instance is deleted, not after, so that nobody
//!   can be interrupted in between.

pub mod copy;
pub mod edits;
mod live_update;
pub mod offered;
pub mod own_secrets;
pub mod power;
pub mod status;
pub mod volumes;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use sheaf_resources::kinds::{
    persistent_volume_claim::IMAGE_ANNOTATION,
    virtual_machine::{
        FINALIZER, MAC_ADDRESS_ANNOTATION, VirtualMachine, claim_templates,
        instance::{addresses_to_note, noted_addresses},
        noted_claims::{self, NotedClaim},
        run_strategy::RunStrategy,
        status::VirtualMachineStatus,
    },
    virtual_machine_instance::{
        CONTROLLER_FINALIZER, VirtualMachineInstance, spec::VirtualMachineInstanceSpec, status::Phase,
    },
};

/// Labels of instances that are KubeVirt's own, and never a template's to change.
const KUBEVIRT_LABELS: &str = "kubevirt.io";
/// What happens to a machine when its node is maintained: on the machine, and read from its instance.
const MAINTENANCE_LABEL: &str = "harvesterhci.io/maintain-mode-strategy";

/// A VirtualMachine and what there is of it.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    pub vm: &'a VirtualMachine,
    /// The instance of its name, whosever it is.
    pub instance: Option<&'a VirtualMachineInstance>,
    /// The claims in its namespace, and the bytes each asks for.
    pub claims: &'a BTreeMap<String, i64>,
    /// The uids of these claims.
    pub claim_uids: &'a BTreeMap<String, String>,
    /// The images there are, as `namespace/name`.
    pub images: &'a BTreeSet<String>,
    /// How the volumes it names are.
    pub volumes: Volumes,
    /// Seconds since the epoch.
    pub now: i64,
}

/// How the volumes of a machine are, the worst of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Volumes {
    Ready,
    /// A claim waits for its volume.
    Unbound,
    /// A volume is being filled.
    Provisioning,
    /// A volume could not be made.
    Failed,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Rest,
    /// Nothing to do before this time (seconds since the epoch).
    Wait {
        until: i64,
    },
    WriteStatus(Box<VirtualMachineStatus>),
    /// The same, if it is still so in a moment.
    TellSoon(Box<VirtualMachineStatus>),
    CreateClaim(Box<PersistentVolumeClaim>),
    GrowClaim {
        name: String,
        bytes: i64,
    },
    CreateInstance,
    DeleteInstance {
        uid: String,
    },
    /// Take our finalizer off an instance whose end is noted.
    ReleaseInstance {
        uid: String,
    },
    /// Write the hardware addresses of a running instance into this annotation: without it, one that was drawn
    /// would be another one at the next start.
    NoteAddresses {
        annotation: String,
    },
    /// Write noted hardware addresses, by interface, into the template.
    SettleAddresses {
        addresses: BTreeMap<String, String>,
    },
    /// Give the instance these labels, and no others but KubeVirt's own.
    SyncLabels {
        labels: BTreeMap<String, String>,
    },
    /// Write this spec into the running instance: what changed in the template and can change while it runs.
    UpdateInstance {
        spec: Box<VirtualMachineInstanceSpec>,
    },
    /// A halted machine that is to start paused runs from now on.
    SetRunStrategy(RunStrategy),
    /// Make the Secrets of its own that are noted, by name, as copies of these; then the note goes.
    CopySecrets {
        secrets: BTreeMap<String, String>,
    },
    /// Write this into the annotation that binds names of claims to the claims that are meant.
    BindClaims {
        annotation: String,
    },
    DeleteClaims {
        claims: Vec<NotedClaim>,
    },
    /// Delete the claims of discs that nobody holds any more, and note those that are still held.
    DeleteEjected {
        claims: Vec<NotedClaim>,
        held: Vec<String>,
    },
    RemoveFinalizer,
}

pub fn next_step(seen: &Seen<'_>) -> Step {
    match unwritten_status(seen) {
        None => acting_step(seen),
        Some(status) if is_passing(seen, &status) => match acting_step(seen) {
            Step::Rest => Step::TellSoon(status),
            step => step,
        },
        Some(status) => starting_step(seen, &status).unwrap_or(Step::WriteStatus(status)),
    }
}

/// What is to be done when all that is to be kept is written.
fn acting_step(seen: &Seen<'_>) -> Step {
    if let Some(instance) = seen.instance.filter(|_| !is_foreign(seen))
        && instance.status.phase.is_final()
        && has_finalizer(&instance.metadata.finalizers, CONTROLLER_FINALIZER)
    {
        return Step::ReleaseInstance { uid: uid_of(instance) };
    }
    if seen.vm.metadata.deletion_timestamp.is_some() {
        return deletion_step(seen);
    }
    let run = run_step(seen);
    // Before the claims: a disk that cannot be made or grown must not keep a machine from being stopped.
    if let Step::DeleteInstance { .. } = run {
        return run;
    }
    copy_step(seen)
        .or_else(|| claim_step(seen))
        .or_else(|| upkeep_step(seen))
        .or_else(|| ejected_step(seen))
        .or_else(|| binding_step(seen))
        .unwrap_or(run)
}

/// Before it starts, since it does not without them.
fn copy_step(seen: &Seen<'_>) -> Option<Step> {
    let secrets = own_secrets::to_copy(seen.vm);
    (!secrets.is_empty()).then_some(Step::CopySecrets { secrets })
}

/// Discs that were taken out go when the instance does not name them any more. One that somebody put in again is not out.
fn ejected_step(seen: &Seen<'_>) -> Option<Step> {
    let noted = seen.vm.ejected_claims();
    let wanted: BTreeSet<&str> =
        seen.vm.spec.template.iter().flat_map(|template| template.spec.claim_names()).collect();
    let held: BTreeSet<&str> =
        seen.instance.iter().flat_map(|instance| instance.spec.claim_names()).collect();
    let out = noted.iter().filter(|name| !wanted.contains(**name)).map(|name| (*name).to_owned());
    let (still_held, names): (Vec<String>, Vec<String>) = out.partition(|name| held.contains(name.as_str()));
    let mut uids = noted_claims::uids_of(seen.vm);
    let claims = names.into_iter().filter_map(|name| Some(NotedClaim { uid: uids.remove(&name)?, name }));
    (still_held.len() < noted.len())
        .then_some(Step::DeleteEjected { claims: claims.collect(), held: still_held })
}

/// A disk of its own that was noted before there was a claim is the first one that is there.
fn binding_step(seen: &Seen<'_>) -> Option<Step> {
    let mut uids = noted_claims::uids_of(seen.vm);
    let own: BTreeSet<&str> =
        seen.vm.spec.template.iter().flat_map(|template| template.spec.claim_names()).collect();
    let mut is_new = false;
    for name in seen.vm.removed_claims().into_iter().filter(|name| own.contains(name)) {
        if let (false, Some(uid)) = (uids.contains_key(name), seen.claim_uids.get(name)) {
            uids.insert(name.to_owned(), uid.clone());
            is_new = true;
        }
    }
    is_new.then(|| Step::BindClaims { annotation: serde_json::to_string(&uids).unwrap_or_default() })
}

/// What is to be written into the status, if anything is.
pub fn unwritten_status(seen: &Seen<'_>) -> Option<Box<VirtualMachineStatus>> {
    let status = status::status_of(seen);
    (status != seen.vm.status).then(|| Box::new(status))
}

/// What brings a machine up, where that need not wait for the status. If it fails, the status is still to be written.
fn starting_step(seen: &Seen<'_>, status: &VirtualMachineStatus) -> Option<Step> {
    let is_going = seen.vm.metadata.deletion_timestamp.is_some();
    if seen.instance.is_some() || is_going || !is_for_reading_only(&seen.vm.status, status) {
        return None;
    }
    let step = copy_step(seen)
        .or_else(|| claim_step(seen))
        .or_else(|| upkeep_step(seen))
        .unwrap_or_else(|| run_step(seen));
    matches!(
        step,
        Step::CopySecrets { .. } | Step::CreateClaim(_) | Step::SettleAddresses { .. } | Step::CreateInstance
    )
    .then_some(step)
}

/// Whether nothing that is done depends on what is new in the status.
pub fn is_for_reading_only(before: &VirtualMachineStatus, after: &VirtualMachineStatus) -> bool {
    // That a machine ran at all is to be seen by its instance for as long as there is one, and written before that goes.
    let is_same_strategy = before.run_strategy.is_none() || before.run_strategy == after.run_strategy;
    before.state_change_requests == after.state_change_requests
        && before.start_failure == after.start_failure
        && is_same_strategy
}

/// Whether a status only tells more of a machine on its way up: in a moment there will be something else to tell, or it
/// runs.
fn is_passing(seen: &Seen<'_>, status: &VirtualMachineStatus) -> bool {
    let instance = seen.instance.filter(|instance| instance.metadata.deletion_timestamp.is_none());
    let comes_up = instance.is_some_and(|instance| instance.status.phase < Phase::Running);
    let is_told = |status: &VirtualMachineStatus| {
        status.created && ["Starting", "WaitingForVolumeBinding"].contains(&status.printable_status.as_str())
    };
    comes_up
        && is_told(&seen.vm.status)
        && is_told(status)
        && is_for_reading_only(&seen.vm.status, status)
        && seen.vm.metadata.deletion_timestamp.is_none()
}

/// What is carried over between a machine and its instance.
fn upkeep_step(seen: &Seen<'_>) -> Option<Step> {
    let template = seen.vm.spec.template.as_ref()?;
    let Some(instance) = seen.instance else {
        let noted = noted_addresses(seen.vm);
        let unsettled = template.spec.domain.devices.interfaces.iter();
        let unsettled = unsettled.filter(|interface| interface.mac_address.is_empty());
        let addresses: BTreeMap<String, String> = unsettled
            .filter_map(|interface| Some((interface.name.clone(), noted.get(&interface.name)?.clone())))
            .collect();
        return (!addresses.is_empty()).then_some(Step::SettleAddresses { addresses });
    };
    if is_foreign(seen) || instance.metadata.deletion_timestamp.is_some() || instance.status.phase.is_final()
    {
        return None;
    }
    let annotation = addresses_to_note(instance);
    let has_some = !instance.spec.domain.devices.interfaces.is_empty();
    if instance.status.phase == Phase::Running
        && has_some
        && annotation != seen.vm.annotation(MAC_ADDRESS_ANNOTATION)
    {
        return Some(Step::NoteAddresses { annotation });
    }
    let labels = instance.metadata.labels.clone().unwrap_or_default();
    let wanted = labels_of_instance(seen.vm, &labels);
    if wanted != labels {
        return Some(Step::SyncLabels { labels: wanted });
    }
    // What does not run yet is made ready as it is; what changed meanwhile comes to it when it runs.
    let update =
        live_update::live_update(seen.vm, instance).filter(|_| instance.status.phase == Phase::Running)?;
    (update.spec != instance.spec).then(|| Step::UpdateInstance { spec: Box::new(update.spec) })
}

/// The labels an instance should have: the template's, one of the machine's own, and of its present ones
/// KubeVirt's.
fn labels_of_instance(vm: &VirtualMachine, present: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let is_kubevirts = |key: &str| key.starts_with(KUBEVIRT_LABELS);
    let mut labels = present.clone();
    labels.retain(|key, _| is_kubevirts(key));
    let template = vm.spec.template.iter().flat_map(|template| &template.metadata.labels).flatten();
    let own = vm.metadata.labels.iter().flatten().filter(|(key, _)| *key == MAINTENANCE_LABEL);
    for (key, value) in own.chain(template.filter(|(key, _)| !is_kubevirts(key))) {
        labels.insert(key.clone(), value.clone());
    }
    labels
}

/// The instance first, then the claims it takes along, then itself.
fn deletion_step(seen: &Seen<'_>) -> Step {
    if !has_finalizer(&seen.vm.metadata.finalizers, FINALIZER) {
        return Step::Rest;
    }
    match instance_of(seen) {
        Instance::Alive(uid) | Instance::Final(uid) => return Step::DeleteInstance { uid },
        Instance::Going => return Step::Rest,
        Instance::Absent | Instance::Foreign => {}
    }
    let uids = noted_claims::uids_of(seen.vm);
    let removed: BTreeSet<&str> =
        seen.vm.removed_claims().into_iter().chain(seen.vm.ejected_claims()).collect();
    let claims = removed.into_iter().filter_map(|name| {
        let uid = uids.get(name).filter(|uid| seen.claim_uids.get(name) == Some(uid))?;
        Some(NotedClaim { name: name.to_owned(), uid: uid.clone() })
    });
    let claims: Vec<NotedClaim> = claims.collect();
    if claims.is_empty() { Step::RemoveFinalizer } else { Step::DeleteClaims { claims } }
}

/// The claims of the machine's templates: made where they are missing, grown where they are
/// smaller. One that is a copy of an image waits for the image.
fn claim_step(seen: &Seen<'_>) -> Option<Step> {
    // One that cannot be read was refused when it was written.
    let templates = claim_templates::parse(seen.vm.annotation(claim_templates::ANNOTATION)).ok()?;
    let namespace = seen.vm.metadata.namespace.as_deref().unwrap_or_default();
    templates.iter().find_map(|template| {
        let name = template.metadata.name.as_deref()?;
        let bytes = claim_templates::requested_bytes(template)?;
        match seen.claims.get(name) {
            Some(asked) if *asked < bytes => Some(Step::GrowClaim { name: name.to_owned(), bytes }),
            Some(_) => None,
            None => {
                let image = template.metadata.annotations.as_ref().and_then(|all| all.get(IMAGE_ANNOTATION));
                let waits = image.is_some_and(|image| !image.is_empty() && !seen.images.contains(image));
                let claim = claim_templates::claim_to_create(template, namespace);
                (!waits).then(|| Step::CreateClaim(Box::new(claim)))
            }
        }
    })
}

fn run_step(seen: &Seen<'_>) -> Step {
    let vm = seen.vm;
    let request = vm.status.state_change_requests.first();
    let wants_start = request.is_some_and(|request| request.is_start());
    let wants_stop = |uid: &str| request.is_some_and(|request| request.stops(uid));
    let delete = |uid: String| Step::DeleteInstance { uid };
    match (vm.run_strategy(), instance_of(seen)) {
        // Somebody else's instance is in the way; its end wakes us.
        (_, Instance::Foreign) => Step::Rest,
        // What goes is let go all the way, even if somebody changed their mind.
        (_, Instance::Going) => Step::Rest,

        (RunStrategy::Always, Instance::Absent) => start_unless_too_early(seen),
        (RunStrategy::Always, Instance::Final(uid)) => delete(uid),
        (RunStrategy::Always, Instance::Alive(uid)) if wants_stop(&uid) => delete(uid),
        (RunStrategy::Always, Instance::Alive(_)) => Step::Rest,

        (RunStrategy::RerunOnFailure, Instance::Absent) => {
            // Never run before, or asked for since.
            if wants_start || vm.status.run_strategy.is_none() {
                start_unless_too_early(seen)
            } else {
                Step::Rest
            }
        }
        (RunStrategy::RerunOnFailure, Instance::Final(uid)) => delete(uid),
        (RunStrategy::RerunOnFailure, Instance::Alive(uid)) if wants_stop(&uid) => delete(uid),
        (RunStrategy::RerunOnFailure, Instance::Alive(_)) => Step::Rest,

        (RunStrategy::Manual, Instance::Absent) if wants_start => Step::CreateInstance,
        (RunStrategy::Manual, Instance::Absent) => Step::Rest,
        (RunStrategy::Manual, Instance::Alive(uid) | Instance::Final(uid)) if wants_stop(&uid) => delete(uid),
        // It stays to be looked at until somebody starts it again.
        (RunStrategy::Manual, Instance::Alive(_) | Instance::Final(_)) => Step::Rest,

        (RunStrategy::Halted, Instance::Absent) if wants_start => Step::SetRunStrategy(RunStrategy::Always),
        (RunStrategy::Halted, Instance::Absent) => Step::Rest,
        (RunStrategy::Halted, Instance::Alive(uid) | Instance::Final(uid)) => delete(uid),

        (RunStrategy::Once, Instance::Absent) => start_unless_too_early(seen),
        (RunStrategy::Once, Instance::Alive(_) | Instance::Final(_)) => Step::Rest,
    }
}

fn start_unless_too_early(seen: &Seen<'_>) -> Step {
    let failure = seen.vm.status.start_failure.as_ref();
    let retry = failure.and_then(|failure| failure.retry_after_timestamp.as_ref());
    match retry.map(|time| time.0.as_second()) {
        Some(until) if until > seen.now => Step::Wait { until },
        Some(_) | None => Step::CreateInstance,
    }
}

/// The instance as far as the next step depends on it.
enum Instance {
    Absent,
    Alive(String),
    Final(String),
    /// Marked for deletion.
    Going,
    /// Of the right name and another owner.
    Foreign,
}

fn instance_of(seen: &Seen<'_>) -> Instance {
    match seen.instance {
        None => Instance::Absent,
        Some(_) if is_foreign(seen) => Instance::Foreign,
        Some(instance) if instance.metadata.deletion_timestamp.is_some() => Instance::Going,
        Some(instance) if instance.status.phase.is_final() => Instance::Final(uid_of(instance)),
        Some(instance) => Instance::Alive(uid_of(instance)),
    }
}

fn is_foreign(seen: &Seen<'_>) -> bool {
    let owners = |instance: &VirtualMachineInstance| instance.metadata.owner_references.clone();
    let ours = |uid: &str| seen.vm.metadata.uid.as_deref() == Some(uid);
    seen.instance
        .is_some_and(|instance| !owners(instance).unwrap_or_default().iter().any(|owner| ours(&owner.uid)))
}

fn uid_of(instance: &VirtualMachineInstance) -> String {
    instance.metadata.uid.clone().unwrap_or_default()
}

fn has_finalizer(finalizers: &Option<Vec<String>>, name: &str) -> bool {
    finalizers.iter().flatten().any(|finalizer| finalizer == name)
}

/// An event about a step: type, reason, message.
pub type Event = (&'static str, &'static str, String);

/// What is told of a step that succeeded, in the original's words.
pub fn event_of(step: &Step, vm: &VirtualMachine) -> Option<Event> {
    let name = vm.metadata.name.as_deref().unwrap_or_default();
    match step {
        Step::CreateInstance => Some((
            "Normal",
            "SuccessfulCreate",
            format!("Started the virtual machine by creating the new virtual machine instance {name}"),
        )),
        Step::DeleteInstance { uid } => Some((
            "Normal",
            "SuccessfulDelete",
            format!("Stopped the virtual machine by deleting the virtual machine instance {uid}"),
        )),
        _ => None,
    }
}

/// What is told of a step that failed.
pub fn failure_event_of(step: &Step, vm: &VirtualMachine, why: &str) -> Option<Event> {
    let name = vm.metadata.name.as_deref().unwrap_or_default();
    match step {
        Step::CreateInstance => {
            Some(("Warning", "FailedCreate", format!("Error creating virtual machine instance: {why}")))
        }
        Step::DeleteInstance { .. } => Some((
            "Warning",
            "FailedDelete",
            format!("Error deleting virtual machine instance {name}: {why}"),
        )),
        Step::CreateClaim(claim) => {
            let claim = claim.metadata.name.as_deref().unwrap_or_default();
            Some(("Warning", "FailedCreate", format!("Error creating PersistentVolumeClaim {claim}: {why}")))
        }
        Step::UpdateInstance { .. } => Some((
            "Warning",
            "FailedUpdate",
            format!("Error changing the running virtual machine instance {name}: {why}"),
        )),
        Step::GrowClaim { name: claim, .. } => {
            Some(("Warning", "FailedUpdate", format!("Error growing PersistentVolumeClaim {claim}: {why}")))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
