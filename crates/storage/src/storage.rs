//! The storage of one host: where everything is, and the way in for callers that must not
//! block.
//!
//! Everything that touches the disk runs on a thread that may wait for it. A call that is
//! dropped half-way goes on to its end; only an image that is arriving stops. One that is fetched is
//! thrown away then, one that is sent waits for the rest. Two calls about one volume or image take turns.

use std::{error::Error, os::fd::OwnedFd, path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures::Stream;

use crate::{
    AfterStep, Announced, Backend, Begun, DiskError, Drafted, Image, ImageError, ImageId, ImageState, Merge,
    OpenImage, OpenLayer, OpenMerge, Origin, SeedId, Snapshot, SnapshotId, Source, Space, Step, Syncs,
    Volume, VolumeError, VolumeId, ballast, directory::Directory, image::Images, local::Local, seed::Seeds,
};

#[derive(Clone, Debug)]
pub struct StorageConfig {
    /// Holds `images`, `volumes`, `snapshots` and `seeds`; made if it is not there.
    pub directory: PathBuf,
    pub after_step: AfterStep,
    /// For tests: whether what is synced really is.
    pub syncs: Syncs,
    /// How long an upload that broke off is kept for the rest to come.
    pub upload_patience: Duration,
}

impl StorageConfig {
    pub fn in_directory(directory: impl Into<PathBuf>) -> StorageConfig {
        StorageConfig {
            directory: directory.into(),
            after_step: AfterStep::default(),
            syncs: Syncs::default(),
            upload_patience: Duration::from_secs(600),
        }
    }
}

/// Clones are the same storage.
#[derive(Clone, Debug)]
pub struct Storage {
    directory: Arc<Directory>,
    local: Arc<Local>,
    images: Arc<Images>,
    seeds: Arc<Seeds>,
}

impl Storage {
    /// Finds what is there, and throws away what an earlier process did not finish.
    pub async fn open(config: StorageConfig) -> Result<Storage, DiskError> {
        on_a_thread(move || open(&config)).await
    }

    /// Fetches an image and returns once it is complete; one that is complete already is
    /// not fetched again. [`Storage::image`] tells how far it is. Dropping the call stops it.
    pub async fn fetch_image(&self, id: &ImageId, source: Source) -> Result<Image, ImageError> {
        self.images.clone().fetch(id.clone(), source).await
    }

    /// Like [`Storage::fetch_image`], with bytes that somebody sends. When they stop coming, or the call is dropped,
    /// what came is kept for a while, and [`Storage::image`] says how much it is; the rest may then follow.
    pub async fn receive_image<S, E>(
        &self,
        id: &ImageId,
        stream: S,
        announced: impl Into<Announced>,
    ) -> Result<Image, ImageError>
    where
        S: Stream<Item = Result<Bytes, E>> + Send,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        self.images.clone().receive(id.clone(), stream, announced.into()).await
    }

    /// Makes an image of another one, at once: both have the same bytes, and each may go first.
    pub async fn clone_image(&self, id: &ImageId, from: &ImageId) -> Result<Image, ImageError> {
        self.images.clone().copy(id.clone(), from.clone()).await
    }

    /// Begins an image that somebody else writes, of a disk of `virtual_size` bytes that takes about `bytes`.
    pub async fn draft_image(
        &self,
        id: &ImageId,
        virtual_size: u64,
        bytes: u64,
    ) -> Result<Drafted, ImageError> {
        self.images.clone().draft(id.clone(), virtual_size, bytes).await
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

    pub async fn open_image_for_reading(&self, id: &ImageId) -> Result<OpenImage, ImageError> {
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

    /// Takes some space, to be given when nothing else is left. The cluster then still has room for orders.
    pub async fn take_ballast(&self) -> Result<(), DiskError> {
        let directory = self.directory.clone();
        on_a_thread(move || ballast::take(&directory)).await
    }

    /// Gives it; whether there was any.
    pub async fn give_ballast(&self) -> Result<bool, DiskError> {
        let directory = self.directory.clone();
        on_a_thread(move || ballast::give(&directory)).await
    }
}

/// Volumes and snapshots in files.
#[async_trait]
impl Backend for Storage {
    async fn create(&self, id: &VolumeId, bytes: u64, origin: &Origin) -> Result<Volume, VolumeError> {
        let (local, id, origin) = (self.local.clone(), id.clone(), origin.clone());
        on_a_thread(move || local.create(&id, bytes, &origin)).await
    }

    async fn volume(&self, id: &VolumeId) -> Result<Option<Volume>, VolumeError> {
        let (local, id) = (self.local.clone(), id.clone());
        on_a_thread(move || local.volume(&id)).await
    }

    async fn volumes(&self) -> Result<Vec<VolumeId>, VolumeError> {
        let local = self.local.clone();
        on_a_thread(move || local.volumes()).await
    }

    async fn grow(&self, id: &VolumeId, bytes: u64) -> Result<Volume, VolumeError> {
        let (local, id) = (self.local.clone(), id.clone());
        on_a_thread(move || local.grow(&id, bytes)).await
    }

    async fn delete(&self, id: &VolumeId) -> Result<(), VolumeError> {
        let (local, id) = (self.local.clone(), id.clone());
        on_a_thread(move || local.delete(&id)).await
    }

    async fn open(&self, id: &VolumeId, read_only: bool) -> Result<Vec<OpenLayer>, VolumeError> {
        let (local, id) = (self.local.clone(), id.clone());
        on_a_thread(move || local.open(&id, read_only)).await
    }

    async fn begin_snapshot(&self, volume: &VolumeId, id: &SnapshotId) -> Result<Begun, VolumeError> {
        let (local, volume, id) = (self.local.clone(), volume.clone(), id.clone());
        on_a_thread(move || local.begin_snapshot(&volume, &id)).await
    }

    async fn begun_layer(&self, volume: &VolumeId, id: &SnapshotId) -> Result<Option<u32>, VolumeError> {
        let (local, volume, id) = (self.local.clone(), volume.clone(), id.clone());
        on_a_thread(move || local.begun_layer(&volume, &id)).await
    }

    async fn finish_snapshot(&self, volume: &VolumeId, id: &SnapshotId) -> Result<Snapshot, VolumeError> {
        let (local, volume, id) = (self.local.clone(), volume.clone(), id.clone());
        on_a_thread(move || local.finish_snapshot(&volume, &id)).await
    }

    async fn snapshot(&self, id: &SnapshotId) -> Result<Option<Snapshot>, VolumeError> {
        let (local, id) = (self.local.clone(), id.clone());
        on_a_thread(move || local.snapshot(&id)).await
    }

    async fn snapshots(&self) -> Result<Vec<SnapshotId>, VolumeError> {
        let local = self.local.clone();
        on_a_thread(move || local.snapshots()).await
    }

    async fn open_snapshot(&self, id: &SnapshotId) -> Result<Vec<OpenLayer>, VolumeError> {
        let (local, id) = (self.local.clone(), id.clone());
        on_a_thread(move || local.open_snapshot(&id)).await
    }

    async fn delete_snapshot(&self, id: &SnapshotId) -> Result<(), VolumeError> {
        let (local, id) = (self.local.clone(), id.clone());
        on_a_thread(move || local.delete_snapshot(&id)).await
    }

    async fn wanted_merges(&self) -> Result<Vec<Merge>, VolumeError> {
        let local = self.local.clone();
        on_a_thread(move || local.wanted_merges()).await
    }

    async fn open_merge(&self, merge: &Merge) -> Result<OpenMerge, VolumeError> {
        let (local, merge) = (self.local.clone(), merge.clone());
        on_a_thread(move || local.open_merge(&merge)).await
    }

    async fn finish_merge(&self, merge: &Merge) -> Result<(), VolumeError> {
        let (local, merge) = (self.local.clone(), merge.clone());
        on_a_thread(move || local.finish_merge(&merge)).await
    }

    async fn space(&self) -> Result<Space, VolumeError> {
        let directory = self.directory.clone();
        let (total_bytes, free_bytes) = on_a_thread(move || directory.space()).await?;
        Ok(Space { total_bytes, free_bytes })
    }
}

fn open(config: &StorageConfig) -> Result<Storage, DiskError> {
    let after = config.after_step.clone();
    let directory = Directory::open_by_path(&config.directory)?.syncing(config.syncs.clone());
    let volumes = directory.ensure_directory("volumes")?;
    let snapshots = directory.ensure_directory("snapshots")?;
    let images = directory.ensure_directory("images")?;
    let images_of_volumes = directory.ensure_directory("images")?;
    let seeds = directory.ensure_directory("seeds")?;
    directory.sync()?;
    after.took(Step::DirectoriesMade);

    remove_leftovers(&volumes, Local::is_leftover, &after)?;
    remove_leftovers(&snapshots, Local::is_leftover, &after)?;
    remove_leftovers(&images, Images::is_leftover, &after)?;
    remove_leftovers(&seeds, Seeds::is_leftover, &after)?;
    // What is found is whole, but an earlier process may have died before its name was on the disk.
    volumes.sync()?;
    snapshots.sync()?;
    let local = Local::new(volumes, snapshots, images_of_volumes, after.clone());
    local.sweep()?;
    Ok(Storage {
        directory: Arc::new(directory),
        local: Arc::new(local),
        images: Arc::new(Images::new(images, after.clone(), config.upload_patience)),
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
