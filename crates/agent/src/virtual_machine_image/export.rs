//! Makes an image of the disk of a claim, as it is at one instant, whether a machine writes to it or not.
//!
//! ```text
//!   claim --> snapshot that nobody sees --> a workshop copies what it reads through all layers --> one file --> image
//! ```
//!
//! What the disk holds is a guest's: it is read as the formats that the storage wrote down, by a process that has
//! nothing else, and what that process wrote is looked at like any image that arrives.
//!
//! Killed anywhere, the next process ends the workshop and throws the file away when it starts, and the next attempt
//! begins with a new snapshot. The snapshot goes before the image has its name, so a complete image has none.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rustix::fs::fstat;
use serde_json::json;
use sheaf_hypervisor::qmp::layers::Job;
use sheaf_storage::{
    Backend, Draft, Drafted, ImageError, ImageId, OpenLayer, SnapshotId, Space, VolumeError,
};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    disk_space::reserve_of,
    persistent_volume::Made,
    step::Step,
    virtual_machine_instance::{Hands, Trouble},
    volume_snapshot_content::Wanted,
    workshop::Workshop,
};

/// What the job is called.
const EXPORT: &str = "export";
/// How soon a machine that is just starting is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// How long it is waited for a machine that is starting or does not thaw, before that is told.
const PATIENCE: Duration = Duration::from_secs(300);

/// The disk of a claim that is to be an image.
pub(super) struct Export {
    pub hands: Arc<Hands>,
    pub image: ImageId,
    pub disk: Made,
    /// What the API calls the disk.
    pub volume: String,
    /// Nobody wants it any more. What was begun is put away before the work ends.
    pub stop: CancellationToken,
}

/// What the names of snapshots begin with that nobody sees.
const HIDDEN: &str = "export-";

/// The snapshot that only this image is made of.
pub(super) fn hidden_snapshot(image: &ImageId) -> Option<SnapshotId> {
    format!("{HIDDEN}{image}").parse().ok()
}

/// The image that such a snapshot is for.
pub(super) fn image_of(snapshot: &SnapshotId) -> Option<ImageId> {
    snapshot.as_str().strip_prefix(HIDDEN)?.parse().ok()
}

/// Puts away what an attempt of an earlier process may have left.
pub(super) async fn forget(hands: &Hands, image: &ImageId) -> Result<(), Trouble> {
    let Some(hidden) = hidden_snapshot(image) else { return Ok(()) };
    hands.storage.delete_snapshot(&hidden).await?;
    hands.layers_changed.notify_one();
    Ok(())
}

impl Export {
    /// Returns once the image is complete. Doing it twice does no harm: an image that is complete stays as it is.
    pub(super) async fn run(self) -> Result<(), String> {
        let ended = self.make().await;
        // Whatever happened: what the disk no longer has need not be kept for a copy that nobody makes.
        if let Err(why) = forget(&self.hands, &self.image).await {
            tracing::warn!(image = %self.image, %why, "the snapshot that an image was made of stays behind");
        }
        ended.map_err(|why| why.to_string())
    }

    async fn make(&self) -> Result<(), Trouble> {
        let storage = &self.hands.storage;
        let odd = |why: &str| Trouble::Odd { what: format!("volume {}", self.volume), why: why.to_owned() };
        let hidden = hidden_snapshot(&self.image).ok_or_else(|| odd("no snapshot can be named after it"))?;
        // One that an earlier attempt took is older than it need be.
        storage.delete_snapshot(&hidden).await?;
        self.take(&hidden).await?;
        let snapshot = storage.snapshot(&hidden).await?.ok_or_else(|| odd("its snapshot is gone"))?;
        let layers = storage.open_snapshot(&hidden).await?;
        self.must_be_wanted()?;
        let bytes = bytes_in(&layers);
        let draft = match storage.draft_image(&self.image, snapshot.virtual_size, bytes).await? {
            Drafted::Already(_) => return Ok(()),
            Drafted::Now(draft) => draft,
        };
        self.copy(&layers, &draft, snapshot.virtual_size).await?;
        drop(layers);
        storage.delete_snapshot(&hidden).await?;
        self.must_be_wanted()?;
        draft.finish().await?;
        Ok(())
    }

