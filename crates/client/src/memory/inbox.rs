//! Notices of objects that changed, for one who looks when there is time: of each object the newest alone, so there
//! are never more than objects.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Place;

/// What a notice is about.
pub trait HasMetadata: Send + Sync {
    fn metadata(&self) -> &ObjectMeta;
}

type About = Arc<dyn HasMetadata>;

#[derive(Default)]
pub struct Inbox {
    /// By the number of the watch, where the object is, and its uid: what was made anew under a name does not hide that
    /// something went.
    pending: Mutex<BTreeMap<(usize, Place, String), About>>,
    bell: Notify,
}

impl Inbox {
    pub(crate) fn put(&self, watch: usize, place: Place, about: About) {
        let uid = about.metadata().uid.clone().unwrap_or_default();
        self.pending.lock().insert((watch, place, uid), about);
        self.bell.notify_one();
    }

    /// All that came since the last time; waits until there is something. Nothing is lost when this is dropped before
    /// it answers.
    pub async fn next(&self) -> Vec<(usize, About)> {
        loop {
            let pending = std::mem::take(&mut *self.pending.lock());
            if !pending.is_empty() {
                return pending.into_iter().map(|((watch, ..), about)| (watch, about)).collect();
            }
            self.bell.notified().await;
        }
    }
}
