//! A number that only grows, and those who wait for it to.
//!
//! Like `tokio::sync::watch`, but for one thing: whoever waited first is woken first. A watch channel spreads its
//! waiters over queues by chance, so one that has several would make no two runs of a simulation alike.

use std::{
    pin::pin,
    sync::atomic::{AtomicU64, Ordering},
};

use tokio::sync::Notify;

#[derive(Debug)]
pub struct Progress {
    reached: AtomicU64,
    waiting: Notify,
}

impl Progress {
    pub fn new(at: u64) -> Self {
        Progress { reached: AtomicU64::new(at), waiting: Notify::new() }
    }

    pub fn get(&self) -> u64 {
        self.reached.load(Ordering::Acquire)
    }

    pub fn set(&self, to: u64) {
        self.reached.store(to, Ordering::Release);
        self.waiting.notify_waiters();
    }

    /// Waits until the number is greater than `seen`.
    pub async fn passes(&self, seen: u64) {
        loop {
            // In line before looking, so that no step between the look and the wait is missed.
            let mut woken = pin!(self.waiting.notified());
            woken.as_mut().enable();
            if self.get() > seen {
                return;
            }
            woken.await;
        }
    }

    /// Waits until the number is at least `wanted`.
    pub async fn reaches(&self, wanted: u64) {
        if let Some(before) = wanted.checked_sub(1) {
            self.passes(before).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[tokio::test]
    async fn whoever_waited_first_is_woken_first() {
        let progress = Arc::new(Progress::new(0));
        let order = Arc::new(Mutex::new(Vec::new()));
        let waiters: Vec<_> = (0..100)
            .map(|n| {
                let (progress, order) = (progress.clone(), order.clone());
                tokio::spawn(async move {
                    progress.passes(0).await;
                    order.lock().push(n);
                })
            })
            .collect();
        // The runtime turns to others after some sixty tasks, so once is not enough for all to wait.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        progress.set(1);
        for waiter in waiters {
            waiter.await.unwrap();
        }
        assert_eq!(*order.lock(), (0..100).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn what_was_reached_already_is_not_waited_for() {
        let progress = Progress::new(7);
        progress.reaches(7).await;
        progress.reaches(0).await;
        progress.passes(6).await;
    }
}
