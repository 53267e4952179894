//! A directory that is held open, and files in it by name.
//!
//! Everything is reached from an open descriptor, one name at a time, and no name is
//! followed if it is a symbolic link. So whatever somebody plants below the data
//! directory, nothing outside of it is read, written or removed.
//!
//! A directory entry survives a power cut once [`Directory::sync`] returned.

use std::{
    fs::{DirBuilder, File},
    io::{self, Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::DirBuilderExt,
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags},
    io::Errno,
};
use serde::{Serialize, de::DeserializeOwned};

use crate::sync::Syncs;

/// What was attempted on the disk and on what.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {path}")]
pub struct DiskError {
    doing: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl DiskError {
    pub(crate) fn new(doing: &'static str, path: &Path, source: impl Into<io::Error>) -> DiskError {
        DiskError { doing, path: path.to_owned(), source: source.into() }
    }

    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }

    /// Whether what was read is not what was written: cut short, garbled, or on a part of the disk that is no more.
    pub fn is_damage(&self) -> bool {
        matches!(self.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
            || self.source.raw_os_error() == Some(Errno::IO.raw_os_error())
    }
}

/// No manifest is anywhere near this long; what is would be read into memory.
const MOST_JSON: u64 = 1 << 20;

const PRIVATE_DIRECTORY: Mode = Mode::RWXU;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    ReadWrite,
}

#[derive(Debug)]
pub struct Directory {
    descriptor: OwnedFd,
    /// For messages only.
    path: PathBuf,
    syncs: Syncs,
}

