//! Follows the metadata of one resource: lists it, watches it, lists it again by the clock.
//!
//! # Guarantees
//!
//! Between [`Noticed::Began`] and [`Noticed::Listed`] every object there is comes as
//! [`Noticed::Seen`]; after that, every change does. Whatever a list did not bring is gone. A watch that breaks
//! goes on where it was; one that cannot begins anew.
//!
//! Only metadata is asked for: what an object says is read by whoever acts on it, at that moment.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, WatchEvent, WatchParams},
    core::ApiResource,
};
use tokio::{sync::mpsc, time::Instant};

use crate::{api, work_queue::retry_after};

/// Objects asked for at a time.
const PAGE: u32 = 500;
/// How often everything is listed anew, whatever the watch said.
pub const RELIST_EVERY: Duration = Duration::from_secs(10 * 60);
/// Notices that may wait before the watch itself waits.
pub const NOTICES: usize = 256;

/// What to follow.
#[derive(Clone, Debug)]
pub struct Watched {
    pub resource: ApiResource,
    /// Only objects whose fields are so.
    pub fields: Option<String>,
}

impl Watched {
    pub fn all(resource: ApiResource) -> Self {
        Watched { resource, fields: None }
    }

    pub fn only(resource: ApiResource, fields: &str) -> Self {
        Watched { resource, fields: Some(fields.to_owned()) }
    }
}

/// Something about the resource that the watch numbered `watch` follows.
#[derive(Debug)]
pub struct Notice {
    pub watch: usize,
    pub noticed: Noticed,
}

#[derive(Debug)]
pub enum Noticed {
    /// A list begins.
    Began,
    Seen(Box<ObjectMeta>),
    Gone(Box<ObjectMeta>),
    /// The list is complete.
    Listed,
    /// It could not be listed this time; it will be tried again.
    Failed,
}

/// The receiver is gone, and with it the reason to follow.
struct NobodyListens;

/// Follows until nobody listens any more.
pub async fn follow(client: Client, watched: Watched, watch: usize, notices: mpsc::Sender<Notice>) {
    let follower =
        Follower { objects: api::objects(&client, &watched.resource, ""), watched, watch, notices };
    // The only way out.
    let Err(NobodyListens) = follower.follow().await;
}

struct Follower {
    objects: Api<DynamicObject>,
    watched: Watched,
    watch: usize,
    notices: mpsc::Sender<Notice>,
}

impl Follower {
    async fn follow(&self) -> Result<std::convert::Infallible, NobodyListens> {
        let mut failures = 0;
        loop {
            let relist = Instant::now() + RELIST_EVERY;
            match self.list().await? {
                Ok(version) => {
                    failures = 0;
                    self.watch_until(relist, version).await?;
                }
                Err(why) => {
                    // A resource that is not served any more is not followed for much longer.
                    if !api::is_not_found(&why) {
                        tracing::warn!(resource = self.watched.resource.plural, %why, "cannot list; trying again");
                    }
                    self.tell(Noticed::Failed).await?;
                    tokio::time::sleep(retry_after(failures)).await;
                    failures += 1;
                }
            }
        }
    }

    /// Everything there is; answers the version at which that was so.
    async fn list(&self) -> Result<Result<String, kube::Error>, NobodyListens> {
        let mut params = ListParams::default().limit(PAGE);
        params.field_selector = self.watched.fields.clone();
        self.tell(Noticed::Began).await?;
        loop {
            let page = match self.objects.list_metadata(&params).await {
                Ok(page) => page,
                Err(why) => return Ok(Err(why)),
            };
            for object in page.items {
                self.tell(Noticed::Seen(Box::new(object.metadata))).await?;
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => {
                    self.tell(Noticed::Listed).await?;
                    return Ok(Ok(page.metadata.resource_version.unwrap_or_default()));
                }
            }
        }
    }

    /// Every change after `version`, until it is time to list again.
    async fn watch_until(&self, relist: Instant, mut version: String) -> Result<(), NobodyListens> {
        let params = WatchParams { field_selector: self.watched.fields.clone(), ..WatchParams::default() };
        let mut failures = 0;
        while Instant::now() < relist {
            let changes = match self.objects.watch_metadata(&params, &version).await {
                Ok(changes) => changes.into_stream(),
                Err(kube::Error::Api(status)) if api::is_expired(status.code) => return Ok(()),
                Err(why) => {
                    if !api::is_not_found(&why) {
                        tracing::warn!(resource = self.watched.resource.plural, %why, "cannot watch; trying again");
                    }
                    tokio::time::sleep(retry_after(failures)).await;
                    failures += 1;
                    continue;
                }
            };
            let mut changes = std::pin::pin!(changes);
            loop {
                let change = tokio::select! {
                    biased;
                    change = changes.next() => change,
                    () = tokio::time::sleep_until(relist) => return Ok(()),
                };
                let (metadata, gone) = match change {
                    Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                        (object.metadata, false)
                    }
                    Some(Ok(WatchEvent::Deleted(object))) => (object.metadata, true),
                    Some(Ok(WatchEvent::Bookmark(bookmark))) => {
                        version = bookmark.metadata.resource_version;
                        continue;
                    }
                    Some(Ok(WatchEvent::Error(status))) if api::is_expired(status.code) => return Ok(()),
                    Some(Ok(WatchEvent::Error(_)) | Err(_)) | None => break,
                };
                failures = 0;
                if let Some(newer) = &metadata.resource_version {
                    version.clone_from(newer);
                }
                let metadata = Box::new(metadata);
                self.tell(if gone { Noticed::Gone(metadata) } else { Noticed::Seen(metadata) }).await?;
            }
            // The server ended it, as it does every few minutes; at once unless that happens again
            // and again.
            tokio::time::sleep(if failures == 0 { Duration::ZERO } else { retry_after(failures) }).await;
            failures += 1;
        }
        Ok(())
    }

    async fn tell(&self, noticed: Noticed) -> Result<(), NobodyListens> {
        self.notices.send(Notice { watch: self.watch, noticed }).await.map_err(|_| NobodyListens)
    }
}
