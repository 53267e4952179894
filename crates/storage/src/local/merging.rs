//! Which layers nobody needs apart any more, and forgetting the upper one of two that have become one.
//!
//! ```text
//!   volume      a  b  c  d         snapshot 1 is deleted:      volume      a+b  c  d
//!   snapshot 1  a                  whoever has a has b         snapshot 2  a+b
//!   snapshot 2  a  b               directly on it
//! ```
//!
//! Putting the content of an upper layer into the one below it changes nothing for whoever has both, however
//! far it got: what the upper layer has is read from there. So it may be done in place, to a file that many share, as long as all
//! of them have the upper layer on it. Afterwards the upper one goes from one chain after the other.
//!
//! A process that dies in between leaves chains of which some have the upper layer and some do not, and nobody could tell
//! by them that the two are one. So one chain notes it before the first of them changes, and is the last that does.
//!
//! A layer that a machine writes to is left alone: it is emptied by nobody while it is being filled.

use std::collections::{BTreeMap, BTreeSet};

use super::Local;
use crate::{
    Step, VolumeError,
    backend::{Holder, Merge, OpenMerge},
    chain::{Chain, LayerFile, Owner},
    directory::{Access, DiskError},
    image,
};

type Result<T> = std::result::Result<T, VolumeError>;

/// A layer by the number of its file, and by the file system's.
type Named = (u32, u64);

impl Local {
    pub fn wanted_merges(&self) -> Result<Vec<Merge>> {
        let _sharing = self.sharing.write();
        self.finish_noted()?;
        self.mergeable()
    }

    fn mergeable(&self) -> Result<Vec<Merge>> {
        let chains = self.all_chains()?;
        let mut above: BTreeMap<u64, BTreeSet<Option<Named>>> = BTreeMap::new();
        let mut holders: BTreeMap<u64, Vec<Holder>> = BTreeMap::new();
        let mut lowers: BTreeMap<u64, LayerFile> = BTreeMap::new();
        // What has no name for itself among the chains has one elsewhere, and is needed as it is.
        let mut apart: BTreeSet<u64> = self.image_inodes()?;
        for chain in &chains {
            let files = chain.files()?;
            for (index, file) in files.iter().enumerate() {
                let on_it = files.get(index + 1).map(|file| (file.number, file.inode));
                above.entry(file.inode).or_default().insert(on_it);
                holders.entry(file.inode).or_default().push(holder(chain));
                lowers.insert(file.inode, *file);
            }
            if let Owner::Volume(_) = chain.owner {
                let written = chain.written().map(|layer| layer.number());
                // What lies above a snapshot that was begun is not part of it.
                let begun = chain.manifest.pending.iter().map(|pending| pending.above);
                let needed: BTreeSet<u32> = written.chain(begun).collect();
                let needed = files.iter().filter(|file| needed.contains(&file.number));
                apart.extend(needed.map(|file| file.inode));
            }
        }
        let mut merges = Vec::new();
        for (lower, on_it) in &above {
            let mut on_it = on_it.iter();
            let (Some(Some((upper_number, upper))), None) = (on_it.next(), on_it.next()) else { continue };
            let (file, holders) = (lowers[lower], &holders[lower]);
            // Whoever has it and cannot be read may have something else on it, or nothing.
            let has_strangers = file.names > holders.len() as u64;
            if has_strangers || apart.contains(lower) || apart.contains(upper) {
                continue;
            }
            merges.push(Merge { lower: file.number, upper: *upper_number, holders: holders.clone() });
        }
        merges.sort_by(|a, b| (&a.holders, a.lower).cmp(&(&b.holders, b.lower)));
        Ok(merges)
    }

    fn image_inodes(&self) -> Result<BTreeSet<u64>> {
        let mut inodes = BTreeSet::new();
        for name in self.images.names()? {
            let Ok(Some(directory)) = self.images.directory(&name) else { continue };
            let Some(disk) = directory.file(image::DISK, Access::Read)? else { continue };
            let found = disk
                .metadata()
                .map_err(|why| DiskError::new("look at", &directory.path_of(image::DISK), why))?;
            inodes.insert(std::os::unix::fs::MetadataExt::ino(&found));
        }
        Ok(inodes)
    }

