//! The status a VirtualMachine should have, from what there is of it.
//!
//! - At rest it is a fixed point: the status of a machine that has it is the same one, times
//!   included. Times move with what they are the times of.
//! - It is where intentions are kept: a start that is due is a request in here before
//!   anything is done about it.

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use sheaf_resources::kinds::{
    virtual_machine::{
        VirtualMachine,
        run_strategy::RunStrategy,
        status::{START, STOP, StartFailure, StateChangeRequest, VirtualMachineStatus},
    },
    virtual_machine_instance::{
        VirtualMachineInstance,
        status::{Condition, Phase},
    },
};

use super::{
    Seen, Volumes, is_foreign,
    live_update::{generation_of, why_restart},
    uid_of,
};

/// A machine that fails to come up is tried again after this, four times this, nine times...
const FIRST_RETRY_SECS: i64 = 10;
/// ...and never later than after this. Who ran for as long has come up for good, and begins anew when it ends.
const LAST_RETRY_SECS: i64 = 300;

/// Conditions of the machine's own; all others are its instance's.
const OWN_CONDITIONS: [&str; 3] = ["Ready", "Failure", "RestartRequired"];

pub fn status_of(seen: &Seen<'_>) -> VirtualMachineStatus {
    let vm = seen.vm;
    let instance = seen.instance.filter(|_| !is_foreign(seen));
    let mut status = vm.status.clone();
    status.created = instance.is_some();
    status.ready = instance.is_some_and(|instance| instance.status.is("Ready"));
    if let Some(generation) = instance.and_then(generation_of) {
        status.observed_generation = generation;
        status.desired_generation = vm.metadata.generation.unwrap_or_default();
    }
    note_requests(&mut status, vm, instance);
    // Empty until it first runs, which is how one knows that it never did.
    if status.run_strategy.is_some() || status.created {
        status.run_strategy = Some(vm.run_strategy());
    }
    note_start_failure(&mut status, vm, instance, seen.now);
    note_conditions(&mut status, seen, instance);
    status.printable_status = printable_status(seen, instance, &status).into();
    status
}

/// Drops requests that are done, and adds the start that is due.
fn note_requests(
    status: &mut VirtualMachineStatus,
    vm: &VirtualMachine,
    instance: Option<&VirtualMachineInstance>,
) {
    while status.state_change_requests.first().is_some_and(|request| is_done(request, instance)) {
        status.state_change_requests.remove(0);
    }
    let going = instance.is_some_and(|instance| instance.metadata.deletion_timestamp.is_some());
    let failed = instance.is_some_and(|instance| instance.status.phase == Phase::Failed);
    let changed = status.run_strategy.is_some_and(|strategy| strategy != RunStrategy::RerunOnFailure);
    let due = (failed && !going) || (changed && (instance.is_none() || going));
    if vm.run_strategy() == RunStrategy::RerunOnFailure
        && vm.metadata.deletion_timestamp.is_none()
        && due
        && !status.state_change_requests.iter().any(StateChangeRequest::is_start)
    {
        status.state_change_requests.push(StateChangeRequest::start(false));
    }
}

pub(super) fn is_done(request: &StateChangeRequest, instance: Option<&VirtualMachineInstance>) -> bool {
    match (request.action.as_str(), instance) {
        // A stop that does not say of what, or of an instance that is no more, is over.
        (STOP, None) => true,
        (STOP, Some(instance)) => !request.stops(&uid_of(instance)),
        (START, None) => false,
        (START, Some(instance)) => {
            instance.metadata.deletion_timestamp.is_none() && !instance.status.phase.is_final()
        }
        // Nobody knows what it asks for, and it would block the line for ever.
        _ => true,
    }
}

