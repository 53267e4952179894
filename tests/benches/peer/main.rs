//! Sheaf beside the original, on the same machine, in the same run and in turns: what an answer costs and how long it
//! takes. `make bench-peer` builds the original and runs this; without it there is nothing to compare with.
//!
//! Each round starts each server afresh, one at a time, has it do the work of `make bench`, and ends it. What is told is the
//! median over the rounds.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on says so by panicking")]

mod bars;
mod found;
mod subject;
mod table;

use std::env;

use sheaf_tests::bench::report::{Report, first_line};

use found::{Found, Size};
use subject::SUBJECTS;

fn main() {
    if env::var_os("SHEAF_KUBE_APISERVER").is_none() {
        eprintln!("There is no original to compare with: `make bench-peer` builds it.");
        return;
    }
    let scale = number("SHEAF_BENCH_SCALE", 1);
    let rounds = number("SHEAF_BENCH_ROUNDS", 3);
    let size = Size::divided_by(scale);
    let mut found: [Vec<Found>; SUBJECTS.len()] = Default::default();
    for round in 1..=rounds {
        for (subject, found) in SUBJECTS.iter().zip(&mut found) {
            eprintln!("round {round} of {rounds}: {}", subject.name());
            found.push(subject.run(&size));
        }
    }
    let mut report = Report::new("peer", method(&size, rounds));
    table::tell(&mut report, &found);
    bars::tell(&mut report, &found);
    if scale == 1 { report.finish() } else { report.finish_unkept() }
}

/// A number from the environment.
fn number(variable: &str, default: usize) -> usize {
    env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

fn method(size: &Size, rounds: usize) -> String {
    let original = sheaf_tests::original::binary("kube-apiserver").display().to_string();
    let etcd = sheaf_tests::original::binary("etcd").display().to_string();
    format!(
        "Median of {rounds} rounds. In each, each server is started on an empty directory, measured and ended before the \
         next one starts; both that need one have an {} of their own, one member, which syncs as it does by default. The \
         original is {} with its defaults, RBAC, a certificate for its only user, and no other program of Kubernetes \
         beside it. Clients are threads of the benchmark, each with a TLS connection of its own, HTTP/1.1 and JSON both \
         ways, and share the cores with what is measured; watchers are all read by one thread, so that waking them is \
         not the server's work. Objects are ConfigMaps of 2 KB.\n\n\
         CPU is user and system time of the API server's process alone, divided by what came out: answers, objects \
         listed, events delivered. etcd's, where there is one, stands in a row of its own, and belongs to both that use it. \
         Sheaf's process is the whole of Sheaf, controllers and agent included; the original's is the API server without \
         controllers. Memory is PSS. The list is of {} objects, watched are {} changes by {} \
         watchers. The rows of `make bench` about a slow disk are of the embedded store alone, and in `api.md`.",
        first_line(&etcd, &["--version"]).replace("etcd Version:", "etcd"),
        first_line(&original, &["--version"]).replace("Kubernetes", "kube-apiserver"),
        size.objects,
        size.changes,
        size.watchers,
    )
}
