//! How bytes become an image: poured into a file under another name, synced, looked at,
//! and only then given the image's name.
//!
//! The bytes go through a short queue to a thread that writes and digests them, so that the
//! network and the disk work at the same time and only a few pieces are ever in memory. Long
//! runs of zeros become holes.
//!
//! An arrival that is dropped, fails or is cancelled takes what it wrote with it.

use std::{
    error::Error,
    fs::File,
    future::Future,
    io,
    os::unix::fs::FileExt,
    pin::pin,
    sync::{Arc, atomic::Ordering},
};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use sha2::{Digest, Sha256, Sha512};
use tokio::sync::mpsc;

use super::{
    ARRIVING, Checksum, DISK, Image, ImageError, Images, Known, MANIFEST_VERSION, Manifest, Progress, inspect,
};
use crate::{
    ImageId, MOST_BYTES, Step,
    directory::{Directory, DiskError},
    storage::on_a_thread,
    volume::MANIFEST,
};

/// Pieces between the network and the disk; one is rarely more than a few hundred KiB.
const QUEUE: usize = 16;
/// Written at once; shorter pieces are put together first.
const BLOCK: usize = 1 << 20;
/// After so many bytes it is asked how much space is left. Others write too, so asking once is not enough.
const LOOK_AT_SPACE_EVERY: u64 = 16 << 20;
/// Of the file system, this part stays free: the cluster's own memory lies on it, and machines write to it.
const RESERVE_PART: u64 = 20;
/// More than this is not kept, however large the file system is.
const MOST_RESERVE: u64 = 4 << 30;
/// A run of zeros this long, at a multiple of its length, is left out.
const HOLE: usize = 64 << 10;

pub enum Begun {
    Already(Image),
    Now(Arrival),
}

/// What is known beforehand of what arrives.
pub struct Wanted {
    pub size: Option<u64>,
    pub most_bytes: Option<u64>,
    pub checksum: Option<Checksum>,
}

pub struct Arrival {
    images: Arc<Images>,
    id: ImageId,
    progress: Arc<Progress>,
}

/// Nobody else begins the same arrival until this one is dropped.
pub async fn begin(images: Arc<Images>, id: ImageId) -> Result<Begun, ImageError> {
    let arrival = {
        let mut known = images.known.lock();
        if matches!(known.get(&id), Some(Known::Arriving(_))) {
            return Err(ImageError::AlreadyArriving { image: id });
        }
        let progress = Arc::new(Progress::default());
        known.insert(id.clone(), Known::Arriving(progress.clone()));
        Arrival { images: images.clone(), id: id.clone(), progress }
    };
    Ok(match on_a_thread(move || images.find(&id)).await? {
        Some(image) => Begun::Already(image),
        None => Begun::Now(arrival),
    })
}

impl Arrival {
    pub async fn unless_cancelled<T>(
        &self,
        work: impl Future<Output = Result<T, ImageError>>,
    ) -> Result<T, ImageError> {
        tokio::select! {
            biased;
            () = self.progress.cancelled.cancelled() => {
                Err(ImageError::DeletedMeanwhile { image: self.id.clone() })
            }
            ended = work => ended,
        }
    }

    /// Takes the whole stream and makes an image of it.
    pub async fn pour<S, E>(&self, stream: S, wanted: Wanted) -> Result<Image, ImageError>
    where
        S: Stream<Item = Result<Bytes, E>>,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let most = wanted.most_bytes.unwrap_or(MOST_BYTES).min(MOST_BYTES);
        if let Some(size) = wanted.size {
            let _ = self.progress.total.set(size);
            if size > most {
                return Err(ImageError::TooLarge { most });
            }
        }
        let (images, id, progress) = (self.images.clone(), self.id.clone(), self.progress.clone());
        let (directory, file) = on_a_thread(move || prepare(&images, &id, &progress, wanted.size)).await?;

