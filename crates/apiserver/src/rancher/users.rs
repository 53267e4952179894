//! `/v3/users`: people, as Rancher shows them.
//!
//! Whoever may read users reads them here, and so on for each verb; the objects are those of the Kubernetes API.
//! Beside that, everybody sees themselves, says what others see of them, and changes their own password with the old one.
//! To set somebody's password is to be able to be them, so it needs the right to impersonate them as well as the one to
//! change them.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};
use sheaf_resources::{
    field_error::{FieldError, FieldPath},
    object_meta::is_being_deleted,
};

use super::{Asked, login::login_failed, not_here, shapes};
use crate::{
    ApiServer,
    identity::{
        WriteError,
        api_tokens::{GROUP, USERS},
        objects::{text, texts, uid},
        password_change::ChangeError,
        passwords::{PasswordError, check_strength},
        users::{LoginError, PASSWORD_NAMESPACE, UserError},
    },
    negotiate::Format,
    request::Verb,
    respond::{self, ApiResponse},
    rest::options::Freshness,
    status::{ApiError, Named, success},
    steve::errand::{Errand, JSON},
};

const PATH: &str = "/v3/users";
const NAMED: Named<'static> = Named { group: GROUP, resource: USERS };
const KIND: (&str, &str, &str) = (GROUP, "v3", USERS);

/// What a client says of a user, and where that is on the object.
const FIELDS: [(&str, &str); 6] = [
    ("name", "displayName"),
    ("description", "description"),
    ("enabled", "enabled"),
    ("mustChangePassword", "mustChangePassword"),
    ("groups", "groups"),
    ("username", "username"),
];
/// What people may change of themselves.
const OF_ONESELF: [&str; 2] = ["displayName", "description"];

