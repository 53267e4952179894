//! The single steps of everything a [`crate::Hypervisor`] does, by name.
//!
//! A process can die after any of them, and must then be able to carry on from what the
//! host shows. So that this can be tested step by step rather than at random, the
//! configuration takes a function that is called after each one.

use std::{fmt, str::FromStr};

macro_rules! steps {
    ($($(#[$doc:meta])* $step:ident = $name:literal,)*) => {
        /// One thing done that is visible on the host.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Step {
            $($(#[$doc])* $step,)*
        }

        impl Step {
            pub const ALL: &[Step] = &[$(Step::$step),*];

            pub fn name(self) -> &'static str {
                match self {
                    $(Step::$step => $name,)*
                }
            }
        }
    };
}

steps! {
    /// define: the machine's directory is there.
    DirectoryMade = "directory-made",
    /// define: its lock is held.
    DefinitionLocked = "definition-locked",
    /// define: `machine.json` is complete and on disk.
    DefinitionWritten = "definition-written",
    /// launch: the lock is held; from here on nobody else starts this machine.
    LaunchLocked = "launch-locked",
    /// launch: what an earlier run left is gone.
    LeftoversCleared = "leftovers-cleared",
    /// launch: cgroups exist and are limited.
    CgroupMade = "cgroup-made",
    /// launch: every socket is bound and listening.
    SocketsBound = "sockets-bound",
    /// launch: the launcher runs, with the lock.
    LauncherSpawned = "launcher-spawned",
    /// launch: QEMU answered on its monitor.
    MonitorAnswered = "monitor-answered",
    /// plug in: QEMU has the descriptor of one layer of a disk.
    LayerHandedIn = "layer-handed-in",
    /// plug in: QEMU has made one node of a disk.
    NodeAdded = "node-added",
    /// plug in: the host's end of a NIC is there.
    BackendAdded = "backend-added",
    /// plug in: the guest's end is there.
    DeviceAdded = "device-added",
    /// plug in: one more processor is there.
    ProcessorAdded = "processor-added",
    /// plug in: the guest was asked to take more memory, or to give some back.
    MemoryAsked = "memory-asked",
    /// pull out: the guest was asked to let go.
    DeviceAskedOut = "device-asked-out",
    /// pull out: one node of a disk is gone.
    NodeRemoved = "node-removed",
    /// pull out: QEMU no longer has the descriptors of one layer.
    DescriptorsTakenBack = "descriptors-taken-back",
    /// pull out: the host's end of a NIC is gone.
    BackendRemoved = "backend-removed",
    /// eject, insert: the tray is open, or the guest was asked to open it.
    TrayOpened = "tray-opened",
    /// eject: the drive is empty.
    MediumRemoved = "medium-removed",
    /// insert: the disc is in the drive.
    MediumInserted = "medium-inserted",
    /// insert: the guest can read it.
    TrayClosed = "tray-closed",
    /// grow: a disk is larger.
    NodeGrown = "node-grown",
    /// kill: the process was sent SIGKILL.
    Signalled = "signalled",
    /// kill: nobody holds the lock any more.
    Gone = "gone",
    /// forget: the lock is held, so nothing runs and nothing is started.
    ForgetLocked = "forget-locked",
    /// forget: the cgroups are gone.
    CgroupRemoved = "cgroup-removed",
    /// forget: everything but the lock is gone.
    FilesRemoved = "files-removed",
    /// forget: nothing is left.
    DirectoryRemoved = "directory-removed",
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Step, String> {
        let found = Step::ALL.iter().find(|step| step.name() == text);
        found.copied().ok_or_else(|| format!("no step is called {text:?}"))
    }
}
