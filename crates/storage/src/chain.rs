//! A chain of layers in a directory: what volumes and snapshots have in common.
//!
//! The manifest says which layers there are and in which format. How large the disk is, is said by its layers alone, so
//! there are no two numbers that a crash could leave different. A file that the manifest does not name is nobody's: it
//! was made before the manifest said so, or stayed after it no longer did, and [`Chain::sweep`] removes it.
//!
//! The manifest is there twice. The copy is written first, so it is as new as the manifest, or newer by what was about to
//! be acknowledged, and stands in for one that cannot be read.
//!
//! Layers have numbers that are never given twice in one chain, and the file of a layer has the same number wherever it
//! is linked in. So "the same layer" is "the same file" and also "the same number of a common origin".

use std::{
    fs::{File, Metadata},
    io,
    os::unix::fs::MetadataExt,
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, fcntl},
    libc,
};
use serde::{Deserialize, Deserializer, Serialize};

use crate::{
    SnapshotId, VolumeId,
    backend::{Format, Layer, OpenLayer},
    directory::{Access, Directory, DiskError},
    qcow2,
};

pub const MANIFEST: &str = "manifest.json";
/// The same again, written and brought to the disk by itself: a disk that lost one of the two has the other.
const COPY: &str = "manifest.copy.json";
const NEW_MANIFEST: &str = ".manifest.json";
const MANIFEST_VERSION: u32 = 3;
/// The first has no numbers of its own and no snapshots, the second at most one that was begun.
const VERSIONS: std::ops::RangeInclusive<u32> = 1..=MANIFEST_VERSION;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Manifest {
    version: u32,
    /// Bottom first.
    pub layers: Vec<ManifestLayer>,
    /// The number of the next layer.
    #[serde(default)]
    next: u32,
    /// Snapshots that were begun, each by somebody who may have died: one does not take the place of another, which may have
    /// had its instant.
    #[serde(default, deserialize_with = "one_or_several", skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<Pending>,
    /// The oldest layer that a machine may still be writing to, where that may not be the top one: nobody has said yet
    /// that it was switched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_from: Option<u32>,
    /// This layer's content is in the one below it, and it goes from every chain that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged: Option<u32>,
    /// Of a snapshot: what it was taken of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
}

/// As the second version has it, where there was one at most.
fn one_or_several<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Vec<Pending>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        One(Pending),
        Several(Vec<Pending>),
    }
    Ok(match Either::deserialize(from)? {
        Either::One(pending) => vec![pending],
        Either::Several(pending) => pending,
    })
}

/// The layers below `above` are to be a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pending {
    pub snapshot: String,
    pub above: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestLayer {
    file: String,
    pub format: Format,
}

impl ManifestLayer {
    pub fn new(number: u32, format: Format) -> ManifestLayer {
        ManifestLayer { file: file_name(number), format }
    }

    pub fn file(&self) -> &str {
        &self.file
    }

    /// None for a name that is not one of ours.
    fn parsed_number(&self) -> Option<u32> {
        self.file.strip_prefix("layer-").and_then(|number| number.parse().ok())
    }

    /// Of a manifest that was read: all of its names are ours.
    pub fn number(&self) -> u32 {
        self.parsed_number().unwrap_or(u32::MAX)
    }
}

/// The file of a layer, as the file system knows it.
#[derive(Clone, Copy, Debug)]
pub struct LayerFile {
    pub number: u32,
    pub inode: u64,
    /// How many names it has, among them those in chains that cannot be read.
    pub names: u64,
}

pub fn file_name(number: u32) -> String {
    format!("layer-{number}")
}

impl Manifest {
    pub fn of(layers: Vec<ManifestLayer>) -> Manifest {
        let next = layers.iter().map(|layer| layer.number().saturating_add(1)).max().unwrap_or(0);
        Manifest {
            version: MANIFEST_VERSION,
            layers,
            next,
            pending: Vec::new(),
            written_from: None,
            merged: None,
            volume: None,
        }
    }

    /// The snapshot of this name, if it was begun.
    pub fn begun(&self, id: &SnapshotId) -> Option<&Pending> {
        self.pending.iter().find(|pending| pending.snapshot == id.as_str())
    }

    pub fn forget_begun(&mut self, id: &SnapshotId) {
        self.pending.retain(|pending| pending.snapshot != id.as_str());
    }

