//! Following changes.
//!
//! A watch pulls from its table's log by revision, so a slow reader holds a number, not a queue. When
//! the log has moved past it, it gets an `Expired` error event and lists again.

use std::{collections::VecDeque, pin::Pin, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use serde_json::json;
use sheaf_resources::field_error::{FieldError, FieldPath};
use tokio::{
    sync::watch::Receiver,
    time::{Instant, Sleep, sleep_until},
};

use super::{
    Call,
    get::shown,
    options::{Freshness, parse_version, timeout_seconds},
    selection::Selection,
    table::{self, Include},
};
use crate::{
    ApiServer,
    cache::{
        object::CachedObject,
        table::{Table, TableChange, within},
    },
    negotiate::{self, Shape},
    registry::Served,
    request::is_yes,
    respond::{self, ApiResponse},
    status::ApiError,
};

/// Changes looked at before the connection is served again.
const BATCH: usize = 256;
/// Bytes gathered before they are handed on.
const PIECE: usize = 64 * 1024;
/// For what an event says before and after the tail of its object.
const ROOM_BESIDE_TAIL: usize = 256;
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// A watch that ends by the clock says so long before where the next one can begin.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// Watches without a timeout of their own end after this, plus up to as much again, so that
/// clients spread over servers again after one was restarted.
const LONGEST: Duration = Duration::from_secs(30 * 60);

#[derive(Clone, Copy)]
enum EventType {
    Added,
    Modified,
    Deleted,
}

impl EventType {
    fn name(self) -> &'static str {
        match self {
            EventType::Added => "ADDED",
            EventType::Modified => "MODIFIED",
            EventType::Deleted => "DELETED",
        }
    }
}

/// Where a watch begins.
enum Start {
    /// Everything there is, then changes. Optionally a bookmark in between.
    State {
        bookmark: bool,
    },
    After(u64),
}

impl ApiServer {
    pub(crate) async fn watch(&self, call: &Call<'_>) -> Result<ApiResponse, ApiError> {
        let media = negotiate::media(call.headers)?;
        let mut selection = Selection::parse(call.query, &call.served.kind)?;
        if !call.request.name.is_empty() {
            // `GET .../name?watch=1`: the old form of watching one object.
            selection = selection.and_name(&call.request.name);
        }
        let include = Include::parse(call.query)?;
        let start = self.watch_start(call).await?;
        let timeout = match timeout_seconds(call.query)? {
            Some(seconds) => Duration::from_secs(seconds),
            None => LONGEST + Duration::from_millis(self.world.chance.below(LONGEST.as_millis() as u64)),
        };
        let table = self.cache.table(&call.served.resource);
        let (initial, position, initial_bookmark) = match start {
            Start::After(version) => (VecDeque::new(), version, false),
            Start::State { bookmark } => {
                let (snapshot, revision) = self.cache.snapshot(&call.served.resource);
                let objects = within(&snapshot, &call.request.namespace, None);
                let matching = objects.filter(|object| selection.matches(&call.served.kind, object));
                (matching.cloned().collect(), revision, bookmark)
            }
        };
        let follower = Follower {
            server: self.clone(),
            table,
            seen: 0,
            definitions_seen: self.registry.definitions_changed(),
            stopping: self.stopping.subscribe(),
            served: call.served.clone(),
            namespace: call.request.namespace.clone(),
            as_stored: self.is_shown_as_stored(call),
            api_version: call.api_version(),
            selection,
            shape: media.shape,
            include,
            initial,
            initial_bookmark,
            position,
            bookmarks: call.query.flag("allowWatchBookmarks"),
            next_bookmark: bookmark_after(Instant::now(), Instant::now() + timeout),
            deadline: Instant::now() + timeout,
            alarm: Box::pin(sleep_until(Instant::now() + timeout)),
            columns_sent: false,
            over: false,
            _open: self.metrics.watch_opened(),
        };
        // Boxed, because each piece moves it.
        let pieces = futures::stream::unfold(Box::new(follower), |mut follower| async move {
            follower.next_piece().await.map(|piece| (piece, follower))
        });
        Ok(match self.until_out(call.user) {
            Some(out) => respond::stream(pieces.take_until(Box::pin(out))),
            None => respond::stream(pieces),
        })
    }

