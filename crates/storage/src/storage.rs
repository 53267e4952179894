//! The storage of one host: where everything is, and the way in for callers that must not
//! block.
//!
//! Everything that touches the disk runs on a thread that may wait for it. A call that is
//! dropped half-way goes on to its end; only an image that is arriving stops, and is
//! thrown away. Two calls about one volume or image take turns.

use std::{error::Error, os::fd::OwnedFd, path::PathBuf, sync::Arc};

use bytes::Bytes;
use futures::Stream;

use crate::{
    AfterStep, Checksum, DiskError, Image, ImageError, ImageId, ImageState, OpenLayer, SeedId, Source, Step,
    Volume, VolumeError, VolumeId, directory::Directory, image::Images, seed::Seeds, volume::Volumes,
};

#[derive(Clone, Debug)]
pub struct StorageConfig {
    /// Holds `images`, `volumes` and `seeds`; made if it is not there.
    pub directory: PathBuf,
    pub after_step: AfterStep,
}

impl StorageConfig {
    pub fn in_directory(directory: impl Into<PathBuf>) -> StorageConfig {
        StorageConfig { directory: directory.into(), after_step: AfterStep::default() }
    }
}

/// Of the file system that everything lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    pub total_bytes: u64,
    pub free_bytes: u64,
}

/// Clones are the same storage.
#[derive(Clone, Debug)]
pub struct Storage {
    directory: Arc<Directory>,
    volumes: Arc<Volumes>,
    images: Arc<Images>,
    seeds: Arc<Seeds>,
}

impl Storage {
    /// Finds what is there, and throws away what an earlier process did not finish.
    pub async fn open(config: StorageConfig) -> Result<Storage, DiskError> {
        on_a_thread(move || open(&config)).await
    }

    /// Makes a volume of at least `bytes` bytes: empty, or a copy of an image that shares
    /// the image's bytes until it is written to. One that is already there is left as it is,
    /// and grows if it is smaller.
    pub async fn create_volume(
        &self,
        id: &VolumeId,
        bytes: u64,
        image: Option<&ImageId>,
    ) -> Result<Volume, VolumeError> {
        let (volumes, id, image) = (self.volumes.clone(), id.clone(), image.cloned());
        on_a_thread(move || volumes.create(&id, bytes, image.as_ref())).await
    }

    pub async fn volume(&self, id: &VolumeId) -> Result<Option<Volume>, VolumeError> {
        let (volumes, id) = (self.volumes.clone(), id.clone());
        on_a_thread(move || volumes.find(&id)).await
    }

    pub async fn volumes(&self) -> Result<Vec<VolumeId>, VolumeError> {
        let volumes = self.volumes.clone();
        on_a_thread(move || volumes.list()).await
    }

    /// Makes a volume that no machine uses at least `bytes` bytes large. Never smaller.
    pub async fn grow_volume(&self, id: &VolumeId, bytes: u64) -> Result<Volume, VolumeError> {
        let (volumes, id) = (self.volumes.clone(), id.clone());
        on_a_thread(move || volumes.grow(&id, bytes)).await
    }

    /// Removes a volume that no machine uses. One that is not there is gone already.
    pub async fn delete_volume(&self, id: &VolumeId) -> Result<(), VolumeError> {
        let (volumes, id) = (self.volumes.clone(), id.clone());
        on_a_thread(move || volumes.delete(&id)).await
    }

    /// All layers of a volume, bottom first; all but the last are always read only.
    pub async fn open_volume(&self, id: &VolumeId, read_only: bool) -> Result<Vec<OpenLayer>, VolumeError> {
        let (volumes, id) = (self.volumes.clone(), id.clone());
        on_a_thread(move || volumes.open(&id, read_only)).await
    }

    /// Fetches an image and returns once it is complete; one that is complete already is
    /// not fetched again. [`Storage::image`] tells how far it is. Dropping the call stops it.
    pub async fn fetch_image(&self, id: &ImageId, source: Source) -> Result<Image, ImageError> {
        self.images.clone().fetch(id.clone(), source).await
    }

