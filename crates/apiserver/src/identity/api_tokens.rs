//! API tokens in Rancher's form, `token-xxxxx:secret`: what a login hands out and kubeconfigs carry.
//!
//! The object `tokens.management.cattle.io` of that name holds the SHA-256 of the secret, whose it is and
//! until when. The secret itself is kept nowhere. It is 54 random letters, so one round of a fast hash is
//! enough: there is nothing to guess.

use std::{collections::BTreeMap, fmt::Write, sync::Arc};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sheaf_resources::kinds::token::{self, End};
use sheaf_world::{Clock, Timestamp, World};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::{
    Directory, User,
    objects::{is_being_deleted, is_made_for, made_for, text, texts, uid},
    stored_password::{hash_of, id_of},
    user::{AUTHENTICATED, LOCAL_AUTHENTICATED, MUST_CHANGE_PASSWORD, REQUEST_TOKEN},
};

pub const GROUP: &str = "management.cattle.io";
pub const TOKENS: &str = "tokens";
pub const USERS: &str = "users";
const API_VERSION: &str = "management.cattle.io/v3";
const HASH_PREFIX: &str = "sha256:";
const SECRET_LETTERS: usize = 54;

/// Why a token is not good, for logs and for those who may review tokens; its bearer only learns that it is not.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum ApiTokenError {
    #[error("there is no such API token")]
    Unknown,
    #[error("the API token's secret is wrong")]
    WrongSecret,
    #[error("the API token is disabled")]
    Disabled,
    #[error("the API token has expired")]
    Expired,
    #[error("the user of the API token does not exist")]
    NoUser,
    #[error("the user of the API token is disabled")]
    UserDisabled,
    #[error("the password that the API token was made with is no longer the user's")]
    OldPassword,
}

#[derive(Clone, Debug, Default)]
pub struct TokenWish {
    /// The name of the User object.
    pub user_id: String,
    /// 0 is for ever.
    pub ttl_millis: i64,
    pub description: String,
    pub purpose: Purpose,
    /// The password that a session, or a kubeconfig in place of one, is made with: what [`id_of`] calls it. Several
    /// stand with spaces between them.
    pub password: String,
}

/// What a token is made for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// A login: it ends with the password it was opened with.
    #[default]
    Session,
    /// A kubeconfig that somebody was given, in place of a session: it ends with the password, too.
    Kubeconfig,
    /// A program, which was given it by somebody and outlives their password.
    Program,
}

/// The label that says what a token is for, as Rancher has it.
const KIND_LABEL: &str = "authn.management.cattle.io/kind";
const KUBECONFIG: &str = "kubeconfig";
/// Says which password a token was made with that ends with it.
const PASSWORD_ANNOTATION: &str = "sheaf.io/made-with-password";

/// Draws a token: the object to store, and what its bearer sends. The object's name may be taken already;
/// draw again then.
///
/// `user` is the object that `user_id` names. The token has it as its owner, so that it goes when the user goes,
/// and does not serve another one who is given the same name.
pub fn mint(world: &World, wish: &TokenWish, user: &Value) -> (Value, Zeroizing<String>) {
    let prefix = if wish.purpose == Purpose::Kubeconfig { KUBECONFIG } else { "token" };
    let name = format!("{prefix}-{}", world.chance.name_suffix());
    let secret = Zeroizing::new(world.chance.letters(SECRET_LETTERS));
    let bearer = Zeroizing::new(format!("{name}:{}", secret.as_str()));
    let expires_at = match u64::try_from(wish.ttl_millis) {
        Ok(millis) if millis > 0 => world
            .clock
            .now()
            .checked_add(std::time::Duration::from_millis(millis))
            .unwrap_or(Timestamp::MAX)
            .strftime("%Y-%m-%dT%H:%M:%SZ")
            .to_string(),
        _ => String::new(),
    };
    let mut object = json!({
        "apiVersion": API_VERSION,
        "kind": "Token",
        "metadata": {
            "name": name,
            "labels": { "authn.management.cattle.io/token-userId": wish.user_id },
            "ownerReferences": made_for(user),
        },
        "authProvider": "local",
        "description": wish.description,
        "enabled": true,
        "expiresAt": expires_at,
        "isDerived": wish.purpose != Purpose::Session,
        "token": hashed(&secret),
        "ttl": wish.ttl_millis.max(0),
        "userId": wish.user_id,
    });
    if wish.purpose == Purpose::Kubeconfig {
        object["metadata"]["labels"][KIND_LABEL] = KUBECONFIG.into();
    }
    if wish.purpose != Purpose::Program {
        made_with(&mut object, &wish.password);
    }
    (object, bearer)
}