    /// Puts a new layer on top; answers its number.
    pub fn add(&mut self, format: Format) -> u32 {
        let number = self.next;
        self.next += 1;
        self.layers.push(ManifestLayer::new(number, format));
        number
    }

    /// The number that [`Manifest::add`] would give.
    pub fn next(&self) -> u32 {
        self.next
    }

    pub fn top(&self) -> &ManifestLayer {
        &self.layers[self.layers.len() - 1]
    }
}

/// Whose chain it is, for messages and errors.
#[derive(Clone, Debug)]
pub enum Owner {
    Volume(VolumeId),
    Snapshot(SnapshotId),
}

impl Owner {
    pub fn damaged(&self, what: impl Into<String>) -> crate::VolumeError {
        let what = what.into();
        match self.clone() {
            Owner::Volume(volume) => crate::VolumeError::Damaged { volume, what },
            Owner::Snapshot(snapshot) => crate::VolumeError::DamagedSnapshot { snapshot, what },
        }
    }
}

/// A directory and its manifest, which names at least one layer.
#[derive(Debug)]
pub struct Chain {
    pub owner: Owner,
    pub directory: Directory,
    pub manifest: Manifest,
}

type Result<T> = std::result::Result<T, crate::VolumeError>;

impl Chain {
    pub fn read(owner: Owner, directory: Directory) -> Result<Chain> {
        let mut manifest = read_either(&directory)?.ok_or_else(|| owner.damaged("it has no manifest"))?;
        if !VERSIONS.contains(&manifest.version) {
            return Err(owner.damaged(format!(
                "its manifest has version {}; this Sheaf knows versions up to {MANIFEST_VERSION}",
                manifest.version
            )));
        }
        // A name that leads elsewhere is not one of ours.
        if manifest.layers.is_empty() || manifest.layers.iter().any(|layer| layer.parsed_number().is_none()) {
            return Err(owner.damaged("its manifest names no layers, or files that are none"));
        }
        let above_all = manifest.layers.iter().map(|layer| layer.number().saturating_add(1)).max();
        manifest.next = manifest.next.max(above_all.unwrap_or(0));
        manifest.version = MANIFEST_VERSION;
        Ok(Chain { owner, directory, manifest })
    }

    pub fn write_new(directory: &Directory, manifest: &Manifest) -> Result<()> {
        directory.write_new_json(COPY, manifest)?;
        directory.write_new_json(MANIFEST, manifest)?;
        Ok(directory.sync()?)
    }

    /// The manifest as it is in memory becomes the one on the disk, at once or not at all.
    pub fn write(&self) -> Result<()> {
        for name in [COPY, MANIFEST] {
            self.directory.remove(NEW_MANIFEST)?;
            self.directory.write_new_json(NEW_MANIFEST, &self.manifest)?;
            self.directory.rename(NEW_MANIFEST, name)?;
        }
        Ok(self.directory.sync()?)
    }

    /// Brings to the disk what the manifest says: whoever wrote it may have failed to.
    pub fn settle(&self) -> Result<()> {
        Ok(self.directory.sync()?)
    }

    /// What lies there and is not named by the manifest.
    fn nobodys(&self) -> Result<Vec<String>> {
        let mut names = self.directory.names()?;
        names.retain(|name| {
            let is_layer = self.manifest.layers.iter().any(|layer| layer.file() == name);
            !is_layer && ![MANIFEST, COPY].contains(&name.as_str())
        });
        Ok(names)
    }

    pub fn has_nobodys(&self) -> Result<bool> {
        Ok(!self.nobodys()?.is_empty())
    }

    /// Removes what the manifest does not name; whether there was anything.
    pub fn sweep(&self) -> Result<bool> {
        let mut found = false;
        let nobodys = self.nobodys()?;
        if !nobodys.is_empty() {
            // Before anything goes that the manifest on the disk might still name.
            self.settle()?;
        }
        for name in nobodys {
            found |= self.directory.remove(&name)?;
        }
        if !self.has_true_copy() {
            self.write()?;
            found = true;
        }
        Ok(found)
    }

    /// Whether the manifest and its copy say the same. One that has no copy gets it when it next changes.
    fn has_true_copy(&self) -> bool {
        let read = |name| self.directory.read_json::<serde_json::Value>(name);
        match (read(MANIFEST), read(COPY)) {
            (Ok(Some(manifest)), Ok(copy)) => copy.is_none_or(|copy| copy == manifest),
            _ => false,
        }
    }

