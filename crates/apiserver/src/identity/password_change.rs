//! Choosing a new password.
//!
//! The new hash is what does it: with it every session ends that was made with the old password
//! ([`stored_password`](super::stored_password)). Before it the session that asks is made good with the new one, too,
//! and, where the user is to choose another one, that is written; after it, that the sessions are over, for who reads
//! them, and that no change is needed any more. A crash in between leaves a user who, having been asked to change it, is
//! asked once more, with the new password as the current one.
//!
//! A session is a login or a kubeconfig that somebody was given. Tokens that were made for programs stay: they were never
//! the password's, and stopping them is its own decision.

use std::{net::IpAddr, time::Duration};

use serde_json::{Value, json};

use super::{
    WriteError,
    api_tokens::{
        GROUP, TOKENS, USERS, ends_with_the_password, made_with, must_change_password, passwords_of,
    },
    objects::text,
    passwords::{WeakPassword, check_strength},
    stored_password::id_of,
    users::{LocalUsers, LoginError, UserError},
};

/// Tries of a write that others are faster at.
const TRIES: usize = 8;
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ChangeError {
    #[error(transparent)]
    Login(#[from] LoginError),
    #[error(transparent)]
    User(#[from] UserError),
}

impl LocalUsers {
    /// Sets a password for somebody who knows the old one, and ends all sessions of theirs but the one called
    /// `session`. A wrong old password counts as a failed login.
    pub async fn change_password(
        &self,
        id: &str,
        current: &str,
        new: &str,
        session: &str,
        from: Option<IpAddr>,
    ) -> Result<(), ChangeError> {
        let username = text(&*self.by_id(id)?, "/username").to_owned();
        let person = self.login(&username, current, from).await?;
        // Of two with one username the younger is nobody, here as at the login.
        if person.id != id {
            return Err(ChangeError::Login(LoginError::Refused));
        }
        if new == current {
            return Err(ChangeError::User(WeakPassword::SameAsCurrent.into()));
        }
        check_strength(&username, new).map_err(UserError::from)?;
        let hash = self
            .hash(new)
            .await
            .map_err(|source| UserError::Password { id: id.to_owned(), source })
            .map_err(ChangeError::from)?;
        self.carry_over(session, &person.password, &id_of(&hash)).await.map_err(UserError::from)?;
        // Only what the old password was compared with is replaced.
        let user = self.by_id(id)?;
        self.replace_hash(&user, &person.password, &hash).await.map_err(UserError::from)?;
        self.end_sessions(id, session).await.map_err(UserError::from)?;
        Ok(self.ask_for_a_change(id, false).await.map_err(UserError::from)?)
    }

    /// Sets a password without asking for the old one: for those who may update users.
    pub async fn set_password(
        &self,
        id: &str,
        password: &str,
        must_change_password: bool,
    ) -> Result<(), UserError> {
        let user = self.by_id(id)?;
        check_strength(text(&user, "/username"), password)?;
        if must_change_password {
            // Else who is cut off in between has a password for good that was meant for one login.
            self.ask_for_a_change(id, true).await?;
        }
        self.store_password(&user, password).await?;
        self.end_sessions(id, "").await?;
        Ok(self.ask_for_a_change(id, must_change_password).await?)
    }

    /// Makes a session good with the new password before there is one, so that it never is not. The old one never comes
    /// back: that it stays beside the new one does no harm.
    async fn carry_over(&self, session: &str, old: &str, new: &str) -> Result<(), WriteError> {
        let add = |token: &mut Value| {
            let is_of_it = passwords_of(token).split(' ').any(|one| one == old);
            if is_of_it && ends_with_the_password(token) {
                made_with(token, &format!("{old} {new}"));
            }
            is_of_it
        };
        match session {
            "" => Ok(()),
            session => match self.change(TOKENS, session, add).await {
                // It ended by itself, and is not begun again.
                Err(WriteError::NotFound { .. }) => Ok(()),
                done => done,
            },
        }
    }

    async fn ask_for_a_change(&self, id: &str, wanted: bool) -> Result<(), WriteError> {
        self.change(USERS, id, |user| {
            (must_change_password(user) != wanted)
                .then(|| user["mustChangePassword"] = json!(wanted))
                .is_some()
        })
        .await
    }

    /// They are over already, with their password; now they say so. Disabled and not deleted: they are deleted when they
    /// are long past their end, as all tokens are.
    async fn end_sessions(&self, id: &str, kept: &str) -> Result<(), WriteError> {
        for token in self.directory.objects(GROUP, TOKENS) {
            let name = text(&token, "/metadata/name");
            if text(&token, "/userId") != id || name == kept || !ends_with_the_password(&token) {
                continue;
            }
            let disable = |token: &mut Value| {
                (token["enabled"] != false).then(|| token["enabled"] = json!(false)).is_some()
            };
            match self.change(TOKENS, name, disable).await {
                // It ended by itself.
                Err(WriteError::NotFound { .. }) => {}
                done => done?,
            }
        }
        Ok(())
    }

    /// Changes one object as it now is, if `change` says that there is something to change; again when somebody
    /// else was faster.
    async fn change(
        &self,
        resource: &str,
        name: &str,
        change: impl Fn(&mut Value) -> bool,
    ) -> Result<(), WriteError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let Some(seen) = self.directory.object(GROUP, resource, "", name) else {
                return Err(WriteError::NotFound { resource: resource.to_owned(), name: name.to_owned() });
            };
            let mut changed = Value::clone(&seen);
            if !change(&mut changed) {
                return Ok(());
            }
            match self.objects.update(GROUP, resource, "", changed).await {
                Err(WriteError::Conflict { .. }) if tries < TRIES => tokio::time::sleep(BETWEEN_TRIES).await,
                done => return done.map(drop),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sheaf_world::World;

    use super::*;
    use crate::identity::{
        Directory,
        api_tokens::{self, ApiTokenError, Purpose, TokenWish},
        users::tests::{PASSWORD, house},
    };

    const NEW: &str = "another long one";

    #[tokio::test(start_paused = true)]
    async fn a_changed_password_is_the_only_one_that_works_and_need_not_be_changed_again() {
        let (_, users) = house().await;
        users.change_password("admin", PASSWORD, NEW, "", None).await.unwrap();
        assert_eq!(users.login("admin", PASSWORD, None).await, Err(LoginError::Refused));
        assert!(!users.login("admin", NEW, None).await.unwrap().must_change_password);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_change_changes_nothing() {
        let (_, users) = house().await;
        let mut refused = Vec::new();
        for (current, new) in [("wrong", NEW), (PASSWORD, "short"), (PASSWORD, PASSWORD), (PASSWORD, "ADMIN")]
        {
            refused.push(users.change_password("admin", current, new, "", None).await.unwrap_err());
        }
        let weak = |why| ChangeError::User(UserError::Weak(why));
        assert_eq!(
            refused,
            [
                ChangeError::Login(LoginError::Refused),
                weak(WeakPassword::TooShort),
                weak(WeakPassword::SameAsCurrent),
                weak(WeakPassword::SameAsUsername)
            ]
        );
        assert!(users.login("admin", PASSWORD, None).await.unwrap().must_change_password);
        let unknown = users.change_password("nobody", PASSWORD, NEW, "", None).await;
        assert_eq!(unknown, Err(ChangeError::User(UserError::Unknown { id: "nobody".into() })));
    }

    #[tokio::test(start_paused = true)]
    async fn guessing_the_current_password_is_slowed_down_like_a_login() {
        let (_, users) = house().await;
        for _ in 0..5 {
            let guessed = users.change_password("admin", "guess", NEW, "", None).await;
            assert_eq!(guessed, Err(ChangeError::Login(LoginError::Refused)));
        }
        let held = users.change_password("admin", PASSWORD, NEW, "", None).await;
        assert!(matches!(held, Err(ChangeError::Login(LoginError::TooMany { .. }))), "{held:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_ends_the_other_sessions_and_leaves_what_programs_use() {
        let (shelf, users) = house().await;
        let mut bearers = Vec::new();
        for purpose in [Purpose::Session, Purpose::Session, Purpose::Program, Purpose::Kubeconfig] {
            let password = users.login("admin", PASSWORD, None).await.unwrap().password;
            let wish = TokenWish { user_id: "admin".into(), purpose, password, ..TokenWish::default() };
            bearers.push(users.mint_token(&wish).await.unwrap().1);
        }
        let world = World::seeded(1);
        let works = || {
            let checked =
                bearers.iter().map(|bearer| api_tokens::verify(shelf.as_ref(), &world.clock, bearer));
            checked.map(|user| user.is_ok()).collect::<Vec<_>>()
        };
        let kept = bearers[0].split_once(':').unwrap().0;
        users.change_password("admin", PASSWORD, NEW, kept, None).await.unwrap();
        assert_eq!(works(), [true, false, true, false]);
        users.set_password("admin", PASSWORD, true).await.unwrap();
        assert_eq!(works(), [false, false, true, false]);
        assert!(must_change_password(&shelf.object(GROUP, USERS, "", "admin").unwrap()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_that_was_on_its_way_while_the_password_changed_is_never_good() {
        let (shelf, users) = house().await;
        let person = users.login("admin", PASSWORD, None).await.unwrap();
        users.set_password("admin", NEW, false).await.unwrap();
        // Whoever signed in with the old password a moment before gets their session only now.
        let mut bearers = Vec::new();
        for purpose in [Purpose::Session, Purpose::Kubeconfig] {
            let password = person.password.clone();
            let wish = TokenWish { user_id: "admin".into(), purpose, password, ..TokenWish::default() };
            bearers.push(users.mint_token(&wish).await.unwrap().1);
        }
        let clock = World::seeded(1).clock;
        for bearer in &bearers {
            let refused = api_tokens::verify(shelf.as_ref(), &clock, bearer);
            assert_eq!(refused, Err(ApiTokenError::OldPassword));
        }
        // And the same password, chosen again, is another one.
        users.set_password("admin", PASSWORD, false).await.unwrap();
        assert!(api_tokens::verify(shelf.as_ref(), &clock, &bearers[0]).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn of_two_who_change_one_password_at_once_the_second_is_refused() {
        let (shelf, users) = house().await;
        let person = users.login("admin", PASSWORD, None).await.unwrap();
        users.change_password("admin", PASSWORD, NEW, "", None).await.unwrap();
        let user = shelf.object(GROUP, USERS, "", "admin").unwrap();
        let late = users.replace_hash(&user, &person.password, "another").await;
        assert!(matches!(late, Err(WriteError::Conflict { .. })), "{late:?}");
        users.login("admin", NEW, None).await.unwrap();
    }
}
