//! Finds out who a request is from.
//!
//! A client certificate first, as in the original; then a bearer token, which is an API token or a
//! service-account token by its form; then the cookie of a browser's session. Nothing presented is anonymous. Something
//! presented that is not good is refused, never anonymous: a client whose token expired must hear so, not wonder why it
//! sees nothing. Of a cookie it is said apart ([`Rejected::Cookie`]), since a browser cannot but send it.

use std::sync::Arc;

use http::HeaderMap;
use sheaf_world::Clock;

use super::{
    Directory, PeerCertificate, SigningKeys, User,
    api_tokens::{self, ApiTokenError},
    credentials::{BadCredential, bearer_token},
    service_accounts::{TokenSettings, Verified, Verifier, VerifyError},
    session_cookie,
};

/// A credential was presented and is not good. Only for logs and reviews; the client hears "Unauthorized".
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Rejected {
    #[error("{reason}")]
    Certificate { reason: &'static str },
    #[error(transparent)]
    Credential(#[from] BadCredential),
    #[error(transparent)]
    ServiceAccountToken(#[from] VerifyError),
    #[error(transparent)]
    ApiToken(#[from] ApiTokenError),
    /// Nobody put it there on purpose: a browser sends what it once was given, or what another page planted.
    #[error("the session cookie is worth nothing")]
    Cookie(#[source] Box<Rejected>),
}

pub struct Authenticator {
    directory: Arc<dyn Directory>,
    verifier: Verifier,
    clock: Clock,
}

impl Authenticator {
    pub fn new(
        directory: Arc<dyn Directory>,
        keys: Arc<SigningKeys>,
        settings: TokenSettings,
        clock: Clock,
    ) -> Self {
        let verifier = Verifier::new(keys, settings, directory.clone(), clock.clone());
        Authenticator { directory, verifier, clock }
    }

    /// `peer` is the connection's certificate, chain-verified.
    pub fn authenticate(
        &self,
        peer: Option<&PeerCertificate>,
        headers: &HeaderMap,
    ) -> Result<Arc<User>, Rejected> {
        if let Some(peer) = peer {
            return peer.user(&self.clock).map_err(|reason| Rejected::Certificate { reason });
        }
        match bearer_token(headers)? {
            Some(token) => Ok(self.authenticate_token(&token, &[])?.user),
            None => self.authenticate_cookie(headers).map_err(|why| Rejected::Cookie(Box::new(why))),
        }
    }

    fn authenticate_cookie(&self, headers: &HeaderMap) -> Result<Arc<User>, Rejected> {
        match session_cookie::token(headers)? {
            Some(token) => Ok(self.authenticate_token(&token, &[])?.user),
            None => Ok(User::anonymous()),
        }
    }

    /// Whether somebody who came in with an API token would still come in with it as who they are: it may have ended, and
    /// so may the user or what groups they are in. Of other credentials only the end is theirs to come.
    pub fn is_still(&self, user: &User) -> bool {
        match user.token_name() {
            "" => true,
            name => api_tokens::standing(self.directory.as_ref(), &self.clock, name)
                .is_ok_and(|now| now.name == user.name && now.uid == user.uid && now.groups == user.groups),
        }
    }

    /// Checks a token for somebody who answers to `audiences`; for the API server itself when empty.
    pub fn authenticate_token(&self, token: &str, audiences: &[String]) -> Result<Verified, Rejected> {
        let own = self.verifier.audiences();
        let audiences = if audiences.is_empty() { own } else { audiences };
        if !api_tokens::has_this_form(token) {
            return Ok(self.verifier.verify(token, audiences)?);
        }
        // An API token is for the API server alone.
        let matching: Vec<String> = audiences.iter().filter(|one| own.contains(one)).cloned().collect();
        if matching.is_empty() {
            let (found, wanted) = (own.to_vec(), audiences.to_vec());
            return Err(VerifyError::WrongAudience { found, wanted }.into());
        }
        let user = api_tokens::verify(self.directory.as_ref(), &self.clock, token)?;
        Ok(Verified { user, audiences: matching })
    }
}

#[cfg(test)]
#[path = "authenticator_tests.rs"]
mod tests;
