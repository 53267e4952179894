//! Takes the bytes of an image and hands them on as they come.

use std::{io, pin::Pin};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::{Request, header};
use http_body_util::BodyDataStream;
use hyper::body::Incoming;

use super::answer::{self, Answer, Refusal};

/// The bytes of an upload, at the pace of whoever takes them.
pub type ImageBytes = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// Where uploaded images go.
#[async_trait]
pub trait ImageSink: Send + Sync {
    /// Takes everything, or says in a sentence why not. `size` is what the sender announced.
    async fn receive(&self, image: &str, bytes: ImageBytes, size: Option<u64>) -> Result<(), String>;
}

/// For a node that keeps none.
pub struct NoImages;

#[async_trait]
impl ImageSink for NoImages {
    async fn receive(&self, image: &str, _bytes: ImageBytes, _size: Option<u64>) -> Result<(), String> {
        Err(format!("this node keeps no images, so it cannot take {image}"))
    }
}

pub async fn upload(
    sink: &dyn ImageSink,
    image: &str,
    request: Request<Incoming>,
) -> Result<Answer, Refusal> {
    let announced = request.headers().get(header::CONTENT_LENGTH);
    let size = announced.and_then(|length| length.to_str().ok()?.parse().ok());
    let bytes = BodyDataStream::new(request.into_body()).map(|piece| piece.map_err(io::Error::other));
    sink.receive(image, Box::pin(bytes), size).await.map_err(Refusal::Failed)?;
    Ok(answer::done())
}
