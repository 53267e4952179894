//! Takes the bytes of an image and hands them on as they come, and sends those of one that is complete.

use std::{io, pin::Pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use http::{Request, header};
use http_body_util::BodyDataStream;
use hyper::body::Incoming;
use serde_json::json;
use sheaf_storage::{Checksum, ImageError, ImageId, ImageState, OpenImage, Storage};
use tokio::{sync::Mutex, time::timeout};

use super::{
    answer::{self, Answer, Refusal, chain},
    image_file::{FileBody, part},
};

/// How much more, and for how long, somebody is listened to who was refused already.
const MOST_HEARD_OUT: usize = 64 << 20;
const HEARING_OUT: Duration = Duration::from_secs(5);

/// The bytes of an upload, at the pace of whoever takes them.
pub type ImageBytes = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// What the sender said beforehand of what it sends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Announced {
    /// Of all of it.
    pub size: Option<u64>,
    /// SHA-256 or SHA-512, in hexadecimal.
    pub checksum: Option<String>,
    /// How much of it was sent before.
    pub offset: u64,
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

/// Where uploaded images go, and where images are read.
#[async_trait]
pub trait ImageSink: Send + Sync {
    /// Takes everything, or says why not.
    async fn receive(&self, image: &str, bytes: ImageBytes, announced: Announced) -> Result<(), NotTaken>;

    /// How much of an upload that broke off is here, and need not be sent again.
    async fn received(&self, _image: &str) -> Result<u64, NotTaken> {
        Ok(0)
    }

    /// A complete image; none where it is not here.
    async fn open(&self, _image: &str) -> Result<Option<OpenImage>, NotTaken> {
        Ok(None)
    }
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
        let id = id_of(image)?;
        let checksum = match announced.checksum.as_deref().map(|text| (text, Checksum::parse(text))) {
            None => None,
            Some((_, Some(checksum))) => Some(checksum),
            Some((text, None)) => {
                return Err(NotTaken::Unfit(format!("{text:?} is neither a SHA-256 nor a SHA-512")));
            }
        };
        let announced = sheaf_storage::Announced { size: announced.size, checksum, offset: announced.offset };
        let taken = self.0.receive_image(&id, bytes, announced).await;
        taken.map(drop).map_err(not_taken)
    }

    async fn received(&self, image: &str) -> Result<u64, NotTaken> {
        match self.0.image(&id_of(image)?).await.map_err(not_taken)? {
            ImageState::Interrupted { bytes, .. } => Ok(bytes),
            ImageState::Arriving { .. } => Err(NotTaken::OnItsWay("somebody is sending it".into())),
            ImageState::Nothing | ImageState::Failed { .. } | ImageState::Complete(_) => Ok(0),
        }
    }

    async fn open(&self, image: &str) -> Result<Option<OpenImage>, NotTaken> {
        match self.0.open_image_for_reading(&id_of(image)?).await {
            Ok(open) => Ok(Some(open)),
            Err(ImageError::NoSuchImage { .. }) => Ok(None),
            Err(why) => Err(not_taken(why)),
        }
    }
}

fn id_of(image: &str) -> Result<ImageId, NotTaken> {
    image.parse().map_err(|why| NotTaken::Unfit(format!("{why}")))
}

fn not_taken(why: ImageError) -> NotTaken {
    let sentence = chain(&why);
    match why {
        ImageError::AlreadyArriving { .. }
        | ImageError::DeletedMeanwhile { .. }
        | ImageError::WrongOffset { .. } => NotTaken::OnItsWay(sentence),
        ImageError::WrongSize { .. }
        | ImageError::TooLarge { .. }
        | ImageError::WrongChecksum { .. }
        | ImageError::Unpacking { .. }
        | ImageError::Bomb { .. }
        | ImageError::Refused(_) => NotTaken::Unfit(sentence),
        ImageError::NoSuchImage { .. }
        | ImageError::Fetch(_)
        | ImageError::Interrupted { .. }
        | ImageError::NoSpace { .. }
        | ImageError::DiskFull { .. }
        | ImageError::Damaged { .. }
        | ImageError::Disk(_) => NotTaken::Failed(sentence),
    }
}

impl From<NotTaken> for Refusal {
    fn from(why: NotTaken) -> Refusal {
        match why {
            NotTaken::Unfit(sentence) => Refusal::Malformed(sentence),
            NotTaken::OnItsWay(sentence) => Refusal::Taken(sentence),
            NotTaken::Failed(sentence) => Refusal::Failed(sentence),
        }
    }
}

pub async fn upload(
    sink: &dyn ImageSink,
    image: &str,
    (checksum, offset): (Option<String>, u64),
    request: Request<Incoming>,
) -> Result<Answer, Refusal> {
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length: Option<u64> = length.and_then(|length| length.to_str().ok()?.parse().ok());
    let size = length.and_then(|length| length.checked_add(offset));
    let body = Arc::new(Mutex::new(BodyDataStream::new(request.into_body())));
    let bytes = stream::unfold(body.clone(), |body| async {
        let piece = body.lock().await.next().await?;
        Some((piece.map_err(io::Error::other), body))
    });
    let taken = sink.receive(image, Box::pin(bytes), Announced { size, checksum, offset }).await;
    if taken.is_err() {
        hear_out(&body).await;
    }
    taken?;
    Ok(answer::done())
}

/// Whoever is refused while still sending may never hear the refusal: what is on its way is taken and thrown away first, as
/// far as that is reasonable.
async fn hear_out(body: &Mutex<BodyDataStream<Incoming>>) {
    let rest = async {
        let (mut body, mut heard) = (body.lock().await, 0);
        while let Some(Ok(piece)) = body.next().await {
            heard += piece.len();
            if heard > MOST_HEARD_OUT {
                return;
            }
        }
    };
    // Who takes longer is cut off.
    let _ = timeout(HEARING_OUT, rest).await;
}

pub async fn how_far(sink: &dyn ImageSink, image: &str) -> Result<Answer, Refusal> {
    Ok(answer::json(&json!({"offset": sink.received(image).await?})))
}

/// Sends a complete image, or the part of it that is asked for.
pub async fn download(
    sink: &dyn ImageSink,
    image: &str,
    request: &Request<Incoming>,
) -> Result<Answer, Refusal> {
    let Some(open) = sink.open(image).await? else {
        return Err(Refusal::NotHere(format!("the image {image} is not on this node")));
    };
    // An image never changes, so its uid says all about what it is.
    let etag = format!("\"{image}\"");
    let said = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    let is_meant = said(header::IF_RANGE).is_none_or(|meant| meant == etag);
    let range = said(header::RANGE).filter(|_| is_meant);
    let wanted = part(range, open.length).map_err(|_| Refusal::Beyond(open.length))?;
    let (first, sent) = wanted.unwrap_or((0, open.length));
    let body = FileBody::of(open.file, first, sent).await;
    let body = body.map_err(|why| Refusal::Failed(format!("the image {image} cannot be read: {why}")))?;
    Ok(answer::file(body, first, open.length, wanted.is_some(), &etag))
}
