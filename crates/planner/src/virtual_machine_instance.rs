//! Decides the next step for one instance on the node it is bound to, and the phase it is in.
//!
//! ```text
//!            Prepare             Launch
//!   Absent ----------> Prepared ----------> Launching ---> Running <---> paused
//!     ^                   |                     |             |  Pause, Resume
//!     |      Forget       |        CutPower     |             | PressPowerButton
//!     +-------------------+          +----------+             v
//!     |                              v         CutPower    Stopping
//!     +--------------------------- Exited <-------------------+ (after the grace)
//!         Forget, once ReportFinished has been heard
//! ```
//!
//! Phases, as KubeVirt's clients know them; none ever goes back:
//!
//! ```text
//!   (none) -> Pending -> Scheduling -> Scheduled -> Running -> Succeeded | Failed
//!             a node is being chosen   on its node             it shut down | all else
//! ```
//!
//! - One step per call. The caller acts, looks again, and asks again.
//! - The host says how things stand, never the object: an agent that was killed between any
//!   two steps carries on from what it finds.
//! - An instance runs once. What has exited is reported and cleared away; whether there is
//!   another one is its VirtualMachine's to decide.
//! - The phase is written before anything is done: a machine that was running and is not
//!   there any more has failed, and is not started in secret.

pub mod binding;
pub mod plugging;

use std::time::Duration;

use sheaf_resources::kinds::virtual_machine_instance::{VirtualMachineInstance, status::Phase};

/// How an instance stands on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Nothing of it is here.
    Absent,
    /// Its disks, taps and configuration are here, all or some; no process.
    Prepared,
    /// QEMU is there and does not answer yet.
    Launching,
    Running {
        paused: bool,
    },
    /// The power button was pressed, so long ago.
    Stopping {
        pressed_for: Duration,
    },
    /// The process is gone.
    Exited {
        how: Exit,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The guest shut itself down, asked or not.
    ShutDown,
    /// We cut its power.
    PowerCut,
    /// QEMU died, or the guest did.
    Crashed,
    /// It was running, and nothing is left of it: the host went down.
    Vanished,
}

/// How an instance should stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Running or paused, as somebody left it. One that is not there yet is started running.
    AsItIs,
    Run,
    Paused,
    /// No grace cuts the power at once.
    Stop {
        grace: Duration,
    },
    /// Nothing of it should be here.
    Forget,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Rest,
    /// Look again soon.
    Wait,
    /// Disks, taps, seed, configuration: whatever of it is not there yet.
    Prepare,
    Launch {
        paused: bool,
    },
    Pause,
    Resume,
    PressPowerButton,
    CutPower,
    /// Write the final phase.
    ReportFinished,
    /// Clear away what is on the host, and take the node's finalizer off.
    Forget,
}

impl Seen {
    /// What the host shows, in the light of what was known: one that was running and is not
    /// there has ended, however it did.
    pub fn after(self, phase: Phase) -> Self {
        match (self, phase) {
            (Seen::Absent | Seen::Prepared, Phase::Running) => Seen::Exited { how: Exit::Vanished },
            (seen, _) => seen,
        }
    }
}

pub fn next_step(seen: Seen, wanted: Wanted) -> Step {
    match (seen, wanted) {
        (Seen::Absent, Wanted::AsItIs | Wanted::Run | Wanted::Paused) => Step::Prepare,
        // It was stopped before it began.
        (Seen::Absent, Wanted::Stop { .. }) => Step::ReportFinished,
        (Seen::Absent, Wanted::Forget) => Step::Rest,

        // Preparing picks up where it was left, so a half-prepared one is prepared first.
        (Seen::Prepared, Wanted::AsItIs | Wanted::Run) => Step::Launch { paused: false },
        (Seen::Prepared, Wanted::Paused) => Step::Launch { paused: true },
        (Seen::Prepared, Wanted::Stop { .. } | Wanted::Forget) => Step::Forget,

        (Seen::Launching, Wanted::AsItIs | Wanted::Run | Wanted::Paused) => Step::Wait,
        // There is no guest yet who could hear a button.
        (Seen::Launching, Wanted::Stop { .. } | Wanted::Forget) => Step::CutPower,

        (Seen::Running { .. }, Wanted::AsItIs) => Step::Rest,
        (Seen::Running { paused: false }, Wanted::Run) => Step::Rest,
        (Seen::Running { paused: true }, Wanted::Run) => Step::Resume,
        (Seen::Running { paused: false }, Wanted::Paused) => Step::Pause,
        (Seen::Running { paused: true }, Wanted::Paused) => Step::Rest,
        (Seen::Running { .. }, Wanted::Stop { grace: Duration::ZERO }) => Step::CutPower,
        (Seen::Running { paused: false }, Wanted::Stop { .. }) => Step::PressPowerButton,
        // A paused guest cannot act on a button: it is let go first, and pressed then.
        (Seen::Running { paused: true }, Wanted::Stop { .. }) => Step::Resume,
        (Seen::Running { .. }, Wanted::Forget) => Step::CutPower,

        // A guest on its way down is let go all the way, whoever changed their mind.
        (Seen::Stopping { .. }, Wanted::AsItIs | Wanted::Run | Wanted::Paused) => Step::Wait,
        (Seen::Stopping { pressed_for }, Wanted::Stop { grace }) if pressed_for < grace => Step::Wait,
        (Seen::Stopping { .. }, Wanted::Stop { .. } | Wanted::Forget) => Step::CutPower,

        (Seen::Exited { .. }, Wanted::AsItIs | Wanted::Run | Wanted::Paused | Wanted::Stop { .. }) => {
            Step::ReportFinished
        }
        (Seen::Exited { .. }, Wanted::Forget) => Step::Forget,
    }
}

