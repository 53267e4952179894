//! `/v3/tokens`: what somebody holds, and the end of it.
//!
//! Everybody sees their own tokens and no others, makes tokens for themselves and no others, and ends them. The secret
//! is in the answer to its making and never again.
//!
//! What is made with a session is made before the session ends, or not at all: one that ended while it was made takes it
//! along, before anybody knows its secret.

use http::Method;
use serde_json::{Value, json};
use sheaf_resources::{
    field_error::{FieldError, FieldPath},
    kinds::token::{self, End},
};

use super::{Asked, login::set_cookies, not_here, shapes};
use crate::{
    ApiServer,
    identity::{
        WriteError,
        api_tokens::{GROUP, Purpose, TOKENS, TokenWish, ends_with_the_password, is_derived, passwords_of},
        objects::{is_made_for, text},
        session_cookie,
    },
    negotiate::Format,
    request::Verb,
    respond::{self, ApiResponse},
    rest::options::Freshness,
    status::{ApiError, Named, success},
    steve::errand::Errand,
};

const PATH: &str = "/v3/tokens";
const NAMED: Named<'static> = Named { group: GROUP, resource: TOKENS };
const KIND: (&str, &str, &str) = (GROUP, "v3", TOKENS);
/// So many tokens a person has at most, beside sessions: each is an object, and everybody may make them.
const MOST_OF_ONE: usize = 200;

