//! Bringing to the disk what was written: the one place where that is asked for.
//!
//! Everything that is published rests on a sync that returned. Disks fail at it and some lie about it, so a test may
//! stand between: it decides whether a sync fails, does nothing and says that all is well, or is done.

use std::{fmt, fs::File, io, os::fd::AsFd, path::Path, sync::Arc};

/// What becomes of one sync.
#[derive(Debug)]
pub enum Fate {
    Done,
    /// Nothing is synced, and nobody is told.
    Lied,
    Failed(io::Error),
}

type Judge = dyn Fn(&Path) -> Fate + Send + Sync;

/// Asked before each sync of a file or a directory, if anybody is.
#[derive(Clone, Default)]
pub struct Syncs(Option<Arc<Judge>>);

impl Syncs {
    pub fn decided_by(judge: impl Fn(&Path) -> Fate + Send + Sync + 'static) -> Syncs {
        Syncs(Some(Arc::new(judge)))
    }

    pub(crate) fn file(&self, file: &File, path: &Path) -> io::Result<()> {
        self.unless_judged(path, || file.sync_all())
    }

    pub(crate) fn directory(&self, directory: impl AsFd, path: &Path) -> io::Result<()> {
        self.unless_judged(path, || Ok(rustix::fs::fsync(directory)?))
    }

    fn unless_judged(&self, path: &Path, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        match self.0.as_ref().map_or(Fate::Done, |judge| judge(path)) {
            Fate::Done => sync(),
            Fate::Lied => Ok(()),
            Fate::Failed(why) => Err(why),
        }
    }
}

impl fmt::Debug for Syncs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Syncs(judged)" } else { "Syncs" })
    }
}
