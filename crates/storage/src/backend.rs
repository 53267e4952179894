//! What keeps volumes and snapshots, whatever it keeps them on: the contract of every backend.
//!
//! ```text
//!                    create                        begin, (switch), finish
//!   nothing, image ----------> volume ------------------------------------> snapshot
//!   or snapshot                  |  ^                                          |
//!                        open    |  |                 create                   |
//!   machine <--------------------+  +------------------------------------------+
//! ```
//!
//! # Guarantees
//!
//! - **Whole or not at all.** A volume or snapshot that is found is complete; a call that failed, or a process that
//!   was killed in it, leaves nothing that is found.
//! - **Doing it twice does no harm.** Every call may be repeated with the same words, and answers as the first would have.
//! - **What was acknowledged stays**, over a kill and a power cut.
//! - **A snapshot never changes**, and neither it nor the volumes made of it need what they were made from: source and copy
//!   may be deleted in any order.
//! - **No two write.** A volume that a machine has open is neither grown nor deleted here.
//! - **A volume never shrinks**, and reads as zeros where nobody wrote.
//!
//! # Taking a snapshot
//!
//! A disk that is being written to has its instant only when its writer takes part. [`Backend::begin_snapshot`] says how:
//!
//! - [`Begun::Switch`]: the machine is to write to another layer from the instant on. Whoever runs the machine switches all
//!   of its disks at once, and then calls [`Backend::finish_snapshot`] for each. Where no machine has the volume open there is
//!   nothing to switch.
//! - [`Begun::HoldStill`]: the backend takes the instant itself, in `finish_snapshot`; the machine is to be paused before and let
//!   go after.
//!
//! In between a volume is as good as before: a process that dies there loses nothing. The next one finishes the snapshot, which is
//! then of the instant of its switch, or begins it again, and then it is of a later instant. Others may be begun and
//! finished in between. One that is never finished costs at most an empty layer.
//!
//! # Merging
//!
//! A backend that keeps layers says by [`Backend::wanted_merges`] which of them nobody needs apart any more. Whoever may
//! read what guests wrote (a sandboxed process, never this one) puts the upper into the lower and calls
//! [`Backend::finish_merge`].
//!
//! `tests/conformance` holds every implementation to all of this.

use std::{fmt, os::fd::OwnedFd};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{DiskError, ImageId, SnapshotId, VolumeId};

#[async_trait]
pub trait Backend: Send + Sync + fmt::Debug + 'static {
    /// Makes a volume of at least `bytes` bytes. One that is already there is left as it is, and grows if it is smaller.
    async fn create(&self, id: &VolumeId, bytes: u64, origin: &Origin) -> Result<Volume, VolumeError>;

    async fn volume(&self, id: &VolumeId) -> Result<Option<Volume>, VolumeError>;

    /// In the order of their ids.
    async fn volumes(&self) -> Result<Vec<VolumeId>, VolumeError>;

    /// Makes a volume that no machine uses at least `bytes` bytes large. One that a machine uses is grown by the machine.
    async fn grow(&self, id: &VolumeId, bytes: u64) -> Result<Volume, VolumeError>;

    /// Removes a volume that no machine uses. One that is not there is gone already.
    async fn delete(&self, id: &VolumeId) -> Result<(), VolumeError>;

    /// What a machine needs to use a volume: all of its layers, bottom first.
    async fn open(&self, id: &VolumeId, read_only: bool) -> Result<Vec<OpenLayer>, VolumeError>;

    async fn begin_snapshot(&self, volume: &VolumeId, id: &SnapshotId) -> Result<Begun, VolumeError>;

    /// Of a snapshot that was begun and not finished: the layer that the machine was to be switched to. For one whose process
    /// died, so that it sees whether the machine was.
    async fn begun_layer(&self, volume: &VolumeId, id: &SnapshotId) -> Result<Option<u32>, VolumeError>;

    /// Only after [`Backend::begin_snapshot`], and after what it said was done.
    async fn finish_snapshot(&self, volume: &VolumeId, id: &SnapshotId) -> Result<Snapshot, VolumeError>;

    async fn snapshot(&self, id: &SnapshotId) -> Result<Option<Snapshot>, VolumeError>;

    /// In the order of their ids.
    async fn snapshots(&self) -> Result<Vec<SnapshotId>, VolumeError>;

    /// All layers of a snapshot, bottom first, for reading.
    async fn open_snapshot(&self, id: &SnapshotId) -> Result<Vec<OpenLayer>, VolumeError>;

    /// Removes a snapshot, whatever was made of it. One that is not there is gone already; one that was begun and not
    /// finished is forgotten.
    async fn delete_snapshot(&self, id: &SnapshotId) -> Result<(), VolumeError>;

    /// Layers that could be one.
    async fn wanted_merges(&self) -> Result<Vec<Merge>, VolumeError>;

    /// Opens the two layers of a merge for whoever carries it out: the lower one for writing.
    async fn open_merge(&self, merge: &Merge) -> Result<OpenMerge, VolumeError>;

    /// The upper layer's content is in the lower one: forget the upper one.
    async fn finish_merge(&self, merge: &Merge) -> Result<(), VolumeError>;

    async fn space(&self) -> Result<Space, VolumeError>;
}