    pub fn file(&self, layer: &ManifestLayer, access: Access) -> Result<File> {
        let missing = || self.owner.damaged(format!("{} is missing", layer.file()));
        self.directory.file(layer.file(), access)?.ok_or_else(missing)
    }

    pub fn open_layer(&self, layer: &ManifestLayer, read_only: bool) -> Result<OpenLayer> {
        let access = if read_only { Access::Read } else { Access::ReadWrite };
        let file = self.file(layer, access)?.into();
        Ok(OpenLayer { number: layer.number(), format: layer.format, read_only, file })
    }

    /// Layers that a machine may be writing to: the top one, and while a switch is under way those below it, too.
    pub fn written(&self) -> impl Iterator<Item = &ManifestLayer> {
        let top = self.manifest.top().number();
        let from = self.manifest.written_from.unwrap_or(top);
        self.manifest.layers.iter().filter(move |layer| layer.number() >= from || layer.number() == top)
    }

    /// How large the disk is.
    pub fn virtual_size(&self) -> Result<u64> {
        let mut most = 0;
        for layer in self.written() {
            most = most.max(self.size_of(layer, &self.file(layer, Access::Read)?)?);
        }
        Ok(most)
    }

    pub fn size_of(&self, layer: &ManifestLayer, file: &File) -> Result<u64> {
        let failed = |why| DiskError::new("read", &self.directory.path_of(layer.file()), why);
        match layer.format {
            Format::Raw => Ok(file.metadata().map_err(failed)?.len()),
            Format::Qcow2 => match qcow2::Header::read(file).map_err(failed)? {
                Some(header) => Ok(header.virtual_size),
                None => Err(self.owner.damaged(format!("{} has no header", layer.file()))),
            },
        }
    }

    /// Makes every layer that may be written to, but not those from `above` on, as large as the ones below it. A machine may
    /// have grown its disk while an empty layer lay on it that it was not switched to, and what ends early hides what
    /// is below. Those that are too small are in nobody's use: a machine that has one open was started with it, and
    /// they were made level before.
    pub fn level(&self, above: u32) -> Result<()> {
        let mut least = 0;
        for layer in self.written().filter(|layer| layer.number() < above) {
            let size = self.size_of(layer, &self.file(layer, Access::Read)?)?;
            if size < least {
                self.resize(layer, &self.file(layer, Access::ReadWrite)?, least)?;
            }
            least = least.max(size);
        }
        Ok(())
    }

    /// Whether the top layer is one that nobody has open and nobody ever wrote to. Meanwhile nobody can: it is held.
    pub fn hold_untouched_top(&self) -> Result<Option<File>> {
        let top = self.manifest.top();
        let file = self.file(top, Access::ReadWrite)?;
        if top.format != Format::Qcow2 || !self.lock(top, &file)? {
            return Ok(None);
        }
        let is_untouched = qcow2::is_untouched(&file)
            .map_err(|why| DiskError::new("read", &self.directory.path_of(top.file()), why))?;
        Ok(is_untouched.then_some(file))
    }

    pub fn resize(&self, layer: &ManifestLayer, file: &File, bytes: u64) -> Result<()> {
        let resized = match layer.format {
            Format::Raw => file.set_len(bytes),
            Format::Qcow2 => qcow2::set_virtual_size(file, bytes),
        };
        resized.map_err(|why| DiskError::new("grow", &self.directory.path_of(layer.file()), why))?;
        Ok(self.directory.sync_file(file, layer.file())?)
    }

    /// The bytes of the layers that nothing else has a name for.
    pub fn own_bytes(&self) -> Result<u64> {
        let mut bytes = 0;
        for layer in &self.manifest.layers {
            let found = self.look_at(layer, &self.file(layer, Access::Read)?)?;
            if found.nlink() == 1 {
                bytes += found.blocks() * 512;
            }
        }
        Ok(bytes)
    }

    /// The file of each layer, bottom first.
    pub fn files(&self) -> Result<Vec<LayerFile>> {
        let mut files = Vec::new();
        for layer in &self.manifest.layers {
            let found = self.look_at(layer, &self.file(layer, Access::Read)?)?;
            files.push(LayerFile { number: layer.number(), inode: found.ino(), names: found.nlink() });
        }
        Ok(files)
    }

