//! One machine's directory on the host: everything that is known about it after we are
//! gone.
//!
//! ```text
//!   machines/<id>/            root's, mode 0700
//!     lock                    held (flock) as long as a process of this machine lives
//!     machine.json            what it is, and whom it runs as
//!     process                 the number of its process, written by the launcher
//!     monitor tools serial guest-agent     sockets on which QEMU listens
//!     log                     what QEMU said
//! ```
//!
//! `machine.json` and `process` are written under another name, then renamed, so each is
//! there whole or not at all.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FlockOperation, Mode, OFlags},
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType},
};
use serde::{Deserialize, Serialize};

use crate::{
    descriptors::DescriptorName,
    machine::{Machine, MachineId},
    process::ProcessRecord,
    user_ids::Identity,
};

#[derive(Clone, Debug)]
pub struct MachineDirectory {
    path: PathBuf,
}

/// `machine.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Definition {
    pub machine: Machine,
    /// Whom it runs as; none for the same user as we are.
    pub identity: Option<Identity>,
}

/// Held while anything of the machine may change. Passing it on to a process
/// keeps it held until that process is gone too.
#[derive(Debug)]
pub struct MachineLock(File);

impl MachineDirectory {
    pub fn new(machines: &Path, id: &MachineId) -> MachineDirectory {
        MachineDirectory { path: machines.join(id.as_str()) }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn process_file(&self) -> PathBuf {
        self.path.join("process")
    }

    pub fn log_file(&self) -> PathBuf {
        self.path.join("log")
    }

    pub fn exists(&self) -> bool {
        self.path.is_dir()
    }

    pub fn make(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.path)
    }

    /// Takes the lock if nobody has it.
    pub fn try_lock(&self) -> io::Result<Option<MachineLock>> {
        let path = self.path.join("lock");
        loop {
            let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path)?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
                Err(why) => return Err(why.into()),
            }
            // Whoever had it before may have removed the file: what we then hold is the lock
            // of nothing, and the next one would make a new file and hold that.
            let held = file.metadata()?;
            match fs::metadata(&path) {
                Ok(there) if (there.dev(), there.ino()) == (held.dev(), held.ino()) => {
                    return Ok(Some(MachineLock(file)));
                }
                Ok(_) => {}
                Err(why) if why.kind() == io::ErrorKind::NotFound => {}
                Err(why) => return Err(why),
            }
        }
    }

    /// Whether somebody has the lock. A machine that was never locked is not.
    pub fn is_locked(&self) -> io::Result<bool> {
        let file = match File::open(self.path.join("lock")) {
            Ok(file) => file,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(why) => return Err(why),
        };
        // Shared, so that two who look do not take each other for the machine.
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(false),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(true),
            Err(why) => Err(why.into()),
        }
    }

    pub fn definition(&self) -> io::Result<Option<Definition>> {
        read_json(&self.path.join("machine.json"))
    }

    /// The same, without reading what machine it is.
    pub fn identity(&self) -> io::Result<Option<Identity>> {
        #[derive(Deserialize)]
        struct Only {
            identity: Option<Identity>,
        }
        let found: Option<Only> = read_json(&self.path.join("machine.json"))?;
        Ok(found.and_then(|found| found.identity))
    }

    pub fn write_definition(&self, definition: &Definition) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(definition)?;
        let unfinished = self.path.join("machine.json.new");
        let mut file =
            OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&unfinished)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&unfinished, self.path.join("machine.json"))?;
        File::open(&self.path)?.sync_all()
    }

    pub fn process(&self) -> io::Result<Option<ProcessRecord>> {
        match read_json(&self.process_file()) {
            // It is renamed into its place whole: only a power cut tears it, and that ended the process, too.
            Err(why) if matches!(why.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) => {
                Ok(Some(ProcessRecord::of_nobody()))
            }
            read => read,
        }
    }

    /// Removes what a run of the machine leaves: its process's number and its sockets.
    pub fn clear_run(&self) -> io::Result<()> {
        for file in ["process", "process.new", "monitor", "tools", "serial", "guest-agent"] {
            remove_file(&self.path.join(file))?;
        }
        Ok(())
    }

    /// Removes everything but the lock.
    pub fn clear(&self) -> io::Result<()> {
        self.clear_run()?;
        for file in ["log", "machine.json.new", "machine.json"] {
            remove_file(&self.path.join(file))?;
        }
        Ok(())
    }

    /// Removes the lock, then the directory. Whoever waits for the lock finds out that what
    /// it got is no longer there.
    pub fn remove(&self) -> io::Result<()> {
        remove_file(&self.path.join("lock"))?;
        match fs::remove_dir(&self.path) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => Err(why),
            _ => Ok(()),
        }
    }

    /// A socket in this directory, listening.
    pub fn bind(&self, socket: &DescriptorName) -> io::Result<OwnedFd> {
        let (directory, address) = self.address(socket)?;
        let listener =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        rustix::net::bind(&listener, &address)?;
        rustix::net::listen(&listener, 8)?;
        drop(directory);
        Ok(listener)
    }

    /// A connection to whoever listens on a socket in this directory.
    pub fn connect(&self, socket: &DescriptorName) -> io::Result<std::os::unix::net::UnixStream> {
        let (directory, address) = self.address(socket)?;
        let connection =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        // Never waits: the kernel accepts on QEMU's behalf, or its queue is full.
        rustix::io::ioctl_fionbio(&connection, true)?;
        rustix::net::connect(&connection, &address)?;
        drop(directory);
        Ok(connection.into())
    }

    /// The address of a socket may be 107 bytes long; a data directory may be longer. So it
    /// is reached through an open descriptor of the directory.
    fn address(&self, socket: &DescriptorName) -> io::Result<(OwnedFd, SocketAddrUnix)> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&self.path, flags, Mode::empty())?;
        let path = format!("/proc/self/fd/{}/{socket}", directory.as_raw_fd());
        let address = SocketAddrUnix::new(path.as_str())?;
        Ok((directory, address))
    }
}