impl ApiServer {
    pub(super) async fn answer_users(&self, asked: &Asked<'_>) -> Result<ApiResponse, ApiError> {
        let name = asked.place.name.as_str();
        match (&asked.parts.method, name, asked.action()) {
            (&Method::POST, "", Some("changepassword")) => self.change_own_password(asked).await,
            (&Method::POST, name, Some("setpassword")) if !name.is_empty() => self.set_password(asked).await,
            (&Method::POST, _, Some(_)) => Ok(not_here()),
            (_, _, Some(_)) => Err(ApiError::method_not_allowed()),
            (&Method::GET | &Method::HEAD, "", None) => self.list_users(asked).await,
            (&Method::GET | &Method::HEAD, name, None) => {
                let user = self.user_for(asked, name).await?;
                Ok(answer(&self.shown_user(asked, &user)))
            }
            (&Method::POST, "", None) => self.create_user(asked).await,
            (&Method::PUT, name, None) if !name.is_empty() => self.update_user(asked).await,
            (&Method::DELETE, name, None) if !name.is_empty() => self.delete_user(asked).await,
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    /// The object of whoever asks, if they are a local user and not one who only has the name: a certificate may say any
    /// name, and so may who acts as somebody else.
    pub(super) fn oneself(&self, asked: &Asked<'_>) -> Option<Arc<Value>> {
        let user = self.users().find(&asked.user.name)?;
        (!uid(&user).is_empty() && uid(&user) == asked.user.uid).then_some(user)
    }

    /// Somebody's object, for who may see it. Who may not learns nothing, also not whether there is one.
    async fn user_for(&self, asked: &Asked<'_>, name: &str) -> Result<Value, ApiError> {
        self.reach(Freshness::Latest).await?;
        if name == asked.user.name
            && let Some(user) = self.oneself(asked)
        {
            let _seat = self.seat_of(asked).await?;
            return Ok(Value::clone(&user));
        }
        asked.errands.ask(&Errand::new(Verb::Get, KIND, "", name)).await
    }

    async fn list_users(&self, asked: &Asked<'_>) -> Result<ApiResponse, ApiError> {
        self.reach(Freshness::Latest).await?;
        let may_list = self.may(asked.user, "list", GROUP, USERS, "");
        let mut users = match may_list && !asked.query.flag("me") {
            true => {
                let list = asked.errands.ask(&Errand::new(Verb::List, KIND, "", "")).await?;
                list["items"].as_array().cloned().unwrap_or_default()
            }
            false => {
                let _seat = self.seat_of(asked).await?;
                self.oneself(asked).map(|user| Value::clone(&user)).into_iter().collect()
            }
        };
        for (word, field) in [("id", "/metadata/name"), ("username", "/username"), ("name", "/displayName")] {
            if let Some(wanted) = asked.query.get(word) {
                users.retain(|user| text(user, field) == wanted);
            }
        }
        let data = users.iter().map(|user| self.shown_user(asked, user)).collect();
        Ok(answer(&shapes::collection(asked, "user", PATH, data, &["changepassword"])))
    }

    async fn create_user(&self, asked: &Asked<'_>) -> Result<ApiResponse, ApiError> {
        let (username, password) = (asked.text("username"), asked.text("password"));
        // Who may not is told so before anything about the user is judged.
        if !self.may(asked.user, "create", GROUP, USERS, "") {
            return Err(self.refused_verb(asked, Verb::Create, ""));
        }
        self.reach(Freshness::Latest).await?;
        if let Some(user) = self.unfinished(asked, username) {
            return self.finish_user(asked, &user).await;
        }
        if self.users().is_taken(username) {
            let duplicate = FieldError::duplicate(&FieldPath::new("username"), username);
            return Err(ApiError::invalid(GROUP, "User", username, &[duplicate]));
        }
        check_strength(username, password).map_err(|why| invalid(username, "password", &why.to_string()))?;
        let mut user = json!({
            "apiVersion": "management.cattle.io/v3", "kind": "User", "enabled": true,
            "metadata": {"name": self.users().name_for(username)},
        });
        apply(asked.body, &mut user);
        user["principalIds"] = json!([format!("local://{}", text(&user, "/metadata/name"))]);
        // What takes long and may be refused comes before anything is there.
        let hash = self.users().hash(password).await.map_err(|why| hashing_failed(username, why))?;
        let create = Errand::new(Verb::Create, KIND, "", "").with(JSON, user);
        let created = asked.errands.ask(&create).await?;
        self.reach(Freshness::Latest).await?;
        self.give_password(asked, &created, &hash).await
    }

    /// A user who was made and got no password, because whoever made them was cut off. Only for who could set it.
    fn unfinished(&self, asked: &Asked<'_>, username: &str) -> Option<Arc<Value>> {
        let user = self.users().find_taker(username)?;
        let name = text(&user, "/metadata/name");
        let is_unfinished = text(&user, "/username") == username
            && !is_being_deleted(&user)
            && !self.users().has_password(name)
            && name != asked.user.name;
        (is_unfinished && self.may_set_password(asked, name, Some(&user)).is_ok()).then_some(user)
    }

    /// Goes on with making a user where it was cut off: what is said counts, and the password is given.
    async fn finish_user(&self, asked: &Asked<'_>, user: &Value) -> Result<ApiResponse, ApiError> {
        let (name, password) = (text(user, "/metadata/name"), asked.text("password"));
        check_strength(text(user, "/username"), password)
            .map_err(|why| invalid(name, "password", &why.to_string()))?;
        let mut wanted = user.clone();
        apply(asked.body, &mut wanted);
        let hash = self.users().hash(password).await.map_err(|why| hashing_failed(name, why))?;
        let update = Errand::new(Verb::Update, KIND, "", name).with(JSON, wanted);
        let updated = asked.errands.ask(&update).await?;
        self.reach(Freshness::Latest).await?;
        self.give_password(asked, &updated, &hash).await
    }

    async fn give_password(
        &self,
        asked: &Asked<'_>,
        user: &Value,
        hash: &str,
    ) -> Result<ApiResponse, ApiError> {
        let name = text(user, "/metadata/name");
        self.users().store_hash(user, hash).await.map_err(|why| match why {
            WriteError::Conflict { .. } | WriteError::AlreadyExists { .. } => ApiError::stale(NAMED, name),
            why => ApiError::internal(why),
        })?;
        self.note_password(asked, Verb::Create, name).await?;
        let shown = self.shown_user(asked, user);
        Ok(respond::value(success::CREATED, Format::Json, &shown))
    }

    /// That somebody has a password, or another one, has its line; what it is stands nowhere.
    async fn note_password(&self, asked: &Asked<'_>, verb: Verb, user: &str) -> Result<(), ApiError> {
        let secrets = ("", "v1", "secrets");
        asked.errands.as_server().note(&Errand::new(verb, secrets, PASSWORD_NAMESPACE, user)).await
    }

    async fn update_user(&self, asked: &Asked<'_>) -> Result<ApiResponse, ApiError> {
        let name = asked.place.name.as_str();
        let seen = self.user_for(asked, name).await?;
        if asked.body.get("password").is_some_and(|password| !password.is_null()) {
            return Err(invalid(
                name,
                "password",
                "is changed by the actions changepassword and setpassword",
            ));
        }
        let mut user = seen.clone();
        apply(asked.body, &mut user);
        if asked.body["principalIds"].is_array()
            && texts(asked.body, "/principalIds") != texts(&seen, "/principalIds")
        {
            return Err(invalid(name, "principalIds", "a local user stands for themselves alone"));
        }
        let is_self = name == asked.user.name;
        if is_self && user["enabled"] == false && seen["enabled"] != false {
            return Err(ApiError::senseless("You cannot deactivate yourself"));
        }
        let is_only_of_oneself = FIELDS
            .iter()
            .all(|(_, field)| OF_ONESELF.contains(field) || seen.get(*field) == user.get(*field));
        let update = Errand::new(Verb::Update, KIND, "", name).with(JSON, user);
        let updated =
            match is_self && is_only_of_oneself && !self.may(asked.user, "update", GROUP, USERS, name) {
                true => asked.errands.as_server().ask(&update).await?,
                false => asked.errands.ask(&update).await?,
            };
        Ok(answer(&self.shown_user(asked, &updated)))
    }

    async fn delete_user(&self, asked: &Asked<'_>) -> Result<ApiResponse, ApiError> {
        let name = asked.place.name.as_str();
        if name == asked.user.name {
            return Err(ApiError::senseless("You cannot delete yourself"));
        }
        let user = self.user_for(asked, name).await?;
        asked.errands.ask(&Errand::new(Verb::Delete, KIND, "", name)).await?;
        Ok(answer(&self.shown_user(asked, &user)))
    }

    /// The session that asks goes on, all others of that person end.
    async fn change_own_password(&self, asked: &Asked<'_>) -> Result<ApiResponse, ApiError> {
        let missing: Vec<FieldError> = ["currentPassword", "newPassword"]
            .into_iter()
            .filter(|field| asked.text(field).is_empty())
            .map(|field| FieldError::required(&FieldPath::new(field), ""))
            .collect();
        let name = &asked.user.name;
        if !missing.is_empty() {
            return Err(ApiError::invalid(GROUP, "User", name, &missing));
        }
        // What was changed through another server a moment ago is what the old password is compared with.
        self.reach(Freshness::Latest).await?;
        if self.oneself(asked).is_none() {
            return Err(ApiError::refused(NAMED, name, "only a local user has a password, and this is none"));
        }
        let (current, new) = (asked.text("currentPassword"), asked.text("newPassword"));
        self.users()
            .change_password(name, current, new, asked.user.token_name(), asked.address)
            .await
            .map_err(|why| change_failed(name, why))?;
        self.note_password(asked, Verb::Update, name).await?;
        self.first_login_is_over().await;
        Ok(respond::value(success::OK, Format::Json, &json!({})))
    }

    async fn set_password(&self, asked: &Asked<'_>) -> Result<ApiResponse, ApiError> {
        let name = asked.place.name.as_str();
        self.may_set_password(asked, name, None)?;
        if name == asked.user.name {
            // Else whoever finds a session could take the account for good.
            let why = "Your own password is changed by the action changepassword, with the current one";
            return Err(ApiError::senseless(why));
        }
        let user = self.user_for(asked, name).await?;
        self.may_set_password(asked, name, Some(&user))?;
        let new = asked.text("newPassword");
        let is_for_one_login = asked.body["mustChangePassword"] == true;
        self.users()
            .set_password(name, new, is_for_one_login)
            .await
            .map_err(|why| change_failed(name, ChangeError::User(why)))?;
        self.note_password(asked, Verb::Update, name).await?;
        let user = self.user_for(asked, name).await?;
        Ok(answer(&self.shown_user(asked, &user)))
    }

    /// Before the user was read only what needs no look at them is asked.
    fn may_set_password(&self, asked: &Asked<'_>, name: &str, user: Option<&Value>) -> Result<(), ApiError> {
        for (verb, group) in [("update", GROUP), ("impersonate", "")] {
            if !self.may(asked.user, verb, group, USERS, name) {
                let why = format!("to set a password one must be allowed to {verb} its user");
                return Err(ApiError::refused(NAMED, name, why));
            }
        }
        // Who signs in as somebody is in all of their groups, which who only acts as them is not.
        for group in user.map(|user| texts(user, "/groups")).unwrap_or_default() {
            if !self.may(asked.user, "impersonate", "", "groups", &group) {
                let why = format!(
                    "its user is in the group {group:?}: to set the password one must be allowed to impersonate the group"
                );
                return Err(ApiError::refused(NAMED, name, why));
            }
        }
        Ok(())
    }

    /// The refusal that the Kubernetes API would give.
    fn refused_verb(&self, asked: &Asked<'_>, verb: Verb, name: &str) -> ApiError {
        let request = crate::request::ResourceRequest {
            verb,
            group: GROUP.into(),
            version: "v3".into(),
            resource: USERS.into(),
            subresource: String::new(),
            namespace: String::new(),
            name: name.into(),
        };
        let refused = self.authorize_resource(asked.user, &request, &crate::request::Query::default());
        refused.err().unwrap_or_else(|| ApiError::refused(NAMED, name, "it is not allowed"))
    }

    fn shown_user(&self, asked: &Asked<'_>, user: &Value) -> Value {
        let name = text(user, "/metadata/name");
        let may = |verb: &str| self.may(asked.user, verb, GROUP, USERS, name);
        let is_self = name == asked.user.name;
        let mut links = vec!["self"];
        if is_self || may("update") {
            links.push("update");
        }
        if !is_self && may("delete") {
            links.push("remove");
        }
        let may_set = !is_self && may("update") && self.may(asked.user, "impersonate", "", USERS, name);
        let mut fields = json!({
            "name": user["displayName"], "username": user["username"], "description": user["description"],
            "enabled": user["enabled"] != false, "mustChangePassword": user["mustChangePassword"] == true,
            "principalIds": user["principalIds"], "groups": user["groups"],
            "state": if is_being_deleted(user) { "removing" } else { "active" },
            "transitioning": "no", "transitioningMessage": "",
        });
        if is_self {
            fields["me"] = true.into();
        }
        let actions: &[&str] = if may_set { &["setpassword"] } else { &[] };
        shapes::resource(asked, "user", &format!("{PATH}/{name}"), user, fields, &links, actions)
    }
}

/// What is said is put on the object; what is not said stays as it is.
fn apply(said: &Value, user: &mut Value) {
    for (word, field) in FIELDS {
        if let Some(value) = said.get(word).filter(|value| !value.is_null()) {
            user[field] = value.clone();
        }
    }
}

fn answer(value: &Value) -> ApiResponse {
    respond::value(success::OK, Format::Json, value)
}

fn invalid(name: &str, field: &str, detail: &str) -> ApiError {
    let error = FieldError::invalid(&FieldPath::new(field), Value::from("<hidden>"), detail);
    ApiError::invalid(GROUP, "User", name, &[error])
}

fn hashing_failed(name: &str, why: PasswordError) -> ApiError {
    match why {
        PasswordError::Busy => login_failed(LoginError::Busy),
        PasswordError::BadHash | PasswordError::HashingFailed => {
            ApiError::internal(format!("the password of {name:?} cannot be hashed"))
        }
    }
}

fn change_failed(name: &str, why: ChangeError) -> ApiError {
    match why {
        // Not "Unauthorized": the session is good, and a client that heard so would throw it away.
        ChangeError::Login(LoginError::Refused) => {
            invalid(name, "currentPassword", "is not the current password")
        }
        ChangeError::Login(why) => login_failed(why),
        ChangeError::User(UserError::Weak(why)) => invalid(name, "newPassword", &why.to_string()),
        ChangeError::User(UserError::Unknown { .. }) => {
            ApiError::refused(NAMED, name, "only a local user has a password, and this is none")
        }
        ChangeError::User(UserError::Password { source: PasswordError::Busy, .. }) => {
            login_failed(LoginError::Busy)
        }
        ChangeError::User(UserError::Write(WriteError::Conflict { .. })) => ApiError::stale(NAMED, name),
        ChangeError::User(why) => ApiError::internal(why),
    }
}
