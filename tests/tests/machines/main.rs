//! Real machines on the real binary: what the API says of them, what the host shows, and what a node that dies at any
//! moment makes of both.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod commands;
mod life;
mod promises;
mod steps;
