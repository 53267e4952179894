//! `/v1/subscribe`: changes of many collections over one WebSocket.
//!
//! ```text
//!   client --{"resourceType": ..., "stop"?: ...}--> [session] --a watch for each, as its user--> the same door
//!   client <--{"name": "resource.change", "data": ...}-- [session] <--events--
//! ```
//!
//! A subscription is a watch of the Kubernetes API, or one in each namespace that its user may watch; its objects are
//! dressed as those of a collection. What the server holds of each is a position, not a queue: who reads slowly gets what
//! is still known when they come back, and is told when that is not everything.

mod counts;
mod event;
mod room;
mod session;
mod subscription;

use http::{HeaderValue, Method, header, request::Parts};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

pub use self::room::Room;
use self::session::Session;
use super::{errand::Errands, object::Base, rights::Rights};
use crate::{
    ApiServer,
    audit::{Trail, UntilEnd},
    identity::origin,
    machines::streams::accept_key,
    respond::{self, ApiResponse},
    status::{ApiError, Named, success},
};

impl ApiServer {
    pub(super) fn open_subscriptions(
        &self,
        parts: &mut Parts,
        base: &Base,
        rights: &Rights,
        trail: &Trail,
    ) -> Result<ApiResponse, ApiError> {
        if parts.method != Method::GET {
            return Err(ApiError::method_not_allowed());
        }
        let headers = &parts.headers;
        if !origin::may_open(parts) {
            let what = Named { group: "", resource: "subscribe" };
            return Err(ApiError::refused(what, "", "the request comes from a page of another origin"));
        }
        let accept = accept_key(headers)?;
        // A browser insists on one of those that it offered. The token among them was taken out before.
        let offered = headers.get(header::SEC_WEBSOCKET_PROTOCOL).and_then(|value| value.to_str().ok());
        let protocol = offered.and_then(|offered| offered.split(',').next()).map(|one| one.trim().to_owned());
        let Some(upgrade) = parts.extensions.remove::<OnUpgrade>() else {
            return Err(ApiError::bad_request("a WebSocket needs a connection of its own, over HTTP/1.1"));
        };
        let permit = self.subscribers.enter(&rights.user.name)?;
        let errands = Errands::new(self, &rights.user, trail.behind());
        let session = Session::new(self, errands, base, rights);
        let (until_end, ending) = UntilEnd::new();
        tokio::spawn(async move {
            match upgrade.await {
                Ok(client) => session.run(TokioIo::new(client)).await,
                Err(why) => tracing::debug!(%why, "a client left before its subscriptions began"),
            }
            drop((permit, ending));
        });
        let mut response = respond::nothing(success::HANDED_OVER);
        response.extensions_mut().insert(until_end);
        let answer = response.headers_mut();
        answer.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        answer.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        answer.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
        if let Some(protocol) = protocol.and_then(|protocol| HeaderValue::from_str(&protocol).ok()) {
            answer.insert(header::SEC_WEBSOCKET_PROTOCOL, protocol);
        }
        Ok(response)
    }
}
