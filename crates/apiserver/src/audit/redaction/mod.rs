//! What of a request and its answer may stand in a log.
//!
//! Decided by kind ([`class`]), both by the one in the path and by the one a body says it is:
//!
//! | class | kinds | what is left |
//! |---|---|---|
//! | closed | Secrets, users, API tokens, token requests and reviews, settings, all of Rancher's | what is known to be harmless: a few fields by name |
//! | machine | everything of KubeVirt and Harvester | all but annotations, seeds for cloud-init, unknown volumes, long texts |
//! | open | everything else | all |
//!
//! and, whatever the class, without `managedFields`, without what kubectl applied last, and without what is named like a
//! secret or looks like one (keys, tokens, kubeconfigs, cloud-config). Requests that are not for objects (logins, changes
//! of passwords) have no bodies in the log at all; neither has a body that cannot be read, or is large.
//!
//! Deliberately absent: a guess at what custom resources of others hold. By the table they are open.

mod address;
mod class;
mod tree;

use bytes::Bytes;
use serde_json::{Map, Value};
use sheaf_resources::redaction::REDACTED;

pub(super) use self::address::shown_uri;
use self::class::Class;
use crate::{body, request::ResourceRequest, status::ApiError};

/// Larger bodies are not in the log.
const LARGEST: usize = 256 * 1024;

/// A body as it may be shown.
#[derive(Debug, PartialEq)]
pub enum Shown {
    Value(Value),
    /// There is none, or nobody can read it.
    Nothing,
    TooLarge,
}

/// What a client sent to `request`, in whatever form it said.
pub fn sent(request: &ResourceRequest, media: &str, bytes: &Bytes) -> Shown {
    let is_patch = media.ends_with("-patch+json");
    let read = |bytes: &Bytes| match media {
        _ if is_patch => body::json(bytes),
        "application/apply-patch+yaml" | "application/yaml" | "application/x-yaml" | "text/yaml" => {
            body::yaml(bytes)
        }
        sheaf_resources::protobuf::MEDIA_TYPE => body::protobuf(bytes),
        // Whoever says nothing, or asks machines to do something, sends JSON.
        _ => body::json(bytes),
    };
    shown(request, bytes, read)
}

/// What a client got from `request`.
pub fn answered(request: &ResourceRequest, media: &str, bytes: &Bytes) -> Shown {
    match media.split(';').next().unwrap_or_default() {
        "application/json" => shown(request, bytes, |bytes| body::json(bytes)),
        "application/yaml" => shown(request, bytes, |bytes| body::yaml(bytes)),
        _ => Shown::Nothing,
    }
}

fn shown(
    request: &ResourceRequest,
    bytes: &Bytes,
    read: impl FnOnce(&Bytes) -> Result<body::Document, ApiError>,
) -> Shown {
    if bytes.is_empty() {
        return Shown::Nothing;
    }
    if bytes.len() > LARGEST {
        return Shown::TooLarge;
    }
    match read(bytes) {
        Ok(document) => {
            let mut value = document.value;
            tree::redact(&mut value, Class::of(request));
            Shown::Value(value)
        }
        // What it is made of is not known, so nothing of it is.
        Err(_) => Shown::Nothing,
    }
}

/// Why a request was refused. Messages about what was sent may quote it, whatever it is; which field it was and what
/// sort of fault is told all the same.
pub fn refusal(request: Option<&ResourceRequest>, error: &ApiError) -> Value {
    let mut status = match error.to_value() {
        Value::Object(status) => status,
        _ => Map::new(),
    };
    status.remove("kind");
    status.remove("apiVersion");
    let quotes = !matches!(
        error.reason(),
        "NotFound" | "AlreadyExists" | "Unauthorized" | "Forbidden" | "TooManyRequests"
    );
    let says_what_was_sent = matches!(error.reason(), "Invalid" | "BadRequest");
    let is_open = request.is_some_and(|request| Class::of(request) == Class::Open);
    if says_what_was_sent || (quotes && !is_open) {
        status.remove("message");
        if let Some(Value::Object(details)) = status.get_mut("details") {
            let causes = details.get_mut("causes").and_then(Value::as_array_mut);
            for cause in causes.into_iter().flatten() {
                if let Some(cause) = cause.as_object_mut() {
                    cause.remove("message");
                }
            }
        }
    }
    Value::Object(status)
}

#[cfg(test)]
#[path = "redaction_tests.rs"]
mod tests;