fn note_start_failure(
    status: &mut VirtualMachineStatus,
    vm: &VirtualMachine,
    instance: Option<&VirtualMachineInstance>,
    now: i64,
) {
    let came_up = instance.is_some_and(|instance| instance.status.has_been_running());
    let for_good = instance.is_some_and(|instance| ran_for_secs(instance, now) >= LAST_RETRY_SECS);
    if for_good || !vm.run_strategy().tries_again() {
        status.start_failure = None;
        return;
    }
    // One that was told to go did not fail to come up, however early that was.
    let ended = |instance: &&VirtualMachineInstance| {
        instance.status.phase.is_final() && instance.metadata.deletion_timestamp.is_none()
    };
    let Some(instance) = instance.filter(ended) else { return };
    let stays_down = match vm.run_strategy() {
        RunStrategy::Once => true,
        RunStrategy::RerunOnFailure => instance.status.phase == Phase::Succeeded,
        RunStrategy::Always | RunStrategy::Manual | RunStrategy::Halted => false,
    };
    if came_up && stays_down {
        status.start_failure = None;
        return;
    }
    let uid = uid_of(instance);
    let before = status.start_failure.take();
    if before.as_ref().is_some_and(|before| before.last_failed_vmi_uid == uid) {
        status.start_failure = before;
        return;
    }
    // One that came up and went is let up again at once, the first time: that may be all that was wanted.
    let count = match &before {
        None if came_up => 0,
        None => 1,
        Some(before) => before.consecutive_fail_count.saturating_add(1),
    };
    let retry = (count > 0).then(|| now.saturating_add(retry_after_secs(count)));
    status.start_failure = Some(StartFailure {
        consecutive_fail_count: count,
        last_failed_vmi_uid: uid,
        retry_after_timestamp: retry.and_then(time),
    });
}

/// From when it first ran until it ended, or until now.
fn ran_for_secs(instance: &VirtualMachineInstance, now: i64) -> i64 {
    let passed = &instance.status.phase_transition_timestamps;
    let when = |wanted: &dyn Fn(Phase) -> bool| {
        let passed = passed.iter().find(|passed| wanted(passed.phase))?;
        passed.phase_transition_timestamp.as_ref().map(|time| time.0.as_second())
    };
    let Some(since) = when(&|phase| phase == Phase::Running) else { return 0 };
    let ended = if instance.status.phase.is_final() { when(&Phase::is_final) } else { None };
    ended.unwrap_or(now).saturating_sub(since)
}

/// How long a machine that failed `count` times in a row waits.
pub fn retry_after_secs(count: i32) -> i64 {
    let count = i64::from(count.max(1));
    count.saturating_mul(count).saturating_mul(FIRST_RETRY_SECS).min(LAST_RETRY_SECS)
}

fn note_conditions(
    status: &mut VirtualMachineStatus,
    seen: &Seen<'_>,
    instance: Option<&VirtualMachineInstance>,
) {
    let now = time(seen.now);
    match instance {
        None => set(status, "Ready", "False", ("VMINotExists", "VMI does not exist"), &now),
        Some(instance) => match instance.status.condition("Ready") {
            Some(ready) => copy(status, ready),
            None => set(
                status,
                "Ready",
                "False",
                ("VMIConditionMissing", "VMI is missing the Ready condition"),
                &now,
            ),
        },
    }
    if is_foreign(seen) {
        let why =
            ("FailedCreate", "Found a virtual machine instance of this name that is not of this machine");
        set(status, "Failure", "True", why, &now);
    } else {
        status.conditions.retain(|condition| condition.condition_type != "Failure");
    }
    match instance.and_then(|instance| why_restart(seen.vm, instance)) {
        Some(why) => set(status, "RestartRequired", "True", ("RestartRequired", &why), &now),
        None => status.conditions.retain(|condition| condition.condition_type != "RestartRequired"),
    }
    let theirs: &[Condition] = instance.map_or(&[], |instance| &instance.status.conditions);
    for condition in theirs {
        if !OWN_CONDITIONS.contains(&condition.condition_type.as_str()) {
            copy(status, condition);
        }
    }
    status.conditions.retain(|condition| {
        OWN_CONDITIONS.contains(&condition.condition_type.as_str())
            || theirs.iter().any(|other| other.condition_type == condition.condition_type)
    });
}

