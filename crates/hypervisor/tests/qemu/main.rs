//! With a real QEMU and real guests.
//!
//! The tiny guest comes from `scripts/build-tiny-guest`, which keeps it in the cache. Each test has a data
//! directory of its own, and so user ids and cgroups of its own, and leaves nothing behind.

#![expect(clippy::unwrap_used, reason = "a host that does not do as told is a failed test")]

mod buses;
mod hostile;
mod house;
mod interrupted;
mod layers;
mod monitor;
mod plugging;
mod refusals;
mod sandbox;
mod survival;
