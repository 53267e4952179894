//! Reading a range of any size in messages of a bounded one, all at one revision.

use etcd_client::{GetOptions, Txn, TxnOp};

use super::{
    compaction,
    connection::{Connection, Found, within},
    error,
    record::FIRST,
};
use crate::{Page, Range, StoreError};

/// How many entries the first request of a range asks for, and the most that any does.
const FIRST_PAGE: usize = 64;
const LARGEST_PAGE: usize = 2_000;
/// What further requests of a range aim at.
const PAGE_BYTES: usize = 4 << 20;

/// Reads a range in as many requests as it takes, all at one revision.
pub(super) async fn pages(
    connection: &Connection,
    range: &Range,
    at: Option<u64>,
) -> Result<Page, StoreError> {
    let end = end_of(&range.prefix);
    let mut start = match &range.after {
        Some(after) if after >= &range.prefix => [after.as_ref(), &[0]].concat(),
        _ => range.prefix.to_vec().max(FIRST.to_vec()),
    };
    let (mut revision, mut entries, mut bytes) = (at, Vec::new(), 0);
    let mut most = FIRST_PAGE;
    // Plain gets carry no condition, so whether it was our epoch they read is asked afterwards.
    let mut unconditional = at.is_some();
    let more = loop {
        let wanted = if range.limit == 0 { most } else { most.min(range.limit - entries.len()) };
        let options = GetOptions::new().with_range(end.clone()).with_limit(wanted as i64);
        let (found, more) = match fetch(connection, start.clone(), options, &mut revision).await {
            Err(Fetch::Oversized) if most > 1 => {
                most /= 2;
                continue;
            }
            Err(Fetch::Oversized) => {
                return Err(StoreError::Unavailable {
                    reason: "an entry is larger than a message".to_owned(),
                });
            }
            Err(Fetch::Failed(error)) => return Err(error),
            Ok(found) => found,
        };
        bytes += found.iter().map(|found| found.key.len() + found.value.len()).sum::<usize>();
        entries.extend(found.into_iter().map(|found| connection.entry(found)));
        let Some(last) = entries.last().filter(|_| more) else { break false };
        if range.limit > 0 && entries.len() >= range.limit {
            break true;
        }
        unconditional = true;
        start = [last.key.as_ref(), &[0]].concat();
        most = (PAGE_BYTES / (bytes / entries.len()).max(1)).clamp(1, LARGEST_PAGE);
    };
    if unconditional {
        connection.head().await?;
    }
    Ok(Page { entries, more, revision: connection.outside(revision.unwrap_or_default()) })
}

enum Fetch {
    Oversized,
    Failed(StoreError),
}

/// One request of a range. The first one of now also settles which revision the others read.
async fn fetch(
    connection: &Connection,
    start: Vec<u8>,
    options: GetOptions,
    revision: &mut Option<u64>,
) -> Result<(Vec<Found>, bool), Fetch> {
    connection.check().map_err(Fetch::Failed)?;
    let floor = connection.floor();
    let line = connection.line();
    let refused = |error: etcd_client::Error| {
        if error::is_oversized(&error) { Fetch::Oversized } else { Fetch::Failed(error::of_read(&error)) }
    };
    match *revision {
        None => {
            let txn = Txn::new().when([connection.same_epoch()]).and_then([TxnOp::get(start, Some(options))]);
            let (mut answer, header) = line.transact(txn).await.map_err(refused)?;
            connection.accept(&header, floor).map_err(Fetch::Failed)?;
            if !answer.succeeded {
                return Err(Fetch::Failed(connection.epoch_changed()));
            }
            *revision = Some(answer.revision);
            Ok((answer.gets.pop().unwrap_or_default(), answer.more))
        }
        Some(at) => {
            let mut kv = line.kv.clone();
            let options = options.with_revision(i64::try_from(at).unwrap_or(i64::MAX));
            match within(line.timeout, kv.get(start, Some(options))).await {
                Ok(mut response) => {
                    if let Some(header) = response.take_header() {
                        connection.accept(&header, floor).map_err(Fetch::Failed)?;
                    }
                    let more = response.more();
                    Ok((response.0.kvs.into_iter().map(Found::from).collect(), more))
                }
                Err(error) if error::is_compacted(&error) => {
                    let (compaction, _, _) = compaction::read(connection).await.map_err(Fetch::Failed)?;
                    let (requested, oldest) = (connection.outside(at), connection.outside(compaction.to));
                    Err(Fetch::Failed(StoreError::Compacted { requested, oldest }))
                }
                Err(error) if error::is_future(&error) => Err(Fetch::Failed(
                    connection.fail("etcd forgot a revision it had shown; was a snapshot restored?"),
                )),
                Err(error) => Err(refused(error)),
            }
        }
    }
}

/// The first key after all keys with `prefix`; a single zero byte is etcd's word for "no end".
fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}
