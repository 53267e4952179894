//! Errors as the API tells them: `Status` objects with the reasons, codes and details
//! clients branch on. The only file of the tree that names HTTP status codes.

use std::{fmt, time::Duration};

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Map, Value, json};
use sheaf_resources::{
    apply::Conflicts,
    field_error::{FieldError, aggregate, told},
};
use sheaf_store::StoreError;

/// Why a request was not done.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    code: u16,
    reason: &'static str,
    message: String,
    details: Option<Value>,
    retry_after: Option<Duration>,
    /// An inconsistent continue token offered with an expired one.
    continue_token: Option<String>,
}

/// How a resource is named in messages: `configmaps` or `widgets.example.com`.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    pub group: &'a str,
    pub resource: &'a str,
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.resource)?;
        if self.group.is_empty() { Ok(()) } else { write!(f, ".{}", self.group) }
    }
}

impl ApiError {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        ApiError {
            code: code.as_u16(),
            reason,
            message: message.into(),
            details: None,
            retry_after: None,
            continue_token: None,
        }
    }

    fn about(mut self, what: Named<'_>, name: &str) -> Self {
        let mut details = Map::new();
        if !name.is_empty() {
            details.insert("name".into(), name.into());
        }
        if !what.group.is_empty() {
            details.insert("group".into(), what.group.into());
        }
        details.insert("kind".into(), what.resource.into());
        self.details = Some(Value::Object(details));
        self
    }

    fn with_cause(mut self, cause: Value) -> Self {
        let details = self.details.get_or_insert_with(|| json!({}));
        details["causes"] = json!([cause]);
        self
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        ApiError::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    pub fn unauthorized() -> Self {
        ApiError::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// A browser's session was used by a page that may not. Rancher's code and word for it.
    pub fn cross_site(why: &dyn std::error::Error) -> Self {
        ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "InvalidCSRFToken", why.to_string())
    }

    /// Something that makes no sense for whoever asks for it. Rancher's code and word for it.
    pub fn senseless(message: impl Into<String>) -> Self {
        ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "InvalidAction", message)
    }

    /// `message` is the whole sentence, as the authorizer words it.
    pub fn forbidden(what: Named<'_>, name: &str, message: impl Into<String>) -> Self {
        ApiError::new(StatusCode::FORBIDDEN, "Forbidden", message).about(what, name)
    }

    /// Forbidden by an admission check: `configmaps "x" is forbidden: why`.
    pub fn refused(what: Named<'_>, name: &str, why: impl fmt::Display) -> Self {
        let message = format!("{what} \"{name}\" is forbidden: {why}");
        ApiError::new(StatusCode::FORBIDDEN, "Forbidden", message).about(what, name)
    }

    pub fn namespace_terminating(what: Named<'_>, name: &str, namespace: &str) -> Self {
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        ApiError::refused(what, name, why).with_cause(json!({
            "reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace",
        }))
    }

    pub fn not_found(what: Named<'_>, name: &str) -> Self {
        ApiError::new(StatusCode::NOT_FOUND, "NotFound", format!("{what} \"{name}\" not found"))
            .about(what, name)
    }

    pub fn already_exists(what: Named<'_>, name: &str) -> Self {
        let message = format!("{what} \"{name}\" already exists");
        ApiError::new(StatusCode::CONFLICT, "AlreadyExists", message).about(what, name)
    }

    /// Five draws of a generated name were all taken.
    pub fn generated_name_taken(what: Named<'_>, name: &str) -> Self {
        let message = format!(
            "{what} \"{name}\" already exists, the server was not able to generate a unique name for the object"
        );
        ApiError::new(StatusCode::CONFLICT, "AlreadyExists", message).about(what, name).retry_after(1)
    }

    pub fn conflict(what: Named<'_>, name: &str, why: impl fmt::Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {what} \"{name}\": {why}");
        ApiError::new(StatusCode::CONFLICT, "Conflict", message).about(what, name)
    }

    /// Two want a field to be different: one cause for each field and the one who owns it.
    pub fn apply_conflict(conflicts: &Conflicts) -> Self {
        let causes: Vec<Value> = conflicts
            .named()
            .into_iter()
            .map(|conflict| {
                json!({
                    "reason": "FieldManagerConflict",
                    "message": format!("conflict with {}", conflict.manager),
                    "field": conflict.field,
                })
            })
            .collect();
        let mut error = ApiError::new(StatusCode::CONFLICT, "Conflict", conflicts.to_string());
        error.details = Some(json!({"causes": causes}));
        error
    }

    pub fn stale(what: Named<'_>, name: &str) -> Self {
        ApiError::conflict(
            what,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 422 with one cause per field error that is [`told`]. `kind` is the kind's own name here, not the resource's.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let causes: Vec<Value> = told(errors)
            .iter()
            .map(|e| json!({"reason": e.reason(), "message": e.body(), "field": e.field}))
            .collect();
        let what = Named { group, resource: kind };
        let message = match errors {
            [] => format!("{what} \"{name}\" is invalid"),
            some => format!("{what} \"{name}\" is invalid: {}", aggregate(some)),
        };
        let mut error = ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).about(what, name);
        if !causes.is_empty() {
            error.details.get_or_insert_with(|| json!({}))["causes"] = Value::Array(causes);
        }
        error
    }

    /// A request whose parts do not go together, told without a field.
    pub fn unprocessable(message: impl Into<String>) -> Self {
        ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message)
    }

    /// What it would take is not here.
    pub fn failed_dependency(message: impl Into<String>) -> Self {
        ApiError::new(StatusCode::FAILED_DEPENDENCY, "FailedDependency", message)
    }

    pub fn method_not_allowed() -> Self {
        ApiError::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
    }

    pub fn method_not_allowed_because(message: &str) -> Self {
        ApiError { message: message.to_string(), ..ApiError::method_not_allowed() }
    }

    /// An action that the resource does not have.
    pub fn invalid_action(name: &str) -> Self {
        let message = format!("Invalid action: {name}");
        ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "InvalidAction", message)
    }

    /// A type or a link that there is not.
    pub fn unknown(message: impl Into<String>) -> Self {
        ApiError::new(StatusCode::NOT_FOUND, "NotFound", message)
    }

    /// Something of the original that is not served here yet.
    pub fn not_served(what: &str, why: &str) -> Self {
        let message = format!("{what} is not served yet: {why}");
        ApiError::new(StatusCode::NOT_FOUND, "NotFound", message)
    }

    pub fn not_acceptable(accepted: &str) -> Self {
        let message = format!("only the following media types are accepted: {accepted}");
        ApiError::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    pub fn unsupported_media_type(accepted: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {accepted}"
        );
        ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    pub fn body_too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    pub fn request_too_large(why: &str) -> Self {
        let message = format!("Request entity too large: {why}");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    pub fn expired(message: impl Into<String>) -> Self {
        ApiError::new(StatusCode::GONE, "Expired", message)
    }

    /// An expired continue token, with one offered that continues from the same key on newer data.
    pub fn continue_expired(fresh: String) -> Self {
        let mut error = ApiError::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list \
             without the continue parameter, or use the continue token in this response to retrieve the remainder of \
             the results. Continuing with the provided token results in an inconsistent list - objects that were \
             created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
        );
        error.continue_token = Some(fresh);
        error
    }

    /// The requested version has not been reached here yet.
    pub fn too_large_resource_version(requested: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {requested}, current: {current}");
        ApiError::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message)
            .with_cause(json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}))
            .retry_after(1)
    }

    pub fn timeout(message: impl Into<String>) -> Self {
        ApiError::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message).retry_after(1)
    }

    pub fn too_many_requests(message: impl Into<String>, wait: Duration) -> Self {
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message)
            .retry_after(wait.as_secs().max(1))
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message).retry_after(1)
    }

    pub fn internal(message: impl fmt::Display) -> Self {
        let message = format!("Internal error occurred: {message}");
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    /// What the original has no word for, and answers as its own fault.
    pub fn unexplained(message: impl Into<String>) -> Self {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(Duration::from_secs(seconds));
        let details = self.details.get_or_insert_with(|| json!({}));
        details["retryAfterSeconds"] = seconds.into();
        self
    }

    pub fn code(&self) -> StatusCode {
        StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    pub fn reason(&self) -> &'static str {
        self.reason
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    pub fn retry_after_secs(&self) -> Option<u64> {
        self.retry_after.map(|wait| wait.as_secs().max(1))
    }

    /// The same, with more to its sentence.
    pub fn going_on(mut self, more: &str) -> Self {
        self.message.push_str(more);
        self
    }

    pub fn is_forbidden(&self) -> bool {
        self.reason == "Forbidden"
    }

    pub fn is_conflict(&self) -> bool {
        self.reason == "Conflict"
    }

    pub fn is_not_found(&self) -> bool {
        self.reason == "NotFound"
    }

    pub fn is_too_large(&self) -> bool {
        self.reason == "RequestEntityTooLarge"
    }

    pub fn is_already_exists(&self) -> bool {
        self.reason == "AlreadyExists"
    }

    /// Whether the namespace it was to be made in is on its way out.
    pub fn is_namespace_terminating(&self) -> bool {
        let status = self.to_value();
        let mut causes = status["details"]["causes"].as_array().into_iter().flatten();
        causes.any(|cause| cause["reason"] == "NamespaceTerminating")
    }

    /// The `Status` object that is the body of the answer, or of a watch's ERROR event.
    pub fn to_value(&self) -> Value {
        let mut metadata = json!({});
        if let Some(token) = &self.continue_token {
            metadata["continue"] = token.clone().into();
        }
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        });
        if self.reason.is_empty()
            && let Some(status) = status.as_object_mut()
        {
            status.remove("reason");
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        status
    }

    pub fn to_bytes(&self) -> Bytes {
        self.to_value().to_string().into()
    }

    /// What the agent of a node refused, about one object. Where the caller can do nothing about it, the fault is
    /// inside.
    pub fn from_agent(code: StatusCode, what: Named<'_>, name: &str, sentence: &str) -> Self {
        match code {
            StatusCode::BAD_REQUEST => ApiError::bad_request(sentence),
            StatusCode::CONFLICT => ApiError::conflict(what, name, sentence),
            StatusCode::RANGE_NOT_SATISFIABLE => {
                ApiError::new(code, "RequestedRangeNotSatisfiable", sentence).about(what, name)
            }
            _ => ApiError::internal(sentence),
        }
    }

    /// What the store said, in the API's words, about one object.
    pub fn from_store(error: &StoreError, what: Named<'_>, name: &str) -> Self {
        match error {
            StoreError::Conflict { .. } => ApiError::stale(what, name),
            StoreError::Compacted { requested, oldest } => {
                ApiError::expired(format!("too old resource version: {requested} ({oldest})"))
            }
            StoreError::Future { requested, newest } => {
                ApiError::too_large_resource_version(requested.0, newest.0)
            }
            StoreError::TooLarge { limit, .. } => ApiError::body_too_large(*limit),
            StoreError::Unavailable { .. } => ApiError::unavailable(error.to_string()),
            // The client must not take this for "did not happen": reads tell.
            StoreError::OutcomeUnknown { .. } => {
                ApiError::timeout(format!("{error}; read {what} \"{name}\" before trying again"))
            }
            // Our own transactions are well formed; one that is not is a bug here.
            StoreError::Invalid { .. } | StoreError::Failed { .. } => ApiError::internal(error),
        }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}

/// Codes of answers that are not errors, named here so that no other file spells them.
pub mod success {
    use http::StatusCode;
    pub const OK: StatusCode = StatusCode::OK;
    pub const CREATED: StatusCode = StatusCode::CREATED;
    pub const ACCEPTED: StatusCode = StatusCode::ACCEPTED;
    pub const NO_CONTENT: StatusCode = StatusCode::NO_CONTENT;
    /// The connection is a stream from here on.
    pub const HANDED_OVER: StatusCode = StatusCode::SWITCHING_PROTOCOLS;
    pub const MOVED: StatusCode = StatusCode::MOVED_PERMANENTLY;
    /// What is asked for is elsewhere for now.
    pub const FOUND: StatusCode = StatusCode::FOUND;
    pub const NOT_MODIFIED: StatusCode = StatusCode::NOT_MODIFIED;
    /// Paths outside every API answer in plain text, as the original does.
    pub const NO_SUCH_PAGE: StatusCode = StatusCode::NOT_FOUND;
    pub const UNHEALTHY: StatusCode = StatusCode::INTERNAL_SERVER_ERROR;
}
