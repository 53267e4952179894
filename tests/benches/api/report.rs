//! The table: on the terminal, and in `bench/results/`.

#![allow(clippy::print_stdout, reason = "the table is for the terminal")]

use std::{fs, path::Path, time::Duration};

use crate::clients::Sample;

pub struct Report {
    lines: Vec<String>,
    bars: Vec<String>,
}

pub fn micros(time: Duration) -> String {
    match time.as_micros() {
        us if us >= 10_000 => format!("{:.1} ms", us as f64 / 1000.0),
        us => format!("{us} us"),
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

impl Report {
    pub fn new() -> Self {
        let head =
            ["| what | rate | P50 | P99 | wall | server CPU | beside |", "|---|---|---|---|---|---|---|"];
        for line in head {
            println!("{line}");
        }
        Report { lines: head.map(String::from).into(), bars: Vec::new() }
    }

    /// Work: `events` came out of it while `cpu` went into the server.
    pub fn timed(&mut self, what: &str, done: &Sample, events: usize, cpu: Duration, beside: &str) {
        let values = [
            format!("{:.0}/s", events as f64 / done.wall.as_secs_f64()),
            micros(done.percentile(50.0)),
            micros(done.percentile(99.0)),
            seconds(done.wall),
            seconds(cpu),
            beside.to_owned(),
        ];
        self.line(format!("| {what} | {} |", values.join(" | ")));
    }

    /// What takes no time: a size.
    pub fn size(&mut self, what: &str, size: String) {
        self.line(format!("| {what} | | | | | | {size} |"));
    }

    fn line(&mut self, line: String) {
        println!("{line}");
        self.lines.push(line);
    }

    pub fn bar(&mut self, promise: &str, is_met: bool, found: String) {
        let verdict = if is_met { "met" } else { "MISSED" };
        self.bars.push(format!("- {verdict}: {promise} ({found})"));
    }

    /// Prints the bars and keeps everything.
    pub fn finish(self) {
        println!("\n{}", self.bars.join("\n"));
        let text = format!("{}\n\n{}\n\n{}\n", machine(), self.lines.join("\n"), self.bars.join("\n"));
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/results");
        fs::create_dir_all(&results).unwrap();
        let path = results.join("latest.md");
        fs::write(&path, text).unwrap();
        println!("\nwritten to bench/results/latest.md");
    }
}

fn machine() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cores = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("\t: unknown");
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "Measured on {cores} cores ({}), Linux {}.",
        model.trim_start_matches(['\t', ' ', ':']),
        kernel.trim()
    )
}
