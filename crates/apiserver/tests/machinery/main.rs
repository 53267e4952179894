//! The machinery through its door: requests in, answers out, on an in-memory store.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod custom_resources;
mod deleting;
mod house;
mod listing;
mod node_identity;
mod sealing;
mod two_servers;
mod watching;
mod writing;
