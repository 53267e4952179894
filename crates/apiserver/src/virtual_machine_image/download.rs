//! Sends an image to whoever may read it: what its node reads is passed on piece by piece, as fast as it is taken.
//!
//! What comes is the image as it is kept, unpacked, under a name that says its format. A part of it may be asked for, so a
//! download that broke off can go on. No seat is taken, since nothing is worked on here, but a place among the streams is,
//! until the last byte is taken or the client is gone.

use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body_util::{BodyDataStream, Empty};
use sheaf_resources::kinds::virtual_machine_image::VirtualMachineImage;
use tokio::time::timeout;

use super::{IMAGES, ImageRequest, SHORT_PATIENCE};
use crate::{
    ApiServer,
    machines::agents,
    respond::{ApiBody, ApiResponse},
    status::ApiError,
};

/// What the agent says of a file that concerns the client as well.
const PASSED: [header::HeaderName; 5] = [
    header::CONTENT_LENGTH,
    header::CONTENT_RANGE,
    header::CONTENT_TYPE,
    header::ACCEPT_RANGES,
    header::ETAG,
];

impl ApiServer {
    pub(super) async fn download_image(
        &self,
        headers: &HeaderMap,
        image: &ImageRequest<'_>,
    ) -> Result<ApiResponse, ApiError> {
        let at = self.place_of_image(image, may_be_downloaded).await?;
        let room = self.nodes.room_for_a_stream()?;
        let mut agent = self.connect_agent(&at.node).await?;
        let mut request =
            Request::get(format!("/v1/images/{}/download", at.uid)).header(header::HOST, &at.node);
        for name in [header::RANGE, header::IF_RANGE] {
            if let Some(value) = headers.get(&name) {
                request = request.header(name, value);
            }
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(ApiError::internal)?;
        let answer = timeout(SHORT_PATIENCE, agent.send_request(request)).await;
        let answer = answer.map_err(|_| agents::silent(&at.node))?;
        let answer = answer.map_err(|why| agents::broken(&at.node, &why))?;
        if !answer.status().is_success() {
            let (code, body) = (answer.status(), answer.into_body());
            return Err(agents::refused(&at.node, (IMAGES, image.name), code, body).await);
        }
        let (said, body) = answer.into_parts();
        let pieces = BodyDataStream::new(body).map(move |piece| {
            // Given back when the body is dropped, at its end or before.
            let _room = &room;
            piece.map_err(std::io::Error::other)
        });
        let mut response = Response::new(ApiBody::Passed(Box::pin(pieces)));
        *response.status_mut() = said.status;
        let headers = response.headers_mut();
        for name in PASSED {
            if let Some(value) = said.headers.get(&name) {
                headers.insert(name, value.clone());
            }
        }
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        headers.insert(header::CONTENT_DISPOSITION, disposition(&at.display_name, image.name));
        Ok(response)
    }
}

fn may_be_downloaded(image: &VirtualMachineImage, name: &str) -> Result<(), ApiError> {
    match image.is_imported() {
        true => Ok(()),
        false => Err(ApiError::conflict(IMAGES, name, "it is not imported yet")),
    }
}

/// Under which name a browser keeps it: its name for people, of which nothing is left that means something to a path.
fn disposition(display_name: &str, name: &str) -> HeaderValue {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ['-', '_', '.'].contains(&c);
    let plain: String = display_name.chars().map(|c| if is_plain(c) { c } else { '_' }).take(128).collect();
    let plain = plain.trim_start_matches('.');
    let file = if plain.is_empty() { name } else { plain };
    HeaderValue::from_str(&format!("attachment; filename=\"{file}\""))
        .unwrap_or_else(|_| HeaderValue::from_static("attachment"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_for_people_never_leads_anywhere() {
        for (shown, expected) in [
            ("debian-12.qcow2", "debian-12.qcow2"),
            ("../../etc/passwd", "_.._etc_passwd"),
            ("..", "i"),
            ("a\"; filename=\"b\r\nx: y", "a___filename__b__x__y"),
            ("", "i"),
            ("Über", "_ber"),
        ] {
            assert_eq!(disposition(shown, "i"), format!("attachment; filename=\"{expected}\""), "{shown}");
        }
    }
}
