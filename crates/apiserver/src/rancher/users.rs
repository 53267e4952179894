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

use super::{Asked, inward::Wanted, login::login_failed, not_here, shapes};
use crate::{
    ApiServer,
    identity::{
        WriteError,
        api_tokens::{GROUP, USERS},
        objects::{text, texts, uid},
        password_change::ChangeError,
        passwords::{PasswordError, check_strength},
        users::{LoginError, UserError},
    },
    negotiate::Format,
    request::Verb,
    respond::{self, ApiResponse},
    rest::options::Freshness,
    status::{ApiError, Named, success},
};

const PATH: &str = "/v3/users";
const NAMED: Named<'static> = Named { group: GROUP, resource: USERS };

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
            return Ok(Value::clone(&user));
        }
        self.ask_as(asked.user, asked.in_process, &Wanted::new(Verb::Get, GROUP, USERS).named(name)).await
    }

    async fn list_users(&self, asked: &Asked<'_>) -> Result<ApiResponse, ApiError> {
        self.reach(Freshness::Latest).await?;
        let may_list = self.may(asked.user, "list", GROUP, USERS, "");
        let mut users = match may_list && !asked.query.flag("me") {
            true => {
                let list =
                    self.ask_as(asked.user, asked.in_process, &Wanted::new(Verb::List, GROUP, USERS)).await?;
                list["items"].as_array().cloned().unwrap_or_default()
            }
            false => self.oneself(asked).map(|user| Value::clone(&user)).into_iter().collect(),
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
        let wanted = Wanted::new(Verb::Create, GROUP, USERS).with(&user);
        let created = self.ask_as(asked.user, asked.in_process, &wanted).await?;
        self.reach(Freshness::Latest).await?;
        self.users().store_hash(&created, &hash).await.map_err(ApiError::internal)?;
        let shown = self.shown_user(asked, &created);
        Ok(respond::value(success::CREATED, Format::Json, &shown))
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
        let wanted = Wanted::new(Verb::Update, GROUP, USERS).named(name).with(&user);
        let is_only_of_oneself = FIELDS
            .iter()
            .all(|(_, field)| OF_ONESELF.contains(field) || seen.get(*field) == user.get(*field));
        let updated =
            match is_self && is_only_of_oneself && !self.may(asked.user, "update", GROUP, USERS, name) {
                true => self.ask_as_server(&wanted).await?,
                false => self.ask_as(asked.user, asked.in_process, &wanted).await?,
            };
        Ok(answer(&self.shown_user(asked, &updated)))
    }

    async fn delete_user(&self, asked: &Asked<'_>) -> Result<ApiResponse, ApiError> {
        let name = asked.place.name.as_str();
        if name == asked.user.name {
            return Err(ApiError::senseless("You cannot delete yourself"));
        }
        let user = self.user_for(asked, name).await?;
        let wanted = Wanted::new(Verb::Delete, GROUP, USERS).named(name);
        self.ask_as(asked.user, asked.in_process, &wanted).await?;
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
        self.first_login_is_over().await;
        Ok(respond::value(success::OK, Format::Json, &json!({})))
    }

    async fn set_password(&self, asked: &Asked<'_>) -> Result<ApiResponse, ApiError> {
        let name = asked.place.name.as_str();
        for (verb, group) in [("update", GROUP), ("impersonate", "")] {
            if !self.may(asked.user, verb, group, USERS, name) {
                let why = format!("to set a password one must be allowed to {verb} its user");
                return Err(ApiError::refused(NAMED, name, why));
            }
        }
        if name == asked.user.name {
            // Else whoever finds a session could take the account for good.
            let why = "Your own password is changed by the action changepassword, with the current one";
            return Err(ApiError::senseless(why));
        }
        let user = self.user_for(asked, name).await?;
        // Who signs in as somebody is in all of their groups, which who only acts as them is not.
        for group in texts(&user, "/groups") {
            if !self.may(asked.user, "impersonate", "", "groups", &group) {
                let why = format!(
                    "its user is in the group {group:?}: to set the password one must be allowed to impersonate the group"
                );
                return Err(ApiError::refused(NAMED, name, why));
            }
        }
        let new = asked.text("newPassword");
        self.users()
            .set_password(name, new, false)
            .await
            .map_err(|why| change_failed(name, ChangeError::User(why)))?;
        let user = self.user_for(asked, name).await?;
        Ok(answer(&self.shown_user(asked, &user)))
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
