//! How one machine stands, read off the host.

use std::time::Duration;

use sheaf_hypervisor::{
    HypervisorError, Machine, MachineId, Monitor, QmpError, State,
    qmp::{Event, RunState},
};
use sheaf_planner::virtual_machine_instance::{Exit, Seen};
use tokio::sync::broadcast;

use super::{
    Hands,
    note::{Note, NoteError},
};

/// A connection to a machine's monitor, and what it tells.
pub struct Line {
    pub monitor: Monitor,
    pub events: broadcast::Receiver<Event>,
}

impl Line {
    pub fn of(monitor: Monitor) -> Line {
        let events = monitor.events();
        Line { monitor, events }
    }
}

/// What a look found.
pub struct Looked {
    pub seen: Seen,
    pub machine: Option<Machine>,
    pub note: Option<Note>,
    /// A disk failed, and the guest was stopped before it noticed.
    pub disk_failed: bool,
    /// Its process is there and its monitor does not answer.
    pub silent: bool,
    /// What QEMU said last, of one that is gone.
    pub last_words: String,
}

impl Looked {
    pub fn is_paused(&self) -> bool {
        matches!(self.seen, Seen::Running { paused: true })
    }
}

#[derive(Debug, thiserror::Error)]
pub enum LookError {
    #[error(transparent)]
    Note(#[from] NoteError),
    #[error(transparent)]
    Hypervisor(#[from] HypervisorError),
}

impl Hands {
    /// Looks at one machine. `line` is its monitor, opened here where it is needed and not open;
    /// `asked_to_go` is whether its end, if it has ended, was asked for.
    pub(super) async fn look(
        &self,
        id: &MachineId,
        line: &mut Option<Line>,
        asked_to_go: bool,
    ) -> Result<Looked, LookError> {
        let note = self.notes.read(id)?;
        let found = self.hypervisor.look(id.clone())?;
        let mut looked = Looked {
            seen: Seen::Absent,
            machine: found.machine,
            note,
            disk_failed: false,
            silent: false,
            last_words: String::new(),
        };
        looked.seen = match found.state {
            State::Defined => {
                *line = None;
                let something = looked.note.is_some()
                    || looked.machine.is_some()
                    || self.hypervisor.directory_of(id).exists();
                if something { Seen::Prepared } else { Seen::Absent }
            }
            State::Launching => Seen::Launching,
            State::Exited { last_words } => {
                *line = None;
                looked.last_words = last_words;
                Seen::Exited { how: if asked_to_go { Exit::PowerCut } else { Exit::Crashed } }
            }
            State::Running { .. } => match self.run_state(id, line).await {
                // It is about to be started again, unless somebody wants it off by now.
                Some(RunState::Shutdown)
                    if self.soft_reboots.contains(id)
                        && looked.note.as_ref().is_none_or(|note| note.pressed_at.is_none()) =>
                {
                    Seen::Running { paused: false }
                }
                Some(RunState::Shutdown) => Seen::Exited { how: Exit::ShutDown },
                Some(RunState::GuestPanicked | RunState::InternalError) => {
                    Seen::Exited { how: Exit::Crashed }
                }
                Some(state) => {
                    let is_stopped = looked.note.as_ref().is_some_and(|note| note.stopped_for_space);
                    looked.disk_failed =
                        state == RunState::IoError || (is_stopped && state == RunState::Paused);
                    let paused = !matches!(state, RunState::Running | RunState::Suspended);
                    let pressed = looked.note.as_ref().and_then(|note| note.pressed_at);
                    match pressed {
                        Some(at) if !paused => Seen::Stopping { pressed_for: self.since(at) },
                        _ => Seen::Running { paused },
                    }
                }
                // It is there and does not answer: about to, about to end, or stuck.
                None => {
                    looked.silent = true;
                    Seen::Launching
                }
            },
        };
        Ok(looked)
    }

    async fn run_state(&self, id: &MachineId, line: &mut Option<Line>) -> Option<RunState> {
        if line.is_none() {
            match self.hypervisor.monitor(id).await {
                Ok(monitor) => *line = Some(Line::of(monitor)),
                Err(why) => {
                    tracing::debug!(machine = %id, %why, "its monitor does not answer");
                    return None;
                }
            }
        }
        let asked = match line {
            Some(line) => line.monitor.status().await,
            None => return None,
        };
        match asked {
            Ok(state) => Some(state),
            Err(why) => {
                if !matches!(why, QmpError::Closed) {
                    tracing::warn!(machine = %id, %why, "its monitor does not say how it is");
                }
                *line = None;
                None
            }
        }
    }

    pub(super) fn since(&self, at: u64) -> Duration {
        self.world.clock.since_epoch().saturating_sub(Duration::from_secs(at))
    }
}
