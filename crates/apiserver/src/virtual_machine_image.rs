//! The bytes of images: passed from a client to the node that keeps the image, and back.
//!
//! | below `/v1/harvester/harvesterhci.io.virtualmachineimages/{namespace}/{name}` | |
//! |---|---|
//! | `POST ?action=upload&size=BYTES` | as Harvester has it: a form whose part `chunk` or `file` is the file. A bare `application/octet-stream` is taken as well |
//! | `POST ?action=upload&size=BYTES&offset=BYTES` | the rest of a file, of which so much was sent before; `Content-Range` says the same |
//! | `GET /upload` | how much of it is here: `{"offset": BYTES}` |
//! | `GET /download` | all of an image that is complete, or the `Range` that is asked for; see [`download`] |
//!
//! ```text
//!   client --form--> [the file's bytes, one piece at a time] --chunked or sized--> agent --> disk
//! ```
//!
//! Nothing is collected: a piece is read when the agent has taken the one before. What breaks off on either side breaks
//! off on the other, so that half a file is never taken for a whole one. The status of the image is the agent's to write.

mod download;
pub mod multipart;

use std::{fmt, io, pin::pin, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, header, request::Parts};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Empty, Limited, StreamBody};
use sheaf_resources::kinds::virtual_machine_image::{NODE_ANNOTATION, UPLOAD, VirtualMachineImage};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout},
};

use self::multipart::Form;
use crate::{
    ApiServer,
    audit::Trail,
    cache::{Resource, place},
    identity::User,
    machines::agents,
    negotiate,
    request::{Query, ResourceRequest, Verb},
    respond::{self, ApiResponse},
    rest::options::Freshness,
    status::{ApiError, Named, success},
};

const GROUP: &str = "harvesterhci.io";
const PLURAL: &str = "virtualmachineimages";
const IMAGES: Named<'static> = Named { group: GROUP, resource: PLURAL };
/// The parts of the form that are the file, as Harvester's backends call them.
const PARTS: &[&str] = &["chunk", "file"];
/// Clients send right after they have made the image; which node keeps it is decided meanwhile.
const PLACE_PATIENCE: Duration = Duration::from_secs(15);
const PLACE_LOOK: Duration = Duration::from_millis(100);
/// A sender of whom nothing comes for so long is gone.
const STALLED: Duration = Duration::from_secs(60);
/// The agent still has to bring everything to its disk.
const ANSWER_PATIENCE: Duration = Duration::from_secs(300);
/// For a question that is answered at once.
const SHORT_PATIENCE: Duration = Duration::from_secs(40);
const MAX_ANSWER: usize = 4096;
/// How long a refused sender may go on sending before the connection is closed under it: many read the answer only
/// after their last byte.
const LINGER: Duration = Duration::from_secs(3);

/// What a request asks of the bytes of an image.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ImageRequest<'a> {
    namespace: &'a str,
    name: &'a str,
    ask: Ask,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    Upload,
    HowFar,
    Download,
    /// There is nothing to cancel: a download makes nothing that would stay.
    CancelDownload,
}

impl ImageRequest<'_> {
    /// Whether it may take as long as it takes to be answered at all.
    pub fn is_long(&self) -> bool {
        self.ask == Ask::Upload
    }
}

/// What a request for this path asks of an image's bytes, if that is what it is.
pub(crate) fn asked<'a>(path: &'a str, query: &Query) -> Option<ImageRequest<'a>> {
    let path = path.strip_prefix("/v1/harvester/").or_else(|| path.strip_prefix("/v1/"))?;
    let rest = path.strip_prefix("harvesterhci.io.virtualmachineimages/")?;
    let mut parts = rest.trim_end_matches('/').split('/');
    let (namespace, name, link) = (parts.next()?, parts.next()?, parts.next().or(query.get("link")));
    let ask = match (link, query.get("action")) {
        (None, Some("upload")) => Ask::Upload,
        (Some("upload"), None) => Ask::HowFar,
        (Some("download"), None) => Ask::Download,
        (Some("downloadcancel"), None) => Ask::CancelDownload,
        _ => return None,
    };
    let plain = |text: &str| !text.is_empty() && !text.contains('%') && text != "." && text != "..";
    let is_whole = parts.next().is_none() && plain(namespace) && plain(name);
    is_whole.then_some(ImageRequest { namespace, name, ask })
}

/// What goes to the agent.
enum Passed {
    Piece(Bytes),
    /// All of it was there.
    End,
}

/// Where an image is kept, and as what.
struct Place {
    node: String,
    uid: String,
    checksum: String,
    display_name: String,
}

