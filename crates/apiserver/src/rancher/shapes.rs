//! The shapes of Rancher's answers: resources and collections with their links and actions, and errors.

use http::{HeaderValue, header};
use serde_json::{Map, Value, json};
use sheaf_world::Timestamp;

use super::{Asked, What, is_public, place};
use crate::{
    respond::{self, ApiResponse},
    status::ApiError,
};

/// Whether what is asked for at a path is answered here, or refused here.
pub(crate) fn answers(path: &str) -> bool {
    is_public(path) || path.starts_with("/v3/") || place(path).is_some()
}

/// The answer to a request that failed, in the words of the API that was asked.
pub(crate) fn error(path: &str, why: &ApiError) -> ApiResponse {
    let mut response = match place(path) {
        // As Harvester answers it: the sentence alone.
        Some(place) if place.what == What::GuestKubeconfig => {
            respond::text(why.code(), why.message().to_owned())
        }
        _ => respond::json_bytes(why.code(), told(why).to_string()),
    };
    if let Some(seconds) = why.retry_after_secs() {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn told(why: &ApiError) -> Value {
    let status = why.to_value();
    let cause = &status["details"]["causes"][0];
    let field = cause["field"].as_str().unwrap_or_default();
    let (code, message) = match why.reason() {
        "Invalid" if cause["reason"] == "FieldValueDuplicate" && field == "username" => {
            ("NotUnique", "Username is already in use.")
        }
        "Invalid" | "BadRequest" => ("InvalidBodyContent", why.message()),
        "AlreadyExists" => ("Conflict", why.message()),
        "InternalError" | "" => ("ServerError", why.message()),
        reason => (reason, why.message()),
    };
    let mut error = json!({
        "type": "error", "baseType": "error", "links": {}, "code": code, "message": message,
        "status": status["code"],
    });
    if !field.is_empty() {
        error["fieldName"] = field.into();
    }
    error
}

/// Puts the links and actions around what a resource of `/v3` says.
pub(super) fn resource(
    asked: &Asked<'_>,
    kind: &str,
    path: &str,
    object: &Value,
    fields: Value,
    links: &[&str],
    actions: &[&str],
) -> Value {
    let mut shaped = fields;
    let metadata = &object["metadata"];
    let created = metadata["creationTimestamp"].as_str().unwrap_or_default();
    let itself = asked.link(path);
    let links: Map<String, Value> =
        links.iter().map(|name| ((*name).to_owned(), itself.clone().into())).collect();
    shaped["id"] = metadata["name"].clone();
    shaped["uuid"] = metadata["uid"].clone();
    shaped["type"] = kind.into();
    shaped["baseType"] = kind.into();
    shaped["created"] = created.into();
    if let Ok(time) = created.parse::<Timestamp>() {
        shaped["createdTS"] = time.as_millisecond().into();
    }
    shaped["links"] = links.into();
    shaped["actions"] = self::actions(&itself, actions);
    shaped
}

/// A page of resources; there is only ever one.
pub(super) fn collection(
    asked: &Asked<'_>,
    kind: &str,
    path: &str,
    data: Vec<Value>,
    actions: &[&str],
) -> Value {
    json!({
        "type": "collection",
        "resourceType": kind,
        "links": {"self": asked.link(path)},
        "createTypes": {},
        "actions": self::actions(&asked.link(path), actions),
        "pagination": {"limit": 1000, "total": data.len()},
        "sort": {"order": "asc", "reverse": asked.link(&format!("{path}?order=desc"))},
        "filters": {},
        "data": data,
    })
}

pub(super) fn actions(link: &str, names: &[&str]) -> Value {
    let named = names.iter().map(|name| ((*name).to_owned(), format!("{link}?action={name}").into()));
    Value::Object(named.collect())
}

/// An object of the Kubernetes API as `/v1` shows it.
pub(super) fn steve_resource(
    asked: &Asked<'_>,
    kind: &str,
    plural: &str,
    mut object: Value,
    links: &[&str],
    actions: &[&str],
) -> Value {
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let itself = asked.link(&format!("/v1/{plural}/{name}"));
    let links: Map<String, Value> =
        links.iter().map(|link| ((*link).to_owned(), itself.clone().into())).collect();
    object["id"] = name.into();
    object["type"] = kind.into();
    object["links"] = links.into();
    object["actions"] = self::actions(&itself, actions);
    object["metadata"]["state"] =
        json!({"name": "active", "error": false, "transitioning": false, "message": "Resource is current"});
    object
}

pub(super) fn steve_collection(asked: &Asked<'_>, kind: &str, plural: &str, data: Vec<Value>) -> Value {
    json!({
        "type": "collection",
        "resourceType": kind,
        "links": {"self": asked.link(&format!("/v1/{plural}"))},
        "createTypes": {},
        "actions": {},
        "count": data.len(),
        "data": data,
    })
}

#[cfg(test)]
mod tests {
    use sheaf_resources::field_error::{FieldError, FieldPath};

    use super::*;
    use crate::status::Named;

    #[test]
    fn errors_are_told_in_rancher_s_words() {
        let users = Named { group: "management.cattle.io", resource: "users" };
        let duplicate = FieldError::duplicate(&FieldPath::new("username"), "jo");
        let cases = [
            (ApiError::unauthorized(), 401, "Unauthorized", ""),
            (ApiError::not_found(users, "x"), 404, "NotFound", ""),
            (ApiError::refused(users, "x", "no"), 403, "Forbidden", ""),
            (ApiError::already_exists(users, "x"), 409, "Conflict", ""),
            (ApiError::bad_request("x"), 400, "InvalidBodyContent", ""),
            (ApiError::internal("x"), 500, "ServerError", ""),
            (ApiError::invalid(users.group, "User", "x", &[duplicate]), 422, "NotUnique", "username"),
        ];
        for (why, status, code, field) in cases {
            let told = told(&why);
            assert_eq!(
                (&told["type"], &told["status"], &told["code"]),
                (&json!("error"), &json!(status), &json!(code))
            );
            assert_eq!(told["fieldName"].as_str().unwrap_or_default(), field);
        }
    }
}
