//! What start, stop, restart, pause and their like do, or why they do not: KubeVirt's
//! subresources, with its words.
//!
//! A request that is taken becomes a [`Change`] of objects; whoever asked writes it, and the
//! controllers act on it. Pausing and resetting are asked of the machine's node directly, so
//! those only say whether they may. Which code answers a [`Refusal`] is the API server's.

use sheaf_resources::kinds::{
    virtual_machine::{
        VirtualMachine,
        run_strategy::RunStrategy,
        status::{STOP, StateChangeRequest},
    },
    virtual_machine_instance::{VirtualMachineInstance, status::Phase},
};

use super::{status::is_done, uid_of};

/// What to write. Each part is written on the condition that it is still as it was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// The machine's `spec.runStrategy`.
    pub run_strategy: Option<RunStrategy>,
    /// The machine's `status.stateChangeRequests`, and with them `status.startFailure` goes:
    /// who asks by hand does not wait.
    pub requests: Option<Vec<StateChangeRequest>>,
    /// The instance's `spec.terminationGracePeriodSeconds`.
    pub grace_period_secs: Option<i64>,
}

/// Why not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A conflict: not as things stand.
    #[error("{0}")]
    Conflict(String),
    /// Not like this.
    #[error("{0}")]
    BadRequest(String),
    /// Not of this machine.
    #[error("{0}")]
    Forbidden(String),
    /// An internal error, in the original: somebody else's request is not done yet.
    #[error("{0}")]
    Underway(String),
}

fn conflict<T>(message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Conflict(message.into()))
}

const VM_NOT_RUNNING: &str = "VM is not running";
const VMI_NOT_RUNNING: &str = "VMI is not running";

pub fn start(
    vm: &VirtualMachine,
    instance: Option<&VirtualMachineInstance>,
    paused: bool,
) -> Result<Change, Refusal> {
    let phase = instance.map(|instance| instance.status.phase);
    if phase.is_some_and(|phase| !phase.is_final() && !matches!(phase, Phase::Unknown | Phase::Unset)) {
        return conflict("VM is already running");
    }
    let start = StateChangeRequest::start(paused);
    let again =
        |instance: &VirtualMachineInstance| vec![StateChangeRequest::stop(&uid_of(instance)), start.clone()];
    let strategy = vm.run_strategy();
    match (strategy, instance, phase) {
        (RunStrategy::Halted, _, _) if paused => ask(vm, instance, vec![start]),
        (RunStrategy::Halted, _, _) => {
            Ok(Change { run_strategy: Some(RunStrategy::Always), ..Change::default() })
        }
        (RunStrategy::RerunOnFailure, _, Some(Phase::Failed)) => {
            conflict("RerunOnFailure does not support starting VM from failed state")
        }
        (RunStrategy::RerunOnFailure, Some(instance), Some(Phase::Succeeded)) => {
            ask(vm, Some(instance), again(instance))
        }
        (RunStrategy::Manual, Some(instance), Some(phase)) if phase.is_final() => {
            ask(vm, Some(instance), again(instance))
        }
        (RunStrategy::RerunOnFailure | RunStrategy::Manual, _, _) => ask(vm, instance, vec![start]),
        (RunStrategy::Always | RunStrategy::Once, _, _) => {
            conflict(format!("{strategy} does not support manual start requests"))
        }
    }
}

pub fn stop(
    vm: &VirtualMachine,
    instance: Option<&VirtualMachineInstance>,
    grace_period_secs: Option<i64>,
) -> Result<Change, Refusal> {
    if grace_period_secs.is_some_and(|seconds| seconds < 0) {
        return Err(Refusal::BadRequest("gracePeriod has to be greater or equal to 0".into()));
    }
    let live = instance.filter(|instance| !instance.status.phase.is_final());
    let shorter = live.and(grace_period_secs);
    let mut change = match (vm.run_strategy(), live) {
        (RunStrategy::Always | RunStrategy::Once, _) => {
            Change { run_strategy: Some(RunStrategy::Halted), ..Change::default() }
        }
        (RunStrategy::Halted | RunStrategy::RerunOnFailure | RunStrategy::Manual, None) => {
            return conflict(VM_NOT_RUNNING);
        }
        (RunStrategy::Halted, Some(instance)) => {
            let before = instance.spec.termination_grace_period_seconds;
            if grace_period_secs.is_none_or(|seconds| before.is_some_and(|before| seconds >= before)) {
                return conflict("Halted only supports manual stop requests with a shorter graceperiod");
            }
            ask(vm, live, vec![StateChangeRequest::stop(&uid_of(instance))])?
        }
        (RunStrategy::RerunOnFailure | RunStrategy::Manual, Some(instance)) => {
            ask(vm, live, vec![StateChangeRequest::stop(&uid_of(instance))])?
        }
    };
    change.grace_period_secs = shorter;
    Ok(change)
}

