//! What one request leaves behind: gathered on its way, written when it is answered.
//!
//! Dropped without an answer (its sender left, its handling panicked), it still writes its line: what it did may be done.

mod behind;

use std::{net::SocketAddr, sync::Arc};

use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header, request::Parts};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use sheaf_world::Timestamp;
use tokio::sync::oneshot;

use super::{
    Audit, Level,
    event::{Event, Outcome, Stage},
    policy, reading,
    redaction::{self, Shown, shown_uri},
};
use crate::{
    ApiServer,
    authorization::Decision,
    body,
    dispatch::Peer,
    identity::User,
    request::{ResourceRequest, Target, Verb},
    respond::{ApiBody, ApiResponse, SignedIn},
    status::{ApiError, success},
};

pub use self::behind::Behind;

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
/// A client may give a request its id, if it is no longer than this.
const LONGEST_ID: usize = 64;
const LONGEST_AGENT: usize = 1024;
const MOST_ADDRESSES: usize = 16;
const LONGEST_LINE: usize = 1 << 20;

/// One request, as far as it is known.
pub struct Trail {
    audit: Arc<Audit>,
    id: HeaderValue,
    received: Timestamp,
    method: Method,
    uri: Uri,
    target: Arc<Target>,
    agent: Option<HeaderValue>,
    forwarded: Vec<HeaderValue>,
    address: Option<SocketAddr>,
    /// Whether it comes from inside this process.
    pub in_process: bool,
    media: String,
    user: Option<Arc<User>>,
    impersonated: Option<Arc<User>>,
    decision: Option<Decision>,
    /// The object it is about, where the address does not say it as the API does.
    about: Option<ResourceRequest>,
    signed_in: Option<SignedIn>,
    sent: Option<Bytes>,
    outcome: Option<Outcome>,
    is_written: bool,
}

/// The end of something that goes on for long: writes its line when it is dropped.
pub struct Ending {
    _trail: Trail,
}

/// Where a stream that has left its request takes its [`Ending`], to drop it when it is over.
#[derive(Clone)]
pub struct UntilEnd(Arc<Mutex<Option<oneshot::Sender<Ending>>>>);

impl UntilEnd {
    /// What goes with the answer, and what the stream holds until its end.
    pub fn new() -> (Self, oneshot::Receiver<Ending>) {
        let (send, receive) = oneshot::channel();
        (UntilEnd(Arc::new(Mutex::new(Some(send)))), receive)
    }

    fn give(&self, ending: Ending) {
        if let Some(send) = self.0.lock().take() {
            // Over already, and so is it.
            let _ = send.send(ending);
        }
    }
}

impl Trail {
    pub fn begin(audit: &Arc<Audit>, parts: &Parts, target: &Arc<Target>, peer: &Peer) -> Self {
        let headers = &parts.headers;
        Trail {
            id: headers.get(AUDIT_ID).filter(|id| is_sane(id)).cloned().unwrap_or_else(|| audit.ids.next()),
            audit: audit.clone(),
            received: audit.world.clock.now(),
            method: parts.method.clone(),
            uri: parts.uri.clone(),
            target: target.clone(),
            agent: headers.get(header::USER_AGENT).cloned(),
            forwarded: forwarded(headers),
            address: peer.address,
            in_process: peer.identity.is_some(),
            media: String::new(),
            user: None,
            impersonated: None,
            decision: None,
            about: None,
            signed_in: None,
            sent: None,
            outcome: None,
            is_written: false,
        }
    }

    /// Who asks, before they are anybody else.
    pub fn known(&mut self, user: &Arc<User>) {
        self.user = Some(user.clone());
    }

    /// Who they are treated as.
    pub fn acts_as(&mut self, user: &Arc<User>) {
        let is_another = self.user.as_ref().is_some_and(|known| !Arc::ptr_eq(known, user));
        self.impersonated = is_another.then(|| user.clone());
    }

    pub fn decided(&mut self, decision: &Decision) {
        self.decision = Some(decision.clone());
    }

    /// The object this is really about.
    pub fn about(&mut self, request: &ResourceRequest) {
        self.about = Some(request.clone());
    }

    /// What came with it.
    pub fn brought(&mut self, headers: &HeaderMap, body: &Bytes) {
        if self.level() >= Some(Level::Request) && !body.is_empty() {
            self.media = body::media_type(headers);
            self.sent = Some(body.clone());
        }
    }

    fn level(&self) -> Option<Level> {
        self.audit.recording.as_ref().map(|recording| recording.level)
    }

