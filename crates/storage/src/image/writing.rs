//! The thread that writes what arrives: takes it off a queue, digests it, unpacks it where it is packed, and leaves
//! long runs of zeros out.
//!
//! ```text
//!   queue --> pieces --+--> digests (a thread of their own)
//!                      +--> unpacker, where it is packed --> blocks of 1 MiB --> file with holes
//! ```
//!
//! Everything is digested as it arrived, packed or not. The disk is kept busy from the beginning: blocks go straight to it,
//! or, where that cannot be done, what was written is handed to it every few MiB. So the sync at the end has little left
//! to wait for, and the memory that the system keeps files in is left to others.

use std::{
    fs::File,
    io::{self, Read},
    sync::{Arc, atomic::Ordering, mpsc as threads},
};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use rustix::fs::Advice;
use sha2::{Digest, Sha256, Sha512, digest::DynDigest};
use tokio::sync::mpsc;

use super::{
    Checksum, DISK, ImageError, Progress,
    direct::{Block, DirectFile},
    inspect,
    packing::{self, Packing},
};
use crate::directory::DiskError;

/// Pieces between the network and the disk; one is rarely more than a few hundred KiB.
pub const QUEUE: usize = 16;
/// Written at once; shorter pieces are put together first.
const BLOCK: usize = 1 << 20;
/// After so many bytes the disk is told to begin.
const HAND_OVER_EVERY: u64 = 8 << 20;
/// After so many bytes it is asked how much space is left. Others write too, so asking once is not enough.
const LOOK_AT_SPACE_EVERY: u64 = 16 << 20;
/// Of the file system, this part stays free: the cluster's own memory lies on it, and machines write to it.
const RESERVE_PART: u64 = 20;
/// More than this is not kept, however large the file system is.
const MOST_RESERVE: u64 = 4 << 30;
/// A run of zeros this long, at a multiple of its length, is left out.
const HOLE: usize = 64 << 10;
/// Each has a window of up to [`packing::WINDOW`] in memory; the others wait.
const MOST_UNPACKING: usize = 4;

/// What goes through the queue. A queue that ends without an end was given up.
#[derive(Debug)]
pub enum Passed {
    Piece(Bytes),
    End,
}

/// What is to be written where.
pub struct Job {
    pub file: File,
    pub progress: Arc<Progress>,
    /// No more than this may arrive, nor come out of it.
    pub most: u64,
    /// What its digest should be, for those who know.
    pub checksum: Option<Checksum>,
}

#[derive(Debug)]
pub struct Written {
    pub file: File,
    /// Of what came in.
    pub arrived: u64,
    /// Of what is in the file.
    pub bytes: u64,
    pub packing: Option<Packing>,
    pub blake3: String,
    checked: Option<Checked>,
}

/// A checksum that was asked for, and what was found.
#[derive(Debug)]
struct Checked {
    expected: String,
    found: String,
}

impl Written {
    pub fn check(&self) -> Result<(), ImageError> {
        match &self.checked {
            Some(Checked { expected, found }) if !expected.eq_ignore_ascii_case(found) => {
                Err(ImageError::WrongChecksum { expected: expected.clone(), found: found.clone() })
            }
            _ => Ok(()),
        }
    }
}

/// How much of a file system of this size no image may take.
pub fn reserve_of(total: u64) -> u64 {
    (total / RESERVE_PART).min(MOST_RESERVE)
}

