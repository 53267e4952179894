//! The host's part of a bundle: what it is, what its disks and links look like, what Sheaf and QEMU said, how much lies
//! where. Names, numbers and lines; never the contents of disks, keys or consoles.
//!
//! What cannot be found out is named in the bundle and holds up nothing: a host without `nft` has a bundle all the same.

use std::{
    fs::{self, File},
    io::{Read, Seek, SeekFrom},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::Value;
use sheaf_hypervisor::Hypervisor;

use super::{
    archive::{Archive, Gone},
    programs::said,
};
use crate::{metrics::MachineMetrics, virtual_machine_instance::Notes, virtualisation::QEMU};

/// So much of the end of a log.
const MOST_OF_A_LOG: u64 = 4 << 20;
/// So many files of the data directory are listed.
const MOST_FILES: usize = 50_000;

pub const README: &str = "\
What helps others to find out what is wrong with a cluster, without its secrets.

  metadata.yaml               what the trouble is, and when this was made
  yamls/cluster/...           objects without a namespace, by kind
  yamls/namespaced/NAME/...   objects of a namespace, by kind; events among them
  metrics.txt                 what the API server counts
  nodes/NAME/host/            kernel, memory, disks, links, routes, packet filter, QEMU
  nodes/NAME/logs/            what Sheaf said, and who asked its API for what
  nodes/NAME/machines/UID/    what each virtual machine is, its QEMU and what that said
  bundleGenerationError.log   what could not be found out

Removed, and the word \"redacted\" in their place: the values of Secrets and ConfigMaps, passwords, tokens, keys, user data
of cloud-init, annotations, settings that may hold credentials, all words of kinds that Sheaf does not know, and whatever looks
like a secret. The disks, consoles and screens of virtual machines are not in here, nor is any key of the cluster.
";

/// Files of the kernel and the system that say how the host is.
const FILES: &[&str] = &[
    "/etc/os-release",
    "/proc/cpuinfo",
    "/proc/diskstats",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/modules",
    "/proc/net/dev",
    "/proc/partitions",
    "/proc/pressure/cpu",
    "/proc/pressure/io",
    "/proc/pressure/memory",
    "/proc/sys/kernel/osrelease",
    "/proc/swaps",
    "/proc/uptime",
    "/proc/version",
    "/proc/vmstat",
];

/// Programs, and the files that what they say goes to.
const PROGRAMS: &[(&str, &str, &[&str])] = &[
    ("host/disks.txt", "lsblk", &["-b", "-o", "NAME,SIZE,TYPE,FSTYPE,MOUNTPOINT,ROTA,MODEL"]),
    ("host/file-systems.txt", "df", &["-P", "-T"]),
    ("host/links.txt", "ip", &["-details", "-statistics", "link"]),
    ("host/addresses.txt", "ip", &["address"]),
    ("host/routes.txt", "ip", &["route", "show", "table", "all"]),
    ("host/rules.txt", "ip", &["rule"]),
    ("host/neighbours.txt", "ip", &["neighbour"]),
    ("host/packet-filter.txt", "nft", &["list", "ruleset"]),
    ("host/processes.txt", "ps", &["-eo", "pid,ppid,user,stat,rss,etimes,comm"]),
    (
        "logs/journal.txt",
        "journalctl",
        &["--no-pager", "-q", "-u", "sheaf", "-n", "20000", "-o", "short-iso"],
    ),
    ("logs/kernel.txt", "journalctl", &["--no-pager", "-q", "-k", "-n", "5000", "-o", "short-iso"]),
];

/// What is looked at.
pub struct HostLook {
    pub node: String,
    /// What the node calls its version.
    pub version: String,
    pub data_dir: PathBuf,
    pub hypervisor: Arc<Hypervisor>,
    pub notes: Notes,
    pub metrics: Arc<MachineMetrics>,
}

impl HostLook {
    /// Writes all that is found out; what is not goes to `missing`.
    pub async fn gather(
        &self,
        archive: &Archive,
        missing: &mut Vec<String>,
        tell: impl Fn(i64, i64),
    ) -> Result<(), Gone> {
        let node = format!("nodes/{}", self.node);
        let all = i64::try_from(FILES.len() + PROGRAMS.len() + 1).unwrap_or(1);
        let mut done = 0;
        archive.add(&format!("{node}/host/version.txt"), format!("{}\n", self.version)).await?;
        for path in FILES {
            match end_of(Path::new(path), MOST_OF_A_LOG) {
                Ok(text) => archive.add(&format!("{node}/host{path}"), text).await?,
                Err(why) => missing.push(format!("{path}: {why}")),
            }
            done += 1;
            tell(done, all);
        }
        for (file, program, arguments) in PROGRAMS {
            match said(program, arguments).await {
                Ok(text) if text.trim().is_empty() => {
                    missing.push(format!("{program} has nothing to say for {file}"))
                }
                Ok(text) => archive.add(&format!("{node}/{file}"), text).await?,
                Err(why) => missing.push(why),
            }
            done += 1;
            tell(done, all);
        }
        match said(QEMU.rsplit('/').next().unwrap_or(QEMU), &["--version"]).await {
            Ok(text) => archive.add(&format!("{node}/host/qemu.txt"), text).await?,
            Err(why) => missing.push(why),
        }
        let mut numbers = String::new();
        self.metrics.write(&mut numbers);
        archive.add(&format!("{node}/machines/metrics.txt"), numbers).await?;
        archive.add(&format!("{node}/host/mounts.txt"), mounts()).await?;
        match own_log() {
            Ok(Some(text)) => archive.add(&format!("{node}/logs/sheaf.txt"), text).await?,
            // It goes to the journal, or to a terminal.
            Ok(None) => {}
            Err(why) => missing.push(format!("the log: {why}")),
        }
        match end_of(&self.data_dir.join("audit/audit.log"), MOST_OF_A_LOG) {
            Ok(text) => archive.add(&format!("{node}/logs/audit.jsonl"), without_bodies(&text)).await?,
            Err(why) => missing.push(format!("the audit log: {why}")),
        }
        let data_dir = self.data_dir.clone();
        if let Ok(listed) = tokio::task::spawn_blocking(move || listing(&data_dir)).await {
            archive.add(&format!("{node}/host/data-directory.txt"), listed).await?;
        }
        self.gather_machines(archive, &node, missing).await
    }
}

/// The last bytes of a file, from the beginning of a line on.
pub(super) fn end_of(path: &Path, most: u64) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let is_cut = length > most;
    if is_cut {
        file.seek(SeekFrom::Start(length - most))?;
    }
    let mut bytes = Vec::new();
    // What the kernel makes up as it is read has no length.
    file.take(most).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(match text.split_once('\n') {
        Some((_, whole_lines)) if is_cut => whole_lines.to_owned(),
        _ => text.into_owned(),
    })
}

