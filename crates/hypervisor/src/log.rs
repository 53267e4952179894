//! What QEMU says on its way: kept beside the machine, read when something failed, and
//! never allowed to fill the disk.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

/// Past this a log is trimmed.
pub const MOST_BYTES: u64 = 1 << 20;
/// What a trimmed log keeps.
const KEPT_BYTES: u64 = 256 << 10;
/// As much as anyone wants to read of a refusal.
const REASON_BYTES: usize = 2048;

/// Opened for appending, which is what makes trimming under a running QEMU possible: every
/// write goes to wherever the end is by then.
pub fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).read(true).mode(0o600).open(path)
}

/// Cuts a log that has grown too long down to its end. A line that is written in this very moment may be
/// lost.
pub fn trim(path: &Path) -> io::Result<()> {
    // Most are short, and looking is cheaper than opening.
    if std::fs::metadata(path).is_ok_and(|found| found.len() <= MOST_BYTES) {
        return Ok(());
    }
    let mut log = match OpenOptions::new().read(true).append(true).open(path) {
        Ok(log) => log,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(why) => return Err(why),
    };
    if log.metadata()?.len() <= MOST_BYTES {
        return Ok(());
    }
    let end = read_end(&mut log, KEPT_BYTES)?;
    log.set_len(0)?;
    log.write_all(&end)
}

/// What was said since `offset`: QEMU's own words, without its timestamps and name.
pub fn reason_since(path: &Path, offset: u64) -> String {
    let said = || -> io::Result<Vec<u8>> {
        let mut log = File::open(path)?;
        let length = log.metadata()?.len();
        read_end(&mut log, length.saturating_sub(offset).min(KEPT_BYTES))
    };
    let said = said().unwrap_or_default();
    let text = String::from_utf8_lossy(&said);
    let lines: Vec<&str> = text.lines().map(bare).filter(|line| !line.is_empty()).collect();
    let mut reason = lines.join("; ");
    if reason.len() > REASON_BYTES {
        let from = (reason.len() - REASON_BYTES..).find(|at| reason.is_char_boundary(*at)).unwrap_or(0);
        reason = format!("...{}", &reason[from..]);
    }
    if reason.is_empty() { "it ended without a word".to_owned() } else { reason }
}

fn read_end(log: &mut File, bytes: u64) -> io::Result<Vec<u8>> {
    let length = log.metadata()?.len();
    log.seek(SeekFrom::Start(length.saturating_sub(bytes)))?;
    let mut end = Vec::new();
    log.take(bytes).read_to_end(&mut end)?;
    Ok(end)
}

/// `2026-01-02T03:04:05.678901Z qemu-system-x86_64: -cpu x: no such model` without the
/// first two.
fn bare(line: &str) -> &str {
    let line = line.trim();
    match line.split_once("qemu-system-x86_64: ") {
        Some((_, rest)) => rest,
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_what_was_said_since_and_nothing_earlier() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut log = open(file.path()).unwrap();
        log.write_all(b"an earlier run\n").unwrap();
        let offset = log.metadata().unwrap().len();
        log.write_all(b"2026-01-02T03:04:05Z qemu-system-x86_64: -cpu x: no such model\n").unwrap();
        assert_eq!(reason_since(file.path(), offset), "-cpu x: no such model");
    }

    #[test]
    fn a_log_that_grew_too_long_keeps_its_end_and_goes_on() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut log = open(file.path()).unwrap();
        for number in 0..100_000 {
            writeln!(log, "a line with the number {number}").unwrap();
        }
        trim(file.path()).unwrap();
        log.write_all(b"what the running process says next\n").unwrap();

        let text = std::fs::read_to_string(file.path()).unwrap();
        assert!(text.len() as u64 <= MOST_BYTES);
        assert!(text.contains("the number 99999\nwhat the running process says next\n"));
        assert!(!text.contains('\0'));
    }
}
