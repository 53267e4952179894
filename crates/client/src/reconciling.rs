//! The loop of a controller: notice, look at one key at a time, come back when told to.
//!
//! What is noticed goes before what is due, so a decision never rests on less than was already
//! known. One key at a time: controllers write little, and two hands on one object would only
//! collide.

use std::{fmt, sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use tokio::{sync::mpsc, task::JoinSet, time::Instant};

use crate::{
    api,
    memory::{Inbox, Remembering, Unreadable},
    watching::{self, NOTICES, Noticed, Watched},
    work_queue::WorkQueue,
};

/// Brings whatever a key names to where it should be.
pub trait Reconciler: Send {
    type Key: Ord + Clone + fmt::Debug + Send;

    /// For logs.
    const NAME: &'static str;

    /// What to follow by itself; the position in this list is the number of the watch.
    fn watched(&self) -> Vec<Watched> {
        Vec::new()
    }

    /// What to follow by way of a memory; numbered on from what is watched. No key is looked at before all of it is held.
    fn remembered(&self) -> Vec<Arc<dyn Remembering>> {
        Vec::new()
    }

    /// Which keys an object concerns that was seen by a watch, or is gone.
    fn keys(&self, watch: usize, metadata: &ObjectMeta) -> Vec<Self::Key>;

    /// Looks and acts. May be called at any time, for keys of things that are long gone, and may be
    /// dropped at any await.
    fn reconcile(
        &mut self,
        key: &Self::Key,
    ) -> impl Future<Output = Result<Next<Self::Key>, ReconcileError>> + Send;
}

/// What is to happen after a key was looked at.
#[derive(Debug)]
pub struct Next<K> {
    /// Look at the key again after this.
    pub again_after: Option<Duration>,
    /// Others to look at now.
    pub wake: Vec<K>,
}

impl<K> Next<K> {
    /// All is well until something changes.
    pub fn rest() -> Self {
        Next { again_after: None, wake: Vec::new() }
    }

    pub fn again_after(wait: Duration) -> Self {
        Next { again_after: Some(wait), wake: Vec::new() }
    }

    pub fn wake(wake: Vec<K>) -> Self {
        Next { again_after: None, wake }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    #[error("the API refused or failed")]
    Api(#[from] kube::Error),
    #[error("what was read makes no sense: {0}")]
    Unreadable(String),
}

impl From<serde_json::Error> for ReconcileError {
    fn from(why: serde_json::Error) -> Self {
        ReconcileError::Unreadable(why.to_string())
    }
}

impl From<Unreadable> for ReconcileError {
    fn from(why: Unreadable) -> Self {
        ReconcileError::Unreadable(why.to_string())
    }
}

impl ReconcileError {
    /// Whether the only thing wrong is that somebody else was faster.
    pub fn is_race(&self) -> bool {
        matches!(self, ReconcileError::Api(why) if api::is_conflict(why))
    }
}

/// Runs until dropped.
pub async fn run<R: Reconciler>(mut reconciler: R, client: Client) {
    let (tell, mut notices) = mpsc::channel(NOTICES);
    let mut watches = JoinSet::new();
    for (watch, watched) in reconciler.watched().into_iter().enumerate() {
        watches.spawn(watching::follow(client.clone(), watched, watch, tell.clone()));
    }
    drop(tell);
    let inbox = Arc::new(Inbox::default());
    for (nth, remembered) in reconciler.remembered().into_iter().enumerate() {
        remembered.listed().await;
        remembered.tell(watches.len() + nth, &inbox);
    }
    let mut queue = WorkQueue::new();
    loop {
        tokio::select! {
            biased;
            noticed = inbox.next() => for (watch, about) in noticed {
                reconciler.keys(watch, about.metadata()).into_iter().for_each(|key| queue.wake(key));
            },
            Some(notice) = notices.recv() => match notice.noticed {
                Noticed::Seen(metadata) | Noticed::Gone(metadata) => {
                    reconciler.keys(notice.watch, &metadata).into_iter().for_each(|key| queue.wake(key));
                }
                Noticed::Began | Noticed::Listed | Noticed::Failed => {}
            },
            key = queue.next() => {
                let outcome = reconciler.reconcile(&key).await;
                settle(R::NAME, &mut queue, key, outcome);
            }
        }
    }
}

/// Notes in the queue how it went.
pub fn settle<K: Ord + Clone + fmt::Debug>(
    controller: &str,
    queue: &mut WorkQueue<K>,
    key: K,
    outcome: Result<Next<K>, ReconcileError>,
) {
    match outcome {
        Ok(next) => {
            queue.went_well(&key);
            next.wake.into_iter().for_each(|other| queue.wake(other));
            if let Some(wait) = next.again_after {
                queue.wake_at(key, Instant::now() + wait);
            }
        }
        Err(why) => {
            if why.is_race() {
                tracing::debug!(controller, ?key, "somebody was faster; looking again");
            } else {
                let cause = std::error::Error::source(&why).map(ToString::to_string);
                tracing::warn!(controller, ?key, %why, cause, "not done yet; trying again");
            }
            queue.went_wrong(key);
        }
    }
}
