//! The images of a host: disks that volumes are made from. An image never changes.
//!
//! ```text
//!          fetch, receive, clone, draft         looked at, renamed
//!   Nothing ----------------------> Arriving -----------------------> Complete
//!      ^                            |  |   ^                             |
//!      |                            |  |   | the rest                    |
//!      |                            |  v   |                             |
//!      |                            | Interrupted (an upload's)          |
//!      |                            |  |                                 |
//!      |                            v  v patience                        |
//!      +---------------------------- Failed <----------------------------+
//!      |  the next attempt, or delete                 damaged            |
//!      +-----------------------------------------------------------------+
//!                                                   delete
//! ```
//!
//! Only `Complete` is on the disk. That something is arriving, or why it did not arrive, is
//! known to this process alone; after a restart it is `Nothing` and whoever wants the image asks
//! again.
//!
//! - `arrival`: how bytes become an image, wherever they come from; `writing` is the thread that writes them,
//!   `packing` takes them out of gzip, xz and zstd, and `interruption` is where half an upload waits.
//! - `copying`: an image of an image; `draft`: one that another process writes.
//! - `fetch`: from a URL, and `address`: from where never.
//! - `inspect`: what is refused once it is here; `soundness`: whether what is here still is what was written.

mod address;
mod arrival;
mod copying;
mod direct;
mod draft;
mod fetch;
mod inspect;
mod interruption;
mod packing;
mod soundness;
mod writing;

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    fs::File,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::Stream;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

pub use self::{
    draft::{Draft, Drafted},
    fetch::{FetchError, Proxies, Source},
    inspect::Refusal,
};
use self::{
    interruption::{Uploading, Waiting},
    packing::Packing,
};
use crate::{
    AfterStep, Format, ImageId, Step,
    chain::MANIFEST,
    directory::{Access, Directory, DiskError},
    turn::Turns,
};

pub(crate) const DISK: &str = "disk";
/// The first version knew neither discs nor packed images, nor how to tell that one is damaged.
const MANIFEST_VERSION: u32 = 3;
const OLDEST_MANIFEST: u32 = 1;
const ARRIVING: &str = ".arriving-";
const REMOVING: &str = ".removing-";

/// A complete image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    pub format: Format,
    /// In bytes, unpacked.
    pub size: u64,
    /// As a guest sees it.
    pub virtual_size: u64,
    /// Of what arrived, of a packed image as it was packed: the name of the digest, a colon, and hex digits.
    pub digest: String,
    /// Whether it is a disc (ISO 9660), which is installed from, and no disk.
    pub is_disc: bool,
}

/// A complete image, ready to be read.
#[derive(Debug)]
pub struct OpenImage {
    pub file: File,
    /// As it is read, in bytes.
    pub length: u64,
    pub format: Format,
    pub is_disc: bool,
}

/// What is known beforehand of what somebody sends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Announced {
    /// Of all of it, in bytes.
    pub size: Option<u64>,
    pub checksum: Option<Checksum>,
    /// How much of it was sent before and need not be sent again.
    pub offset: u64,
}

