//! How busy the machine is while tests run: a test that is slow because others hold the cores is not a slow test.

use std::{
    fs,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// Samples of how many tasks want a core, one a second.
#[derive(Clone)]
pub struct Load {
    samples: Arc<Mutex<Vec<(Instant, f64)>>>,
    cores: f64,
}

impl Load {
    pub fn watch() -> Load {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let load = Load { samples: Arc::default(), cores: cores as f64 };
        let samples = Arc::clone(&load.samples);
        thread::spawn(move || {
            loop {
                if let Some(runnable) = runnable() {
                    samples.lock().unwrap_or_else(PoisonError::into_inner).push((Instant::now(), runnable));
                }
                thread::sleep(Duration::from_secs(1));
            }
        });
        load
    }

    /// By how much the machine was slower for each task than with a core for every one, from `began` on; at least 1.
    pub fn slowdown_since(&self, began: Instant) -> f64 {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let of_it: Vec<f64> =
            samples.iter().filter(|(when, _)| *when >= began).map(|(_, runnable)| *runnable).collect();
        if of_it.is_empty() {
            return 1.0;
        }
        let mean = of_it.iter().sum::<f64>() / of_it.len() as f64;
        (mean / self.cores).max(1.0)
    }
}

/// The tasks that run or could run now, without the one that asks.
fn runnable() -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    let running: f64 = text.split_whitespace().nth(3)?.split('/').next()?.parse().ok()?;
    Some((running - 1.0).max(0.0))
}
