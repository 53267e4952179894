//! Keys to look at, and when.
//!
//! A key is in the queue at most once, at the earliest time anyone asked for. Keys due at the same
//! moment come in their own order, so the same wake-ups always give the same work.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::Instant;

/// The wait after the first failure; it doubles with each one more.
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LONGEST_RETRY: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct WorkQueue<K> {
    due: BTreeSet<(Instant, K)>,
    when: BTreeMap<K, Instant>,
    /// How often in a row a key failed.
    failures: BTreeMap<K, u32>,
}

impl<K> Default for WorkQueue<K> {
    fn default() -> Self {
        WorkQueue { due: BTreeSet::new(), when: BTreeMap::new(), failures: BTreeMap::new() }
    }
}

impl<K: Ord + Clone> WorkQueue<K> {
    pub fn new() -> Self {
        Self::default()
    }

    /// Something happened: look at the key now.
    pub fn wake(&mut self, key: K) {
        self.wake_at(key, Instant::now());
    }

    /// Look at the key at `at`, unless it is due earlier.
    pub fn wake_at(&mut self, key: K, at: Instant) {
        match self.when.get(&key) {
            Some(earlier) if *earlier <= at => return,
            Some(later) => {
                self.due.remove(&(*later, key.clone()));
            }
            None => {}
        }
        self.when.insert(key.clone(), at);
        self.due.insert((at, key));
    }

    /// Waits until a key is due and takes it out; for ever while there is none. Nothing is lost when
    /// this is dropped before it answers.
    pub async fn next(&mut self) -> K {
        loop {
            let Some((at, key)) = self.due.first().cloned() else { return std::future::pending().await };
            tokio::time::sleep_until(at).await;
            if self.due.remove(&(at, key.clone())) {
                self.when.remove(&key);
                return key;
            }
        }
    }

    /// The key was looked at and all went well.
    pub fn went_well(&mut self, key: &K) {
        self.failures.remove(key);
    }

    /// Something was in the way; the key comes again, each time a little later.
    pub fn went_wrong(&mut self, key: K) {
        let failures = self.failures.entry(key.clone()).or_default();
        let wait = retry_after(*failures);
        *failures = failures.saturating_add(1);
        self.wake_at(key, Instant::now() + wait);
    }
}

/// How long to wait after this many failures before the present one.
pub fn retry_after(failures: u32) -> Duration {
    FIRST_RETRY.saturating_mul(2_u32.saturating_pow(failures.min(16))).min(LONGEST_RETRY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn keys_come_when_due_and_in_their_own_order() {
        let mut queue = WorkQueue::new();
        let began = Instant::now();
        queue.wake_at("late", began + Duration::from_secs(5));
        queue.wake("b");
        queue.wake("a");
        queue.wake("b");
        assert_eq!(queue.next().await, "a");
        assert_eq!(queue.next().await, "b");
        assert_eq!(queue.next().await, "late");
        assert_eq!(began.elapsed(), Duration::from_secs(5));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wake_up_overtakes_a_wait_and_a_wait_never_delays() {
        let mut queue = WorkQueue::new();
        let began = Instant::now();
        queue.wake_at("a", began + Duration::from_secs(5));
        queue.wake("a");
        queue.wake_at("a", began + Duration::from_secs(9));
        assert_eq!(queue.next().await, "a");
        assert_eq!(began.elapsed(), Duration::ZERO);
        let more = tokio::time::timeout(Duration::from_secs(99), queue.next()).await;
        assert!(more.is_err(), "it was in the queue twice");
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_is_tried_less_and_less_often_but_never_given_up() {
        let mut queue = WorkQueue::new();
        let mut waits = Vec::new();
        for _ in 0..20 {
            let began = Instant::now();
            queue.went_wrong("a");
            queue.next().await;
            waits.push(began.elapsed());
        }
        assert!(waits.is_sorted());
        assert_eq!(waits[0], FIRST_RETRY);
        assert_eq!(*waits.last().unwrap(), LONGEST_RETRY);
        queue.went_well(&"a");
        let began = Instant::now();
        queue.went_wrong("a");
        queue.next().await;
        assert_eq!(began.elapsed(), FIRST_RETRY);
    }
}