    pub fn open_merge(&self, merge: &Merge) -> Result<OpenMerge> {
        let _sharing = self.sharing.write();
        let chain = self.chain_of(self.still_wanted(merge)?.first_holder()?)?;
        let below = chain.manifest.layers.iter().filter(|layer| layer.number() <= merge.upper);
        let layers = below.map(|layer| chain.open_layer(layer, layer.number() != merge.lower));
        Ok(OpenMerge { layers: layers.collect::<Result<_>>()? })
    }

    pub fn finish_merge(&self, merge: &Merge) -> Result<()> {
        let _sharing = self.sharing.write();
        let merge = self.still_wanted(merge)?;
        let mut chain = self.chain_of(merge.first_holder()?)?;
        // Before the only other place goes where its content is.
        if let Some(lower) = chain.manifest.layers.iter().find(|layer| layer.number() == merge.lower) {
            let file = chain.file(lower, Access::Read)?;
            chain.directory.sync_file(&file, lower.file())?;
        }
        chain.manifest.merged = Some(merge.upper);
        chain.write()?;
        self.after.took(Step::MergeNoted);
        self.forget_merged(chain, merge.upper)
    }

    /// Goes on with every merge that is done but for the forgetting, and removes what a failed attempt left.
    pub fn finish_noted(&self) -> Result<()> {
        for chain in self.all_chains()? {
            match chain.manifest.merged {
                Some(upper) => self.forget_merged(chain, upper)?,
                None if chain.has_nobodys()? => drop(chain.sweep()?),
                None => {}
            }
        }
        Ok(())
    }

    /// Takes a layer that this chain notes as merged from all chains, this one last.
    fn forget_merged(&self, mut noted: Chain, upper: u32) -> Result<()> {
        noted.settle()?;
        if let Some(file) = noted.files()?.into_iter().find(|file| file.number == upper) {
            let is_it = |other: &LayerFile| (other.number, other.inode) == (file.number, file.inode);
            for mut chain in self.all_chains()? {
                if holder(&chain) != holder(&noted) && chain.files()?.iter().any(is_it) {
                    self.forget_layer(&mut chain, upper)?;
                }
            }
        }
        noted.manifest.merged = None;
        self.forget_layer(&mut noted, upper)
    }

    fn forget_layer(&self, chain: &mut Chain, number: u32) -> Result<()> {
        chain.manifest.layers.retain(|layer| layer.number() != number);
        chain.write()?;
        self.after.took(Step::LayerDropped);
        chain.sweep()?;
        self.after.took(Step::LayerRemoved);
        Ok(())
    }

    /// The merge as it stands now; others may have come or gone that share the layers.
    fn still_wanted(&self, merge: &Merge) -> Result<Merge> {
        let wanted = self.mergeable()?.into_iter().find(|wanted| {
            (wanted.lower, wanted.upper) == (merge.lower, merge.upper)
                && wanted.holders.iter().any(|holder| merge.holders.contains(holder))
        });
        wanted.ok_or(VolumeError::NotMergeable { lower: merge.lower, upper: merge.upper })
    }

    fn chain_of(&self, holder: &Holder) -> Result<Chain> {
        match holder {
            Holder::Volume(id) => self.existing(id),
            Holder::Snapshot(id) => self.existing_snapshot(id),
        }
    }
}

impl Merge {
    fn first_holder(&self) -> Result<&Holder> {
        self.holders.first().ok_or(VolumeError::NotMergeable { lower: self.lower, upper: self.upper })
    }
}

fn holder(chain: &Chain) -> Holder {
    match &chain.owner {
        Owner::Volume(id) => Holder::Volume(id.clone()),
        Owner::Snapshot(id) => Holder::Snapshot(id.clone()),
    }
}
