//! At a terminal: questions before something is lost, tables that fit, colours, progress.

use std::path::Path;

use sheaf_tests::{node, terminal::Terminal};

use crate::person::{Person, shared};

/// Runs the binary at a terminal of this many columns.
fn at(terminal: &Terminal, person: &Person, more: &[&str], words: &[&str]) -> std::process::Child {
    let home = format!("HOME={}", person.home.path().display());
    let kubeconfig = format!("KUBECONFIG={}", shared().admin_kubeconfig().display());
    let program = node::binary().to_str().unwrap().to_owned();
    let mut all = vec!["-u", "NO_COLOR", "TERM=xterm", &home, &kubeconfig];
    all.extend(more);
    all.push(&program);
    all.extend(words);
    terminal.run(Path::new("/usr/bin/env"), &all)
}

#[test]
fn whoever_says_no_loses_nothing() {
    let anna = Person::in_namespace("cli-no");
    anna.says(&["volume", "create", "data", "--size", "1Gi"]);
    let mut terminal = Terminal::open();
    for (answer, code) in [("n\n", 2), ("\n", 2), ("y\n", 0)] {
        let mut child = at(&terminal, &anna, &[], &["volume", "delete", "data", "-n", "cli-no"]);
        terminal.shows("This deletes the volume cli-no/data. What is on it is lost.");
        terminal.shows("Go on? [y/N] ");
        terminal.types(answer.as_bytes());
        assert_eq!(child.wait().unwrap().code(), Some(code), "{answer:?}");
    }
    assert!(anna.says(&["volume", "list"]).starts_with("there is no volume"));
}

#[test]
fn tables_fit_the_terminal_and_states_have_colours_where_they_are_wanted() {
    let anna = Person::in_namespace("cli-narrow");
    let mut terminal = Terminal::open();
    terminal.is_so_wide(90);
    let mut child = at(&terminal, &anna, &[], &["template", "list", "-A"]);
    assert!(child.wait().unwrap().success());
    terminal.shows("windows-raw-image-base-template");
    let shown = terminal.everything();
    assert!(shown.lines().all(|line| line.trim_end().chars().count() <= 90), "{shown}");
    assert!(shown.contains('…'), "{shown}");

    let mut child = at(&terminal, &anna, &[], &["host", "list"]);
    assert!(child.wait().unwrap().success());
    terminal.shows("\x1b[32mready\x1b[0m");
    let mut child = at(&terminal, &anna, &["NO_COLOR=1"], &["host", "list"]);
    assert!(child.wait().unwrap().success());
    terminal.shows("ready");
    assert!(!terminal.everything().rsplit("NAME").next().unwrap().contains('\x1b'));
    // And where no terminal is, there are none.
    assert!(!anna.says(&["host", "list"]).contains('\x1b'));
}
