//! A command that goes on, and what it says line by line.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
};

use rustix::process::Pid;
use sheaf_tests::patience::TOO_LONG;

/// Ends with the test, whatever comes.
pub struct Running(Child);

/// What it says, with an end to waiting for it.
pub struct Lines(Receiver<String>);

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

impl Running {
    pub fn start(command: &mut Command) -> (Running, Lines) {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        let (send, lines) = channel();
        thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| send.send(line))
        });
        (Running(child), Lines(lines))
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap()
    }
}

/// The next one; a panic where nothing more comes.
#[track_caller]
pub fn line(lines: &mut Lines) -> String {
    lines.0.recv_timeout(TOO_LONG).expect("it says something")
}
