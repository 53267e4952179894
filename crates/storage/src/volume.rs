//! The volumes of a host.
//!
//! ```text
//!   volumes/<id>/                  volumes/<id>/
//!     manifest.json                  manifest.json
//!     layer-0   raw, written to      layer-0   the image, a second name of its file
//!                                    layer-1   qcow2, written to
//! ```
//!
//! An empty volume is a raw file of holes: nothing stands between guest and file
//! system, so nothing is faster, and snapshots can be put on top of it as well as on any
//! other format. A volume of an image is the image and an empty layer.
//!
//! The manifest says which layers there are and in which format, and is not written again when a
//! volume grows: how large a volume is, is said by its top layer alone, so there are no two
//! numbers that a crash could leave different. Snapshots will add layers.
//!
//! Everything here blocks; [`crate::Storage`] calls it from a thread that may.

use std::{
    fs::File,
    os::{fd::OwnedFd, unix::fs::MetadataExt},
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, fcntl},
    libc,
};
use serde::{Deserialize, Serialize};

use crate::{
    AfterStep, ImageId, MOST_BYTES, Step, VolumeId,
    directory::{Access, Directory, DiskError},
    image, qcow2,
    turn::Turns,
};

/// A host's disks may have sectors of 4096 bytes; a file that ends inside of one cannot be
/// read to its end past the page cache.
const SIZE_STEP: u64 = 4096;

pub(crate) const MANIFEST: &str = "manifest.json";
const MANIFEST_VERSION: u32 = 1;
const MAKING: &str = ".making-";
const REMOVING: &str = ".removing-";

/// A volume as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    pub virtual_size: u64,
    /// Bottom first.
    pub layers: Vec<Layer>,
    /// What deleting it would free: the layers that no image and no other volume has.
    pub used_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
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
    pub format: Format,
    pub read_only: bool,
    pub file: OwnedFd,
}

