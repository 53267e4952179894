//! The verbs, generic over kinds: get, list, watch, create, update, patch, delete.
//!
//! Reads are served from the cache in encoded form. Writes go through one path
//! ([`write`]): decode, default, validate, admit, compare-and-swap. Nothing here knows a kind by name, except
//! where a kind has a subresource of its own.

pub mod apply;
mod attempt;
pub mod continuation;
pub mod create;
pub mod decode;
pub mod delete;
pub mod get;
pub mod list;
pub mod options;
mod ownership;
pub mod patch;
pub mod selection;
pub mod table;
pub mod update;
pub mod watch;
pub mod write;

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;

use crate::{
    fairness::queues::Seat,
    identity::User,
    registry::Served,
    request::{Query, ResourceRequest},
    respond::Warnings,
    status::Named,
};

/// One request for objects, understood and allowed, on its way to its verb.
pub struct Call<'a> {
    pub served: &'a Arc<Served>,
    pub request: &'a ResourceRequest,
    pub query: &'a Query,
    pub headers: &'a HeaderMap,
    pub body: Bytes,
    pub user: &'a Arc<User>,
    /// What it holds while it is worked on, unless that is nothing or is not its alone.
    pub seat: Option<&'a Seat>,
    /// What the client should know although its request succeeds.
    pub warnings: &'a Warnings,
}

impl Call<'_> {
    /// The resource as messages name it.
    pub fn named(&self) -> Named<'_> {
        Named { group: &self.served.kind.group, resource: &self.served.kind.plural }
    }

    /// Where the object named in the path is.
    pub fn place(&self) -> String {
        crate::cache::place(&self.request.namespace, &self.request.name)
    }

    pub fn api_version(&self) -> String {
        self.served.kind.api_version()
    }
}