    /// Like [`Storage::fetch_image`], with bytes that somebody sends.
    pub async fn receive_image<S, E>(
        &self,
        id: &ImageId,
        stream: S,
        expected_size: Option<u64>,
    ) -> Result<Image, ImageError>
    where
        S: Stream<Item = Result<Bytes, E>> + Send,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        self.images.clone().receive(id.clone(), stream, expected_size, None).await
    }

    /// Like [`Storage::receive_image`], and what arrives must have this checksum.
    pub async fn receive_checked_image<S, E>(
        &self,
        id: &ImageId,
        stream: S,
        expected_size: Option<u64>,
        checksum: Checksum,
    ) -> Result<Image, ImageError>
    where
        S: Stream<Item = Result<Bytes, E>> + Send,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        self.images.clone().receive(id.clone(), stream, expected_size, Some(checksum)).await
    }

    pub async fn image(&self, id: &ImageId) -> Result<ImageState, ImageError> {
        let (images, id) = (self.images.clone(), id.clone());
        on_a_thread(move || images.state(&id)).await
    }

    /// The complete ones.
    pub async fn images(&self) -> Result<Vec<ImageId>, ImageError> {
        let images = self.images.clone();
        on_a_thread(move || images.list()).await
    }

    /// Removes an image, or stops it from arriving. Volumes made of it keep its bytes.
    pub async fn delete_image(&self, id: &ImageId) -> Result<(), ImageError> {
        let (images, id) = (self.images.clone(), id.clone());
        on_a_thread(move || images.delete(&id)).await
    }

    pub async fn open_image_for_reading(&self, id: &ImageId) -> Result<OwnedFd, ImageError> {
        let (images, id) = (self.images.clone(), id.clone());
        on_a_thread(move || images.open(&id)).await
    }

    /// Keeps a disc made by [`crate::seed`]. Whoever has an older one open keeps that.
    pub async fn write_seed(&self, id: &SeedId, disc: Vec<u8>) -> Result<(), DiskError> {
        let (seeds, id) = (self.seeds.clone(), id.clone());
        on_a_thread(move || seeds.write(&id, &disc)).await
    }

    /// Read only; none if there is no such seed.
    pub async fn open_seed(&self, id: &SeedId) -> Result<Option<OwnedFd>, DiskError> {
        let (seeds, id) = (self.seeds.clone(), id.clone());
        on_a_thread(move || seeds.open(&id)).await
    }

    pub async fn seeds(&self) -> Result<Vec<SeedId>, DiskError> {
        let seeds = self.seeds.clone();
        on_a_thread(move || seeds.list()).await
    }

    pub async fn delete_seed(&self, id: &SeedId) -> Result<(), DiskError> {
        let (seeds, id) = (self.seeds.clone(), id.clone());
        on_a_thread(move || seeds.delete(&id)).await
    }

    pub async fn space(&self) -> Result<Space, DiskError> {
        let directory = self.directory.clone();
        let (total_bytes, free_bytes) = on_a_thread(move || directory.space()).await?;
        Ok(Space { total_bytes, free_bytes })
    }
}

fn open(config: &StorageConfig) -> Result<Storage, DiskError> {
    let after = config.after_step.clone();
    let directory = Directory::open_by_path(&config.directory)?;
    let volumes = directory.ensure_directory("volumes")?;
    let images = directory.ensure_directory("images")?;
    let images_of_volumes = directory.ensure_directory("images")?;
    let seeds = directory.ensure_directory("seeds")?;
    directory.sync()?;
    after.took(Step::DirectoriesMade);

    remove_leftovers(&volumes, Volumes::is_leftover, &after)?;
    remove_leftovers(&images, Images::is_leftover, &after)?;
    remove_leftovers(&seeds, Seeds::is_leftover, &after)?;
    Ok(Storage {
        directory: Arc::new(directory),
        volumes: Arc::new(Volumes::new(volumes, images_of_volumes, after.clone())),
        images: Arc::new(Images::new(images, after.clone())),
        seeds: Arc::new(Seeds::new(seeds, after)),
    })
}

fn remove_leftovers(
    directory: &Directory,
    is_leftover: fn(&str) -> bool,
    after: &AfterStep,
) -> Result<(), DiskError> {
    for name in directory.names()?.iter().filter(|name| is_leftover(name)) {
        directory.remove(name)?;
        tracing::info!(path = %directory.path_of(name).display(), "threw away what was never finished");
        after.took(Step::LeftoverRemoved);
    }
    Ok(())
}

pub(crate) async fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(why) if why.is_panic() => std::panic::resume_unwind(why.into_panic()),
        // The runtime is shutting down; nobody is waiting for the answer any more.
        Err(_) => std::future::pending().await,
    }
}
