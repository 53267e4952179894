//! Clients at work: each on its own kept-alive TLS connection, in a thread of its own.

use std::sync::{
    Arc, Barrier,
    atomic::{AtomicUsize, Ordering},
};

use tokio::time::Instant;

use super::sample::Sample;
use crate::{http::Connection, server::Server};

/// Runs `work` `count` times in all, spread over `clients`.
pub fn run_clients(
    server: &impl Server,
    clients: usize,
    count: usize,
    work: impl Fn(&mut Connection, usize) + Send + Sync + 'static,
) -> Sample {
    let (work, next) = (Arc::new(work), Arc::new(AtomicUsize::new(0)));
    let (start, admin) = (Arc::new(Barrier::new(clients + 1)), server.admin());
    let threads: Vec<_> = (0..clients)
        .map(|_| {
            let (work, next, start) = (work.clone(), next.clone(), start.clone());
            let mut connection = admin.connect(server);
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
