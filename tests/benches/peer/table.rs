//! The table: a row for each measure, a column for each server.

use std::time::Duration;

use sheaf_tests::bench::report::{Report, micros};

use crate::{
    found::{Found, Memory},
    subject::SUBJECTS,
};

/// The rounds of each server, in the order of [`SUBJECTS`].
pub type Rounds = [Vec<Found>; SUBJECTS.len()];

pub fn tell(report: &mut Report, found: &Rounds) {
    let columns: Vec<&str> = ["what", "measure"].into_iter().chain(SUBJECTS.map(|one| one.name())).collect();
    report.table(&columns);
    memory(report, "idle", found, |found| found.idle);
    memory(report, "all objects are there", found, |found| found.full);
    row(report, "all watchers watch", "memory, API server", found, |found| {
        Some(megabytes(median(found, |one| one.watched_mb)))
    });
    for (at, first) in found[0][0].rows.iter().enumerate() {
        let what = first.what.as_str();
        let of = |found: &[Found], measure: &dyn Fn(&Found) -> f64| median(found, |one| measure(one));
        row(report, what, "rate", found, |found| {
            let rate =
                |one: &Found| one.rows[at].work.events as f64 / one.rows[at].work.sample.wall.as_secs_f64();
            Some(format!("{:.0}/s", of(found, &rate)))
        });
        for percent in [50.0, 99.0] {
            row(report, what, &format!("P{percent:.0}"), found, |found| {
                Some(micros(latency(found, at, percent)))
            });
        }
        row(report, what, &format!("CPU per {}", first.each), found, |found| Some(fine(cpu(found, at))));
        row(report, what, &format!("etcd's CPU per {}", first.each), found, |found| {
            found[0].full.store?;
            Some(fine(median_time(found, |one| one.rows[at].work.store_cpu_each())))
        });
    }
    row(report, "lists of all objects", "size of one", found, |found| {
        Some(megabytes(median(found, |one| one.list_mb)))
    });
}

fn memory(report: &mut Report, what: &str, found: &Rounds, look: fn(&Found) -> Memory) {
    row(report, what, "memory, API server", found, |found| {
        Some(megabytes(median(found, |one| look(one).server)))
    });
    row(report, what, "memory, etcd", found, |found| {
        look(&found[0]).store?;
        Some(megabytes(median(found, |one| look(one).store.unwrap_or_default())))
    });
}

fn row(
    report: &mut Report,
    what: &str,
    measure: &str,
    found: &Rounds,
    cell: impl Fn(&[Found]) -> Option<String>,
) {
    let cells = found.iter().map(|found| cell(found).unwrap_or_default());
    report.row(&[what.to_owned(), measure.to_owned()].into_iter().chain(cells).collect::<Vec<_>>());
}

/// Of row `at`, over all rounds.
pub fn latency(found: &[Found], at: usize, percent: f64) -> Duration {
    median_time(found, |one| one.rows[at].work.sample.percentile(percent))
}

/// Of row `at`, over all rounds: the API server's own, for each of what came out.
pub fn cpu(found: &[Found], at: usize) -> Duration {
    median_time(found, |one| one.rows[at].work.cpu_each())
}

pub fn median(found: &[Found], measure: impl Fn(&Found) -> f64) -> f64 {
    let mut values: Vec<f64> = found.iter().map(measure).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn median_time(found: &[Found], measure: impl Fn(&Found) -> Duration) -> Duration {
    Duration::from_secs_f64(median(found, |one| measure(one).as_secs_f64()))
}

pub fn megabytes(mb: f64) -> String {
    format!("{mb:.1} MB")
}

/// Small times need more than whole microseconds.
pub fn fine(time: Duration) -> String {
    format!("{:.1} us", time.as_secs_f64() * 1e6)
}
