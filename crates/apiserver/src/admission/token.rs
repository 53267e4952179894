//! A token is one user's, and not that of whoever has the name after them.

use serde_json::Value;

use crate::{
    ApiServer,
    cache::{Resource, place},
    identity::{
        api_tokens::{GROUP, USERS},
        objects::{made_for, owning_users, text},
    },
    rest::options::Freshness,
    status::ApiError,
};

impl ApiServer {
    /// One that was written by hand, and says for whom by name alone, is for who has the name now.
    pub(super) async fn complete_token(&self, new: &mut Value) -> Result<(), ApiError> {
        if owning_users(new).next().is_some() {
            return Ok(());
        }
        // The name may have been given to somebody else a moment ago, through another server.
        self.reach(Freshness::Latest).await?;
        let user = self.cache.get(&Resource::new(GROUP, USERS), &place("", text(new, "/userId")));
        // Of nobody, it is good for nothing.
        let Some(user) = user else { return Ok(()) };
        let owners = &mut new["metadata"]["ownerReferences"];
        match owners.as_array_mut() {
            Some(owners) => owners.extend(made_for(&user.to_value())),
            None => *owners = made_for(&user.to_value()).into(),
        }
        Ok(())
    }
}
