//! Who is asking: from a certificate, a token, a browser's session or nothing at all to a [`User`].
//!
//! [`Authenticator`] looks at what a request presents; [`impersonation`] lets those who may act as somebody
//! else; [`users`] and [`service_accounts`] hand out the credentials. Everything that decides is read from the
//! [`Directory`] on each request, so a revoked credential stops at once; the only thing remembered between
//! requests is that a signature was once found good, which no revocation changes.
//!
//! Deliberately absent: HTTP Basic, and any memory of sessions: a cookie ([`session_cookie`]) holds a token like any
//! other. What survives a crash is what the objects say; the delays after failed logins are forgotten.

pub mod api_tokens;
mod authenticator;
mod certificate;
pub mod credentials;
pub mod impersonation;
mod jws;
pub(crate) mod objects;
pub mod origin;
pub mod password_change;
pub mod passwords;
pub(crate) mod recent;
mod refusal;
pub mod reviews;
pub mod service_accounts;
pub mod session_cookie;
pub(crate) mod stored_password;
mod throttle;
pub(crate) mod user;
pub mod users;

#[cfg(test)]
pub(crate) mod shelf;
#[cfg(test)]
pub(crate) use certificate::tests::certificate;

pub use authenticator::{Authenticator, Rejected};
pub use certificate::PeerCertificate;
pub use jws::{KeyError, SigningKeys, generate_key_pem};
pub use objects::{Directory, Objects, WriteError};
pub use refusal::{Cause, Refusal};
pub use user::{
    ANONYMOUS, AUTHENTICATED, LOCAL_AUTHENTICATED, MASTERS, NODES, SERVICE_ACCOUNTS, UNAUTHENTICATED, User,
};
