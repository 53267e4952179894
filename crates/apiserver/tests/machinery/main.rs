//! The machinery through its door: requests in, answers out, on an in-memory store.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod addons;
mod applying;
mod audit_log;
mod audited_secrets;
mod auditing;
mod backups;
mod bootstrap;
mod client_traps;
mod cloud_configs;
mod cost;
mod custom_resources;
mod deleting;
mod downloading;
mod fairness;
mod house;
mod image_use;
mod in_use;
mod listing;
mod long_running;
mod machine;
mod machine_subresources;
mod machines;
mod node_identity;
mod node_machines;
mod owning;
mod protobuf_bodies;
mod quotas;
mod refused_power;
mod sealing;
mod settings;
mod snapshot_quotas;
mod templates;
mod two_servers;
mod uploading;
mod watching;
mod webhooks;
mod writing;
