//! Requests that follow from another: each leaves a line of its own, with the id of the one it follows from.

use std::{net::SocketAddr, sync::Arc};

use http::{HeaderValue, Method, Uri};

use super::Trail;
use crate::{audit::Audit, identity::User, request::Target};

/// Who is behind a request, and from where: all that the requests that follow from it take over.
#[derive(Clone)]
pub struct Behind {
    audit: Arc<Audit>,
    id: HeaderValue,
    agent: Option<HeaderValue>,
    forwarded: Vec<HeaderValue>,
    address: Option<SocketAddr>,
    in_process: bool,
    user: Option<Arc<User>>,
    impersonated: Option<Arc<User>>,
}

impl Behind {
    /// The program that asked.
    pub fn agent(&self) -> Option<&HeaderValue> {
        self.agent.as_ref()
    }

    pub fn in_process(&self) -> bool {
        self.in_process
    }

    /// The same, done as somebody else.
    pub fn acting_as(&self, user: &Arc<User>) -> Self {
        Behind { impersonated: Some(user.clone()), ..self.clone() }
    }
}

impl Trail {
    pub fn behind(&self) -> Behind {
        Behind {
            audit: self.audit.clone(),
            id: self.id.clone(),
            agent: self.agent.clone(),
            forwarded: self.forwarded.clone(),
            address: self.address,
            in_process: self.in_process,
            user: self.user.clone(),
            impersonated: self.impersonated.clone(),
        }
    }

    /// Begins the trail of a request that follows from another.
    pub fn following(behind: &Behind, method: &Method, uri: &Uri, target: &Arc<Target>) -> Self {
        Trail {
            audit: behind.audit.clone(),
            id: behind.id.clone(),
            received: behind.audit.world.clock.now(),
            method: method.clone(),
            uri: uri.clone(),
            target: target.clone(),
            agent: behind.agent.clone(),
            forwarded: behind.forwarded.clone(),
            address: behind.address,
            in_process: behind.in_process,
            media: String::new(),
            user: behind.user.clone(),
            impersonated: behind.impersonated.clone(),
            decision: None,
            about: None,
            signed_in: None,
            sent: None,
            outcome: None,
            is_written: false,
        }
    }
}