    async fn take(&self, hidden: &SnapshotId) -> Result<(), Trouble> {
        let wanted = Wanted { volume: self.disk.id.clone(), snapshot: hidden.clone() };
        let began = Instant::now();
        loop {
            self.must_be_wanted()?;
            let taken = async {
                self.hands.ensure_made(&self.disk.id, &self.volume).await?;
                self.hands.take_snapshots(std::slice::from_ref(&wanted), true).await
            };
            match taken.await {
                Ok(_) => return Ok(()),
                Err(Trouble::Waiting(_)) if began.elapsed() < PATIENCE => sleep(LOOK_AGAIN).await,
                Err(why) => return Err(why),
            }
        }
    }

    /// Fills the draft with what is read through all layers, when it is its turn.
    async fn copy(&self, layers: &[OpenLayer], draft: &Draft, virtual_size: u64) -> Result<(), Trouble> {
        let _place = tokio::select! {
            biased;
            () = self.stop.cancelled() => return self.must_be_wanted(),
            place = self.hands.exports.acquire() => place,
        };
        let copied = AtomicU64::new(0);
        let workshop = Workshop::open(&self.hands, &format!("{EXPORT}-{}", self.image)).await?;
        let copying = async {
            let from = workshop.stack(layers).await?;
            let to = workshop.add_target(draft.file()).await?;
            let order = json!({
                "job-id": EXPORT, "device": from, "target": to, "sync": "full", "auto-dismiss": false,
            });
            let begun = workshop.monitor.execute("blockdev-backup", order).await;
            begun.map_err(|why| workshop.failed(why))?;
            self.hands.after.took(Step::BeginExport);
            let tell = |job: &Job| {
                let part = u128::from(job.current_progress) * u128::from(virtual_size);
                let at = part / u128::from(job.total_progress.max(1));
                let at = u64::try_from(at).unwrap_or(virtual_size);
                copied.store(at, Ordering::Relaxed);
                draft.is_at(at);
            };
            workshop.wait_for(EXPORT, tell).await
        };
        let ended = tokio::select! {
            biased;
            () = self.stop.cancelled() => self.must_be_wanted(),
            full = self.disk_is_full() => Err(full.map_or_else(Trouble::from, |space| {
                let (free, reserve) = (space.free_bytes, reserve_for(space));
                ImageError::DiskFull { bytes: copied.load(Ordering::Relaxed), free, reserve }.into()
            })),
            ended = copying => ended,
        };
        // Whoever had the file has ended before it is looked at.
        workshop.close().await?;
        ended
    }

    /// Returns when so little is free that machines would soon be stopped for it.
    async fn disk_is_full(&self) -> Result<Space, VolumeError> {
        loop {
            let space = self.hands.storage.space().await?;
            if space.free_bytes < reserve_for(space) {
                return Ok(space);
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    fn must_be_wanted(&self) -> Result<(), Trouble> {
        match self.stop.is_cancelled() {
            true => Err(ImageError::DeletedMeanwhile { image: self.image.clone() }.into()),
            false => Ok(()),
        }
    }
}

/// What an image leaves to the machines that run.
fn reserve_for(space: Space) -> u64 {
    2 * reserve_of(space.total_bytes)
}

/// About how much there is to be copied. What lies in many small pieces takes more.
fn bytes_in(layers: &[OpenLayer]) -> u64 {
    let blocks = layers.iter().filter_map(|layer| u64::try_from(fstat(&layer.file).ok()?.st_blocks).ok());
    blocks.map(|blocks| blocks * 512).sum()
}
