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
//! other format. A volume of an image or of a snapshot is what it is made of and an empty layer.

use super::{Local, MAKING, REMOVING};
use crate::{
    ImageId, MOST_BYTES, SnapshotId, Step, VolumeError, VolumeId,
    backend::{Format, OpenLayer, Origin, Volume},
    chain::{Chain, Manifest, ManifestLayer, Owner, file_name},
    directory::{Access, Directory},
    image,
};

/// A host's disks may have sectors of 4096 bytes; a file that ends inside of one cannot be
/// read to its end past the page cache.
const SIZE_STEP: u64 = 4096;

type Result<T> = std::result::Result<T, VolumeError>;

impl Local {
    pub fn create(&self, id: &VolumeId, bytes: u64, origin: &Origin) -> Result<Volume> {
        let bytes = whole_sectors(bytes)?;
        let _turn = self.turns.take(id);
        if let Some(chain) = self.find_volume(id)? {
            self.grow_chain(id, &chain, bytes)?;
            return describe(&chain);
        }
        let making = format!("{MAKING}{id}");
        // Left by an attempt of this very process that failed.
        self.volumes.remove(&making)?;
        let made = self.make(id, &making, bytes, origin);
        if made.is_err() {
            // The reason is worth more than what the cleaning up says.
            let _ = self.volumes.remove(&making);
        }
        made?;
        describe(&self.existing(id)?)
    }

    fn make(&self, id: &VolumeId, making: &str, bytes: u64, origin: &Origin) -> Result<()> {
        let directory = self.volumes.make_directory(making)?;
        self.after.took(Step::VolumeDirectoryMade);

        // From here to the end: whoever looks what shares a layer must not miss this one.
        let _sharing = self.sharing.read();
        let mut manifest = match origin {
            Origin::Empty => Manifest::of(Vec::new()),
            Origin::Image(image) => {
                let layer = self.link_image(id, &directory, bytes, image)?;
                self.after.took(Step::ImageLinked);
                Manifest::of(vec![layer])
            }
            Origin::Snapshot(snapshot) => {
                let layers = self.link_snapshot(&directory, bytes, snapshot)?;
                self.after.took(Step::SnapshotLinkedIn);
                Manifest::of(layers)
            }
        };
        let format = if manifest.layers.is_empty() { Format::Raw } else { Format::Qcow2 };
        let number = manifest.add(format);
        Chain::make_empty_layer(&directory, number, format, bytes)?;
        self.after.took(Step::LayerWritten);

        Chain::write_new(&directory, &manifest)?;
        self.after.took(Step::VolumeManifestWritten);

        self.volumes.rename(making, id.as_str())?;
        self.after.took(Step::VolumePublished);
        Ok(self.volumes.settle_rename(making, id.as_str())?)
    }

    fn link_image(
        &self,
        id: &VolumeId,
        into: &Directory,
        bytes: u64,
        image: &ImageId,
    ) -> Result<ManifestLayer> {
        let no_such_image = || VolumeError::NoSuchImage { volume: id.clone(), image: image.clone() };
        let directory = self.images.directory(image.as_str())?.ok_or_else(no_such_image)?;
        let found = image::read_manifest(&directory)?.ok_or_else(no_such_image)?;
        must_hold(bytes, found.virtual_size)?;
        match into.link(&file_name(0), &directory, image::DISK) {
            // Deleted since we looked.
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => return Err(no_such_image()),
            linked => linked?,
        }
        Ok(ManifestLayer::new(0, found.format))
    }

    fn link_snapshot(
        &self,
        into: &Directory,
        bytes: u64,
        snapshot: &SnapshotId,
    ) -> Result<Vec<ManifestLayer>> {
        let chain = self.existing_snapshot(snapshot)?;
        must_hold(bytes, chain.virtual_size()?)?;
        chain.link_into(into, u32::MAX)
    }

    pub fn volume(&self, id: &VolumeId) -> Result<Option<Volume>> {
        let _sharing = self.sharing.read();
        self.find_volume(id)?.as_ref().map(describe).transpose()
    }

    pub fn volumes(&self) -> Result<Vec<VolumeId>> {
        let names = self.volumes.names()?;
        Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
    }

