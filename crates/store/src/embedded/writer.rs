//! The one writer: takes whatever queued up, carries it out in order inside one redb
//! transaction, syncs once, and only then answers.
//!
//! ```text
//!   commit ---+                                   +--> answer
//!   commit ---+--> queue --> one batch, one sync --+--> answer
//!   compact --+                 |                 +--> answer
//!                               +--> history, wake-up of watches
//! ```
//!
//! - Nothing waits for company: a batch is what arrived while the last sync was under
//!   way, so a lone writer pays one sync and no delay.
//! - Nothing is answered before the sync, refusals included: what a refusal was judged
//!   by may lie in the same batch.
//! - A failed commit may have reached the disk or not, and a failed sync cannot be tried
//!   again (the kernel has forgotten which pages were dirty). So the store stops: this
//!   batch is told that its outcome is unknown, everything after it that the store has
//!   failed, until it is opened again. A panic in redb, or of this writer, ends in the same way.

use std::sync::Arc;

use redb::{ReadableTable, StorageError};
use tokio::sync::{mpsc, oneshot};

use super::{
    damage,
    shared::Shared,
    tables::{self, COMPACTED, HEAD, HISTORY, LOG, META, VERSIONS, Version},
};
use crate::{Change, Changes, Entry, Expect, Revision, StoreError, Transaction, Write};

/// How much one batch takes from the queue, so that its memory and the wait of its first
/// member stay bounded.
const BATCH_JOBS: usize = 1024;
const BATCH_BYTES: usize = 16 << 20;

/// How many revisions beyond its own a batch forgets, when there is a backlog, and how many bytes of
/// history beyond what it made.
const FORGET_BACKLOG: u64 = 64;
const FORGET_BACKLOG_BYTES: u64 = 64 << 20;

#[derive(Debug)]
pub(super) struct Job {
    pub task: Task,
    pub answer: oneshot::Sender<Result<Revision, StoreError>>,
}

#[derive(Debug)]
pub(super) enum Task {
    Commit(Transaction),
    /// Up to this raw revision.
    Compact(u64),
}

#[derive(Debug)]
pub(super) struct Writer {
    pub shared: Arc<Shared>,
    pub head: u64,
    pub compacted: u64,
    /// Bytes of history in the file (see [`tables`]).
    pub history: u64,
    pub keep_revisions: u64,
    pub keep_bytes: u64,
}

impl Drop for Writer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Those who wait for an answer hear that it will not come; this is for everyone else.
            self.shared.fail("the store's writer panicked".to_owned());
        }
    }
}

/// Why a batch could not be carried out, and whether it may be on the disk regardless.
struct Stopped {
    reason: String,
    outcome_unknown: bool,
}

/// What a batch did, once it is durable.
struct Done {
    answers: Vec<Result<Revision, StoreError>>,
    changes: Vec<Arc<Changes>>,
}

impl Writer {
    /// On its own thread, until the last sender is gone.
    pub fn run(mut self, mut queue: mpsc::Receiver<Job>) {
        while let Some(first) = queue.blocking_recv() {
            let jobs = batch(first, &mut queue);
            self.carry_out(jobs);
        }
    }

    /// As a task, for a store without threads.
    pub async fn run_inline(mut self, mut queue: mpsc::Receiver<Job>) {
        while let Some(first) = queue.recv().await {
            let jobs = batch(first, &mut queue);
            self.carry_out(jobs);
        }
    }