impl MachineLock {
    /// A second handle on the same lock, for a process that is about to be started.
    pub fn share(&self) -> io::Result<OwnedFd> {
        Ok(self.0.try_clone()?.into())
    }
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs::read(path) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(why) => Err(why),
    }
}

fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => Err(why),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(root: &Path) -> MachineDirectory {
        let directory = MachineDirectory::new(root, &"a".parse().unwrap());
        directory.make().unwrap();
        directory
    }

    #[test]
    fn a_lock_is_held_until_its_last_holder_lets_go() {
        let root = tempfile::tempdir().unwrap();
        let directory = directory(root.path());
        assert!(!directory.is_locked().unwrap());

        let lock = directory.try_lock().unwrap().unwrap();
        let shared = lock.share().unwrap();
        drop(lock);
        assert!(directory.is_locked().unwrap());
        assert!(directory.try_lock().unwrap().is_none());

        drop(shared);
        assert!(!directory.is_locked().unwrap());
        assert!(directory.try_lock().unwrap().is_some());
    }

    #[test]
    fn the_lock_of_a_directory_that_was_removed_is_not_the_lock_of_the_next() {
        let root = tempfile::tempdir().unwrap();
        let directory = directory(root.path());
        let old = directory.try_lock().unwrap().unwrap();
        directory.remove().unwrap();
        directory.make().unwrap();
        let new = directory.try_lock().unwrap();
        assert!(new.is_some(), "a lock on a removed file was taken for the machine's");
        drop(old);
        assert!(directory.is_locked().unwrap());
    }

    #[test]
    fn a_process_file_torn_by_a_power_cut_is_of_a_process_that_is_gone() {
        let root = tempfile::tempdir().unwrap();
        let directory = directory(root.path());
        assert_eq!(directory.process().unwrap(), None);
        for torn in ["", "{\"pid\": 1", "\0\0\0\0"] {
            fs::write(directory.process_file(), torn).unwrap();
            let process = directory.process().unwrap().unwrap();
            assert!(!process.lives(), "{torn:?}");
            process.kill().unwrap();
        }
    }

    #[test]
    fn sockets_work_however_long_the_path_is() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("d".repeat(100)).join("e".repeat(100));
        let directory = directory(&deep);
        let listener = directory.bind(&DescriptorName::MonitorSocket).unwrap();
        directory.connect(&DescriptorName::MonitorSocket).unwrap();
        drop(listener);
        assert!(directory.connect(&DescriptorName::MonitorSocket).is_err());
    }
}
