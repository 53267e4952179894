//! The table: on the terminal, and in `bench/results/`.

#![allow(clippy::print_stdout, reason = "the table is for the terminal")]

use std::{fs, path::Path, time::Duration};

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

pub fn rate(per_second: f64) -> String {
    format!("{per_second:.0}/s")
}

impl Report {
    pub fn new() -> Self {
        let head = ["| what | measured | values |", "|---|---|---|"];
        for line in head {
            println!("{line}");
        }
        Report { lines: head.map(String::from).into(), bars: Vec::new() }
    }

    pub fn row(&mut self, what: &str, measured: &str, values: &[String]) {
        let line = format!("| {what} | {measured} | {} |", values.join(", "));
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
