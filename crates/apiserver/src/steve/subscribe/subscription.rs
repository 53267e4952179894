//! One subscription: the watches behind it, and their events in the facade's words.

use std::{collections::VecDeque, pin::Pin, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt, stream::SelectAll};
use serde_json::Value;
use sheaf_resources::path::encoded;
use tokio::time::{Instant, sleep_until};

use super::event::{ONLY_THAT, Wish, name_of};
use crate::{
    ApiServer,
    registry::Served,
    request::Verb,
    respond::ApiBody,
    status::ApiError,
    steve::{
        errand::{Errand, Errands},
        kinds,
        object::{Base, Chosen, Dresser},
        rights::{Reach, Rights, request},
    },
};

/// How often it is asked whether what is watched may still be.
pub const RIGHTS_EVERY: Duration = Duration::from_secs(10);
/// So many namespaces are watched for one subscription at most.
const MOST_WATCHES: usize = 256;

type Pieces = Pin<Box<dyn Stream<Item = Bytes> + Send>>;

/// What a subscription says next.
pub enum Said {
    Event(Value),
    /// It is over; the sentence says why, if there is anything to say.
    Over(Option<String>),
}

/// One subscription under way.
pub struct Subscription {
    pub wish: Wish,
    served: Arc<Served>,
    rights: Rights,
    dresser: Dresser,
    watches: SelectAll<Lines>,
    /// How many watches there were. When one ends, all do: what it missed would not be told.
    begun: usize,
    waiting: VecDeque<Value>,
    /// When it last said that something changed, of one that says no more.
    silent_until: Option<Instant>,
    changed: bool,
    /// When its rights are looked at again.
    allowed_until: Instant,
}

impl Subscription {
    pub async fn open(
        server: &ApiServer,
        errands: &Errands,
        base: &Base,
        rights: &Rights,
        wish: Wish,
    ) -> Result<Self, ApiError> {
        let catalogue = server.registry.catalogue();
        let unknown = || ApiError::unknown(format!("failed to find schema {}", wish.resource_type));
        let served = kinds::find(&catalogue, &wish.resource_type.to_lowercase()).ok_or_else(unknown)?;
        let mut watches = SelectAll::new();
        for errand in errands_of(&served, rights, &wish)? {
            watches.push(Lines::of(errands.send(&errand).await?.into_body())?);
        }
        let dresser = Dresser::new(server, &served, base, rights, Chosen::default());
        Ok(Subscription {
            begun: watches.len(),
            wish,
            served,
            rights: rights.clone(),
            dresser,
            watches,
            waiting: VecDeque::new(),
            silent_until: None,
            changed: false,
            allowed_until: Instant::now() + RIGHTS_EVERY,
        })
    }

    /// Whether its user may still watch what it watches. Looked at again once in a while only: that is a look at all of
    /// their rights.
    pub fn is_still_allowed(&mut self) -> bool {
        if self.allowed_until > Instant::now() {
            return true;
        }
        self.allowed_until = Instant::now() + RIGHTS_EVERY;
        if !self.rights.are_still_somebodys() {
            return false;
        }
        let errands = errands_of(&self.served, &self.rights, &self.wish);
        let may = |errand: &Errand| self.rights.may(&errand.request);
        errands.is_ok_and(|errands| errands.len() >= self.begun && errands.iter().all(may))
    }

    /// The next thing to say. What was read and not said yet is kept if this is dropped.
    pub async fn next(&mut self) -> Said {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Said::Event(event);
            }
            let silence = self.silent_until.filter(|_| self.changed);
            let line = tokio::select! {
                biased;
                () = async { sleep_until(silence.unwrap_or_else(Instant::now)).await }, if silence.is_some() => {
                    self.say_that_something_changed();
                    continue;
                }
                line = self.watches.next() => line,
            };
            let Some(line) = line else { return Said::Over(None) };
            match line {
                Line::Event(event) if event["type"] == "ERROR" => {
                    let why = event["object"]["message"].as_str().unwrap_or_default().to_owned();
                    return Said::Over(Some(why));
                }
                Line::Event(mut event) => self.take(event["type"].take(), event["object"].take()),
                Line::End => return Said::Over(None),
            }
        }
    }

    fn take(&mut self, kind: Value, object: Value) {
        let Some(name) = kind.as_str().and_then(name_of) else { return };
        if self.wish.debounce().is_some() {
            self.changed = true;
            if self.silent_until.is_none_or(|until| until <= Instant::now()) {
                self.say_that_something_changed();
            }
            return;
        }
        let mut event = self.wish.event(name);
        event["revision"] = object["metadata"]["resourceVersion"].clone();
        // Each is seen as things stand when it is told.
        event["data"] = self.dresser.anew().dressed(object);
        self.waiting.push_back(event);
    }

    fn say_that_something_changed(&mut self) {
        self.changed = false;
        self.silent_until = self.wish.debounce().map(|silence| Instant::now() + silence);
        self.waiting.push_back(self.wish.event(ONLY_THAT));
    }
}

