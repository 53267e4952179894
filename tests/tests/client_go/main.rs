//! The original's own Go libraries against the real server: what operators and providers are made of. The stories are
//! told and judged in `tests/clients/client-go`; here the server is started for them, and killed in the middle.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

use std::sync::OnceLock;

use sheaf_tests::{
    audit_log::{AuditLog, Secrets},
    node::Node,
    patience::TOO_LONG,
    program::Program,
};

fn node() -> &'static Node {
    static NODE: OnceLock<Node> = OnceLock::new();
    NODE.get_or_init(Node::start)
}

fn client(node: &Node, story: &str) -> Program {
    Program::of_admin("client-go", "SHEAF_CLIENT_GO", node, story)
}

/// Tells a story to its end.
fn tells(story: &str) {
    client(node(), story).says(&[story]);
}

#[test]
#[ignore = "needs client-go: make test builds it"]
fn typed_clients_write_protobuf_and_lose_no_update() {
    tells("typed");
}

#[test]
#[ignore = "needs client-go: make test builds it"]
fn what_is_owned_goes_with_its_owner() {
    tells("owners");
}

#[test]
#[ignore = "needs client-go: make test builds it"]
fn there_is_one_leader_at_a_time() {
    tells("election");
}

#[test]
#[ignore = "needs client-go: make test builds it"]
fn apply_configurations_own_what_they_say_and_nothing_else() {
    tells("apply");
}

#[test]
#[ignore = "needs client-go: make test builds it"]
fn the_dynamic_client_uses_a_kind_made_a_moment_ago() {
    tells("dynamic");
}

#[test]
#[ignore = "needs client-go: make test builds it"]
fn the_mapper_finds_every_kind() {
    tells("mapper");
}

#[test]
#[ignore = "needs client-go: make test builds it"]
fn informers_miss_nothing_when_the_server_is_killed_and_comes_back() {
    let mut node = Node::start();
    let mut informers = client(&node, "informers").converse(&["informers"]);
    informers.hears("ready\n");
    node.kill();
    let _node = node.start_again();
    informers.types("restarted\n");
    // Longer than the story itself waits for anything, so that it can say what it waited for.
    informers.hears_within("ready\n", 3 * TOO_LONG);
    let (code, said) = informers.hangs_up();
    assert_eq!(code, 0, "{said}");
}

#[test]
#[ignore = "needs client-go: make test builds it"]
fn no_secret_that_client_go_sent_or_was_sent_is_in_the_audit_log() {
    let node = Node::start_with(&["--audit-level", "RequestResponse"]);
    let mut secrets = Secrets::default();
    secrets.add_confided(&client(&node, "confidences").says(&["confidences"]));
    assert!(secrets.len() > 15, "{}", secrets.len());
    let log = AuditLog::of(&node);
    log.assert_without(&secrets);
    for (verb, resource, least) in [
        ("create", "secrets", 2),
        ("update", "secrets", 2),
        ("patch", "secrets", 6),
        ("list", "secrets", 1),
        ("create", "serviceaccounts/token", 1),
        ("create", "tokenreviews", 2),
    ] {
        let found = log.count("client-go", verb, resource);
        assert!(found >= least, "{found} of {verb} {resource}");
    }
    for field in ["requestObject", "responseObject"] {
        for resource in ["secrets", "tokenreviews", "serviceaccounts/token"] {
            assert!(log.shown(field, resource) > 0, "{resource} in {field}");
        }
    }
}
