//! What the benchmarks share: numbers of a process, samples with their percentiles, the work that API servers are
//! measured by, and the report that a run leaves.
//!
//! Bars are shown as they are; a missed one does not fail a run, since whoever reads the table must see what it
//! was measured on.

pub mod api;
pub mod audience;
pub mod clients;
pub mod meter;
pub mod process;
pub mod report;
pub mod sample;
pub mod share;