impl ApiServer {
    pub(crate) async fn answer_image<B>(
        &self,
        parts: &Parts,
        mut body: B,
        query: &Query,
        image: &ImageRequest<'_>,
        user: &User,
        trail: &mut Trail,
    ) -> Result<ApiResponse, ApiError>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: fmt::Display,
    {
        // Whoever may read an image may have all of it; whoever sends one changes it.
        let verb = match image.ask {
            Ask::Upload | Ask::HowFar => Verb::Update,
            Ask::Download | Ask::CancelDownload => Verb::Get,
        };
        let request = ResourceRequest {
            verb,
            group: GROUP.into(),
            version: "v1beta1".into(),
            resource: PLURAL.into(),
            subresource: String::new(),
            namespace: image.namespace.into(),
            name: image.name.into(),
        };
        trail.about(&request);
        self.authorize_and_note(user, &request, query, trail)?;
        let expected = if image.ask == Ask::Upload { Method::POST } else { Method::GET };
        if parts.method != expected && !(image.ask == Ask::Download && parts.method == Method::HEAD) {
            return Err(ApiError::method_not_allowed());
        }
        match image.ask {
            Ask::Upload => {}
            Ask::HowFar => return self.how_far(image).await,
            Ask::Download => return self.download_image(&parts.headers, image).await,
            Ask::CancelDownload => return Ok(nothing_to_say()),
        }
        let outcome = self.pass_on(&parts.headers, &mut body, query, image).await;
        if outcome.is_err() {
            let ignored = async { while let Some(Ok(_)) = body.frame().await {} };
            let _ = timeout(LINGER, ignored).await;
        }
        outcome?;
        Ok(nothing_to_say())
    }

    async fn pass_on<B>(
        &self,
        headers: &HeaderMap,
        body: &mut B,
        query: &Query,
        image: &ImageRequest<'_>,
    ) -> Result<(), ApiError>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: fmt::Display,
    {
        let Announced { size, offset } = announced(headers, query)?;
        let length = match size.map(|size| size.checked_sub(offset)) {
            Some(None) => return Err(ApiError::bad_request("the offset lies beyond the end of the file")),
            Some(Some(length)) => Some(length),
            None => None,
        };
        let mut form = form(headers)?;
        let at = self.place_of_image(image, may_be_uploaded).await?;
        let _room = self.nodes.room_for_a_stream()?;
        let mut agent = self.connect_agent(&at.node).await?;

        let (send, mut receive) = mpsc::channel(1);
        let pieces = futures::stream::poll_fn(move |context| {
            receive.poll_recv(context).map(|passed| match passed {
                Some(Passed::Piece(piece)) => Some(Ok(Frame::data(piece))),
                Some(Passed::End) => None,
                // Whoever read from the client is gone, and not because it was at the end.
                None => Some(Err(io::Error::other("the upload broke off"))),
            })
        });
        let mut uri = format!("/v1/images/{}/upload", at.uid);
        for (key, value) in [("checksum", at.checksum), ("offset", offset_text(offset))] {
            if !value.is_empty() {
                uri += &format!("{}{key}={value}", if uri.contains('?') { '&' } else { '?' });
            }
        }
        let mut request = Request::put(uri).header(header::HOST, &at.node);
        if let Some(length) = length {
            request = request.header(header::CONTENT_LENGTH, length);
        }
        let request = request.body(StreamBody::new(pieces)).map_err(ApiError::internal)?;

        let mut answering = pin!(agent.send_request(request));
        let early = tokio::select! {
            biased;
            answer = &mut answering => Some(answer),
            poured = pour(body, form.as_mut(), length, send) => {
                poured?;
                None
            }
        };
        let answer = match early {
            Some(answer) => answer,
            None => timeout(ANSWER_PATIENCE, answering).await.map_err(|_| agents::silent(&at.node))?,
        };
        let answer = answer.map_err(|why| agents::broken(&at.node, &why))?;
        if answer.status().is_success() {
            return Ok(());
        }
        Err(agents::refused(&at.node, (IMAGES, image.name), answer.status(), answer.into_body()).await)
    }

    /// How much of an upload that broke off need not be sent again.
    async fn how_far(&self, image: &ImageRequest<'_>) -> Result<ApiResponse, ApiError> {
        let at = self.place_of_image(image, may_be_uploaded).await?;
        let mut agent = self.connect_agent(&at.node).await?;
        let request = Request::get(format!("/v1/images/{}/upload", at.uid)).header(header::HOST, &at.node);
        let request = request.body(Empty::<Bytes>::new()).map_err(ApiError::internal)?;
        let asking = async {
            let answer = agent.send_request(request).await.map_err(|why| agents::broken(&at.node, &why))?;
            if !answer.status().is_success() {
                let (code, body) = (answer.status(), answer.into_body());
                return Err(agents::refused(&at.node, (IMAGES, image.name), code, body).await);
            }
            let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
            body.map(|body| body.to_bytes()).map_err(|why| agents::broken(&at.node, &why))
        };
        let body = timeout(SHORT_PATIENCE, asking).await.map_err(|_| agents::silent(&at.node))??;
        Ok(respond::json_bytes(success::OK, body))
    }

