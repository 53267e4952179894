//! The programs on the official Python client, see `tests/clients/python`.

use sheaf_tests::{original::Original, program::Program};

use crate::original;

const STORIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/python/main.py");

fn client(original: &Original, story: &str) -> Program {
    Program::of_admin("the Python client", "SHEAF_PYTHON_CLIENT", original, story).with(&[STORIES])
}

#[test]
#[ignore = "needs the original: make test-peer builds it"]
fn the_dynamic_client_reads_changes_and_applies() {
    client(original(), "dynamic").says(&["dynamic"]);
}

#[test]
#[ignore = "needs the original: make test-peer builds it"]
fn typed_clients_page_and_review() {
    client(original(), "typed").says(&["typed"]);
}

/// The original forgets its history when it restarts, so who watched has to list again; who watches Sheaf does not.
#[test]
#[ignore = "needs the original: make test-peer builds it"]
fn a_watch_arrives_when_the_server_is_killed_and_comes_back() {
    let mut original = Original::start();
    let mut watch = client(&original, "watch").converse(&["watch", "forgetful"]);
    watch.hears("ready\n");
    original.kill();
    original.start_again();
    watch.types("killed\n");
    let (code, said) = watch.hangs_up();
    assert_eq!(code, 0, "{said}");
}