        let (sender, queue) = mpsc::channel(QUEUE);
        let (progress, images) = (self.progress.clone(), self.images.clone());
        let digest_sha256 = matches!(wanted.checksum, Some(Checksum::Sha256(_)));
        let writing = on_a_thread(move || {
            let space = || images.space();
            let written = write(file, queue, &progress, most, digest_sha256, space)?;
            images.after.took(Step::ArrivalWritten);
            Ok::<_, ImageError>(written)
        });
        let sending = self.unless_cancelled(send_all(stream, sender, &self.progress));
        let (sent, written) = tokio::join!(sending, writing);
        // What the writer says comes first: when it failed, nothing more could be sent.
        let written = written?;
        sent?;
        if let Some(expected) = wanted.size.filter(|expected| *expected != written.bytes) {
            return Err(ImageError::WrongSize { expected, bytes: written.bytes });
        }
        written.check(wanted.checksum.as_ref())?;

        let (images, id, progress) = (self.images.clone(), self.id.clone(), self.progress.clone());
        on_a_thread(move || publish(&images, &id, &progress, &directory, written)).await
    }

    /// Leaves behind what is worth knowing: the image, or why there is none.
    pub fn finish(self, ended: Result<Image, ImageError>) -> Result<Image, ImageError> {
        if let Err(why) = &ended
            && !self.progress.cancelled.is_cancelled()
        {
            let told = Known::Failed(in_full(why));
            self.images.known.lock().insert(self.id.clone(), told);
        }
        ended
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        // Before the turn: a thread that is about to publish sees it when its turn comes.
        self.progress.cancelled.cancel();
        let _turn = self.images.turns.take(&self.id);
        if let Err(why) = self.images.directory.remove(&temporary_name(&self.id)) {
            tracing::warn!(image = %self.id, why = &why as &dyn Error, "what arrived of an image stays behind");
        }
        let mut known = self.images.known.lock();
        if matches!(known.get(&self.id), Some(Known::Arriving(_))) {
            known.remove(&self.id);
        }
    }
}

fn temporary_name(id: &ImageId) -> String {
    format!("{ARRIVING}{id}")
}

fn in_full(why: &dyn Error) -> String {
    let mut text = why.to_string();
    let mut cause = why.source();
    while let Some(why) = cause {
        text = format!("{text}: {why}");
        cause = why.source();
    }
    text
}

fn prepare(
    images: &Images,
    id: &ImageId,
    progress: &Progress,
    size: Option<u64>,
) -> Result<(Directory, File), ImageError> {
    if let Some(bytes) = size {
        let (free, reserve) = images.space()?;
        if bytes.saturating_add(reserve) > free {
            return Err(ImageError::NoSpace { bytes, free, reserve });
        }
    }
    let temporary = temporary_name(id);
    let _turn = images.turns.take(id);
    // Given up before this thread began, and cleaned up after already.
    if progress.cancelled.is_cancelled() {
        return Err(ImageError::DeletedMeanwhile { image: id.clone() });
    }
    images.directory.remove(&temporary)?;
    let directory = images.directory.make_directory(&temporary)?;
    // Nobody writes to it again, not even we.
    let file = directory.make_file(DISK, 0o400)?;
    images.after.took(Step::ArrivalMade);
    Ok((directory, file))
}

async fn send_all<S, E>(stream: S, queue: mpsc::Sender<Bytes>, progress: &Progress) -> Result<(), ImageError>
where
    S: Stream<Item = Result<Bytes, E>>,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    let mut stream = pin!(stream);
    while let Some(piece) = stream.next().await {
        let piece = piece.map_err(|why| ImageError::Interrupted {
            bytes: progress.bytes.load(Ordering::Relaxed),
            source: why.into(),
        })?;
        // Fails when the writer did, which then says why.
        if queue.send(piece).await.is_err() {
            break;
        }
    }
    Ok(())
}

#[derive(Debug)]
struct Written {
    file: File,
    bytes: u64,
    sha512: String,
    sha256: Option<String>,
}

