//! The images of a host: disks that volumes are made from. An image never changes.
//!
//! ```text
//!                 fetch, receive                looked at, renamed
//!   Nothing ----------------------> Arriving -----------------------> Complete
//!      ^                               |                                 |
//!      |  the next attempt, or delete  v                                 |
//!      +---------------------------- Failed                              |
//!      ^                                            delete               |
//!      +-----------------------------------------------------------------+
//! ```
//!
//! Only `Complete` is on the disk. That something is arriving, or why it did not arrive, is
//! known to this process alone; after a restart it is `Nothing` and whoever wants the image asks
//! again.
//!
//! - `arrival`: how bytes become an image, wherever they come from.
//! - `fetch`: from a URL, and [`address`]: from where never.
//! - `inspect`: what is refused once it is here.

mod address;
mod arrival;
mod fetch;
mod inspect;

use std::{
    collections::BTreeMap,
    error::Error,
    os::fd::OwnedFd,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use futures::Stream;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

pub use self::{
    fetch::{FetchError, Source},
    inspect::Refusal,
};
use crate::{
    AfterStep, Format, ImageId, Step,
    directory::{Access, Directory, DiskError},
    turn::Turns,
    volume::MANIFEST,
};

pub(crate) const DISK: &str = "disk";
const MANIFEST_VERSION: u32 = 1;
const ARRIVING: &str = ".arriving-";
const REMOVING: &str = ".removing-";

/// A complete image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    pub format: Format,
    /// As it arrived, in bytes.
    pub size: u64,
    /// As a guest sees it.
    pub virtual_size: u64,
    /// SHA-512 of what arrived, as hex digits.
    pub sha512: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageState {
    Nothing,
    Arriving { bytes: u64, total: Option<u64> },
    Complete(Image),
    Failed { why: String },
}

/// What the bytes must add up to, as hex digits of either case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Checksum {
    Sha256(String),
    Sha512(String),
}

impl Checksum {
    /// Told apart by their length: 64 or 128 hex digits.
    pub fn parse(text: &str) -> Option<Checksum> {
        if !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        match text.len() {
            64 => Some(Checksum::Sha256(text.to_ascii_lowercase())),
            128 => Some(Checksum::Sha512(text.to_ascii_lowercase())),
            _ => None,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("there is no image {image}")]
    NoSuchImage { image: ImageId },
    #[error("the image {image} is already on its way")]
    AlreadyArriving { image: ImageId },
    #[error("the image {image} was deleted while it arrived")]
    DeletedMeanwhile { image: ImageId },
    #[error("cannot fetch the image")]
    Fetch(#[from] FetchError),
    #[error("the image stopped arriving after {bytes} bytes")]
    Interrupted {
        bytes: u64,
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    #[error("the image should have {expected} bytes and {bytes} arrived")]
    WrongSize { expected: u64, bytes: u64 },
    #[error("the image is larger than the {most} bytes that are allowed")]
    TooLarge { most: u64 },
    #[error(
        "the image has {bytes} bytes, and of the {free} bytes that are free {reserve} are kept in reserve"
    )]
    NoSpace { bytes: u64, free: u64, reserve: u64 },
    #[error(
        "the disk is full: after {bytes} bytes of the image {free} are free, and {reserve} are kept in reserve"
    )]
    DiskFull { bytes: u64, free: u64, reserve: u64 },
    #[error("the checksum of what arrived is {found}, not {expected}")]
    WrongChecksum { expected: String, found: String },
    #[error("the image cannot be used: {0}")]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Disk(#[from] DiskError),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Manifest {
    version: u32,
    pub format: Format,
    size: u64,
    pub virtual_size: u64,
    sha512: String,
}

/// The manifest of the image in `directory`; none where there is none.
pub(crate) fn read_manifest(directory: &Directory) -> Result<Option<Manifest>, DiskError> {
    let manifest: Option<Manifest> = directory.read_json(MANIFEST)?;
    match manifest {
        Some(manifest) if manifest.version != MANIFEST_VERSION => Err(DiskError::new(
            "understand",
            &directory.path_of(MANIFEST),
            std::io::Error::new(
                std::io::ErrorKind::Unsupported,
                format!("it has version {}; this Sheaf knows version {MANIFEST_VERSION}", manifest.version),
            ),
        )),
        manifest => Ok(manifest),
    }
}

/// How far one arrival is, for whoever asks meanwhile.
#[derive(Debug, Default)]
struct Progress {
    bytes: AtomicU64,
    total: OnceLock<u64>,
    cancelled: CancellationToken,
}

#[derive(Debug)]
enum Known {
    Arriving(Arc<Progress>),
    Failed(String),
}

#[derive(Debug)]
pub(crate) struct Images {
    directory: Directory,
    turns: Turns<ImageId>,
    known: Mutex<BTreeMap<ImageId, Known>>,
    after: AfterStep,
}

