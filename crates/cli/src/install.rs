//! `sheaf install`: this host becomes a node for good.
//!
//! Three steps, each of which may be taken again: the binary to its place, a unit for systemd, and the start. Where
//! systemd does not run, or with another root, the last one is left to whoever boots it.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{InstallConfig, PRODUCT};

const BINARY: &str = "usr/local/bin/sheaf";
const UNIT: &str = "etc/systemd/system/sheaf.service";
pub const SERVICE: &str = "sheaf.service";
/// As the cgroup of all machines has them: see the hypervisor.
const WEIGHT_OF_ONE_PROCESSOR: u64 = 100;
const MOST_WEIGHT: u64 = 10_000;
/// There while systemd is in charge.
const SYSTEMD: &str = "run/systemd/system";

#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error("this binary cannot be found again")]
    OwnBinary(#[source] io::Error),
    #[error("cannot write {path}: are you root?")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot run systemctl")]
    Systemctl(#[source] io::Error),
    #[error("`systemctl {command}` failed: {said}")]
    Refused { command: String, said: String },
}

/// What was done, in sentences.
pub fn install(config: &InstallConfig) -> Result<String, InstallError> {
    let root = config.root.as_deref().unwrap_or(Path::new("/"));
    let mut done = Vec::new();
    let binary = root.join(BINARY);
    let own = env::current_exe().map_err(InstallError::OwnBinary)?;
    if same_file(&own, &binary) {
        done.push(format!("The binary is in its place: {}.", binary.display()));
    } else {
        put(&binary, &fs::read(&own).map_err(InstallError::OwnBinary)?, 0o755)?;
        done.push(format!("The binary was copied to {}.", binary.display()));
    }
    let path = root.join(UNIT);
    put(&path, unit(&config.data_dir, processors(config)).as_bytes(), 0o644)?;
    done.push(format!("The service is described in {}.", path.display()));
    if config.root.is_some() || !Path::new("/").join(SYSTEMD).is_dir() {
        let why = if config.root.is_some() { "it is for another root" } else { "systemd does not run here" };
        done.push(format!(
            "It was not started: {why}. Where systemd runs: systemctl daemon-reload && systemctl enable --now {SERVICE}"
        ));
    } else {
        // One that runs already is started anew with the new binary; its machines run on.
        for command in [&["daemon-reload"][..], &["enable", SERVICE], &["restart", SERVICE]] {
            systemctl(command)?;
        }
        done.push(format!(
            "{PRODUCT} runs, and will run after every boot. Look at it with: systemctl status {SERVICE}; sheaf doctor"
        ));
    }
    Ok(done.join("\n") + "\n")
}

/// Runs systemctl and says what it said against it.
pub fn systemctl(arguments: &[&str]) -> Result<(), InstallError> {
    let ended = Command::new("systemctl")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(InstallError::Systemctl)?;
    if ended.status.success() {
        return Ok(());
    }
    Err(InstallError::Refused {
        command: arguments.join(" "),
        said: String::from_utf8_lossy(&ended.stderr).trim().to_owned(),
    })
}

fn same_file(a: &Path, b: &Path) -> bool {
    matches!((fs::canonicalize(a), fs::canonicalize(b)), (Ok(a), Ok(b)) if a == b)
}

/// Under another name until it is whole: the old one may be running, or be read right now.
fn put(path: &Path, content: &[u8], mode: u32) -> Result<(), InstallError> {
    use std::os::unix::fs::PermissionsExt;
    let write = || -> io::Result<()> {
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
        let unfinished = path.with_extension("new");
        fs::write(&unfinished, content)?;
        fs::set_permissions(&unfinished, fs::Permissions::from_mode(mode))?;
        fs::rename(&unfinished, path)
    };
    write().map_err(|source| InstallError::Write { path: path.to_owned(), source })
}

/// Of the host that will run it.
fn processors(config: &InstallConfig) -> u64 {
    // Nobody knows how many another host will have.
    const OF_SOME_HOST: u64 = 16;
    match config.root {
        Some(_) => OF_SOME_HOST,
        None => std::thread::available_parallelism().map_or(1, |count| count.get() as u64),
    }
}

/// The text of the unit. `data_dir` has been checked for what systemd reads otherwise than as it stands.
pub fn unit(data_dir: &Path, processors: u64) -> String {
    let weight = (processors * WEIGHT_OF_ONE_PROCESSOR).min(MOST_WEIGHT);
    format!(
        "[Unit]
Description={PRODUCT}: virtual machines, their disks and networks, behind the Kubernetes API
After=network-online.target
Wants=network-online.target
# However often it failed before, it is tried again.
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart=\"/{BINARY}\" up --data-dir \"{data_dir}\"
Restart=always
RestartSec=2

# Virtual machines outlive the service: stopping, restarting or upgrading it must end its own
# process and no other. Their cgroups lie beside the service's, not in it, where the kernel has one
# tree for all controllers. Where it has the older trees, systemd's own still counts them to the
# service, and by default would kill them with it.
KillMode=process
# The kernel ending a virtual machine that outgrew its memory is no reason to stop the rest.
OOMPolicy=continue
# A node ends within five seconds of being asked.
TimeoutStopSec=15

# As much of busy processors as all virtual machines together, whose cgroup lies in the same slice: whoever
# stops a machine that has taken over the host need not wait for it.
Slice=-.slice
CPUWeight={weight}

# Each virtual machine, console and watch holds a few descriptors; each machine has several threads.
LimitNOFILE=1048576
TasksMax=infinity
# Guests' memory may be locked for devices that are passed through.
LimitMEMLOCK=infinity

[Install]
WantedBy=multi-user.target
",
        data_dir = data_dir.display(),
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_unit_keeps_machines_alive_and_the_service_too() {
        let text = unit(Path::new("/var/lib/sheaf"), 4);
        let lines: Vec<&str> =
            text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
        let wanted = [
            "[Unit]",
            "Description=Sheaf: virtual machines, their disks and networks, behind the Kubernetes API",
            "After=network-online.target",
            "Wants=network-online.target",
            "StartLimitIntervalSec=0",
            "[Service]",
            "Type=exec",
            "ExecStart=\"/usr/local/bin/sheaf\" up --data-dir \"/var/lib/sheaf\"",
            "Restart=always",
            "RestartSec=2",
            "KillMode=process",
            "OOMPolicy=continue",
            "TimeoutStopSec=15",
            "Slice=-.slice",
            "CPUWeight=400",
            "LimitNOFILE=1048576",
            "TasksMax=infinity",
            "LimitMEMLOCK=infinity",
            "[Install]",
            "WantedBy=multi-user.target",
        ];
        assert_eq!(lines, wanted);
    }

    #[test]
    fn systemd_understands_the_unit_where_there_is_one_to_ask() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(SERVICE);
        // It wants to see the program; any will do.
        let text = unit(Path::new("/var/lib/my data"), 1000).replace("/usr/local/bin/sheaf", "/bin/true");
        fs::write(&path, text).unwrap();
        let Ok(ended) = Command::new("systemd-analyze").arg("verify").arg(&path).output() else { return };
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        // Other units of this host may be wrong; ours is not.
        assert!(!said.contains(SERVICE), "{said}");
    }

    #[test]
    fn another_root_gets_everything_and_nothing_is_started() {
        let root = tempfile::tempdir().unwrap();
        let config = InstallConfig { data_dir: "/srv/sheaf".into(), root: Some(root.path().to_owned()) };
        for _ in 0..2 {
            let said = install(&config).unwrap();
            assert!(said.contains("It was not started: it is for another root."), "{said}");
        }
        let unit = fs::read_to_string(root.path().join(UNIT)).unwrap();
        assert!(unit.contains("--data-dir \"/srv/sheaf\""), "{unit}");
        let binary = fs::metadata(root.path().join(BINARY)).unwrap();
        assert_eq!(binary.permissions().mode() & 0o777, 0o755);
        assert_eq!(fs::read_dir(root.path().join("usr/local/bin")).unwrap().count(), 1);
    }
}
