//! Snapshots: a chain gets a second name while somebody writes to its top.
//!
//! ```text
//!              begin: an empty layer on top            (the machine is switched)      finish: links
//!   a b  ---------------------------------->  a b c  ------------------------------>  a b c   and   a b
//!     ^ written                                 ^ still written    ^ written            ^       snapshot
//! ```
//!
//! Between the two the volume reads the same whichever layer is written to, since the new one is empty until it
//! is. The manifest remembers that the lower one may still be written to, so that nobody takes the volume for unused.
//!
//! Several may be under way: each has its own layer, and the one that is finished last is still of its own instant. One
//! that is begun again is of a later one, so it gets a new layer, unless nobody ever had the one it has.

use super::{Local, MAKING, REMOVING};
use crate::{
    SnapshotId, Step, VolumeError, VolumeId,
    backend::{Begun, Format, OpenLayer, Snapshot},
    chain::{Chain, Manifest, Owner, Pending},
};

type Result<T> = std::result::Result<T, VolumeError>;

impl Local {
    pub fn begin_snapshot(&self, volume: &VolumeId, id: &SnapshotId) -> Result<Begun> {
        let _turn = self.turns.take(volume);
        let _sharing = self.sharing.read();
        if let Some(found) = self.find_snapshot(id)? {
            return Ok(Begun::Already(described_as_of(&found, volume, id)?));
        }
        let mut chain = self.existing(volume)?;
        if let Some(pending) = chain.manifest.begun(id)
            && pending.above == chain.manifest.top().number()
            && let Some(_held) = chain.hold_untouched_top()?
        {
            // A machine is about to write to what it says.
            chain.settle()?;
            // The machine may have grown its disk since.
            chain.level(u32::MAX)?;
        } else {
            let above = chain.manifest.next();
            Chain::make_empty_layer(&chain.directory, above, Format::Qcow2, chain.virtual_size()?)?;
            self.after.took(Step::LayerAdded);
            let written_from = chain.manifest.written_from.unwrap_or(chain.manifest.top().number());
            chain.manifest.add(Format::Qcow2);
            chain.manifest.written_from = Some(written_from);
            chain.manifest.forget_begun(id);
            chain.manifest.pending.push(Pending { snapshot: id.to_string(), above });
            chain.write()?;
            self.after.took(Step::SnapshotBegun);
        }
        Ok(Begun::Switch(chain.open_layer(chain.manifest.top(), false)?))
    }

    pub fn begun_layer(&self, volume: &VolumeId, id: &SnapshotId) -> Result<Option<u32>> {
        let _turn = self.turns.take(volume);
        let chain = self.find_volume(volume)?;
        Ok(chain.and_then(|chain| chain.manifest.begun(id).map(|pending| pending.above)))
    }

    pub fn finish_snapshot(&self, volume: &VolumeId, id: &SnapshotId) -> Result<Snapshot> {
        let _turn = self.turns.take(volume);
        let _snapshot_turn = self.snapshot_turns.take(id);
        let _sharing = self.sharing.read();
        let found = self.find_snapshot(id)?;
        let chain = self.find_volume(volume)?;
        let pending = chain.as_ref().and_then(|chain| chain.manifest.begun(id).cloned());
        match (&found, &chain, &pending) {
            (Some(found), chain, None) => {
                if let Some(chain) = chain {
                    chain.settle()?;
                }
                return described_as_of(found, volume, id);
            }
            (None, None, _) => return Err(VolumeError::NoSuchVolume { volume: volume.clone() }),
            (None, Some(_), None) => {
                return Err(VolumeError::NotBegun { volume: volume.clone(), snapshot: id.clone() });
            }
            (None, Some(chain), Some(pending)) => {
                let making = format!("{MAKING}{id}");
                self.snapshots.remove(&making)?;
                let made = self.make_snapshot(chain, id, &making, pending.above);
                if made.is_err() {
                    let _ = self.snapshots.remove(&making);
                }
                made?;
            }
            // Named already; only the volume does not know.
            (Some(_), _, Some(_)) => {}
        }
        if let (Some(mut chain), Some(Pending { above, .. })) = (chain, pending) {
            chain.manifest.forget_begun(id);
            // Whoever writes to it was switched to this layer or to a later one.
            let top = chain.manifest.top().number();
            let written_from = chain.manifest.written_from.map(|from| from.max(above));
            chain.manifest.written_from = written_from.filter(|from| *from < top);
            chain.write()?;
            self.after.took(Step::SnapshotFinished);
        }
        described_as_of(&self.existing_snapshot(id)?, volume, id)
    }

