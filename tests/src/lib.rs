//! What the end-to-end tests share: a real node in a process of its own, the original to hold it to, and the ways to ask
//! them things: the real kubectl and virtctl, and HTTP written by hand (so that it can also be written badly). The
//! benchmarks share it too.
//!
//! Nothing here knows how the server works inside; what it does is looked at from outside only.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

pub mod addresses;
pub mod audit_log;
pub mod bench;
pub mod browser;
pub mod definitions;
pub mod dying;
pub mod http;
pub mod kube_rs;
pub mod kubectl;
pub mod lines;
pub mod machines;
pub mod node;
pub mod origin;
pub mod original;
pub mod patience;
pub mod program;
pub mod server;
pub mod terminal;
pub mod virtctl;