#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    #[error("there is no volume {volume}")]
    NoSuchVolume { volume: VolumeId },
    #[error("there is no image {image} to make the volume {volume} of")]
    NoSuchImage { volume: VolumeId, image: ImageId },
    #[error("a volume has between 1 byte and 16 TiB, not {bytes} bytes")]
    BadSize { bytes: u64 },
    #[error("the image has {image_bytes} bytes and the volume only {bytes}: it must be at least as large")]
    SmallerThanImage { bytes: u64, image_bytes: u64 },
    #[error("the volume {volume} is in use")]
    InUse { volume: VolumeId },
    #[error("the volume {volume} is damaged: {what}")]
    Damaged { volume: VolumeId, what: String },
    #[error(transparent)]
    Disk(#[from] DiskError),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    version: u32,
    /// Bottom first.
    layers: Vec<ManifestLayer>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestLayer {
    file: String,
    format: Format,
}

#[derive(Debug)]
pub(crate) struct Volumes {
    directory: Directory,
    images: Directory,
    turns: Turns<VolumeId>,
    after: AfterStep,
}

impl Volumes {
    pub fn new(directory: Directory, images: Directory, after: AfterStep) -> Volumes {
        Volumes { directory, images, turns: Turns::default(), after }
    }

    /// Whether something under this name was never finished, or is being removed.
    pub fn is_leftover(name: &str) -> bool {
        name.starts_with(MAKING) || name.starts_with(REMOVING)
    }

    pub fn create(&self, id: &VolumeId, bytes: u64, image: Option<&ImageId>) -> Result<Volume, VolumeError> {
        let bytes = whole_sectors(bytes)?;
        let _turn = self.turns.take(id);
        if let Some(found) = self.directory.directory(id.as_str())? {
            let volume = Found::read(id, found)?;
            volume.grow(bytes, &self.after)?;
            return volume.describe();
        }
        let making = format!("{MAKING}{id}");
        // Left by an attempt of this very process that failed.
        self.directory.remove(&making)?;
        let made = self.make(id, &making, bytes, image);
        if made.is_err() {
            // The reason is worth more than what the cleaning up says.
            let _ = self.directory.remove(&making);
        }
        made?;
        self.find(id)?.ok_or_else(|| VolumeError::NoSuchVolume { volume: id.clone() })
    }

    fn make(
        &self,
        id: &VolumeId,
        making: &str,
        bytes: u64,
        image: Option<&ImageId>,
    ) -> Result<(), VolumeError> {
        let directory = self.directory.make_directory(making)?;
        self.after.took(Step::VolumeDirectoryMade);

        let mut layers = Vec::new();
        if let Some(image) = image {
            layers.push(self.link_image(id, &directory, bytes, image)?);
            self.after.took(Step::ImageLinked);
        }
        let format = if layers.is_empty() { Format::Raw } else { Format::Qcow2 };
        let file = layer_name(layers.len());
        let layer = directory.make_file(&file, 0o600)?;
        let written = match format {
            Format::Raw => layer.set_len(bytes),
            Format::Qcow2 => qcow2::write_empty(&layer, bytes),
        };
        written
            .and_then(|()| layer.sync_all())
            .map_err(|why| DiskError::new("write", &directory.path_of(&file), why))?;
        layers.push(ManifestLayer { file, format });
        self.after.took(Step::LayerWritten);

        directory.write_new_json(MANIFEST, &Manifest { version: MANIFEST_VERSION, layers })?;
        directory.sync()?;
        self.after.took(Step::VolumeManifestWritten);

        self.directory.rename(making, id.as_str())?;
        self.after.took(Step::VolumePublished);
        Ok(self.directory.sync()?)
    }

    fn link_image(
        &self,
        id: &VolumeId,
        into: &Directory,
        bytes: u64,
        image: &ImageId,
    ) -> Result<ManifestLayer, VolumeError> {
        let no_such_image = || VolumeError::NoSuchImage { volume: id.clone(), image: image.clone() };
        let directory = self.images.directory(image.as_str())?.ok_or_else(no_such_image)?;
        let found = image::read_manifest(&directory)?.ok_or_else(no_such_image)?;
        if found.virtual_size > bytes {
            return Err(VolumeError::SmallerThanImage { bytes, image_bytes: found.virtual_size });
        }
        let file = layer_name(0);
        match into.link(&file, &directory, image::DISK) {
            // Deleted since we looked.
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => return Err(no_such_image()),
            linked => linked?,
        }
        Ok(ManifestLayer { file, format: found.format })
    }

    pub fn find(&self, id: &VolumeId) -> Result<Option<Volume>, VolumeError> {
        let Some(directory) = self.directory.directory(id.as_str())? else { return Ok(None) };
        Found::read(id, directory)?.describe().map(Some)
    }

    pub fn list(&self) -> Result<Vec<VolumeId>, VolumeError> {
        let names = self.directory.names()?;
        Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
    }

    pub fn grow(&self, id: &VolumeId, bytes: u64) -> Result<Volume, VolumeError> {
        let bytes = whole_sectors(bytes)?;
        let _turn = self.turns.take(id);
        let volume = self.existing(id)?;
        volume.grow(bytes, &self.after)?;
        volume.describe()
    }

    pub fn delete(&self, id: &VolumeId) -> Result<(), VolumeError> {
        let _turn = self.turns.take(id);
        let removing = format!("{REMOVING}{id}");
        if let Some(directory) = self.directory.directory(id.as_str())? {
            // One that is damaged is in nobody's use, and must be possible to get rid of. Held until it has no name
            // any more: a machine that opened it a moment ago must not begin to use it.
            let _held = match Found::read(id, directory) {
                Ok(volume) => Some(volume.hold_top()?),
                Err(_) => None,
            };
            self.directory.remove(&removing)?;
            self.directory.rename(id.as_str(), &removing)?;
            self.directory.sync()?;
            self.after.took(Step::VolumeWithdrawn);
        }
        if self.directory.remove(&removing)? {
            self.after.took(Step::VolumeRemoved);
        }
        Ok(())
    }

    pub fn open(&self, id: &VolumeId, read_only: bool) -> Result<Vec<OpenLayer>, VolumeError> {
        let volume = self.existing(id)?;
        let top = volume.layers.len() - 1;
        let mut opened = Vec::new();
        for (index, layer) in volume.layers.iter().enumerate() {
            let read_only = read_only || index != top;
            let access = if read_only { Access::Read } else { Access::ReadWrite };
            let file = volume.file(layer, access)?.into();
            opened.push(OpenLayer { format: layer.format, read_only, file });
        }
        Ok(opened)
    }

    fn existing<'a>(&self, id: &'a VolumeId) -> Result<Found<'a>, VolumeError> {
        match self.directory.directory(id.as_str())? {
            Some(directory) => Found::read(id, directory),
            None => Err(VolumeError::NoSuchVolume { volume: id.clone() }),
        }
    }
}

/// A volume's directory and its manifest, which names at least one layer.
struct Found<'a> {
    id: &'a VolumeId,
    directory: Directory,
    layers: Vec<ManifestLayer>,
}

