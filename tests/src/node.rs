//! The real binary as a process: started on a free port and a fresh directory, killed, started again,
//! and never left behind.
//!
//! A test process that dies runs no destructors, and one that shares a node among its tests ends without
//! dropping it. So a shell holds on to a pipe from the test process: when that closes, for whatever
//! reason, it ends the node and removes its directory.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::channel,
    thread,
};

use rustix::process::{Pid, Signal, kill_process};
use sheaf_store::etcd::server::free_loopback_port;

use crate::{addresses, http::Credentials, patience::TOO_LONG};

/// The user that [`Rights::OrdinaryUser`] is: nobody whom Debian knows.
pub const ORDINARY_USER: u32 = 61_234;

/// What the kernel lets a node do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// What the tests themselves may.
    Ours,
    /// Nobody changes the network, root or not.
    NoNetwork,
    /// Neither root nor anything that root could hand on.
    OrdinaryUser,
}

/// A running node.
pub struct Node {
    child: Child,
    url: String,
    directory: PathBuf,
    rights: Rights,
    _undertaker: ChildStdin,
}

impl Node {
    /// Starts a node on an empty directory and waits until it is ready.
    pub fn start() -> Node {
        Node::start_with(&[])
    }

    /// The same, with more arguments for `sheaf up`.
    pub fn start_with(arguments: &[&str]) -> Node {
        // Kept here and removed by the undertaker: it may have to outlive a kill and a restart.
        let directory = tempfile::Builder::new().prefix("sheaf-test-").tempdir().unwrap().keep();
        Node::start_on(directory, &new_address(), Rights::Ours, arguments)
    }

    /// The same with a disk of its own for all its data, so large.
    pub fn start_on_disk(bytes: u64, arguments: &[&str]) -> Node {
        let directory = tempfile::Builder::new().prefix("sheaf-test-").tempdir().unwrap().keep();
        let (disk, data) = (directory.join("disk"), directory.join("data"));
        fs::File::create(&disk).unwrap().set_len(bytes).unwrap();
        fs::create_dir(&data).unwrap();
        for (program, options) in [("mkfs.ext4", &["-q", "-m", "0"][..]), ("mount", &["-o", "loop"])] {
            let mut command = Command::new(program);
            command.args(options).arg(&disk).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
            if program == "mount" {
                command.arg(&data);
            }
            assert!(command.status().unwrap().success(), "{command:?}");
        }
        // What a new file system has of its own is not what a node expects to find.
        fs::remove_dir(data.join("lost+found")).unwrap();
        Node::start_on(directory, &new_address(), Rights::Ours, arguments)
    }

    /// The same with fewer rights.
    pub fn start_with_rights(rights: Rights, arguments: &[&str]) -> Node {
        let directory = tempfile::Builder::new().prefix("sheaf-test-").tempdir().unwrap().keep();
        if rights == Rights::OrdinaryUser {
            std::os::unix::fs::chown(&directory, Some(ORDINARY_USER), Some(ORDINARY_USER)).unwrap();
        }
        Node::start_on(directory, &new_address(), rights, arguments)
    }

    /// Another node with the same certificates and keys, as a second management node of one cluster has
    /// them.
    pub fn start_beside(&self, arguments: &[&str]) -> Node {
        let directory = tempfile::Builder::new().prefix("sheaf-test-").tempdir().unwrap().keep();
        let (from, to) = (self.directory.join("data"), directory.join("data"));
        for folder in ["", "keys", "pki"] {
            fs::create_dir_all(to.join(folder)).unwrap();
        }
        for folder in ["keys", "pki"] {
            for entry in fs::read_dir(from.join(folder)).unwrap() {
                let name = entry.unwrap().file_name();
                fs::copy(from.join(folder).join(&name), to.join(folder).join(&name)).unwrap();
            }
        }
        fs::copy(from.join("format"), to.join("format")).unwrap();
        Node::start_on(directory, &new_address(), Rights::Ours, arguments)
    }

    fn start_on(directory: PathBuf, listen: &str, rights: Rights, arguments: &[&str]) -> Node {
        let log_file = directory.join("log");
        Node::try_start_on(directory, listen, rights, arguments)
            .unwrap_or_else(|| panic!("the node is not ready: {}", fs::read_to_string(log_file).unwrap()))
    }

