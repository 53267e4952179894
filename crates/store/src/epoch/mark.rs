//! The high-water mark: a small file beside the store that remembers which revisions were
//! handed out, so that an older copy of the store is recognised when it is opened.
//!
//! ```text
//! reserved   nothing above this was handed out; synced, raised in large blocks
//! seen       the newest revision handed out; written after every batch, not synced
//! boot       which boot of the machine wrote it, or that it was closed in good order
//! ```
//!
//! `seen` is exact as long as the machine did not lose power, because the kernel keeps
//! what a killed process wrote. After a power cut only `reserved` can be believed: the
//! store may have been at any revision below it. Then a store that shows less than
//! `reserved` *may* be an older copy, and is treated as one. The cost of being wrong is
//! that every client lists once more after a power cut; the cost of the other mistake
//! would be a revision that means two things.
//!
//! Not covered: a mark that is put back together with the store, as a snapshot of the
//! whole disk does. Nothing on that disk can know.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

/// How far ahead revisions are reserved. One sync of the mark serves so many writes.
const BLOCK: u64 = 1_000;

const TITLE: &str = "sheaf revision mark 1\n";
const CLOSED: &str = "closed";

/// The mark of a store that is open.
#[derive(Debug)]
pub struct Mark {
    path: PathBuf,
    file: File,
    reserved: u64,
    seen: u64,
    boot: String,
}

/// What a mark says about the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    pub reserved: u64,
    /// `None` after a power cut.
    pub seen: Option<u64>,
}

impl Known {
    /// The base of the epoch that must begin if the store now shows `head`; `None` if it may go on.
    pub fn next_base(&self, head: u64) -> Option<u64> {
        // Past `reserved` rather than `seen`: a revision can be read an instant before it is noted.
        (head < self.seen.unwrap_or(self.reserved)).then_some(self.reserved + 1)
    }

    /// Whether more than `head` was handed out beyond doubt. After a power cut, when only the reservation
    /// is known, this believes the least and `next_base` the most that may have happened.
    pub fn saw_more_than(&self, head: u64) -> bool {
        head < self.seen.unwrap_or(self.reserved.saturating_sub(BLOCK))
    }
}

/// What the mark at `path` says; `None` if there is none.
pub fn read(path: &Path) -> io::Result<Option<Known>> {
    read_at_boot(path, &boot_id())
}

fn read_at_boot(path: &Path, boot: &str) -> io::Result<Option<Known>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let not_a_mark = || {
        let reason = "this is not a revision mark; if it was damaged, restore it from a backup, or remove it knowing \
                      that clients may then take old data for new";
        io::Error::new(io::ErrorKind::InvalidData, reason)
    };
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    if !text.starts_with(TITLE) {
        return Err(not_a_mark());
    }
    let reserved = field("reserved").and_then(|value| value.parse().ok()).ok_or_else(not_a_mark)?;
    let exact = field("boot").is_some_and(|found| found == CLOSED || found == boot);
    let seen = field("seen").and_then(|value| value.parse().ok()).filter(|_| exact);
    Ok(Some(Known { reserved, seen }))
}

impl Mark {
    /// Takes over the mark at `path` for a store that now shows `head`.
    pub fn start(path: &Path, head: u64) -> io::Result<Self> {
        let boot = boot_id();
        let file = replace(path, head + BLOCK, head, &boot)?;
        Ok(Mark { path: path.to_owned(), file, reserved: head + BLOCK, seen: head, boot })
    }

    /// Must return before `revision` can be seen by anyone.
    pub fn reserve(&mut self, revision: u64) -> io::Result<()> {
        if revision > self.reserved {
            self.file = replace(&self.path, revision + BLOCK, self.seen, &self.boot)?;
            self.reserved = revision + BLOCK;
        }
        Ok(())
    }

    /// Notes that `revision` was handed out. Cheap: one write into the kernel's memory.
    pub fn note(&mut self, revision: u64) {
        if revision <= self.seen {
            return;
        }
        self.seen = revision;
        if let Err(error) = self.file.write_all_at(seen_line(revision).as_bytes(), seen_offset()) {
            tracing::warn!(%error, path = %self.path.display(), "cannot note the newest revision");
        }
    }

    /// The store was closed in good order: what it shows now is exact, also after a power cut.
    pub fn close(self) {
        if let Err(error) = replace(&self.path, self.reserved, self.seen, CLOSED) {
            tracing::warn!(%error, path = %self.path.display(), "cannot close the revision mark");
        }
    }
}

/// Writes a whole mark beside the old one and puts it in its place, so that there is always one.
fn replace(path: &Path, reserved: u64, seen: u64, boot: &str) -> io::Result<File> {
    let draft = path.with_extension("mark-draft");
    let mut file = File::options().read(true).write(true).create(true).truncate(true).open(&draft)?;
    writeln!(file, "{TITLE}{}{}boot {boot}", reserved_line(reserved), seen_line(seen))?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    sync_directory_of(path)?;
    Ok(file)
}

fn reserved_line(revision: u64) -> String {
    format!("reserved {revision:020}\n")
}

fn seen_line(revision: u64) -> String {
    format!("seen {revision:020}\n")
}

fn seen_offset() -> u64 {
    (TITLE.len() + reserved_line(0).len()) as u64
}

/// Makes the names in the directory of `path` durable.
pub(crate) fn sync_directory_of(path: &Path) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(directory)?.sync_all()
}

/// Differs from boot to boot. A system that does not say is treated as freshly booted every time.
fn boot_id() -> String {
    let found = fs::read_to_string("/proc/sys/kernel/random/boot_id");
    found.map(|id| id.trim().to_owned()).unwrap_or_else(|_| "unknown".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_kill_the_newest_revision_is_exact() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.mark");
        assert_eq!(read(&path).unwrap(), None);
        let mut mark = Mark::start(&path, 7).unwrap();
        mark.reserve(8).unwrap();
        mark.note(8);
        mark.note(12);
        let known = read(&path).unwrap().unwrap();
        assert_eq!(known, Known { reserved: 7 + BLOCK, seen: Some(12) });
        assert_eq!(known.next_base(12), None);
        assert_eq!(known.next_base(13), None);
        assert_eq!(known.next_base(11), Some(8 + BLOCK));
    }

    #[test]
    fn after_a_power_cut_only_the_reservation_is_believed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.mark");
        let mut mark = Mark::start(&path, 7).unwrap();
        mark.note(12);
        let known = read_at_boot(&path, "another boot").unwrap().unwrap();
        assert_eq!(known, Known { reserved: 7 + BLOCK, seen: None });
        assert_eq!(known.next_base(12), Some(8 + BLOCK));
        assert!(known.saw_more_than(6) && !known.saw_more_than(7));

        mark.close();
        let known = read_at_boot(&path, "another boot").unwrap().unwrap();
        assert_eq!(known.next_base(12), None, "closed in good order is exact at any boot");
        assert_eq!(known.next_base(11), Some(8 + BLOCK));
    }

    #[test]
    fn a_block_that_is_used_up_is_followed_by_another() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.mark");
        let mut mark = Mark::start(&path, 0).unwrap();
        mark.note(BLOCK);
        mark.reserve(BLOCK + 1).unwrap();
        mark.note(BLOCK + 1);
        let known = read(&path).unwrap().unwrap();
        assert_eq!(known, Known { reserved: 2 * BLOCK + 1, seen: Some(BLOCK + 1) });
    }

    #[test]
    fn a_damaged_mark_is_an_error_and_not_a_fresh_start() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.mark");
        fs::write(&path, "nonsense").unwrap();
        assert!(read(&path).is_err());
    }
}
