//! How files are named, begun and bounded.

use crate::{
    source::{Source, sources},
    violation::{Violation, must_hold},
};

/// Names that say nothing, so that everything fits behind them.
const SAYS_NOTHING: &[&str] = &["common", "helper", "helpers", "manager", "misc", "util", "utils"];

/// Far past the size of an ordinary file (150 to 400 lines): beyond this there is a
/// second noun inside.
const MOST_LINES: usize = 900;

fn without_a_doc(sources: &[Source]) -> Vec<Violation> {
    let lacks_it = |source: &&Source| !source.text.starts_with("//!");
    sources
        .iter()
        .filter(lacks_it)
        .map(|source| source.violation(1, "does not begin by saying what it is (`//!`)"))
        .collect()
}

fn without_a_noun(sources: &[Source]) -> Vec<Violation> {
    let mut found = Vec::new();
    for source in sources {
        for word in source.path.trim_end_matches(".rs").split(['/', '_', '-']) {
            if SAYS_NOTHING.contains(&word) {
                found.push(source.violation(1, format!("`{word}` does not say what is in it")));
            }
        }
    }
    found
}

fn too_long(sources: &[Source]) -> Vec<Violation> {
    let mut found = Vec::new();
    for source in sources {
        let lines = source.text.lines().count().saturating_sub(source.test_lines);
        if lines > MOST_LINES {
            found.push(
                source.violation(lines, format!("{lines} lines without its tests; look for a second noun")),
            );
        }
    }
    found
}

#[test]
fn every_module_begins_by_saying_what_it_is() {
    must_hold("every module begins by saying what it is", without_a_doc(sources()));
}

#[test]
fn every_file_is_named_for_what_is_in_it() {
    must_hold("every file is named for what is in it", without_a_noun(sources()));
}

#[test]
fn no_file_outgrows_one_noun() {
    must_hold("no file outgrows one noun", too_long(sources()));
}

#[test]
fn the_sources_are_found() {
    let paths: Vec<_> = sources().iter().map(|source| source.path.clone()).collect();
    for path in ["bin/sheaf/src/main.rs", "crates/world/src/clock.rs", "tests/tests/tidy/layout.rs"] {
        assert!(paths.iter().any(|found| found == path), "{path} is not among {paths:?}");
    }
}

mod planted {
    use super::*;

    fn broken(rule: fn(&[Source]) -> Vec<Violation>, path: &str, text: &str) -> bool {
        !rule(&[Source::parse(path, text)]).is_empty()
    }

    #[test]
    fn a_module_that_does_not_say_what_it_is_is_found() {
        assert!(broken(without_a_doc, "crates/store/src/lib.rs", "use std::fmt;\n"));
        assert!(!broken(without_a_doc, "crates/store/src/lib.rs", "//! The memory.\nuse std::fmt;\n"));
    }

    #[test]
    fn a_name_that_says_nothing_is_found_in_any_part_of_the_path() {
        assert!(broken(without_a_noun, "crates/store/src/utils.rs", ""));
        assert!(broken(without_a_noun, "crates/store/src/lease_manager.rs", ""));
        assert!(broken(without_a_noun, "crates/store/src/common/key.rs", ""));
        assert!(!broken(without_a_noun, "crates/store/src/commonwealth.rs", ""));
    }

    #[test]
    fn a_file_too_long_is_found_and_its_tests_do_not_count() {
        let code = |lines| format!("{}\n", "fn f() {}\n".repeat(lines));
        assert!(broken(too_long, "crates/store/src/lib.rs", &code(MOST_LINES + 1)));
        let tests = format!("fn f() {{}}\n#[cfg(test)]\nmod tests {{\n{}}}\n", code(MOST_LINES));
        assert!(!broken(too_long, "crates/store/src/lib.rs", &tests));
    }
}
