//! What lies in the database file: every kept version of every key, which keys each
//! revision touched, and a few numbers.
//!
//! ```text
//! versions   (key, !revision) -> created, value    newest first; empty is a tombstone
//! log        revision         -> the keys it touched, in the order they were written
//! meta       name             -> number            format, head, compacted, base
//! ```
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

/// Removes what only reads and watches before `to` need, given that the same was done up
/// to `from`. Walks only the keys that changed in between.
pub(super) fn forget(
    versions: &mut Table<'_, VersionKey, &'static [u8]>,
    log: &mut Table<'_, u64, &'static [u8]>,
    from: u64,
    to: u64,
) -> Result<(), StorageError> {
    for revision in from + 1..=to {
        let Some(keys) = log.remove(revision)?.map(|keys| decode_keys(keys.value())).transpose()? else {
            continue;
        };
        for key in keys {
            forget_key(versions, &key, to)?;
        }
    }
    Ok(())
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

pub(super) fn encode_keys<'a>(keys: impl Iterator<Item = &'a Bytes>) -> Vec<u8> {
    let mut out = Vec::new();
    for key in keys {
        // A transaction is smaller than 4 GiB, so is each of its keys.
        out.extend_from_slice(&(key.len() as u32).to_be_bytes());
        out.extend_from_slice(key);
    }
    out
}

pub(super) fn decode_keys(mut stored: &[u8]) -> Result<Vec<Bytes>, StorageError> {
    let cut_short = || StorageError::Corrupted("an entry of the log is cut short".to_owned());
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
