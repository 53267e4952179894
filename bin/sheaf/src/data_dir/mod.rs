//! The node's data directory: made private, held by one process, in a known format.
//!
//! What survives a crash: everything. The lock dies with its holder, files are replaced
//! whole, and a migration that was cut short goes on at the next start.

mod format;
mod layout;
mod lock;

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

pub use layout::Layout;
use lock::Attempt;
use sheaf_cli::BadSetting;
use sheaf_pki::durable;
use tracing::warn;

/// A data directory that is ours until this is dropped.
#[derive(Debug)]
pub struct DataDir {
    layout: Layout,
    /// Kept open: the lock lives as long as this.
    _lock: File,
}

/// Why a data directory was not opened.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    #[error(transparent)]
    Unusable(BadSetting),
    #[error("another process{} already runs on {path}: stop it first, or start this one with another --data-dir",
            pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default())]
    InUse { path: PathBuf, pid: Option<u32> },
    #[error(
        "the data directory {path} was written by a newer Sheaf (format {format}; this one knows up to {known}): \
         use that version or restore a backup"
    )]
    Newer { path: PathBuf, format: u32, known: u32 },
    #[error(
        "the data directory {path} has format {format}, from which there is no way to today's: restore a backup"
    )]
    TooOld { path: PathBuf, format: u32 },
    #[error("{path} holds {text:?} where the number of a format should be: restore a backup")]
    FormatUnreadable { path: PathBuf, text: String },
    #[error(
        "cannot migrate the data directory from format {from} ({what}); nothing is lost, it goes on from there"
    )]
    Migrate {
        from: u32,
        what: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot write {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl DataDir {
    /// Makes the directory if need be, takes it for this process and brings it to
    /// today's format.
    pub fn open(path: &Path) -> Result<DataDir, DataDirError> {
        let layout = Layout::new(path);
        if path.exists() && !path.is_dir() {
            return Err(unusable(path, "it is not a directory"));
        }
        durable::ensure_private_directory(path)
            .map_err(|why| unusable(path, &format!("it cannot be made: {why}")))?;
        // Before the lock is written: what is not ours stays as it was.
        format::refuse_foreign(&layout)?;
        let lock = match lock::take(&layout.lock()) {
            Ok(Attempt::Held(lock)) => lock,
            Ok(Attempt::Taken { pid }) => return Err(DataDirError::InUse { path: path.to_owned(), pid }),
            Err(why) => return Err(unusable(path, &format!("it cannot be written: {why}"))),
        };
        format::bring_up_to_date(&layout)?;
        for directory in [layout.pki(), layout.keys()] {
            durable::ensure_private_directory(&directory)
                .map_err(|source| DataDirError::Write { path: directory, source })?;
        }
        close_to_others(path)?;
        Ok(DataDir { layout, _lock: lock })
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }
}

/// The process that runs on the directory, if one does.
pub fn holder(layout: &Layout) -> Option<u32> {
    lock::holder(&layout.lock())
}

impl DataDirError {
    fn not_ours(path: &Path, found: &str) -> DataDirError {
        unusable(path, &format!("it is not empty (it holds `{found}`) and no node has written it"))
    }
}

fn unusable(path: &Path, problem: &str) -> DataDirError {
    let fits = "an empty directory, one that a node has used before, or one that does not exist yet";
    DataDirError::Unusable(BadSetting::new("--data-dir", path.display(), problem, fits))
}

fn close_to_others(path: &Path) -> Result<(), DataDirError> {
    match durable::make_private(path) {
        Ok(None) => Ok(()),
        Ok(Some(mode)) => {
            warn!(path = %path.display(), "others could enter the data directory (mode {mode:03o}); it is now 0700");
            Ok(())
        }
        Err(source) => Err(DataDirError::Write { path: path.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn a_new_directory_is_private_and_a_second_process_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/sheaf");
        let open = DataDir::open(&path).unwrap();
        for made in [path.clone(), open.layout().pki(), open.layout().keys()] {
            assert_eq!(fs::metadata(&made).unwrap().permissions().mode() & 0o777, 0o700, "{made:?}");
        }
        let why = DataDir::open(&path).unwrap_err().to_string();
        assert!(why.contains(&format!("(pid {})", std::process::id())), "{why}");
        drop(open);
        DataDir::open(&path).unwrap();
    }

    #[test]
    fn a_directory_open_to_others_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        DataDir::open(dir.path()).unwrap();
        assert_eq!(fs::metadata(dir.path()).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_file_is_no_data_directory() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        for path in [file.clone(), file.join("below")] {
            let why = DataDir::open(&path).unwrap_err();
            assert!(matches!(&why, DataDirError::Unusable(bad) if bad.setting == "--data-dir"), "{why}");
        }
    }

    #[test]
    fn a_directory_full_of_other_things_is_not_taken_over() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("thesis.tex"), "").unwrap();
        let why = DataDir::open(dir.path()).unwrap_err();
        assert!(matches!(&why, DataDirError::Unusable(bad) if bad.problem.contains("thesis.tex")), "{why}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
