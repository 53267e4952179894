//! Space that is taken so that it can be given: a file of nothing, removed when the disk is full to the last byte.
//!
//! The cluster's own memory lies on the same file system as guests' disks. Without room for it, not even the order to delete
//! something could be written down.

use rustix::fs::FallocateFlags;

use crate::directory::{Directory, DiskError};

const FILE: &str = "ballast";
/// More than all orders take that it needs to make room.
pub const BYTES: u64 = 64 << 20;

/// Takes the space, if it is not taken. What cannot be taken whole is not taken.
pub fn take(directory: &Directory) -> Result<(), DiskError> {
    let found = directory.file(FILE, crate::directory::Access::Read)?;
    let bytes = found.and_then(|file| file.metadata().ok()).map_or(0, |metadata| metadata.len());
    if bytes >= BYTES {
        return Ok(());
    }
    directory.remove(FILE)?;
    let file = directory.make_file(FILE, 0o600)?;
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, BYTES).map_err(|why| {
        // The reason is worth more than what the cleaning up says.
        let _ = directory.remove(FILE);
        DiskError::new("reserve space in", &directory.path_of(FILE), why)
    })
}

/// Gives it; whether there was any.
pub fn give(directory: &Directory) -> Result<bool, DiskError> {
    directory.remove(FILE)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn the_space_is_really_taken_and_really_given() {
        let root = tempfile::tempdir().unwrap();
        let directory = Directory::open_by_path(root.path()).unwrap();
        assert!(!give(&directory).unwrap());
        for _ in 0..2 {
            take(&directory).unwrap();
            let taken = std::fs::metadata(root.path().join(FILE)).unwrap().blocks() * 512;
            assert!(taken >= BYTES, "{taken}");
        }
        assert!(give(&directory).unwrap());
        assert!(!root.path().join(FILE).exists());
    }
}
