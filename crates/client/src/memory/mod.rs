//! One memory of watched objects for everybody in a process who looks at them.
//!
//! Each kind is listed and watched once, from the first time anybody asks for it, and read once; whoever looks gets
//! what is held, without a request.
//!
//! # Guarantees
//!
//! - A notice comes after what it is about is held, so a look that it causes sees at least that.
//! - What was written through [`Remembered::learn`] is held at once, not only when the watch brings it; and
//!   an older state that the watch brings later does not undo it, nor bring back what is gone.
//! - What is held may be older than what there is, and kinds are not held at one moment: one may be ahead of another. So
//!   a write must name the version it saw, and what cannot (making something because another thing is absent, removing
//!   what nobody seems to use) must be decided again on what the API itself says.
//!
//! Versions are compared as numbers, as every API server over an ordered store gives them. Nothing here survives a
//! restart and nothing needs to.

mod inbox;
mod known;
mod remembered;

use std::{
    any::{Any, TypeId},
    collections::BTreeMap,
    fmt,
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use futures::FutureExt;

use kube::{Client, Resource};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

pub use self::{
    inbox::{HasMetadata, Inbox},
    known::{Known, Unreadable},
    remembered::{Place, Remembered, Remembering},
};
use crate::following::{Follower, NobodyListens};

const BEGIN_ANEW_AFTER: Duration = Duration::from_secs(1);

/// A kind that can be remembered.
pub trait Kind: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static {}

impl<T: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static> Kind for T {}

/// Everything that is held of one cluster, as one identity may see it.
pub struct Memory {
    client: Client,
    kinds: Mutex<Kinds>,
}

#[derive(Default)]
struct Kinds {
    held: BTreeMap<TypeId, Arc<dyn Any + Send + Sync>>,
    /// They end with the memory.
    followers: JoinSet<()>,
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("kinds", &self.kinds.lock().held.len()).finish_non_exhaustive()
    }
}

impl Memory {
    pub fn new(client: Client) -> Self {
        Memory { client, kinds: Mutex::default() }
    }

    /// What is held of a kind. The first to ask starts that it is followed.
    pub fn of<T: Kind>(&self) -> Arc<Remembered<T>> {
        let mut kinds = self.kinds.lock();
        let held = kinds.held.get(&TypeId::of::<T>()).cloned();
        if let Some(remembered) = held.and_then(|held| held.downcast().ok()) {
            return remembered;
        }
        let remembered = Arc::new(Remembered::<T>::default());
        kinds.held.insert(TypeId::of::<T>(), remembered.clone());
        let follower = Follower {
            client: self.client.clone(),
            plural: T::plural(&()).into_owned(),
            path: T::url_path(&(), None),
            fields: None,
            metadata_only: false,
        };
        let hearing = remembered.clone();
        kinds.followers.spawn(async move {
            loop {
                let following = AssertUnwindSafe(follower.follow(hearing.listener()));
                match following.catch_unwind().await {
                    // The only way out, and nobody takes it: the task ends with the memory.
                    Ok(Err(NobodyListens)) => return,
                    Err(_) => {
                        tracing::error!(resource = follower.plural, "following it panicked; beginning anew");
                        tokio::time::sleep(BEGIN_ANEW_AFTER).await;
                    }
                }
            }
        });
        remembered
    }
}