/// Whether a bearer token has this form at all; a JWT has no colon.
pub(super) fn has_this_form(token: &str) -> bool {
    token.contains(':')
}

pub(super) fn verify(
    directory: &dyn Directory,
    clock: &Clock,
    token: &str,
) -> Result<Arc<User>, ApiTokenError> {
    let (name, secret) = token.split_once(':').ok_or(ApiTokenError::Unknown)?;
    let object = directory.object(GROUP, TOKENS, "", name).ok_or(ApiTokenError::Unknown)?;
    // The secret comes first: who does not know it learns nothing else about the token.
    if !bool::from(text(&object, "/token").as_bytes().ct_eq(hashed(secret).as_bytes())) {
        return Err(ApiTokenError::WrongSecret);
    }
    stands_for(directory, clock, name, &object)
}

/// Who a token stands for that somebody showed before.
pub(super) fn standing(
    directory: &dyn Directory,
    clock: &Clock,
    name: &str,
) -> Result<Arc<User>, ApiTokenError> {
    let object = directory.object(GROUP, TOKENS, "", name).ok_or(ApiTokenError::Unknown)?;
    stands_for(directory, clock, name, &object)
}

fn stands_for(
    directory: &dyn Directory,
    clock: &Clock,
    name: &str,
    object: &Value,
) -> Result<Arc<User>, ApiTokenError> {
    if is_being_deleted(object) || object.get("enabled") == Some(&Value::Bool(false)) {
        return Err(ApiTokenError::Disabled);
    }
    if has_expired(object, clock) {
        return Err(ApiTokenError::Expired);
    }
    let user_id = text(object, "/userId");
    let user = directory.object(GROUP, USERS, "", user_id).ok_or(ApiTokenError::NoUser)?;
    if !is_made_for(object, &user) {
        return Err(ApiTokenError::NoUser);
    }
    if !is_enabled(&user) {
        return Err(ApiTokenError::UserDisabled);
    }
    if ends_with_the_password(object) {
        let current = hash_of(directory, &user).map(|hash| id_of(&hash));
        if !passwords_of(object).split(' ').any(|made_with| Some(made_with) == current.as_deref()) {
            return Err(ApiTokenError::OldPassword);
        }
    }
    let mut bearer = user_of(&user);
    bearer.extra.insert(REQUEST_TOKEN.to_owned(), vec![name.to_owned()]);
    if ends_with_the_password(object) && must_change_password(&user) {
        bearer.extra.insert(MUST_CHANGE_PASSWORD.to_owned(), vec!["true".to_owned()]);
    }
    Ok(Arc::new(bearer))
}

/// Whether the token stands for the person themselves: a login, or a kubeconfig they were given. What a person made
/// for a program is not held up by that person's password.
pub(crate) fn ends_with_the_password(token: &Value) -> bool {
    let kind = token["metadata"]["labels"].get(KIND_LABEL);
    token.get("isDerived") == Some(&Value::Bool(false)) || kind.is_some_and(|kind| kind == KUBECONFIG)
}

