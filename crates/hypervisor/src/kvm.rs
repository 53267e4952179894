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

/// What the first questions are put to.
struct Host<'a> {
    device: &'a Path,
    /// The text of `/proc/cpuinfo`.
    cpus: &'a str,
    patience: Duration,
}

/// Cheapest question first; the last one takes about a second. `identity` is whom machines run as.
pub async fn examine(qemu: &Path, identity: Option<Identity>) -> KvmVerdict {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let host = Host { device: Path::new(DEVICE), cpus: &cpus, patience: PATIENCE };
    match unusable(&host, qemu, identity).await {
        Some(reason) => KvmVerdict::Unusable { reason },
        None => KvmVerdict::Usable,
    }
}

async fn unusable(host: &Host<'_>, qemu: &Path, identity: Option<Identity>) -> Option<String> {
    let name = host.device.display();
    match fs::metadata(host.device) {
        Err(why) => return Some(format!("{name}: {why}")),
        Ok(metadata) if !metadata.file_type().is_char_device() => {
            return Some(format!("{name} is not a device"));
        }
        Ok(_) => {}
    }
    if let Err(why) = fs::OpenOptions::new().read(true).write(true).open(host.device) {
        return Some(format!("{name} cannot be opened: {why}"));
    }
    if !has_virtualisation(host.cpus) {
        return Some(format!(
            "{name} opens, but the processor offers no virtualisation (neither vmx nor svm in /proc/cpuinfo)"
        ));
    }
    let identity = identity.map(|identity| match group(host.device) {
        Some(gid) => Identity { gid, ..identity },
        None => identity,
    });
    runs_a_guest(qemu, identity, "kvm", host.patience).await.err()
}

fn has_virtualisation(cpus: &str) -> bool {
    let flags = cpus.lines().filter(|line| line.starts_with("flags"));
    flags.flat_map(str::split_ascii_whitespace).any(|flag| flag == "vmx" || flag == "svm")
}

/// Starts a machine of firmware only and waits for its first words. It has the processor that machines have which do not
/// ask for another: some hosts run an old one, and not their own.
async fn runs_a_guest(
    qemu: &Path,
    identity: Option<Identity>,
    accelerator: &str,
    patience: Duration,
) -> Result<(), String> {
    let model = if accelerator == "kvm" { "host" } else { "max" };
    let arguments = [
        "-machine",
        "q35",
        "-accel",
        accelerator,
        "-cpu",
        model,
        "-m",
        "32",
        "-device",
        "isa-debugcon,iobase=0x402,chardev=debug",
    ];
    let probe = Probe::start(qemu, identity, &arguments)
        .await
        .map_err(|why| format!("a guest cannot be started with {accelerator}: {}", in_full(&why)))?;
    how_it_went(&probe, accelerator, patience).await
}

