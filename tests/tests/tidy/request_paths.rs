//! Names become parts of request paths in one place only: a name that a tenant chose must stay a name.

use crate::{
    source::{Source, sources},
    violation::{Violation, must_hold},
};

/// What pastes a name into a path as it is.
const UNCHECKED: [&str; 8] = [
    "kube::*",
    "kube::Api",
    "kube::api::*",
    "kube::api::Api",
    "kube::api::Request",
    "kube::core::*",
    "kube::core::Request",
    "kube::core::request::Request",
];

/// Where a name is checked and encoded before.
const BUILDERS: [&str; 3] =
    ["crates/client/src/objects.rs", "crates/client/src/following.rs", "crates/resources/src/path.rs"];

/// Lists the addresses of all groups, which no tenant names.
const WITHOUT_NAMES: [&str; 1] = ["crates/apiserver/src/dispatch.rs"];

fn unchecked_paths(sources: &[Source]) -> Vec<Violation> {
    let mut found = Vec::new();
    // The testbed is the client of tests, and tests that outgrew their module have a file beside it.
    let is_ours = |source: &&Source| {
        !source.is_test() && !source.path.ends_with("tests.rs") && source.room() != "testbed"
    };
    for source in sources.iter().filter(is_ours) {
        if BUILDERS.contains(&source.path.as_str()) || WITHOUT_NAMES.contains(&source.path.as_str()) {
            continue;
        }
        for (line, path) in source.paths() {
            if UNCHECKED.contains(&path.as_str()) {
                let what = format!("{path} pastes names into paths; use sheaf_client::objects::Objects");
                found.push(source.violation(line, what));
            }
        }
        let code = source.text.split("#[cfg(test)]").next().unwrap_or_default();
        for (number, line) in code.lines().enumerate() {
            let is_path = |start: &str| {
                line.split(start).skip(1).any(|rest| rest.split('"').next().unwrap_or_default().contains('{'))
            };
            if is_path("\"/api/") || is_path("\"/apis/") {
                let what = "a path is put together here; use sheaf_resources::path";
                found.push(source.violation(number + 1, what));
            }
        }
    }
    found
}

#[test]
fn names_become_parts_of_paths_in_one_place() {
    must_hold("names become parts of paths in one place", unchecked_paths(sources()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> usize {
        unchecked_paths(&[Source::parse(path, text)]).len()
    }

    #[test]
    fn a_path_that_is_put_together_elsewhere_is_found() {
        let pasted = "//! S.\nfn f(name: &str) -> String { format!(\"/api/v1/pods/{name}\") }\n";
        assert_eq!(complaints("crates/agent/src/node.rs", pasted), 1);
        assert_eq!(complaints("crates/resources/src/path.rs", pasted), 0);
        assert_eq!(complaints("crates/agent/src/node.rs", "//! S.\nuse kube::{Api, Client};\n"), 1);
        assert_eq!(complaints("crates/agent/tests/x.rs", "//! S.\nuse kube::Api;\n"), 0);
        assert_eq!(complaints("crates/agent/src/node_tests.rs", pasted), 0);
        let constant = "//! S.\nconst NODES: &str = \"/api/v1/nodes\"; fn f() {}\n";
        assert_eq!(complaints("crates/agent/src/node.rs", constant), 0);
    }
}
