//! Images and volumes of one host, as files, and the seeds that cloud-init reads. Knows
//! nothing of the Kubernetes API.
//!
//! ```text
//!   images/<id>/   manifest.json  disk            what volumes are made from; never changes
//!   volumes/<id>/  manifest.json  layer-0 ...     bottom first; only the last one is written to
//!   seeds/<id>                                    a small disc, read only
//! ```
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
//! One process at a time: the lock on the data directory sees to that. `images` and
//! `volumes` lie on one file system.
//!
//! # Deliberately absent
//!
//! Other programs: the little that must be written is written here, and what came from outside is
//! not opened by `qemu-img` as root. Only its header is looked at; an image that is damaged
//! further inside harms the guest that uses it, whose QEMU is locked up, and nobody
//! else. Also absent are snapshots (they will be further layers), compressed images, and
//! resuming a fetch.

mod directory;
pub mod id;
pub mod image;
mod qcow2;
pub mod seed;
pub mod step;
pub mod storage;
mod turn;
pub mod volume;

pub use directory::DiskError;
pub use id::{ImageId, InvalidId, SeedId, VolumeId};
pub use image::{Checksum, Image, ImageError, ImageState, Source};
pub use step::{AfterStep, Step};
pub use storage::{Space, Storage, StorageConfig};
pub use volume::{Format, Layer, OpenLayer, Volume, VolumeError};

/// The largest disk there can be: a file on ext4 cannot be larger.
pub const MOST_BYTES: u64 = 16 << 40;