    async fn watch_start(&self, call: &Call<'_>) -> Result<Start, ApiError> {
        let query = call.query;
        let version = query.get("resourceVersion");
        let matching = query.get("resourceVersionMatch");
        let invalid = |error: FieldError| Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &[error]));
        let send_initial = query.get("sendInitialEvents").map(is_yes);
        match (send_initial, matching) {
            (Some(_), None) => {
                return invalid(FieldError::forbidden(
                    &FieldPath::new("resourceVersionMatch"),
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                ));
            }
            (Some(_), Some("NotOlderThan")) => {}
            (Some(_), Some(other)) => {
                return invalid(FieldError::not_supported(
                    &FieldPath::new("resourceVersionMatch"),
                    other,
                    ["NotOlderThan"],
                ));
            }
            (None, Some(_)) => {
                return invalid(FieldError::forbidden(
                    &FieldPath::new("resourceVersionMatch"),
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                ));
            }
            (None, None) => {}
        }
        let freshness = match version {
            None => Freshness::Latest,
            Some("0") => Freshness::Any,
            Some(text) => Freshness::NotOlderThan(parse_version(text)?),
        };
        match (send_initial, freshness) {
            (Some(true), freshness) => {
                self.reach(freshness).await?;
                Ok(Start::State { bookmark: query.flag("allowWatchBookmarks") })
            }
            (Some(false), Freshness::Latest | Freshness::Any) => {
                self.reach(freshness).await?;
                Ok(Start::After(self.cache.applied()))
            }
            (None, Freshness::Latest | Freshness::Any) => {
                self.reach(freshness).await?;
                Ok(Start::State { bookmark: false })
            }
            (_, Freshness::NotOlderThan(version) | Freshness::Exactly(version)) => Ok(Start::After(version)),
        }
    }
}

/// One watch under way.
struct Follower {
    server: ApiServer,
    table: Arc<Table>,
    /// The revision of the newest change of the table that was looked at.
    seen: u64,
    /// The same of the table of definitions.
    definitions_seen: u64,
    stopping: Receiver<bool>,
    served: Arc<Served>,
    namespace: String,
    as_stored: bool,
    api_version: String,
    selection: Selection,
    shape: Shape,
    include: Include,
    initial: VecDeque<Arc<CachedObject>>,
    initial_bookmark: bool,
    /// Everything up to this revision has been sent or did not concern this watch.
    position: u64,
    bookmarks: bool,
    next_bookmark: Instant,
    deadline: Instant,
    /// Goes off when there is something to do by the clock. Kept, because setting one up for every change is dear.
    alarm: Pin<Box<Sleep>>,
    columns_sent: bool,
    over: bool,
    _open: crate::metrics::OpenWatch,
}

impl Follower {
    /// The next bytes to send; `None` ends the watch.
    async fn next_piece(&mut self) -> Option<Bytes> {
        if self.over {
            return None;
        }
        let mut out = BytesMut::new();
        while let Some(object) = self.initial.pop_front() {
            self.push_event(&mut out, EventType::Added, &object, None);
            if out.len() >= PIECE {
                return Some(out.freeze());
            }
        }
        if std::mem::take(&mut self.initial_bookmark) {
            self.push_bookmark(&mut out, true);
        }
        loop {
            // Before the changes are pulled: those that came before a definition's end are all sent.
            let definitions = self.server.registry.definitions_changed();
            self.seen = self.table.changed();
            match self.server.cache.changes_after(&self.table, self.position, BATCH) {
                Ok((changes, through)) => {
                    let mut reached = through;
                    let mut changes = changes.into_iter().peekable();
                    while let Some(change) = changes.next() {
                        self.push_change(&mut out, &change);
                        // A slow reader holds one piece, not everything it has missed. A revision is
                        // sent whole, since the position knows revisions only.
                        let ends = changes.peek().is_some_and(|next| next.revision != change.revision);
                        if out.len() >= PIECE && ends {
                            reached = change.revision;
                            break;
                        }
                    }
                    self.position = self.position.max(reached);
                }
                Err(too_old) => {
                    let message = format!("too old resource version: {} ({})", self.position, too_old.oldest);
                    self.push_error(&mut out, &ApiError::expired(message));
                    self.over = true;
                }
            }
            if self.bookmarks && Instant::now() >= self.next_bookmark {
                self.push_bookmark(&mut out, false);
                self.next_bookmark = bookmark_after(Instant::now(), self.deadline);
            }
            if !out.is_empty() {
                return Some(out.freeze());
            }
            if self.over || !self.is_still_served(definitions) || !self.wait().await {
                return None;
            }
        }
    }

    /// Waits for something to look at; false when the watch is over.
    async fn wait(&mut self) -> bool {
        let wake = if self.bookmarks { self.next_bookmark.min(self.deadline) } else { self.deadline };
        if self.alarm.deadline() != wake {
            self.alarm.as_mut().reset(wake);
        }
        tokio::select! {
            biased;
            _ = self.stopping.wait_for(|stopping| *stopping) => false,
            () = self.table.changes(self.seen) => true,
            () = self.server.registry.definition_changes(self.definitions_seen), if self.served.kind.custom => true,
            () = self.alarm.as_mut() => Instant::now() < self.deadline,
        }
    }

