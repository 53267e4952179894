//! What tests drive and boot, built before them: clients from Go modules and npm packages, and guests from Debian's packages.
//!
//! Each is kept in the cache by its script and built once per version, so with a warm cache this takes a second. It runs beside
//! cargo, and not inside the tests: those have a network of their own, from which nothing can be fetched.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::{Command, Stdio},
};

/// Builds the clients; answers where each is, or why it could not be built.
pub fn build_clients(root: &Path, clients: BTreeSet<String>) -> BTreeMap<String, Result<String, String>> {
    clients.into_iter().map(|client| (client.clone(), build(root, &format!("build-{client}")))).collect()
}

/// Builds the guests. One that cannot be built is left out by the tests that boot it, which say so.
pub fn build_guests<'a>(root: &Path, guests: impl Iterator<Item = &'a String>) {
    for guest in guests {
        if let Err(why) = build(root, &format!("build-{guest}")) {
            eprintln!("{why}");
        }
    }
}

fn build(root: &Path, script: &str) -> Result<String, String> {
    let path = root.join("scripts").join(script);
    let output = Command::new(path).current_dir(root).stdin(Stdio::null()).stderr(Stdio::piped()).output();
    match output {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
        Ok(output) => Err(format!("scripts/{script}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("scripts/{script}: {error}")),
    }
}
