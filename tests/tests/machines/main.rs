//! Real machines on the real binary: what the API says of them, what the host shows, and what a node that dies at any
//! moment makes of both.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod commands;
mod exports;
mod first_run;
mod freezing;
mod full_disk;
mod images;
mod life;
mod load_balancers;
mod ordinary_user;
mod plugging;
mod promises;
mod reboot;
mod sandbox;
mod snapshot_steps;
mod snapshots;
mod steps;
mod support_bundle;
mod terminal;
