//! Dies after a chosen step, for tests that look what the next start makes of it.
//!
//! Every single thing done to the host is a step: the hypervisor's, the network's, the storage's and the agent's
//! own. They are counted together from the start of the process; the one that was chosen is its last.

use std::{
    fmt::Debug,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use rustix::process::{Signal, getpid, kill_process};

/// Counts steps, if there is one to die after.
#[derive(Clone)]
pub struct Deaths {
    after: Option<u64>,
    taken: Arc<AtomicU64>,
}

impl Deaths {
    pub fn after(step: Option<u64>) -> Deaths {
        Deaths { after: step, taken: Arc::default() }
    }

    /// To be called after each step.
    pub fn hook<S: Debug>(&self) -> impl Fn(S) + Send + Sync + 'static + use<S> {
        let deaths = self.clone();
        move |step| {
            let Some(last) = deaths.after else { return };
            let taken = deaths.taken.fetch_add(1, Ordering::SeqCst) + 1;
            tracing::info!(taken, ?step, "took a step");
            if taken == last {
                // As hard as it gets: nothing is flushed, dropped or told.
                _ = kill_process(getpid(), Signal::KILL);
            }
        }
    }
}
