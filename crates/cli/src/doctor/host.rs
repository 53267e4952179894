//! The machine and its kernel.

use std::{
    fs::{self, OpenOptions},
    io,
    path::Path,
    time::Duration,
};

use super::{Finding, fail, ok, warn};

/// 2025-01-01T00:00:00Z: no clock that is right can be before it.
const CLOCK_FLOOR: Duration = Duration::from_secs(1_735_689_600);
const OLDEST_KERNEL: (u32, u32) = (5, 10);
const MEMORY_NEEDED_MIB: u64 = 256;
const MEMORY_WANTED_MIB: u64 = 2048;

/// Every client connection is an open file, and every watch has one for as long as it lasts.
const OPEN_FILES_WANTED: u64 = 16_384;

/// Where the running time services leave a sign that they are there.
const TIME_SERVICES: [&str; 4] =
    ["run/systemd/timesync/synchronized", "run/chrony/chronyd.pid", "run/ntpd.pid", "run/openntpd.pid"];

pub(super) fn examine(root: &Path, now: Duration) -> Vec<Finding> {
    vec![
        user(rustix::process::geteuid().as_raw()),
        kernel(root),
        memory(root),
        open_files(rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum),
        cgroup(root),
        kvm(root),
        clock(root, now),
    ]
}

fn user(uid: u32) -> Finding {
    match uid {
        0 => ok("user", "root"),
        uid => warn(
            "user",
            format!("user id {uid}"),
            "the API runs; virtual machines with networks of their own need root (sudo)",
        ),
    }
}

fn kernel(root: &Path) -> Finding {
    let release = fs::read_to_string(root.join("proc/sys/kernel/osrelease")).unwrap_or_default();
    let release = release.trim();
    match version(release) {
        Some(version) if version >= OLDEST_KERNEL => ok("kernel", release),
        Some(_) => {
            let (major, minor) = OLDEST_KERNEL;
            fail("kernel", release, format!("Linux {major}.{minor} or newer is needed: upgrade the system"))
        }
        None => {
            warn("kernel", format!("version not understood: {release:?}"), "Linux 5.10 or newer is needed")
        }
    }
}

/// `6.1.0-18-amd64` is (6, 1).
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn memory(root: &Path) -> Finding {
    let text = fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default();
    let (Some(total), Some(available)) = (mebibytes(&text, "MemTotal"), mebibytes(&text, "MemAvailable"))
    else {
        return warn("memory", "not known: /proc/meminfo cannot be read", "mount /proc");
    };
    let found = format!("{total} MiB, {available} MiB of it available");
    if available < MEMORY_NEEDED_MIB {
        return fail("memory", found, format!("free or add memory: a node needs {MEMORY_NEEDED_MIB} MiB"));
    }
    if total < MEMORY_WANTED_MIB {
        return warn("memory", found, "enough for the API, with little left for virtual machines");
    }
    ok("memory", found)
}

/// Of the hard limit, since a node raises the soft one to it by itself.
fn open_files(hard_limit: Option<u64>) -> Finding {
    match hard_limit {
        None => ok("open files", "unlimited"),
        Some(limit) if limit >= OPEN_FILES_WANTED => ok("open files", format!("at most {limit}")),
        Some(limit) => warn(
            "open files",
            format!("at most {limit}"),
            format!(
                "each client takes one: raise the hard limit to {OPEN_FILES_WANTED} or more (LimitNOFILE= of a \
                 systemd unit, or `nofile` in /etc/security/limits.conf)"
            ),
        ),
    }
}

fn mebibytes(meminfo: &str, key: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? / 1024)
}

fn cgroup(root: &Path) -> Finding {
    let base = root.join("sys/fs/cgroup");
    if base.join("cgroup.controllers").exists() {
        return ok("cgroup", "version 2");
    }
    if base.join("memory").exists() {
        let advice = "works, with less control; boot with systemd.unified_cgroup_hierarchy=1 for version 2";
        return warn("cgroup", "version 1", advice);
    }
    warn("cgroup", "not mounted", "virtual machines get no limits: mount -t cgroup2 none /sys/fs/cgroup")
}

fn kvm(root: &Path) -> Finding {
    let slow = "virtual machines run in software emulation, many times slower";
    let device = OpenOptions::new().read(true).write(true).open(root.join("dev/kvm"));
    let cpuinfo = fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
    let Err(why) = device else {
        return match virtualisation_flag(&cpuinfo) {
            Some(_) => ok("kvm", "/dev/kvm can be used"),
            // Some hosts offer the device to special guests only: an ordinary one would not start.
            None => warn(
                "kvm",
                "/dev/kvm opens, but the CPU shows no vmx or svm",
                format!("turn on nesting in the hypervisor below; until then {slow}"),
            ),
        };
    };
    if why.kind() == io::ErrorKind::PermissionDenied {
        return warn("kvm", "/dev/kvm may not be opened by this user", "run as root, or join the group kvm");
    }
    match virtualisation_flag(&cpuinfo) {
        Some("vmx") => warn("kvm", "the CPU can, but there is no /dev/kvm", "modprobe kvm_intel"),
        Some(_) => warn("kvm", "the CPU can, but there is no /dev/kvm", "modprobe kvm_amd"),
        None => warn(
            "kvm",
            "no hardware virtualisation seen",
            format!(
                "turn on VT-x or AMD-V in the firmware (or nesting, in a virtual machine); until then {slow}"
            ),
        ),
    }
}

