//! `/v3/principals`: who somebody is, to a dashboard that shows it.

use serde_json::{Value, json};

use super::{Asked, shapes};
use crate::{
    ApiServer,
    identity::{
        api_tokens::{GROUP, USERS},
        objects::text,
    },
    negotiate::Format,
    respond::{self, ApiResponse},
    status::{ApiError, Named, success},
};

const PATH: &str = "/v3/principals";
const SCHEME: &str = "local://";

impl ApiServer {
    /// Oneself, and by name whoever one may see.
    pub(super) fn answer_principals(&self, asked: &Asked<'_>) -> Result<ApiResponse, ApiError> {
        if !asked.is_reading() {
            return Err(ApiError::method_not_allowed());
        }
        let oneself = self.oneself(asked);
        if asked.place.name.is_empty() {
            let data = oneself.iter().map(|user| shown(asked, user)).collect();
            let page = shapes::collection(asked, "principal", PATH, data, &[]);
            return Ok(respond::value(success::OK, Format::Json, &page));
        }
        let name = asked.place.name.strip_prefix(SCHEME).unwrap_or_default();
        let is_seen = name == asked.user.name || self.may(asked.user, "get", GROUP, USERS, name);
        let found = self.users().find(name).filter(|_| is_seen);
        match found {
            Some(user) => Ok(respond::value(success::OK, Format::Json, &shown(asked, &user))),
            None => {
                let principals = Named { group: GROUP, resource: "principals" };
                Err(ApiError::not_found(principals, &asked.place.name))
            }
        }
    }
}

fn shown(asked: &Asked<'_>, user: &Value) -> Value {
    let name = text(user, "/metadata/name");
    let id = format!("{SCHEME}{name}");
    let path = format!("{PATH}/local%3A%2F%2F{name}");
    let display = Some(text(user, "/displayName")).filter(|name| !name.is_empty());
    let fields = json!({
        "name": display.unwrap_or(text(user, "/username")), "loginName": user["username"],
        "principalType": "user", "provider": "local", "me": name == asked.user.name, "memberOf": false,
    });
    let mut shaped = shapes::resource(asked, "principal", &path, user, fields, &["self"], &[]);
    shaped["id"] = id.into();
    shaped
}