impl Directory {
    /// The one directory that is reached by path, and that may be a link: it is the
    /// operator's to choose.
    pub fn open_by_path(path: &Path) -> Result<Directory, DiskError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(|why| DiskError::new("make the directory", path, why))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|why| DiskError::new("open the directory", path, why))?;
        Ok(Directory { descriptor, path: path.to_owned(), syncs: Syncs::default() })
    }

    /// The same, and everything in it, with somebody who decides about each sync.
    pub fn syncing(self, syncs: Syncs) -> Directory {
        Directory { syncs, ..self }
    }

    pub fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn failed(&self, doing: &'static str, name: &str, why: Errno) -> DiskError {
        DiskError::new(doing, &self.path.join(name), why)
    }

    pub fn directory(&self, name: &str) -> Result<Option<Directory>, DiskError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.descriptor, name, flags, Mode::empty()) {
            Ok(descriptor) => {
                Ok(Some(Directory { descriptor, path: self.path.join(name), syncs: self.syncs.clone() }))
            }
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) => Err(DiskError::new(
                "open the directory",
                &self.path.join(name),
                io::Error::new(
                    io::ErrorKind::NotADirectory,
                    "it is not a directory, and links are not followed here",
                ),
            )),
            Err(why) => Err(self.failed("open the directory", name, why)),
        }
    }

    pub fn make_directory(&self, name: &str) -> Result<Directory, DiskError> {
        rustix::fs::mkdirat(&self.descriptor, name, PRIVATE_DIRECTORY)
            .map_err(|why| self.failed("make the directory", name, why))?;
        self.directory(name)?.ok_or_else(|| self.failed("open the directory", name, Errno::NOENT))
    }

    pub fn ensure_directory(&self, name: &str) -> Result<Directory, DiskError> {
        let Some(directory) = self.directory(name)? else { return self.make_directory(name) };
        rustix::fs::fchmod(&directory.descriptor, PRIVATE_DIRECTORY)
            .map_err(|why| self.failed("close to others", name, why))?;
        Ok(directory)
    }

    /// Opens a regular file; anything else under that name is refused.
    pub fn file(&self, name: &str, access: Access) -> Result<Option<File>, DiskError> {
        let access = match access {
            Access::Read => OFlags::RDONLY,
            Access::ReadWrite => OFlags::RDWR,
        };
        // A pipe somebody put there would otherwise make us wait for its other end.
        let flags = access | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let descriptor = match rustix::fs::openat(&self.descriptor, name, flags, Mode::empty()) {
            Ok(descriptor) => descriptor,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => return Err(self.not_a_file(name)),
            Err(why) => return Err(self.failed("open", name, why)),
        };
        let found = rustix::fs::fstat(&descriptor).map_err(|why| self.failed("look at", name, why))?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(self.not_a_file(name));
        }
        rustix::fs::fcntl_setfl(&descriptor, access).map_err(|why| self.failed("open", name, why))?;
        Ok(Some(descriptor.into()))
    }

    fn not_a_file(&self, name: &str) -> DiskError {
        let why = io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not an ordinary file, and links are not followed here",
        );
        DiskError::new("open", &self.path.join(name), why)
    }

    /// A new file that only we may open.
    pub fn make_file(&self, name: &str, mode: u32) -> Result<File, DiskError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let descriptor = rustix::fs::openat(&self.descriptor, name, flags, Mode::from_raw_mode(mode))
            .map_err(|why| self.failed("make", name, why))?;
        Ok(descriptor.into())
    }

    pub fn write_new(&self, name: &str, content: &[u8]) -> Result<(), DiskError> {
        let mut file = self.make_file(name, 0o600)?;
        file.write_all(content).map_err(|why| DiskError::new("write", &self.path.join(name), why))?;
        self.sync_file(&file, name)
    }

    /// Brings all of a file of this directory to the disk.
    pub fn sync_file(&self, file: &File, name: &str) -> Result<(), DiskError> {
        let path = self.path.join(name);
        self.syncs.file(file, &path).map_err(|why| DiskError::new("write", &path, why))
    }

    pub fn write_new_json(&self, name: &str, value: &impl Serialize) -> Result<(), DiskError> {
        let text = serde_json::to_vec_pretty(value)
            .map_err(|why| DiskError::new("write", &self.path.join(name), io::Error::from(why)))?;
        self.write_new(name, &text)
    }

    pub fn read_json<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, DiskError> {
        let Some(file) = self.file(name, Access::Read)? else { return Ok(None) };
        let failed = |why: io::Error| DiskError::new("read", &self.path.join(name), why);
        let mut text = Vec::new();
        file.take(MOST_JSON).read_to_end(&mut text).map_err(failed)?;
        Ok(Some(serde_json::from_slice(&text).map_err(|why| failed(why.into()))?))
    }

    /// Gives a file of another directory a second name here.
    pub fn link(&self, name: &str, from: &Directory, from_name: &str) -> Result<(), DiskError> {
        rustix::fs::linkat(&from.descriptor, from_name, &self.descriptor, name, AtFlags::empty()).map_err(
            |why| match why {
                Errno::XDEV => DiskError::new(
                    "link",
                    &self.path.join(name),
                    io::Error::new(
                        io::ErrorKind::CrossesDevices,
                        "images and volumes must be on one file system",
                    ),
                ),
                why => self.failed("link", name, why),
            },
        )
    }

    pub fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        rustix::fs::renameat(&self.descriptor, from, &self.descriptor, to)
            .map_err(|why| self.failed("rename", from, why))
    }

    /// Brings a rename to the disk. One that does not get there is undone: what was not acknowledged is not found.
    pub fn settle_rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        self.sync().inspect_err(|_| {
            let _ = self.rename(to, from);
        })
    }

    pub fn sync(&self) -> Result<(), DiskError> {
        self.syncs
            .directory(&self.descriptor, &self.path)
            .map_err(|why| DiskError::new("sync", &self.path, why))
    }

    /// What is there, in order.
    pub fn names(&self) -> Result<Vec<String>, DiskError> {
        let failed = |why| self.failed("list", "", why);
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.descriptor).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            // What is not even text was not made by us.
            let Ok(name) = entry.file_name().to_str() else { continue };
            if name != "." && name != ".." {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Removes whatever has that name, with all that is in it. Whether there was anything.
    pub fn remove(&self, name: &str) -> Result<bool, DiskError> {
        match rustix::fs::unlinkat(&self.descriptor, name, AtFlags::empty()) {
            Ok(()) => return Ok(true),
            Err(Errno::NOENT) => return Ok(false),
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(why) => return Err(self.failed("remove", name, why)),
        }
        let Some(directory) = self.directory(name)? else { return Ok(false) };
        for inside in directory.names()? {
            directory.remove(&inside)?;
        }
        rustix::fs::unlinkat(&self.descriptor, name, AtFlags::REMOVEDIR)
            .map_err(|why| self.failed("remove", name, why))?;
        Ok(true)
    }

    /// All bytes of the file system, and those that can still be written.
    pub fn space(&self) -> Result<(u64, u64), DiskError> {
        let found = rustix::fs::fstatvfs(self.descriptor.as_fd())
            .map_err(|why| self.failed("ask for the space left on", "", why))?;
        Ok((found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn neither_a_link_nor_a_pipe_nor_a_device_is_opened_as_a_file() {
        let root = tempfile::tempdir().unwrap();
        let directory = Directory::open_by_path(root.path()).unwrap();
        symlink("/etc/passwd", root.path().join("link")).unwrap();
        let fifo = FileType::Fifo;
        rustix::fs::mknodat(&directory.descriptor, "pipe", fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        std::fs::create_dir(root.path().join("directory")).unwrap();
        for name in ["link", "pipe", "directory"] {
            directory.file(name, Access::Read).unwrap_err();
        }
        assert!(directory.file("absent", Access::Read).unwrap().is_none());
    }

    #[test]
    fn a_link_is_not_entered_and_only_the_link_is_removed() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(outside.path().join("precious"), "x").unwrap();
        let directory = Directory::open_by_path(root.path()).unwrap();
        symlink(outside.path(), root.path().join("link")).unwrap();
        directory.directory("link").unwrap_err();
        directory.ensure_directory("link").unwrap_err();

        let inner = directory.make_directory("inner").unwrap();
        symlink(outside.path(), root.path().join("inner/link")).unwrap();
        drop(inner);
        assert!(directory.remove("inner").unwrap());
        assert!(directory.remove("link").unwrap());
        assert!(!directory.remove("link").unwrap());
        assert!(outside.path().join("precious").exists());
    }

    #[test]
    fn a_file_is_made_once_and_never_through_a_link() {
        let root = tempfile::tempdir().unwrap();
        let directory = Directory::open_by_path(root.path()).unwrap();
        symlink(root.path().join("elsewhere"), root.path().join("link")).unwrap();
        directory.make_file("link", 0o600).unwrap_err();
        directory.write_new("file", b"x").unwrap();
        directory.write_new("file", b"y").unwrap_err();
        assert!(!root.path().join("elsewhere").exists());
    }
}