/// What is mounted where and as what. How is left out: options may have passwords in them.
fn mounts() -> String {
    let text = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let shown = |line: &str| line.split(' ').take(3).collect::<Vec<_>>().join(" ");
    text.lines().map(shown).collect::<Vec<_>>().join("\n")
}

/// What this process said, where that goes to a file.
fn own_log() -> std::io::Result<Option<String>> {
    let standard_error = Path::new("/proc/self/fd/2");
    match fs::metadata(standard_error)?.is_file() {
        true => end_of(standard_error, MOST_OF_A_LOG).map(Some),
        false => Ok(None),
    }
}

/// Lines of the audit log, without what was sent and answered: that was redacted for who may read logs, and this goes to
/// others.
fn without_bodies(log: &str) -> String {
    let mut shown = String::new();
    for line in log.lines() {
        let Ok(Value::Object(mut event)) = serde_json::from_str::<Value>(line) else { continue };
        event.remove("requestObject");
        event.remove("responseObject");
        shown += &Value::Object(event).to_string();
        shown.push('\n');
    }
    shown
}

/// What lies in a directory and how large it is, without a look into any of it.
fn listing(directory: &Path) -> String {
    let mut lines = Vec::new();
    let mut folders = vec![directory.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        let mut entries: Vec<_> = entries.filter_map(Result::ok).collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            if lines.len() >= MOST_FILES {
                lines.push(format!("... and more than {MOST_FILES} that are not listed"));
                return lines.join("\n");
            }
            // Of a link, not of what it leads to.
            let Ok(about) = entry.metadata() else { continue };
            let sort = match about.file_type() {
                sort if sort.is_dir() => 'd',
                sort if sort.is_file() => 'f',
                sort if sort.is_symlink() => 'l',
                _ => '?',
            };
            let path = entry.path();
            let shown = path.strip_prefix(directory).unwrap_or(&path).display().to_string();
            lines.push(format!("{sort} {:>14} {:>11} {shown}", about.len(), about.mtime()));
            if about.is_dir() {
                folders.push(path);
            }
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_log_the_end_is_shown_in_whole_lines() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, "one\ntwo\nthree\n").unwrap();
        assert_eq!(end_of(file.path(), 100).unwrap(), "one\ntwo\nthree\n");
        assert_eq!(end_of(file.path(), 8).unwrap(), "three\n");
        assert!(end_of(Path::new("/proc/version"), 100).unwrap().contains("Linux"));
    }

    #[test]
    fn a_listing_has_names_and_sizes_and_follows_no_link() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("keys")).unwrap();
        fs::write(directory.path().join("keys/a.pem"), "hunter2").unwrap();
        std::os::unix::fs::symlink("/", directory.path().join("out")).unwrap();
        let listed = listing(directory.path());
        assert!(listed.contains("keys/a.pem") && listed.contains(" 7 "), "{listed}");
        assert!(
            listed.contains("out") && !listed.contains("out/") && !listed.contains("hunter2"),
            "{listed}"
        );
    }

    #[test]
    fn an_audit_log_is_shown_without_bodies() {
        let line = r#"{"verb":"create","requestObject":{"data":"hunter2"},"responseObject":{"a":"hunter2"}}"#;
        assert_eq!(without_bodies(&format!("{line}\nhalf a line")), "{\"verb\":\"create\"}\n");
    }
}
