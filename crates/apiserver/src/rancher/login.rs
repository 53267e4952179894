//! Signing in: a name and a password for a token, or for the cookies of a session.
//!
//! It asks for no right: the password is the right. What is answered to somebody who is refused is the same whoever
//! they say they are.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, header, request::Parts};
use serde_json::{Value, json};
use sheaf_resources::field_error::{FieldError, FieldPath};

use super::{not_here, read, shapes};
use crate::{
    ApiServer,
    dispatch::Peer,
    identity::{
        api_tokens::{Purpose, TokenWish},
        session_cookie,
        users::LoginError,
    },
    negotiate::Format,
    request::Query,
    respond::{self, ApiResponse, SignedIn},
    rest::options::Freshness,
    status::{ApiError, success},
};

/// How long a login lasts at most.
const SESSION_MILLIS: i64 = 16 * 3600 * 1000;
const LOCAL: &str = "/v3-public/localProviders/local";
/// The certificate authority, for whoever is about to trust it: they know its sum from elsewhere.
const CA_CERTS: &str = "/cacerts";

/// Whether anybody may ask there, without having said who they are.
pub(crate) fn is_public(path: &str) -> bool {
    path.starts_with("/v3-public/")
        || path.starts_with("/v1-public/")
        || path == "/v3-public"
        || path == CA_CERTS
}

/// Whether somebody wants to sign in. Nothing else of what strangers send is read.
pub(crate) fn is_login(method: &Method, path: &str, query: &Query) -> bool {
    method == Method::POST && path == LOCAL && query.get("action") == Some("login")
}

impl ApiServer {
    /// `login` is the body of one.
    pub(crate) async fn answer_public(
        &self,
        parts: &Parts,
        path: &str,
        query: &Query,
        peer: &Peer,
        login: Option<&Bytes>,
    ) -> Result<ApiResponse, ApiError> {
        if let Some(body) = login {
            return self.sign_in(parts, peer, &read(Some(body))?).await;
        }
        let link = |path: &str| super::link(parts, path);
        let provider = |path: &str| {
            let itself = link(path);
            json!({
                "id": "local", "type": "localProvider", "baseType": "authProvider", "creatorId": null,
                "links": {"self": itself}, "actions": shapes::actions(&link(LOCAL), &["login"]),
            })
        };
        let all = |kind: &str, path: &str| {
            json!({
                "type": "collection", "resourceType": kind, "links": {"self": link(path)}, "createTypes": {},
                "actions": {}, "data": [provider(&format!("{path}/local"))],
            })
        };
        let path = path.trim_end_matches('/');
        let document = match path {
            CA_CERTS if matches!(parts.method, Method::GET | Method::HEAD) => {
                return Ok(respond::text(success::OK, self.config.ca_pem.clone()));
            }
            CA_CERTS => return Err(ApiError::method_not_allowed()),
            "/v3-public" => json!({
                "type": "collection", "links": {
                    "self": link(path), "authProviders": link("/v3-public/authProviders"),
                    "localProviders": link("/v3-public/localProviders"),
                },
            }),
            LOCAL | "/v3-public/authProviders/local" | "/v1-public/authproviders/local" => provider(path),
            "/v3-public/localProviders" => all("localProvider", path),
            "/v3-public/authProviders" | "/v1-public/authproviders" => all("authProvider", path),
            _ => return Ok(not_here()),
        };
        if query.get("action").is_some() && path == LOCAL && parts.method == Method::POST {
            return Ok(not_here());
        }
        if !matches!(parts.method, Method::GET | Method::HEAD) || query.get("action").is_some() {
            return Err(ApiError::method_not_allowed());
        }
        Ok(respond::value(success::OK, Format::Json, &document))
    }

    async fn sign_in(&self, parts: &Parts, peer: &Peer, wish: &Value) -> Result<ApiResponse, ApiError> {
        let text = |field: &str| wish[field].as_str().unwrap_or_default();
        let is_browser = match text("responseType") {
            "" | "token" | "json" => false,
            "cookie" => true,
            other => {
                let path = FieldPath::new("responseType");
                let error = FieldError::not_supported(&path, other, ["cookie", "json", "token"]);
                return Err(ApiError::invalid("management.cattle.io", "BasicLogin", "local", &[error]));
            }
        };
        if is_browser {
            // Else any page could make its visitors work in a session of its author.
            session_cookie::is_not_foreign(parts).map_err(|why| ApiError::cross_site(&why))?;
        }
        let address = peer.address.map(|address| address.ip());
        // A password that was changed through another server a moment ago opens nothing any more.
        self.reach(Freshness::Latest).await?;
        let user =
            self.users().login(text("username"), text("password"), address).await.map_err(login_failed)?;
        let asked_millis = wish["ttl"].as_i64().filter(|ttl| *ttl > 0).unwrap_or(SESSION_MILLIS);
        let token = TokenWish {
            user_id: user.id.clone(),
            ttl_millis: asked_millis.min(SESSION_MILLIS),
            description: text("description").to_owned(),
            purpose: Purpose::Session,
            password: user.password.clone(),
        };
        let (object, bearer) = self.users().mint_token(&token).await.map_err(ApiError::internal)?;
        let mut response = match is_browser {
            true => {
                let mut response = respond::value(success::OK, Format::Json, &json!({}));
                set_cookies(&mut response, &session_cookie::begin(&bearer));
                response
            }
            false => {
                let answer = json!({
                    "type": "token", "baseType": "token", "id": object["metadata"]["name"],
                    "name": object["metadata"]["name"], "userId": object["userId"], "token": bearer.as_str(),
                    "ttl": object["ttl"], "expiresAt": object["expiresAt"], "isDerived": false,
                    "authProvider": "local", "enabled": true, "description": object["description"],
                    "mustChangePassword": user.must_change_password,
                    "links": {"self": super::link(parts, &format!(
                        "/v3/tokens/{}", object["metadata"]["name"].as_str().unwrap_or_default()
                    ))},
                    "actions": {},
                });
                respond::value(success::CREATED, Format::Json, &answer)
            }
        };
        response.extensions_mut().insert(SignedIn(user.id));
        Ok(response)
    }
}

pub(super) fn set_cookies(response: &mut ApiResponse, cookies: &[String]) {
    for cookie in cookies {
        if let Ok(value) = HeaderValue::from_str(cookie) {
            response.headers_mut().append(header::SET_COOKIE, value);
        }
    }
}

pub(super) fn login_failed(why: LoginError) -> ApiError {
    match why {
        LoginError::Refused => ApiError::unauthorized(),
        LoginError::Busy => {
            ApiError::too_many_requests("too many logins at once; try again", Duration::from_secs(1))
        }
        LoginError::TooMany { retry_after } => {
            ApiError::too_many_requests("too many failed logins; wait before trying again", retry_after)
        }
    }
}
