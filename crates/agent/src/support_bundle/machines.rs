//! What a bundle says of each machine of a host: its definition, its note, its QEMU, its cgroups, and what QEMU said.
//!
//! A guest's own words (its console, its screen, its disks) are not among them, nor is what its kernel is started with.

use std::{fmt::Write as _, fs, path::Path};

use serde_json::json;
use sheaf_hypervisor::{Found, Machine, State};
use sheaf_resources::redaction::REDACTED;

use super::{
    archive::{Archive, Gone},
    host::{HostLook, end_of},
};
use crate::virtual_machine_instance::with_causes;

/// So much of the end of what QEMU said.
const MOST_OF_A_LOG: u64 = 256 << 10;

/// Options of QEMU whose values are somebody's.
const HIDDEN_OPTIONS: [&str; 3] = ["-append", "-fw_cfg", "-smbios"];

/// What a cgroup says of who is in it, in version 2 and in version 1.
const CGROUP_FILES: [&str; 15] = [
    "cpu.cfs_quota_us",
    "cpu.max",
    "cpu.shares",
    "cpu.stat",
    "cpu.weight",
    "io.stat",
    "memory.current",
    "memory.events",
    "memory.failcnt",
    "memory.limit_in_bytes",
    "memory.max",
    "memory.peak",
    "memory.usage_in_bytes",
    "pids.current",
    "pids.max",
];

impl HostLook {
    pub(super) async fn gather_machines(
        &self,
        archive: &Archive,
        node: &str,
        missing: &mut Vec<String>,
    ) -> Result<(), Gone> {
        let machines = match self.hypervisor.found() {
            Ok(machines) => machines,
            Err(why) => {
                missing.push(format!("the machines of this host: {}", with_causes(&why)));
                return Ok(());
            }
        };
        for Found { id, machine, state } in machines {
            let place = format!("{node}/machines/{id}");
            let note = self.notes.read(&id).ok().flatten();
            let about = json!({
                "state": format!("{state:?}"), "machine": machine.map(without_words), "note": note,
            });
            let about = serde_json::to_string_pretty(&about).unwrap_or_default();
            archive.add(&format!("{place}/machine.json"), about).await?;
            if let State::Running { pid } = state {
                archive.add(&format!("{place}/process.txt"), process(pid)).await?;
                archive.add(&format!("{place}/cgroups.txt"), cgroups(pid)).await?;
            }
            let log = self.data_dir.join("machines").join(id.as_str()).join("log");
            match end_of(&log, MOST_OF_A_LOG) {
                Ok(text) => archive.add(&format!("{place}/qemu.log"), text).await?,
                Err(why) => missing.push(format!("what QEMU said of machine {id}: {why}")),
            }
        }
        Ok(())
    }
}

/// A machine without what its guest is told.
fn without_words(mut machine: Machine) -> Machine {
    if let Some(kernel) = &mut machine.kernel {
        kernel.command_line = REDACTED.to_owned();
    }
    machine
}

fn process(pid: i32) -> String {
    let place = format!("/proc/{pid}");
    let line = fs::read(format!("{place}/cmdline")).unwrap_or_default();
    let arguments: Vec<String> = line
        .split(|byte| *byte == 0)
        .map(|argument| String::from_utf8_lossy(argument).into_owned())
        .collect();
    let status = fs::read_to_string(format!("{place}/status")).unwrap_or_default();
    format!("{}\n\n{status}", shown_arguments(&arguments).join("\n"))
}

/// The arguments of a QEMU, without those that a guest is told.
fn shown_arguments(arguments: &[String]) -> Vec<&str> {
    let mut hide = false;
    let shown = arguments.iter().map(|argument| {
        let shown = if hide { REDACTED } else { argument.as_str() };
        hide = HIDDEN_OPTIONS.contains(&argument.as_str());
        shown
    });
    shown.collect()
}

fn cgroups(pid: i32) -> String {
    let mut text = String::new();
    let of_process = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    for line in of_process.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let path = path.trim_start_matches('/');
        // Version 2 has one tree, which on hosts with both is beside the others.
        let trees = match controllers {
            "" => vec!["/sys/fs/cgroup".to_owned(), "/sys/fs/cgroup/unified".to_owned()],
            controllers => vec![format!("/sys/fs/cgroup/{controllers}")],
        };
        for tree in trees {
            for file in CGROUP_FILES {
                let place = Path::new(&tree).join(path).join(file);
                if let Ok(said) = fs::read_to_string(&place) {
                    _ = writeln!(text, "{}\n{}\n", place.display(), said.trim());
                }
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_shown_without_what_the_guest_is_told() {
        let line = [
            "qemu",
            "-append",
            "root=/dev/vda hunter2",
            "-m",
            "size=64M",
            "-fw_cfg",
            "name=x,string=hunter2",
        ];
        let line: Vec<String> = line.map(str::to_owned).into();
        assert_eq!(
            shown_arguments(&line),
            ["qemu", "-append", "redacted", "-m", "size=64M", "-fw_cfg", "redacted"]
        );
    }
}
