//! Takes the bytes of an image from a client and passes them to the node that keeps it.
//!
//! `POST /v1/harvester/harvesterhci.io.virtualmachineimages/{namespace}/{name}?action=upload&size=BYTES`, as Harvester has
//! it: a form whose part `chunk` is the file. A bare `application/octet-stream` is taken as well.
//!
//! ```text
//!   client --form--> [the file's bytes, one piece at a time] --chunked or sized--> agent --> disk
//! ```
//!
//! Nothing is collected: a piece is read when the agent has taken the one before. What breaks off on either side breaks
//! off on the other, so that half a file is never taken for a whole one. The status of the image is the agent's to write.

pub mod multipart;

use std::{fmt, io, pin::pin, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, header, request::Parts};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, StreamBody};
use sheaf_resources::kinds::virtual_machine_image::{NODE_ANNOTATION, VirtualMachineImage};
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
/// The part of the form that is the file.
const PART: &str = "chunk";
/// Clients send right after they have made the image; which node keeps it is decided meanwhile.
const PLACE_PATIENCE: Duration = Duration::from_secs(15);
const PLACE_LOOK: Duration = Duration::from_millis(100);
/// A sender of whom nothing comes for so long is gone.
const STALLED: Duration = Duration::from_secs(60);
/// The agent still has to bring everything to its disk.
const ANSWER_PATIENCE: Duration = Duration::from_secs(300);
/// How long a refused sender may go on sending before the connection is closed under it: many read the answer only
/// after their last byte.
const LINGER: Duration = Duration::from_secs(3);

/// The image that a request brings the bytes of.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Uploaded<'a> {
    namespace: &'a str,
    name: &'a str,
}

/// What a request for this path wants to upload, if that is what it is.
pub(crate) fn uploaded<'a>(path: &'a str, query: &Query) -> Option<Uploaded<'a>> {
    let path = path.strip_prefix("/v1/harvester/").or_else(|| path.strip_prefix("/v1/"))?;
    let rest = path.strip_prefix("harvesterhci.io.virtualmachineimages/")?;
    let (namespace, name) = rest.trim_end_matches('/').split_once('/')?;
    let plain = |text: &str| !text.is_empty() && !text.contains(['/', '%']) && text != "." && text != "..";
    (query.get("action") == Some("upload") && plain(namespace) && plain(name))
        .then_some(Uploaded { namespace, name })
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
}

impl ApiServer {
    pub(crate) async fn upload_image<B>(
        &self,
        parts: &Parts,
        mut body: B,
        query: &Query,
        image: &Uploaded<'_>,
        user: &User,
        trail: &mut Trail,
    ) -> Result<ApiResponse, ApiError>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: fmt::Display,
    {
        let request = ResourceRequest {
            verb: Verb::Update,
            group: GROUP.into(),
            version: "v1beta1".into(),
            resource: PLURAL.into(),
            subresource: String::new(),
            namespace: image.namespace.into(),
            name: image.name.into(),
        };
        trail.about(&request);
        self.authorize_and_note(user, &request, query, trail)?;
        if parts.method != Method::POST {
            return Err(ApiError::method_not_allowed());
        }
        let outcome = self.pass_on(&parts.headers, &mut body, query, image).await;
        if outcome.is_err() {
            let ignored = async { while let Some(Ok(_)) = body.frame().await {} };
            let _ = timeout(LINGER, ignored).await;
        }
        outcome?;
        Ok(respond::value(success::OK, negotiate::Format::Json, &serde_json::json!({})))
    }