    fn carry_out(&mut self, jobs: Vec<Job>) {
        if let Err(failed) = self.shared.check() {
            let reason = failed.to_string();
            return jobs
                .into_iter()
                .for_each(|job| answer(job, Err(StoreError::Failed { reason: reason.clone() })));
        }
        let attempted = damage::caught(|| self.attempt(&jobs));
        let panicked =
            |what| Stopped { reason: damage::explain(&self.shared.place, what), outcome_unknown: true };
        match attempted.unwrap_or_else(|what| Err(panicked(what))) {
            Ok(done) => {
                self.shared.publish(done.changes, self.head);
                jobs.into_iter().zip(done.answers).for_each(|(job, result)| answer(job, result));
            }
            Err(Stopped { reason, outcome_unknown }) => {
                let reason = damage::explain_if_damaged(&self.shared.place, reason);
                tracing::error!(reason, "the store stopped; it must be opened again");
                self.shared.fail(reason.clone());
                for job in jobs {
                    let reason = reason.clone();
                    answer(
                        job,
                        Err(if outcome_unknown {
                            StoreError::OutcomeUnknown { reason }
                        } else {
                            StoreError::Failed { reason }
                        }),
                    );
                }
            }
        }
    }

    fn attempt(&mut self, jobs: &[Job]) -> Result<Done, Stopped> {
        let database = self.shared.database().map_err(|error| not_written(&error))?;
        let transaction = database.begin_write().map_err(|error| not_written(&error))?;
        let (mut head, mut compacted, mut history) = (self.head, self.compacted, self.history);
        let mut done = Done { answers: Vec::with_capacity(jobs.len()), changes: Vec::new() };
        {
            let mut versions = transaction.open_table(VERSIONS).map_err(|error| not_written(&error))?;
            let mut log = transaction.open_table(LOG).map_err(|error| not_written(&error))?;
            for job in jobs {
                let result = match &job.task {
                    Task::Compact(to) if *to > head => Err(StoreError::Future {
                        requested: self.shared.outside(*to),
                        newest: self.shared.outside(head),
                    }),
                    Task::Compact(to) => {
                        if *to > compacted {
                            let freed = tables::forget(&mut versions, &mut log, compacted, *to)
                                .map_err(|error| not_written(&error))?;
                            (compacted, history) = (*to, history.saturating_sub(freed));
                        }
                        Ok(self.shared.outside(compacted))
                    }
                    Task::Commit(wanted) => {
                        match apply(&mut versions, wanted, self.shared.base, head + 1)
                            .map_err(|error| not_written(&error))?
                        {
                            Err(refused) => Err(refused),
                            Ok(applied) if applied.changes.is_empty() => Ok(self.shared.outside(head)),
                            Ok(Applied { changes, superseded }) => {
                                head += 1;
                                history += superseded;
                                let logged = tables::encode_log(superseded, changes.iter().map(Change::key));
                                log.insert(head, logged.as_slice()).map_err(|error| not_written(&error))?;
                                let revision = self.shared.outside(head);
                                done.changes.push(Arc::new(Changes { revision, changes }));
                                Ok(revision)
                            }
                        }
                    }
                };
                done.answers.push(result);
            }
            // History is trimmed along with the writes that lengthen it: no pause, no sync of its own.
            if head > self.head {
                let to = self.surplus(&log, head, compacted, history).map_err(|error| not_written(&error))?;
                let freed = tables::forget(&mut versions, &mut log, compacted, to)
                    .map_err(|error| not_written(&error))?;
                (compacted, history) = (to, history.saturating_sub(freed));
            }
            if (head, compacted) != (self.head, self.compacted) {
                let mut meta = transaction.open_table(META).map_err(|error| not_written(&error))?;
                meta.insert(HEAD, head).map_err(|error| not_written(&error))?;
                meta.insert(COMPACTED, compacted).map_err(|error| not_written(&error))?;
                meta.insert(HISTORY, history).map_err(|error| not_written(&error))?;
            }
        }
        if (head, compacted) == (self.head, self.compacted) {
            transaction.abort().map_err(|error| not_written(&error))?;
            return Ok(done);
        }
        self.shared.reserve(head).map_err(|error| not_written(&error))?;
        transaction.commit().map_err(|error| Stopped { reason: describe(&error), outcome_unknown: true })?;
        (self.head, self.compacted, self.history) = (head, compacted, history);
        Ok(done)
    }

