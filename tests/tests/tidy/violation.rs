//! What a broken rule looks like, and the exceptions to the rules.

use std::{fmt, path::Path};

/// Where a rule is broken, by what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Relative to the root of the repository.
    pub path: String,
    pub line: usize,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// One file that may break one rule.
pub struct Exception {
    pub rule: &'static str,
    pub path: &'static str,
    pub reason: &'static str,
}

/// An exception that nothing needs any more fails its rule, so that this list never
/// outlives its reasons.
pub const EXCEPTIONS: &[Exception] = &[];

/// The root of the repository.
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Fails with every violation of `rule` that is not excepted, and with every
/// exception to it that is not used.
#[track_caller]
pub fn must_hold(rule: &str, violations: Vec<Violation>) {
    let exceptions = || EXCEPTIONS.iter().filter(|exception| exception.rule == rule);
    let mut complaints: Vec<String> = violations
        .iter()
        .filter(|violation| !exceptions().any(|exception| exception.path == violation.path))
        .map(Violation::to_string)
        .collect();
    for unused in exceptions().filter(|exception| !violations.iter().any(|v| v.path == exception.path)) {
        complaints.push(format!("{}: no longer needs its exception ({})", unused.path, unused.reason));
    }
    assert!(complaints.is_empty(), "{rule}:\n  {}", complaints.join("\n  "));
}
