//! How fast images, copies and snapshots are, beside the same without them.
//!
//! Both sides are measured in one run and in turns. Bars are checked and shown as they are; a missed one does not fail
//! the run.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on says so by panicking")]

mod copies;
mod images;
mod snapshots;

use std::env;

use sheaf_tests::bench::report::{Report, first_line};

fn main() {
    // A part by its name, while looking into that part; what is written down then is that part alone.
    let asked = env::var("SHEAF_BENCH_PART").unwrap_or_default();
    let mut report = Report::new("storage", method());
    if asked.is_empty() || asked == "copies" {
        copies::measure(&mut report);
    }
    if asked.is_empty() || asked == "images" {
        images::measure(&mut report);
    }
    if asked.is_empty() || asked == "snapshots" {
        snapshots::measure(&mut report);
    }
    report.finish();
}

/// For whoever reads the results.
fn method() -> String {
    let lines = [
        format!("{}, software emulation.", first_line("qemu-system-x86_64", &["--version"])),
        "**Copies.** An image of 10 GiB. *A volume of it* is the storage's own work, as a node does it when the first machine \
         needs the volume: directory, links, an empty layer, manifest, all synced. *A claim of it* is from before it is posted \
         until the API says that it is bound."
            .to_owned(),
        "**Images** of 1 GiB that does not compress, seven rounds; *of a copy* is how fast one comes in beside `cp` and a sync of the \
         same file in the same round, the median of the rounds. An upload goes over TLS to the API server and from there to the node, \
         until it is answered; an import is fetched over HTTP from the same host, from before the image is created until its \
         status says so. Both are checked, digested and synced by then."
            .to_owned(),
        "**Snapshots.** A tiny guest writes 4 KiB with `O_DIRECT` and a flush, one after the other, for two seconds, and says how long \
         the longest took. Rounds with a VolumeSnapshot in their middle and rounds without take turns, so what the host does \
         besides is in both. No guest agent is there, so nothing is frozen."
            .to_owned(),
        "**Chains.** Two volumes of 512 MiB in one guest, both written once: of one ten snapshots were taken after that, with random writes in \
         between, and all are kept. Medians of rounds of a quarter of a second in turns; *of the fresh one* is the median over \
         the rounds of how they compare, and between what half of them lie."
            .to_owned(),
    ];
    lines.join("\n\n")
}