impl Written {
    fn check(&self, checksum: Option<&Checksum>) -> Result<(), ImageError> {
        let (expected, found) = match checksum {
            Some(Checksum::Sha512(expected)) => (expected, &self.sha512),
            Some(Checksum::Sha256(expected)) => (expected, self.sha256.as_ref().unwrap_or(&self.sha512)),
            None => return Ok(()),
        };
        if !expected.eq_ignore_ascii_case(found) {
            return Err(ImageError::WrongChecksum { expected: expected.clone(), found: found.clone() });
        }
        Ok(())
    }
}

fn write(
    file: File,
    mut queue: mpsc::Receiver<Bytes>,
    progress: &Progress,
    most: u64,
    digest_sha256: bool,
    space: impl Fn() -> Result<(u64, u64), DiskError>,
) -> Result<Written, ImageError> {
    let failed = |why: io::Error| DiskError::new("write", DISK.as_ref(), why);
    let (mut sha512, mut sha256) = (Sha512::new(), digest_sha256.then(Sha256::new));
    let mut block = Vec::with_capacity(BLOCK);
    let (mut bytes, mut on_disk, mut looked_at) = (0u64, 0u64, None);
    while let Some(mut piece) = queue.blocking_recv() {
        bytes += piece.len() as u64;
        if bytes > most {
            return Err(ImageError::TooLarge { most });
        }
        sha512.update(&piece);
        if let Some(sha256) = &mut sha256 {
            sha256.update(&piece);
        }
        while !piece.is_empty() {
            let fits = piece.split_to(piece.len().min(BLOCK - block.len()));
            block.extend_from_slice(&fits);
            if block.len() == BLOCK {
                if looked_at.is_none_or(|at| on_disk >= at + LOOK_AT_SPACE_EVERY) {
                    let (free, reserve) = space()?;
                    if free < reserve.saturating_add(LOOK_AT_SPACE_EVERY) {
                        return Err(ImageError::DiskFull { bytes, free, reserve });
                    }
                    looked_at = Some(on_disk);
                }
                write_block(&file, &block, on_disk).map_err(failed)?;
                on_disk += block.len() as u64;
                block.clear();
            }
        }
        progress.bytes.store(bytes, Ordering::Relaxed);
    }
    write_block(&file, &block, on_disk).map_err(failed)?;
    // What ends in zeros ends in a hole; the length must still be true.
    file.set_len(bytes).and_then(|()| file.sync_all()).map_err(failed)?;
    Ok(Written {
        file,
        bytes,
        sha512: hex(&sha512.finalize()),
        sha256: sha256.map(|sha256| hex(&sha256.finalize())),
    })
}

/// How much of a file system of this size no image may take.
pub fn reserve_of(total: u64) -> u64 {
    (total / RESERVE_PART).min(MOST_RESERVE)
}

fn write_block(file: &File, block: &[u8], at: u64) -> io::Result<()> {
    let mut at = at;
    for piece in block.chunks(HOLE) {
        if piece.iter().any(|byte| *byte != 0) {
            file.write_all_at(piece, at)?;
        }
        at += piece.len() as u64;
    }
    Ok(())
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn publish(
    images: &Images,
    id: &ImageId,
    progress: &Progress,
    directory: &Directory,
    written: Written,
) -> Result<Image, ImageError> {
    let found = inspect::look(&written.file)?;
    let _turn = images.turns.take(id);
    if progress.cancelled.is_cancelled() {
        return Err(ImageError::DeletedMeanwhile { image: id.clone() });
    }
    let image = Image {
        format: found.format,
        size: written.bytes,
        virtual_size: found.virtual_size,
        sha512: written.sha512,
    };
    let manifest = Manifest {
        version: MANIFEST_VERSION,
        format: image.format,
        size: image.size,
        virtual_size: image.virtual_size,
        sha512: image.sha512.clone(),
    };
    directory.write_new_json(MANIFEST, &manifest)?;
    directory.sync()?;
    images.after.took(Step::ImageManifestWritten);
    images.directory.rename(&temporary_name(id), id.as_str())?;
    images.after.took(Step::ImagePublished);
    images.directory.sync()?;
    Ok(image)
}
