//! The official Python client against the real server. The stories are told and judged in `tests/clients/python`; here the
//! server is started for them, and killed in the middle.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

use std::sync::OnceLock;

use sheaf_tests::{
    audit_log::{AuditLog, Secrets},
    node::Node,
    program::Program,
};

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

#[test]
#[ignore = "needs the Python client: make test builds it"]
fn no_secret_that_the_python_client_sent_or_was_sent_is_in_the_audit_log() {
    let node = Node::start_with(&["--audit-level", "RequestResponse"]);
    let mut secrets = Secrets::default();
    secrets.add_confided(&client(&node, "confidences").says(&["confidences"]));
    assert!(secrets.len() > 15, "{}", secrets.len());
    let log = AuditLog::of(&node);
    log.assert_without(&secrets);
    for (verb, resource, least) in [
        ("create", "secrets", 2),
        ("update", "secrets", 1),
        ("patch", "secrets", 6),
        ("list", "secrets", 1),
        ("create", "virtualmachines", 1),
        ("patch", "virtualmachines", 1),
        ("create", "serviceaccounts/token", 1),
        ("create", "tokenreviews", 1),
    ] {
        let found = log.count("OpenAPI-Generator", verb, resource);
        assert!(found >= least, "{found} of {verb} {resource}");
    }
    for field in ["requestObject", "responseObject"] {
        for resource in ["secrets", "virtualmachines", "tokenreviews", "serviceaccounts/token"] {
            assert!(log.shown(field, resource) > 0, "{resource} in {field}");
        }
    }
}
