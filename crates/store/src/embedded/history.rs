//! The most recent changes, kept in memory so that watches which keep up never touch
//! the disk.
//!
//! Bounded by count and by bytes, whoever is watching: a watcher that falls behind the
//! oldest change here reads the file instead, and one that falls behind compaction ends.
//! Nothing here survives a restart, nor needs to.

use std::{collections::VecDeque, sync::Arc};

use crate::{Change, Changes};

#[derive(Debug)]
pub(super) struct History {
    recent: VecDeque<Arc<Changes>>,
    bytes: usize,
    /// The raw revision of the oldest entry, or of the next one to come when there is none.
    first: u64,
    most_entries: usize,
    most_bytes: usize,
}

impl History {
    /// An empty history whose next change has the raw revision `next`.
    pub fn new(next: u64, most_entries: usize, most_bytes: usize) -> Self {
        History { recent: VecDeque::new(), bytes: 0, first: next, most_entries, most_bytes }
    }

    /// Adds the change that follows the newest one.
    pub fn push(&mut self, changes: Arc<Changes>) {
        self.bytes += weight(&changes);
        self.recent.push_back(changes);
        while self.recent.len() > self.most_entries || self.bytes > self.most_bytes {
            let Some(oldest) = self.recent.pop_front() else { break };
            self.bytes -= weight(&oldest);
            self.first += 1;
        }
    }

    /// Up to `most` changes from raw revision `from` on; `None` when `from` is no longer here.
    pub fn from(&self, from: u64, most: usize) -> Option<Vec<Arc<Changes>>> {
        let skip = usize::try_from(from.checked_sub(self.first)?).ok()?;
        Some(self.recent.iter().skip(skip).take(most).cloned().collect())
    }
}

fn weight(changes: &Changes) -> usize {
    /// What an entry costs beside its bytes, roughly.
    const OVERHEAD: usize = 128;
    let of = |change: &Change| match change {
        Change::Put(entry) => entry.key.len() + entry.value.len() + OVERHEAD,
        Change::Deleted { key } => key.len() + OVERHEAD,
    };
    OVERHEAD + changes.changes.iter().map(of).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::Revision;

    fn change(revision: u64, bytes: usize) -> Arc<Changes> {
        let key = Bytes::from(vec![b'k'; bytes]);
        Arc::new(Changes { revision: Revision(revision), changes: vec![Change::Deleted { key }] })
    }

    #[test]
    fn history_is_bounded_by_count_and_by_bytes() {
        let mut history = History::new(1, 3, 1 << 20);
        (1..=5).for_each(|revision| history.push(change(revision, 1)));
        assert_eq!(history.from(2, 10), None);
        assert_eq!(history.from(3, 10).unwrap().len(), 3);
        assert_eq!(history.from(4, 1).unwrap()[0].revision, Revision(4));
        assert_eq!(history.from(6, 10).unwrap().len(), 0);

        history.push(change(6, 2 << 20));
        assert_eq!(history.from(6, 10), None, "one change larger than the bound is not kept");
        assert_eq!(history.from(7, 10).unwrap().len(), 0);
        assert_eq!(history.bytes, 0);
    }
}