/// Which passwords the token is good with, one of which must be the user's.
pub(crate) fn passwords_of(token: &Value) -> &str {
    token["metadata"]["annotations"].get(PASSWORD_ANNOTATION).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn made_with(token: &mut Value, passwords: &str) {
    token["metadata"]["annotations"][PASSWORD_ANNOTATION] = passwords.into();
}

/// Whether the token was made with another one.
pub(crate) fn is_derived(token: &Value) -> bool {
    token.get("isDerived") != Some(&Value::Bool(false))
}

pub(super) fn must_change_password(user: &Value) -> bool {
    user.get("mustChangePassword") == Some(&Value::Bool(true))
}

pub(super) fn is_enabled(user: &Value) -> bool {
    !is_being_deleted(user) && user.get("enabled") != Some(&Value::Bool(false))
}

/// Who a User object stands for. Its name is the user's name to RBAC. Its field `groups` (Sheaf's own: Rancher
/// keeps groups in outside directories) lists the groups; one that claims to be the system's is passed over,
/// since membership there is given by certificates alone.
pub(super) fn user_of(object: &Value) -> User {
    let name = text(object, "/metadata/name");
    let mut groups: Vec<String> =
        texts(object, "/groups").into_iter().filter(|group| !group.starts_with("system:")).collect();
    groups.extend([LOCAL_AUTHENTICATED.to_owned(), AUTHENTICATED.to_owned()]);
    let principals = match texts(object, "/principalIds") {
        none if none.is_empty() => vec![format!("local://{name}")],
        some => some,
    };
    let username = text(object, "/username").to_owned();
    User {
        name: name.to_owned(),
        uid: uid(object).to_owned(),
        groups,
        extra: BTreeMap::from([
            ("principalid".to_owned(), principals),
            ("username".to_owned(), vec![username]),
        ]),
    }
}

/// An end that cannot be read is taken for passed.
fn has_expired(token: &Value, clock: &Clock) -> bool {
    match token::end(token) {
        End::Never => false,
        End::AtMillis(end) => end <= clock.now().as_millisecond(),
        End::Unreadable => true,
    }
}

fn hashed(secret: &str) -> String {
    Sha256::digest(secret).iter().fold(HASH_PREFIX.to_owned(), |mut hash, byte| {
        let _ = write!(hash, "{byte:02x}"); // A String takes everything.
        hash
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::identity::{shelf::Shelf, stored_password::with_hash};

    fn person() -> Value {
        json!({ "metadata": { "name": "user-1", "uid": "u1" }, "username": "jo", "groups": ["ops", "system:masters"] })
    }

    fn minted(world: &World, ttl_millis: i64) -> (Shelf, String, String) {
        let shelf = Shelf::default();
        shelf.put(GROUP, USERS, person());
        shelf.put("", "secrets", with_hash(None, &person(), "first"));
        let wish = TokenWish {
            user_id: "user-1".into(),
            ttl_millis,
            password: id_of("first"),
            ..TokenWish::default()
        };
        let (object, bearer) = mint(world, &wish, &person());
        let name = text(&object, "/metadata/name").to_owned();
        shelf.put(GROUP, TOKENS, object);
        (shelf, name, bearer.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_names_its_user_and_never_a_group_of_the_system() {
        let world = World::seeded(1);
        let (shelf, _, bearer) = minted(&world, 0);
        let user = verify(&shelf, &world.clock, &bearer).unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("user-1", "u1"));
        assert_eq!(user.groups, ["ops", "system:cattle:authenticated", "system:authenticated"]);
        assert_eq!(user.extra["username"], ["jo"]);
        assert_eq!(user.extra["principalid"], ["local://user-1"]);
        assert_eq!(user.token_name(), bearer.split_once(':').unwrap().0);
    }

    #[tokio::test(start_paused = true)]
    async fn only_sessions_of_those_who_must_change_their_password_are_held_up() {
        let world = World::seeded(1);
        let (shelf, name, bearer) = minted(&world, 0);
        let held_up = || verify(&shelf, &world.clock, &bearer).unwrap().must_change_password();
        assert!(!held_up());
        let mut user = person();
        user["mustChangePassword"] = json!(true);
        shelf.put(GROUP, USERS, user);
        assert!(held_up(), "also a session that was there before");
        let session = shelf.object(GROUP, TOKENS, "", &name).unwrap();
        for derived in [json!(true), Value::Null] {
            let mut token = Value::clone(&session);
            token["isDerived"] = derived;
            shelf.put(GROUP, TOKENS, token);
            assert!(!held_up());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_is_good_with_the_password_it_was_made_with_and_no_other() {
        let world = World::seeded(1);
        let (shelf, name, bearer) = minted(&world, 0);
        let check = || verify(&shelf, &world.clock, &bearer).map(drop);
        assert_eq!(check(), Ok(()));
        shelf.put("", "secrets", with_hash(None, &person(), "second"));
        assert_eq!(check(), Err(ApiTokenError::OldPassword));
        let mut session = Value::clone(&shelf.object(GROUP, TOKENS, "", &name).unwrap());
        made_with(&mut session, &format!("{} {}", id_of("first"), id_of("second")));
        shelf.put(GROUP, TOKENS, session.clone());
        assert_eq!(check(), Ok(()), "it was carried over");
        session["metadata"]["annotations"] = json!({});
        shelf.put(GROUP, TOKENS, session.clone());
        assert_eq!(check(), Err(ApiTokenError::OldPassword), "one that says none is of none");
        shelf.remove("", "secrets", crate::identity::stored_password::PASSWORD_NAMESPACE, "user-1");
        assert_eq!(
            check(),
            Err(ApiTokenError::OldPassword),
            "where there is no password there is no session"
        );
        // What was made for a program was never the password's.
        session["isDerived"] = json!(true);
        shelf.put(GROUP, TOKENS, session);
        assert_eq!(check(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_that_names_no_user_it_was_made_for_serves_nobody() {
        let world = World::seeded(1);
        let (shelf, name, bearer) = minted(&world, 0);
        let mut token = Value::clone(&shelf.object(GROUP, TOKENS, "", &name).unwrap());
        token["metadata"]["ownerReferences"] = json!([]);
        shelf.put(GROUP, TOKENS, token);
        assert_eq!(verify(&shelf, &world.clock, &bearer), Err(ApiTokenError::NoUser));
    }

    #[tokio::test(start_paused = true)]
    async fn the_secret_is_stored_nowhere() {
        let world = World::seeded(1);
        let (object, bearer) = mint(&world, &TokenWish::default(), &person());
        let (_, secret) = bearer.split_once(':').unwrap();
        assert_eq!(secret.len(), 54);
        assert!(!object.to_string().contains(secret));
    }

    #[tokio::test(start_paused = true)]
    async fn a_deleted_token_stops_at_once() {
        let world = World::seeded(1);
        let (shelf, name, bearer) = minted(&world, 0);
        assert!(verify(&shelf, &world.clock, &bearer).is_ok());
        shelf.remove(GROUP, TOKENS, "", &name);
        assert_eq!(verify(&shelf, &world.clock, &bearer), Err(ApiTokenError::Unknown));
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_stops_when_its_time_is_over() {
        let world = World::seeded(1);
        let (shelf, _, bearer) = minted(&world, 60_000);
        tokio::time::sleep(Duration::from_secs(59)).await;
        assert!(verify(&shelf, &world.clock, &bearer).is_ok());
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(verify(&shelf, &world.clock, &bearer), Err(ApiTokenError::Expired));
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_does_not_serve_a_new_user_of_the_old_name() {
        let world = World::seeded(1);
        let (shelf, _, bearer) = minted(&world, 0);
        let mut namesake = person();
        namesake["metadata"]["uid"] = json!("u2");
        shelf.put(GROUP, USERS, namesake);
        assert_eq!(verify(&shelf, &world.clock, &bearer), Err(ApiTokenError::NoUser));
    }

    #[tokio::test(start_paused = true)]
    async fn whatever_is_wrong_with_a_token_or_its_user_refuses_it() {
        let world = World::seeded(1);
        let (shelf, name, bearer) = minted(&world, 0);
        let check = |bearer: &str| verify(&shelf, &world.clock, bearer).unwrap_err();
        assert_eq!(check(&format!("{bearer}x")), ApiTokenError::WrongSecret);
        assert_eq!(check(&format!("{name}:")), ApiTokenError::WrongSecret);
        assert_eq!(check("token-zzzzz:x"), ApiTokenError::Unknown);

        let good = shelf.object(GROUP, TOKENS, "", &name).unwrap();
        let with = |field: &str, value: Value| {
            let mut token = Value::clone(&good);
            token[field] = value;
            shelf.put(GROUP, TOKENS, token);
            check(&bearer)
        };
        assert_eq!(with("enabled", json!(false)), ApiTokenError::Disabled);
        assert_eq!(with("expiresAt", json!("2029-12-31T23:59:59Z")), ApiTokenError::Expired);
        assert_eq!(with("expiresAt", json!("soon")), ApiTokenError::Expired);
        assert_eq!(with("ttl", json!("long")), ApiTokenError::Expired);
        assert_eq!(with("ttl", json!(1)), ApiTokenError::Expired, "no end stated and no beginning known");
        assert_eq!(with("userId", json!("user-2")), ApiTokenError::NoUser);
        // A token kept in clear, as Rancher without token hashing does, is not one of ours.
        let secret = bearer.split_once(':').unwrap().1;
        assert_eq!(with("token", json!(secret)), ApiTokenError::WrongSecret);
        assert_eq!(
            with("metadata", json!({ "name": name, "deletionTimestamp": "2030-01-01T00:00:00Z" })),
            ApiTokenError::Disabled
        );

        shelf.put(GROUP, TOKENS, Value::clone(&good));
        let mut user = person();
        user["enabled"] = json!(false);
        shelf.put(GROUP, USERS, user);
        assert_eq!(check(&bearer), ApiTokenError::UserDisabled);
    }

    proptest! {
        #[test]
        fn reading_a_token_never_panics(token in any::<String>()) {
            let shelf = Shelf::default();
            prop_assert!(verify(&shelf, &Clock::system(), &token).is_err());
        }
    }
}
