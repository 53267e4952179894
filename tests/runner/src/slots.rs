//! Runs jobs side by side: each slot takes its own jobs in order, as many at a time as it has room for.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, PoisonError, mpsc::channel},
    thread,
};

use crate::{
    job::{self, Context, JobResult},
    plan::Job,
};

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
    thread::scope(|scope| {
        for (slot, queue) in &queues {
            for _ in 0..slots[*slot] {
                let send = send.clone();
                scope.spawn(move || {
                    loop {
                        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                        let Some(job) = next else { break };
                        if send.send(job::run(&job, context)).is_err() {
                            break;
                        }
                    }
                });
            }
        }
        drop(send);
        let mut all = Vec::new();
        for result in results {
            done(&result);
            all.push(result);
        }
        all
    })
}
