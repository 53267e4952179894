//! The loop of a controller: notice, look at the keys concerned, come back when told to.
//!
//! What is noticed goes before what is due, so a decision never rests on less than was already
//! known. One key at a time where a decision must see the one before it; several where each is about its own key alone.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use futures::{StreamExt, stream::FuturesUnordered};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use tokio::{sync::mpsc, task::JoinSet, time::Instant};

use crate::{
    api,
    memory::{Inbox, Remembering, Unreadable},
    watching::{self, NOTICES, Notice, Noticed, Watched},
    work_queue::WorkQueue,
};

/// Who has to wait longer for what it is to look at says so.
const LISTED_WITHIN: Duration = Duration::from_secs(30);

/// A reconcile that takes longer is dropped and tried again later, so that one object never holds a worker for good. The
/// longest ones delete everything in a large namespace.
pub const RECONCILE_DEADLINE: Duration = Duration::from_secs(5 * 60);

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
    #[error("it was not done within {} s", RECONCILE_DEADLINE.as_secs())]
    DeadlineExceeded,
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
    /// Whether the only thing wrong is that somebody else was faster: wrote it, or removed it.
    pub fn is_race(&self) -> bool {
        matches!(self, ReconcileError::Api(why) if api::is_conflict(why) || api::is_not_found(why))
    }
}

/// Runs until dropped.
pub async fn run<R: Reconciler>(mut reconciler: R, client: Client) {
    let mut noticing = Noticing::begin(&reconciler, &client).await;
    let mut queue = WorkQueue::new();
    loop {
        tokio::select! {
            biased;
            keys = noticing.next(&reconciler) => keys.into_iter().for_each(|key| queue.wake(key)),
            key = queue.next() => {
                let outcome = within_deadline(reconciler.reconcile(&key)).await;
                settle(R::NAME, &mut queue, key, outcome);
            }
        }
    }
}

/// The same with up to `at_once` keys looked at side by side, each by a hand of its own, so that none waits for another's
/// writes. What the hands remember must be shared between them. No key is ever in two hands.
pub async fn run_side_by_side<R: Reconciler + Clone>(reconciler: R, client: Client, at_once: usize) {
    let mut noticing = Noticing::begin(&reconciler, &client).await;
    let mut queue = WorkQueue::new();
    let mut looks = FuturesUnordered::new();
    // Who is being looked at, and whether to look again afterwards.
    let mut in_hand: BTreeMap<R::Key, bool> = BTreeMap::new();
    loop {
        tokio::select! {
            biased;
            keys = noticing.next(&reconciler) => keys.into_iter().for_each(|key| queue.wake(key)),
            Some((key, outcome)) = looks.next() => {
                let again = in_hand.remove(&key).unwrap_or(false);
                if again {
                    queue.wake(key.clone());
                }
                settle(R::NAME, &mut queue, key, outcome);
            }
            key = queue.next(), if in_hand.len() < at_once => match in_hand.get_mut(&key) {
                Some(again) => *again = true,
                None => {
                    in_hand.insert(key.clone(), false);
                    let mut hand = reconciler.clone();
                    looks.push(async move {
                        let outcome = within_deadline(hand.reconcile(&key)).await;
                        (key, outcome)
                    });
                }
            },
        }
    }
}

/// The outcome of a reconcile, unless it takes longer than the [`RECONCILE_DEADLINE`].
pub fn within_deadline<T>(
    reconcile: impl Future<Output = Result<T, ReconcileError>> + Send,
) -> impl Future<Output = Result<T, ReconcileError>> + Send {
    // On the heap: it is large, and would be moved from one part of the stack to another.
    let reconcile = Box::pin(reconcile);
    async move {
        let outcome = tokio::time::timeout(RECONCILE_DEADLINE, reconcile).await;
        outcome.unwrap_or(Err(ReconcileError::DeadlineExceeded))
    }
}

/// What a reconciler hears of.
struct Noticing {
    inbox: Arc<Inbox>,
    notices: mpsc::Receiver<Notice>,
    /// They end with this.
    _watches: JoinSet<()>,
}

impl Noticing {
    async fn begin<R: Reconciler>(reconciler: &R, client: &Client) -> Self {
        let (tell, notices) = mpsc::channel(NOTICES);
        let mut watches = JoinSet::new();
        for (watch, watched) in reconciler.watched().into_iter().enumerate() {
            watches.spawn(watching::follow(client.clone(), watched, watch, tell.clone()));
        }
        let inbox = Arc::new(Inbox::default());
        for (nth, remembered) in reconciler.remembered().into_iter().enumerate() {
            while tokio::time::timeout(LISTED_WITHIN, remembered.listed()).await.is_err() {
                let kind = remembered.kind();
                tracing::warn!(
                    controller = R::NAME,
                    kind,
                    "waiting for the API to list this kind; nothing is done before"
                );
            }
            remembered.tell(watches.len() + nth, &inbox);
        }
        Noticing { inbox, notices, _watches: watches }
    }

