//! The network on a real kernel: a node, an outside and guests, each a network namespace
//! that the test makes and removes. Guests are behind real taps; real DHCP clients ask.
//!
//! All of it needs root. Without it each test says loudly that it was skipped.

#![expect(clippy::unwrap_used, reason = "a host that cannot be set up is a failed test")]

mod balancing;
mod dhcp;
mod dns;
mod guest;
mod killed;
mod links;
mod outside;
mod place;
mod repair;
mod spoofing;
