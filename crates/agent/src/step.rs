//! The single things an agent does beside what hypervisor, network and storage do. Between any
//! two of them, theirs included, the process may be killed.

use std::{fmt, sync::Arc};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// The note of a machine is written.
    WriteNote,
    /// The variables of a UEFI guest are made.
    MakeVariables,
    /// The status of an object is written.
    WriteStatus,
    /// A volume says how large it has become.
    TellGrowth,
    /// The guest's power button is pressed.
    PressPowerButton,
    /// A new layer is in QEMU, and no disk has it.
    AddLayer,
    /// The guest's file systems were asked to stand still.
    Freeze,
    /// A machine's disks are written to other layers.
    SwitchLayers,
    /// The guest's file systems were asked to go on.
    Thaw,
    /// QEMU puts one layer into another.
    BeginMerge,
    /// QEMU copies a disk into an image.
    BeginExport,
    /// A disk is no longer read through a layer that is in another now.
    PassOverLayer,
    /// QEMU forgot a layer that nothing lies on.
    DropLayer,
    /// QEMU was asked to end.
    AskToQuit,
    /// The file of a support bundle is there, and nothing is in it.
    BeginBundle,
    /// All that the cluster says is in the file.
    GatherBundle,
    /// The file has its name.
    KeepBundle,
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