    pub fn layers(&self) -> Vec<Layer> {
        let layers = self.manifest.layers.iter();
        layers.map(|layer| Layer { number: layer.number(), format: layer.format }).collect()
    }

    /// Makes the file of a new layer that holds nothing. What an earlier attempt left in its place goes.
    pub fn make_empty_layer(directory: &Directory, number: u32, format: Format, bytes: u64) -> Result<File> {
        let name = file_name(number);
        directory.remove(&name)?;
        let file = directory.make_file(&name, 0o600)?;
        let written = match format {
            Format::Raw => file.set_len(bytes),
            Format::Qcow2 => qcow2::write_empty(&file, qcow2::Shape::Layer, bytes),
        };
        written.map_err(|why| DiskError::new("write", &directory.path_of(&name), why))?;
        directory.sync_file(&file, &name)?;
        Ok(file)
    }

    /// Links the layers of this chain below `above` into another directory, under the same names.
    pub fn link_into(&self, into: &Directory, above: u32) -> Result<Vec<ManifestLayer>> {
        let below = self.manifest.layers.iter().filter(|layer| layer.number() < above);
        let layers: Vec<ManifestLayer> = below.cloned().collect();
        for layer in &layers {
            into.link(layer.file(), &self.directory, layer.file())?;
        }
        Ok(layers)
    }

    /// Holds every layer that a machine may be writing to, so that no QEMU has one open, nor can open one until the files
    /// are dropped: QEMU locks every image it uses. None if one is in use. The locks are the open files' and not the
    /// process's, which would lose them as soon as any thread closes the same file.
    pub fn hold(&self) -> Result<Option<Vec<File>>> {
        let mut held = Vec::new();
        for layer in self.written() {
            let file = self.file(layer, Access::ReadWrite)?;
            if !self.lock(layer, &file)? {
                return Ok(None);
            }
            held.push(file);
        }
        Ok(Some(held))
    }

    /// The same where no manifest says what the layers are: all that nothing else has a name for.
    pub fn hold_unnamed(owner: Owner, directory: Directory) -> Result<Option<Vec<File>>> {
        let names = directory.names()?;
        let layers = names.into_iter().map(|file| ManifestLayer { file, format: Format::Raw });
        let layers = layers.filter(|layer| layer.parsed_number().is_some()).collect();
        let chain = Chain { owner, directory, manifest: Manifest::of(layers) };
        let mut held = Vec::new();
        for layer in &chain.manifest.layers {
            // One that cannot be had is nobody's to write to either.
            let file = match chain.directory.file(layer.file(), Access::ReadWrite) {
                Ok(Some(file)) => file,
                Ok(None) => continue,
                Err(why) if why.is_damage() || why.kind() == io::ErrorKind::InvalidInput => continue,
                Err(why) if why.kind() == io::ErrorKind::IsADirectory => continue,
                Err(why) => return Err(why.into()),
            };
            if chain.look_at(layer, &file)?.nlink() > 1 {
                continue;
            }
            if !chain.lock(layer, &file)? {
                return Ok(None);
            }
            held.push(file);
        }
        Ok(Some(held))
    }

    fn look_at(&self, layer: &ManifestLayer, file: &File) -> Result<Metadata> {
        let failed = |why| DiskError::new("look at", &self.directory.path_of(layer.file()), why);
        Ok(file.metadata().map_err(failed)?)
    }

    /// Whether nobody else has it.
    fn lock(&self, layer: &ManifestLayer, file: &File) -> Result<bool> {
        match fcntl(file, FcntlArg::F_OFD_SETLK(&all_of_it())) {
            Ok(_) => Ok(true),
            Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
            Err(why) => {
                let path = self.directory.path_of(layer.file());
                Err(DiskError::new("lock", &path, io::Error::from(why)).into())
            }
        }
    }
}

/// The manifest, or its copy where that is no manifest any more. What somebody put in its place is refused.
fn read_either(directory: &Directory) -> std::result::Result<Option<Manifest>, DiskError> {
    let read = directory.read_json(MANIFEST);
    match &read {
        Ok(None) => {}
        Err(why) if why.is_damage() => {}
        _ => return read,
    }
    match directory.read_json(COPY) {
        Ok(Some(copy)) => {
            tracing::warn!(path = %directory.path_of(MANIFEST).display(), "a manifest is damaged; its copy is used");
            Ok(Some(copy))
        }
        _ => read,
    }
}

fn all_of_it() -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}
