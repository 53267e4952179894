//! The program on client-go, see `tests/clients/client-go`.
//!
//! `owners`, which is about what controllers do, is told in [`controllers`](crate::controllers).

use sheaf_tests::{original::Original, program::Program};

use crate::original;

fn client(original: &Original, story: &str) -> Program {
    Program::of_admin("client-go", "SHEAF_CLIENT_GO", original, story)
}

fn tells(story: &str) {
    client(original(), story).says(&[story]);
}

#[test]
#[ignore = "needs the original: make test-peer builds it"]
fn typed_clients_write_protobuf_and_lose_no_update() {
    tells("typed");
}

#[test]
#[ignore = "needs the original: make test-peer builds it"]
fn there_is_one_leader_at_a_time() {
    tells("election");
}

#[test]
#[ignore = "needs the original: make test-peer builds it"]
fn apply_configurations_own_what_they_say_and_nothing_else() {
    tells("apply");
}

#[test]
#[ignore = "needs the original: make test-peer builds it"]
fn the_dynamic_client_uses_a_kind_made_a_moment_ago() {
    tells("dynamic");
}

#[test]
#[ignore = "needs the original: make test-peer builds it"]
fn the_mapper_finds_every_kind() {
    tells("mapper");
}

/// The original forgets its history when it restarts, so its informers may be told outcomes alone; Sheaf's are told
/// every step.
#[test]
#[ignore = "needs the original: make test-peer builds it"]
fn informers_arrive_when_the_server_is_killed_and_comes_back() {
    let mut original = Original::start();
    let mut informers = client(&original, "informers").converse(&["informers", "forgetful"]);
    informers.hears("ready\n");
    original.kill();
    original.start_again();
    informers.types("restarted\n");
    informers.hears("ready\n");
    let (code, said) = informers.hangs_up();
    assert_eq!(code, 0, "{said}");
}
