//! Takes the bytes of an image and hands them on as they come.

use std::{io, pin::Pin};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::{Request, header};
use http_body_util::BodyDataStream;
use hyper::body::Incoming;
use sheaf_storage::{Checksum, ImageError, ImageId, Storage};

use super::answer::{self, Answer, Refusal, chain};

/// The bytes of an upload, at the pace of whoever takes them.
pub type ImageBytes = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// What the sender said beforehand of what it sends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Announced {
    pub size: Option<u64>,
    /// SHA-256 or SHA-512, in hexadecimal.
    pub checksum: Option<String>,
}

/// Why an image was not taken: one sentence for the person who sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// It is not what it should be.
    Unfit(String),
    /// Somebody is sending it already.
    OnItsWay(String),
    Failed(String),
}

/// Where uploaded images go.
#[async_trait]
pub trait ImageSink: Send + Sync {
    /// Takes everything, or says why not.
    async fn receive(&self, image: &str, bytes: ImageBytes, announced: Announced) -> Result<(), NotTaken>;
}

/// For a node that keeps none.
pub struct NoImages;

#[async_trait]
impl ImageSink for NoImages {
    async fn receive(&self, image: &str, _bytes: ImageBytes, _announced: Announced) -> Result<(), NotTaken> {
        Err(NotTaken::Failed(format!("this node keeps no images, so it cannot take {image}")))
    }
}

/// The images of this node.
pub struct Shelf(pub Storage);

#[async_trait]
impl ImageSink for Shelf {
    async fn receive(&self, image: &str, bytes: ImageBytes, announced: Announced) -> Result<(), NotTaken> {
        let id: ImageId = image.parse().map_err(|why| NotTaken::Unfit(format!("{why}")))?;
        let checksum = match announced.checksum.as_deref().map(|text| (text, Checksum::parse(text))) {
            None => None,
            Some((_, Some(checksum))) => Some(checksum),
            Some((text, None)) => {
                return Err(NotTaken::Unfit(format!("{text:?} is neither a SHA-256 nor a SHA-512")));
            }
        };
        let taken = match checksum {
            Some(checksum) => self.0.receive_checked_image(&id, bytes, announced.size, checksum).await,
            None => self.0.receive_image(&id, bytes, announced.size).await,
        };
        taken.map(drop).map_err(|why| {
            let sentence = chain(&why);
            match why {
                ImageError::AlreadyArriving { .. } | ImageError::DeletedMeanwhile { .. } => {
                    NotTaken::OnItsWay(sentence)
                }
                ImageError::WrongSize { .. }
                | ImageError::TooLarge { .. }
                | ImageError::WrongChecksum { .. }
                | ImageError::Refused(_) => NotTaken::Unfit(sentence),
                ImageError::NoSuchImage { .. }
                | ImageError::Fetch(_)
                | ImageError::Interrupted { .. }
                | ImageError::NoSpace { .. }
                | ImageError::DiskFull { .. }
                | ImageError::Disk(_) => NotTaken::Failed(sentence),
            }
        })
    }
}

pub async fn upload(
    sink: &dyn ImageSink,
    image: &str,
    checksum: Option<String>,
    request: Request<Incoming>,
) -> Result<Answer, Refusal> {
    let length = request.headers().get(header::CONTENT_LENGTH);
    let size = length.and_then(|length| length.to_str().ok()?.parse().ok());
    let bytes = BodyDataStream::new(request.into_body()).map(|piece| piece.map_err(io::Error::other));
    sink.receive(image, Box::pin(bytes), Announced { size, checksum }).await.map_err(|why| match why {
        NotTaken::Unfit(sentence) => Refusal::Malformed(sentence),
        NotTaken::OnItsWay(sentence) => Refusal::Taken(sentence),
        NotTaken::Failed(sentence) => Refusal::Failed(sentence),
    })?;
    Ok(answer::done())
}
