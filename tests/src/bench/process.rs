//! What the kernel says of a process.

use std::{fs, time::Duration};

/// Ticks per second of /proc times; fixed on Linux.
const TICKS: u64 = 100;

pub struct Process {
    pid: u32,
}

impl Process {
    pub fn new(pid: u32) -> Self {
        Process { pid }
    }

    /// CPU time used so far, user and system.
    pub fn cpu(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap();
        // The name may hold spaces; it ends with the last parenthesis.
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        Duration::from_millis(ticks * 1000 / TICKS)
    }

    /// Memory, shared pages counted by their share.
    pub fn pss_mb(&self) -> f64 {
        let rollup = fs::read_to_string(format!("/proc/{}/smaps_rollup", self.pid)).unwrap();
        let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).unwrap();
        let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().unwrap();
        kib / 1024.0
    }
}
