//! Images and volumes of one host, as files, and the seeds that cloud-init reads. Knows
//! nothing of the Kubernetes API.
//!
//! ```text
//!   images/<id>/     manifest.json  disk            what volumes are made from; never changes
//!   volumes/<id>/    manifest.json  layer-0 ...     bottom first; only the last one is written to
//!   snapshots/<id>/  manifest.json  layer-0 ...     none is
//!   seeds/<id>                                      a small disc, read only
//! ```
//!
//! [`backend`] is the contract that every way of keeping volumes and snapshots fulfils; [`Storage`] fulfils it with files
//! (`local`), [`memory`] without.
//!
//! # Guarantees
//!
//! - **Whole or not at all.** Everything is made under a name that begins with a dot, synced, and
//!   then renamed. What a killed process left under such a name is thrown away by
//!   [`Storage::open`]; there is nothing else to remember.
//! - **A volume of an image is made at once**, however large the image: the image's file
//!   is linked in as the bottom layer and an empty one is put on top. The image can be deleted
//!   afterwards; its bytes stay until the last volume that needs them is gone.
//! - **Nothing is followed.** No symbolic link below the directory is, nor what an image's
//!   header says about other files. Formats are written down once and never probed again.
//! - **Only descriptors leave.** Callers get layers and seeds already open, never paths.
//!
//! # Assumptions
//!
//! One process at a time: the lock on the data directory sees to that. `images`, `volumes`
//! and `snapshots` lie on one file system.
//!
//! # Deliberately absent
//!
//! Other programs: the little that must be written is written here, and what came from outside is
//! not opened by `qemu-img` as root. Only its header is looked at; an image that is damaged
//! further inside harms the guest that uses it, whose QEMU is locked up, and nobody
//! else. Also absent are merging layers (it is decided here and done by such a QEMU), and going on with an image that was
//! arriving when the process ended: what was written of it was never synced, and all of it would have to be read
//! again to know its checksum.

pub mod backend;
mod ballast;
mod chain;
mod directory;
pub mod id;
pub mod image;
mod local;
pub mod memory;
mod qcow2;
pub mod seed;
pub mod step;
pub mod storage;
pub mod sync;
mod turn;

pub use backend::{
    Backend, Begun, Format, Holder, Layer, Merge, OpenLayer, OpenMerge, Origin, Snapshot, Space, Volume,
    VolumeError,
};
pub use directory::DiskError;
pub use id::{ImageId, InvalidId, SeedId, SnapshotId, VolumeId};
pub use image::{
    Announced, Checksum, Draft, Drafted, Image, ImageError, ImageState, OpenImage, Proxies, Refusal, Source,
};
pub use memory::MemoryBackend;
pub use step::{AfterStep, Step};
pub use storage::{Storage, StorageConfig};
pub use sync::{Fate, Syncs};

/// The largest disk there can be: a file on ext4 cannot be larger.
pub const MOST_BYTES: u64 = 16 << 40;
