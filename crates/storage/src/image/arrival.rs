//! How bytes become an image: poured into a file under another name, synced, looked at,
//! and only then given the image's name.
//!
//! The bytes go through a short queue to a thread that writes them ([`super::writing`]), so that the
//! network and the disk work at the same time and only a few pieces are ever in memory.
//!
//! An arrival that is dropped, fails or is cancelled takes what it wrote with it.

use std::{
    error::Error,
    future::Future,
    pin::pin,
    sync::{Arc, atomic::Ordering},
};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use tokio::{sync::mpsc, task::JoinHandle};

use super::{
    ARRIVING, Checksum, DISK, Image, ImageError, Images, Known, MANIFEST_VERSION, Manifest, Progress,
    inspect, soundness, space_of,
    writing::{self, Job, Passed, QUEUE, Written},
};
use crate::{ImageId, MOST_BYTES, Step, chain::MANIFEST, directory::Directory, storage::on_a_thread};

pub enum Begun<T> {
    Already(Image),
    Now(T),
}

/// What is known beforehand of what arrives.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub size: Option<u64>,
    pub most_bytes: Option<u64>,
    pub checksum: Option<Checksum>,
}

pub struct Arrival {
    pub images: Arc<Images>,
    pub id: ImageId,
    pub progress: Arc<Progress>,
    /// What is remembered of it when it ends.
    pub failure: Option<String>,
    /// Somebody else answers for what was written from here on.
    pub is_given_away: bool,
}

/// Where the bytes of one arrival go in. Dropped before it is complete, the thread behind it ends.
#[derive(Debug)]
pub struct Intake {
    pub wanted: Wanted,
    /// How many bytes went in.
    pub received: u64,
    queue: mpsc::Sender<Passed>,
    writing: JoinHandle<Result<(Directory, Written), ImageError>>,
}

/// Nobody else begins the same arrival until this one is dropped.
pub async fn begin(images: Arc<Images>, id: ImageId) -> Result<Begun<Arrival>, ImageError> {
    let (arrival, former) = {
        let mut known = images.known.lock();
        if matches!(known.get(&id), Some(Known::Arriving(_))) {
            return Err(ImageError::AlreadyArriving { image: id });
        }
        let progress = Arc::new(Progress::default());
        let former = known.insert(id.clone(), Known::Arriving(progress.clone()));
        (Arrival::of(images.clone(), id.clone(), progress), former)
    };
    // Half an upload, whose rest nobody sends any more.
    drop(former);
    on_a_thread(move || {
        Ok(match images.find(&id) {
            Ok(Some(image)) => Begun::Already(image),
            Ok(None) => Begun::Now(arrival),
            Err(ImageError::Damaged { what }) => {
                tracing::warn!(image = %id, what, "a damaged image makes way for a new one");
                let _turn = images.turns.take(&id);
                images.withdraw(&id)?;
                Begun::Now(arrival)
            }
            Err(why) => return Err(why),
        })
    })
    .await
}

impl Arrival {
    /// To be made by whoever wrote into what is known that it arrives.
    pub fn of(images: Arc<Images>, id: ImageId, progress: Arc<Progress>) -> Arrival {
        Arrival { images, id, progress, failure: None, is_given_away: false }
    }

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

    /// Makes the place that the bytes go to.
    pub async fn open(&self, wanted: Wanted) -> Result<Intake, ImageError> {
        let most = wanted.most_bytes.unwrap_or(MOST_BYTES).min(MOST_BYTES);
        if let Some(size) = wanted.size {
            let _ = self.progress.total.set(size);
            if size > most {
                return Err(ImageError::TooLarge { most });
            }
        }
        let (images, id, progress) = (self.images.clone(), self.id.clone(), self.progress.clone());
        let size = wanted.size;
        let (directory, file) = on_a_thread(move || {
            let directory = prepare(&images, &id, &progress, size)?;
            // Nobody writes to it again, not even we.
            let file = directory.make_file(DISK, 0o400)?;
            images.after.took(Step::ArrivalMade);
            Ok::<_, ImageError>((directory, file))
        })
        .await?;
        let (queue, receiver) = mpsc::channel(QUEUE);
        // What waits for the rest of an upload must not keep the storage from being dropped.
        let (shelf, after) = (self.images.directory.clone(), self.images.after.clone());
        let job = Job { file, progress: self.progress.clone(), most, checksum: wanted.checksum.clone() };
        let writing = tokio::task::spawn_blocking(move || {
            let written = writing::write(job, receiver, || space_of(&shelf))?;
            directory.sync_file(&written.file, DISK)?;
            after.took(Step::ArrivalWritten);
            Ok((directory, written))
        });
        Ok(Intake { wanted, received: 0, queue, writing })
    }

