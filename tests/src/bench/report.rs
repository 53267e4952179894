//! Tables and bars: on the terminal, and in `bench/results/`.

#![allow(clippy::print_stdout, reason = "the table is for the terminal")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

/// What one benchmark found.
pub struct Report {
    /// The results' file, without its ending.
    name: &'static str,
    method: String,
    lines: Vec<String>,
    bars: Vec<String>,
}

pub fn micros(time: Duration) -> String {
    match time.as_micros() {
        us if us >= 10_000 => format!("{:.1} ms", us as f64 / 1000.0),
        us => format!("{us} us"),
    }
}

pub fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

impl Report {
    /// `method` says how it is measured, for whoever reads the file and not this code.
    pub fn new(name: &'static str, method: String) -> Self {
        Report { name, method, lines: Vec::new(), bars: Vec::new() }
    }

    /// Begins a table.
    pub fn table(&mut self, columns: &[&str]) {
        if !self.lines.is_empty() {
            self.line(String::new());
        }
        self.line(format!("| {} |", columns.join(" | ")));
        self.line(format!("|{}", "---|".repeat(columns.len())));
    }

    pub fn row(&mut self, cells: &[String]) {
        self.line(format!("| {} |", cells.join(" | ")));
    }

    fn line(&mut self, line: String) {
        println!("{line}");
        self.lines.push(line);
    }

    pub fn bar(&mut self, promise: &str, is_met: bool, found: String) {
        let verdict = if is_met { "met" } else { "MISSED" };
        self.bars.push(format!("- {verdict}: {promise} ({found})"));
    }

    /// Prints the bars and keeps nothing: for a run that is too small to say anything.
    pub fn finish_unkept(self) {
        println!("\n{}\n\nnot written to bench/results/", self.bars.join("\n"));
    }

    /// Prints the bars and keeps everything.
    pub fn finish(self) {
        println!("\n{}", self.bars.join("\n"));
        let parts = [machine(), self.method, self.lines.join("\n"), self.bars.join("\n")];
        let text = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n");
        // Where the build cache's copy of a checkout is measured, the results are for the checkout itself.
        let checkout = env::var_os("SHEAF_CHECKOUT").map(PathBuf::from);
        let checkout = checkout.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
        let results = checkout.join("bench/results");
        fs::create_dir_all(&results).unwrap();
        let file = format!("{}.md", self.name);
        fs::write(results.join(&file), text + "\n").unwrap();
        println!("\nwritten to bench/results/{file}");
    }
}

fn machine() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cores = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("\t: unknown");
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "Measured on {}, on {cores} cores ({}), Linux {}.",
        first_line("date", &["--utc", "+%Y-%m-%d"]),
        model.trim_start_matches(['\t', ' ', ':']),
        kernel.trim()
    )
}

/// What a program says first; for versions and the like.
pub fn first_line(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned()
}