impl ApiServer {
    pub(super) async fn answer_tokens(&self, asked: &Asked<'_>) -> Result<ApiResponse, ApiError> {
        self.reach(Freshness::Latest).await?;
        let name = asked.place.name.as_str();
        match (&asked.parts.method, name, asked.action()) {
            (&Method::POST, "", Some("logout")) => self.log_out(asked, false).await,
            (&Method::POST, "", Some("logoutAll")) => self.log_out(asked, true).await,
            (&Method::POST, _, Some(_)) => Ok(not_here()),
            (_, _, Some(_)) => Err(ApiError::method_not_allowed()),
            (&Method::GET | &Method::HEAD, "", None) => {
                let data =
                    self.own_tokens(asked).iter().map(|token| self.shown_token(asked, token)).collect();
                Ok(answer(&shapes::collection(asked, "token", PATH, data, &["logout", "logoutAll"])))
            }
            (&Method::GET | &Method::HEAD, name, None) => {
                let token = self.own_token(asked, name)?;
                Ok(answer(&self.shown_token(asked, &token)))
            }
            (&Method::POST, "", None) => self.make_token(asked).await,
            (&Method::DELETE, name, None) if !name.is_empty() => {
                let token = self.own_token(asked, name)?;
                if name == asked.user.token_name() && !is_derived(&token) {
                    let why = "Cannot delete token for current session. Use logout instead";
                    return Err(ApiError::bad_request(why));
                }
                self.end_token(asked, name).await?;
                Ok(respond::nothing(success::NO_CONTENT))
            }
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    fn own_tokens(&self, asked: &Asked<'_>) -> Vec<Value> {
        let Some(user) = self.oneself(asked) else { return Vec::new() };
        let mut tokens = self.users().tokens_of(text(&user, "/metadata/name"));
        tokens.retain(|token| is_made_for(token, &user));
        tokens
    }

    /// Somebody else's is not there.
    fn own_token(&self, asked: &Asked<'_>, name: &str) -> Result<Value, ApiError> {
        let mut own = self.own_tokens(asked).into_iter();
        own.find(|token| text(token, "/metadata/name") == name)
            .ok_or_else(|| ApiError::not_found(NAMED, name))
    }

    async fn make_token(&self, asked: &Asked<'_>) -> Result<ApiResponse, ApiError> {
        let ttl = match &asked.body["ttl"] {
            Value::Null => 0,
            ttl => ttl.as_i64().filter(|ttl| *ttl >= 0).ok_or_else(|| {
                invalid("ttl", ttl.clone(), "must be a number of milliseconds; 0 is for ever")
            })?,
        };
        let user_id = asked.text("userId");
        if !user_id.is_empty() && user_id != asked.user.name {
            return Err(ApiError::refused(NAMED, "", "a token is made by whom it is for"));
        }
        let description = asked.text("description").to_owned();
        let (object, bearer) = self.mint_own(asked, ttl, description, Purpose::Program).await?;
        let mut shown = self.shown_token(asked, &object);
        shown["token"] = bearer.as_str().into();
        Ok(respond::value(success::CREATED, Format::Json, &shown))
    }

    /// Makes a token for whoever asks, if they are a person and have not too many.
    pub(super) async fn mint_own(
        &self,
        asked: &Asked<'_>,
        ttl_millis: i64,
        description: String,
        purpose: Purpose,
    ) -> Result<(Value, zeroize::Zeroizing<String>), ApiError> {
        let Some(user) = self.oneself(asked) else {
            let why = format!("{:?} is no local user; tokens are for local users", asked.user.name);
            return Err(ApiError::refused(NAMED, "", why));
        };
        let own = self.own_tokens(asked);
        if own.iter().filter(|token| is_derived(token)).count() >= MOST_OF_ONE {
            let why = format!("one has {MOST_OF_ONE} tokens at most: delete some");
            return Err(ApiError::refused(NAMED, "", why));
        }
        self.must_be_still(asked)?;
        let maker = own.iter().find(|token| text(token, "/metadata/name") == asked.user.token_name());
        if let Some(maker) = maker.filter(|maker| is_derived(maker)) {
            self.outlives_not_its_maker(maker, ttl_millis)?;
        }
        // With the password of its maker, which may be another than the user's by now.
        let password = match maker.filter(|maker| ends_with_the_password(maker)) {
            Some(maker) => passwords_of(maker).to_owned(),
            None => self.users().password_of(&user),
        };
        let user_id = text(&user, "/metadata/name").to_owned();
        let wish = TokenWish { user_id, ttl_millis, description, purpose, password };
        let (token, bearer) = self.users().mint_token(&wish).await.map_err(|why| match why {
            WriteError::Failed { reason, .. } => ApiError::unprocessable(reason),
            why => ApiError::internal(why),
        })?;
        let name = text(&token, "/metadata/name");
        asked.errands.as_server().note(&Errand::new(Verb::Create, KIND, "", name)).await?;
        self.reach(Freshness::Latest).await?;
        if let Err(why) = self.must_be_still(asked) {
            self.end_token(asked, name).await?;
            return Err(why);
        }
        Ok((token, bearer))
    }

    /// Whether what whoever asks came in with is still good.
    fn must_be_still(&self, asked: &Asked<'_>) -> Result<(), ApiError> {
        match self.authenticator.is_still(asked.user) {
            true => Ok(()),
            false => Err(ApiError::unauthorized()),
        }
    }

    /// Whoever found a program's token must not make of it one that lasts longer. A person who signed in may.
    fn outlives_not_its_maker(&self, maker: &Value, ttl_millis: i64) -> Result<(), ApiError> {
        let now = self.world.clock.now().as_millisecond();
        match token::end(maker) {
            End::AtMillis(end) if ttl_millis == 0 || now.saturating_add(ttl_millis) > end => {
                Err(ApiError::refused(NAMED, "", "a token that is made with another one must not outlive it"))
            }
            End::AtMillis(_) | End::Never | End::Unreadable => Ok(()),
        }
    }

    /// Ends the session, or with `all` every session of that person and every kubeconfig they were given.
    async fn log_out(&self, asked: &Asked<'_>, all: bool) -> Result<ApiResponse, ApiError> {
        let current = asked.user.token_name();
        let is_over = |token: &Value| text(token, "/metadata/name") == current || (all && !is_derived(token));
        self.end_own(asked, is_over).await?;
        if all {
            // Only now: what a session was making while it ended is there, or will not be.
            self.end_own(asked, ends_with_the_password).await?;
        }
        let mut response = answer(&json!({}));
        set_cookies(&mut response, &session_cookie::end());
        Ok(response)
    }

    async fn end_own(&self, asked: &Asked<'_>, is_over: impl Fn(&Value) -> bool) -> Result<(), ApiError> {
        for token in self.own_tokens(asked).iter().filter(|token| is_over(token)) {
            self.end_token(asked, text(token, "/metadata/name")).await?;
        }
        Ok(())
    }

    async fn end_token(&self, asked: &Asked<'_>, name: &str) -> Result<(), ApiError> {
        match asked.errands.as_server().ask(&Errand::new(Verb::Delete, KIND, "", name)).await {
            // It ended by itself.
            Err(why) if why.is_not_found() => {}
            done => done.map(drop)?,
        }
        // Over is over: whoever comes with it from now on is refused.
        self.reach(Freshness::Latest).await
    }

    fn shown_token(&self, asked: &Asked<'_>, token: &Value) -> Value {
        let name = text(token, "/metadata/name");
        let now = self.world.clock.now().as_millisecond();
        let is_over = match token::end(token) {
            End::Never => false,
            End::AtMillis(end) => end <= now,
            End::Unreadable => true,
        };
        let fields = json!({
            "name": name, "userId": token["userId"], "description": token["description"], "ttl": token["ttl"],
            "expiresAt": token["expiresAt"], "expired": is_over, "isDerived": is_derived(token),
            "enabled": token["enabled"] != false, "authProvider": "local",
            "current": name == asked.user.token_name() && !is_derived(token),
            "userPrincipal": format!("local://{}", text(token, "/userId")),
            "labels": token["metadata"]["labels"],
            "state": "active", "transitioning": "no", "transitioningMessage": "",
        });
        shapes::resource(asked, "token", &format!("{PATH}/{name}"), token, fields, &["self", "remove"], &[])
    }
}

fn answer(value: &Value) -> ApiResponse {
    respond::value(success::OK, Format::Json, value)
}

fn invalid(field: &str, value: Value, detail: &str) -> ApiError {
    ApiError::invalid(GROUP, "Token", "", &[FieldError::invalid(&FieldPath::new(field), value, detail)])
}