/// Takes all there is. `space` says how many bytes are free, and how many of them stay so.
pub fn write(
    job: Job,
    queue: mpsc::Receiver<Passed>,
    space: impl Fn() -> Result<(u64, u64), DiskError>,
) -> Result<Written, ImageError> {
    let Job { file, progress, most, checksum } = job;
    std::thread::scope(|scope| {
        let (digests, pieces) = threads::sync_channel(QUEUE);
        let digesting = scope.spawn(move || digest(&pieces, checksum));
        let mut pieces = Pieces {
            queue,
            digests,
            progress: &progress,
            most,
            held: Bytes::new(),
            arrived: 0,
            ended: false,
            failure: None,
        };
        let (direct, block) = (DirectFile::of(&file), Block::of(BLOCK));
        let mut disk =
            Disk { file: &file, direct, space, most, block, at: 0, handed_over: 0, looked_at: None };
        let packing = pour(&mut pieces, &mut disk)?;
        let bytes = disk.end()?;
        let arrived = pieces.arrived;
        drop(pieces);
        let (blake3, checked) = match digesting.join() {
            Ok(digests) => digests,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        Ok((arrived, bytes, packing, blake3, checked))
    })
    .map(|(arrived, bytes, packing, blake3, checked)| Written {
        file,
        arrived,
        bytes,
        packing,
        blake3,
        checked,
    })
}

fn pour<S>(pieces: &mut Pieces<'_>, disk: &mut Disk<'_, S>) -> Result<Option<Packing>, ImageError>
where
    S: Fn() -> Result<(u64, u64), DiskError>,
{
    let start = pieces.peek(packing::MAGIC)?;
    let Some(packing) = Packing::of(&start) else {
        while let Some(piece) = pieces.next()? {
            disk.push(&piece)?;
        }
        return Ok(None);
    };
    let _room = Room::take();
    let progress = pieces.progress;
    let mut unpacked = packing.unpack(&mut *pieces);
    let mut part = vec![0; HOLE];
    let ended = loop {
        match unpacked.read(&mut part) {
            Ok(0) => break Ok(()),
            Ok(read) => disk.push(&part[..read])?,
            Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
            Err(why) => break Err(why),
        }
        let (packed, unpacked) = (progress.bytes.load(Ordering::Relaxed), disk.bytes());
        if unpacked > packing::most_unpacked(packed) {
            return Err(ImageError::Bomb { packed, unpacked });
        }
    };
    drop(unpacked);
    match (ended, pieces.failure.take()) {
        // What went wrong on the way in is why it could not be unpacked.
        (_, Some(why)) => Err(why),
        (Err(source), None) => Err(ImageError::Unpacking { packing: packing.name(), source }),
        (Ok(()), None) => Ok(Some(packing)),
    }
}

/// What comes off the queue, counted and digested.
struct Pieces<'a> {
    queue: mpsc::Receiver<Passed>,
    digests: threads::SyncSender<Bytes>,
    progress: &'a Progress,
    most: u64,
    /// Looked at, but not taken yet.
    held: Bytes,
    arrived: u64,
    ended: bool,
    /// Why there is nothing more, for those who read through an unpacker.
    failure: Option<ImageError>,
}

impl Pieces<'_> {
    fn next(&mut self) -> Result<Option<Bytes>, ImageError> {
        if !self.held.is_empty() {
            return Ok(Some(std::mem::take(&mut self.held)));
        }
        while !self.ended {
            match self.queue.blocking_recv() {
                Some(Passed::Piece(piece)) if piece.is_empty() => {}
                Some(Passed::Piece(piece)) => {
                    self.arrived += piece.len() as u64;
                    if self.arrived > self.most {
                        return Err(ImageError::TooLarge { most: self.most });
                    }
                    // That thread ends when this one does.
                    let _ = self.digests.send(piece.clone());
                    self.progress.bytes.store(self.arrived, Ordering::Relaxed);
                    return Ok(Some(piece));
                }
                Some(Passed::End) => self.ended = true,
                None => {
                    let source = "nobody sends the rest".into();
                    return Err(ImageError::Interrupted { bytes: self.arrived, source });
                }
            }
        }
        Ok(None)
    }

    /// The first bytes, as many as there are up to `length`, which are then still to be taken.
    fn peek(&mut self, length: usize) -> Result<Bytes, ImageError> {
        let mut start = Vec::new();
        while start.len() < length {
            match self.next()? {
                Some(piece) => start.extend_from_slice(&piece),
                None => break,
            }
        }
        self.held = start.into();
        Ok(self.held.clone())
    }
}

impl Read for Pieces<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.held.is_empty() {
            match self.next() {
                Ok(piece) => self.held = piece.unwrap_or_default(),
                Err(why) => {
                    let told = io::Error::other(why.to_string());
                    self.failure = Some(why);
                    return Err(told);
                }
            }
        }
        let read = into.len().min(self.held.len());
        into[..read].copy_from_slice(&self.held.split_to(read));
        Ok(read)
    }
}

/// The file that becomes the image, written in blocks.
struct Disk<'a, S> {
    file: &'a File,
    direct: DirectFile<'a>,
    space: S,
    most: u64,
    block: Block,
    /// Where the next block goes.
    at: u64,
    handed_over: u64,
    looked_at: Option<u64>,
}

