//! One at a time per id: whoever changes a volume or an image takes a turn first.
//!
//! Different ids do not wait for each other, so that many volumes can be made at once and
//! share the disk's syncs. Waiting blocks the thread; turns are short.

use std::collections::BTreeSet;

use parking_lot::{Condvar, Mutex};

#[derive(Debug)]
pub struct Turns<Id: Ord> {
    taken: Mutex<BTreeSet<Id>>,
    given_back: Condvar,
}

/// Given back when dropped.
pub struct Turn<'a, Id: Ord> {
    turns: &'a Turns<Id>,
    id: Id,
}

impl<Id: Ord> Default for Turns<Id> {
    fn default() -> Self {
        Turns { taken: Mutex::new(BTreeSet::new()), given_back: Condvar::new() }
    }
}

impl<Id: Ord + Clone> Turns<Id> {
    pub fn take(&self, id: &Id) -> Turn<'_, Id> {
        let mut taken = self.taken.lock();
        while !taken.insert(id.clone()) {
            self.given_back.wait(&mut taken);
        }
        Turn { turns: self, id: id.clone() }
    }
}

impl<Id: Ord> Drop for Turn<'_, Id> {
    fn drop(&mut self) {
        self.turns.taken.lock().remove(&self.id);
        self.turns.given_back.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread, time::Duration};

    use super::*;

    #[test]
    fn two_with_one_id_take_turns_and_others_do_not_wait() {
        let turns = Turns::default();
        let first = turns.take(&"a");
        drop(turns.take(&"b"));
        let (told, told_us) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let _second = turns.take(&"a");
                told.send(()).unwrap();
            });
            assert!(told_us.recv_timeout(Duration::from_millis(50)).is_err(), "both had the same turn");
            drop(first);
            told_us.recv_timeout(Duration::from_secs(10)).unwrap();
        });
    }
}
