//! `sheaf down` and `sheaf install`: what they do to a host, and what they say.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod process;

use std::fs;

use process::{Running, sheaf};

#[test]
fn a_node_is_stopped_once_and_then_there_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let data_dir = dir.path().to_str().unwrap();
    let mut node = Running::start(dir.path(), &[]);
    let down = sheaf(&["down", "--data-dir", data_dir]);
    assert_eq!((down.code, down.stderr.as_str()), (Some(0), ""));
    let wanted =
        format!("The node stopped (it was process {}).\nNo virtual machine of it runs.\n", node.pid());
    assert_eq!(down.stdout, wanted);
    assert!(node.wait().success());
    let again = sheaf(&["down", "--data-dir", data_dir]);
    assert_eq!(again.stdout, format!("No node runs on {data_dir}.\nNo virtual machine of it runs.\n"));
}

#[test]
fn a_directory_without_a_node_is_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    for more in [&[][..], &["--stop-vms"]] {
        let down = sheaf(&[&["down", "--data-dir", dir.path().to_str().unwrap()], more].concat());
        assert_eq!((down.code, down.stdout.as_str()), (Some(1), ""));
        assert!(down.stderr.contains("there is no node in"), "{}", down.stderr);
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn an_installed_binary_is_this_one_and_its_unit_names_the_directory() {
    let root = tempfile::tempdir().unwrap();
    let installed = sheaf(&["install", "--root", root.path().to_str().unwrap(), "--data-dir", "/srv/sheaf"]);
    assert_eq!(installed.code, Some(0), "{}", installed.stderr);
    let copy = fs::read(root.path().join("usr/local/bin/sheaf")).unwrap();
    assert!(copy == fs::read(env!("CARGO_BIN_EXE_sheaf")).unwrap());
    let unit = fs::read_to_string(root.path().join("etc/systemd/system/sheaf.service")).unwrap();
    assert!(
        unit.contains("up --data-dir \"/srv/sheaf\"\n") && unit.contains("\nKillMode=process\n"),
        "{unit}"
    );
    let odd = sheaf(&["install", "--root", root.path().to_str().unwrap(), "--data-dir", "/srv/a\"b"]);
    assert_eq!(odd.code, Some(2));
    assert!(odd.stderr.contains("a systemd unit cannot name it"), "{}", odd.stderr);
}
