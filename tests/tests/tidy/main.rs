//! The house rules, as tests.
//!
//! - [`manifests`]: which room may enter which.
//! - [`wording`]: what the code may say, and where.
//! - [`request_paths`]: where names become parts of paths.
//! - [`layout`]: how files are named, begun and bounded.
//! - [`slow_tests`]: which tests may take long, and why.
//!
//! A rule is a function from the tree to its violations. Each has a test that the
//! tree obeys it and a test that a planted violation is found: a rule that can no
//! longer fail is no rule. Deliberately absent: matters of taste that rustfmt and
//! clippy already decide.

#![expect(clippy::unwrap_used, reason = "a tree that cannot be read is a failed test")]

mod layout;
mod manifests;
mod request_paths;
mod slow_tests;
mod source;
mod violation;
mod wording;
