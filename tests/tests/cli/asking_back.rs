//! At a terminal: questions before something is lost, tables that fit, colours.

use sheaf_tests::{patience::until, terminal::Terminal};

use crate::person::Person;

#[test]
fn whoever_says_no_loses_nothing() {
    let anna = Person::in_namespace("cli-no");
    anna.says(&["volume", "create", "data", "--size", "1Gi"]);
    let mut terminal = Terminal::open();
    for (answer, code) in [("n\n", 2), ("\n", 2), ("y\n", 0)] {
        let mut child = anna.types_at(&terminal, &[], &["volume", "delete", "data"]);
        terminal.shows("This deletes the volume cli-no/data. What is on it is lost.");
        terminal.shows("Go on? [y/N] ");
        terminal.types(answer.as_bytes());
        assert_eq!(child.wait().unwrap().code(), Some(code), "{answer:?}");
    }
    // It is told to go when the command ends, and goes when its claim is let go of.
    until("the volume to be gone", || {
        anna.says(&["volume", "list"]).starts_with("there is no volume").then_some(())
    });
}

#[test]
fn tables_fit_the_terminal_and_states_have_colours_where_they_are_wanted() {
    let anna = Person::in_namespace("cli-narrow");
    let mut terminal = Terminal::open();
    terminal.is_so_wide(90);
    let mut child = anna.types_at(&terminal, &[], &["template", "list", "-A"]);
    assert!(child.wait().unwrap().success());
    terminal.shows("windows-raw-image-base-template");
    let shown = terminal.everything();
    assert!(shown.lines().all(|line| line.trim_end().chars().count() <= 90), "{shown}");
    assert!(shown.contains('…'), "{shown}");

    let mut child = anna.types_at(&terminal, &[], &["host", "list"]);
    assert!(child.wait().unwrap().success());
    terminal.shows("\x1b[32mready\x1b[0m");
    let mut child = anna.types_at(&terminal, &["NO_COLOR=1"], &["host", "list"]);
    assert!(child.wait().unwrap().success());
    terminal.shows("ready");
    assert!(!terminal.everything().rsplit("NAME").next().unwrap().contains('\x1b'));
    // And where no terminal is, there are none.
    assert!(!anna.says(&["host", "list"]).contains('\x1b'));
}
