//! The node's certificates: made at the first start, renewed by themselves ever after.
//!
//! One directory holds a certificate authority and the certificates it signed:
//!
//! ```text
//!   ca.crt  ca.key                    10 years, ECDSA P-256
//!     |-- apiserver.crt, .key         1 year, server: every name and address of the node
//!     |-- apiserver-client.crt, .key  1 year, client: CN=system:sheaf:apiserver, to ask nodes
//!     |-- agent.crt, .key             1 year, server: the node's name, to be asked as that node
//!     +-- admin.crt, .key             1 year, client: CN=admin, O=system:masters
//! ```
//!
//! A leaf is replaced when a third of its life is left, when the names it should
//! carry changed, when another authority signed it, and when it is missing, broken or
//! expired, whatever the reason. So a node that slept for two years starts like any
//! other. [`NodeCertificates::ensure`] does that at the start and
//! [`NodeCertificates::keep_fresh`] every hour by the handed-in clock; open connections
//! go on with the certificate they began with.
//!
//! **The authority is never replaced by itself**: every kubeconfig and every other node
//! trusts it, and all would be locked out. [`NodeCertificates::authority_expires`] lets
//! the caller warn in time. An operator changes it by putting a new `ca.crt` and
//! `ca.key` in place and appending the old certificate to `ca.crt`: the first
//! certificate in the file signs, all of them are trusted.
//! A certificate whose key is lost is refused rather than replaced, for the same reason.
//!
//! What survives a crash: files are written whole ([`durable`]), a key before its
//! certificate. A crash between the two leaves a pair that does not fit, which the next
//! start replaces (or, for the authority's very first pair, completes).
//!
//! Private keys always come from the kernel's random source, also in a simulation: a
//! key that follows from a seed is not a key. Dates and serial numbers come from the
//! handed-in world.

mod authority;
pub mod durable;
mod inspect;
mod leaf;
mod node_certificates;
mod serving;

use std::{io, path::PathBuf};

pub use inspect::{Facts, common_name, inspect};
pub use leaf::{Leaf, ServingNames};
pub use node_certificates::{ADMIN, AGENT, APISERVER_CLIENT, APISERVER_USER, NodeCertificates, SERVING};

/// Why certificates could not be made, read or used.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot write {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "{certificate} is there but its key {key} is not: put the key back, or remove the certificate to \
         start with a new authority, which nobody who trusted the old one will trust"
    )]
    AuthorityKeyMissing { certificate: PathBuf, key: PathBuf },
    #[error("{path} cannot be used as a certificate authority: {reason}")]
    AuthorityUnusable { path: PathBuf, reason: String },
    #[error("cannot sign the certificate of {name}")]
    Sign {
        name: String,
        #[source]
        source: rcgen::Error,
    },
    #[error("cannot use the certificate of {name} for TLS: {reason}")]
    Unusable { name: String, reason: String },
}