fn virtualisation_flag(cpuinfo: &str) -> Option<&str> {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"))?;
    flags.split_whitespace().find(|flag| *flag == "vmx" || *flag == "svm")
}

fn clock(root: &Path, now: Duration) -> Finding {
    if now < CLOCK_FLOOR {
        return fail("clock", "set before 2025", "set it (timedatectl set-time): certificates go by it");
    }
    if TIME_SERVICES.iter().any(|sign| root.join(sign).exists()) {
        return ok("clock", "kept by a time service");
    }
    warn("clock", "no time service seen", "apt install chrony: nodes of one cluster need the same time")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    const NOW: Duration = Duration::from_secs(1_800_000_000);

    fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        root
    }

    fn verdict(finding: Finding) -> (Verdict, String) {
        assert_eq!(finding.verdict == Verdict::Ok, finding.advice.is_none(), "{finding:?}");
        (finding.verdict, format!("{} {}", finding.found, finding.advice.unwrap_or_default()))
    }

    #[test]
    fn a_good_host_has_nothing_to_be_told() {
        let root = host(&[
            ("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n"),
            ("proc/meminfo", "MemTotal:       16303428 kB\nMemAvailable:   12303428 kB\n"),
            ("sys/fs/cgroup/cgroup.controllers", "cpu memory"),
            ("dev/kvm", ""),
            ("proc/cpuinfo", "flags\t\t: fpu vmx\n"),
            ("run/chrony/chronyd.pid", "1"),
        ]);
        for finding in examine(root.path(), NOW).into_iter() {
            // These two are asked of the process, whoever runs it.
            if finding.check == "user" || finding.check == "open files" {
                continue;
            }
            assert_eq!(finding.verdict, Verdict::Ok, "{finding:?}");
        }
    }

    #[test]
    fn a_device_that_opens_is_not_enough() {
        let root = host(&[("dev/kvm", ""), ("proc/cpuinfo", "flags\t\t: fpu sse\n")]);
        assert_eq!(verdict(kvm(root.path())).0, Verdict::Warn);
    }

    #[test]
    fn an_old_kernel_is_refused_and_a_strange_one_is_not() {
        let of = |release: &str| verdict(kernel(host(&[("proc/sys/kernel/osrelease", release)]).path())).0;
        assert_eq!(of("5.10.0"), Verdict::Ok);
        assert_eq!(of("7.0-rc1"), Verdict::Ok);
        assert_eq!(of("5.4.0-150-generic"), Verdict::Fail);
        assert_eq!(of("custom"), Verdict::Warn);
    }

    #[test]
    fn too_little_memory_is_refused_and_a_little_is_warned_about() {
        let of = |total: u64, available: u64| {
            let text = format!("MemTotal: {} kB\nMemAvailable: {} kB\n", total * 1024, available * 1024);
            verdict(memory(host(&[("proc/meminfo", &text)]).path())).0
        };
        assert_eq!(of(4096, 255), Verdict::Fail);
        assert_eq!(of(1024, 512), Verdict::Warn);
        assert_eq!(of(4096, 512), Verdict::Ok);
    }

    #[test]
    fn a_low_hard_limit_of_open_files_is_warned_about() {
        assert_eq!(verdict(open_files(Some(4096))).0, Verdict::Warn);
        assert_eq!(verdict(open_files(Some(524_288))).0, Verdict::Ok);
        assert_eq!(verdict(open_files(None)).0, Verdict::Ok);
    }

    #[test]
    fn missing_kvm_is_told_by_its_cause() {
        let of = |flags: &str| verdict(kvm(host(&[("proc/cpuinfo", flags)]).path())).1;
        assert!(of("processor: 0\nflags\t\t: fpu vmx sse\n").contains("kvm_intel"));
        assert!(of("flags\t\t: fpu svm\n").contains("kvm_amd"));
        assert!(of("flags\t\t: fpu sse\n").contains("firmware"));
    }

    #[test]
    fn a_clock_in_the_past_is_refused() {
        let root = host(&[]);
        assert_eq!(verdict(clock(root.path(), Duration::from_secs(86_400))).0, Verdict::Fail);
        assert_eq!(verdict(clock(root.path(), NOW)).0, Verdict::Warn);
    }

    #[test]
    fn both_versions_of_cgroups_are_recognised() {
        assert!(verdict(cgroup(host(&[("sys/fs/cgroup/memory/tasks", "")]).path())).1.contains("version 1"));
        assert!(verdict(cgroup(host(&[]).path())).1.contains("not mounted"));
    }

    #[test]
    fn only_root_goes_unmentioned() {
        assert_eq!(verdict(user(0)).0, Verdict::Ok);
        assert_eq!(verdict(user(1000)).0, Verdict::Warn);
    }
}