    /// Writes the line of a request that was answered, and gives the answer its id.
    pub async fn finish(
        mut self,
        server: &ApiServer,
        mut response: ApiResponse,
        error: Option<&ApiError>,
    ) -> ApiResponse {
        response.headers_mut().insert(AUDIT_ID, self.id.clone());
        self.signed_in = response.extensions_mut().remove();
        let is_turned_away = error.is_some_and(|why| matches!(why.reason(), "Unauthorized" | "Forbidden"));
        let Some(recording) = self.audit.recording.clone() else { return self.over(response) };
        if !is_turned_away && self.is_left_out() {
            return self.over(response);
        }
        self.outcome = Some(match error {
            Some(error) => Outcome::Status(redaction::refusal(self.request(), error)),
            None => Outcome::Code(response.status().as_u16()),
        });
        let goes_on = match &*self.target {
            _ if response.status() == success::HANDED_OVER => true,
            Target::Resource(request) => request.verb == Verb::Watch && error.is_none(),
            // Of what is streamed from here, one thing does not end by itself.
            Target::Path(path) => reading::is_asked(path) && matches!(response.body(), ApiBody::Stream(_)),
        };
        if goes_on {
            recording.log.put(&self.line(Stage::ResponseStarted, Shown::Nothing)).await;
            return self.go_on(response);
        }
        let answered = self.answered(&response, error);
        let size = self.sent.as_ref().map_or(0, Bytes::len) + answered.as_ref().map_or(0, |(_, b)| b.len());
        let line = server.heavy(size, || {
            let shown = match (&answered, self.request()) {
                (Some((media, bytes)), Some(request)) => redaction::answered(request, media, bytes),
                (Some(_), None) | (None, _) => Shown::Nothing,
            };
            let shown = match response.body() {
                ApiBody::Stream(_) | ApiBody::Passed(_) if recording.level == Level::RequestResponse => {
                    Shown::TooLarge
                }
                _ => shown,
            };
            self.line_of(Stage::ResponseComplete, shown, name_in(&response).as_deref())
        });
        recording.log.put(&line).await;
        self.over(response)
    }

    /// Who acts as one of the cluster's hands is none.
    fn is_left_out(&self) -> bool {
        self.impersonated.is_none() && policy::is_left_out(&self.target, self.user.as_deref())
    }

    fn over(mut self, response: ApiResponse) -> ApiResponse {
        self.is_written = true;
        response
    }

    fn go_on(self, mut response: ApiResponse) -> ApiResponse {
        let ending = Ending { _trail: self };
        if let Some(until) = response.extensions_mut().remove::<UntilEnd>() {
            until.give(ending);
            return response;
        }
        response.map(|body| match body {
            body @ (ApiBody::Full(_) | ApiBody::Passed(_)) => body,
            ApiBody::Stream(pieces) => ApiBody::Stream(Box::pin(pieces.map(move |piece| {
                let _held = &ending;
                piece
            }))),
        })
    }

    /// The request for objects that this is.
    fn request(&self) -> Option<&ResourceRequest> {
        match (&self.about, &*self.target) {
            (Some(about), _) => Some(about),
            (None, Target::Resource(request)) => Some(request),
            (None, Target::Path(_)) => None,
        }
    }

    /// The bytes of an answer that is an object.
    fn answered(&self, response: &ApiResponse, error: Option<&ApiError>) -> Option<(String, Bytes)> {
        if self.level() != Some(Level::RequestResponse) || error.is_some() {
            return None;
        }
        match response.body() {
            ApiBody::Full(Some(bytes)) => {
                let media = response.headers().get(header::CONTENT_TYPE)?.to_str().ok()?;
                Some((media.to_owned(), bytes.clone()))
            }
            ApiBody::Full(None) | ApiBody::Stream(_) | ApiBody::Passed(_) => None,
        }
    }

    fn line(&self, stage: Stage, answered: Shown) -> Vec<u8> {
        self.line_of(stage, answered, None)
    }

    /// `name` is that of an object that had none before.
    fn line_of(&self, stage: Stage, answered: Shown, name: Option<&str>) -> Vec<u8> {
        let sent = match (&self.sent, self.request()) {
            (Some(bytes), Some(request)) => redaction::sent(request, &self.media, bytes),
            (Some(_), None) | (None, _) => Shown::Nothing,
        };
        let line = self.line_with(stage, sent, answered, name);
        // A small body in YAML may be a large one in JSON.
        match line.len() > LONGEST_LINE {
            true => self.line_with(stage, Shown::TooLarge, Shown::TooLarge, name),
            false => line,
        }
    }

