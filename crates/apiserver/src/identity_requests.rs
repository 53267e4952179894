//! Requests of people about themselves: to sign in with a name and a password, and to choose a new password.
//!
//! Where and how Rancher has them. Neither asks for a right: the password is the right.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, request::Parts};
use serde_json::{Value, json};
use sheaf_resources::field_error::{FieldError, FieldPath};

use crate::{
    ApiServer, body,
    identity::{
        ANONYMOUS, User, WriteError,
        api_tokens::{GROUP, TokenWish, USERS},
        password_change::ChangeError,
        passwords::PasswordError,
        users::{LoginError, UserError},
    },
    negotiate,
    request::Query,
    respond::{self, ApiResponse},
    status::{ApiError, Named, success},
};

/// How long a login lasts at most.
const SESSION_MILLIS: i64 = 16 * 3600 * 1000;

impl ApiServer {
    /// `/v3-public/localProviders/local?action=login`: a name and a password for a token.
    pub(crate) async fn public_login(
        &self,
        parts: &Parts,
        path: &str,
        query: &Query,
        body: &Bytes,
    ) -> Result<ApiResponse, ApiError> {
        if path != "/v3-public/localProviders/local" || query.get("action") != Some("login") {
            return Ok(no_such_page());
        }
        if parts.method != Method::POST {
            return Err(ApiError::method_not_allowed());
        }
        let wish = body::decode(&parts.headers, body)?.value;
        let text = |field: &str| wish[field].as_str().unwrap_or_default().to_string();
        let user = self.users().login(&text("username"), &text("password")).await.map_err(login_failed)?;
        let token = TokenWish {
            user_id: user.id.clone(),
            ttl_millis: wish["ttl"]
                .as_i64()
                .filter(|ttl| *ttl > 0)
                .unwrap_or(SESSION_MILLIS)
                .min(SESSION_MILLIS),
            description: text("description"),
            derived: false,
        };
        let (object, bearer) = self.users().mint_token(&token).await.map_err(ApiError::internal)?;
        let answer = json!({
            "type": "token", "id": object["metadata"]["name"], "name": object["metadata"]["name"],
            "userId": object["userId"], "token": bearer.as_str(), "ttl": object["ttl"],
            "expiresAt": object["expiresAt"], "mustChangePassword": user.must_change_password,
        });
        let mut response = respond::value(success::CREATED, negotiate::Format::Json, &answer);
        response.extensions_mut().insert(respond::SignedIn(user.id));
        Ok(response)
    }

    /// `/v3/users?action=changepassword`: the current password and a new one. The session that asks goes on, all
    /// others of that person end.
    pub(crate) async fn answer_users(
        &self,
        parts: &Parts,
        path: &str,
        query: &Query,
        body: &Bytes,
        user: &Arc<User>,
    ) -> Result<ApiResponse, ApiError> {
        if user.name == ANONYMOUS {
            return Err(ApiError::unauthorized());
        }
        if path != "/v3/users" || query.get("action") != Some("changepassword") {
            return Ok(no_such_page());
        }
        if parts.method != Method::POST {
            return Err(ApiError::method_not_allowed());
        }
        let wish = body::decode(&parts.headers, body)?.value;
        let text = |field: &str| wish[field].as_str().unwrap_or_default();
        let missing: Vec<FieldError> = ["currentPassword", "newPassword"]
            .into_iter()
            .filter(|field| text(field).is_empty())
            .map(|field| FieldError::required(&FieldPath::new(field), ""))
            .collect();
        if !missing.is_empty() {
            return Err(ApiError::invalid(GROUP, "User", &user.name, &missing));
        }
        // What was changed through another server a moment ago is what the old password is compared with.
        self.reach(crate::rest::options::Freshness::Latest).await?;
        self.users()
            .change_password(&user.name, text("currentPassword"), text("newPassword"), user.token_name())
            .await
            .map_err(|why| change_failed(&user.name, why))?;
        Ok(respond::value(success::OK, negotiate::Format::Json, &json!({})))
    }
}

fn no_such_page() -> ApiResponse {
    respond::text(success::NO_SUCH_PAGE, "404 page not found\n")
}

fn login_failed(why: LoginError) -> ApiError {
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

fn change_failed(name: &str, why: ChangeError) -> ApiError {
    let users = Named { group: GROUP, resource: USERS };
    let invalid = |field: &str, detail: &str| {
        let error = FieldError::invalid(&FieldPath::new(field), Value::from("<hidden>"), detail);
        ApiError::invalid(GROUP, "User", name, &[error])
    };
    match why {
        // Not "Unauthorized": the session is good, and a client that heard so would throw it away.
        ChangeError::Login(LoginError::Refused) => invalid("currentPassword", "is not the current password"),
        ChangeError::Login(why) => login_failed(why),
        ChangeError::User(UserError::Weak(why)) => invalid("newPassword", &why.to_string()),
        ChangeError::User(UserError::Unknown { .. }) => {
            ApiError::refused(users, name, "only a local user has a password, and this is none")
        }
        ChangeError::User(UserError::Password { source: PasswordError::Busy, .. }) => {
            login_failed(LoginError::Busy)
        }
        ChangeError::User(UserError::Write(WriteError::Conflict { .. })) => ApiError::stale(users, name),
        ChangeError::User(why) => ApiError::internal(why),
    }
}

#[cfg(test)]
#[path = "identity_requests_tests.rs"]
mod tests;
