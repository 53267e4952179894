//! Times of the same thing done many times.

use std::time::Duration;

/// How long each took, and all of them together.
pub struct Sample {
    /// Sorted.
    latencies: Vec<Duration>,
    pub wall: Duration,
}

impl Sample {
    pub fn new(mut latencies: Vec<Duration>, wall: Duration) -> Self {
        latencies.sort();
        Sample { latencies, wall }
    }

    pub fn count(&self) -> usize {
        self.latencies.len()
    }

    pub fn percentile(&self, percent: f64) -> Duration {
        let last = self.latencies.len() - 1;
        self.latencies[((last as f64) * percent / 100.0).round() as usize]
    }
}
