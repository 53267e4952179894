//! Sends the file of a support bundle that is whole, or the part of it that is asked for.

use http::{Request, header};
use hyper::body::Incoming;

use super::{
    answer::{self, Answer, Refusal, chain},
    image_file::{FileBody, part},
};
use crate::support_bundle::{BundleShelf, ShelfError};

pub async fn download(
    shelf: &BundleShelf,
    uid: &str,
    request: &Request<Incoming>,
) -> Result<Answer, Refusal> {
    let open = shelf.read(uid).map_err(|why| match why {
        ShelfError::Uid(_) => Refusal::Malformed(chain(&why)),
        why => Refusal::Failed(chain(&why)),
    })?;
    let Some((file, length)) = open else {
        return Err(Refusal::NotHere(format!("the support bundle {uid} is not on this node")));
    };
    // A file never changes once it has its name, so its uid says all about what it is.
    let etag = format!("\"{uid}\"");
    let said = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    let is_meant = said(header::IF_RANGE).is_none_or(|meant| meant == etag);
    let range = said(header::RANGE).filter(|_| is_meant);
    let wanted = part(range, length).map_err(|_| Refusal::Beyond(length))?;
    let (first, sent) = wanted.unwrap_or((0, length));
    let body = FileBody::of(file, first, sent).await;
    let body = body.map_err(|why| Refusal::Failed(format!("the support bundle cannot be read: {why}")))?;
    Ok(answer::file(body, first, length, wanted.is_some(), &etag))
}
