//! A zip file that is written as it is told, in a thread of its own: packing takes a processor and the disk takes its time.
//!
//! What is told waits in a short queue, so memory does not grow with the bundle. Whoever is dropped before it has finished
//! leaves half a file, which nobody takes for a whole one: it has no name yet.

use std::{
    fs::File,
    io::{self, Seek, SeekFrom, Write},
};

use bytes::Bytes;
use sheaf_resources::redaction::text::scrubbed;
use tokio::{
    sync::{Mutex, mpsc},
    task::JoinHandle,
};
use zip::{CompressionMethod, DateTime, ZipWriter, write::SimpleFileOptions};

use super::shelf::MOST_BYTES;

/// Pieces that may wait.
const QUEUE: usize = 16;

enum Order {
    Begin(String),
    Bytes(Bytes),
    Finish,
}

pub struct Archive {
    orders: mpsc::Sender<Order>,
    writer: Mutex<Option<JoinHandle<Result<File, ArchiveError>>>>,
}

/// Nobody writes any more; [`Archive::why`] says why.
#[derive(Debug, thiserror::Error)]
#[error("the file is not written any more")]
pub struct Gone;

#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("the file cannot be written")]
    Disk(#[from] io::Error),
    #[error("the file cannot be packed")]
    Pack(#[from] zip::result::ZipError),
    #[error("it broke off")]
    BrokenOff,
}

impl Archive {
    /// All entries are below `root`, which is what it unpacks to, and are of the time `now`.
    pub fn begin(file: File, root: &str, now: &str) -> Archive {
        let (send, receive) = mpsc::channel(QUEUE);
        let (root, time) = (root.to_owned(), time_of(now));
        let writer = tokio::task::spawn_blocking(move || write(file, &root, time, receive));
        Archive { orders: send, writer: Mutex::new(Some(writer)) }
    }

    /// Begins a file within it; what is written next goes there.
    pub async fn entry(&self, path: &str) -> Result<(), Gone> {
        self.orders.send(Order::Begin(plain(path))).await.map_err(|_| Gone)
    }

    pub async fn write(&self, bytes: impl Into<Bytes>) -> Result<(), Gone> {
        self.orders.send(Order::Bytes(bytes.into())).await.map_err(|_| Gone)
    }

    /// A whole file, without what looks like a secret in it.
    pub async fn add(&self, path: &str, text: String) -> Result<(), Gone> {
        self.entry(path).await?;
        // Long ones take a while, and others share this thread.
        let clean =
            tokio::task::spawn_blocking(move || scrubbed(&text).into_owned()).await.map_err(|_| Gone)?;
        self.write(clean).await
    }

    /// The file, complete but for being synced.
    pub async fn finish(self) -> Result<File, ArchiveError> {
        // Where nobody hears it, the writer says why.
        _ = self.orders.send(Order::Finish).await;
        match self.writer.lock().await.take() {
            Some(writer) => writer.await.unwrap_or(Err(ArchiveError::BrokenOff)),
            None => Err(ArchiveError::BrokenOff),
        }
    }

    /// Why nobody writes any more.
    pub async fn why(&self, gone: &Gone) -> String {
        let writer = self.writer.lock().await.take();
        match writer {
            Some(writer) => match writer.await {
                Ok(Err(why)) => crate::virtual_machine_instance::with_causes(&why),
                Ok(Ok(_)) | Err(_) => gone.to_string(),
            },
            None => gone.to_string(),
        }
    }
}

fn write(
    file: File,
    root: &str,
    time: DateTime,
    mut orders: mpsc::Receiver<Order>,
) -> Result<File, ArchiveError> {
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .last_modified_time(time)
        .unix_permissions(0o600);
    let mut zip = ZipWriter::new(Bounded { file, written: 0 });
    while let Some(order) = orders.blocking_recv() {
        match order {
            Order::Begin(path) => zip.start_file(format!("{root}/{path}"), options)?,
            Order::Bytes(bytes) => zip.write_all(&bytes)?,
            Order::Finish => return Ok(zip.finish()?.file),
        }
    }
    // What was begun is not finished by being dropped.
    _ = zip.abort_file();
    Err(ArchiveError::BrokenOff)
}

/// A file that does not grow without end.
struct Bounded {
    file: File,
    written: u64,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.written >= MOST_BYTES {
            return Err(io::Error::other(format!("it would be larger than {} MiB", MOST_BYTES >> 20)));
        }
        let written = self.file.write(bytes)?;
        self.written += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for Bounded {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

/// A path that stays within the archive, wherever that is unpacked.
fn plain(path: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ['-', '_', '.', ':', '@'].contains(&c);
    let segment = |segment: &str| -> String {
        let text: String = segment.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
        if matches!(text.as_str(), "" | "." | "..") { "_".to_owned() } else { text }
    };
    path.split('/').map(segment).collect::<Vec<_>>().join("/")
}

/// `2026-01-02T03:04:05Z` as a zip has it.
fn time_of(text: &str) -> DateTime {
    let number = |range: std::ops::Range<usize>| text.get(range).and_then(|digits| digits.parse::<u8>().ok());
    let year = text.get(0..4).and_then(|digits| digits.parse::<u16>().ok());
    let read = || {
        let time = (number(11..13)?, number(14..16)?, number(17..19)?);
        DateTime::from_date_and_time(year?, number(5..7)?, number(8..10)?, time.0, time.1, time.2).ok()
    };
    read().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn no_path_leads_out_of_the_archive() {
        for (path, expected) in [
            ("yamls/cluster/v1/nodes.yaml", "yamls/cluster/v1/nodes.yaml"),
            ("../../etc/passwd", "_/_/etc/passwd"),
            ("/etc/passwd", "_/etc/passwd"),
            ("a\\..\\b", "a_.._b"),
            ("a/./b", "a/_/b"),
            ("ä b", "__b"),
        ] {
            assert_eq!(plain(path), expected);
        }
    }

    #[tokio::test]
    async fn what_is_told_is_in_the_file() {
        let archive = Archive::begin(tempfile::tempfile().unwrap(), "root", "2026-01-02T03:04:06Z");
        archive.entry("a/b.txt").await.unwrap();
        archive.write("one ").await.unwrap();
        archive.write("two").await.unwrap();
        archive.add("c.txt", "password=hunter2".to_owned()).await.unwrap();
        let file = archive.finish().await.unwrap();
        let mut zip = zip::ZipArchive::new(file).unwrap();
        let mut text = String::new();
        let mut entry = zip.by_name("root/a/b.txt").unwrap();
        entry.read_to_string(&mut text).unwrap();
        assert_eq!(
            (text.as_str(), entry.last_modified().unwrap().to_string().as_str()),
            ("one two", "2026-01-02 03:04:06")
        );
        drop(entry);
        text.clear();
        zip.by_name("root/c.txt").unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "password=redacted");
    }

    #[tokio::test]
    async fn one_that_cannot_be_written_says_why() {
        let unwritable = File::open("/dev/null").unwrap();
        let archive = Archive::begin(unwritable, "root", "");
        let gone = loop {
            if let Err(gone) = archive.entry("a").await {
                break gone;
            }
        };
        let why = archive.why(&gone).await;
        assert!(why.contains("cannot be"), "{why}");
    }
}
