//! Asks the store for its newest revision, on behalf of everybody who wants to know at the same time.
//!
//! On etcd the question is a round through the quorum. An answer serves whoever asked before its
//! question was sent, and nobody who came later: what was acknowledged in between might be missing. So
//! of any number of readers that come while a question is under way, one asks the next, for all.

use std::sync::atomic::{AtomicU64, Ordering};

use sheaf_store::{Store, StoreError};
use tokio::sync::Mutex;

#[derive(Debug, Default)]
pub struct Newest {
    /// How many questions were ever sent.
    sent: AtomicU64,
    /// Which question was answered last, and with what.
    answered: Mutex<(u64, u64)>,
}

impl Newest {
    pub async fn ask(&self, store: &dyn Store) -> Result<u64, StoreError> {
        let seen = self.sent.load(Ordering::Acquire);
        let mut answered = self.answered.lock().await;
        let (question, newest) = *answered;
        if question > seen {
            return Ok(newest);
        }
        let question = self.sent.fetch_add(1, Ordering::AcqRel) + 1;
        let newest = store.revision().await?.0;
        *answered = (question, newest);
        Ok(newest)
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use async_trait::async_trait;
    use bytes::Bytes;
    use sheaf_store::{Entry, Page, Range, Revision, Transaction, Watch};

    use super::*;

    /// A store whose revision takes 10 ms to find out, and moves on by itself.
    #[derive(Debug, Default)]
    struct Far {
        questions: AtomicU64,
        revision: AtomicU64,
    }

    #[async_trait]
    impl Store for Far {
        async fn revision(&self) -> Result<Revision, StoreError> {
            self.questions.fetch_add(1, Ordering::Relaxed);
            let read = self.revision.load(Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(10)).await;
            Ok(Revision(read))
        }
        async fn compacted(&self) -> Result<Revision, StoreError> {
            unreachable!()
        }
        async fn get(&self, _: &Bytes) -> Result<Option<Entry>, StoreError> {
            unreachable!()
        }
        async fn range(&self, _: Range) -> Result<Page, StoreError> {
            unreachable!()
        }
        async fn commit(&self, _: Transaction) -> Result<Revision, StoreError> {
            unreachable!()
        }
        async fn watch(&self, _: Bytes, _: Revision) -> Result<Watch, StoreError> {
            unreachable!()
        }
        async fn compact(&self, _: Revision) -> Result<(), StoreError> {
            unreachable!()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_hundred_readers_share_two_questions() {
        let (newest, store) = (Arc::new(Newest::default()), Arc::new(Far::default()));
        let asks = (0..100).map(|_| {
            let (newest, store) = (newest.clone(), store.clone());
            async move { newest.ask(&*store).await.unwrap() }
        });
        futures::future::join_all(asks).await;
        assert_eq!(store.questions.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_told_less_than_what_was_there_when_they_asked() {
        let (newest, store) = (Arc::new(Newest::default()), Arc::new(Far::default()));
        let asks = (0..200u64).map(|n| {
            let (newest, store) = (newest.clone(), store.clone());
            async move {
                tokio::time::sleep(Duration::from_millis(n % 37)).await;
                let there = store.revision.fetch_add(1, Ordering::Relaxed) + 1;
                assert!(newest.ask(&*store).await.unwrap() >= there);
            }
        });
        futures::future::join_all(asks).await;
    }
}
