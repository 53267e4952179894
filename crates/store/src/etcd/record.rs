//! The two records the store keeps for itself in etcd, and how the epoch is found when
//! it is opened. Keys that begin with a zero byte are ours; callers never see them.
//!
//! ```text
//! \0sheaf/epoch       the base, which etcd cluster it was set for, and whether a copy is complete
//! \0sheaf/compacted   up to where history was forgotten, and at which revisions this was said
//! ```

use std::path::Path;

use etcd_client::{Compare, CompareOp, GetOptions, ResponseHeader, Txn, TxnOp};
use serde::{Deserialize, Serialize};

use super::{
    OpenError,
    connection::{Answer, Line},
};
use crate::epoch::mark;

pub(crate) const EPOCH: &[u8] = b"\0sheaf/epoch";
pub(crate) const COMPACTED: &[u8] = b"\0sheaf/compacted";

/// The first key a caller can have.
pub(crate) const FIRST: &[u8] = b"\x01";

pub(crate) const FORMAT: u64 = 1;

/// How far a new epoch leaps when the past is known only in part: other servers may have handed out more
/// than this one saw. More writes than a cluster makes in a year, and room for eight thousand leaps below
/// the largest number that JavaScript counts exactly.
const LEAP: u64 = 1 << 40;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Epoch {
    pub format: u64,
    pub base: u64,
    /// In hexadecimal, as etcd's own tools print it.
    pub cluster: String,
    /// A copy from another store is under way or was cut off; what is here is not all.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub copying: bool,
}

/// See [`compaction`](super::compaction).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Compaction {
    /// The raw revision before which all is forgotten.
    pub to: u64,
    /// Raw revisions at which this record was written, oldest first.
    pub at: Vec<u64>,
}

/// The epoch record with the raw revision that wrote it, if there is one, and whether callers' keys exist.
pub(crate) struct Seen {
    pub epoch: Option<(Epoch, i64)>,
    pub has_keys: bool,
    pub header: ResponseHeader,
}

pub(crate) async fn look(line: &Line) -> Result<Seen, OpenError> {
    let any_key = GetOptions::new().with_from_key().with_limit(1).with_keys_only();
    let gets = [TxnOp::get(EPOCH, None), TxnOp::get(FIRST, Some(any_key))];
    let (Answer { gets, .. }, header) =
        line.transact(Txn::new().and_then(gets)).await.map_err(OpenError::unreachable)?;
    let mut gets = gets.into_iter();
    let epoch = match gets.next().unwrap_or_default().into_iter().next() {
        None => None,
        Some(found) => {
            let read = serde_json::from_slice::<Epoch>(&found.value);
            let epoch = read.map_err(|source| OpenError::Damaged { source })?;
            if epoch.format > FORMAT {
                return Err(OpenError::Newer { found: epoch.format, newest: FORMAT });
            }
            Some((epoch, found.modified as i64))
        }
    };
    Ok(Seen { epoch, has_keys: gets.next().is_some_and(|keys| !keys.is_empty()), header })
}

/// Finds or makes the epoch record, and begins a new epoch when this etcd shows less than was handed out,
/// before anything is served. Several servers may do so at once; one of them writes, all agree.
pub(super) async fn settle(
    line: &Line,
    mark_path: Option<&Path>,
) -> Result<(Epoch, i64, ResponseHeader), OpenError> {
    let known = match mark_path {
        None => None,
        Some(path) => mark::read(path).map_err(|source| OpenError::Mark { path: path.to_owned(), source })?,
    };
    loop {
        let seen = look(line).await?;
        let cluster = format!("{:x}", seen.header.cluster_id());
        let head = seen.header.revision() as u64;
        let (wanted, replaces) = match &seen.epoch {
            None if seen.has_keys => return Err(OpenError::NotOurs),
            None => {
                // A fresh etcd where there was one before: what was handed out is known from the mark alone.
                let base = known.map_or(0, |known| known.reserved + 1);
                (Epoch { format: FORMAT, base, cluster, copying: false }, 0)
            }
            Some((epoch, _)) if epoch.copying => return Err(OpenError::CopyCutOff),
            Some((epoch, revision)) => {
                let behind = known.is_some_and(|known| known.saw_more_than(epoch.base + head));
                if epoch.cluster == cluster && !behind {
                    return Ok((epoch.clone(), *revision, seen.header));
                }
                let past = (epoch.base + head).max(known.map_or(0, |known| known.reserved));
                let base = past + LEAP;
                tracing::warn!(base, "this etcd was restored from a snapshot; a new epoch begins");
                (Epoch { format: FORMAT, base, cluster, copying: false }, *revision)
            }
        };
        write(line, &wanted, replaces).await?;
        // Read again whoever wrote it.
    }
}

/// Replaces the epoch record if it still is the one of `replaces` (0: there is none). Whether it was.
pub(crate) async fn write(line: &Line, epoch: &Epoch, replaces: i64) -> Result<bool, OpenError> {
    let value = serde_json::to_vec(epoch).map_err(|source| OpenError::Damaged { source })?;
    let txn = Txn::new()
        .when([Compare::mod_revision(EPOCH, CompareOp::Equal, replaces)])
        .and_then([TxnOp::put(EPOCH, value, None)])
        .or_else([TxnOp::get(EPOCH, Some(GetOptions::new().with_keys_only()))]);
    line.transact(txn).await.map(|(answer, _)| answer.succeeded).map_err(OpenError::unreachable)
}
