//! The table of this benchmark: what was done, how fast, and what it cost the server.

use std::time::Duration;

use sheaf_tests::bench::{
    api::Work,
    report::{Report, micros, seconds},
    sample::Sample,
};

const COLUMNS: [&str; 7] = ["what", "rate", "P50", "P99", "wall", "server CPU", "beside"];

pub struct Table(Report);

impl Table {
    pub fn new() -> Self {
        let mut report = Report::new("api", String::new());
        report.table(&COLUMNS);
        Table(report)
    }

    /// Work: `events` came out of it while `cpu` went into the server.
    pub fn timed(&mut self, what: &str, done: &Sample, events: usize, cpu: Duration, beside: &str) {
        self.0.row(&[
            what.to_owned(),
            format!("{:.0}/s", events as f64 / done.wall.as_secs_f64()),
            micros(done.percentile(50.0)),
            micros(done.percentile(99.0)),
            seconds(done.wall),
            seconds(cpu),
            beside.to_owned(),
        ]);
    }

    pub fn work(&mut self, what: &str, work: &Work, beside: &str) {
        self.timed(what, &work.sample, work.events, work.cpu, beside);
    }

    /// What takes no time: a size.
    pub fn size(&mut self, what: &str, size: String) {
        let mut cells = vec![String::new(); COLUMNS.len()];
        (cells[0], cells[6]) = (what.to_owned(), size);
        self.0.row(&cells);
    }

    pub fn bar(&mut self, promise: &str, is_met: bool, found: String) {
        self.0.bar(promise, is_met, found);
    }

    pub fn finish(self) {
        self.0.finish();
    }
}
