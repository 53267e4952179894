//! Why something was not done, as the facade tells it: an object of the type `error`, and plain text where an action was
//! asked for.

use http::{HeaderValue, header};
use serde_json::{Value, json};

use super::address::Address;
use crate::{
    respond::{self, ApiResponse},
    status::ApiError,
};

pub fn told(why: &ApiError, address: &Address) -> ApiResponse {
    // What Harvester answers itself, it answers in a sentence.
    let is_harvesters =
        address.action.is_some() || matches!(address.noun.as_str(), "backuptarget" | "readyz");
    let mut response = match is_harvesters {
        true => respond::text(why.code(), why.message().to_owned()),
        false => respond::json_bytes(why.code(), into_wire(why).to_string()),
    };
    if let Some(seconds) = why.retry_after_secs() {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn into_wire(why: &ApiError) -> Value {
    // What the original has no word for it calls its own fault.
    let code = if why.reason().is_empty() { "ServerError" } else { why.reason() };
    json!({
        "type": "error", "links": {}, "status": why.code().as_u16(), "code": code, "message": why.message(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{request::Query, steve::address};

    #[test]
    fn an_error_is_an_object_and_that_of_an_action_is_a_sentence() {
        let why = ApiError::unknown("there is no type \"x\"");
        let at = |uri: &str| {
            let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
            address::read(path, &Query::parse(Some(query))).unwrap()
        };
        let object = told(&why, &at("/v1/x"));
        assert_eq!(object.headers()[header::CONTENT_TYPE], "application/json");
        assert_eq!(
            into_wire(&why),
            json!({"type": "error", "links": {}, "status": 404, "code": "NotFound",
                "message": "there is no type \"x\""})
        );
        let sentence = told(&why, &at("/v1/x/a?action=start"));
        assert_eq!(sentence.headers()[header::CONTENT_TYPE], "text/plain; charset=utf-8");
        assert_eq!(sentence.status(), object.status());
    }
}
