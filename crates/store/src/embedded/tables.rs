//! What lies in the database file: every kept version of every key, which keys each
//! revision touched, and a few numbers.
//!
//! ```text
//! versions   (key, !revision) -> created, value    newest first; empty is a tombstone
//! log        revision         -> how many bytes it superseded, and the keys it touched, in order
//! meta       name             -> number            format, head, compacted, base, history
//! ```
//!
//! *History* is what the present does not need: versions that a later one superseded. It is
//! counted where it is made, in the log, so that forgetting a revision says what that freed.
//!
//! Revisions in here are raw: they count from 1 in this file, whatever the [`epoch`](crate::epoch).
//! All of a batch is written in one redb transaction, so after a crash these tables
//! agree with each other.

use bytes::Bytes;
use redb::{ReadableTable, StorageError, Table, TableDefinition};

pub(super) const VERSIONS: TableDefinition<'static, VersionKey, &[u8]> = TableDefinition::new("versions");
pub(super) const LOG: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("log");
pub(super) const META: TableDefinition<'static, &str, u64> = TableDefinition::new("meta");

/// The revision is stored inverted, so that the newest version of a key comes first.
pub(super) type VersionKey = (&'static [u8], u64);

pub(super) const FORMAT: &str = "format";
pub(super) const HEAD: &str = "head";
pub(super) const COMPACTED: &str = "compacted";
pub(super) const BASE: &str = "base";
/// The bytes superseded by all revisions in the log: what [`forget`] could free.
pub(super) const HISTORY: &str = "history";

/// One key as one revision left it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub revision: u64,
    /// `None` is a tombstone.
    pub value: Option<Live>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Live {
    pub created: u64,
    pub value: Bytes,
}

/// A live key, the revision that wrote it, and what it holds.
pub(super) type Listed = (Bytes, u64, Live);

impl Version {
    fn decode(inverted: u64, stored: &[u8]) -> Result<Self, StorageError> {
        let revision = !inverted;
        let Some((created, value)) = stored.split_first_chunk::<8>() else {
            return if stored.is_empty() {
                Ok(Version { revision, value: None })
            } else {
                Err(StorageError::Corrupted(format!("a version of revision {revision} is cut short")))
            };
        };
        let created = u64::from_be_bytes(*created);
        Ok(Version { revision, value: Some(Live { created, value: Bytes::copy_from_slice(value) }) })
    }
}

/// The key as it stood at `at`, tombstones included.
pub(super) fn version_at(
    versions: &impl ReadableTable<VersionKey, &'static [u8]>,
    key: &[u8],
    at: u64,
) -> Result<Option<Version>, StorageError> {
    match versions.range((key, !at)..=(key, u64::MAX))?.next() {
        None => Ok(None),
        Some(found) => {
            let (found_key, stored) = found?;
            Version::decode(found_key.value().1, stored.value()).map(Some)
        }
    }
}

/// The live keys with `prefix` that follow `after`, as they stood at `at`. Answers at most
/// `limit` of them (0 is all) and whether there are more.
pub(super) fn live_at(
    versions: &impl ReadableTable<VersionKey, &'static [u8]>,
    prefix: &[u8],
    after: Option<&[u8]>,
    limit: usize,
    at: u64,
) -> Result<(Vec<Listed>, bool), StorageError> {
    /// After so many versions of one key that are not wanted it is cheaper to seek.
    const SKIP_BEFORE_SEEK: usize = 8;

    let mut found: Vec<Listed> = Vec::new();
    // The key whose answer is known, and how many more of its versions were passed over.
    let mut settled: Option<(Vec<u8>, usize)> = None;
    let mut scan = match after {
        // `(key, MAX)` sorts after every version of the key.
        Some(after) if after >= prefix => versions.range((after, u64::MAX)..)?,
        _ => versions.range((prefix, 0)..)?,
    };
    while let Some(next) = scan.next() {
        let (version_key, stored) = next?;
        let (key, inverted) = version_key.value();
        if after.is_some_and(|after| key <= after) {
            continue;
        }
        if !key.starts_with(prefix) {
            break;
        }
        match &mut settled {
            Some((known, passed)) if known.as_slice() == key => {
                *passed += 1;
                if *passed >= SKIP_BEFORE_SEEK {
                    scan = versions.range((known.as_slice(), u64::MAX)..)?;
                }
                continue;
            }
            _ => {}
        }
        if !inverted > at {
            // Newer than asked for: go straight to what it was then.
            let key = key.to_vec();
            let then = version_at(versions, &key, at)?;
            if let Some(Version { revision, value: Some(live) }) = then {
                if limit > 0 && found.len() == limit {
                    return Ok((found, true));
                }
                found.push((Bytes::copy_from_slice(&key), revision, live));
            }
            settled = Some((key, 0));
            continue;
        }
        let version = Version::decode(inverted, stored.value())?;
        if let Some(live) = version.value {
            if limit > 0 && found.len() == limit {
                return Ok((found, true));
            }
            found.push((Bytes::copy_from_slice(key), version.revision, live));
        }
        settled = Some((key.to_vec(), 0));
    }
    Ok((found, false))
}

/// Writes one version of `key`; `None` is a tombstone.
pub(super) fn insert_version(
    versions: &mut Table<'_, VersionKey, &'static [u8]>,
    key: &[u8],
    revision: u64,
    live: Option<(u64, &[u8])>,
) -> Result<(), StorageError> {
    let stored = match live {
        None => Vec::new(),
        Some((created, value)) => [&created.to_be_bytes(), value].concat(),
    };
    versions.insert((key, !revision), stored.as_slice())?;
    Ok(())
}

/// What a version weighs once it is history.
pub(super) fn weight(key: &[u8], live: &Live) -> u64 {
    (key.len() + live.value.len()) as u64
}

/// The revision to forget up to, so that at least `surplus` bytes of history go; never beyond `newest`.
pub(super) fn revision_that_frees(
    log: &impl ReadableTable<u64, &'static [u8]>,
    from: u64,
    newest: u64,
    surplus: u64,
) -> Result<u64, StorageError> {
    let (mut to, mut freed) = (from, 0);
    if surplus == 0 || newest <= from {
        return Ok(from);
    }
    for logged in log.range(from + 1..=newest)? {
        if freed >= surplus {
            break;
        }
        let (revision, stored) = logged?;
        freed += decode_log(stored.value())?.superseded;
        to = revision.value();
    }
    Ok(to)
}

/// Removes what only reads and watches before `to` need, given that the same was done up
/// to `from`. Walks only the keys that changed in between. Answers how many bytes of history went.
pub(super) fn forget(
    versions: &mut Table<'_, VersionKey, &'static [u8]>,
    log: &mut Table<'_, u64, &'static [u8]>,
    from: u64,
    to: u64,
) -> Result<u64, StorageError> {
    let mut freed = 0;
    for revision in from + 1..=to {
        let Some(logged) = log.remove(revision)?.map(|logged| decode_log(logged.value())).transpose()? else {
            continue;
        };
        freed += logged.superseded;
        for key in logged.keys {
            forget_key(versions, &key, to)?;
        }
    }
    Ok(freed)
}

fn forget_key(
    versions: &mut Table<'_, VersionKey, &'static [u8]>,
    key: &[u8],
    to: u64,
) -> Result<(), StorageError> {
    let mut doomed = Vec::new();
    for (position, found) in versions.range((key, !to)..=(key, u64::MAX))?.enumerate() {
        let (version_key, stored) = found?;
        // The newest version at `to` is still what a read at `to` sees, unless it says "gone".
        if position > 0 || stored.value().is_empty() {
            doomed.push(version_key.value().1);
        }
    }
    for inverted in doomed {
        versions.remove((key, inverted))?;
    }
    Ok(())
}

/// What one revision did, without the values.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Logged {
    /// The weight of the versions that were the newest of their keys until then.
    pub superseded: u64,
    pub keys: Vec<Bytes>,
}

