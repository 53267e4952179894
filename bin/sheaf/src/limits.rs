//! How many files this process may have open. Every client connection is one, so a busy node needs
//! more than the 1,024 that a shell or a service usually starts with.
//!
//! The hard limit is the administrator's word and stays; `sheaf doctor` tells when it is low.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{info, warn};

/// Raises the soft limit of open files to the hard one.
pub fn raise_open_files() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let words = |limit: Option<u64>| limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string());
    let (from, to) = (words(current), words(maximum));
    if current == maximum {
        return info!(limit = to, "open files");
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => info!(from, to, "raised the limit of open files"),
        // It runs all the same, with fewer clients at a time.
        Err(error) => warn!(%error, limit = from, wanted = to, "cannot raise the limit of open files"),
    }
}
