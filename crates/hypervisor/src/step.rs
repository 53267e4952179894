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
