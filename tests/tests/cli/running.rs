//! A command that goes on, and what it says line by line.

use std::{
    io::{BufRead, BufReader},
    process::{Child, ChildStdout, Command, Stdio},
};

use rustix::process::Pid;

/// Ends with the test, whatever comes.
pub struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

impl Running {
    pub fn start(command: &mut Command) -> (Running, BufReader<ChildStdout>) {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        (Running(child), lines)
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap()
    }
}

/// The next one; a panic where nothing more comes.
pub fn line(lines: &mut impl BufRead) -> String {
    let mut line = String::new();
    assert!(lines.read_line(&mut line).unwrap() > 0, "it ended");
    line
}