/// How the object says the instance should stand, on the node it is bound to. `default_grace`
/// is for one that does not say how long it may take.
pub fn wanted(instance: &VirtualMachineInstance, default_grace: Duration) -> Wanted {
    let spec = &instance.spec;
    if instance.status.phase.is_final() {
        return Wanted::Forget;
    }
    if instance.metadata.deletion_timestamp.is_some() {
        let stated = spec.termination_grace_period_seconds.map(|seconds| u64::try_from(seconds).unwrap_or(0));
        let grace = stated.map_or(default_grace, Duration::from_secs);
        // Without ACPI there is no button to press.
        return Wanted::Stop { grace: if spec.domain.acpi_is_on() { grace } else { Duration::ZERO } };
    }
    match instance.status.phase {
        Phase::Running => Wanted::AsItIs,
        _ if spec.starts_paused() => Wanted::Paused,
        _ => Wanted::Run,
    }
}

/// The phase of an instance that is bound to this node. `before` is the phase it had.
pub fn phase_of(before: Phase, seen: Seen, acpi: bool) -> Phase {
    if before.is_final() {
        return before;
    }
    match seen.after(before) {
        Seen::Absent | Seen::Prepared | Seen::Launching if before == Phase::Running => Phase::Running,
        Seen::Absent | Seen::Prepared | Seen::Launching => Phase::Scheduled,
        Seen::Running { .. } | Seen::Stopping { .. } => Phase::Running,
        Seen::Exited { how: Exit::ShutDown } => Phase::Succeeded,
        // With a button to press, having to cut the power means that the guest did not go.
        Seen::Exited { how: Exit::PowerCut } if acpi => Phase::Failed,
        Seen::Exited { how: Exit::PowerCut } => Phase::Succeeded,
        Seen::Exited { how: Exit::Crashed | Exit::Vanished } => Phase::Failed,
    }
}

/// The phase to report for one that was stopped before it began.
pub const NEVER_STARTED: Phase = Phase::Succeeded;

/// An event: type, reason, message.
pub type Event = (&'static str, &'static str, &'static str);

/// What is told when a phase begins, in the original's words.
pub fn event_of_phase(phase: Phase) -> Option<Event> {
    match phase {
        Phase::Running => Some(("Normal", "Started", "VirtualMachineInstance started.")),
        Phase::Succeeded => Some(("Normal", "Stopped", "The VirtualMachineInstance was shut down.")),
        Phase::Failed => Some(("Warning", "Stopped", "The VirtualMachineInstance crashed.")),
        Phase::Unset | Phase::Pending | Phase::Scheduling | Phase::Scheduled | Phase::Unknown => None,
    }
}

/// What is told when a step was taken.
pub fn event_of_step(step: Step) -> Option<Event> {
    match step {
        Step::Launch { .. } => Some(("Normal", "Created", "VirtualMachineInstance defined.")),
        Step::PressPowerButton => Some(("Normal", "ShuttingDown", "Signaled Graceful Shutdown")),
        Step::CutPower => Some(("Normal", "Deleted", "VirtualMachineInstance stopping")),
        Step::Forget => Some(("Normal", "Deleted", "Signaled Deletion")),
        Step::Rest | Step::Wait | Step::Prepare | Step::Pause | Step::Resume | Step::ReportFinished => None,
    }
}

/// The reason of the warning about a step that failed; the message is what went wrong.
pub const SYNC_FAILED: &str = "SyncFailed";

#[cfg(test)]
mod tests;
