//! Moves all data from one store to a fresh etcd.
//!
//! ```text
//!   empty --> copying --> (batch, batch, ...) --> complete
//!               ^  |
//!               +--+ cut off: empty it and begin again
//! ```
//!
//! The epoch record says "copying" before the first key is written and is replaced last of all, in one
//! step; until then the etcd cannot be opened. Its base lies past every revision of the old store, so no
//! client sees a revision go back, and whoever resumes a watch is told to list again.
//!
//! The caller sees to it that nobody writes to the old store meanwhile. If somebody did, the copy is not
//! completed.

use etcd_client::{Compare, CompareOp, DeleteOptions, Txn, TxnOp};

use crate::{
    Range, Revision, Store, StoreError,
    etcd::{
        self, OpenError,
        record::{self, COMPACTED, Compaction, EPOCH, Epoch, FIRST},
    },
};

/// What one transaction of the copy carries.
const BATCH_BYTES: usize = 1 << 20;
const BATCH_KEYS: usize = 1_000;

#[derive(Debug, thiserror::Error)]
pub enum PromoteError {
    #[error("cannot read the old store")]
    Read {
        #[source]
        source: StoreError,
    },
    #[error("cannot use the new etcd")]
    Etcd {
        #[from]
        source: OpenError,
    },
    #[error("the new etcd is already a store of its own")]
    InUse,
    #[error("the old store went on from revision {copied} to {now} while it was copied")]
    OldStoreChanged { copied: Revision, now: Revision },
    #[error("another copy to the same etcd is under way")]
    Contended,
}

/// Copies every key of `from` to the etcd of `into`, which must be empty or hold a copy that was cut
/// off. Answers the revision that was copied; every revision of the new store is greater.
pub async fn promote(from: &dyn Store, into: &etcd::Config) -> Result<Revision, PromoteError> {
    let line = etcd::connect(into).await?;
    let read_failed = |source| PromoteError::Read { source };
    let copied = from.revision().await.map_err(read_failed)?;

    let mut copying = claim(&line, copied).await?;
    let (mut batch, mut bytes, mut last) = (Vec::new(), 0, 0);
    let mut after = None;
    loop {
        let range = Range { prefix: Default::default(), after, limit: BATCH_KEYS, at: Some(copied) };
        let page = from.range(range).await.map_err(read_failed)?;
        after = page.entries.last().map(|entry| entry.key.clone());
        for entry in page.entries {
            bytes += entry.key.len() + entry.value.len();
            batch.push(TxnOp::put(entry.key.to_vec(), entry.value.to_vec(), None));
            if bytes >= BATCH_BYTES || batch.len() >= BATCH_KEYS {
                last = put(&line, &copying, std::mem::take(&mut batch)).await?;
                bytes = 0;
            }
        }
        if !page.more {
            break;
        }
    }
    if !batch.is_empty() {
        last = put(&line, &copying, batch).await?;
    }
    let now = from.revision().await.map_err(read_failed)?;
    if now != copied {
        return Err(PromoteError::OldStoreChanged { copied, now });
    }
    copying.epoch.copying = false;
    // What happened while it was copied is nobody's history.
    let compaction = Compaction { to: last.max(copying.revision as u64), at: vec![] };
    let records = [(EPOCH, to_json(&copying.epoch)?), (COMPACTED, to_json(&compaction)?)];
    let records = records.map(|(key, value)| TxnOp::put(key, value, None));
    put(&line, &copying, records.into()).await?;
    Ok(copied)
}

/// A copy that is ours to complete.
struct Copying {
    epoch: Epoch,
    /// The raw revision of its record.
    revision: i64,
}

/// Empties the etcd of what an earlier attempt left and says that a copy is under way.
async fn claim(line: &etcd::Line, copied: Revision) -> Result<Copying, PromoteError> {
    let seen = record::look(line).await?;
    let replaces = match &seen.epoch {
        Some((epoch, revision)) if epoch.copying => *revision,
        None if !seen.has_keys => 0,
        Some(_) => return Err(PromoteError::InUse),
        None => return Err(OpenError::NotOurs.into()),
    };
    let epoch = Epoch {
        format: record::FORMAT,
        // Not `copied` itself: a watch resumed at it must be told to list again.
        base: copied.0 + 1,
        cluster: format!("{:x}", seen.header.cluster_id()),
        copying: true,
    };
    if !record::write(line, &epoch, replaces).await? {
        return Err(PromoteError::Contended);
    }
    let seen = record::look(line).await?;
    let revision = match seen.epoch {
        Some((found, revision)) if found == epoch => revision,
        _ => return Err(PromoteError::Contended),
    };
    let copying = Copying { epoch, revision };
    if seen.has_keys {
        let everything = DeleteOptions::new().with_from_key();
        put(line, &copying, vec![TxnOp::delete(FIRST, Some(everything))]).await?;
    }
    Ok(copying)
}

/// Writes as long as the copy is still ours. Answers the raw revision.
async fn put(line: &etcd::Line, copying: &Copying, writes: Vec<TxnOp>) -> Result<u64, PromoteError> {
    let ours = Compare::mod_revision(EPOCH, CompareOp::Equal, copying.revision);
    let sent = line.transact(Txn::new().when([ours]).and_then(writes)).await;
    let (answer, _) = sent.map_err(OpenError::unreachable)?;
    if answer.succeeded { Ok(answer.revision) } else { Err(PromoteError::Contended) }
}

fn to_json(record: &impl serde::Serialize) -> Result<Vec<u8>, PromoteError> {
    Ok(serde_json::to_vec(record).map_err(|source| OpenError::Damaged { source })?)
}
