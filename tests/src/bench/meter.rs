//! The program that measures a disk from inside a guest: built, brought in on a disk of its own, and asked.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::machines::Serial;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/disk_meter.rs");

/// The meter in one static file, as large as a disk may be.
pub fn built(scratch: &Path) -> PathBuf {
    let meter = scratch.join("meter");
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let status = Command::new(rustc)
        .args(["--edition", "2024", "-O", "-C", "target-feature=+crt-static", SOURCE, "-o"])
        .arg(&meter)
        .status()
        .unwrap();
    assert!(status.success(), "the meter cannot be compiled");
    let file = fs::OpenOptions::new().write(true).open(&meter).unwrap();
    file.set_len(file.metadata().unwrap().len().next_multiple_of(1 << 20)).unwrap();
    meter
}

/// Takes it off the disk that it came on.
pub fn install(guest: &mut Serial, device: &str) {
    guest.runs(&format!("cat /dev/{device} >/run/meter; chmod 755 /run/meter"));
}

/// Has it do one work on one disk.
pub fn ask(guest: &mut Serial, device: &str, work: &str, millis: u32) -> f64 {
    let said = guest.runs(&format!("/run/meter /dev/{device} {work} {millis}"));
    let number = said.split_whitespace().last().and_then(|word| word.parse().ok());
    number.unwrap_or_else(|| panic!("the meter said {said:?}"))
}
