//! A command that goes on, and what it says line by line.

use std::process::{Child, Command, Stdio};

use rustix::process::Pid;
use sheaf_tests::{lines::Lines, patience::TOO_LONG};

/// Ends with the test, whatever comes.
pub struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

impl Running {
    pub fn start(command: &mut Command) -> (Running, Lines) {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = Lines::of(child.stdout.take().unwrap());
        (Running(child), lines)
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap()
    }
}

/// The next one; a panic where nothing more comes.
#[track_caller]
pub fn line(lines: &Lines) -> String {
    lines.next_within(TOO_LONG).expect("it says something")
}
