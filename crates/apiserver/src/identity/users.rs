//! Local users: people who log in with a name and a password, without any outside directory.
//!
//! A person is a `users.management.cattle.io` object: `username`, `displayName`, `enabled`,
//! `mustChangePassword`, `principalIds` as Rancher has them, and `groups`, which is Sheaf's own. To RBAC the
//! user's name is the object's name. The password's hash is not on it but in a Secret of the same name in the
//! namespace `cattle-local-user-passwords`, so that who may read users cannot take hashes home.
//!
//! A crash between the two writes of [`LocalUsers::create`] leaves a user without a password, who cannot log
//! in; who makes the same user again completes it. Changing a password is in
//! [`password_change`](super::password_change).

use std::{net::IpAddr, sync::Arc, time::Duration};

use serde_json::{Value, json};
use sheaf_world::World;
use zeroize::Zeroizing;

use super::{
    Directory, Objects, User, WriteError,
    api_tokens::{self, GROUP, TOKENS, TokenWish, USERS, is_enabled, must_change_password, user_of},
    objects::{text, uid},
    passwords::{PasswordError, Passwords, WeakPassword},
    stored_password::{hash_of, id_of, with_hash},
    throttle::{Attempt, Throttle},
};

pub use super::stored_password::PASSWORD_NAMESPACE;

const TOKEN_NAME_DRAWS: usize = 8;
/// Longer usernames are no names of objects: bindings and tokens are named after them.
const LONGEST_NAME: usize = 63;

/// Somebody who proved to know the password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalUser {
    /// The name of the User object.
    pub id: String,
    pub username: String,
    pub display_name: String,
    /// The person may do nothing else before choosing a new password.
    pub must_change_password: bool,
    /// What the password they knew is called.
    pub password: String,
    pub user: Arc<User>,
}

