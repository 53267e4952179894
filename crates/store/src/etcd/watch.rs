//! One watch on all keys of etcd, of which the caller's are told.
//!
//! Watching all keys costs little more than watching some (whoever serves the API watches
//! everything once anyway) and buys a proof: every revision has a change, so when one is
//! missing the watch ends rather than go on with a gap.
//!
//! While etcd is away the watch waits, and comes back where it was.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use etcd_client::{WatchOptions, WatchStream};
use futures::stream;
use tokio::time::sleep;

use super::{
    compaction,
    connection::{Connection, Found, within},
    record::EPOCH,
};
use crate::{Change, Changes, StoreError, Watch};

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// etcd's numbers for the kinds of events.
const DELETED: i32 = 1;

struct Feed {
    connection: Arc<Connection>,
    prefix: Bytes,
    /// The newest raw revision that was taken in whole.
    last: u64,
    /// What came so far of the revision after it.
    part: Option<Part>,
    ready: VecDeque<Changes>,
    stream: Option<WatchStream>,
    pause: Duration,
    failure: tokio::sync::watch::Receiver<()>,
}

struct Part {
    revision: u64,
    changes: Vec<Change>,
}

/// Everything with `prefix` after the raw revision `after`.
pub(super) fn stream(connection: Arc<Connection>, prefix: Bytes, after: u64) -> Watch {
    let failure = connection.failure();
    let feed = Feed {
        connection,
        prefix,
        last: after,
        part: None,
        ready: VecDeque::new(),
        stream: None,
        pause: FIRST_PAUSE,
        failure,
    };
    Box::pin(stream::unfold(Some(feed), |feed| async move {
        let mut feed = feed?;
        match feed.step().await {
            Ok(changes) => Some((Ok(changes), Some(feed))),
            Err(error) => Some((Err(error), None)),
        }
    }))
}

impl Feed {
    async fn step(&mut self) -> Result<Changes, StoreError> {
        loop {
            if let Some(changes) = self.ready.pop_front() {
                return Ok(changes);
            }
            self.connection.check()?;
            let mut failure = self.failure.clone();
            tokio::select! {
                biased;
                // The sender lives as long as the connection, which this watch holds.
                _ = failure.changed() => self.connection.check()?,
                taken = self.take_in() => taken?,
            }
        }
    }

    /// Takes one response, connecting first if need be. May be dropped at any await: until a
    /// response is taken nothing has changed.
    async fn take_in(&mut self) -> Result<(), StoreError> {
        let Some(stream) = &mut self.stream else { return self.connect().await };
        match stream.message().await {
            Ok(Some(response)) => {
                self.pause = FIRST_PAUSE;
                if response.canceled() {
                    self.stream = None;
                    self.part = None;
                    if response.compact_revision() > 0 {
                        return Err(self.compacted().await);
                    }
                    tracing::debug!(reason = response.cancel_reason(), "etcd ended a watch; it is resumed");
                    return Ok(());
                }
                self.sort(response)
            }
            Ok(None) | Err(_) => {
                self.stream = None;
                // The rest of a revision that was cut off is told again, from its beginning.
                self.part = None;
                self.rest().await;
                Ok(())
            }
        }
    }

    async fn connect(&mut self) -> Result<(), StoreError> {
        match self.try_connect().await {
            Ok(stream) => {
                self.stream = Some(stream);
                Ok(())
            }
            Err(StoreError::Unavailable { reason }) => {
                tracing::debug!(reason, "cannot resume a watch yet");
                self.rest().await;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    async fn try_connect(&self) -> Result<WatchStream, StoreError> {
        let start = i64::try_from(self.last + 1).unwrap_or(i64::MAX);
        let options = WatchOptions::new().with_range(vec![0]).with_start_revision(start).with_fragment();
        let line = self.connection.line();
        let mut client = line.watch.clone();
        let opened = within(line.timeout, client.watch(vec![0], Some(options))).await;
        let stream = opened.map_err(|error| StoreError::Unavailable { reason: error.to_string() })?;
        // Only now: had a snapshot been restored while we were away, it shows here, before any event
        // of another history is taken for ours.
        self.connection.head().await?;
        Ok(stream)
    }

    async fn rest(&mut self) {
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// Puts the events of one response where they belong.
    fn sort(&mut self, response: etcd_client::WatchResponse) -> Result<(), StoreError> {
        let more_to_come = response.0.fragment;
        for event in response.0.events {
            let Some(found) = event.kv.map(Found::from) else { continue };
            let revision = found.modified;
            match &self.part {
                Some(part) if part.revision == revision => {}
                _ => {
                    self.finish()?;
                    if revision <= self.last {
                        return Err(self.connection.fail(format!("etcd told revision {revision} twice")));
                    }
                    if revision != self.last + 1 {
                        return Err(StoreError::Compacted {
                            requested: self.connection.outside(self.last),
                            oldest: self.connection.outside(revision),
                        });
                    }
                    self.part = Some(Part { revision, changes: Vec::new() });
                }
            }
            if found.key == EPOCH && !self.connection.is_epoch_revision(revision) {
                return Err(self.connection.epoch_changed());
            }
            if found.key.first() == Some(&0) || !found.key.starts_with(&self.prefix) {
                continue;
            }
            let change = if event.r#type == DELETED {
                Change::Deleted { key: found.key.into() }
            } else {
                Change::Put(self.connection.entry(found))
            };
            if let Some(part) = &mut self.part {
                part.changes.push(change);
            }
        }
        if more_to_come { Ok(()) } else { self.finish() }
    }

    /// The revision under way is whole.
    fn finish(&mut self) -> Result<(), StoreError> {
        let Some(part) = self.part.take() else { return Ok(()) };
        self.last = part.revision;
        if !part.changes.is_empty() || self.prefix.is_empty() {
            self.connection.hand_out(part.revision)?;
            let revision = self.connection.outside(part.revision);
            self.ready.push_back(Changes { revision, changes: part.changes });
        }
        Ok(())
    }

    async fn compacted(&self) -> StoreError {
        match compaction::read(&self.connection).await {
            Ok((compaction, _, _)) => StoreError::Compacted {
                requested: self.connection.outside(self.last),
                oldest: self.connection.outside(compaction.to),
            },
            Err(error) => error,
        }
    }
}
