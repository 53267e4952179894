//! Files that are either the old one or the new one, never half of either.
//!
//! A write goes to a temporary name in the same directory, is synced, renamed over
//! the old file, and then the directory is synced too: after a power cut at any
//! point a reader finds one whole version. The temporary file that such a cut can
//! leave behind is overwritten by the next write of the same name.
//!
//! Deliberately absent: locking. Two writers of one file would both be whole, and
//! the last would win; the data directory's lock keeps there from being two.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// Only the owner may read and write it: keys, passwords, kubeconfigs.
pub const PRIVATE: u32 = 0o600;
/// Anyone who can reach it may read it: certificates.
pub const PUBLIC: u32 = 0o644;

/// Replaces `path` with `content`, readable as `mode` says from its first byte on.
pub fn replace(path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    let temporary = temporary_name(path)?;
    // Whatever a crash left there may have another mode, which opening would keep.
    match fs::remove_file(&temporary) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
    // The process's umask may have taken bits away.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    sync_directory_of(path)
}

/// Makes `path` (and what is missing above it) a directory that only its owner may enter.
pub fn ensure_private_directory(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    sync_directory_of(path)
}

/// Takes away from group and others whatever they may do with `path`.
/// Says which mode it had when there was something to take away.
pub fn make_private(path: &Path) -> io::Result<Option<u32>> {
    let mode = fs::metadata(path)?.permissions().mode() & 0o7777;
    if mode & 0o077 == 0 {
        return Ok(None);
    }
    fs::set_permissions(path, Permissions::from_mode(mode & 0o700))?;
    Ok(Some(mode))
}

/// Whether `name` is one that [`replace`] gives to a file it has not finished.
pub fn is_temporary(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(".new")
}

fn temporary_name(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("{} names no file", path.display()))
    })?;
    Ok(path.with_file_name(format!(".{name}.new")))
}

fn sync_directory_of(path: &Path) -> io::Result<()> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(parent)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode_of(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn what_a_crash_left_behind_is_replaced_and_its_mode_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        fs::write(dir.path().join(".secret.new"), "half of som").unwrap();
        replace(&path, PRIVATE, b"whole").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert_eq!(mode_of(&path), 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_could_not_be_written_leaves_the_old_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        replace(&path, PRIVATE, b"old").unwrap();
        fs::create_dir(dir.path().join(".secret.new")).unwrap();
        replace(&path, PRIVATE, b"new").unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"old");
    }

    #[test]
    fn a_file_open_to_others_is_closed_and_its_mode_told_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        replace(&path, 0o640, b"k").unwrap();
        assert_eq!(make_private(&path).unwrap(), Some(0o640));
        assert_eq!(mode_of(&path), 0o600);
        assert_eq!(make_private(&path).unwrap(), None);
    }

    #[test]
    fn a_private_directory_is_closed_to_others_and_made_only_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        ensure_private_directory(&path).unwrap();
        assert_eq!(mode_of(&path), 0o700);
        ensure_private_directory(&path).unwrap();
    }
}