#[derive(Clone, Debug, Default)]
pub struct NewUser {
    /// The object's name; as [`LocalUsers::name_for`] says when empty.
    pub id: String,
    pub username: String,
    pub display_name: String,
    pub groups: Vec<String>,
    pub must_change_password: bool,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum LoginError {
    /// One answer for an unknown user, a wrong password and a disabled user alike.
    #[error("authentication failed")]
    Refused,
    #[error("too many failed logins: try again in {} s", .retry_after.as_secs().max(1))]
    TooMany { retry_after: Duration },
    #[error("too many logins at once: try again in a moment")]
    Busy,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum UserError {
    #[error("user {id:?} does not exist")]
    Unknown { id: String },
    #[error("the username {username:?} is taken")]
    UsernameTaken { username: String },
    #[error(transparent)]
    Weak(#[from] WeakPassword),
    #[error("the password of user {id:?} cannot be set")]
    Password {
        id: String,
        #[source]
        source: PasswordError,
    },
    #[error(transparent)]
    Write(#[from] WriteError),
}

pub struct LocalUsers {
    pub(super) directory: Arc<dyn Directory>,
    pub(super) objects: Arc<dyn Objects>,
    passwords: Passwords,
    throttle: Throttle,
    world: World,
}

impl LocalUsers {
    pub fn new(
        directory: Arc<dyn Directory>,
        objects: Arc<dyn Objects>,
        passwords: Passwords,
        world: World,
    ) -> Self {
        LocalUsers { directory, objects, passwords, throttle: Throttle::default(), world }
    }

    /// `from` is where whoever tries is, as far as that is known.
    pub async fn login(
        &self,
        username: &str,
        password: &str,
        from: Option<IpAddr>,
    ) -> Result<LocalUser, LoginError> {
        let attempt = Attempt::new(username, from);
        let delay =
            self.throttle.begin(&attempt).map_err(|retry_after| LoginError::TooMany { retry_after })?;
        tokio::time::sleep(delay).await;

        let found = self.by_username(username);
        let hash = found.as_ref().and_then(|user| hash_of(self.directory.as_ref(), user));
        let verified = match &hash {
            Some(hash) => self.passwords.verify(password, hash).await,
            None => self.passwords.verify_nobody(password).await.map(|()| false),
        };
        match (found, verified) {
            (Some(user), Ok(true)) if is_enabled(&user) => {
                self.throttle.succeeded(&attempt);
                Ok(local_user(&user, hash.as_deref().map(id_of).unwrap_or_default()))
            }
            (_, Err(PasswordError::Busy)) => {
                self.throttle.abandoned(&attempt);
                Err(LoginError::Busy)
            }
            (user, Err(why)) => {
                let id = user.as_deref().map(|user| text(user, "/metadata/name")).unwrap_or_default();
                tracing::warn!(user = id, error = %why, "a stored password could not be checked");
                Err(LoginError::Refused)
            }
            (_, Ok(_)) => Err(LoginError::Refused),
        }
    }

    /// Creates the user and then the password. `password` is not checked for strength: the first one is often
    /// generated.
    pub async fn create(&self, new: &NewUser, password: &str) -> Result<Value, UserError> {
        if self.by_username(&new.username).is_some() {
            return Err(UserError::UsernameTaken { username: new.username.clone() });
        }
        let id = match new.id.as_str() {
            "" => self.name_for(&new.username),
            id => id.to_owned(),
        };
        let object = json!({
            "apiVersion": "management.cattle.io/v3",
            "kind": "User",
            "metadata": { "name": id },
            "username": new.username,
            "displayName": new.display_name,
            "enabled": true,
            "groups": new.groups,
            "mustChangePassword": new.must_change_password,
            "principalIds": [format!("local://{id}")],
        });
        let created = self.objects.create(GROUP, USERS, "", object).await?;
        self.store_password(&created, password).await?;
        Ok(created)
    }

    /// What the object of a new user is called, and so what roles are bound to: the username where that can be a name,
    /// since people type it; else one that is drawn.
    pub fn name_for(&self, username: &str) -> String {
        let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let label = |part: &str| {
            part.bytes().all(|b| letter(b) || b == b'-')
                && part.bytes().next().is_some_and(letter)
                && part.bytes().last().is_some_and(letter)
        };
        match username.len() <= LONGEST_NAME && username.split('.').all(label) {
            true => username.to_owned(),
            false => format!("user-{}", self.world.chance.name_suffix()),
        }
    }

    /// Whether somebody signs in with it already, or is called so.
    pub(crate) fn is_taken(&self, username: &str) -> bool {
        self.find_taker(username).is_some()
    }

    /// Whoever signs in with it, or is called so.
    pub(crate) fn find_taker(&self, username: &str) -> Option<Arc<Value>> {
        self.by_username(username).or_else(|| self.find(username))
    }

    pub(crate) fn find(&self, id: &str) -> Option<Arc<Value>> {
        self.by_id(id).ok()
    }

    /// Every token that names the user, whichever of that name it was made for.
    pub(crate) fn tokens_of(&self, id: &str) -> Vec<Value> {
        let all = self.directory.objects(GROUP, TOKENS).into_iter();
        all.filter(|token| text(token, "/userId") == id).map(|token| Value::clone(&token)).collect()
    }

    /// Whether the user exists and could log in.
    pub fn has_password(&self, id: &str) -> bool {
        self.by_id(id).is_ok_and(|user| hash_of(self.directory.as_ref(), &user).is_some())
    }

    /// Whether the password is for a first login that has not been.
    pub fn must_change_password(&self, id: &str) -> bool {
        self.by_id(id).is_ok_and(|user| must_change_password(&user))
    }

    /// What the password of this user is called; empty if there is none.
    pub(crate) fn password_of(&self, user: &Value) -> String {
        hash_of(self.directory.as_ref(), user).map(|hash| id_of(&hash)).unwrap_or_default()
    }

    /// Creates the user, or completes one whose creation was cut off before its password was stored.
    pub async fn ensure(&self, new: &NewUser, password: &str) -> Result<(), UserError> {
        match self.by_id(&new.id) {
            Err(_) => self.create(new, password).await.map(drop),
            Ok(user) if hash_of(self.directory.as_ref(), &user).is_none() => {
                self.store_password(&user, password).await
            }
            Ok(_) => Ok(()),
        }
    }

    /// Makes and stores an API token; answers the object and what its bearer sends, which is never seen again.
    pub async fn mint_token(&self, wish: &TokenWish) -> Result<(Value, Zeroizing<String>), WriteError> {
        let user = self
            .directory
            .object(GROUP, USERS, "", &wish.user_id)
            .ok_or_else(|| WriteError::NotFound { resource: USERS.to_owned(), name: wish.user_id.clone() })?;
        let mut draws = 0;
        loop {
            draws += 1;
            let (object, bearer) = api_tokens::mint(&self.world, wish, &user);
            match self.objects.create(GROUP, TOKENS, "", object).await {
                Ok(stored) => return Ok((stored, bearer)),
                // Five letters are few: with thousands of tokens a name is now and then taken.
                Err(WriteError::AlreadyExists { .. }) if draws < TOKEN_NAME_DRAWS => {}
                Err(why) => return Err(why),
            }
        }
    }

    pub(super) fn by_id(&self, id: &str) -> Result<Arc<Value>, UserError> {
        self.directory.object(GROUP, USERS, "", id).ok_or_else(|| UserError::Unknown { id: id.to_owned() })
    }

    fn by_username(&self, username: &str) -> Option<Arc<Value>> {
        holder(self.directory.as_ref(), username)
    }

    pub(super) async fn store_password(&self, user: &Value, password: &str) -> Result<(), UserError> {
        let id = text(user, "/metadata/name");
        let hash =
            self.hash(password).await.map_err(|source| UserError::Password { id: id.to_owned(), source })?;
        Ok(self.store_hash(user, &hash).await?)
    }

    pub(crate) async fn hash(&self, password: &str) -> Result<String, PasswordError> {
        self.passwords.hash(password).await
    }

    pub(crate) async fn store_hash(&self, user: &Value, hash: &str) -> Result<(), WriteError> {
        let id = text(user, "/metadata/name");
        let existing = self.directory.object("", "secrets", PASSWORD_NAMESPACE, id);
        let secret = with_hash(existing.as_deref(), user, hash);
        match existing {
            Some(_) => self.objects.update("", "secrets", PASSWORD_NAMESPACE, secret).await?,
            None => self.objects.create("", "secrets", PASSWORD_NAMESPACE, secret).await?,
        };
        Ok(())
    }

    /// Replaces the password that is called so. If it is another by now, somebody else was faster.
    pub(super) async fn replace_hash(
        &self,
        user: &Value,
        replaced: &str,
        hash: &str,
    ) -> Result<(), WriteError> {
        let id = text(user, "/metadata/name");
        let existing = self.directory.object("", "secrets", PASSWORD_NAMESPACE, id);
        match existing {
            // The write is refused if what was looked at is no longer what is there.
            Some(secret) if self.password_of(user) == replaced => {
                let secret = with_hash(Some(&secret), user, hash);
                self.objects.update("", "secrets", PASSWORD_NAMESPACE, secret).await.map(drop)
            }
            _ => Err(WriteError::Conflict { resource: "secrets".to_owned(), name: id.to_owned() }),
        }
    }
}

/// Who is meant by a username: of two that came by the same one, the older. Admission refuses the second, but two
/// writers at the same moment may both have found the name free, and then nobody may take an older user's place.
///
/// A scan: logins are rare and their hashing costs far more.
pub(crate) fn holder(directory: &dyn Directory, username: &str) -> Option<Arc<Value>> {
    if username.is_empty() {
        return None;
    }
    let named =
        directory.objects(GROUP, USERS).into_iter().filter(|user| text(user, "/username") == username);
    // The server writes the time of creation, always in the same form: its text orders as the time does.
    named.min_by_key(|user| (text(user, "/metadata/creationTimestamp").to_owned(), uid(user).to_owned()))
}

fn local_user(object: &Value, password: String) -> LocalUser {
    LocalUser {
        id: text(object, "/metadata/name").to_owned(),
        username: text(object, "/username").to_owned(),
        display_name: text(object, "/displayName").to_owned(),
        must_change_password: must_change_password(object),
        password,
        user: Arc::new(user_of(object)),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use base64::{Engine, engine::general_purpose::STANDARD};
    use sheaf_world::Chance;

    use super::*;
    use crate::identity::shelf::Shelf;

    pub(in crate::identity) const PASSWORD: &str = "a long enough one";

    pub(in crate::identity) async fn house() -> (Arc<Shelf>, LocalUsers) {
        let shelf = Arc::new(Shelf::default());
        let passwords = Passwords::new(Chance::seeded(1), false);
        let users = LocalUsers::new(shelf.clone(), shelf.clone(), passwords, World::seeded(1));
        let new = NewUser {
            id: "admin".into(),
            username: "admin".into(),
            groups: vec!["ops".into()],
            must_change_password: true,
            ..NewUser::default()
        };
        users.create(&new, PASSWORD).await.unwrap();
        (shelf, users)
    }

    #[tokio::test(start_paused = true)]
    async fn the_right_password_logs_in_and_says_whether_it_must_be_changed() {
        let (_, users) = house().await;
        let person = users.login("admin", PASSWORD, None).await.unwrap();
        assert_eq!(person.id, "admin");
        assert!(person.must_change_password);
        assert!(person.user.in_group("ops") && person.user.in_group("system:authenticated"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_hash_is_in_a_secret_and_not_on_the_user() {
        let (shelf, _) = house().await;
        let user = shelf.object(GROUP, USERS, "", "admin").unwrap();
        assert!(!user.to_string().contains("argon2"));
        let secret = shelf.object("", "secrets", PASSWORD_NAMESPACE, "admin").unwrap();
        let hash = STANDARD.decode(text(&secret, "/data/password")).unwrap();
        assert!(hash.starts_with(b"$argon2id$"));
    }

    #[tokio::test(start_paused = true)]
    async fn wrong_password_unknown_user_and_disabled_user_are_one_answer() {
        let (shelf, users) = house().await;
        assert_eq!(users.login("admin", "wrong", None).await, Err(LoginError::Refused));
        assert_eq!(users.login("nobody", PASSWORD, None).await, Err(LoginError::Refused));
        assert_eq!(users.login("", PASSWORD, None).await, Err(LoginError::Refused));
        let mut user = Value::clone(&shelf.object(GROUP, USERS, "", "admin").unwrap());
        user["enabled"] = json!(false);
        shelf.put(GROUP, USERS, user);
        assert_eq!(users.login("admin", PASSWORD, None).await, Err(LoginError::Refused));
    }

    #[tokio::test(start_paused = true)]
    async fn a_user_without_a_stored_password_cannot_log_in_with_an_empty_one() {
        let (shelf, users) = house().await;
        shelf.remove("", "secrets", PASSWORD_NAMESPACE, "admin");
        assert_eq!(users.login("admin", "", None).await, Err(LoginError::Refused));
    }

    #[tokio::test(start_paused = true)]
    async fn guessing_is_slowed_down_for_existing_and_unknown_names_alike() {
        let (_, users) = house().await;
        for name in ["admin", "nobody"] {
            for _ in 0..5 {
                assert_eq!(users.login(name, "guess", None).await, Err(LoginError::Refused));
            }
            assert!(
                matches!(users.login(name, "guess", None).await, Err(LoginError::TooMany { .. })),
                "{name}"
            );
        }
        let LoginError::TooMany { retry_after } = users.login("admin", PASSWORD, None).await.unwrap_err()
        else {
            panic!("even the right password waits")
        };
        tokio::time::sleep(retry_after).await;
        assert!(users.login("admin", PASSWORD, None).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_password_does_not_serve_a_new_user_of_the_old_name() {
        let (shelf, users) = house().await;
        let mut user = Value::clone(&shelf.object(GROUP, USERS, "", "admin").unwrap());
        user["metadata"]["uid"] = json!("u1");
        shelf.put(GROUP, USERS, user.clone());
        users.set_password("admin", PASSWORD, false).await.unwrap();
        users.login("admin", PASSWORD, None).await.unwrap();
        user["metadata"]["uid"] = json!("u2");
        shelf.put(GROUP, USERS, user);
        assert_eq!(users.login("admin", PASSWORD, None).await, Err(LoginError::Refused));
        users.set_password("admin", PASSWORD, false).await.unwrap();
        users.login("admin", PASSWORD, None).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_minted_token_is_the_users_own() {
        let (shelf, users) = house().await;
        let wish = |id: &str| TokenWish {
            user_id: id.into(),
            password: users.find(id).map(|user| users.password_of(&user)).unwrap_or_default(),
            ..TokenWish::default()
        };
        let (object, bearer) = users.mint_token(&wish("admin")).await.unwrap();
        assert_eq!(object["userId"], "admin");
        let world = World::seeded(1);
        assert_eq!(api_tokens::verify(shelf.as_ref(), &world.clock, &bearer).unwrap().name, "admin");
        assert_eq!(
            users.mint_token(&wish("nobody")).await.unwrap_err(),
            WriteError::NotFound { resource: "users".into(), name: "nobody".into() }
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_username_is_given_once() {
        let (_, users) = house().await;
        let twin = NewUser { username: "admin".into(), ..NewUser::default() };
        assert_eq!(
            users.create(&twin, PASSWORD).await,
            Err(UserError::UsernameTaken { username: "admin".into() })
        );
        assert_eq!(
            users.set_password("nobody", PASSWORD, false).await,
            Err(UserError::Unknown { id: "nobody".into() })
        );
    }

    #[tokio::test(start_paused = true)]
    async fn of_two_with_one_username_the_older_is_meant_whatever_their_names() {
        let (shelf, users) = house().await;
        let mut elder = Value::clone(&shelf.object(GROUP, USERS, "", "admin").unwrap());
        elder["metadata"]["creationTimestamp"] = json!("2030-01-01T00:00:05Z");
        elder["metadata"]["uid"] = json!("u5");
        shelf.put(GROUP, USERS, elder);
        users.set_password("admin", PASSWORD, false).await.unwrap();
        let twin = |name: &str, created: &str, uid: &str| {
            let metadata = json!({ "name": name, "creationTimestamp": created, "uid": uid });
            shelf.put(GROUP, USERS, json!({ "metadata": metadata, "username": "admin" }));
        };
        twin("aaa", "2030-01-01T00:00:06Z", "u1");
        twin("aab", "2030-01-01T00:00:05Z", "u6");
        assert_eq!(users.login("admin", PASSWORD, None).await.unwrap().id, "admin");
    }
}
