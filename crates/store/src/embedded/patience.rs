//! Storage that waits where another one finds the disk full.
//!
//! A write for which there was no room is not a failed one: nothing of it has to be there, and it can be tried again. A
//! failed sync cannot, and is none of this module's. So a disk that somebody filled up holds the store up for as long as it
//! is full, and the store then goes on; reads go on all the while.
//!
//! Who waits: a store that is open. While it is being opened or closed, nobody may be there who could make room, and the
//! error says more than waiting does.

use std::{
    io,
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use redb::{BackendError, StorageBackend};

/// How often a write is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(50);

/// Whether a full disk is waited for, which begins when a store is open and ends when it is closed.
#[derive(Debug, Default)]
pub(super) struct Patience(AtomicBool);

impl Patience {
    pub fn begin(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn end(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Does it until there is room for it.
    pub fn with<T>(&self, mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let mut has_waited = false;
        loop {
            match act() {
                Err(why) if is_full(&why) && self.0.load(Ordering::Relaxed) => {
                    if !has_waited {
                        tracing::error!(%why, "the disk is full; writes wait until there is room");
                        has_waited = true;
                    }
                    std::thread::sleep(TRY_AGAIN);
                }
                done => {
                    if has_waited && done.is_ok() {
                        tracing::info!("there is room on the disk again; writes go on");
                    }
                    return done;
                }
            }
        }
    }
}

fn is_full(why: &io::Error) -> bool {
    matches!(why.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[derive(Debug)]
pub(super) struct Patient<B> {
    pub inner: B,
    pub patience: Arc<Patience>,
    /// Every sync takes longer by this: benchmarks have it stand in for a slower disk than the machine has.
    pub sync_delay: Duration,
}

impl<B: StorageBackend> StorageBackend for Patient<B> {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.inner.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.patience.with(|| self.inner.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        if !self.sync_delay.is_zero() {
            std::thread::sleep(self.sync_delay);
        }
        self.inner.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.patience.with(|| self.inner.write(offset, data))
    }

    fn close(&self) -> io::Result<()> {
        self.inner.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.try_lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.unlock_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.lock_shared_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.query_lock_range(start, end)
    }
}