impl<S: Fn() -> Result<(u64, u64), DiskError>> Disk<'_, S> {
    fn bytes(&self) -> u64 {
        self.at + self.block.len() as u64
    }

    fn push(&mut self, mut piece: &[u8]) -> Result<(), ImageError> {
        if self.bytes() + piece.len() as u64 > self.most {
            return Err(ImageError::TooLarge { most: self.most });
        }
        while !piece.is_empty() {
            piece = self.block.fill(piece);
            if self.block.is_full() {
                self.look_at_space()?;
                self.write_block()?;
            }
        }
        Ok(())
    }

    fn look_at_space(&mut self) -> Result<(), ImageError> {
        if self.looked_at.is_some_and(|at| self.at < at + LOOK_AT_SPACE_EVERY) {
            return Ok(());
        }
        let (free, reserve) = (self.space)()?;
        if free < reserve.saturating_add(LOOK_AT_SPACE_EVERY) {
            return Err(ImageError::DiskFull { bytes: self.bytes(), free, reserve });
        }
        self.looked_at = Some(self.at);
        Ok(())
    }

    fn write_block(&mut self) -> Result<(), ImageError> {
        // Nothing is gained by taking gigabytes of what is refused by its first bytes.
        if self.at == 0
            && let Some(refusal) = inspect::refusal_at_sight(self.block.bytes())
        {
            return Err(refusal.into());
        }
        write_with_holes(&mut self.direct, self.block.bytes(), self.at)?;
        self.at += self.block.len() as u64;
        self.block.clear();
        if self.at >= self.handed_over + HAND_OVER_EVERY {
            let length = std::num::NonZeroU64::new(self.at - self.handed_over);
            // Only makes it faster, so whether it could be done is not asked.
            let _ = rustix::fs::fadvise(self.file, self.handed_over, length, Advice::DontNeed);
            self.handed_over = self.at;
        }
        Ok(())
    }

    /// Writes what is left; answers how many bytes the file has.
    fn end(&mut self) -> Result<u64, ImageError> {
        self.write_block()?;
        // What ends in zeros ends in a hole; the length must still be true.
        let ended = self.direct.end().and_then(|()| self.file.set_len(self.at));
        ended.map_err(|why| DiskError::new("write", DISK.as_ref(), why))?;
        Ok(self.at)
    }
}

fn write_with_holes(file: &mut DirectFile<'_>, block: &[u8], at: u64) -> Result<(), DiskError> {
    let mut at = at;
    let mut rest = block;
    while !rest.is_empty() {
        let zeros = run(rest, true);
        at += zeros as u64;
        rest = &rest[zeros..];
        let others = run(rest, false);
        file.write_all_at(&rest[..others], at).map_err(|why| DiskError::new("write", DISK.as_ref(), why))?;
        at += others as u64;
        rest = &rest[others..];
    }
    Ok(())
}

/// How long the run of pieces is that are all zeros, or are not.
fn run(block: &[u8], zeros: bool) -> usize {
    let pieces = block.chunks(HOLE).take_while(|piece| is_zero(piece) == zeros);
    pieces.map(<[u8]>::len).sum()
}

fn is_zero(piece: &[u8]) -> bool {
    // In parts, so that the processor may take many bytes at once.
    piece.chunks(1024).all(|part| part.iter().fold(0, |all, byte| all | byte) == 0)
}

fn digest(pieces: &threads::Receiver<Bytes>, checksum: Option<Checksum>) -> (String, Option<Checked>) {
    let mut blake3 = blake3::Hasher::new();
    let mut asked: Option<(String, Box<dyn DynDigest>)> = checksum.map(|checksum| match checksum {
        Checksum::Sha512(expected) => (expected, Box::new(Sha512::new()) as Box<dyn DynDigest>),
        Checksum::Sha256(expected) => (expected, Box::new(Sha256::new()) as Box<dyn DynDigest>),
    });
    for piece in pieces {
        blake3.update(&piece);
        if let Some((_, digest)) = &mut asked {
            digest.update(&piece);
        }
    }
    let checked = asked.map(|(expected, digest)| Checked { expected, found: hex(&digest.finalize()) });
    (blake3.finalize().to_string(), checked)
}

pub fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A place among those who unpack, given back when dropped.
struct Room;

static UNPACKING: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

impl Room {
    fn take() -> Room {
        let mut taken = UNPACKING.0.lock();
        while *taken >= MOST_UNPACKING {
            UNPACKING.1.wait(&mut taken);
        }
        *taken += 1;
        Room
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        *UNPACKING.0.lock() -= 1;
        UNPACKING.1.notify_one();
    }
}
