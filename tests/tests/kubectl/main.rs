//! The real kubectl against the real server, each test a thing somebody does at a terminal. What is
//! asserted is what came of it, not how kubectl ended.
//!
//! Tests share one node and keep to a namespace of their own, except where a node has to die.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod access;
mod applying;
mod auditing;
mod changing;
mod custom_resources;
mod deleting;
mod doors;
mod harvester;
mod paging;
mod quotas;
mod racing;
mod reading;
mod restarts;
mod server_side;
mod snapshots;
mod users;
mod validation_rules;

use std::sync::OnceLock;

use serde_json::json;
use sheaf_tests::{http::Connection, kubectl::Kubectl, node::Node};

/// The node that most tests share.
fn node() -> &'static Node {
    static NODE: OnceLock<Node> = OnceLock::new();
    NODE.get_or_init(Node::start)
}

/// A connection to the shared node as its administrator.
fn connection() -> Connection {
    node().admin().connect(node())
}

/// kubectl as the shared node's administrator, in a new namespace.
fn kubectl_in(namespace: &str) -> Kubectl {
    make_namespace(&mut connection(), namespace);
    Kubectl::admin(node(), namespace).with(&["--namespace", namespace])
}

fn make_namespace(connection: &mut Connection, name: &str) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    connection.post("/api/v1/namespaces", &namespace).object();
}
