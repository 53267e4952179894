//! Forgetting history.
//!
//! Two steps. The logical one is exact: a record says up to where history is forgotten, and reads
//! and watches before it are refused. The physical one, etcd's own compaction, follows at the newest
//! revision at or before it that wrote this very record. For etcd drops a deletion made at the
//! compacted revision although a lagging watch may still have to tell it, and these revisions
//! delete nothing.

use etcd_client::{Compare, CompareOp, GetOptions, Txn, TxnOp};

use super::{
    connection::{Connection, within},
    error,
    record::{COMPACTED, Compaction, EPOCH},
};
use crate::StoreError;

/// The compaction record, the newest raw revision, and the raw revision that wrote the record.
pub(super) async fn read(connection: &Connection) -> Result<(Compaction, u64, u64), StoreError> {
    let answer = connection.read(vec![TxnOp::get(COMPACTED, None)]).await?;
    let Some(found) = answer.gets.into_iter().flatten().next() else {
        return Ok((Compaction::default(), answer.revision, 0));
    };
    let parsed = serde_json::from_slice(&found.value);
    let compaction =
        parsed.map_err(|error| connection.fail(format!("the compaction record cannot be read: {error}")))?;
    Ok((compaction, answer.revision, found.modified))
}

pub(super) async fn compact(connection: &Connection, to: u64) -> Result<(), StoreError> {
    loop {
        let (mut compaction, head, written) = read(connection).await?;
        if to > head {
            return Err(StoreError::Future {
                requested: connection.outside(to),
                newest: connection.outside(head),
            });
        }
        if to <= compaction.to {
            return Ok(());
        }
        if written > 0 {
            compaction.at.push(written);
        }
        let physical = compaction.at.iter().copied().rfind(|at| *at <= to);
        compaction.at.retain(|at| physical.is_none_or(|physical| *at > physical));
        compaction.to = to;
        let value = serde_json::to_vec(&compaction)
            .map_err(|error| StoreError::Invalid { reason: error.to_string() })?;
        let floor = connection.floor();
        let txn = Txn::new()
            .when([
                connection.same_epoch(),
                Compare::mod_revision(COMPACTED, CompareOp::Equal, i64::try_from(written).unwrap_or(-1)),
            ])
            .and_then([TxnOp::put(COMPACTED, value, None)])
            .or_else([TxnOp::get(EPOCH, Some(GetOptions::new().with_keys_only()))]);
        let (answer, header) =
            connection.line().transact(txn).await.map_err(|error| error::of_read(&error))?;
        connection.accept(&header, floor)?;
        if !answer.succeeded {
            continue; // Another server was faster; see what it left to do.
        }
        let Some(physical) = physical else { return Ok(()) };
        let mut kv = connection.line().kv.clone();
        let physical = i64::try_from(physical).unwrap_or(i64::MAX);
        return match within(connection.line().timeout, kv.compact(physical, None)).await {
            Ok(_) => Ok(()),
            Err(error) if error::is_compacted(&error) => Ok(()),
            Err(error) => Err(error::of_read(&error)),
        };
    }
}
