//! Volumes and snapshots in files of one host.
//!
//! ```text
//!   volumes/<id>/      manifest.json  layer-0 ...     only the last one is written to
//!   snapshots/<id>/    manifest.json  layer-0 ...     none is
//! ```
//!
//! A file that several need has several names, and how many is known to the file system: whatever is deleted first, the
//! bytes go with the last name. So nothing here counts, and nothing can be miscounted by a crash.
//!
//! - `volume`: made, grown, opened, deleted.
//! - `snapshot`: how a chain gets a second name while somebody writes to its top.
//! - `merging`: which layers nobody needs apart.
//!
//! Everything here blocks; [`crate::Storage`] calls it from a thread that may.

mod merging;
mod snapshot;
mod volume;

use parking_lot::RwLock;

use crate::{
    AfterStep, SnapshotId, Step, VolumeId,
    chain::{Chain, Owner},
    directory::{Directory, DiskError},
    turn::Turns,
};

const MAKING: &str = ".making-";
const REMOVING: &str = ".removing-";

#[derive(Debug)]
pub struct Local {
    volumes: Directory,
    snapshots: Directory,
    images: Directory,
    turns: Turns<VolumeId>,
    snapshot_turns: Turns<SnapshotId>,
    /// Read by whoever links layers or changes a manifest, each in the turn of their own volume; written by whoever looks
    /// at what all chains share. Taken after a turn, never before.
    sharing: RwLock<()>,
    after: AfterStep,
}

impl Local {
    pub fn new(volumes: Directory, snapshots: Directory, images: Directory, after: AfterStep) -> Local {
        Local {
            volumes,
            snapshots,
            images,
            turns: Turns::default(),
            snapshot_turns: Turns::default(),
            sharing: RwLock::new(()),
            after,
        }
    }

    /// Whether something under this name was never finished, or is being removed.
    pub fn is_leftover(name: &str) -> bool {
        name.starts_with(MAKING) || name.starts_with(REMOVING)
    }

    /// Throws away what an earlier process left inside of volumes and snapshots, and ends what it had all but done.
    pub fn sweep(&self) -> Result<(), DiskError> {
        for chain in self.all_chains()? {
            match chain.sweep() {
                Ok(false) => {}
                Ok(true) => self.after.took(Step::LeftoverRemoved),
                Err(why) => cannot_be_removed(&why),
            }
        }
        if let Err(why) = self.finish_noted() {
            cannot_be_removed(&why);
        }
        Ok(())
    }

    /// Every chain that can be read. One that cannot is left alone, and told by whoever wants to use it.
    fn all_chains(&self) -> Result<Vec<Chain>, DiskError> {
        let mut chains = Vec::new();
        for name in self.volumes.names()? {
            let Ok(id) = name.parse::<VolumeId>() else { continue };
            let Ok(Some(directory)) = self.volumes.directory(&name) else { continue };
            chains.extend(Chain::read(Owner::Volume(id), directory));
        }
        for name in self.snapshots.names()? {
            let Ok(id) = name.parse::<SnapshotId>() else { continue };
            let Ok(Some(directory)) = self.snapshots.directory(&name) else { continue };
            chains.extend(Chain::read(Owner::Snapshot(id), directory));
        }
        Ok(chains)
    }
}

fn cannot_be_removed(why: &crate::VolumeError) {
    tracing::warn!(why = why as &dyn std::error::Error, "a leftover cannot be removed");
}
