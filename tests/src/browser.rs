//! Stories told in a real browser, by `tests/clients/browser`: somebody at the web console of a node.

use std::{fs, time::Duration};

use crate::{node::Node, program::Program};

/// What tells `story` at this node, within this time. `SHEAF_BROWSER` names the program.
pub fn browser(node: &Node, story: &str, patience: Duration) -> Program {
    let first = fs::read_to_string(node.data_dir().join("admin-password")).unwrap();
    Program::of_admin("the browser", "SHEAF_BROWSER", node, story)
        .with_variable("SHEAF_FIRST_PASSWORD", first.trim())
        .within(patience)
        .with(&[story])
}
