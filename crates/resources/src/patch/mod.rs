//! Changing a part of an object: JSON patch, merge patch, strategic merge patch.
//!
//! Each takes a document and a patch and gives the new document or says why not; a patch
//! that fails changes nothing. What becomes of the result (defaults, validation, the
//! compare-and-swap) is the caller's. So is the depth of nesting, which must be bounded
//! before a document comes here: all three walk it recursively.

pub mod json;
pub mod merge;
pub mod strategic;
pub mod strategies;

/// Why a patch was not applied, divided by what the original answers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch is not one: 400, `BadRequest`, with this message.
    #[error("{0}")]
    Malformed(String),
    /// More than the server is willing to do: 413, `RequestEntityTooLarge`, with this
    /// message after "Request entity is too large: ".
    #[error("{0}")]
    TooLarge(String),
    /// A patch, but not for this document: 422, `Invalid`, with [`REJECTED`] as the
    /// message and empty details. The reason kept here is for our own log.
    #[error("{0}")]
    DoesNotApply(String),
    /// The original stumbles over these while merging, and answers 500, `InternalError`,
    /// with this message, which clients do match on.
    #[error("{0}")]
    CannotMerge(String),
}

/// What a client reads when a patch does not apply.
pub const REJECTED: &str = "the server rejected our request due to an error in our request";

/// JSON's name for what a value is, as the original's decoder says it.
fn json_kind(value: &serde_json::Value) -> &'static str {
    match value {
        serde_json::Value::Null => "null",
        serde_json::Value::Bool(_) => "bool",
        serde_json::Value::Number(_) => "number",
        serde_json::Value::String(_) => "string",
        serde_json::Value::Array(_) => "array",
        serde_json::Value::Object(_) => "object",
    }
}