/// What became of a guest that was started.
async fn how_it_went(probe: &Probe, accelerator: &str, patience: Duration) -> Result<(), String> {
    let said = probe.speaks_within(patience).await;
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
    use std::{os::unix::fs::PermissionsExt, path::PathBuf};

    use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

    use super::*;

    const QEMU: &str = "/usr/bin/qemu-system-x86_64";
    const WITH_VMX: &str = "flags\t\t: fpu vme vmx ssse3\n";

    /// The verdict on a host with such a device and such processors, where `qemu` is what is started.
    async fn verdict(device: &Path, cpus: &str, qemu: &Path) -> Option<String> {
        let host = Host { device, cpus, patience: Duration::from_millis(500) };
        unusable(&host, qemu, None).await
    }

    /// A program in the place of QEMU that talks as its monitor does, with these words as its state, after `first`.
    fn stand_in(directory: &Path, first: &str, state: &str) -> PathBuf {
        let program = directory.join("qemu");
        let script = format!(
            r#"#!/bin/sh
{first}
echo '{{"QMP": {{"version": {{}}, "capabilities": []}}}}' >&3
while read -r line <&3; do
    id=$(echo "$line" | sed 's/.*"id": *\([0-9]*\).*/\1/')
    case $line in *quit*) exit;; esac
    echo '{{"return": {{"status": "{state}"}}, "id": '"$id"'}}' >&3
done
"#
        );
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        program
    }

    #[test]
    fn a_processor_without_virtualisation_is_recognised() {
        assert!(has_virtualisation("flags\t\t: fpu vme vmx ssse3\n"));
        assert!(has_virtualisation("flags\t\t: fpu svm\n"));
        assert!(!has_virtualisation("flags\t\t: fpu vme ssse3 vmxoff\nmodel name\t: svm vmx\n"));
    }

    #[tokio::test]
    async fn a_device_that_is_missing_or_no_device_or_closed_to_us_is_told_as_that() {
        let directory = tempfile::tempdir().unwrap();
        let qemu = Path::new("/nowhere/qemu");
        let missing = directory.path().join("kvm");
        let why = verdict(&missing, WITH_VMX, qemu).await.unwrap();
        assert!(why.contains("No such file"), "{why}");
        fs::write(&missing, "").unwrap();
        let why = verdict(&missing, WITH_VMX, qemu).await.unwrap();
        assert!(why.ends_with("is not a device"), "{why}");

        // The number of a device that no driver is behind; not everybody may make one.
        let dead = directory.path().join("dead");
        if mknodat(CWD, &dead, FileType::CharacterDevice, Mode::RUSR, makedev(10, 254)).is_ok() {
            let why = verdict(&dead, WITH_VMX, qemu).await.unwrap();
            assert!(why.contains("cannot be opened: "), "{why}");
        }
    }

    #[tokio::test]
    async fn a_device_that_opens_on_a_processor_without_virtualisation_is_not_trusted() {
        let why = verdict(Path::new("/dev/null"), "flags\t\t: fpu\n", Path::new(QEMU)).await.unwrap();
        assert!(why.contains("opens, but the processor offers no virtualisation"), "{why}");
    }

    #[tokio::test]
    async fn a_guest_that_gets_nowhere_is_a_reason_whatever_device_and_processor_say() {
        let directory = tempfile::tempdir().unwrap();
        let device = Path::new("/dev/null");
        for (first, state, reason) in [
            // It says nothing, and runs.
            ("", "running", "a guest started with kvm makes no progress"),
            // It says something, and then the processor fails it.
            ("echo SeaBIOS >&4", "internal-error", "a guest started with kvm came to InternalError"),
            ("", "paused", "a guest started with kvm came to Paused"),
            ("echo 'ioctl(KVM_CREATE_VM) failed: 19' >&2; exit 1", "", "ioctl(KVM_CREATE_VM) failed: 19"),
        ] {
            let qemu = stand_in(directory.path(), first, state);
            let why = verdict(device, WITH_VMX, &qemu).await.unwrap();
            assert!(why.contains(reason), "{why}");
        }
        let why = verdict(device, WITH_VMX, Path::new("/nowhere/qemu")).await.unwrap();
        assert!(why.contains("a guest cannot be started with kvm"), "{why}");

        let qemu = stand_in(directory.path(), "echo SeaBIOS >&4", "running");
        assert_eq!(
            verdict(device, WITH_VMX, &qemu).await,
            None,
            "one that runs and speaks is all there is to ask"
        );
    }

    #[tokio::test]
    async fn a_guest_that_dies_at_once_is_a_reason() {
        let directory = tempfile::tempdir().unwrap();
        // It answers twice, as it is asked when it is started, and is gone when it is asked how it is.
        let first = "echo SeaBIOS >&4; (sleep 0.3; kill $$) &";
        let qemu = stand_in(directory.path(), first, "running");
        let probe = Probe::start(&qemu, None, &[]).await.unwrap();
        probe.monitor.closed().await;
        let why = how_it_went(&probe, "kvm", Duration::from_secs(1)).await.unwrap_err();
        assert!(why.starts_with("a guest started with kvm ended"), "{why}");
    }

    #[tokio::test]
    async fn a_guest_that_runs_is_seen_to_run() {
        // The same question, put to the accelerator that works everywhere.
        assert_eq!(runs_a_guest(Path::new(QEMU), None, "tcg", PATIENCE).await, Ok(()));
    }

    #[tokio::test]
    async fn a_guest_that_cannot_start_is_a_reason_in_words() {
        let reason = runs_a_guest(Path::new(QEMU), None, "xen", PATIENCE).await.unwrap_err();
        assert!(reason.contains("xen"), "{reason}");
    }

    #[tokio::test]
    async fn what_this_hosts_device_is_worth_a_guest_and_the_processor_say_together() {
        let device = Path::new(DEVICE);
        let on_trust = Host { device, cpus: WITH_VMX, patience: PATIENCE };
        let by_a_guest = unusable(&on_trust, Path::new(QEMU), None).await;
        let verdict = examine(Path::new(QEMU), None).await;
        // Some hosts run firmware without the processor's help, and no ordinary guest.
        let offered = has_virtualisation(&fs::read_to_string("/proc/cpuinfo").unwrap());
        assert_eq!(
            by_a_guest.is_none() && offered,
            verdict.is_usable(),
            "{by_a_guest:?}, offered: {offered}, but {verdict:?}"
        );
        if let KvmVerdict::Unusable { reason } = verdict {
            assert!(reason.len() > 10, "{reason:?} explains nothing");
        }
    }

    #[test]
    fn machines_get_the_devices_group_where_that_is_needed_and_harmless() {
        let directory = tempfile::tempdir().unwrap();
        let device = directory.path().join("kvm");
        fs::write(&device, "").unwrap();
        let own = fs::metadata(&device).unwrap().gid();
        for (mode, is_needed) in [(0o660, true), (0o666, false), (0o600, false), (0o640, false)] {
            fs::set_permissions(&device, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(group(&device), (is_needed && own != 0).then_some(own), "{mode:o}");
        }
        // Whoever is root can see both sides.
        if std::os::unix::fs::chown(&device, None, Some(109)).is_ok() {
            fs::set_permissions(&device, fs::Permissions::from_mode(0o660)).unwrap();
            assert_eq!(group(&device), Some(109));
        }
    }
}