/// The watches that a subscription is made of. What its user may not, the door says.
fn errands_of(served: &Served, rights: &Rights, wish: &Wish) -> Result<Vec<Errand>, ApiError> {
    let kind = &served.kind;
    if !kind.verbs.are_kept() {
        return Err(ApiError::unknown(format!("schema {} does not support watching", wish.resource_type)));
    }
    // `namespace/name`, of a kind with namespaces.
    let (namespace, name) = match wish.id.split_once('/') {
        Some((namespace, name)) if kind.namespaced() => (namespace, name),
        _ => (wish.namespace.as_str(), wish.id.as_str()),
    };
    let places: Vec<(String, String)> = match name {
        "" if namespace.is_empty() => match rights.reach(Verb::Watch, kind) {
            Reach::Namespaces(namespaces) if !namespaces.is_empty() => {
                namespaces.into_iter().map(|namespace| (namespace, String::new())).collect()
            }
            Reach::Names(names) if !names.is_empty() => {
                names.into_iter().map(|name| (String::new(), name)).collect()
            }
            // Everywhere; or nowhere, and the door says so.
            Reach::Everywhere | Reach::Namespaces(_) | Reach::Names(_) => vec![Default::default()],
        },
        name => vec![(namespace.to_owned(), name.to_owned())],
    };
    if places.len() > MOST_WATCHES {
        let why = format!("it is in {} namespaces: subscribe to them one by one", places.len());
        return Err(ApiError::unprocessable(why));
    }
    let errand = |(namespace, name): (String, String)| {
        let mut query = vec!["watch=true".to_owned()];
        if !wish.version().is_empty() {
            query.push(format!("resourceVersion={}", encoded(wish.version())));
        }
        if !wish.selector.is_empty() {
            query.push(format!("labelSelector={}", encoded(&wish.selector)));
        }
        // One object is watched at its own address: who may see nothing but it may do that.
        let request = request(Verb::Watch, kind, &namespace, &name);
        Errand { request, query: query.join("&"), media: "", body: None }
    };
    Ok(places.into_iter().map(errand).collect())
}

/// What a watch says.
enum Line {
    Event(Value),
    End,
}

/// The events of one watch, read from its bytes.
struct Lines {
    pieces: Option<Pieces>,
    read: BytesMut,
}

impl Lines {
    fn of(body: ApiBody) -> Result<Self, ApiError> {
        match body {
            ApiBody::Stream(pieces) => Ok(Lines { pieces: Some(pieces), read: BytesMut::new() }),
            ApiBody::Full(_) | ApiBody::Passed(_) => Err(ApiError::internal("a watch is no stream")),
        }
    }

    fn next_line(&mut self) -> Option<Bytes> {
        let end = memchr::memchr(b'\n', &self.read)?;
        Some(self.read.split_to(end + 1).freeze())
    }
}

impl Stream for Lines {
    type Item = Line;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Line>> {
        use std::task::Poll;
        loop {
            if let Some(line) = self.next_line() {
                let mut reader = serde_json::Deserializer::from_slice(&line);
                reader.disable_recursion_limit();
                let event = serde::Deserialize::deserialize(&mut reader);
                return Poll::Ready(Some(event.map_or(Line::End, Line::Event)));
            }
            let Some(pieces) = &mut self.pieces else { return Poll::Ready(None) };
            match pieces.poll_next_unpin(context) {
                Poll::Ready(Some(piece)) => self.read.extend_from_slice(&piece),
                Poll::Ready(None) => {
                    self.pieces = None;
                    return Poll::Ready(Some(Line::End));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
