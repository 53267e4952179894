//! Answers: bodies made of pieces that are already encoded.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use serde_json::Value;

use crate::{
    cache::object::{self, CachedObject},
    negotiate::Format,
    status::{ApiError, success},
};

/// Large bodies are handed on in pieces of about this size, so that memory does not grow with the answer.
const PIECE: usize = 64 * 1024;

pub enum ApiBody {
    Full(Option<Bytes>),
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
    /// Bytes of somebody else, who may break off.
    Passed(Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>),
}

pub type ApiResponse = Response<ApiBody>;

/// Left in the extensions of an answer: somebody signed in with it, and who.
#[derive(Clone, Debug)]
pub struct SignedIn(pub String);

impl Body for ApiBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &mut *self {
            ApiBody::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            ApiBody::Stream(pieces) => {
                pieces.poll_next_unpin(context).map(|piece| piece.map(|b| Ok(Frame::data(b))))
            }
            ApiBody::Passed(pieces) => {
                pieces.poll_next_unpin(context).map(|piece| piece.map(|b| b.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, ApiBody::Full(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            ApiBody::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            ApiBody::Stream(_) | ApiBody::Passed(_) => SizeHint::default(),
        }
    }
}

/// More would only hide the answer.
const MOST_WARNINGS: usize = 50;

fn with_type(code: StatusCode, content_type: &'static str, body: ApiBody) -> ApiResponse {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// An answer that says all it has to say by its code.
pub fn nothing(code: StatusCode) -> ApiResponse {
    let mut response = Response::new(ApiBody::Full(None));
    *response.status_mut() = code;
    response
}

/// JSON text that is already there.
pub fn json_bytes(code: StatusCode, body: impl Into<Bytes>) -> ApiResponse {
    with_type(code, "application/json", ApiBody::Full(Some(body.into())))
}

pub fn text(code: StatusCode, body: impl Into<Bytes>) -> ApiResponse {
    with_type(code, "text/plain; charset=utf-8", ApiBody::Full(Some(body.into())))
}

/// A file to be kept under a name, which must be one that can stand between quotes in a header.
pub fn attachment(name: &str, content: &[u8]) -> ApiResponse {
    let mut response =
        bytes_of_type(success::OK, "application/octet-stream", Bytes::copy_from_slice(content));
    if let Ok(disposition) = HeaderValue::from_str(&format!("attachment; filename=\"{name}\"")) {
        response.headers_mut().insert(header::CONTENT_DISPOSITION, disposition);
    }
    response
}

pub fn bytes_of_type(code: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> ApiResponse {
    with_type(code, content_type, ApiBody::Full(Some(body.into())))
}

pub fn value(code: StatusCode, format: Format, value: &Value) -> ApiResponse {
    match format {
        Format::Json => json_bytes(code, value.to_string()),
        Format::Yaml => with_type(code, "application/yaml", ApiBody::Full(Some(yaml(value)))),
    }
}

fn yaml(value: &Value) -> Bytes {
    serde_yaml_ng::to_string(value).unwrap_or_else(|_| value.to_string()).into()
}

/// One object in the version asked for, as it is in the cache.
pub fn cached(code: StatusCode, format: Format, api_version: &str, object: &CachedObject) -> ApiResponse {
    let mut body = object::head(api_version, &object.kind);
    body.extend_from_slice(&object.tail);
    match format {
        Format::Json => json_bytes(code, body),
        Format::Yaml => {
            let read: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
            value(code, Format::Yaml, &read)
        }
    }
}

/// What only the metadata of an object says.
pub fn metadata(code: StatusCode, format: Format, object: &CachedObject) -> ApiResponse {
    let partial = object.only_metadata();
    cached(code, format, &partial.api_version, &partial)
}

/// How the items of a list begin: built-in kinds leave apiVersion and kind to the list.
pub enum ItemHead {
    Bare,
    Named(Bytes),
}

/// A list made of encoded objects, written out piece by piece as the client reads.
pub fn list(head: Bytes, item_head: ItemHead, objects: Vec<Arc<CachedObject>>) -> ApiResponse {
    let item_head = match item_head {
        ItemHead::Bare => Bytes::from_static(b"{"),
        ItemHead::Named(head) => head,
    };
    let size: usize = objects.iter().map(|object| object.tail.len() + item_head.len() + 1).sum();
    let mut pieces =
        ListPieces { head: Some(head), item_head, objects: objects.into_iter(), first: true, done: false };
    if size < PIECE {
        let mut whole = BytesMut::with_capacity(size + 256);
        while let Some(piece) = pieces.next_piece() {
            whole.extend_from_slice(&piece);
        }
        return json_bytes(success::OK, whole.freeze());
    }
    let body =
        ApiBody::Stream(Box::pin(futures::stream::iter(std::iter::from_fn(move || pieces.next_piece()))));
    with_type(success::OK, "application/json", body)
}

/// An object with a list of objects at its end, written out piece by piece.
pub struct Collection<I> {
    open: Option<Bytes>,
    items: I,
    first: bool,
    done: bool,
}

impl<I: Iterator<Item = Bytes>> Collection<I> {
    pub fn new(head: &serde_json::Map<String, Value>, field: &str, items: I) -> Self {
        let mut text = Value::Object(head.clone()).to_string();
        text.pop();
        let comma = if head.is_empty() { "" } else { "," };
        let open = Some(Bytes::from(format!("{text}{comma}\"{field}\":[")));
        Collection { open, items, first: true, done: false }
    }

    /// Whether there is nothing left to write.
    pub fn is_done(&self) -> bool {
        self.done
    }
}

impl<I: Iterator<Item = Bytes>> Iterator for Collection<I> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.done {
            return None;
        }
        let mut piece = BytesMut::with_capacity(PIECE + 4096);
        piece.extend_from_slice(&self.open.take().unwrap_or_default());
        while piece.len() < PIECE {
            let Some(item) = self.items.next() else {
                piece.extend_from_slice(b"]}");
                self.done = true;
                break;
            };
            if !std::mem::take(&mut self.first) {
                piece.extend_from_slice(b",");
            }
            piece.extend_from_slice(&item);
        }
        Some(piece.freeze())
    }
}

/// JSON that is made as the client reads, and may break off.
pub fn json_pieces(pieces: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> ApiResponse {
    with_type(success::OK, "application/json", ApiBody::Passed(Box::pin(pieces)))
}

struct ListPieces {
    head: Option<Bytes>,
    item_head: Bytes,
    objects: std::vec::IntoIter<Arc<CachedObject>>,
    first: bool,
    done: bool,
}

impl ListPieces {
    fn next_piece(&mut self) -> Option<Bytes> {
        if self.done {
            return None;
        }
        let mut piece = BytesMut::with_capacity(PIECE + 4096);
        if let Some(head) = self.head.take() {
            piece.extend_from_slice(&head);
        }
        while piece.len() < PIECE {
            let Some(object) = self.objects.next() else {
                piece.extend_from_slice(b"]}");
                self.done = true;
                break;
            };
            if !std::mem::take(&mut self.first) {
                piece.extend_from_slice(b",");
            }
            piece.extend_from_slice(&self.item_head);
            piece.extend_from_slice(&object.tail);
        }
        Some(piece.freeze())
    }
}

/// A watch: events as they come.
pub fn stream(events: impl Stream<Item = Bytes> + Send + 'static) -> ApiResponse {
    with_type(success::OK, "application/json", ApiBody::Stream(Box::pin(events)))
}

pub fn error(error: &ApiError) -> ApiResponse {
    let mut response = json_bytes(error.code(), error.to_bytes());
    if let Some(seconds) = error.retry_after_secs() {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Lets clients keep a document: for good when it was asked for by its hash, else after asking again.
pub fn cacheable(headers: &mut HeaderMap, etag: &str, immutable: bool) {
    if let Ok(etag) = HeaderValue::from_str(etag) {
        headers.insert(header::ETAG, etag);
    }
    let policy = if immutable { "public, immutable" } else { "no-cache, private" };
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(policy));
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
}

/// What was asked for by an old hash is at `location` now.
pub fn moved(location: &str) -> ApiResponse {
    let mut response = text(success::MOVED, "");
    if let Ok(location) = HeaderValue::from_str(location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// What a person should know although the request succeeds, gathered on the way. A request that is tried
/// again says the same again; it is told once.
#[derive(Default)]
pub struct Warnings(Mutex<Vec<String>>);

impl Warnings {
    pub fn add(&self, warnings: impl IntoIterator<Item = String>) {
        let mut said = self.0.lock();
        for warning in warnings {
            // No more than are sent.
            if said.len() == MOST_WARNINGS {
                break;
            }
            if !said.contains(&warning) {
                said.push(warning);
            }
        }
    }

    /// As `Warning: 299 - "..."` headers, which kubectl shows.
    pub fn write(&self, headers: &mut HeaderMap) {
        for warning in self.0.lock().iter().take(MOST_WARNINGS) {
            let printable: String = warning.chars().filter(|c| !c.is_control()).take(1024).collect();
            let quoted = printable.replace('\\', "\\\\").replace('"', "\\\"");
            if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes()) {
                headers.append(header::WARNING, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collection_is_the_same_however_many_pieces_it_has() {
        for (count, size) in [(0, 1), (1, 1), (3, 10), (50, 9000)] {
            let items: Vec<Value> =
                (0..count).map(|n| Value::String(format!("{n}{}", "x".repeat(size)))).collect();
            let encoded = items.clone().into_iter().map(|item| Bytes::from(item.to_string()));
            let head = serde_json::Map::from_iter([("type".to_owned(), Value::from("collection"))]);
            let mut pieces = Collection::new(&head, "data", encoded);
            let whole: Vec<u8> = pieces.by_ref().flatten().collect();
            assert!(pieces.is_done());
            let read: Value = serde_json::from_slice(&whole).unwrap();
            assert_eq!(read, serde_json::json!({"type": "collection", "data": items}));
        }
    }

    #[test]
    fn no_more_warnings_are_kept_than_are_sent() {
        let warnings = Warnings::default();
        warnings.add((0..1_000).map(|n| format!("warning {n}")));
        assert_eq!(warnings.0.lock().len(), MOST_WARNINGS);
        warnings.add(["one more".to_owned()]);
        let mut headers = HeaderMap::new();
        warnings.write(&mut headers);
        assert_eq!(headers.get_all(header::WARNING).iter().count(), MOST_WARNINGS);
    }
}