/// What a volume begins as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Empty,
    Image(ImageId),
    Snapshot(SnapshotId),
}

/// A volume as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    pub virtual_size: u64,
    /// Bottom first.
    pub layers: Vec<Layer>,
    /// What deleting it would free: the layers that nothing else needs.
    pub used_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// What it is of, which may be gone.
    pub volume: VolumeId,
    pub virtual_size: u64,
    /// What deleting it would free.
    pub used_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    /// No other layer of this volume has it, or ever had.
    pub number: u32,
    pub format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    Raw,
    Qcow2,
}

/// A layer, ready to be handed to QEMU.
#[derive(Debug)]
pub struct OpenLayer {
    pub number: u32,
    pub format: Format,
    pub read_only: bool,
    pub file: OwnedFd,
}

impl OpenLayer {
    pub fn layer(&self) -> Layer {
        Layer { number: self.number, format: self.format }
    }
}

/// How a snapshot is gone on with.
#[derive(Debug)]
pub enum Begun {
    /// From the instant on, the machine that has the volume open writes to this layer, which is empty.
    Switch(OpenLayer),
    /// Nobody writes until it is finished.
    HoldStill,
    /// It is there.
    Already(Snapshot),
}

/// Two layers, one directly on the other wherever they are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merge {
    pub lower: u32,
    pub upper: u32,
    /// Everything that has both; never empty.
    pub holders: Vec<Holder>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    Volume(VolumeId),
    Snapshot(SnapshotId),
}

/// All layers of a chain up to the upper one of a merge, bottom first; the second last one can be written to.
#[derive(Debug)]
pub struct OpenMerge {
    pub layers: Vec<OpenLayer>,
}

/// Of what everything lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    pub total_bytes: u64,
    pub free_bytes: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    #[error("there is no volume {volume}")]
    NoSuchVolume { volume: VolumeId },
    #[error("there is no image {image} to make the volume {volume} of")]
    NoSuchImage { volume: VolumeId, image: ImageId },
    #[error("there is no snapshot {snapshot}")]
    NoSuchSnapshot { snapshot: SnapshotId },
    #[error("a volume has between 1 byte and 16 TiB, not {bytes} bytes")]
    BadSize { bytes: u64 },
    #[error(
        "what the volume is made of has {source_bytes} bytes and the volume only {bytes}: it must be at least as large"
    )]
    SmallerThanSource { bytes: u64, source_bytes: u64 },
    #[error("the volume {volume} is in use")]
    InUse { volume: VolumeId },
    #[error("the volume {volume} is damaged: {what}")]
    Damaged { volume: VolumeId, what: String },
    #[error("the snapshot {snapshot} is damaged: {what}")]
    DamagedSnapshot { snapshot: SnapshotId, what: String },
    #[error("the snapshot {snapshot} of the volume {volume} was not begun")]
    NotBegun { volume: VolumeId, snapshot: SnapshotId },
    #[error("the snapshot {snapshot} is one of the volume {volume}")]
    AnotherVolume { snapshot: SnapshotId, volume: VolumeId },
    #[error("layers {lower} and {upper} cannot be one: something needs them apart")]
    NotMergeable { lower: u32, upper: u32 },
    #[error(transparent)]
    Disk(#[from] DiskError),
}
