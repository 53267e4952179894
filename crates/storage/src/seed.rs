//! Seeds: the small discs that cloud-init reads at a guest's first start.
//!
//! cloud-init looks for a file system by its label: `cidata` for NoCloud, `config-2` for
//! ConfigDrive. The same content gives the same bytes, so a seed can be compared
//! with what it should be.
//!
//! A seed holds passwords and keys: only root may read its file, and nobody but the
//! guest gets it.

mod iso9660;

use std::os::fd::OwnedFd;

use self::iso9660::Tree;
use crate::{
    AfterStep, SeedId, Step,
    directory::{Access, Directory, DiskError},
    turn::Turns,
};

const MAKING: &str = ".making-";

/// What NoCloud reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoCloud {
    pub meta_data: Vec<u8>,
    pub user_data: Vec<u8>,
    /// In the language of netplan or of cloud-init's own version 1.
    pub network_data: Option<Vec<u8>>,
}

/// What ConfigDrive reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigDrive {
    /// JSON.
    pub meta_data: Vec<u8>,
    pub user_data: Vec<u8>,
    /// OpenStack's JSON.
    pub network_data: Option<Vec<u8>>,
}

/// A disc with the label `cidata`.
pub fn no_cloud(content: &NoCloud) -> Vec<u8> {
    let mut tree = Tree::default();
    tree.add("meta-data", &content.meta_data);
    // cloud-init ignores a disc without user data, empty or not.
    tree.add("user-data", &content.user_data);
    if let Some(network_data) = &content.network_data {
        tree.add("network-config", network_data);
    }
    tree.into_disc("cidata")
}

/// A disc with the label `config-2`.
pub fn config_drive(content: &ConfigDrive) -> Vec<u8> {
    let mut tree = Tree::default();
    tree.add("openstack/latest/meta_data.json", &content.meta_data);
    tree.add("openstack/latest/user_data", &content.user_data);
    if let Some(network_data) = &content.network_data {
        tree.add("openstack/latest/network_data.json", network_data);
    }
    tree.into_disc("config-2")
}

#[derive(Debug)]
pub(crate) struct Seeds {
    directory: Directory,
    turns: Turns<SeedId>,
    after: AfterStep,
}

impl Seeds {
    pub fn new(directory: Directory, after: AfterStep) -> Seeds {
        Seeds { directory, turns: Turns::default(), after }
    }

    pub fn is_leftover(name: &str) -> bool {
        name.starts_with(MAKING)
    }

    pub fn write(&self, id: &SeedId, disc: &[u8]) -> Result<(), DiskError> {
        let _turn = self.turns.take(id);
        let making = format!("{MAKING}{id}");
        self.directory.remove(&making)?;
        self.directory.write_new(&making, disc)?;
        self.after.took(Step::SeedWritten);
        self.directory.rename(&making, id.as_str())?;
        self.after.took(Step::SeedPublished);
        self.directory.sync()
    }

    pub fn open(&self, id: &SeedId) -> Result<Option<OwnedFd>, DiskError> {
        Ok(self.directory.file(id.as_str(), Access::Read)?.map(OwnedFd::from))
    }

    pub fn list(&self) -> Result<Vec<SeedId>, DiskError> {
        Ok(self.directory.names()?.iter().filter_map(|name| name.parse().ok()).collect())
    }

    pub fn delete(&self, id: &SeedId) -> Result<(), DiskError> {
        let _turn = self.turns.take(id);
        if self.directory.remove(id.as_str())? {
            self.directory.sync()?;
            self.after.took(Step::SeedRemoved);
        }
        Ok(())
    }
}
