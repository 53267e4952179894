//! From a request body to an object of the kind asked for.

use serde_json::Value;
use sheaf_resources::{object_meta, schema};

use super::{
    Call,
    options::{FieldValidation, WriteOptions},
};
use crate::{body, registry::Served, status::ApiError};

/// Decodes the body of a create or an update into an object as the client meant it, in its stored version, pruned and
/// defaulted.
pub fn object(call: &Call<'_>, options: &WriteOptions) -> Result<Value, ApiError> {
    let document = body::decode(call.headers, &call.body)?;
    accept(call, document.value, document.repeated, options.field_validation)
}

/// Checks and completes an object in the version served: from a body, or the result of a patch.
pub fn accept(
    call: &Call<'_>,
    mut object: Value,
    repeated: Vec<String>,
    validation: FieldValidation,
) -> Result<Value, ApiError> {
    let served = call.served;
    let kind = &served.kind;
    if !object.is_object() {
        return Err(ApiError::bad_request(format!(
            "the object provided is unrecognized (must be a {} object)",
            kind.kind
        )));
    }
    body::check_depth(&object)?;
    check_address(served, &mut object)?;
    object_meta::check_types(&object).map_err(|why| decode_error(served, &why))?;
    // Whoever writes a subresource says nothing of owners.
    let errors = match call.request.subresource.is_empty() {
        true => object_meta::validate_managers(&object),
        false => Vec::new(),
    };
    if !errors.is_empty() {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        return Err(ApiError::invalid(&kind.group, &kind.kind, name, &errors));
    }
    if !object["metadata"].is_object() {
        object["metadata"] = serde_json::json!({});
    }
    let schema = kind.schema.get();
    if !kind.custom {
        schema::check_types(&object, &schema).map_err(|why| decode_error(served, &why.to_string()))?;
    }
    let mut unknown: Vec<String> = object_meta::prune(&mut object);
    unknown.extend(schema::prune(&mut object, &schema, true));
    unknown.extend((kind.behaviour.prune)(&mut object));
    // As they come in a document whose keys are in order, which is how clients write them.
    unknown.sort_by(|one, other| top(one).cmp(top(other)));
    let warnings = judge(validation, repeated, unknown).map_err(|why| decode_error(served, &why))?;
    schema::apply_defaults(&mut object, &schema)
        .map_err(|why| ApiError::request_too_large(&why.to_string()))?;
    if let Some(conversion) = &kind.conversion {
        (conversion.into_stored)(&mut object);
    }
    object["apiVersion"] = kind.stored_version.clone().into();
    (kind.behaviour.default)(&mut object);
    object_meta::tidy(&mut object);
    call.warnings.add(warnings);
    Ok(object)
}

fn decode_error(served: &Served, why: &str) -> ApiError {
    let kind = &served.kind;
    ApiError::bad_request(format!(
        "{} in version \"{}\" cannot be handled as a {}: {why}",
        kind.kind, kind.version, kind.kind
    ))
}

/// The object must be of the kind and version it was sent to; left out, it is taken to be.
fn check_address(served: &Served, object: &mut Value) -> Result<(), ApiError> {
    let kind = &served.kind;
    let api_version = kind.api_version();
    for (field, expected) in [("apiVersion", api_version.as_str()), ("kind", kind.kind.as_str())] {
        match &object[field] {
            // Custom resources have no Go type to fall back on, so the original insists.
            Value::Null if kind.custom => {
                let field = if field == "kind" { "Kind" } else { "apiVersion" };
                return Err(ApiError::bad_request(format!("Object '{field}' is missing in the body")));
            }
            Value::Null => object[field] = expected.into(),
            Value::String(given) if given == expected => {}
            Value::String(given) if given.is_empty() && !kind.custom => object[field] = expected.into(),
            Value::String(given) => {
                return Err(ApiError::bad_request(match field {
                    "apiVersion" => format!(
                        "the API version in the data ({given}) does not match the expected API version ({expected})"
                    ),
                    _ => format!("{given} in version \"{}\" cannot be handled as a {expected}", kind.version),
                }));
            }
            other => {
                return Err(ApiError::bad_request(format!("{field} must be a string, not {other}")));
            }
        }
    }
    Ok(())
}

/// What becomes of fields that came twice or are not known.
fn judge(
    validation: FieldValidation,
    repeated: Vec<String>,
    unknown: Vec<String>,
) -> Result<Vec<String>, String> {
    let mut findings: Vec<String> =
        repeated.iter().map(|path| format!("duplicate field \"{path}\"")).collect();
    findings.extend(unknown.iter().map(|path| format!("unknown field \"{path}\"")));
    match validation {
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Warn => Ok(findings),
        FieldValidation::Strict if findings.is_empty() => Ok(findings),
        FieldValidation::Strict => Err(format!("strict decoding error: {}", findings.join(", "))),
    }
}

/// The first field of a path.
fn top(path: &str) -> &str {
    path.split(['.', '[']).next().unwrap_or_default()
}