    /// Which node keeps the image, if it may be asked about. Waits a moment for that to be decided.
    async fn place_of_image(
        &self,
        image: &ImageRequest<'_>,
        may: fn(&VirtualMachineImage, &str) -> Result<(), ApiError>,
    ) -> Result<Place, ApiError> {
        self.reach(Freshness::Latest).await?;
        let patience = Instant::now() + PLACE_PATIENCE;
        loop {
            let found = self.cache.get(&Resource::new(GROUP, PLURAL), &place(image.namespace, image.name));
            let found = found.ok_or_else(|| ApiError::not_found(IMAGES, image.name))?.to_value();
            let object: VirtualMachineImage =
                serde_json::from_value(found).map_err(|why: serde_json::Error| ApiError::internal(why))?;
            may(&object, image.name)?;
            let annotations = object.metadata.annotations.unwrap_or_default();
            if let (Some(node), Some(uid)) = (annotations.get(NODE_ANNOTATION), &object.metadata.uid) {
                return Ok(Place {
                    node: node.clone(),
                    uid: uid.clone(),
                    checksum: object.spec.checksum,
                    display_name: object.spec.display_name,
                });
            }
            if Instant::now() >= patience {
                let why = "no node has been found to keep it; is one ready?";
                return Err(ApiError::conflict(IMAGES, image.name, why));
            }
            sleep(PLACE_LOOK).await;
        }
    }
}

fn nothing_to_say() -> ApiResponse {
    respond::value(success::OK, negotiate::Format::Json, &serde_json::json!({}))
}

fn offset_text(offset: u64) -> String {
    if offset == 0 { String::new() } else { offset.to_string() }
}

fn may_be_uploaded(image: &VirtualMachineImage, name: &str) -> Result<(), ApiError> {
    if image.metadata.deletion_timestamp.is_some() {
        return Err(ApiError::conflict(IMAGES, name, "it is being deleted"));
    }
    if image.spec.source_type != UPLOAD {
        let source = &image.spec.source_type;
        let why = format!("its sourceType is {source:?}; only one that is \"upload\" is sent by a client");
        return Err(ApiError::conflict(IMAGES, name, why));
    }
    if image.is_imported() {
        return Err(ApiError::conflict(IMAGES, name, "all of it is here already"));
    }
    Ok(())
}

/// Hands the file in `body` to `send`, piece by piece. Ends early, and well, when nobody takes them any more: then there
/// is an answer.
async fn pour<B>(
    body: &mut B,
    mut form: Option<&mut Form>,
    size: Option<u64>,
    send: mpsc::Sender<Passed>,
) -> Result<(), ApiError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: fmt::Display,
{
    let mut sent = 0;
    let too_few_or_many = |sent: u64, size: u64| {
        let how = if sent > size { "more came" } else { "fewer came" };
        ApiError::bad_request(format!("the file should have {size} bytes, and {how}"))
    };
    loop {
        let Ok(frame) = timeout(STALLED, body.frame()).await else {
            return Err(ApiError::bad_request(format!(
                "nothing has come for {} seconds after {sent} bytes of the file",
                STALLED.as_secs()
            )));
        };
        let piece = match frame.transpose() {
            Ok(Some(frame)) => frame.into_data().unwrap_or_default(),
            Ok(None) => break,
            Err(why) => return Err(ApiError::bad_request(format!("the upload broke off: {why}"))),
        };
        let piece = match &mut form {
            Some(form) => form.push(&piece).map_err(|why| ApiError::bad_request(why.to_string()))?,
            None => piece,
        };
        if piece.is_empty() {
            continue;
        }
        sent += piece.len() as u64;
        if let Some(size) = size.filter(|size| sent > *size) {
            return Err(too_few_or_many(sent, size));
        }
        if send.send(Passed::Piece(piece)).await.is_err() {
            return Ok(());
        }
    }
    if let Some(form) = form {
        form.end().map_err(|why| {
            ApiError::bad_request(format!("{why}: the file must be in part {:?}", PARTS[0]))
        })?;
    }
    if let Some(size) = size.filter(|size| sent != *size) {
        return Err(too_few_or_many(sent, size));
    }
    let _ = send.send(Passed::End).await;
    Ok(())
}

/// What is said of a file beforehand.
#[derive(Debug, PartialEq, Eq)]
struct Announced {
    /// Of all of it.
    size: Option<u64>,
    /// How much of it was sent before.
    offset: u64,
}

