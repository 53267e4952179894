//! What the web console costs whoever opens it, in a real browser beside the node: bytes and time of a first look, and how a list
//! of five thousand machines feels.
//!
//! The browser has the cores that the node has. Bars are checked and shown as they are; a missed one does not fail the run.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on says so by panicking")]
#![allow(clippy::print_stderr, reason = "what is left out is told at the terminal")]

use std::{env, time::Duration};

use serde_json::Value;
use sheaf_tests::{
    bench::{report::Report, share::median},
    browser::browser,
    node::Node,
};

const PATIENCE: Duration = Duration::from_secs(1800);
const MACHINES: &str = "5000";
const MOST_KB: f64 = 400.0;
const MOST_MILLIS: f64 = 1000.0;

fn main() {
    if env::var("SHEAF_BROWSER").unwrap_or_default().is_empty() {
        eprintln!("the console is NOT MEASURED: SHEAF_BROWSER names no browser (scripts/build-browser)");
        return;
    }
    let node = Node::start();
    let said = browser(&node, "measure", PATIENCE).says(&[MACHINES]);
    // Milliseconds and bytes.
    let found: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    let mut report = Report::new("console", method(found["version"].as_str().unwrap()));
    opening(&mut report, &found);
    listing(&mut report, &found);
    report.finish();
}

fn opening(report: &mut Report, found: &Value) {
    report.table(&["opening the console", "compressed", "usable, nothing kept", "usable, files kept"]);
    for (what, rounds) in [("to sign in", "door"), ("signed in, at the overview", "overview")] {
        let of = |key: &str| median(&numbers(&found[rounds], key));
        let (kb, cold, warm) = (of("bytes") / 1000.0, of("cold"), of("warm"));
        report.row(&[what.into(), format!("{kb:.0} kB"), millis(cold), millis(warm)]);
        let promise = format!("{what}: at most {MOST_KB} kB compressed");
        report.bar(&promise, kb > 0.0 && kb <= MOST_KB, format!("{kb:.0} kB"));
        let promise = format!("{what}: usable within {MOST_MILLIS} ms on the same host");
        report.bar(&promise, cold <= MOST_MILLIS, millis(cold));
    }
}

fn listing(report: &mut Report, found: &Value) {
    report.table(&[&format!("a list of {} machines", found["count"]), "median", "the worst"]);
    let (shown, filters) = (numbers(&found["lists"], "shown"), numbers(&found["lists"], "filters"));
    let mut frames = numbers(&found["lists"], "frames");
    frames.sort_by(f64::total_cmp);
    for (what, times) in
        [("from its address to all of them there", &shown), ("a filter, until it is drawn", &filters)]
    {
        let worst = times.iter().copied().fold(0.0, f64::max);
        report.row(&[what.into(), millis(median(times)), millis(worst)]);
    }
    report.table(&["scrolling through it, one frame", "P50", "P95", "P99", "the longest", "more than 50 ms"]);
    let at = |share: f64| frames[((frames.len() - 1) as f64 * share) as usize];
    let long = frames.iter().filter(|time| **time > 50.0).count();
    report.row(&[
        format!("{} frames of 900 pixels each", frames.len()),
        millis(at(0.5)),
        millis(at(0.95)),
        millis(at(0.99)),
        millis(at(1.0)),
        format!("{long}"),
    ]);
}

/// Of every round the number that it calls `key`, or all of them.
fn numbers(rounds: &Value, key: &str) -> Vec<f64> {
    let rounds = rounds.as_array().unwrap().iter().map(|round| &round[key]);
    let all = rounds.flat_map(|found| found.as_array().cloned().unwrap_or_else(|| vec![found.clone()]));
    all.map(|number| number.as_f64().unwrap()).collect()
}

fn millis(time: f64) -> String {
    if time < 100.0 { format!("{time:.1} ms") } else { format!("{time:.0} ms") }
}

/// For whoever reads the results.
fn method(version: &str) -> String {
    let lines = [
        format!("Chromium {version} without a window and without a graphics card, on the host of the node and its cores."),
        "**Opening.** Seven rounds, medians. *Compressed* is all that came from `/dashboard/` until the network was quiet, headers \
         included. *Usable* is from the beginning of the navigation (connection and TLS are in it) until what the page is for is drawn and the \
         browser is idle: a field to sign in with, or the buttons of an empty cluster's overview, which are there once the API was asked. \
         *Nothing kept* is a browser that was never here."
            .to_owned(),
        "**The list.** Five rounds. From its address on everything is loaded, the objects among it, until the page counts all of them. \
         Scrolling moves by 900 pixels, twenty rows, in every frame, 240 times. A filter is from the key until the table is drawn \
         with what is left, to one row, to a hundred, and back to all."
            .to_owned(),
    ];
    lines.join("\n\n")
}
