//! Clients at work: each on its own kept-alive TLS connection, in a thread of its own.

use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use sheaf_tests::{http::Connection, node::Node};
use tokio::time::Instant;

/// How long each request took, and all of them together.
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

/// Runs `work` `count` times in all, spread over `clients`.
pub fn run_clients(
    node: &Node,
    clients: usize,
    count: usize,
    work: impl Fn(&mut Connection, usize) + Send + Sync + 'static,
) -> Sample {
    let (work, next) = (Arc::new(work), Arc::new(AtomicUsize::new(0)));
    let start = Arc::new(Barrier::new(clients + 1));
    let threads: Vec<_> = (0..clients)
        .map(|_| {
            let (work, next, start) = (work.clone(), next.clone(), start.clone());
            let mut connection = node.admin().connect(node);
            std::thread::spawn(move || {
                let mut latencies = Vec::new();
                start.wait();
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= count {
                        return latencies;
                    }
                    let began = Instant::now();
                    work(&mut connection, n);
                    latencies.push(began.elapsed());
                }
            })
        })
        .collect();
    start.wait();
    let began = Instant::now();
    let latencies = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    Sample::new(latencies, began.elapsed())
}
