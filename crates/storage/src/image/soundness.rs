//! Whether an image on the disk still is what was written there.
//!
//! A disk that says it has synced what it has not leaves, after a power cut, files that are empty, short or full of
//! zeros under names that promise more. To read all of every image at each start would take too long, so what is
//! looked at is the manifest, the length, and a few dozen spots over the whole file whose digest is in the manifest.
//! That finds what is missing in large; a single sector that changed is found by nobody but the guest.
//!
//! What is damaged is told and kept until somebody brings the image anew or deletes it.

use std::{fs::File, io, os::unix::fs::FileExt};

use sha2::{Digest, Sha256};

use super::{DISK, Image, ImageError, Images, Manifest, inspect, read_manifest, writing::hex};
use crate::{
    Format, ImageId,
    directory::{Access, DiskError},
};

const SPOTS: u64 = 64;
const SPOT: u64 = 4096;

/// A digest of spots that are spread evenly over the file, its first and its last bytes among them.
pub fn spots(file: &File) -> Result<String, DiskError> {
    let failed = |why: io::Error| DiskError::new("read", DISK.as_ref(), why);
    let length = file.metadata().map_err(failed)?.len();
    let mut digest = Sha256::new();
    digest.update(length.to_be_bytes());
    let last = length.saturating_sub(SPOT);
    let mut spot = vec![0; SPOT as usize];
    for number in 0..SPOTS {
        // Sixteen tebibytes sixty-four times fit.
        let at = last * number / (SPOTS - 1);
        let read = file.read_at(&mut spot, at).map_err(failed)?;
        digest.update(&spot[..read]);
    }
    Ok(hex(&digest.finalize()))
}

impl Images {
    /// The image, if it is complete; an error if it is there and not what was written.
    pub(super) fn find(&self, id: &ImageId) -> Result<Option<Image>, ImageError> {
        let Some(directory) = self.directory.directory(id.as_str())? else { return Ok(None) };
        let damaged = |what: &str| ImageError::Damaged { what: what.to_owned() };
        let manifest = match read_manifest(&directory) {
            Ok(Some(manifest)) => manifest,
            Ok(None) => return Err(damaged("it has no manifest")),
            Err(why) if is_nonsense(&why) => return Err(damaged("its manifest cannot be read")),
            Err(why) => return Err(why.into()),
        };
        let file = directory.file(DISK, Access::Read)?.ok_or_else(|| damaged("its bytes are missing"))?;
        let failed = |why| DiskError::new("look at", &directory.path_of(DISK), why);
        if file.metadata().map_err(failed)?.len() != manifest.length() {
            return Err(damaged("it is not as long as it was"));
        }
        if !self.sound.lock().contains(id) {
            let spots = Some(spots(&file)?);
            if manifest.spots.as_ref().is_some_and(|expected| spots.as_ref() != Some(expected)) {
                return Err(damaged("other bytes are in it"));
            }
            self.sound.lock().insert(id.clone());
        }
        let is_disc = match manifest.is_disc {
            Some(is_disc) => is_disc,
            // Of an image from before discs were told apart.
            None => manifest.format == Format::Raw && inspect::is_disc(&file).map_err(failed)?,
        };
        Ok(Some(manifest.describe(is_disc)))
    }
}

/// What a power cut leaves of a manifest that was never synced.
fn is_nonsense(why: &DiskError) -> bool {
    matches!(why.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

impl Manifest {
    /// Of the file: a raw disk is a number of sectors.
    fn length(&self) -> u64 {
        match self.format {
            Format::Raw => self.virtual_size,
            Format::Qcow2 => self.size,
        }
    }
}