    /// Waits for news; answers whom they concern. Nothing is lost when this is dropped before it answers.
    async fn next<R: Reconciler>(&mut self, reconciler: &R) -> Vec<R::Key> {
        loop {
            let notice = tokio::select! {
                biased;
                noticed = self.inbox.next() => {
                    let keys = noticed.iter().flat_map(|(watch, about)| reconciler.keys(*watch, about.metadata()));
                    return keys.collect();
                }
                Some(notice) = self.notices.recv() => notice,
            };
            match notice.noticed {
                Noticed::Seen(metadata) | Noticed::Gone(metadata) => {
                    return reconciler.keys(notice.watch, &metadata);
                }
                Noticed::Began | Noticed::Listed | Noticed::Failed => {}
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

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use parking_lot::Mutex;

    use super::*;

    /// Looks take a second, and wake three keys at first.
    #[derive(Clone, Default)]
    struct Slow {
        in_hand: Arc<Mutex<BTreeSet<u8>>>,
        most: Arc<AtomicUsize>,
        looks: Arc<Mutex<Vec<u8>>>,
    }

    impl Reconciler for Slow {
        type Key = u8;

        const NAME: &'static str = "slow";

        fn remembered(&self) -> Vec<Arc<dyn Remembering>> {
            vec![Arc::new(Begins)]
        }

        fn keys(&self, _: usize, _: &ObjectMeta) -> Vec<u8> {
            vec![0]
        }

        async fn reconcile(&mut self, key: &u8) -> Result<Next<u8>, ReconcileError> {
            assert!(self.in_hand.lock().insert(*key), "a key is in two hands");
            self.most.fetch_max(self.in_hand.lock().len(), Ordering::Relaxed);
            self.looks.lock().push(*key);
            tokio::time::sleep(Duration::from_secs(if *key == 3 { 5 } else { 1 })).await;
            self.in_hand.lock().remove(key);
            let first = self.looks.lock().iter().filter(|looked| *looked == key).count() == 1;
            // Number three is woken again while it is being looked at.
            let wake = match key {
                0 => vec![1, 2, 3, 4],
                1 if first => vec![3],
                _ => Vec::new(),
            };
            Ok(Next::wake(wake))
        }
    }

    struct Begins;

    impl Remembering for Begins {
        fn tell(&self, watch: usize, inbox: &Arc<Inbox>) {
            struct Something(ObjectMeta);
            impl crate::memory::HasMetadata for Something {
                fn metadata(&self) -> &ObjectMeta {
                    &self.0
                }
            }
            inbox.put(watch, Default::default(), Arc::new(Something(ObjectMeta::default())));
        }

        fn kind(&self) -> String {
            "Something".into()
        }

        fn listed(&self) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + '_>> {
            Box::pin(std::future::ready(()))
        }
    }

    fn nobody() -> Client {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Ok::<_, std::convert::Infallible>(http::Response::new(kube::client::Body::empty()))
        });
        Client::new(service, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn keys_are_looked_at_side_by_side_and_none_is_ever_in_two_hands() {
        let slow = Slow::default();
        let run = run_side_by_side(slow.clone(), nobody(), 3);
        let _ = tokio::time::timeout(Duration::from_secs(60), run).await;
        assert_eq!(slow.most.load(Ordering::Relaxed), 3);
        assert_eq!(*slow.looks.lock(), [0, 1, 2, 3, 4, 3], "the one woken meanwhile is looked at again");
    }

    /// Never done with the first key.
    #[derive(Clone, Default)]
    struct Stuck(Slow);

    impl Reconciler for Stuck {
        type Key = u8;

        const NAME: &'static str = "stuck";

        fn remembered(&self) -> Vec<Arc<dyn Remembering>> {
            self.0.remembered()
        }

        fn keys(&self, _: usize, _: &ObjectMeta) -> Vec<u8> {
            vec![0, 1]
        }

        async fn reconcile(&mut self, key: &u8) -> Result<Next<u8>, ReconcileError> {
            self.0.looks.lock().push(*key);
            if *key == 0 {
                std::future::pending::<()>().await;
            }
            Ok(Next::rest())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reconcile_that_never_ends_holds_up_the_others_until_its_deadline_and_no_longer() {
        let stuck = Stuck::default();
        let a_bit_more = RECONCILE_DEADLINE + Duration::from_secs(10);
        let _ = tokio::time::timeout(a_bit_more, run(stuck.clone(), nobody())).await;
        assert_eq!(*stuck.0.looks.lock(), [0, 1, 0], "and it is tried again");
    }

    #[tokio::test(start_paused = true)]
    async fn one_key_at_a_time_means_one() {
        let slow = Slow::default();
        let _ = tokio::time::timeout(Duration::from_secs(60), run(slow.clone(), nobody())).await;
        assert_eq!(slow.most.load(Ordering::Relaxed), 1);
        assert_eq!(*slow.looks.lock(), [0, 1, 2, 3, 4], "woken before it was looked at is woken once");
    }
}
