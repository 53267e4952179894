//! The web console in a real browser. The stories are told and judged in `tests/clients/browser`; here a server is started for
//! each, and what only this side can do is done: a guest is brought, the server is killed.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use sheaf_testbed::guests;
use sheaf_tests::{machines::Farm, node::Node, program::Program};

/// A guest boots twice on the longest way, under emulation, beside others.
const PATIENCE: Duration = Duration::from_secs(600);
const PAGES: &[&str] = &[
    "",
    "hosts",
    "vms",
    "vms/create",
    "volumes",
    "images",
    "snapshots",
    "networks",
    "keys",
    "templates",
    "cloud-configs",
    "settings",
    "users",
    "access",
    "events",
    "audit",
    "support",
    "password",
];

/// One browser at a time: two on two processors leave nothing for a guest that boots under emulation.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn browser(node: &Node, story: &str) -> Program {
    sheaf_tests::browser::browser(node, story, PATIENCE)
}

#[test]
#[ignore = "needs a browser: make test finds it"]
fn a_machine_is_made_used_brought_back_and_deleted_by_somebody_with_a_browser() {
    let _turn = turn();
    let Some(guest) = guests::tiny() else { return };
    let farm = Farm::start();
    browser(&farm.node, "first-minute").says(&[guest.disk.to_str().unwrap()]);
}

#[test]
#[ignore = "needs a browser: make test finds it"]
fn machines_are_listed_watched_and_used_on_their_pages_and_their_consoles_come_back() {
    let _turn = turn();
    let Some(guest) = guests::tiny() else { return };
    let farm = Farm::start();
    browser(&farm.node, "machine-pages").says(&[guest.disk.to_str().unwrap()]);
}

#[test]
#[ignore = "needs a browser: make test finds it"]
fn lists_transfers_and_the_audit_log_are_true_again_after_the_network_was_gone() {
    let _turn = turn();
    browser(&Node::start_with(&["--allow-local-images"]), "lost-connection").says(&[]);
}

#[test]
#[ignore = "needs a browser: make test finds it"]
fn every_page_is_reached_by_keyboard_by_a_few_letters_by_links_and_by_going_back() {
    let _turn = turn();
    browser(&Node::start(), "ways").says(&[]);
}

#[test]
#[ignore = "needs a browser: make test finds it"]
fn sessions_end_servers_restart_and_foreign_pages_get_nothing() {
    let _turn = turn();
    let mut node = Node::start();
    let mut story = browser(&node, "session").converse(&[]);
    story.hears_within("ready\n", PATIENCE);
    node.kill();
    let _node = node.start_again_with(&["--audit-log", "off"]);
    story.types("killed\n");
    story.hears_within("and signing in leads back\n", PATIENCE);
    let (code, said) = story.hangs_up();
    assert_eq!(code, 0, "{said}");
}

#[test]
#[ignore = "needs a browser: make test finds it"]
fn five_thousand_machines_are_listed_scrolled_and_filtered() {
    let _turn = turn();
    browser(&Node::start(), "many").says(&["5000"]);
}

#[test]
#[ignore = "needs a browser: make test finds it"]
fn every_page_and_dialog_is_accessible_in_light_in_dark_and_on_a_phone() {
    let _turn = turn();
    // Without a guest there is still every page, if not what is on it.
    let disk = guests::tiny().map(|guest| guest.disk.to_str().unwrap().to_owned()).unwrap_or_default();
    let farm = Farm::start();
    browser(&farm.node, "accessible").says(&[&[disk.as_str()], PAGES].concat());
}
