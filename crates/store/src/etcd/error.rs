//! What went wrong in etcd, in the words of the contract.

use std::error::Error as _;

use etcd_client::Error;

use crate::StoreError;

/// An error of a read, or of anything else that can simply be tried again.
pub(super) fn of_read(error: &Error) -> StoreError {
    StoreError::Unavailable { reason: error.to_string() }
}

/// An error of a write. Unless etcd said no, or was never reached, the write may have happened: a broken
/// connection, a timeout or a change of leader can swallow the answer of a write that stands.
pub(super) fn of_write(error: &Error) -> StoreError {
    let reason = error.to_string();
    if was_refused(&reason) || never_connected(error) {
        StoreError::Unavailable { reason }
    } else {
        StoreError::OutcomeUnknown { reason }
    }
}

pub(super) fn is_compacted(error: &Error) -> bool {
    error.to_string().contains("required revision has been compacted")
}

pub(super) fn is_future(error: &Error) -> bool {
    error.to_string().contains("required revision is a future revision")
}

/// The answer was larger than a message may be.
pub(super) fn is_oversized(error: &Error) -> bool {
    let text = error.to_string();
    text.contains("decoded message length too large") || text.contains("larger than max")
}

/// Answers that etcd gives before it proposes a write, or instead of applying it.
fn was_refused(message: &str) -> bool {
    const REFUSALS: [&str; 5] = [
        "etcdserver: request is too large",
        "etcdserver: too many requests",
        "etcdserver: too many operations in txn request",
        "etcdserver: mvcc: database space exceeded",
        "etcdserver: not capable",
    ];
    REFUSALS.iter().any(|refusal| message.contains(refusal))
}

/// Nobody listened, so nobody can have heard.
fn never_connected(error: &Error) -> bool {
    let Error::GRpcStatus(status) = error else { return false };
    let mut cause = status.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<std::io::Error>()
            && error.kind() == std::io::ErrorKind::ConnectionRefused
        {
            return true;
        }
        cause = error.source();
    }
    false
}
