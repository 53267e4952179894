//! What the host says about itself: processors, memory, disk, kernel, identity.
//!
//! Read anew each time, from `/proc`, `/sys` and `/etc` below a root that is handed in, so that tests can
//! furnish one. What cannot be read is empty or zero, never made up: a container without a machine id is
//! still a node.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The host as it is at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    pub cpus: u64,
    pub memory_bytes: u64,
    /// What programs could still have without swapping.
    pub memory_available_bytes: u64,
    /// Of the file system that holds the data directory.
    pub disk_bytes: u64,
    pub disk_available_bytes: u64,
    pub kernel: String,
    pub os_image: String,
    pub machine_id: String,
    pub system_uuid: String,
    pub boot_id: String,
}

/// Where to look.
#[derive(Clone, Debug)]
pub struct HostView {
    root: PathBuf,
    data_dir: PathBuf,
}

impl HostView {
    pub fn new(data_dir: PathBuf) -> Self {
        HostView { root: PathBuf::from("/"), data_dir }
    }

    #[cfg(test)]
    fn below(root: &Path) -> Self {
        HostView { root: root.to_owned(), data_dir: root.to_owned() }
    }

    pub fn look(&self) -> Host {
        let memory = self.text("proc/meminfo");
        let (disk_bytes, disk_available_bytes) = disk(&self.data_dir).unwrap_or_default();
        Host {
            cpus: count_cpus(&self.text("proc/cpuinfo")),
            memory_bytes: meminfo(&memory, "MemTotal"),
            memory_available_bytes: meminfo(&memory, "MemAvailable"),
            disk_bytes,
            disk_available_bytes,
            kernel: self.text("proc/sys/kernel/osrelease").trim().to_owned(),
            os_image: os_name(&self.text("etc/os-release")),
            machine_id: self.text("etc/machine-id").trim().to_owned(),
            system_uuid: self.text("sys/class/dmi/id/product_uuid").trim().to_owned(),
            boot_id: self.text("proc/sys/kernel/random/boot_id").trim().to_owned(),
        }
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.root.join(path)).unwrap_or_default()
    }
}

fn count_cpus(cpuinfo: &str) -> u64 {
    let listed = cpuinfo.lines().filter(|line| line.starts_with("processor")).count() as u64;
    listed.max(1)
}

/// A line of `/proc/meminfo` in bytes.
fn meminfo(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or_default() * 1024
}

fn os_name(os_release: &str) -> String {
    let line = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    line.unwrap_or("Linux").trim_matches('"').to_owned()
}

/// Bytes in all, and those that are free.
fn disk(path: &Path) -> io::Result<(u64, u64)> {
    let found = rustix::fs::statvfs(path)?;
    Ok((found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn furnish(root: &Path, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn a_host_is_read_as_it_says_it_is() {
        let root = tempfile::tempdir().unwrap();
        furnish(
            root.path(),
            &[
                ("proc/cpuinfo", "processor\t: 0\nflags\t: vmx\n\nprocessor\t: 1\n"),
                ("proc/meminfo", "MemTotal:       24681264 kB\nMemFree: 1 kB\nMemAvailable:    1024 kB\n"),
                ("proc/sys/kernel/osrelease", "6.1.0-13-amd64\n"),
                ("proc/sys/kernel/random/boot_id", "b00t\n"),
                ("etc/os-release", "NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n"),
                ("etc/machine-id", "abc\n"),
            ],
        );
        let host = HostView::below(root.path()).look();
        assert_eq!((host.cpus, host.memory_bytes), (2, 24_681_264 * 1024));
        assert_eq!(host.memory_available_bytes, 1024 * 1024);
        assert_eq!((host.kernel.as_str(), host.boot_id.as_str()), ("6.1.0-13-amd64", "b00t"));
        assert_eq!(
            (host.os_image.as_str(), host.machine_id.as_str()),
            ("Debian GNU/Linux 12 (bookworm)", "abc")
        );
        assert_eq!(host.system_uuid, "");
        assert!(host.disk_bytes >= host.disk_available_bytes && host.disk_bytes > 0);
    }

    #[test]
    fn what_cannot_be_read_is_not_made_up() {
        let root = tempfile::tempdir().unwrap();
        furnish(root.path(), &[("proc/meminfo", "MemTotal: much\n")]);
        let host = HostView::below(root.path()).look();
        assert_eq!((host.cpus, host.memory_bytes, host.os_image.as_str()), (1, 0, "Linux"));
    }
}