impl Found<'_> {
    fn read(id: &VolumeId, directory: Directory) -> Result<Found<'_>, VolumeError> {
        let damaged = |what: &str| VolumeError::Damaged { volume: id.clone(), what: what.to_owned() };
        let manifest: Manifest =
            directory.read_json(MANIFEST)?.ok_or_else(|| damaged("it has no manifest"))?;
        if manifest.version != MANIFEST_VERSION {
            return Err(damaged(&format!(
                "its manifest has version {}; this Sheaf knows version {MANIFEST_VERSION}",
                manifest.version
            )));
        }
        // A name that leads elsewhere is not one of ours.
        let is_layer = |layer: &ManifestLayer| {
            layer.file.strip_prefix("layer-").is_some_and(|number| number.parse::<u32>().is_ok())
        };
        if manifest.layers.is_empty() || !manifest.layers.iter().all(is_layer) {
            return Err(damaged("its manifest names no layers, or files that are none"));
        }
        Ok(Found { id, directory, layers: manifest.layers })
    }

    fn file(&self, layer: &ManifestLayer, access: Access) -> Result<File, VolumeError> {
        self.directory.file(&layer.file, access)?.ok_or_else(|| VolumeError::Damaged {
            volume: self.id.clone(),
            what: format!("{} is missing", layer.file),
        })
    }

    fn top(&self) -> &ManifestLayer {
        &self.layers[self.layers.len() - 1]
    }

    fn virtual_size(&self, top: &File) -> Result<u64, VolumeError> {
        let failed = |why| DiskError::new("read", &self.directory.path_of(&self.top().file), why);
        match self.top().format {
            Format::Raw => Ok(top.metadata().map_err(failed)?.len()),
            Format::Qcow2 => match qcow2::Header::read(top).map_err(failed)? {
                Some(header) => Ok(header.virtual_size),
                None => Err(VolumeError::Damaged {
                    volume: self.id.clone(),
                    what: format!("{} has no header", self.top().file),
                }),
            },
        }
    }

    fn describe(&self) -> Result<Volume, VolumeError> {
        let mut used_bytes = 0;
        for layer in &self.layers {
            let file = self.file(layer, Access::Read)?;
            let found = file
                .metadata()
                .map_err(|why| DiskError::new("look at", &self.directory.path_of(&layer.file), why))?;
            if found.nlink() == 1 {
                used_bytes += found.blocks() * 512;
            }
        }
        Ok(Volume {
            virtual_size: self.virtual_size(&self.file(self.top(), Access::Read)?)?,
            layers: self.layers.iter().map(|layer| Layer { format: layer.format }).collect(),
            used_bytes,
        })
    }

    /// Opens the top layer in such a way that no QEMU has it open, nor can open it until
    /// the file is dropped: QEMU locks every image it uses. The lock is the open file's and not the process's, which
    /// would lose it as soon as any thread closes the same file.
    fn hold_top(&self) -> Result<File, VolumeError> {
        let top = self.file(self.top(), Access::ReadWrite)?;
        let all_of_it = libc::flock {
            l_type: libc::F_WRLCK as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        };
        match fcntl(&top, FcntlArg::F_OFD_SETLK(&all_of_it)) {
            Ok(_) => Ok(top),
            Err(Errno::EAGAIN | Errno::EACCES) => Err(VolumeError::InUse { volume: self.id.clone() }),
            Err(why) => Err(DiskError::new("lock", &self.directory.path_of(&self.top().file), why).into()),
        }
    }

    fn grow(&self, bytes: u64, after: &AfterStep) -> Result<(), VolumeError> {
        if self.virtual_size(&self.file(self.top(), Access::Read)?)? >= bytes {
            return Ok(());
        }
        let top = self.hold_top()?;
        let grown = match self.top().format {
            Format::Raw => top.set_len(bytes).and_then(|()| top.sync_all()),
            Format::Qcow2 => qcow2::set_virtual_size(&top, bytes),
        };
        grown.map_err(|why| DiskError::new("grow", &self.directory.path_of(&self.top().file), why))?;
        after.took(Step::VolumeGrown);
        Ok(())
    }
}

fn layer_name(index: usize) -> String {
    format!("layer-{index}")
}

fn whole_sectors(bytes: u64) -> Result<u64, VolumeError> {
    if bytes == 0 || bytes > MOST_BYTES {
        return Err(VolumeError::BadSize { bytes });
    }
    Ok(bytes.next_multiple_of(SIZE_STEP))
}
