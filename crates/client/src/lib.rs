//! Asks the API: in this process, or over TLS.
//!
//! Thin over `kube`: what this crate gives is a [`kube::Client`], so whoever uses it cannot tell
//! (and need not care) whether the API server is in the same process. There is no other door:
//! controllers and agents see what any client would.
//!
//! Beside it, what controllers and agents are made of: watches that notice, a queue of keys to look at, and
//! the loop between them.
//!
//! ```text
//!              +--metadata only--> watching --notices--+
//!   API --list |                                       +--> reconciling
//!        watch +--whole objects--> memory ---notices---+      |  ^
//!                                    ^                  wake a |  | the key that is due
//!                                    |                   key   v  |
//!                                    +-- what was written --- work queue
//! ```
//!
//! A wake-up carries a key, never a change, so a restart, a missed event and the happy path are
//! one code path: look at the object of that key as it is now. Where many look at the same things, they look at one
//! shared memory of them. Nothing here survives a crash and
//! nothing needs to, since the first list after a start wakes everything.

pub mod api;
mod following;
pub mod memory;
pub mod objects;
pub mod reconciling;
pub mod served;
pub mod streams;
pub mod watching;
pub mod work_queue;

use std::{convert::Infallible, sync::Arc};

use kube::{Config, client::Body, config::Kubeconfig};
use sheaf_apiserver::{ApiServer, dispatch::Peer, identity::User};

/// A client of the API server in this process, as `identity`. Requests take the same path as
/// those from outside, but for TLS and authentication.
pub fn in_process(server: &ApiServer, identity: User) -> kube::Client {
    let server = server.clone();
    let peer = Peer { identity: Some(Arc::new(identity)), ..Peer::default() };
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (server, peer) = (server.clone(), peer.clone());
        async move { Ok::<_, Infallible>(server.handle(request, &peer).await) }
    });
    kube::Client::new(service, "default")
}

/// The same client in the name of another user, who must be one that the client's own may impersonate. What that user
/// may not do is refused, whatever the client's own may.
pub fn impersonating(client: &kube::Client, user: &str) -> Result<kube::Client, http::Error> {
    let user = http::HeaderValue::try_from(user)?;
    let namespace = client.default_namespace().to_owned();
    let client = client.clone();
    let service = tower::service_fn(move |mut request: http::Request<Body>| {
        request.headers_mut().insert("impersonate-user", user.clone());
        let client = client.clone();
        async move { client.send(request).await }
    });
    Ok(kube::Client::new(service, namespace))
}

/// A client of the cluster a kubeconfig names.
pub async fn from_kubeconfig(text: &str) -> Result<kube::Client, kube::Error> {
    kube::Client::try_from(config_of(text).await?)
}

/// How the cluster that a kubeconfig names is reached, and as whom.
async fn config_of(kubeconfig: &str) -> Result<Config, kube::Error> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).map_err(|why| kube::Error::Service(why.into()))?;
    Config::from_custom_kubeconfig(kubeconfig, &Default::default())
        .await
        .map_err(|why| kube::Error::Service(why.into()))
}
