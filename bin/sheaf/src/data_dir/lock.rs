//! One process per data directory, by a lock that dies with its holder.
//!
//! The kernel's lock on the file counts; the process id inside is for people. So a lock
//! left by a power cut or `kill -9` is no lock, and nobody has to clean up.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read, Seek, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use sheaf_pki::durable::PRIVATE;

/// What came of trying to lock a directory.
#[derive(Debug)]
pub(super) enum Attempt {
    /// Ours for as long as the file is open.
    Held(File),
    /// Another process has it. Its id is not there in the moment before it is written.
    Taken { pid: Option<u32> },
}

pub(super) fn take(path: &Path) -> io::Result<Attempt> {
    let mut file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(PRIVATE).open(path)?;
    match file.try_lock() {
        Ok(()) => {
            file.set_len(0)?;
            writeln!(file, "{}", std::process::id())?;
            Ok(Attempt::Held(file))
        }
        Err(TryLockError::WouldBlock) => Ok(Attempt::Taken { pid: read_pid(&mut file) }),
        Err(TryLockError::Error(why)) => Err(why),
    }
}

/// The process that holds the lock at `path`, if one does.
///
/// Looking takes a shared lock for an instant, which would refuse a node that starts in
/// that instant. So it is done only when the id in the file is of a process that lives.
pub(super) fn holder(path: &Path) -> Option<u32> {
    let mut file = File::open(path).ok()?;
    let pid = read_pid(&mut file)?;
    if !Path::new("/proc").join(pid.to_string()).exists() {
        return None;
    }
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)).then_some(pid)
}

fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_locked_once_and_free_again_when_its_holder_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("LOCK");
        assert_eq!(holder(&path), None);
        let held = take(&path).unwrap();
        assert!(matches!(held, Attempt::Held(_)));
        let own = std::process::id();
        assert!(matches!(take(&path).unwrap(), Attempt::Taken { pid: Some(pid) } if pid == own));
        assert_eq!(holder(&path), Some(own));
        drop(held);
        assert_eq!(holder(&path), None);
        assert!(matches!(take(&path).unwrap(), Attempt::Held(_)));
    }

    #[test]
    fn a_longer_id_left_by_another_process_does_not_show_through() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("LOCK");
        std::fs::write(&path, "4194304999999\n").unwrap();
        let _held = take(&path).unwrap();
        assert_eq!(holder(&path), Some(std::process::id()));
    }
}