    pub fn grow(&self, id: &VolumeId, bytes: u64) -> Result<Volume> {
        let bytes = whole_sectors(bytes)?;
        let _turn = self.turns.take(id);
        let chain = self.existing(id)?;
        self.grow_chain(id, &chain, bytes)?;
        describe(&chain)
    }

    fn grow_chain(&self, id: &VolumeId, chain: &Chain, bytes: u64) -> Result<()> {
        if chain.virtual_size()? >= bytes {
            // Whoever made it so large may have failed to bring that to the disk.
            let top = chain.manifest.top();
            return Ok(chain.directory.sync_file(&chain.file(top, Access::Read)?, top.file())?);
        }
        let held = chain.hold()?.ok_or_else(|| VolumeError::InUse { volume: id.clone() })?;
        if let Some(file) = held.last() {
            chain.level(u32::MAX)?;
            chain.resize(chain.manifest.top(), file, bytes)?;
        }
        self.after.took(Step::VolumeGrown);
        Ok(())
    }

    pub fn delete(&self, id: &VolumeId) -> Result<()> {
        let _turn = self.turns.take(id);
        let removing = format!("{REMOVING}{id}");
        if let Some(directory) = self.volumes.directory(id.as_str())? {
            // Held until it has no name any more: a machine that opened it a moment ago must not begin to use it. One
            // that is damaged must be possible to get rid of.
            let owner = Owner::Volume(id.clone());
            let held = match Chain::read(owner.clone(), directory) {
                Ok(chain) => chain.hold()?,
                Err(_) => match self.volumes.directory(id.as_str())? {
                    Some(directory) => Chain::hold_unnamed(owner, directory)?,
                    None => Some(Vec::new()),
                },
            };
            let _held = held.ok_or_else(|| VolumeError::InUse { volume: id.clone() })?;
            let _sharing = self.sharing.read();
            self.volumes.remove(&removing)?;
            self.volumes.rename(id.as_str(), &removing)?;
            self.after.took(Step::VolumeWithdrawn);
        }
        if self.volumes.directory(&removing)?.is_some() {
            // What is to be gone must not come back in part.
            self.volumes.sync()?;
            self.volumes.remove(&removing)?;
            self.after.took(Step::VolumeRemoved);
        }
        Ok(())
    }

    pub fn open(&self, id: &VolumeId, read_only: bool) -> Result<Vec<OpenLayer>> {
        let _turn = self.turns.take(id);
        // No layer goes between the reading of the manifest and the opening of what it names.
        let _sharing = self.sharing.read();
        let chain = self.existing(id)?;
        if chain.manifest.written_from.is_some() {
            // A machine is about to write to what it says.
            chain.settle()?;
            // One that is in use is level.
            if let Some(_held) = chain.hold()? {
                chain.level(u32::MAX)?;
            }
        }
        let top = chain.manifest.layers.len() - 1;
        let layers = chain.manifest.layers.iter().enumerate();
        layers.map(|(index, layer)| chain.open_layer(layer, read_only || index != top)).collect()
    }

    pub(super) fn find_volume(&self, id: &VolumeId) -> Result<Option<Chain>> {
        let directory = self.volumes.directory(id.as_str())?;
        directory.map(|directory| Chain::read(Owner::Volume(id.clone()), directory)).transpose()
    }

    pub(super) fn existing(&self, id: &VolumeId) -> Result<Chain> {
        self.find_volume(id)?.ok_or_else(|| VolumeError::NoSuchVolume { volume: id.clone() })
    }
}

fn describe(chain: &Chain) -> Result<Volume> {
    Ok(Volume { virtual_size: chain.virtual_size()?, layers: chain.layers(), used_bytes: chain.own_bytes()? })
}

fn must_hold(bytes: u64, source_bytes: u64) -> Result<()> {
    if source_bytes > bytes {
        return Err(VolumeError::SmallerThanSource { bytes, source_bytes });
    }
    Ok(())
}

fn whole_sectors(bytes: u64) -> Result<u64> {
    if bytes == 0 || bytes > MOST_BYTES {
        return Err(VolumeError::BadSize { bytes });
    }
    Ok(bytes.next_multiple_of(SIZE_STEP))
}