impl Images {
    /// How many bytes are free, and how many of them stay so.
    fn space(&self) -> Result<(u64, u64), DiskError> {
        let (total, free) = self.directory.space()?;
        Ok((free, arrival::reserve_of(total)))
    }

    pub fn new(directory: Directory, after: AfterStep) -> Images {
        Images { directory, turns: Turns::default(), known: Mutex::new(BTreeMap::new()), after }
    }

    /// Whether something under this name was never finished, or is being removed.
    pub fn is_leftover(name: &str) -> bool {
        name.starts_with(ARRIVING) || name.starts_with(REMOVING)
    }

    pub async fn fetch(self: Arc<Self>, id: ImageId, source: Source) -> Result<Image, ImageError> {
        let arrival = match arrival::begin(self, id).await? {
            arrival::Begun::Already(image) => return Ok(image),
            arrival::Begun::Now(arrival) => arrival,
        };
        let ended = async {
            let fetched = arrival.unless_cancelled(async { Ok(fetch::get(&source).await?) }).await?;
            let wanted = arrival::Wanted {
                size: fetched.length,
                most_bytes: source.most_bytes,
                checksum: source.checksum.clone(),
            };
            arrival.pour(fetched.body, wanted).await
        }
        .await;
        arrival.finish(ended)
    }

    pub async fn receive<S, E>(
        self: Arc<Self>,
        id: ImageId,
        stream: S,
        expected_size: Option<u64>,
        checksum: Option<Checksum>,
    ) -> Result<Image, ImageError>
    where
        S: Stream<Item = Result<Bytes, E>> + Send,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let arrival = match arrival::begin(self, id).await? {
            arrival::Begun::Already(image) => return Ok(image),
            arrival::Begun::Now(arrival) => arrival,
        };
        let wanted = arrival::Wanted { size: expected_size, most_bytes: None, checksum };
        let ended = arrival.pour(stream, wanted).await;
        arrival.finish(ended)
    }

    pub fn state(&self, id: &ImageId) -> Result<ImageState, ImageError> {
        match self.known.lock().get(id) {
            Some(Known::Arriving(progress)) => {
                return Ok(ImageState::Arriving {
                    bytes: progress.bytes.load(Ordering::Relaxed),
                    total: progress.total.get().copied(),
                });
            }
            Some(Known::Failed(why)) => return Ok(ImageState::Failed { why: why.clone() }),
            None => {}
        }
        Ok(self.find(id)?.map_or(ImageState::Nothing, ImageState::Complete))
    }

    fn find(&self, id: &ImageId) -> Result<Option<Image>, ImageError> {
        let Some(directory) = self.directory.directory(id.as_str())? else { return Ok(None) };
        let manifest = read_manifest(&directory)?;
        Ok(manifest.map(|Manifest { format, size, virtual_size, sha512, .. }| Image {
            format,
            size,
            virtual_size,
            sha512,
        }))
    }

    /// The complete ones.
    pub fn list(&self) -> Result<Vec<ImageId>, ImageError> {
        let names = self.directory.names()?;
        Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
    }

    pub fn open(&self, id: &ImageId) -> Result<OwnedFd, ImageError> {
        let no_such_image = || ImageError::NoSuchImage { image: id.clone() };
        let directory = self.directory.directory(id.as_str())?.ok_or_else(no_such_image)?;
        let file = directory.file(DISK, Access::Read)?.ok_or_else(no_such_image)?;
        Ok(file.into())
    }

    pub fn delete(&self, id: &ImageId) -> Result<(), ImageError> {
        match self.known.lock().get(id) {
            // Its own end removes what it wrote.
            Some(Known::Arriving(progress)) => progress.cancelled.cancel(),
            Some(Known::Failed(_)) | None => {}
        }
        let _turn = self.turns.take(id);
        let removing = format!("{REMOVING}{id}");
        if self.directory.directory(id.as_str())?.is_some() {
            self.directory.remove(&removing)?;
            self.directory.rename(id.as_str(), &removing)?;
            self.directory.sync()?;
            self.after.took(Step::ImageWithdrawn);
        }
        if self.directory.remove(&removing)? {
            self.after.took(Step::ImageRemoved);
        }
        let mut known = self.known.lock();
        if matches!(known.get(id), Some(Known::Failed(_))) {
            known.remove(id);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_is_known_by_its_length() {
        assert_eq!(Checksum::parse(&"AB".repeat(32)), Some(Checksum::Sha256("ab".repeat(32))));
        assert_eq!(Checksum::parse(&"ab".repeat(64)), Some(Checksum::Sha512("ab".repeat(64))));
        for bad in ["", "ab", &"xy".repeat(32), &"ab".repeat(20)] {
            assert_eq!(Checksum::parse(bad), None, "{bad:?}");
        }
    }
}
