//! Where the files of support bundles are: one directory, root's alone, bounded in number and in what must stay free.
//!
//! ```text
//!   support-bundles/<uid>.zip    whole
//!   support-bundles/<uid>.new    being made; worth nothing after a crash
//! ```

use std::{
    collections::BTreeSet,
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// So many files are kept on one node.
const MOST_KEPT: usize = 8;
/// The largest file, packed.
pub(super) const MOST_BYTES: u64 = 512 << 20;
/// The store and the disks of machines are on the same file system, and need it more.
const STAYS_FREE: u64 = 512 << 20;

#[derive(Debug, thiserror::Error)]
pub enum ShelfError {
    #[error("{0:?} is not a uid")]
    Uid(String),
    #[error("this node keeps {0} support bundles already: fetch or delete some")]
    Full(usize),
    #[error(
        "the disk of this node has {free} bytes left, and a support bundle may need {needed}: make room first"
    )]
    NoRoom { free: u64, needed: u64 },
    #[error("cannot {attempt} {path}")]
    Disk {
        attempt: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

#[derive(Debug)]
pub struct BundleShelf {
    data_dir: PathBuf,
    directory: PathBuf,
}

impl BundleShelf {
    pub fn open(data_dir: &Path) -> Result<BundleShelf, ShelfError> {
        let directory = data_dir.join("support-bundles");
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&directory);
        made.map_err(|source| failed("make", &directory, source))?;
        Ok(BundleShelf { data_dir: data_dir.to_owned(), directory })
    }

    pub(super) fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// A file to write a bundle to; what an earlier attempt left is gone.
    pub(super) fn begin(&self, uid: &str) -> Result<File, ShelfError> {
        self.remove(uid)?;
        let others = self.uids()?.len();
        if others >= MOST_KEPT {
            return Err(ShelfError::Full(others));
        }
        let space = rustix::fs::statvfs(&self.directory);
        let space = space.map_err(|why| failed("look at", &self.directory, why.into()))?;
        let (free, needed) = (space.f_bavail.saturating_mul(space.f_frsize), MOST_BYTES / 8 + STAYS_FREE);
        if free < needed {
            return Err(ShelfError::NoRoom { free, needed });
        }
        let path = self.path(uid, "new")?;
        let made = OpenOptions::new().create_new(true).read(true).write(true).mode(0o600).open(&path);
        made.map_err(|source| failed("make", &path, source))
    }

    /// Gives a file that is complete its name, once its bytes are on the disk.
    pub(super) fn keep(&self, file: File, uid: &str) -> Result<(), ShelfError> {
        let (unfinished, path) = (self.path(uid, "new")?, self.path(uid, "zip")?);
        let keep = || {
            file.sync_all()?;
            fs::rename(&unfinished, &path)?;
            File::open(&self.directory)?.sync_all()
        };
        keep().map_err(|source| failed("keep", &path, source))
    }

    /// Bytes of a whole file; none where there is none.
    pub(super) fn size(&self, uid: &str) -> Result<Option<u64>, ShelfError> {
        let path = self.path(uid, "zip")?;
        match fs::metadata(&path) {
            Ok(about) => Ok(Some(about.len())),
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(failed("look at", &path, source)),
        }
    }

    /// A whole file and its length; none where there is none.
    pub fn read(&self, uid: &str) -> Result<Option<(File, u64)>, ShelfError> {
        let path = self.path(uid, "zip")?;
        let open = || {
            let file = File::open(&path)?;
            let length = file.metadata()?.len();
            Ok::<_, io::Error>((file, length))
        };
        match open() {
            Ok(open) => Ok(Some(open)),
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(failed("read", &path, source)),
        }
    }

    /// Removes all there is of a bundle. Whoever is reading it reads on.
    pub(super) fn remove(&self, uid: &str) -> Result<(), ShelfError> {
        for ending in ["new", "zip"] {
            let path = self.path(uid, ending)?;
            match fs::remove_file(&path) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(failed("remove", &path, source));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Every bundle that there is something of.
    pub(super) fn uids(&self) -> Result<BTreeSet<String>, ShelfError> {
        let unreadable = |source| failed("list", &self.directory, source);
        let mut uids = BTreeSet::new();
        for entry in fs::read_dir(&self.directory).map_err(unreadable)? {
            let name = entry.map_err(unreadable)?.file_name();
            let Some((uid, "zip" | "new")) = name.to_str().and_then(|name| name.rsplit_once('.')) else {
                continue;
            };
            uids.insert(uid.to_owned());
        }
        Ok(uids)
    }

    fn path(&self, uid: &str, ending: &str) -> Result<PathBuf, ShelfError> {
        let is_uid = (1..=63).contains(&uid.len())
            && uid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        match is_uid {
            true => Ok(self.directory.join(format!("{uid}.{ending}"))),
            false => Err(ShelfError::Uid(uid.to_owned())),
        }
    }
}

fn failed(attempt: &'static str, path: &Path, source: io::Error) -> ShelfError {
    ShelfError::Disk { attempt, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_has_its_name_is_whole_and_what_was_begun_begins_anew() {
        let directory = tempfile::tempdir().unwrap();
        let shelf = BundleShelf::open(directory.path()).unwrap();
        shelf.begin("a").unwrap().write_all(b"half").unwrap();
        assert_eq!(shelf.size("a").unwrap(), None);
        assert!(shelf.read("a").unwrap().is_none());
        let shelf = BundleShelf::open(directory.path()).unwrap();
        let mut again = shelf.begin("a").unwrap();
        again.write_all(b"all of it").unwrap();
        shelf.keep(again, "a").unwrap();
        assert_eq!(shelf.size("a").unwrap(), Some(9));
        assert_eq!(shelf.uids().unwrap(), BTreeSet::from(["a".to_owned()]));
        shelf.remove("a").unwrap();
        shelf.remove("a").unwrap();
        assert!(fs::read_dir(directory.path().join("support-bundles")).unwrap().next().is_none());
    }

    #[test]
    fn a_name_that_is_no_uid_goes_nowhere() {
        let directory = tempfile::tempdir().unwrap();
        let shelf = BundleShelf::open(directory.path()).unwrap();
        fs::write(directory.path().join("x.zip"), "precious").unwrap();
        for uid in ["../x", "..", ".", "", "a/b", "a\0b", &"a".repeat(64)] {
            assert!(matches!(shelf.read(uid), Err(ShelfError::Uid(_))), "{uid}");
            assert!(matches!(shelf.remove(uid), Err(ShelfError::Uid(_))), "{uid}");
            assert!(matches!(shelf.begin(uid), Err(ShelfError::Uid(_))), "{uid}");
        }
        assert!(directory.path().join("x.zip").exists());
    }

    #[test]
    fn no_more_are_kept_than_a_few() {
        let directory = tempfile::tempdir().unwrap();
        let shelf = BundleShelf::open(directory.path()).unwrap();
        for number in 0..MOST_KEPT {
            let uid = format!("b{number}");
            shelf.keep(shelf.begin(&uid).unwrap(), &uid).unwrap();
        }
        let why = shelf.begin("one-more").unwrap_err().to_string();
        assert!(why.contains("keeps 8 support bundles already"), "{why}");
        shelf.begin("b0").unwrap();
    }
}
