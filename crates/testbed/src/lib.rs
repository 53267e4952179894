//! A whole cluster for tests, simulated: store, API server and controllers on one thread, in virtual time, from one
//! seed.
//!
//! Time stands still while anything can run and jumps to the next timer when nothing can, so an hour passes in
//! milliseconds and the same seed gives the same run. Errors are panics here: a test that cannot set up its world has
//! nothing to say.
//!
//! Deliberately absent: nodes, which act on a real host. [`guests`] is for tests that do, and a [`simulated_node`] says what
//! one would.

pub mod cluster;
pub mod cut;
pub mod guests;
pub mod kubectl;
pub mod late;
pub mod simulated_node;
pub mod simulation;
pub mod trace;

pub use cluster::Cluster;
pub use simulation::Simulation;

use std::future::Future;

/// Runs `story` on a paused, single-threaded runtime of its own.
pub fn in_virtual_time<T>(story: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime without I/O needs nothing from the host").block_on(story)
}