/// `grace_period_secs` of 0 cuts the power instead of asking the guest; nothing else is taken.
pub fn restart(
    vm: &VirtualMachine,
    instance: Option<&VirtualMachineInstance>,
    grace_period_secs: Option<i64>,
) -> Result<Change, Refusal> {
    match grace_period_secs {
        Some(seconds) if seconds > 0 => {
            let why = "For force restart, only gracePeriod=0 is supported for now";
            return Err(Refusal::BadRequest(why.into()));
        }
        Some(seconds) if seconds < 0 => {
            return Err(Refusal::BadRequest("gracePeriod has to be greater or equal to 0".into()));
        }
        Some(_) | None => {}
    }
    let strategy = vm.run_strategy();
    match (strategy, instance) {
        (RunStrategy::Halted | RunStrategy::Once, _) => {
            // Misspelt in the original, and matched on.
            conflict(format!("RunStategy {strategy} does not support manual restart requests"))
        }
        (RunStrategy::Always | RunStrategy::RerunOnFailure | RunStrategy::Manual, None) => {
            conflict("VM is not running: Halted")
        }
        (RunStrategy::Always | RunStrategy::RerunOnFailure | RunStrategy::Manual, Some(instance)) => {
            let requests =
                vec![StateChangeRequest::stop(&uid_of(instance)), StateChangeRequest::start(false)];
            Ok(Change { grace_period_secs, ..ask(vm, Some(instance), requests)? })
        }
    }
}

/// A stop by itself replaces what was asked for before; anything else waits its turn. What is
/// done already but still written down is nothing to wait for: the instance of a stopped machine
/// is gone a moment before its request is, and that moment is when people start it again.
fn ask(
    vm: &VirtualMachine,
    instance: Option<&VirtualMachineInstance>,
    requests: Vec<StateChangeRequest>,
) -> Result<Change, Refusal> {
    let only_stop = matches!(requests.as_slice(), [only] if only.action == STOP);
    let all_are_done = vm.status.state_change_requests.iter().all(|request| is_done(request, instance));
    if !all_are_done && !only_stop {
        return Err(Refusal::Underway("unable to complete request: stop/start already underway".into()));
    }
    Ok(Change { requests: Some(requests), ..Change::default() })
}

pub fn may_pause(instance: &VirtualMachineInstance) -> Result<(), Refusal> {
    if instance.status.phase != Phase::Running {
        return conflict(VM_NOT_RUNNING);
    }
    if instance.status.condition("Paused").is_some() {
        return conflict("VMI is already paused");
    }
    Ok(())
}

/// `vm` is there when the instance has one.
pub fn may_unpause(vm: Option<&VirtualMachine>, instance: &VirtualMachineInstance) -> Result<(), Refusal> {
    if vm.is_some_and(|vm| vm.status.snapshot_in_progress.is_some()) {
        return conflict("VM snapshot is in progress");
    }
    if instance.status.phase != Phase::Running {
        return conflict(VMI_NOT_RUNNING);
    }
    if instance.status.condition("Paused").is_none() {
        return conflict("VMI is not paused");
    }
    Ok(())
}

pub fn may_soft_reboot(instance: &VirtualMachineInstance) -> Result<(), Refusal> {
    if instance.status.phase != Phase::Running {
        return conflict(VM_NOT_RUNNING);
    }
    if instance.status.is("Paused") {
        return conflict("VMI is paused");
    }
    if instance.status.condition("AgentConnected").is_none() && !instance.spec.domain.acpi_is_on() {
        return conflict("VMI neither have the agent connected nor the ACPI feature enabled");
    }
    Ok(())
}

pub fn may_reset(instance: &VirtualMachineInstance) -> Result<(), Refusal> {
    match instance.status.phase {
        Phase::Running => Ok(()),
        _ => conflict(VMI_NOT_RUNNING),
    }
}

/// Questions that only a guest agent answers: guestosinfo, userlist, filesystemlist.
pub fn may_ask_guest(instance: &VirtualMachineInstance) -> Result<(), Refusal> {
    if instance.status.phase != Phase::Running {
        return conflict(VMI_NOT_RUNNING);
    }
    if instance.status.condition("AgentConnected").is_none() {
        return conflict("VMI does not have guest agent connected");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
