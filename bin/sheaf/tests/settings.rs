//! Bad settings: each names itself, what was read and what would fit, and ends with code 2.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod process;

use std::{fs, net::TcpListener, os::unix::fs::PermissionsExt, process::Command};

use process::{Ended, ended, sheaf};

fn up(args: &[&str]) -> Ended {
    sheaf(&[&["up"], args].concat())
}

#[track_caller]
fn refused(ended: &Ended, setting: &str, read: &str, problem: &str) {
    let Ended { code, stdout, stderr } = ended;
    assert_eq!(*code, Some(2), "{stderr}");
    assert_eq!(stdout, "");
    // Log lines may come before it.
    assert!(stderr.lines().any(|line| line.starts_with(&format!("sheaf: {setting}: "))), "{stderr}");
    assert!(stderr.contains(&format!("read: {read}")), "{stderr}");
    assert!(stderr.contains(problem), "{stderr}");
    assert!(stderr.contains("\n  fits: "), "{stderr}");
}

#[test]
fn an_address_that_is_none_is_refused() {
    refused(&up(&["--listen", "nowhere"]), "--listen", "nowhere", "not an IP address");
    refused(&up(&["--listen", "127.0.0.1"]), "--listen", "127.0.0.1", "no port");
    refused(&up(&["--advertise", "nowhere"]), "--advertise", "nowhere", "not an IP address");
    refused(&up(&["--name", "My_Node"]), "--name", "My_Node", "may not be in the name");
}

#[test]
fn a_port_that_is_taken_is_refused() {
    let (taken, dir) = (TcpListener::bind("127.0.0.1:0").unwrap(), tempfile::tempdir().unwrap());
    let address = taken.local_addr().unwrap().to_string();
    let ended = up(&["--name", "n1", "--listen", &address, "--data-dir", dir.path().to_str().unwrap()]);
    refused(&ended, "--listen", &address, "another program listens there already");
}

#[test]
fn an_address_of_another_host_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let ended =
        up(&["--name", "n1", "--listen", "203.0.113.77:6443", "--data-dir", dir.path().to_str().unwrap()]);
    refused(&ended, "--listen", "203.0.113.77:6443", "no such address");
}

#[test]
fn a_data_directory_that_cannot_be_one_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let file = file.to_str().unwrap();
    refused(&up(&["--name", "n1", "--data-dir", file]), "--data-dir", file, "not a directory");
    // Not even root can make a directory there.
    let ended = up(&["--name", "n1", "--data-dir", "/proc/sheaf"]);
    refused(&ended, "--data-dir", "/proc/sheaf", "it cannot be made");
    let full = dir.path().to_str().unwrap();
    refused(&up(&["--name", "n1", "--data-dir", full]), "--data-dir", full, "it is not empty");
}

#[test]
fn a_password_file_that_cannot_be_one_is_refused_before_anything_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let (data_dir, file) = (dir.path().join("data"), dir.path().join("password"));
    let (data_path, path) = (data_dir.to_str().unwrap(), file.to_str().unwrap());
    let with = |content: Option<&str>, mode: u32| {
        if let Some(content) = content {
            fs::write(&file, content).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        }
        up(&["--name", "n1", "--data-dir", data_path, "--admin-password-file", path])
    };
    let setting = "--admin-password-file";
    refused(&with(None, 0), setting, path, "No such file");
    refused(&with(Some(""), 0o600), setting, path, "it is empty");
    refused(&with(Some("short"), 0o600), setting, path, "only 5 characters");
    refused(&with(Some("correct horse battery"), 0o644), setting, path, "everyone on this host can read it");
    assert!(!data_dir.exists());
}

#[test]
fn a_log_filter_that_does_not_parse_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sheaf"));
    command.args(["up", "--name", "n1", "--data-dir"]).arg(dir.path()).env("SHEAF_LOG", "store=loud");
    refused(&ended(&mut command), "SHEAF_LOG", "store=loud", "level");
}

#[test]
fn what_the_argument_parser_refuses_ends_with_the_same_code() {
    for args in [&["up", "--listen", "x"][..], &["upp"], &[], &["up", "--log-format", "xml"]] {
        assert_eq!(sheaf(args).code, Some(2), "{args:?}");
    }
}
