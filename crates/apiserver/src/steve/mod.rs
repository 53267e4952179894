//! The facade of Rancher's Steve, under `/v1` and `/v1/harvester`: what Harvester's console and its clients speak.
//!
//! ```text
//!   /v1/TYPE/... --> which kind? --> the request of the Kubernetes API that it means --> the same door as any other
//!                                                                                          |
//!   links, actions, state, fields  <------------------------ dressed (object) <------------+
//! ```
//!
//! It holds nothing and knows nothing that the Kubernetes API does not: every request becomes requests for objects, each
//! with the same identity, rights, seats, admission, quotas and audit. What is different is how things are called
//! ([`kinds`]), found ([`query`]), shown ([`object`]), refused ([`refusal`]) and done ([`actions`]).

pub mod actions;
pub mod address;
mod cluster;
mod collection;
pub mod counts;
pub mod errand;
mod kinds;
pub mod object;
pub mod query;
pub mod refusal;
mod resource;
pub mod rights;
mod schemas;
pub mod subscribe;

use std::{fmt, sync::Arc};

use bytes::Bytes;
use http::{Method, request::Parts};

use self::{
    address::{Address, Named},
    errand::Errands,
    object::Base,
    rights::Rights,
};
use crate::{
    ApiServer,
    audit::Trail,
    identity::{ANONYMOUS, User, origin},
    registry::Served,
    request::{CLUSTER_PREFIX, Query},
    respond::ApiResponse,
    status::ApiError,
};

/// One request about the objects of a kind.
struct Ask<'a> {
    served: Arc<Served>,
    named: Named,
    query: &'a Query,
    base: Base,
    rights: Rights,
    user: &'a Arc<User>,
}

impl ApiServer {
    pub(crate) async fn answer_steve<B>(
        &self,
        parts: &mut Parts,
        body: B,
        query: &Query,
        address: &Address,
        user: &Arc<User>,
        trail: &mut Trail,
    ) -> Result<ApiResponse, ApiError>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
        B::Error: fmt::Display,
    {
        // Who has not said who they are is turned away before anything is read.
        if user.name == ANONYMOUS {
            return Err(ApiError::unauthorized());
        }
        let base = self.base(parts, address);
        let rights = Rights::new(self, user);
        match address.noun.as_str() {
            "" | "schema" | "schemas" | "schemadefinition" | "schemadefinitions" => {
                let _seat = self.seat_for_path(user, trail.in_process, "/v1/schemas").await?;
                return self.answer_schemas(parts, address, &base, &rights);
            }
            "subscribe" => return self.open_subscriptions(parts, &base, &rights, trail),
            counts::COUNT | counts::COUNTS => {
                let _seat = self.seat_for_path(user, trail.in_process, "/v1/counts").await?;
                return self.answer_counts(parts, address, &base, &rights);
            }
            _ => {}
        }
        if cluster::is_asked(address) {
            let _seat = self.seat_for_path(user, trail.in_process, "/v1/clusters").await?;
            return self.answer_cluster(parts, address, &base, &rights).await;
        }
        let catalogue = self.registry.catalogue();
        let unknown = || ApiError::unknown(format!("there is no type {:?}", address.noun));
        let served = kinds::find(&catalogue, &address.noun).ok_or_else(unknown)?;
        let named = address.named(served.kind.namespaced()).ok_or_else(unknown)?;
        let ask = Ask { served, named, query, base, rights, user };
        match (&address.action, &parts.method) {
            (Some(action), &Method::POST) => {
                return Box::pin(self.answer_action(parts, body, &ask, action, trail)).await;
            }
            // What names an action means that action, and never what the method alone would do to the object.
            (Some(_), _) => return Err(ApiError::method_not_allowed()),
            (None, _) => {}
        }
        if !ask.named.link.is_empty() {
            return Box::pin(self.answer_link(parts, &ask, trail)).await;
        }
        match (&parts.method, ask.named.name.is_empty()) {
            (&Method::GET | &Method::HEAD, true) => {
                Box::pin(self.answer_collection(parts, &ask, trail)).await
            }
            (_, _) => Box::pin(self.answer_object(parts, body, &ask, trail)).await,
        }
    }

    /// As the client reached this server.
    fn base(&self, parts: &Parts, address: &Address) -> Base {
        let host = origin::host_for_links(parts).unwrap_or(&self.config.address);
        let prefix = if parts.uri.path().starts_with(CLUSTER_PREFIX) { CLUSTER_PREFIX } else { "" };
        Base { server: format!("https://{host}{prefix}"), root: address.root }
    }

    fn errands(&self, ask: &Ask<'_>, trail: &Trail) -> Errands {
        Errands::new(self, ask.user, trail.behind())
    }
}
