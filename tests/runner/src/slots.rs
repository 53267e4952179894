//! Runs jobs side by side: each slot takes its own jobs in order, as many at a time as `plan.toml` gives it. A slot that
//! has none left takes jobs of the slot [`REST`], so that no core is idle while jobs wait.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Mutex, PoisonError,
        mpsc::{RecvTimeoutError, channel},
    },
    thread,
    time::Duration,
};

use crate::{
    job::{self, Context, JobResult},
    plan::{Job, REST},
};

/// When no job ended for so long, what runs is told.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// Runs all jobs; `done` is called with each result as it comes.
pub fn run_all(
    slots: &BTreeMap<String, usize>,
    jobs: Vec<Job>,
    context: &Context,
    mut done: impl FnMut(&JobResult),
) -> Vec<JobResult> {
    let mut queues: BTreeMap<&str, VecDeque<Job>> = BTreeMap::new();
    for job in jobs {
        let slot = slots.keys().find(|slot| **slot == job.slot).expect("the plan was checked");
        queues.entry(slot).or_default().push_back(job);
    }
    let queues: BTreeMap<&str, Mutex<VecDeque<Job>>> =
        queues.into_iter().map(|(slot, queue)| (slot, Mutex::new(queue))).collect();
    let (send, results) = channel();
    let pop = |slot: &str| queues.get(slot)?.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    thread::scope(|scope| {
        for slot in queues.keys() {
            for _ in 0..slots[*slot] {
                let send = send.clone();
                scope.spawn(move || {
                    while let Some(job) = pop(slot).or_else(|| pop(REST)) {
                        if send.send(job::run(&job, context)).is_err() {
                            break;
                        }
                    }
                });
            }
        }
        drop(send);
        let mut all = Vec::new();
        loop {
            match results.recv_timeout(TELL_EVERY) {
                Ok(result) => {
                    done(&result);
                    all.push(result);
                }
                Err(RecvTimeoutError::Timeout) => print!("{}", context.board.told()),
                Err(RecvTimeoutError::Disconnected) => break all,
            }
        }
    })
}