impl From<Option<u64>> for Announced {
    fn from(size: Option<u64>) -> Announced {
        Announced { size, ..Announced::default() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageState {
    Nothing,
    Arriving {
        bytes: u64,
        total: Option<u64>,
    },
    /// An upload broke off after so many bytes, and is kept for the rest to come.
    Interrupted {
        bytes: u64,
        total: Option<u64>,
        why: String,
    },
    Complete(Image),
    Failed {
        why: String,
    },
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
    #[error("{expected} bytes of the image are here: it goes on there, or at 0, and not at {offset}")]
    WrongOffset { expected: u64, offset: u64 },
    #[error("the image is damaged on the disk: {what}")]
    Damaged { what: String },
    #[error("the image is packed with {packing} and cannot be unpacked")]
    Unpacking {
        packing: &'static str,
        #[source]
        source: std::io::Error,
    },
    #[error(
        "{unpacked} bytes came out of {packed}, which no disk is packed as: send it as qcow2, which leaves out what is empty"
    )]
    Bomb { packed: u64, unpacked: u64 },
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
    /// Of images from before the third version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sha512: Option<String>,
    /// Several times as fast as any that checksums are published in, and an image comes in no faster than it is digested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    blake3: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    is_disc: Option<bool>,
    /// How it was packed when it arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    packing: Option<Packing>,
    /// What [`soundness::spots`] found when it was complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spots: Option<String>,
}

impl Manifest {
    fn describe(self, is_disc: bool) -> Image {
        let Manifest { format, size, virtual_size, sha512, blake3, .. } = self;
        let named = |name: &str, digest: Option<String>| digest.map(|digest| format!("{name}:{digest}"));
        let digest = named("blake3", blake3).or_else(|| named("sha512", sha512)).unwrap_or_default();
        Image { format, size, virtual_size, digest, is_disc }
    }
}

/// The manifest of the image in `directory`; none where there is none.
pub(crate) fn read_manifest(directory: &Directory) -> Result<Option<Manifest>, DiskError> {
    let manifest: Option<Manifest> = directory.read_json(MANIFEST)?;
    match manifest {
        Some(manifest) if !(OLDEST_MANIFEST..=MANIFEST_VERSION).contains(&manifest.version) => {
            Err(DiskError::new(
                "understand",
                &directory.path_of(MANIFEST),
                std::io::Error::new(
                    std::io::ErrorKind::Unsupported,
                    format!(
                        "it has version {}; this Sheaf knows versions {OLDEST_MANIFEST} to {MANIFEST_VERSION}",
                        manifest.version
                    ),
                ),
            ))
        }
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
    Interrupted(Box<Waiting>),
    Failed(String),
}

#[derive(Debug)]
pub(crate) struct Images {
    directory: Arc<Directory>,
    turns: Turns<ImageId>,
    known: Mutex<BTreeMap<ImageId, Known>>,
    /// Those that this process found to be what was written.
    sound: Mutex<BTreeSet<ImageId>>,
    after: AfterStep,
    upload_patience: Duration,
}

impl Images {
    pub fn new(directory: Directory, after: AfterStep, upload_patience: Duration) -> Images {
        Images {
            directory: Arc::new(directory),
            turns: Turns::default(),
            known: Mutex::default(),
            sound: Mutex::default(),
            after,
            upload_patience,
        }
    }

    /// Whether something under this name was never finished, or is being removed.
    pub fn is_leftover(name: &str) -> bool {
        name.starts_with(ARRIVING) || name.starts_with(REMOVING)
    }

    pub async fn fetch(self: Arc<Self>, id: ImageId, source: Source) -> Result<Image, ImageError> {
        let mut arrival = match arrival::begin(self, id).await? {
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
            let mut intake = arrival.open(wanted).await?;
            arrival.pour(&mut intake, fetched.body).await?;
            arrival.complete(intake).await
        }
        .await;
        ended.map_err(|why| arrival.failed(why))
    }

    pub async fn receive<S, E>(
        self: Arc<Self>,
        id: ImageId,
        stream: S,
        announced: Announced,
    ) -> Result<Image, ImageError>
    where
        S: Stream<Item = Result<Bytes, E>> + Send,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        match Uploading::begin(self, id, announced).await? {
            arrival::Begun::Already(image) => Ok(image),
            arrival::Begun::Now(uploading) => uploading.take(stream).await,
        }
    }

    pub fn state(&self, id: &ImageId) -> Result<ImageState, ImageError> {
        match self.known.lock().get(id) {
            Some(Known::Arriving(progress)) => {
                let (bytes, total) = progress.so_far();
                return Ok(ImageState::Arriving { bytes, total });
            }
            Some(Known::Interrupted(waiting)) => return Ok(waiting.state()),
            Some(Known::Failed(why)) => return Ok(ImageState::Failed { why: why.clone() }),
            None => {}
        }
        match self.find(id) {
            Ok(found) => Ok(found.map_or(ImageState::Nothing, ImageState::Complete)),
            Err(why @ ImageError::Damaged { .. }) => Ok(ImageState::Failed { why: why.to_string() }),
            Err(why) => Err(why),
        }
    }

    /// The complete ones.
    pub fn list(&self) -> Result<Vec<ImageId>, ImageError> {
        let names = self.directory.names()?;
        Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
    }

    pub fn open(&self, id: &ImageId) -> Result<OpenImage, ImageError> {
        let no_such_image = || ImageError::NoSuchImage { image: id.clone() };
        let image = self.find(id)?.ok_or_else(no_such_image)?;
        let directory = self.directory.directory(id.as_str())?.ok_or_else(no_such_image)?;
        let file = directory.file(DISK, Access::Read)?.ok_or_else(no_such_image)?;
        let length = file.metadata().map_err(|why| DiskError::new("look at", DISK.as_ref(), why))?.len();
        Ok(OpenImage { file, length, format: image.format, is_disc: image.is_disc })
    }

    pub fn delete(&self, id: &ImageId) -> Result<(), ImageError> {
        let waiting = {
            let mut known = self.known.lock();
            match known.get(id) {
                // Its own end removes what it wrote.
                Some(Known::Arriving(progress)) => {
                    progress.cancelled.cancel();
                    None
                }
                Some(Known::Interrupted(_)) => known.remove(id),
                Some(Known::Failed(_)) | None => None,
            }
        };
        drop(waiting);
        let _turn = self.turns.take(id);
        if !matches!(self.known.lock().get(id), Some(Known::Arriving(_))) {
            self.directory.remove(&arrival::temporary_name(id))?;
        }
        self.withdraw(id)?;
        let mut known = self.known.lock();
        if matches!(known.get(id), Some(Known::Failed(_))) {
            known.remove(id);
        }
        Ok(())
    }

    /// Takes an image its name and its bytes. To be called in its turn.
    fn withdraw(&self, id: &ImageId) -> Result<(), DiskError> {
        self.sound.lock().remove(id);
        let removing = format!("{REMOVING}{id}");
        if self.directory.directory(id.as_str())?.is_some() {
            self.directory.remove(&removing)?;
            self.directory.rename(id.as_str(), &removing)?;
            self.after.took(Step::ImageWithdrawn);
        }
        // Also when only an earlier attempt got so far: nothing of it goes before its name is gone for good.
        self.directory.sync()?;
        if self.directory.remove(&removing)? {
            self.after.took(Step::ImageRemoved);
        }
        Ok(())
    }
}

impl Progress {
    fn so_far(&self) -> (u64, Option<u64>) {
        (self.bytes.load(Ordering::Relaxed), self.total.get().copied())
    }
}

fn space_of(directory: &Directory) -> Result<(u64, u64), DiskError> {
    let (total, free) = directory.space()?;
    Ok((free, writing::reserve_of(total)))
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
