//! Lists a resource, watches it, and lists it again by the clock, for ever; what comes of that is a [`Listener`]'s.
//!
//! A watch that breaks goes on where it was; one that cannot begins anew with a list. Objects are handed on as the
//! text that came, so each listener reads of it only what it needs.

use std::{borrow::Cow, convert::Infallible, time::Duration};

use futures::{AsyncBufReadExt, TryStreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Client,
    api::{ListParams, WatchParams},
    core::Request,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::{api, objects::within_deadline, work_queue::retry_after};

/// Objects asked for at a time.
const PAGE: u32 = 500;
/// How often everything is listed anew, whatever the watch said.
pub const RELIST_EVERY: Duration = Duration::from_secs(10 * 60);

/// There is nobody left to follow for.
pub(crate) struct NobodyListens;

/// Whom an object concerns that was listed or watched.
pub(crate) trait Listener: Send {
    /// A list begins.
    fn began(&mut self) -> impl Future<Output = Result<(), NobodyListens>> + Send;
    /// An object as it is now; answers its version.
    fn seen(
        &mut self,
        object: &RawValue,
    ) -> impl Future<Output = Result<Option<String>, NobodyListens>> + Send;
    /// An object as it was last; answers the version at which it went.
    fn gone(
        &mut self,
        object: &RawValue,
    ) -> impl Future<Output = Result<Option<String>, NobodyListens>> + Send;
    /// The list is complete; what it did not bring is not there.
    fn listed(&mut self, version: &str) -> impl Future<Output = Result<(), NobodyListens>> + Send;
    /// It could not be listed this time; it will be tried again.
    fn failed(&mut self) -> impl Future<Output = Result<(), NobodyListens>> + Send;
}

/// What is followed, and how it is asked for.
pub(crate) struct Follower {
    pub client: Client,
    /// For logs.
    pub plural: String,
    pub path: String,
    /// Only objects whose fields are so.
    pub fields: Option<String>,
    pub metadata_only: bool,
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(default)]
    metadata: PageMetadata,
    /// Some say `null` where there are none.
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMetadata {
    #[serde(default)]
    resource_version: String,
    #[serde(default, rename = "continue")]
    next: String,
}

#[derive(Deserialize)]
struct Change<'a> {
    #[serde(rename = "type", borrow)]
    sort: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// What a watch says that is about no object.
#[derive(Default, Deserialize)]
struct Aside {
    #[serde(default)]
    metadata: PageMetadata,
    #[serde(default)]
    code: u16,
}

/// Of an object, what every object has.
#[derive(Debug, Deserialize)]
pub(crate) struct OnlyMetadata {
    pub metadata: ObjectMeta,
}

/// How a watch ended.
enum Watched {
    /// It is time to list again.
    LongEnough,
    /// The server no longer knows what came after the last list.
    Expired,
}

impl Follower {
    /// Until nobody listens any more.
    pub async fn follow<L: Listener>(&self, mut listener: L) -> Result<Infallible, NobodyListens> {
        let (mut failures, mut expiries) = (0, 0);
        loop {
            let relist = Instant::now() + RELIST_EVERY;
            match self.list(&mut listener).await? {
                Ok(version) => {
                    failures = 0;
                    match self.watch_until(&mut listener, relist, version).await? {
                        Watched::LongEnough => expiries = 0,
                        // A server that forgets faster than it is listed is not asked all the faster.
                        Watched::Expired => {
                            tokio::time::sleep(retry_after(expiries)).await;
                            expiries += 1;
                        }
                    }
                }
                Err(why) => {
                    // A resource that is not served any more is not followed for much longer.
                    if !api::is_not_found(&why) {
                        tracing::warn!(resource = self.plural, %why, "cannot list; trying again");
                    }
                    listener.failed().await?;
                    tokio::time::sleep(retry_after(failures)).await;
                    failures += 1;
                }
            }
        }
    }

    /// Everything there is; answers the version at which that was so.
    async fn list<L: Listener>(
        &self,
        listener: &mut L,
    ) -> Result<Result<String, kube::Error>, NobodyListens> {
        let mut params = ListParams::default().limit(PAGE);
        params.field_selector = self.fields.clone();
        listener.began().await?;
        loop {
            let text = match self.page(&params).await {
                Ok(text) => text,
                Err(why) => return Ok(Err(why)),
            };
            let page: Page<'_> = match serde_json::from_str(&text) {
                Ok(page) => page,
                Err(why) => return Ok(Err(kube::Error::SerdeError(why))),
            };
            for object in page.items.into_iter().flatten() {
                listener.seen(object).await?;
            }
            if page.metadata.next.is_empty() {
                listener.listed(&page.metadata.resource_version).await?;
                return Ok(Ok(page.metadata.resource_version));
            }
            params.continue_token = Some(page.metadata.next);
        }
    }

    async fn page(&self, params: &ListParams) -> Result<String, kube::Error> {
        let asking = Request::new(self.path.as_str());
        let request = if self.metadata_only { asking.list_metadata(params) } else { asking.list(params) };
        within_deadline(self.client.request_text(request.map_err(kube::Error::BuildRequest)?)).await
    }

    /// Every change after `version`, until it is time to list again.
    async fn watch_until<L: Listener>(
        &self,
        listener: &mut L,
        relist: Instant,
        mut version: String,
    ) -> Result<Watched, NobodyListens> {
        let params = WatchParams { field_selector: self.fields.clone(), ..WatchParams::default() };
        let mut failures = 0;
        while Instant::now() < relist {
            let asking = Request::new(self.path.as_str());
            let request = if self.metadata_only {
                asking.watch_metadata(&params, &version)
            } else {
                asking.watch(&params, &version)
            };
            let answer = match request {
                // Until it begins; what comes after that may take as long as it likes.
                Ok(request) => within_deadline(self.client.request_stream(request)).await,
                Err(why) => Err(kube::Error::BuildRequest(why)),
            };
            let mut lines = match answer {
                Ok(body) => Box::pin(body).lines(),
                Err(kube::Error::Api(status)) if api::is_expired(status.code) => return Ok(Watched::Expired),
                Err(why) => {
                    if !api::is_not_found(&why) {
                        tracing::warn!(resource = self.plural, %why, "cannot watch; trying again");
                    }
                    tokio::time::sleep(retry_after(failures)).await;
                    failures += 1;
                    continue;
                }
            };
            loop {
                let line = tokio::select! {
                    biased;
                    line = lines.try_next() => line,
                    () = tokio::time::sleep_until(relist) => return Ok(Watched::LongEnough),
                };
                let Ok(Some(line)) = line else { break };
                let Ok(change) = serde_json::from_str::<Change<'_>>(&line) else { break };
                let newer = match &*change.sort {
                    "ADDED" | "MODIFIED" => listener.seen(change.object).await?,
                    "DELETED" => listener.gone(change.object).await?,
                    sort => {
                        let aside: Aside = serde_json::from_str(change.object.get()).unwrap_or_default();
                        match sort {
                            "BOOKMARK" if aside.metadata.resource_version.is_empty() => {}
                            "BOOKMARK" => version = aside.metadata.resource_version,
                            _ if api::is_expired(aside.code) => return Ok(Watched::Expired),
                            _ => break,
                        }
                        continue;
                    }
                };
                failures = 0;
                version = newer.unwrap_or(version);
            }
            // The server ended it, as it does every few minutes; at once unless that happens again
            // and again.
            tokio::time::sleep(if failures == 0 { Duration::ZERO } else { retry_after(failures) }).await;
            failures += 1;
        }
        Ok(Watched::LongEnough)
    }
}
