//! What the stream port answers. The only file of the agent that names HTTP status codes.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{Either, Full};
use serde_json::Value;
use sheaf_hypervisor::{GuestAgentError, HypervisorError, QmpError};

use super::{UPGRADE, image_file::FileBody};

/// What is in memory, or a file that is read as it is sent.
pub type Answer = Response<Either<Full<Bytes>, FileBody>>;

/// Why a request was not done. The text is one sentence for the person who asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Nothing is at this path, or no such machine runs here.
    #[error("{0}")]
    NotHere(String),
    #[error("{0}")]
    Malformed(String),
    #[error("{0}")]
    Forbidden(String),
    #[error("this is not how it is asked for")]
    WrongMethod,
    /// Somebody else has it.
    #[error("{0}")]
    Taken(String),
    /// The part that is asked for lies beyond the end.
    #[error("it has {0} bytes, and none of those that are asked for")]
    Beyond(u64),
    /// The guest does not answer there.
    #[error("{0}")]
    Unreachable(String),
    #[error("{0}")]
    Failed(String),
}

impl Refusal {
    fn code(&self) -> StatusCode {
        match self {
            Refusal::NotHere(_) => StatusCode::NOT_FOUND,
            Refusal::Malformed(_) => StatusCode::BAD_REQUEST,
            Refusal::Forbidden(_) => StatusCode::FORBIDDEN,
            Refusal::WrongMethod => StatusCode::METHOD_NOT_ALLOWED,
            Refusal::Taken(_) => StatusCode::CONFLICT,
            Refusal::Beyond(_) => StatusCode::RANGE_NOT_SATISFIABLE,
            Refusal::Unreachable(_) => StatusCode::BAD_GATEWAY,
            Refusal::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl From<HypervisorError> for Refusal {
    fn from(why: HypervisorError) -> Self {
        match why {
            HypervisorError::NotRunning { .. } | HypervisorError::NotDefined { .. } => {
                Refusal::NotHere(chain(&why))
            }
            why => Refusal::Failed(chain(&why)),
        }
    }
}

impl From<QmpError> for Refusal {
    fn from(why: QmpError) -> Self {
        Refusal::Failed(chain(&why))
    }
}

impl From<GuestAgentError> for Refusal {
    fn from(why: GuestAgentError) -> Self {
        Refusal::Failed(chain(&why))
    }
}

/// An error with its causes, as one sentence.
pub fn chain(why: &dyn std::error::Error) -> String {
    let mut text = why.to_string();
    let mut cause = why.source();
    while let Some(why) = cause {
        text += &format!(": {why}");
        cause = why.source();
    }
    text
}

pub fn refused(why: &Refusal) -> Answer {
    with_type(why.code(), "text/plain; charset=utf-8", why.to_string().into())
}

pub fn done() -> Answer {
    Response::new(Either::Left(Full::default()))
}

/// A file of `length` bytes of which `body` sends those from `first` on; all of it, or a part that was asked for.
pub fn file(body: FileBody, first: u64, length: u64, is_part: bool, etag: &str) -> Answer {
    let sent = body.length();
    let mut answer = Response::new(Either::Right(body));
    if is_part {
        *answer.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(sent));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Ok(etag) = HeaderValue::from_str(etag) {
        headers.insert(header::ETAG, etag);
    }
    let last = (first + sent).saturating_sub(1);
    if is_part && let Ok(range) = HeaderValue::from_str(&format!("bytes {first}-{last}/{length}")) {
        headers.insert(header::CONTENT_RANGE, range);
    }
    answer
}

pub fn json(value: &Value) -> Answer {
    json_text(value.to_string())
}

/// What is JSON already.
pub fn json_text(text: impl Into<Bytes>) -> Answer {
    with_type(StatusCode::OK, "application/json", text.into())
}

pub fn png(image: Vec<u8>) -> Answer {
    with_type(StatusCode::OK, "image/png", image.into())
}

/// From here on the connection is a stream.
pub fn handed_over() -> Answer {
    let mut answer = Response::new(Either::Left(Full::default()));
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = answer.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(UPGRADE));
    answer
}

fn with_type(code: StatusCode, content_type: &'static str, body: Bytes) -> Answer {
    let mut answer = Response::new(Either::Left(Full::new(body)));
    *answer.status_mut() = code;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}
