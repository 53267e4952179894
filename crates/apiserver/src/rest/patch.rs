//! Changing an object by saying only what changes.

use serde_json::Value;
use sheaf_resources::{
    field_error::{FieldError, FieldPath},
    patch::{self, PatchError},
};

use super::{
    Call, apply as applying, decode,
    get::seen_as,
    options::WriteOptions,
    update::{Part, version_of},
};
use crate::{
    ApiServer, body,
    respond::ApiResponse,
    status::{ApiError, success},
};

const FOR_BUILT_IN: &str = "application/json-patch+json, application/merge-patch+json, \
    application/strategic-merge-patch+json, application/apply-patch+yaml";
const FOR_CUSTOM: &str =
    "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";

/// A patch, read once and applied as often as needed.
enum Patch {
    Json(patch::json::JsonPatch),
    Merge(Value),
    Strategic(Value),
}

impl ApiServer {
    pub(crate) async fn patch(&self, call: &Call<'_>) -> Result<ApiResponse, ApiError> {
        if body::media_type(call.headers) == applying::MEDIA_TYPE {
            return self.apply(call).await;
        }
        let part = Part::of(call)?;
        let options = WriteOptions::parse(call.query, call.request.verb)?;
        let (patch, repeated) = read_patch(call)?;
        let change = |current: &Value| {
            // A patch is written against the version the client sees.
            let seen = seen(call, current)?;
            let mut patched = apply(call, &patch, &seen)?;
            // A patch that does not speak of the version means: whatever is there now.
            if version_of(&patched).is_empty() || version_of(&patched) == version_of(&seen) {
                patched["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"].clone();
            }
            let name = patched["metadata"]["name"].as_str().unwrap_or_default();
            if name != call.request.name {
                return Err(ApiError::bad_request(format!(
                    "the name of the object ({name}) does not match the name on the URL ({})",
                    call.request.name
                )));
            }
            let version = patched["metadata"]["resourceVersion"].clone();
            let mut decoded = decode::accept(call, patched, repeated.clone(), options.field_validation)
                .map_err(|why| unfit(apply(call, &patch, &seen), &why))?;
            decoded["metadata"]["resourceVersion"] = version;
            self.settle_namespace(call, &mut decoded)?;
            Ok(decoded)
        };
        let written = self.modify(call, part, options.dry_run, change).await?;
        self.written_response(call, &written, success::OK)
    }
}

/// A patch that leads to no object of the kind. The original blames the patch, not the request.
fn unfit(patched: Result<Value, ApiError>, why: &ApiError) -> ApiError {
    let patched = patched.unwrap_or_default().to_string();
    let error = FieldError::invalid(&FieldPath::new("patch"), patched, why.message());
    ApiError::invalid("", "", "", &[error])
}

/// A stored object, with its resourceVersion, in the version asked for.
pub(super) fn seen(call: &Call<'_>, stored: &Value) -> Result<Value, ApiError> {
    let kind = &call.served.kind;
    match kind.conversion.is_none() && kind.api_version() == kind.stored_version {
        true => Ok(stored.clone()),
        false => Ok(seen_as(kind, stored.clone())),
    }
}

fn read_patch(call: &Call<'_>) -> Result<(Patch, Vec<String>), ApiError> {
    let custom = call.served.kind.custom;
    let unsupported = || ApiError::unsupported_media_type(if custom { FOR_CUSTOM } else { FOR_BUILT_IN });
    match body::media_type(call.headers).as_str() {
        "application/json-patch+json" => {
            let document = body::json(&call.body)?;
            let patch = patch::json::JsonPatch::read(&document.value).map_err(|why| told(&why))?;
            Ok((Patch::Json(patch), Vec::new()))
        }
        "application/merge-patch+json" => {
            let document = body::json(&call.body)?;
            Ok((Patch::Merge(must_be_object(document.value)?), document.repeated))
        }
        "application/strategic-merge-patch+json" if !custom => {
            let document = body::json(&call.body)?;
            Ok((Patch::Strategic(must_be_object(document.value)?), document.repeated))
        }
        _ => Err(unsupported()),
    }
}

fn must_be_object(value: Value) -> Result<Value, ApiError> {
    match value.is_object() {
        true => Ok(value),
        false => Err(ApiError::bad_request("a merge patch must be an object")),
    }
}

fn apply(call: &Call<'_>, patch: &Patch, object: &Value) -> Result<Value, ApiError> {
    let kind = &call.served.kind;
    let patched = match patch {
        Patch::Json(patch) => patch.apply(object.clone()).map_err(|why| told(&why))?,
        Patch::Merge(patch) => {
            patch::merge::apply(object.clone(), patch.clone()).map_err(|why| told(&why))?
        }
        Patch::Strategic(patch) => {
            // Kinds without lists that merge need no table: maps merge by themselves.
            let fields = patch::strategies::for_kind(&kind.group, &kind.kind)
                .unwrap_or(&patch::strategies::Fields(&[]));
            patch::strategic::apply(object.clone(), patch.clone(), fields).map_err(|why| told(&why))?
        }
    };
    match patched.is_object() && patched["metadata"].is_object() {
        true => Ok(patched),
        false => Err(ApiError::bad_request("the patch leaves no object")),
    }
}

/// Why a patch was not applied, with the code the original gives it.
pub(crate) fn told(why: &PatchError) -> ApiError {
    match why {
        PatchError::Malformed(message) => ApiError::bad_request(message.as_str()),
        PatchError::TooLarge(message) => ApiError::request_too_large(message),
        PatchError::DoesNotApply(reason) => {
            tracing::debug!(reason, "a patch did not apply");
            ApiError::unprocessable(format!("{}: {reason}", patch::REJECTED))
        }
        PatchError::CannotMerge(message) => ApiError::internal(message),
    }
}