/// How long the file is and where this part of it begins, as clients say it: in the query, in a header of Harvester's
/// console, as `Content-Range`, or as the length of a body that is the file.
fn announced(headers: &HeaderMap, query: &Query) -> Result<Announced, ApiError> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let number = |what: &str, text: &str| {
        text.parse::<u64>()
            .map_err(|_| ApiError::bad_request(format!("{what} {text:?} is not a number of bytes")))
    };
    let (mut said_offset, mut said_size) = (query.get("offset"), query.get("size").or(header("file-size")));
    if let Some(range) = header("content-range") {
        let parsed = range.strip_prefix("bytes ").and_then(|range| range.split_once('/'));
        let Some((part, whole)) = parsed else {
            return Err(ApiError::bad_request(format!("the content range {range:?} makes no sense")));
        };
        said_offset = said_offset.or(part.split_once('-').map(|(first, _)| first));
        said_size = said_size.or(Some(whole).filter(|whole| *whole != "*"));
    }
    let offset = said_offset.map_or(Ok(0), |text| number("offset", text))?;
    let size = said_size.map(|text| number("size", text)).transpose()?;
    let plain = content_type(headers).is_none_or(|text| !is_form(text));
    let length = if plain { header("content-length") } else { None };
    let length = length.map(|text| number("size", text)).transpose()?;
    Ok(Announced { size: size.or(length.and_then(|length| length.checked_add(offset))), offset })
}

/// None for a body that is the file itself.
fn form(headers: &HeaderMap) -> Result<Option<Form>, ApiError> {
    match content_type(headers) {
        None => Ok(None),
        Some(text) if is_form(text) => {
            Form::of(text, PARTS).map(Some).map_err(|why| ApiError::bad_request(why.to_string()))
        }
        Some(text) if text.to_ascii_lowercase().starts_with("application/octet-stream") => Ok(None),
        Some(_) => Err(ApiError::unsupported_media_type("multipart/form-data, application/octet-stream")),
    }
}

fn content_type(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::CONTENT_TYPE)?.to_str().ok()
}

fn is_form(content_type: &str) -> bool {
    content_type.to_ascii_lowercase().starts_with("multipart/form-data")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_asked_of_an_image_is() {
        let query = |text| Query::parse(Some(text));
        let read = |path: &str, text| asked(path, &query(text)).map(|image| image.ask);
        for prefix in ["/v1/harvester/", "/v1/"] {
            let path = format!("{prefix}harvesterhci.io.virtualmachineimages/ns/a");
            let uploaded = ImageRequest { namespace: "ns", name: "a", ask: Ask::Upload };
            assert_eq!(asked(&path, &query("action=upload")), Some(uploaded));
            assert_eq!(asked(&path, &query("action=download")), None);
            assert_eq!(asked(&path, &query("")), None);
            assert_eq!(read(&path, "link=download"), Some(Ask::Download));
            assert_eq!(read(&format!("{path}/download"), ""), Some(Ask::Download));
            assert_eq!(read(&format!("{path}/downloadcancel"), ""), Some(Ask::CancelDownload));
            assert_eq!(read(&format!("{path}/upload"), ""), Some(Ask::HowFar));
            assert_eq!(read(&format!("{path}/upload"), "action=upload"), None);
        }
        for path in [
            "/v1/harvester/harvesterhci.io.virtualmachineimages/a",
            "/v1/harvester/harvesterhci.io.virtualmachineimages/ns/a/b",
            "/v1/harvester/harvesterhci.io.virtualmachineimages/ns/..",
            "/v1/harvester/harvesterhci.io.virtualmachineimages/../a",
            "/v1/harvester/harvesterhci.io.virtualmachineimages/ns/a%2fb",
            "/v1/harvester/harvesterhci.io.keypairs/ns/a",
            "/v1/harvester",
        ] {
            for text in ["action=upload", "link=download"] {
                assert_eq!(read(path, text), None, "{path}");
            }
        }
    }

    #[test]
    fn a_part_of_a_file_is_said_in_the_query_or_in_a_header() {
        let said = |headers: &[(&str, &str)], text| {
            let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
            announced(&headers.collect(), &Query::parse(Some(text))).ok()
        };
        let part = |size, offset| Some(Announced { size, offset });
        assert_eq!(said(&[], ""), part(None, 0));
        assert_eq!(said(&[], "size=10&offset=4"), part(Some(10), 4));
        assert_eq!(said(&[("file-size", "10")], ""), part(Some(10), 0));
        assert_eq!(said(&[("content-length", "6")], "offset=4"), part(Some(10), 4));
        assert_eq!(
            said(&[("content-range", "bytes 4-9/10"), ("content-length", "6")], ""),
            part(Some(10), 4)
        );
        assert_eq!(said(&[("content-range", "bytes 4-9/*")], ""), part(None, 4));
        for bad in ["bytes", "bytes 4", "bytes x-9/10", "bytes 4-9/x"] {
            assert_eq!(said(&[("content-range", bad)], ""), None, "{bad}");
        }
        assert_eq!(said(&[], "offset=-4"), None);
    }
}
