//! The real binary as a process: started, read, signalled, and never left behind.

#![allow(dead_code, reason = "each test file uses its own part of this")]

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

/// Far more than a start or a stop takes; a test that waits this long has failed.
const TOO_LONG: Duration = Duration::from_secs(30);

pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Runs to the end.
pub fn sheaf(args: &[&str]) -> Ended {
    ended(Command::new(env!("CARGO_BIN_EXE_sheaf")).args(args))
}

pub fn ended(command: &mut Command) -> Ended {
    let output = command.stdin(Stdio::null()).output().unwrap();
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A node that runs until it is stopped or dropped.
pub struct Running {
    child: Child,
    stdout: Receiver<String>,
    pub ready: String,
    /// The control groups that the node made for itself, which one that is killed leaves.
    places: Vec<PathBuf>,
}

impl Running {
    /// Starts a node on a free port of this host and waits until it is ready.
    pub fn start(data_dir: &Path, more: &[&str]) -> Running {
        Running::start_as(Command::new(env!("CARGO_BIN_EXE_sheaf")), data_dir, more)
    }

    /// The same by a command that runs the binary with the arguments it is given.
    pub fn start_as(mut command: Command, data_dir: &Path, more: &[&str]) -> Running {
        command
            .args(["up", "--name", "n1", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(data_dir)
            .args(more);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (send, stdout) = channel();
        let pipe = child.stdout.take().unwrap();
        thread::spawn(move || {
            BufReader::new(pipe).lines().map_while(Result::ok).try_for_each(|line| send.send(line))
        });
        let mut running = Running { child, stdout, ready: String::new(), places: Vec::new() };
        match running.stdout.recv_timeout(TOO_LONG) {
            Ok(line) => (running.ready, running.places) = (line, places_of(running.pid())),
            Err(why) => panic!("not ready ({why}): {}", running.kill_and_read_stderr()),
        }
        running
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// `https://ADDR:PORT`, as the ready line tells it.
    pub fn url(&self) -> &str {
        let rest = self.ready.strip_prefix("sheaf is ready: ").expect(&self.ready);
        rest.split_whitespace().next().unwrap()
    }

    pub fn address(&self) -> &str {
        self.url().strip_prefix("https://").unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// The lines after the first, up to the end of the process.
    pub fn stop(mut self) -> (ExitStatus, Duration, Vec<String>, String) {
        self.signal(Signal::TERM);
        let asked = Instant::now();
        let status = self.wait();
        let took = asked.elapsed();
        let mut more = Vec::new();
        loop {
            match self.stdout.recv_timeout(TOO_LONG) {
                Ok(line) => more.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("standard output stays open"),
            }
        }
        let stderr = self.kill_and_read_stderr();
        (status, took, more, stderr)
    }

    pub fn wait(&mut self) -> ExitStatus {
        let asked = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(asked.elapsed() < TOO_LONG, "the process does not end");
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn kill_and_read_stderr(&mut self) -> String {
        // It may have ended by itself.
        _ = self.child.kill();
        let mut text = String::new();
        if let Some(mut pipe) = self.child.stderr.take() {
            pipe.read_to_string(&mut text).unwrap();
        }
        text
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
        for place in &self.places {
            // Gone, where the node ended by itself; its successor's, where there is one.
            _ = fs::remove_dir(place);
        }
    }
}

/// Where a node is that made a place for itself.
fn places_of(pid: u32) -> Vec<PathBuf> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let names = groups.lines().filter_map(|line| line.rsplit_once('/').map(|(_, name)| name));
    let own = names.filter(|name| name.starts_with("sheaf-") && name.ends_with("-node"));
    let trees = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|entry| entry.path());
    let trees: Vec<PathBuf> = trees.chain([PathBuf::from("/sys/fs/cgroup")]).collect();
    own.flat_map(|name| trees.iter().map(move |tree| tree.join(name)))
        .filter(|place| place.is_dir())
        .collect()
}
