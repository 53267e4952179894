//! The official Python client against the real server. The stories are told and judged in `tests/clients/python`; here the
//! server is started for them, and killed in the middle.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

use std::sync::OnceLock;

use sheaf_tests::{node::Node, program::Program};

const STORIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/python/main.py");

fn node() -> &'static Node {
    static NODE: OnceLock<Node> = OnceLock::new();
    NODE.get_or_init(Node::start)
}

fn client(node: &Node, story: &str) -> Program {
    Program::of_admin("the Python client", "SHEAF_PYTHON_CLIENT", node, story).with(&[STORIES])
}

#[test]
#[ignore = "needs the Python client: make test builds it"]
fn the_dynamic_client_reads_changes_and_applies() {
    client(node(), "dynamic").says(&["dynamic"]);
}

#[test]
#[ignore = "needs the Python client: make test builds it"]
fn typed_clients_page_and_review() {
    client(node(), "typed").says(&["typed"]);
}

#[test]
#[ignore = "needs the Python client: make test builds it"]
fn a_watch_goes_on_where_it_was_when_the_server_is_killed_and_comes_back() {
    let mut node = Node::start();
    let mut watch = client(&node, "watch").converse(&["watch"]);
    watch.hears("ready\n");
    node.kill();
    let _node = node.start_again();
    watch.types("killed\n");
    let (code, said) = watch.hangs_up();
    assert_eq!(code, 0, "{said}");
}