    /// False once the definition of a custom resource is gone or says something else: the client's next watch
    /// meets what is served now.
    fn is_still_served(&mut self, changed: u64) -> bool {
        if changed == self.definitions_seen {
            return true;
        }
        self.definitions_seen = changed;
        self.server.registry.still_serves(&self.served)
    }

    /// A change as this watch sees it: with a selector, an object may come into view or leave it.
    fn push_change(&mut self, out: &mut BytesMut, change: &TableChange) {
        if change.revision <= self.position {
            return;
        }
        let sees = |object: &Option<Arc<CachedObject>>| {
            object
                .as_ref()
                .filter(|object| {
                    (self.namespace.is_empty() || object.namespace() == self.namespace)
                        && self.selection.matches(&self.served.kind, object)
                })
                .cloned()
        };
        match (sees(&change.before), sees(&change.after)) {
            (None, None) => {}
            (None, Some(after)) => self.push_event(out, EventType::Added, &after, None),
            (Some(_), Some(after)) => self.push_event(out, EventType::Modified, &after, None),
            (Some(before), None) => self.push_event(out, EventType::Deleted, &before, Some(change.revision)),
        }
    }

    fn push_event(
        &mut self,
        out: &mut BytesMut,
        event: EventType,
        object: &Arc<CachedObject>,
        at: Option<u64>,
    ) {
        let partial = (self.shape == Shape::Metadata).then(|| Arc::new(object.only_metadata()));
        let api_version = if partial.is_some() { "meta.k8s.io/v1" } else { &self.api_version };
        let object = partial.as_ref().unwrap_or(object);
        let tail = at.map(|revision| object.tail_at(revision));
        out.reserve(object.tail.len() + ROOM_BESIDE_TAIL);
        out.extend_from_slice(b"{\"type\":\"");
        out.extend_from_slice(event.name().as_bytes());
        out.extend_from_slice(b"\",\"object\":");
        if partial.is_some() || (self.shape == Shape::Whole && self.as_stored) {
            out.extend_from_slice(&crate::cache::object::head(api_version, &object.kind));
            out.extend_from_slice(tail.as_ref().unwrap_or(&object.tail));
        } else {
            let object = CachedObject {
                place: object.place.clone(),
                revision: at.unwrap_or(object.revision),
                api_version: object.api_version.clone(),
                kind: object.kind.clone(),
                tail: tail.unwrap_or_else(|| object.tail.clone()),
                labels: Box::default(),
            };
            let value = match self.shape {
                Shape::Whole | Shape::Metadata => shown(&self.served.kind, &object),
                Shape::Table => {
                    let now = self.server.world.clock.since_epoch().as_secs() as i64;
                    let first = !std::mem::replace(&mut self.columns_sent, true);
                    table::of_one(&self.served.kind, &object, self.include, now, first)
                }
            };
            out.extend_from_slice(value.to_string().as_bytes());
        }
        out.extend_from_slice(b"}\n");
    }

    fn push_bookmark(&self, out: &mut BytesMut, ends_initial_events: bool) {
        let mut metadata = json!({"resourceVersion": self.position.to_string(), "creationTimestamp": null});
        if ends_initial_events {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = match self.shape {
            Shape::Whole => {
                json!({"kind": self.served.kind.kind, "apiVersion": self.api_version, "metadata": metadata})
            }
            Shape::Metadata => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
            }
            Shape::Table => json!({
                "kind": "Table", "apiVersion": "meta.k8s.io/v1",
                "metadata": {"resourceVersion": self.position.to_string()}, "columnDefinitions": null,
                "rows": [{"cells": [], "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}}],
            }),
        };
        out.extend_from_slice(json!({"type": "BOOKMARK", "object": object}).to_string().as_bytes());
        out.extend_from_slice(b"\n");
    }

    fn push_error(&self, out: &mut BytesMut, error: &ApiError) {
        out.extend_from_slice(json!({"type": "ERROR", "object": error.to_value()}).to_string().as_bytes());
        out.extend_from_slice(b"\n");
    }
}

/// When the next bookmark is due: by the clock, and once shortly before the end.
fn bookmark_after(now: Instant, deadline: Instant) -> Instant {
    let last = deadline.checked_sub(LAST_BOOKMARK).unwrap_or(now);
    let next = now + BOOKMARK_EVERY;
    if now < last { next.min(last) } else { next }
}
