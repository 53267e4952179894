//! How full it is, under the original's names. Identities are no labels: anybody could make time series of them.

use std::{fmt::Write, sync::atomic::Ordering};

use super::{Fairness, queues::Tally};

/// What a level says of something.
type Number = fn(&Tally) -> u64;
/// A family: its name, what it is, its type, and its numbers.
type Family = (&'static str, &'static str, &'static str, Number);

const FAMILIES: &[Family] = &[
    ("current_executing_requests", "Requests that are being worked on", "gauge", |t| t.seated as u64),
    ("current_executing_seats", "Seats that are taken", "gauge", |t| t.taken as u64),
    ("current_inqueue_requests", "Requests that wait for seats", "gauge", |t| t.waiting as u64),
    ("dispatched_requests_total", "Requests that were worked on", "counter", |t| t.dispatched),
];

/// Why requests were not worked on, in the original's words.
const REASONS: &[(&str, Number)] =
    &[("queue-full", |t| t.full), ("time-out", |t| t.late), ("cancelled", |t| t.left)];

impl Fairness {
    /// Writes its numbers in Prometheus' text form.
    pub(crate) fn write_metrics(&self, text: &mut String) {
        let levels = [
            ("system", &self.system),
            ("leader-election", &self.elections),
            ("global-default", &self.everybody),
        ];
        let exempted = Tally { dispatched: self.exempted.load(Ordering::Relaxed), ..Tally::default() };
        let mut tallies: Vec<(&str, Tally)> = vec![("exempt", exempted)];
        tallies.extend(levels.iter().map(|(level, queues)| (*level, queues.tally())));
        // Writing to a String cannot fail.
        for (name, help, of_type, number) in FAMILIES {
            begin(text, name, help, of_type);
            for (level, tally) in &tallies {
                let _ = writeln!(text, "{}{{{}}} {}", full(name), labels(level), number(tally));
            }
        }
        begin(text, "rejected_requests_total", "Requests that were refused", "counter");
        for (level, tally) in &tallies[1..] {
            for (reason, number) in REASONS {
                let name = full("rejected_requests_total");
                let _ = writeln!(text, "{name}{{{},reason=\"{reason}\"}} {}", labels(level), number(tally));
            }
        }
        begin(text, "nominal_limit_seats", "Seats that there are", "gauge");
        for (level, queues) in levels {
            let name = full("nominal_limit_seats");
            let _ = writeln!(text, "{name}{{priority_level=\"{level}\"}} {}", queues.seats());
        }
    }
}

fn full(name: &str) -> String {
    format!("apiserver_flowcontrol_{name}")
}

/// A level has one schema of its own name.
fn labels(level: &str) -> String {
    format!("priority_level=\"{level}\",flow_schema=\"{level}\"")
}

fn begin(text: &mut String, name: &str, help: &str, of_type: &str) {
    let name = full(name);
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {of_type}");
}