    /// Up to which revision a batch that leaves things so should forget: by count, and by bytes.
    fn surplus(
        &self,
        log: &impl ReadableTable<u64, &'static [u8]>,
        head: u64,
        compacted: u64,
        history: u64,
    ) -> Result<u64, StorageError> {
        let too_many = (head - compacted).saturating_sub(self.keep_revisions);
        let by_count = compacted + too_many.min(head - self.head + FORGET_BACKLOG);
        let made = history.saturating_sub(self.history);
        let too_large = history.saturating_sub(self.keep_bytes).min(made + FORGET_BACKLOG_BYTES);
        // Never what this batch itself did, however large: a watch that keeps up finds it all.
        let by_bytes = tables::revision_that_frees(log, compacted, self.head, too_large)?;
        Ok(by_count.max(by_bytes))
    }
}

fn batch(first: Job, queue: &mut mpsc::Receiver<Job>) -> Vec<Job> {
    let weigh = |job: &Job| match &job.task {
        Task::Commit(transaction) => transaction.bytes(),
        Task::Compact(_) => 0,
    };
    let mut bytes = weigh(&first);
    let mut jobs = vec![first];
    while jobs.len() < BATCH_JOBS && bytes < BATCH_BYTES {
        let Ok(job) = queue.try_recv() else { break };
        bytes += weigh(&job);
        jobs.push(job);
    }
    jobs
}

/// What a transaction changed, in order, and the weight of what stood there before.
struct Applied {
    changes: Vec<Change>,
    superseded: u64,
}

/// Judges and writes one transaction at raw revision `revision`. What it did; or why it was
/// refused, in which case nothing was written.
fn apply(
    versions: &mut redb::Table<'_, tables::VersionKey, &'static [u8]>,
    wanted: &Transaction,
    base: u64,
    revision: u64,
) -> Result<Result<Applied, StoreError>, StorageError> {
    for expect in &wanted.expect {
        let found = tables::version_at(versions, expect.key(), u64::MAX)?;
        let found = found.and_then(|version| entry(base, expect.key().clone(), version));
        let holds = match expect {
            Expect::Absent { .. } => found.is_none(),
            Expect::ModifiedAt { revision, .. } => {
                found.as_ref().is_some_and(|entry| entry.modified == *revision)
            }
        };
        if !holds {
            return Ok(Err(StoreError::Conflict { key: expect.key().clone(), found }));
        }
    }
    let (mut changes, mut superseded) = (Vec::with_capacity(wanted.writes.len()), 0);
    for write in &wanted.writes {
        let live = tables::version_at(versions, write.key(), u64::MAX)?.and_then(|version| version.value);
        superseded += live.as_ref().map_or(0, |live| tables::weight(write.key(), live));
        match (write, live) {
            (Write::Put { key, value }, live) => {
                let created = live.map_or(revision, |live| live.created);
                tables::insert_version(versions, key, revision, Some((created, value)))?;
                changes.push(Change::Put(Entry {
                    key: key.clone(),
                    value: value.clone(),
                    created: Revision(base + created),
                    modified: Revision(base + revision),
                }));
            }
            (Write::Delete { key }, Some(_)) => {
                tables::insert_version(versions, key, revision, None)?;
                changes.push(Change::Deleted { key: key.clone() });
            }
            (Write::Delete { .. }, None) => {}
        }
    }
    Ok(Ok(Applied { changes, superseded }))
}

/// A version in the words of the contract; `None` for a tombstone.
pub(super) fn entry(base: u64, key: bytes::Bytes, version: Version) -> Option<Entry> {
    let live = version.value?;
    let (created, modified) = (Revision(base + live.created), Revision(base + version.revision));
    Some(Entry { key, value: live.value, created, modified })
}

fn answer(job: Job, result: Result<Revision, StoreError>) {
    // Whoever asked may have gone away; the write stands all the same.
    let _ = job.answer.send(result);
}

fn not_written(error: &dyn std::error::Error) -> Stopped {
    Stopped { reason: describe(error), outcome_unknown: false }
}

/// The error with its causes, and in plain words when the disk is full.
pub(super) fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    if text.contains("os error 28") {
        text = format!("the disk is full ({text}); free some space and start again");
    }
    text
}
