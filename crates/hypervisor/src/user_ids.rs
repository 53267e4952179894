//! The user id under which each QEMU runs: one of its own, so that no two machines can
//! touch each other's processes or files.
//!
//! Ids are not asked of the host's user database. They come from a range that neither
//! Debian nor systemd hand out, cut into blocks, one block per data directory, so that
//! several nodes can live on one kernel. A machine's id is written into its
//! definition and is free again when the machine is forgotten.

use std::{collections::BTreeSet, os::unix::ffi::OsStrExt, path::Path};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Above what systemd gives to containers, below where ids turn negative in old programs.
const RANGE: std::ops::Range<u32> = 0x7000_0000..0x8000_0000;
/// How many machines one data directory can have at a time.
const BLOCK: u32 = 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserIds {
    /// Every machine runs as whoever calls: the way without privileges.
    Same,
    /// Every machine has an id from `base` on.
    Range { base: u32, count: u32 },
}

/// Whom a QEMU runs as. The group has the same number, except where a device of the
/// host's is open only to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub uid: u32,
    pub gid: u32,
}

impl UserIds {
    /// The block that belongs to this data directory, or nothing to choose from when the
    /// caller is not privileged.
    pub fn for_directory(directory: &Path) -> UserIds {
        if !rustix::process::geteuid().is_root() {
            return UserIds::Same;
        }
        let digest = Sha256::digest(directory.as_os_str().as_bytes());
        let number = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
        let blocks = (RANGE.end - RANGE.start) / BLOCK;
        UserIds::Range { base: RANGE.start + number % blocks * BLOCK, count: BLOCK }
    }

    /// The lowest id that nobody has. `None` inside when all run as the caller, `None`
    /// outside when every id is taken.
    pub fn choose(&self, taken: &BTreeSet<u32>) -> Option<Option<u32>> {
        match *self {
            UserIds::Same => Some(None),
            UserIds::Range { base, count } => {
                (base..base.saturating_add(count)).find(|id| !taken.contains(id)).map(Some)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_machines_share_an_id_and_a_full_range_says_so() {
        let ids = UserIds::Range { base: 1000, count: 3 };
        let mut taken = BTreeSet::new();
        for expected in [1000, 1001, 1002] {
            let id = ids.choose(&taken).unwrap().unwrap();
            assert_eq!(id, expected);
            taken.insert(id);
        }
        assert_eq!(ids.choose(&taken), None);
        taken.remove(&1001);
        assert_eq!(ids.choose(&taken), Some(Some(1001)));
    }

    #[test]
    fn blocks_of_data_directories_lie_in_the_range() {
        for name in ["/var/lib/sheaf", "/var/lib/sheaf2", "/"] {
            if let UserIds::Range { base, count } = UserIds::for_directory(Path::new(name)) {
                assert!(RANGE.contains(&base) && base + count <= RANGE.end);
                assert_eq!((base - RANGE.start) % BLOCK, 0);
            }
        }
    }
}