    /// None if it ended, or took too long, before it was ready.
    fn try_start_on(directory: PathBuf, listen: &str, rights: Rights, arguments: &[&str]) -> Option<Node> {
        let log = fs::OpenOptions::new().create(true).append(true).open(directory.join("log")).unwrap();
        let mut child = program(rights, &directory)
            .args(["up", "--name", "n1", "--listen", listen, "--data-dir"])
            .arg(directory.join("data"))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let undertaker = undertaker(child.id(), &directory);
        let (send, lines) = channel();
        let stdout = child.stdout.take().unwrap();
        thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| send.send(line))
        });
        let Ok(line) = lines.recv_timeout(TOO_LONG) else {
            // Its directory stays for whoever starts it again.
            fs::write(directory.join("owner"), "its successor").unwrap();
            _ = child.kill();
            _ = child.wait();
            return None;
        };
        let url = line.split_whitespace().find(|word| word.starts_with("https://")).expect(&line).to_owned();
        Some(Node { child, url, directory, rights, _undertaker: undertaker })
    }

    /// `https://ADDR:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// `ADDR:PORT`.
    pub fn address(&self) -> &str {
        self.url.strip_prefix("https://").unwrap()
    }

    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.directory.join("data/admin.kubeconfig")
    }

    /// A place for a test's own files, which goes when the node does.
    pub fn scratch(&self) -> PathBuf {
        let scratch = self.directory.join("scratch");
        fs::create_dir_all(&scratch).unwrap();
        scratch
    }

    /// The administrator's certificate and key.
    pub fn admin(&self) -> Credentials {
        Credentials::from_kubeconfig(&self.admin_kubeconfig())
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Memory in use, in KiB, as the kernel counts it.
    pub fn resident_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches("kB").trim().parse().unwrap()
    }

    /// Power off, as far as a process can tell: nothing is flushed, nobody is told.
    pub fn kill(&mut self) {
        kill_process(Pid::from_child(&self.child), Signal::KILL).unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to end, and waits until it has.
    pub fn terminate(&mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        self.child.wait().unwrap();
    }

    /// Whether it ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Starts a killed node again, on its directory and at its address.
    pub fn start_again(self) -> Node {
        self.start_again_with(&[])
    }

    /// The same, with more arguments for `sheaf up`.
    pub fn start_again_with(self, arguments: &[&str]) -> Node {
        let rights = self.rights;
        let (directory, address) = self.into_place();
        Node::start_on(directory, &address, rights, arguments)
    }

    /// The place of a node that ended, for [`Node::start_mortal`].
    pub fn into_place(self) -> (PathBuf, String) {
        let (directory, address) = (self.directory.clone(), self.address().to_owned());
        // From here on the directory is not the old one's to remove.
        fs::write(directory.join("owner"), "its successor").unwrap();
        drop(self);
        (directory, address)
    }

    /// Starts a node on a directory and at an address that it had before. None if it ended before it was ready, as
    /// one does that is told to die.
    pub fn start_mortal(place: &(PathBuf, String), arguments: &[&str]) -> Option<Node> {
        Node::try_start_on(place.0.clone(), &place.1, Rights::Ours, arguments)
    }

    pub fn data_dir(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// The last it said, for whoever reads why a test failed: its directory is gone by then.
    fn tells_its_end(&self) {
        const LINES: usize = 30;
        let log = fs::read_to_string(self.directory.join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let last = &lines[lines.len().saturating_sub(LINES)..];
        eprintln!(
            "---- the last lines of the node at {} ----\n{}\n----",
            self.directory.display(),
            last.join("\n")
        );
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.tells_its_end();
        }
        // It may have been killed already.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// An address that stays the node's while it is dead: no outgoing connection and no other node is given its port before it is
/// started again.
fn new_address() -> String {
    format!("127.0.0.1:{}", free_loopback_port().unwrap())
}

/// The binary, to be run with such rights.
fn program(rights: Rights, directory: &Path) -> Command {
    let mut program = Command::new("setpriv");
    match rights {
        Rights::Ours => return Command::new(binary()),
        Rights::NoNetwork => {
            program.args(["--bounding-set=-net_admin", "--inh-caps=-net_admin", "--"]).arg(binary())
        }
        Rights::OrdinaryUser => {
            let user = ORDINARY_USER.to_string();
            program
                .args(["--reuid", &user, "--regid", &user, "--clear-groups"])
                .args(["--bounding-set=-all", "--inh-caps=-all", "--"])
                .arg(reachable_binary(directory))
        }
    };
    program
}

/// The binary where everybody may run it, which what lies in somebody's home is not.
fn reachable_binary(directory: &Path) -> PathBuf {
    let reachable = directory.join("sheaf");
    if !reachable.exists() {
        fs::copy(binary(), &reachable).unwrap();
    }
    reachable
}

#[allow(clippy::zombie_processes, reason = "it ends after us")]
/// Ends process `pid` and removes `directory` when the returned pipe closes, unless the directory has
/// gone to a later process by then.
fn undertaker(pid: u32, directory: &Path) -> ChildStdin {
    let owner = directory.join("owner");
    fs::write(&owner, pid.to_string()).unwrap();
    let script = r#"cat >/dev/null
        kill -KILL "$1" 2>/dev/null
        if [ "$(cat "$2/owner" 2>/dev/null)" = "$1" ]; then
            sleep 0.2
            # Machines outlive their node, and so does their network.
            for process in "$2"/data/machines/*/process; do
                pid=$(sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' "$process" 2>/dev/null)
                [ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null
            done
            if [ -d "$2/data/volumes" ]; then "$3" down --stop-vms --grace 0 --data-dir "$2/data" >/dev/null 2>&1; fi
            for machine in "$2"/data/machines/*; do
                id=${machine##*/}
                for group in /sys/fs/cgroup/sheaf-*/"$id" /sys/fs/cgroup/*/sheaf-*/"$id"; do
                    rmdir "$group" "${group%/*}" 2>/dev/null
                done
            done
            # A disk of its own goes with the last who has files on it open.
            umount --lazy "$2/data" 2>/dev/null
            rm -rf "$2"
        fi"#;
    let mut shell = Command::new("sh")
        .args(["-c", script, "undertaker", &pid.to_string()])
        .arg(directory)
        .arg(binary())
        .stdin(Stdio::piped())
        // Holds the addresses until nothing of the node uses them any more.
        .stdout(addresses::lock())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    shell.stdin.take().unwrap()
}

/// The server binary: `SHEAF_BIN`, or the one built beside this test.
pub fn binary() -> PathBuf {
    if let Some(named) = env::var_os("SHEAF_BIN") {
        return named.into();
    }
    let beside = env::current_exe().unwrap().ancestors().nth(2).unwrap().join("sheaf");
    assert!(beside.exists(), "build the server first (cargo build --bin sheaf), or name it in SHEAF_BIN");
    beside
}
