//! Every controller against a real API server in virtual time: it arrives, it rests, and however it is interrupted it
//! still arrives.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod accounts;
mod cluster_role;
mod custom_resource_definition;
mod event;
mod garbage_collection;
mod namespace;
mod scenario;