fn set(
    status: &mut VirtualMachineStatus,
    condition_type: &str,
    truth: &str,
    (reason, message): (&str, &str),
    now: &Option<Time>,
) {
    let fresh = Condition {
        condition_type: condition_type.into(),
        status: truth.into(),
        last_probe_time: now.clone(),
        last_transition_time: now.clone(),
        reason: reason.into(),
        message: message.into(),
    };
    match status.conditions.iter_mut().find(|old| old.condition_type == condition_type) {
        None => status.conditions.push(fresh),
        Some(old)
            if (&old.status, &old.reason, &old.message) == (&fresh.status, &fresh.reason, &fresh.message) => {
        }
        Some(old) => {
            let since = old.last_transition_time.clone().filter(|_| old.status == fresh.status);
            *old = Condition { last_transition_time: since.or(fresh.last_transition_time), ..fresh };
        }
    }
}

fn copy(status: &mut VirtualMachineStatus, condition: &Condition) {
    match status.conditions.iter_mut().find(|old| old.condition_type == condition.condition_type) {
        None => status.conditions.push(condition.clone()),
        Some(old) => *old = condition.clone(),
    }
}

/// The one word for people. Several may be true; the first one counts.
fn printable_status(
    seen: &Seen<'_>,
    instance: Option<&VirtualMachineInstance>,
    status: &VirtualMachineStatus,
) -> &'static str {
    let vm = seen.vm;
    if vm.metadata.deletion_timestamp.is_some() {
        return "Terminating";
    }
    let failed_for = |instance: &VirtualMachineInstance, condition: &str, reason: &str| {
        let found = instance.status.condition(condition);
        found.is_some_and(|found| found.status == "False" && found.reason == reason)
    };
    if let Some(instance) = instance {
        let (phase, is_final) = (instance.status.phase, instance.status.phase.is_final());
        if !is_final && instance.metadata.deletion_timestamp.is_some() {
            return "Stopping";
        }
        if instance.status.is_migrating() {
            return "Migrating";
        }
        if phase == Phase::Running {
            return if instance.status.is("Paused") { "Paused" } else { "Running" };
        }
        if failed_for(instance, "Synchronized", "FailedPvcNotFound") {
            return "ErrorPvcNotFound";
        }
        if failed_for(instance, "PodScheduled", "Unschedulable") && !is_final {
            return "ErrorUnschedulable";
        }
    }
    match seen.volumes {
        Volumes::Failed => return "DataVolumeError",
        Volumes::Provisioning => return "Provisioning",
        Volumes::Unbound if is_set_to_start(vm, instance, status) => return "WaitingForVolumeBinding",
        Volumes::Unbound | Volumes::Ready => {}
    }
    match instance.map(|instance| instance.status.phase) {
        Some(Phase::Unset | Phase::Pending | Phase::Scheduling | Phase::Scheduled) => return "Starting",
        Some(Phase::Unknown) => return "Unknown",
        Some(Phase::Running | Phase::Succeeded | Phase::Failed) | None => {}
    }
    let failures = status.start_failure.as_ref().map_or(0, |failure| failure.consecutive_fail_count);
    if failures > 0 && vm.run_strategy().tries_again() { "CrashLoopBackOff" } else { "Stopped" }
}

fn is_set_to_start(
    vm: &VirtualMachine,
    instance: Option<&VirtualMachineInstance>,
    status: &VirtualMachineStatus,
) -> bool {
    let request = status.state_change_requests.first();
    match (vm.run_strategy(), instance) {
        (RunStrategy::Always, _) => true,
        (RunStrategy::Halted, _) => false,
        (RunStrategy::Manual, Some(instance)) => {
            !request.is_some_and(|request| request.stops(&uid_of(instance)))
        }
        (RunStrategy::Manual, None) => request.is_some_and(StateChangeRequest::is_start),
        (RunStrategy::RerunOnFailure, Some(instance)) => instance.status.phase != Phase::Succeeded,
        // Stopped by hand, it stays so until it is asked for.
        (RunStrategy::RerunOnFailure, None) => {
            status.run_strategy.is_none() || request.is_some_and(StateChangeRequest::is_start)
        }
        (RunStrategy::Once, instance) => instance.is_none(),
    }
}

fn time(seconds: i64) -> Option<Time> {
    Timestamp::from_second(seconds).ok().map(Time)
}
