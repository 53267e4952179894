//! Clients at work: each on its own kept-alive TLS connection, in a thread of its own.

use std::sync::{
    Arc, Barrier,
    atomic::{AtomicUsize, Ordering},
};

use sheaf_tests::{bench::sample::Sample, http::Connection, node::Node};
use tokio::time::Instant;

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
