//! The file that audit lines go to, written by a thread of its own.
//!
//! ```text
//!   request --line--> [pending: 8 MiB] --every quarter of a second, or when half full--> audit.log
//!                                                            at 32 MiB: audit.log -> .1 -> .2 ... -> .7 -> gone
//! ```
//!
//! A request puts its line into memory and goes on. Where there is no room, it waits for a moment ([`PATIENCE`]);
//! when there is none then either, its line is left out, counted, and a line in the log says how many are missing.
//! So a disk that is slow or full neither stops the API nor goes unnoticed.
//!
//! Deliberately absent: a sync. What was written in the last quarter of a second before the process was killed, or in the
//! last seconds before the host lost power, is not in the log. A line that a crash cut in two is ended by the next start.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use parking_lot::{Condvar, Mutex};
use rustix::fs::OFlags;
use sheaf_world::Clock;
use tokio::sync::{Notify, watch};

use super::event;

/// Bytes that may wait to be written.
const PENDING: usize = 8 << 20;
/// From here on writing begins without waiting for more.
const PENDING_MUCH: usize = 256 << 10;
/// How long a request may be held up by a log that does not keep up.
pub(super) const PATIENCE: Duration = Duration::from_millis(100);
/// How long lines are gathered before they are written together.
const GATHER: Duration = Duration::from_millis(250);
const PRIVATE: u32 = 0o600;

/// How large the log may become.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Of one file.
    pub file_bytes: u64,
    /// Files, the one that is being written included.
    pub files: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { file_bytes: 32 << 20, files: 8 }
    }
}

/// Takes lines. They are in the file a moment later.
#[derive(Debug)]
pub struct Log {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
    whereabouts: Whereabouts,
}

/// Where the files of a log are, for those who read it.
#[derive(Clone, Debug)]
pub struct Whereabouts {
    path: PathBuf,
    /// How many there can be.
    pub files: usize,
}

impl Whereabouts {
    /// The n-th file, of which the first is being written.
    pub fn open(&self, n: usize) -> io::Result<File> {
        let not_following = OFlags::NOFOLLOW.bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(not_following).open(numbered(&self.path, n))?;
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::Error::other("it is not a file")),
        }
    }

    /// Of the one that is being written.
    pub fn metadata(&self) -> io::Result<fs::Metadata> {
        fs::symlink_metadata(&self.path)
    }
}

#[derive(Debug)]
struct Shared {
    pending: Mutex<Pending>,
    /// There is something to do for the writer.
    work: Condvar,
    /// The writer has done it.
    done: Condvar,
    /// There is room again for those who wait.
    room: Notify,
    /// How often something was written, for those who read along.
    written: watch::Sender<u64>,
    /// Bytes that may wait; fewer in tests.
    capacity: usize,
}

#[derive(Debug, Default)]
struct Pending {
    lines: Vec<u8>,
    count: u64,
    /// Lines that were left out and not yet told of.
    missing: u64,
    tally: Tally,
    flushes_wanted: u64,
    flushes_done: u64,
    is_closing: bool,
}

/// What can be counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub taken: u64,
    /// Lines for which there was no room.
    pub dropped: u64,
    /// Lines that could not be written.
    pub failed: u64,
}

impl Log {
    /// Opens the log at `path`, going on where an earlier one ended.
    pub fn open(path: &Path, limits: Limits, clock: Clock) -> io::Result<Arc<Self>> {
        Self::open_with(path, limits, clock, PENDING)
    }

    fn open_with(path: &Path, limits: Limits, clock: Clock, capacity: usize) -> io::Result<Arc<Self>> {
        let files = Files::open(path, limits)?;
        let shared = Arc::new(Shared {
            pending: Mutex::default(),
            work: Condvar::new(),
            done: Condvar::new(),
            room: Notify::new(),
            written: watch::Sender::new(0),
            capacity,
        });
        let whereabouts = Whereabouts { path: path.to_owned(), files: limits.files.max(1) };
        let of_thread = shared.clone();
        let writer =
            thread::Builder::new().name("audit".into()).spawn(move || of_thread.write(files, &clock))?;
        Ok(Arc::new(Log { shared, writer: Mutex::new(Some(writer)), whereabouts }))
    }

    /// Takes a line, waiting for room for a moment at most.
    pub async fn put(&self, line: &[u8]) {
        if self.shared.push(line) {
            return;
        }
        let waiting = async {
            loop {
                let room = self.shared.room.notified();
                if self.shared.push(line) {
                    return;
                }
                room.await;
            }
        };
        if tokio::time::timeout(PATIENCE, waiting).await.is_err() {
            self.put_now(line);
        }
    }

    /// Takes a line if there is room, and counts it as missing otherwise.
    pub fn put_now(&self, line: &[u8]) {
        if !self.shared.push(line) {
            let mut pending = self.shared.pending.lock();
            pending.missing += 1;
            pending.tally.dropped += 1;
        }
    }

    pub fn whereabouts(&self) -> &Whereabouts {
        &self.whereabouts
    }

    /// Changes whenever there is more in the files.
    pub fn written(&self) -> watch::Receiver<u64> {
        self.shared.written.subscribe()
    }

    pub fn tally(&self) -> Tally {
        self.shared.pending.lock().tally
    }

    /// Blocks until everything that was taken is in the file, or is known not to get there.
    pub fn flush(&self) {
        let mut pending = self.shared.pending.lock();
        pending.flushes_wanted += 1;
        let wanted = pending.flushes_wanted;
        self.shared.work.notify_one();
        while pending.flushes_done < wanted && !pending.is_closing {
            self.shared.done.wait(&mut pending);
        }
    }

