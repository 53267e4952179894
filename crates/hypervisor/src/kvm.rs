//! Whether KVM can be used, found out by using it.
//!
//! A `/dev/kvm` that opens proves little: inside another virtual machine it may be there without the
//! processor's help, and then no ordinary guest runs. So the last question is always
//! put to a real guest: a machine with nothing but firmware must run under KVM and say
//! something.

use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
    time::Duration,
};

use crate::{probe::Probe, qmp::RunState, user_ids::Identity};

pub const DEVICE: &str = "/dev/kvm";
/// The firmware speaks within milliseconds; a guest that has not by then makes no progress.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KvmVerdict {
    Usable,
    /// In words for the node's status.
    Unusable {
        reason: String,
    },
}

impl KvmVerdict {
    pub fn is_usable(&self) -> bool {
        *self == KvmVerdict::Usable
    }
}

/// Cheapest question first; the last one takes about a second. `identity` is whom machines run as.
pub async fn examine(qemu: &Path, identity: Option<Identity>) -> KvmVerdict {
    match unusable(qemu, identity).await {
        Some(reason) => KvmVerdict::Unusable { reason },
        None => KvmVerdict::Usable,
    }
}

async fn unusable(qemu: &Path, identity: Option<Identity>) -> Option<String> {
    let device = Path::new(DEVICE);
    match fs::metadata(device) {
        Err(why) => return Some(format!("{DEVICE}: {why}")),
        Ok(metadata) if !metadata.file_type().is_char_device() => {
            return Some(format!("{DEVICE} is not a device"));
        }
        Ok(_) => {}
    }
    if let Err(why) = fs::OpenOptions::new().read(true).write(true).open(device) {
        return Some(format!("{DEVICE} cannot be opened: {why}"));
    }
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    if !has_virtualisation(&cpus) {
        return Some(format!(
            "{DEVICE} opens, but the processor offers no virtualisation (neither vmx nor svm in /proc/cpuinfo)"
        ));
    }
    let identity = identity.map(|identity| match group(device) {
        Some(gid) => Identity { gid, ..identity },
        None => identity,
    });
    runs_a_guest(qemu, identity, "kvm").await.err()
}

fn has_virtualisation(cpus: &str) -> bool {
    let flags = cpus.lines().filter(|line| line.starts_with("flags"));
    flags.flat_map(str::split_ascii_whitespace).any(|flag| flag == "vmx" || flag == "svm")
}

/// Starts a machine of firmware only and waits for its first words.
async fn runs_a_guest(qemu: &Path, identity: Option<Identity>, accelerator: &str) -> Result<(), String> {
    let arguments = [
        "-machine",
        "q35",
        "-accel",
        accelerator,
        "-m",
        "32",
        "-device",
        "isa-debugcon,iobase=0x402,chardev=debug",
    ];
    let probe = Probe::start(qemu, identity, &arguments)
        .await
        .map_err(|why| format!("a guest cannot be started with {accelerator}: {}", in_full(&why)))?;
    let said = probe.speaks_within(PATIENCE).await;
    let status = probe.monitor.status().await;
    match (said, status) {
        (true, Ok(RunState::Running)) => Ok(()),
        (_, Ok(RunState::Running)) => Err(format!("a guest started with {accelerator} makes no progress")),
        (_, Ok(state)) => Err(format!("a guest started with {accelerator} came to {state:?}")),
        (_, Err(why)) => Err(format!("a guest started with {accelerator} ended: {}", in_full(&why))),
    }
}

/// The group that may use the device, if being in it is needed and harmless. Never root's:
/// what is open to nobody else is not for machines.
pub(crate) fn group(device: &Path) -> Option<u32> {
    let metadata = fs::metadata(device).ok()?;
    let (everyone, group) = (metadata.mode() & 0o006 == 0o006, metadata.mode() & 0o060 == 0o060);
    (!everyone && group && metadata.gid() != 0).then_some(metadata.gid())
}

fn in_full(why: &dyn std::error::Error) -> String {
    let mut text = why.to_string();
    let mut cause = why.source();
    while let Some(why) = cause {
        text.push_str(&format!(": {why}"));
        cause = why.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const QEMU: &str = "/usr/bin/qemu-system-x86_64";

    #[test]
    fn a_processor_without_virtualisation_is_recognised() {
        assert!(has_virtualisation("flags\t\t: fpu vme vmx ssse3\n"));
        assert!(has_virtualisation("flags\t\t: fpu svm\n"));
        assert!(!has_virtualisation("flags\t\t: fpu vme ssse3 vmxoff\nmodel name\t: svm vmx\n"));
    }

    #[tokio::test]
    async fn a_guest_that_runs_is_seen_to_run() {
        // The same question, put to the accelerator that works everywhere.
        assert_eq!(runs_a_guest(Path::new(QEMU), None, "tcg").await, Ok(()));
    }

    #[tokio::test]
    async fn a_guest_that_cannot_start_is_a_reason_in_words() {
        let reason = runs_a_guest(Path::new(QEMU), None, "xen").await.unwrap_err();
        assert!(reason.contains("xen"), "{reason}");
    }

    #[tokio::test]
    async fn a_device_that_opens_is_not_trusted_for_that() {
        let cpus = fs::read_to_string("/proc/cpuinfo").unwrap();
        let verdict = examine(Path::new(QEMU), None).await;
        match verdict {
            KvmVerdict::Usable => assert!(has_virtualisation(&cpus)),
            KvmVerdict::Unusable { reason } => assert!(reason.len() > 10, "{reason:?} explains nothing"),
        }
    }
}