pub(super) fn encode_log<'a>(superseded: u64, keys: impl Iterator<Item = &'a Bytes>) -> Vec<u8> {
    let mut out = superseded.to_be_bytes().to_vec();
    for key in keys {
        // A transaction is smaller than 4 GiB, so is each of its keys.
        out.extend_from_slice(&(key.len() as u32).to_be_bytes());
        out.extend_from_slice(key);
    }
    out
}

pub(super) fn decode_log(stored: &[u8]) -> Result<Logged, StorageError> {
    let (superseded, keys) = stored.split_first_chunk::<8>().ok_or_else(cut_short)?;
    Ok(Logged { superseded: u64::from_be_bytes(*superseded), keys: decode_keys(keys)? })
}

/// All there was in the log of format 1.
pub(super) fn decode_keys(mut stored: &[u8]) -> Result<Vec<Bytes>, StorageError> {
    let mut keys = Vec::new();
    while !stored.is_empty() {
        let (length, rest) = stored.split_first_chunk::<4>().ok_or_else(cut_short)?;
        let (key, rest) =
            rest.split_at_checked(u32::from_be_bytes(*length) as usize).ok_or_else(cut_short)?;
        keys.push(Bytes::copy_from_slice(key));
        stored = rest;
    }
    Ok(keys)
}

fn cut_short() -> StorageError {
    StorageError::Corrupted("an entry of the log is cut short".to_owned())
}
