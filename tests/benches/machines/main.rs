//! How fast machines are made, what they cost and how fast their disks are, beside the same QEMU without Sheaf.
//!
//! Both sides are measured in one run and in turns, since what a host does besides is never the same twice. Bars
//! are checked and shown as they are; a missed one does not fail the run.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on says so by panicking")]

mod by_hand;
mod disk;
mod fleet;
mod qmp;
mod starts;

use std::env;

use sheaf_tests::bench::report::{Report, first_line};

fn main() {
    // A part by its name, while looking into that part; what is written down then is that part alone.
    let asked = env::var("SHEAF_BENCH_PART").unwrap_or_default();
    let mut report = Report::new("machines", method());
    if asked.is_empty() || asked == "starts" {
        starts::measure(&mut report);
    }
    if asked.is_empty() || asked == "disk" {
        disk::measure(&mut report);
    }
    report.finish();
}

/// For whoever reads the results.
fn method() -> String {
    let lines = [
        format!("{}, software emulation unless said otherwise.", first_line("qemu-system-x86_64", &["--version"])),
        "**Starts.** A guest of 64 MiB whose boot sector halts, with a disk of an image, a cloud-init seed and a NIC. \
         *With Sheaf*: from before the VirtualMachine is posted (all fifty at the same moment, over TLS) until the \
         machine's own monitor answers `running`. *By hand*: the command line of that very QEMU in a shell script, with \
         `qemu-img create` for the overlay and `ip` for the tap, the fifty with `&`; the seed is there already. The two take turns; \
         nothing of one side is left when the other is measured."
            .to_owned(),
        "**Sheaf's own process** is the whole control plane and agent; no other process of Sheaf's is there while machines run. \
         Memory before is that of a fresh node, so whatever is kept of earlier machines counts too."
            .to_owned(),
        "**Disks** are measured inside a tiny Linux guest with `O_DIRECT`, one request at a time, on 1 GiB that was \
         written once before; each number is the median of 51 rounds of a quarter of a second, all places in \
         turns, each round from another one on. *Bare* is QEMU with a raw file, `cache.direct=on` and a virtio disk with an I/O \
         thread, once with each way of doing I/O. *Of the better* is how a place compares with the better of the two in the same \
         round: the median of the rounds, and between what half of them lie. A third bare QEMU, the same as the first, shows \
         what is noise."
            .to_owned(),
    ];
    lines.join("\n\n")
}