    fn line_with(&self, stage: Stage, sent: Shown, answered: Shown, name: Option<&str>) -> Vec<u8> {
        let Some(level) = self.level() else { return Vec::new() };
        let mut annotations: Vec<(&str, &str)> = Vec::with_capacity(4);
        match &self.decision {
            Some(Decision::Allow { reason }) => {
                annotations.push(("authorization.k8s.io/decision", "allow"));
                annotations.push(("authorization.k8s.io/reason", reason));
            }
            Some(Decision::Deny { reason }) => {
                annotations.push(("authorization.k8s.io/decision", "forbid"));
                annotations.push(("authorization.k8s.io/reason", reason));
            }
            None => {}
        }
        if sent == Shown::TooLarge || answered == Shown::TooLarge {
            annotations.push(("audit.k8s.io/truncated", "true"));
        }
        if let Some(SignedIn(user)) = &self.signed_in {
            annotations.push(("sheaf.io/signed-in-user", user));
        }
        let named;
        let object = match (self.request(), name) {
            (Some(request), Some(name)) if request.name.is_empty() => {
                named = ResourceRequest { name: name.to_owned(), ..request.clone() };
                Some(&named)
            }
            (request, _) => request,
        };
        let method = self.method.as_str().to_ascii_lowercase();
        let agent = self.agent.as_ref().and_then(|agent| agent.to_str().ok()).unwrap_or_default();
        let agent = match agent.len() > LONGEST_AGENT {
            // Header values that are text are ASCII.
            true => format!("{}...TRUNCATED", &agent[..LONGEST_AGENT]),
            false => agent.to_owned(),
        };
        let value = |shown: Shown| match shown {
            Shown::Value(value) => Some(value),
            Shown::Nothing | Shown::TooLarge => None,
        };
        Event {
            level,
            id: self.id.to_str().unwrap_or_default(),
            stage,
            uri: &shown_uri(&self.uri),
            verb: match (&*self.target, &self.about) {
                (Target::Resource(request), _) | (Target::Path(_), Some(request)) => request.verb.as_str(),
                (Target::Path(_), None) => &method,
            },
            user: self.user.as_deref(),
            impersonated: self.impersonated.as_deref(),
            source_ips: &self.source_ips(),
            agent: &agent,
            object,
            outcome: self.outcome.as_ref(),
            sent: value(sent).as_ref(),
            answered: value(answered).as_ref(),
            received: self.received,
            now: self.audit.world.clock.now(),
            annotations: &annotations,
        }
        .line()
    }

    /// As the original lists them: what proxies say, and last who is at the other end, which alone can be trusted.
    fn source_ips(&self) -> Vec<String> {
        let mut addresses: Vec<String> = Vec::new();
        for value in &self.forwarded {
            let said = value.to_str().unwrap_or_default().split(',').map(str::trim);
            let valid = said.filter(|text| text.parse::<std::net::IpAddr>().is_ok());
            for address in valid.take(MOST_ADDRESSES) {
                if !addresses.iter().any(|known| known == address) {
                    addresses.push(address.to_owned());
                }
            }
        }
        if let Some(address) = self.address.map(|address| address.ip().to_string())
            && addresses.last() != Some(&address)
        {
            addresses.push(address);
        }
        addresses
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        if self.is_written {
            return;
        }
        let Some(recording) = self.audit.recording.clone() else { return };
        let is_panic = std::thread::panicking();
        if !is_panic && self.is_left_out() {
            return;
        }
        if is_panic {
            let error = ApiError::internal("the server panicked");
            self.outcome = Some(Outcome::Status(redaction::refusal(None, &error)));
        }
        self.outcome.get_or_insert_with(|| {
            let message = "the client left before it was answered";
            Outcome::Status(json!({"metadata": {}, "status": "Failure", "message": message}))
        });
        let stage = if is_panic { Stage::Panic } else { Stage::ResponseComplete };
        recording.log.put_now(&self.line(stage, Shown::Nothing));
    }
}

/// Ids are for finding lines; anything goes that a person could type.
fn is_sane(id: &HeaderValue) -> bool {
    let bytes = id.as_bytes();
    (1..=LONGEST_ID).contains(&bytes.len())
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.:".contains(b))
}

fn forwarded(headers: &HeaderMap) -> Vec<HeaderValue> {
    if !headers.contains_key(FORWARDED_FOR) && !headers.contains_key(REAL_IP) {
        return Vec::new();
    }
    headers.get_all(FORWARDED_FOR).iter().chain(headers.get(REAL_IP)).cloned().collect()
}

/// The name that an object got, where it is answered whole.
fn name_in(response: &ApiResponse) -> Option<String> {
    #[derive(Deserialize)]
    struct Object {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        name: Option<String>,
    }
    match response.body() {
        ApiBody::Full(Some(bytes)) if response.status() == success::CREATED => {
            serde_json::from_slice::<Object>(bytes).ok()?.metadata.name
        }
        ApiBody::Full(_) | ApiBody::Stream(_) | ApiBody::Passed(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clients_id_is_taken_if_it_is_one() {
        for good in ["a", "6c1e0b6e-7d5f-4d8e-9c39-9a9b2d1f0a11", "trace_1.2:3"] {
            assert!(is_sane(&HeaderValue::from_str(good).unwrap()), "{good}");
        }
        for bad in ["", "two words", "a\"b", &"x".repeat(65)] {
            assert!(!is_sane(&HeaderValue::from_str(bad).unwrap()), "{bad}");
        }
    }
}