    async fn pass_on<B>(
        &self,
        headers: &HeaderMap,
        body: &mut B,
        query: &Query,
        image: &Uploaded<'_>,
    ) -> Result<(), ApiError>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: fmt::Display,
    {
        let size = announced_size(headers, query)?;
        let mut form = form(headers)?;
        let at = self.place_of_image(image).await?;
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
        let checked = if at.checksum.is_empty() { "" } else { "?checksum=" };
        let mut request = Request::put(format!("/v1/images/{}/upload{checked}{}", at.uid, at.checksum))
            .header(header::HOST, &at.node);
        if let Some(size) = size {
            request = request.header(header::CONTENT_LENGTH, size);
        }
        let request = request.body(StreamBody::new(pieces)).map_err(ApiError::internal)?;

        let mut answering = pin!(agent.send_request(request));
        let early = tokio::select! {
            biased;
            answer = &mut answering => Some(answer),
            poured = pour(body, form.as_mut(), size, send) => {
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

    /// Which node keeps the image. Waits a moment for that to be decided.
    async fn place_of_image(&self, image: &Uploaded<'_>) -> Result<Place, ApiError> {
        self.reach(Freshness::Latest).await?;
        let patience = Instant::now() + PLACE_PATIENCE;
        loop {
            let found = self.cache.get(&Resource::new(GROUP, PLURAL), &place(image.namespace, image.name));
            let found = found.ok_or_else(|| ApiError::not_found(IMAGES, image.name))?.to_value();
            let object: VirtualMachineImage =
                serde_json::from_value(found).map_err(|why: serde_json::Error| ApiError::internal(why))?;
            may_be_uploaded(&object, image.name)?;
            let annotations = object.metadata.annotations.unwrap_or_default();
            if let (Some(node), Some(uid)) = (annotations.get(NODE_ANNOTATION), &object.metadata.uid) {
                return Ok(Place { node: node.clone(), uid: uid.clone(), checksum: object.spec.checksum });
            }
            if Instant::now() >= patience {
                let why = "no node has been found to keep it; is one ready?";
                return Err(ApiError::conflict(IMAGES, image.name, why));
            }
            sleep(PLACE_LOOK).await;
        }
    }
}

fn may_be_uploaded(image: &VirtualMachineImage, name: &str) -> Result<(), ApiError> {
    if image.metadata.deletion_timestamp.is_some() {
        return Err(ApiError::conflict(IMAGES, name, "it is being deleted"));
    }
    if image.spec.source_type != "upload" {
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
        form.end()
            .map_err(|why| ApiError::bad_request(format!("{why}: the file must be in part {PART:?}")))?;
    }
    if let Some(size) = size.filter(|size| sent != *size) {
        return Err(too_few_or_many(sent, size));
    }
    let _ = send.send(Passed::End).await;
    Ok(())
}

/// How long the file is, as clients say it: in the query, in a header of Harvester's console, or as the length of a body
/// that is the file.
fn announced_size(headers: &HeaderMap, query: &Query) -> Result<Option<u64>, ApiError> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let plain = content_type(headers).is_none_or(|text| !is_form(text));
    let length = if plain { header("content-length") } else { None };
    let Some(text) = query.get("size").or(header("file-size")).or(length) else { return Ok(None) };
    let wrong = || ApiError::bad_request(format!("size {text:?} is not a number of bytes"));
    text.parse().map(Some).map_err(|_| wrong())
}

/// None for a body that is the file itself.
fn form(headers: &HeaderMap) -> Result<Option<Form>, ApiError> {
    match content_type(headers) {
        None => Ok(None),
        Some(text) if is_form(text) => {
            Form::of(text, PART).map(Some).map_err(|why| ApiError::bad_request(why.to_string()))
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
    fn only_the_action_on_an_image_is_an_upload() {
        let query = |text| Query::parse(Some(text));
        let read = |path, text| uploaded(path, &query(text)).map(|image| (image.namespace, image.name));
        for prefix in ["/v1/harvester/", "/v1/"] {
            let path = format!("{prefix}harvesterhci.io.virtualmachineimages/ns/a");
            assert_eq!(
                uploaded(&path, &query("action=upload")),
                Some(Uploaded { namespace: "ns", name: "a" })
            );
            assert_eq!(uploaded(&path, &query("action=download")), None);
        }
        for path in [
            "/v1/harvester/harvesterhci.io.virtualmachineimages/a",
            "/v1/harvester/harvesterhci.io.virtualmachineimages/ns/a/b",
            "/v1/harvester/harvesterhci.io.virtualmachineimages/ns/..",
            "/v1/harvester/harvesterhci.io.keypairs/ns/a",
            "/v1/harvester",
        ] {
            assert_eq!(read(path, "action=upload"), None, "{path}");
        }
    }
}
