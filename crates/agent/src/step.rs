//! The single things an agent does beside what hypervisor, network and storage do. Between any
//! two of them, theirs included, the process may be killed.

use std::{fmt, sync::Arc};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// The note of a machine is written.
    WriteNote,
    /// The status of an object is written.
    WriteStatus,
    /// The guest's power button is pressed.
    PressPowerButton,
    /// QEMU was asked to end.
    AskToQuit,
    /// The note of a machine is removed.
    ForgetNote,
    /// The node's finalizer is taken off an object.
    Release,
}

/// Called after each step that was taken.
#[derive(Clone, Default)]
pub struct AfterStep(Option<Arc<dyn Fn(Step) + Send + Sync>>);

impl AfterStep {
    pub fn call(hook: impl Fn(Step) + Send + Sync + 'static) -> AfterStep {
        AfterStep(Some(Arc::new(hook)))
    }

    pub(crate) fn took(&self, step: Step) {
        if let Some(hook) = &self.0 {
            hook(step);
        }
    }
}

impl fmt::Debug for AfterStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "AfterStep(hook)" } else { "AfterStep(nothing)" })
    }
}
