//! Service accounts: the tokens they are given, and what is asked of a token when it comes back.
//!
//! [`TokenIssuer`] signs; the verifier, behind [`Authenticator`](super::Authenticator), checks. A token is only as alive as what it
//! stands on: the account, and the Secret, Pod or Node it was bound to, each with the very uid it was issued
//! for. All of them are looked up on every request.
//!
//! Two layouts are read and written, both the original's: bound tokens that expire, and the older ones that
//! live in a Secret of type `kubernetes.io/service-account-token`, never expire, and are good only while that
//! Secret holds them.

mod claims;
mod issuer;
mod verifier;

pub use issuer::{BoundObject, IssuedToken, ServiceAccount, TokenIssuer, TokenSettings};
pub(crate) use verifier::Verifier;
pub use verifier::{Verified, VerifyError};
