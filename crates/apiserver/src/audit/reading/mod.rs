//! `GET /audit/events`: the audit log, the newest first, for those whom a role allows that path.
//!
//! ```text
//!   ?limit=&continue=&<filters>            audit.log <-- .1 <-- .2 ...   read backwards from its end, a page at a time
//!   ?watch=true&resourceVersion=&<filters> audit.log --> as it is written, a line of JSON for each
//! ```
//!
//! Lines are handed out as they are in the file, where nothing secret gets to ([`super::redaction`]); so this shows no more than
//! the file does. Asking for it leaves a line like every other request.
//!
//! Bounded whatever the log holds: an answer looks at [`pages::SCAN`] bytes and holds [`pages::ANSWER`] of them at most, and says
//! with `metadata.continue` where to go on, also when it found nothing. A watch holds a file and a number, no queue.
//!
//! Deliberately absent: an index, and the logs of other servers. Each server has its own log and shows that.

mod following;
mod pages;
mod place;
mod question;

use std::{sync::Arc, time::Duration};

use http::{Method, request::Parts};
use serde_json::json;
use tokio::sync::Semaphore;

use self::{following::Follower, place::Place, question::Question};
use crate::{
    ApiServer,
    audit::Trail,
    identity::User,
    request::{CLUSTER_PREFIX, Query},
    respond::{self, ApiResponse},
    rest::options::timeout_seconds,
    status::{ApiError, success},
};

/// Where the log is read.
pub const PATH: &str = "/audit/events";

/// Answers that may be looked for at the same time: each keeps a processor busy.
const READERS: usize = 2;
/// Watches that may be open at the same time.
const FOLLOWERS: usize = 64;
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// A watch ends after this at the latest.
const LONGEST: Duration = Duration::from_secs(30 * 60);

const FOR_WHOM: &str = ". The audit log says what everybody did: it is for those who have a role with the verb get on the \
     nonResourceURL /audit/events, as cluster-admin has";
const OFF: &str = "the audit log is switched off on this server (--audit-log off, or --audit-level None), so it is not known who \
     did what. Start it without these to have one from then on";

/// How many may read at the same time.
#[derive(Debug)]
pub(super) struct Room {
    readers: Semaphore,
    followers: Arc<Semaphore>,
}

impl Default for Room {
    fn default() -> Self {
        Room { readers: Semaphore::new(READERS), followers: Arc::new(Semaphore::new(FOLLOWERS)) }
    }
}

/// Whether the log is what is asked for.
pub(crate) fn is_asked(path: &str) -> bool {
    path == PATH
}

/// The same of the address that a request came with.
pub(super) fn is_address(path: &str) -> bool {
    is_asked(path.strip_prefix(CLUSTER_PREFIX).unwrap_or(path))
}

impl ApiServer {
    pub(crate) async fn answer_audit(
        &self,
        parts: &Parts,
        query: &Query,
        user: &Arc<User>,
        trail: &mut Trail,
    ) -> Result<ApiResponse, ApiError> {
        self.authorize_path(user, parts.method.as_str(), PATH, trail)
            .map_err(|why| if why.is_forbidden() { why.going_on(FOR_WHOM) } else { why })?;
        if parts.method != Method::GET {
            return Err(ApiError::method_not_allowed());
        }
        let question = Question::read(query, &self.world.clock)?;
        let Some(log) = self.audit.log() else { return Err(ApiError::unknown(OFF)) };
        if question.watch {
            return self.follow_audit(log, question, query, user);
        }
        // First this, then a seat: whoever waits here keeps nobody else from being served.
        let _reader = self.audit.room.readers.acquire().await.map_err(ApiError::internal)?;
        let _seat = self.seat_for_path(user, trail.in_process, PATH).await?;
        let page = self.heavy(pages::SCAN, || pages::read(log.whereabouts(), &question))?;
        let mut body = json!({
            "kind": "EventList",
            "apiVersion": "audit.k8s.io/v1",
            "metadata": {"resourceVersion": page.newest.to_string()},
        });
        if let Some(place) = page.next {
            body["metadata"]["continue"] = place.to_string().into();
        }
        let mut text = body.to_string().into_bytes();
        text.pop();
        text.extend_from_slice(b",\"items\":[");
        text.extend_from_slice(&page.lines.join(&b","[..]));
        text.extend_from_slice(b"]}");
        Ok(respond::json_bytes(success::OK, text))
    }

    fn follow_audit(
        &self,
        log: &Arc<super::Log>,
        question: Question,
        query: &Query,
        user: &Arc<User>,
    ) -> Result<ApiResponse, ApiError> {
        let room = self.audit.room.followers.clone().try_acquire_owned().map_err(|_| {
            let message = format!("{FOLLOWERS} others watch the audit log already; try again later");
            ApiError::too_many_requests(message, RETRY_AFTER)
        })?;
        let timeout = timeout_seconds(query)?.map_or(LONGEST, Duration::from_secs).min(LONGEST);
        let follower = Follower::new(self, log, question, timeout, room)?;
        let pieces = futures::stream::unfold(Box::new(follower), |mut follower| async move {
            follower.next_piece().await.map(|piece| (piece, follower))
        });
        Ok(match self.until_out(user) {
            Some(out) => respond::stream(futures::StreamExt::take_until(pieces, Box::pin(out))),
            None => respond::stream(pieces),
        })
    }
}

fn unreadable(why: &std::io::Error) -> ApiError {
    ApiError::internal(format!("the audit log cannot be read: {why}"))
}

fn gone(place: &Place) -> ApiError {
    ApiError::expired(format!("the part of the audit log that {place} is in is gone; begin anew"))
}

#[cfg(test)]
mod tests;
