//! Plays the launcher in this crate's tests: a process that becomes QEMU.

use std::process::ExitCode;

fn main() -> ExitCode {
    sheaf_hypervisor::launcher::run()
}
