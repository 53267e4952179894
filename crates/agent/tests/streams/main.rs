//! The stream port as the API server asks it: over TLS with both sides known, and a real QEMU behind it.
//!
//! The tiny guest comes from `scripts/build-tiny-guest`. Each test has directories of its own and leaves
//! nothing behind.

#![allow(clippy::unwrap_used, reason = "a host that does not do as told is a failed test")]

mod house;
mod metrics;
mod port;
mod through_the_api;