    /// Writes what is left and ends. Lines that come later are left out.
    pub fn close(&self) {
        self.shared.pending.lock().is_closing = true;
        self.shared.work.notify_one();
        if let Some(writer) = self.writer.lock().take()
            && writer.join().is_err()
        {
            tracing::error!("the writer of the audit log panicked");
        }
        self.shared.done.notify_all();
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    /// False when there is no room.
    fn push(&self, line: &[u8]) -> bool {
        let mut pending = self.pending.lock();
        let before = pending.lines.len();
        if before + line.len() > self.capacity || pending.is_closing {
            return false;
        }
        pending.lines.extend_from_slice(line);
        pending.count += 1;
        pending.tally.taken += 1;
        let after = pending.lines.len();
        drop(pending);
        if before == 0 || (before < PENDING_MUCH && after >= PENDING_MUCH) {
            self.work.notify_one();
        }
        true
    }

    fn write(&self, mut files: Files, clock: &Clock) {
        loop {
            let mut pending = self.pending.lock();
            let is_idle = |pending: &Pending| {
                pending.lines.is_empty()
                    && pending.flushes_wanted == pending.flushes_done
                    && !pending.is_closing
            };
            while is_idle(&pending) {
                self.work.wait(&mut pending);
            }
            let is_urgent = pending.flushes_wanted > pending.flushes_done || pending.is_closing;
            if !is_urgent && pending.lines.len() < PENDING_MUCH {
                self.work.wait_for(&mut pending, GATHER);
            }
            let mut lines = std::mem::take(&mut pending.lines);
            let count = std::mem::take(&mut pending.count);
            let missing = std::mem::take(&mut pending.missing);
            let (flushes, is_closing) = (pending.flushes_wanted, pending.is_closing);
            drop(pending);
            self.room.notify_waiters();
            if missing > 0 {
                lines.extend_from_slice(&event::missing(clock, missing));
            }
            let written = files.write(&lines);
            if let Err(error) = &written {
                tracing::warn!(%error, path = %files.path.display(), lines = count, "the audit log cannot be written");
            }
            self.written.send_modify(|times| *times += 1);
            let mut pending = self.pending.lock();
            if written.is_err() {
                pending.tally.failed += count;
                // What is missing is told by the first line that gets there.
                pending.missing += count + missing;
            }
            pending.flushes_done = flushes;
            self.done.notify_all();
            if is_closing {
                return;
            }
        }
    }
}

/// The files, of which the first is being written.
#[derive(Debug)]
struct Files {
    path: PathBuf,
    limits: Limits,
    /// None when the last one has stepped aside and the next could not be opened yet.
    file: Option<File>,
    size: u64,
}

impl Files {
    fn open(path: &Path, limits: Limits) -> io::Result<Self> {
        let (mut file, mut size) = open(path)?;
        end_a_broken_line(&mut file, &mut size)?;
        Ok(Files { path: path.to_owned(), limits, file: Some(file), size })
    }

    /// Writes whole lines, a new file beginning where the next one would make this too large.
    fn write(&mut self, mut lines: &[u8]) -> io::Result<()> {
        while !lines.is_empty() {
            let file = match &mut self.file {
                Some(file) => file,
                None => {
                    let (file, size) = open(&self.path)?;
                    self.size = size;
                    self.file.insert(file)
                }
            };
            let fits = self.limits.file_bytes.saturating_sub(self.size);
            let fits = usize::try_from(fits).unwrap_or(usize::MAX).min(lines.len());
            let end = match memchr::memrchr(b'\n', &lines[..fits]) {
                Some(last) => last + 1,
                None if self.size > 0 => {
                    self.step_aside()?;
                    continue;
                }
                // One line that is larger than a file may be.
                None => memchr::memchr(b'\n', lines).map_or(lines.len(), |end| end + 1),
            };
            if let Err(why) = file.write_all(&lines[..end]) {
                // Half a line would make the next one unreadable too.
                let _ = file.set_len(self.size);
                return Err(why);
            }
            self.size += end as u64;
            lines = &lines[end..];
        }
        Ok(())
    }

    /// Makes room for a new file. Once that is done it is not done again for want of the new one: every time would push
    /// the oldest out.
    fn step_aside(&mut self) -> io::Result<()> {
        let last = self.limits.files.max(1) - 1;
        if last == 0 {
            fs::remove_file(&self.path)?;
        }
        // The rename replaces, so the oldest goes by the first of them.
        for n in (0..last).rev() {
            match fs::rename(numbered(&self.path, n), numbered(&self.path, n + 1)) {
                Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
                _ => {}
            }
        }
        self.file = None;
        Ok(())
    }
}

fn numbered(path: &Path, n: usize) -> PathBuf {
    match n {
        0 => path.to_owned(),
        n => {
            let mut name = path.to_owned().into_os_string();
            name.push(format!(".{n}"));
            name.into()
        }
    }
}

fn end_a_broken_line(file: &mut File, size: &mut u64) -> io::Result<()> {
    if *size == 0 {
        return Ok(());
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    if last != *b"\n" {
        file.write_all(b"\n")?;
        *size += 1;
    }
    Ok(())
}

/// For its owner alone, also when somebody else made it. A link is not followed: who can put one into a directory for logs
/// would have root write, and change the rights of, whatever it points at.
fn open(path: &Path) -> io::Result<(File, u64)> {
    let not_following = OFlags::NOFOLLOW.bits().cast_signed();
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(PRIVATE).custom_flags(not_following);
    let file = options.open(path).map_err(|why| match path.is_symlink() {
        true => io::Error::other("it is a symbolic link, which is not followed: name the file itself"),
        false => why,
    })?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    if found.permissions().mode() & 0o777 != PRIVATE {
        file.set_permissions(Permissions::from_mode(PRIVATE))?;
    }
    Ok((file, found.len()))
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
