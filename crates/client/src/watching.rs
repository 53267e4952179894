//! Follows the metadata of one resource: lists it, watches it, lists it again by the clock.
//!
//! # Guarantees
//!
//! Between [`Noticed::Began`] and [`Noticed::Listed`] every object there is comes as
//! [`Noticed::Seen`]; after that, every change does. Whatever a list did not bring is gone. A watch that breaks
//! goes on where it was; one that cannot begins anew.
//!
//! Only metadata is asked for: what an object says is read by whoever acts on it, at that moment.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Client, Resource, api::DynamicObject, core::ApiResource};
use serde_json::value::RawValue;
use tokio::sync::mpsc;

pub use crate::following::RELIST_EVERY;
use crate::following::{Follower, Listener, NobodyListens, OnlyMetadata};

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

/// Follows until nobody listens any more.
pub async fn follow(client: Client, watched: Watched, watch: usize, notices: mpsc::Sender<Notice>) {
    let follower = Follower {
        client,
        path: DynamicObject::url_path(&watched.resource, None),
        plural: watched.resource.plural,
        fields: watched.fields,
        metadata_only: true,
    };
    // The only way out.
    let Err(NobodyListens) = follower.follow(Telling { watch, notices }).await;
}

struct Telling {
    watch: usize,
    notices: mpsc::Sender<Notice>,
}

impl Telling {
    async fn tell(&self, noticed: Noticed) -> Result<(), NobodyListens> {
        self.notices.send(Notice { watch: self.watch, noticed }).await.map_err(|_| NobodyListens)
    }

    async fn tell_of(
        &self,
        object: &RawValue,
        how: fn(Box<ObjectMeta>) -> Noticed,
    ) -> Result<Option<String>, NobodyListens> {
        let metadata = match serde_json::from_str::<OnlyMetadata>(object.get()) {
            Ok(read) => read.metadata,
            Err(why) => {
                tracing::warn!(%why, "what the API says of an object makes no sense");
                return Ok(None);
            }
        };
        let version = metadata.resource_version.clone();
        self.tell(how(Box::new(metadata))).await?;
        Ok(version)
    }
}

impl Listener for Telling {
    async fn began(&mut self) -> Result<(), NobodyListens> {
        self.tell(Noticed::Began).await
    }

    async fn seen(&mut self, object: &RawValue) -> Result<Option<String>, NobodyListens> {
        self.tell_of(object, Noticed::Seen).await
    }

    async fn gone(&mut self, object: &RawValue) -> Result<Option<String>, NobodyListens> {
        self.tell_of(object, Noticed::Gone).await
    }

    async fn listed(&mut self, _: &str) -> Result<(), NobodyListens> {
        self.tell(Noticed::Listed).await
    }

    async fn failed(&mut self) -> Result<(), NobodyListens> {
        self.tell(Noticed::Failed).await
    }
}