    /// Takes the whole stream. Ends well, too, when the thread that writes has had enough, which then says why.
    pub async fn pour<S, E>(&self, intake: &mut Intake, stream: S) -> Result<(), ImageError>
    where
        S: Stream<Item = Result<Bytes, E>>,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let sending = async {
            let mut stream = pin!(stream);
            while let Some(piece) = stream.next().await {
                let piece = piece
                    .map_err(|why| ImageError::Interrupted { bytes: intake.received, source: why.into() })?;
                let length = piece.len() as u64;
                if intake.queue.send(Passed::Piece(piece)).await.is_err() {
                    break;
                }
                intake.received += length;
            }
            Ok(())
        };
        self.unless_cancelled(sending).await
    }

    /// Makes an image of what was poured.
    pub async fn complete(&self, intake: Intake) -> Result<Image, ImageError> {
        let Intake { wanted, queue, writing, .. } = intake;
        let ending = async {
            let _ = queue.send(Passed::End).await;
            match writing.await {
                Ok(written) => written,
                Err(why) if why.is_panic() => std::panic::resume_unwind(why.into_panic()),
                // The runtime is shutting down.
                Err(_) => std::future::pending().await,
            }
        };
        let (directory, written) = self.unless_cancelled(ending).await?;
        if let Some(expected) = wanted.size.filter(|expected| *expected != written.arrived) {
            return Err(ImageError::WrongSize { expected, bytes: written.arrived });
        }
        written.check()?;

        let (images, id, progress) = (self.images.clone(), self.id.clone(), self.progress.clone());
        on_a_thread(move || {
            let found = inspect::look(&written.file, |file| directory.sync_file(file, DISK))?;
            let manifest = Manifest {
                version: MANIFEST_VERSION,
                format: found.format,
                size: written.bytes,
                virtual_size: found.virtual_size,
                sha512: None,
                blake3: Some(written.blake3),
                is_disc: Some(found.is_disc),
                packing: written.packing,
                spots: Some(soundness::spots(&written.file)?),
            };
            publish(&images, &id, &progress, &directory, manifest)
        })
        .await
    }

    /// Why there is no image, to be remembered unless it was deleted.
    pub fn failed(&mut self, why: ImageError) -> ImageError {
        if !self.progress.cancelled.is_cancelled() {
            self.failure = Some(in_full(&why));
        }
        why
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        if self.is_given_away {
            return;
        }
        // Before the turn: a thread that is about to publish sees it when its turn comes.
        self.progress.cancelled.cancel();
        {
            let _turn = self.images.turns.take(&self.id);
            self.images.throw_away(&self.id);
        }
        // Last: from here on the next one may begin.
        let mut known = self.images.known.lock();
        match self.failure.take() {
            Some(why) => drop(known.insert(self.id.clone(), Known::Failed(why))),
            None => drop(known.remove(&self.id)),
        }
    }
}

impl Images {
    /// Removes what arrived of an image. To be called in its turn.
    pub(super) fn throw_away(&self, id: &ImageId) {
        if let Err(why) = self.directory.remove(&temporary_name(id)) {
            tracing::warn!(image = %id, why = &why as &dyn Error, "what arrived of an image stays behind");
        }
    }
}

pub fn temporary_name(id: &ImageId) -> String {
    format!("{ARRIVING}{id}")
}

pub fn in_full(why: &dyn Error) -> String {
    let mut text = why.to_string();
    let mut cause = why.source();
    while let Some(why) = cause {
        text = format!("{text}: {why}");
        cause = why.source();
    }
    text
}

/// The directory that an image of so many bytes is made in, under another name.
pub fn prepare(
    images: &Images,
    id: &ImageId,
    progress: &Progress,
    size: Option<u64>,
) -> Result<Directory, ImageError> {
    if let Some(bytes) = size {
        let (free, reserve) = space_of(&images.directory)?;
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
    Ok(images.directory.make_directory(&temporary)?)
}

/// Writes down what the image in `directory` is and gives it its name.
pub fn publish(
    images: &Images,
    id: &ImageId,
    progress: &Progress,
    directory: &Directory,
    manifest: Manifest,
) -> Result<Image, ImageError> {
    let _turn = images.turns.take(id);
    if progress.cancelled.is_cancelled() {
        return Err(ImageError::DeletedMeanwhile { image: id.clone() });
    }
    directory.write_new_json(MANIFEST, &manifest)?;
    directory.sync()?;
    images.after.took(Step::ImageManifestWritten);
    images.directory.rename(&temporary_name(id), id.as_str())?;
    images.after.took(Step::ImagePublished);
    if let Err(why) = images.directory.sync() {
        // Whoever asks next would find an image whose name may be gone after the next power cut.
        images.directory.rename(id.as_str(), &temporary_name(id))?;
        return Err(why.into());
    }
    progress.bytes.store(manifest.size, Ordering::Relaxed);
    images.sound.lock().insert(id.clone());
    let is_disc = manifest.is_disc.unwrap_or(false);
    Ok(manifest.describe(is_disc))
}