    fn make_snapshot(&self, chain: &Chain, id: &SnapshotId, making: &str, above: u32) -> Result<()> {
        chain.level(above)?;
        let directory = self.snapshots.make_directory(making)?;
        self.after.took(Step::SnapshotDirectoryMade);
        let mut manifest = Manifest::of(chain.link_into(&directory, above)?);
        let Owner::Volume(volume) = &chain.owner else { return Err(chain.owner.damaged("it is no volume")) };
        manifest.volume = Some(volume.to_string());
        // What the machine wrote last is the page cache's until it is synced, and is about to be somebody's backup.
        for layer in chain.written() {
            let file = chain.file(layer, crate::directory::Access::Read)?;
            chain.directory.sync_file(&file, layer.file())?;
        }
        self.after.took(Step::SnapshotLinked);
        Chain::write_new(&directory, &manifest)?;
        self.after.took(Step::SnapshotManifestWritten);
        self.snapshots.rename(making, id.as_str())?;
        self.after.took(Step::SnapshotPublished);
        Ok(self.snapshots.settle_rename(making, id.as_str())?)
    }

    pub fn snapshot(&self, id: &SnapshotId) -> Result<Option<Snapshot>> {
        let _sharing = self.sharing.read();
        self.find_snapshot(id)?.as_ref().map(describe).transpose()
    }

    pub fn snapshots(&self) -> Result<Vec<SnapshotId>> {
        let names = self.snapshots.names()?;
        Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
    }

    pub fn open_snapshot(&self, id: &SnapshotId) -> Result<Vec<OpenLayer>> {
        let _sharing = self.sharing.read();
        let chain = self.existing_snapshot(id)?;
        chain.manifest.layers.iter().map(|layer| chain.open_layer(layer, true)).collect()
    }

    pub fn delete_snapshot(&self, id: &SnapshotId) -> Result<()> {
        {
            let _turn = self.snapshot_turns.take(id);
            let _sharing = self.sharing.read();
            let removing = format!("{REMOVING}{id}");
            if self.snapshots.directory(id.as_str())?.is_some() {
                self.snapshots.remove(&removing)?;
                self.snapshots.rename(id.as_str(), &removing)?;
                self.after.took(Step::SnapshotWithdrawn);
            }
            if self.snapshots.directory(&removing)?.is_some() {
                // What is to be gone must not come back in part.
                self.snapshots.sync()?;
                self.snapshots.remove(&removing)?;
                self.after.took(Step::SnapshotRemoved);
            }
        }
        self.forget_begun(id)
    }

    /// A snapshot that was begun is not finished any more. That its machine may be writing below the top stays known.
    fn forget_begun(&self, id: &SnapshotId) -> Result<()> {
        let is_begun = |chain: &Chain| chain.manifest.begun(id).is_some();
        for volume in self.volumes()? {
            match self.find_volume(&volume).map(|chain| chain.filter(is_begun)) {
                Ok(Some(_)) => {}
                Ok(None) | Err(VolumeError::Damaged { .. }) => continue,
                Err(VolumeError::Disk(why)) if why.is_damage() => continue,
                Err(why) => return Err(why),
            }
            let _turn = self.turns.take(&volume);
            let _sharing = self.sharing.read();
            if let Some(mut chain) = self.find_volume(&volume)?.filter(is_begun) {
                chain.manifest.forget_begun(id);
                chain.write()?;
                self.after.took(Step::SnapshotForgotten);
            }
        }
        Ok(())
    }

    pub(super) fn find_snapshot(&self, id: &SnapshotId) -> Result<Option<Chain>> {
        let directory = self.snapshots.directory(id.as_str())?;
        directory.map(|directory| Chain::read(Owner::Snapshot(id.clone()), directory)).transpose()
    }

    pub(super) fn existing_snapshot(&self, id: &SnapshotId) -> Result<Chain> {
        self.find_snapshot(id)?.ok_or_else(|| VolumeError::NoSuchSnapshot { snapshot: id.clone() })
    }
}

fn describe(chain: &Chain) -> Result<Snapshot> {
    let volume = chain.manifest.volume.as_ref().and_then(|volume| volume.parse().ok());
    Ok(Snapshot {
        volume: volume.ok_or_else(|| chain.owner.damaged("its manifest does not say what it is of"))?,
        virtual_size: chain.virtual_size()?,
        used_bytes: chain.own_bytes()?,
    })
}

/// The same, for whoever means the snapshot of a certain volume.
fn described_as_of(chain: &Chain, volume: &VolumeId, id: &SnapshotId) -> Result<Snapshot> {
    let found = describe(chain)?;
    if found.volume != *volume {
        return Err(VolumeError::AnotherVolume { snapshot: id.clone(), volume: found.volume });
    }
    Ok(found)
}
