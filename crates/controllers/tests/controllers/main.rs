//! Every controller against a real API server in virtual time: it arrives, it rests, and however it is interrupted it
//! still arrives.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod accounts;
mod addresses;
mod backups;
mod claims;
mod cluster_role;
mod custom_resource_definition;
mod event;
mod garbage_collection;
mod hostile_names;
mod images;
mod late_news;
mod load_balancers;
mod machines;
mod namespace;
mod placing;
mod rooms;
mod scenario;
mod settings;
mod snapshot_quotas;
mod snapshots;
mod support_bundles;
mod templates;
mod token;
mod uplinks;
mod user;

use sheaf_testbed::simulated_node;
