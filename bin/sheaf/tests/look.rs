//! The commands that only look: `version`, `kubeconfig`, `doctor`, `completions`.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod process;

use process::{Running, sheaf};
use serde_json::Value;

#[test]
fn the_version_is_told_to_people_and_to_scripts() {
    let text = sheaf(&["version"]);
    assert_eq!(text.code, Some(0));
    assert!(text.stdout.starts_with(concat!("Sheaf ", env!("CARGO_PKG_VERSION"))), "{}", text.stdout);
    let json: Value = serde_json::from_str(&sheaf(&["version", "-o", "json"]).stdout).unwrap();
    assert_eq!((&json["product"], &json["version"]), (&"Sheaf".into(), &env!("CARGO_PKG_VERSION").into()));
    assert!(json["kubernetes"].as_str().unwrap().starts_with("v1.34."), "{json}");
}

#[test]
fn without_a_node_there_is_no_kubeconfig_and_it_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let ended = sheaf(&["kubeconfig", "--data-dir", dir.path().to_str().unwrap()]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
    assert!(ended.stderr.contains("sheaf up") && ended.stderr.contains("--data-dir"), "{}", ended.stderr);
}

fn findings(args: &[&str]) -> (Option<i32>, Vec<Value>) {
    let ended = sheaf(&[&["doctor", "-o", "json"], args].concat());
    let json: Value = serde_json::from_str(&ended.stdout).expect(&ended.stderr);
    (ended.code, json["findings"].as_array().unwrap().clone())
}

fn find<'a>(findings: &'a [Value], check: &str) -> &'a Value {
    findings
        .iter()
        .find(|finding| finding["check"] == check)
        .unwrap_or_else(|| panic!("{check}: {findings:?}"))
}

#[test]
fn the_doctor_sees_the_node_that_runs_and_its_certificates() {
    let dir = tempfile::tempdir().unwrap();
    let node = Running::start(dir.path(), &[]);
    let (_, seen) = findings(&["--data-dir", dir.path().to_str().unwrap(), "--listen", node.address()]);
    let directory = find(&seen, "data directory");
    assert_eq!(directory["verdict"], "ok");
    assert!(
        directory["found"].as_str().unwrap().ends_with(&format!("process {}", node.pid())),
        "{directory}"
    );
    for certificate in ["certificate ca", "certificate apiserver", "certificate admin"] {
        assert_eq!(find(&seen, certificate)["verdict"], "ok");
    }
    for check in ["user", "kernel", "memory", "open files", "cgroup", "kvm", "clock", "etcd", "disk space"] {
        assert!(find(&seen, check)["found"].is_string());
    }
}

#[test]
fn the_doctor_fails_on_a_taken_port_and_says_what_to_do() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (dir, address) = (tempfile::tempdir().unwrap(), taken.local_addr().unwrap());
    let args = ["--data-dir", dir.path().to_str().unwrap(), "--listen", &address.to_string()];
    let (code, seen) = findings(&args);
    let port = find(&seen, &format!("port {}", address.port()));
    assert_eq!((code, &port["verdict"]), (Some(1), &"fail".into()));
    assert!(port["advice"].as_str().unwrap().contains("--listen"), "{port}");
    let table = sheaf(&[&["doctor"], &args[..]].concat());
    assert_eq!(table.code, Some(1));
    assert!(table.stdout.contains("FAIL  port"), "{}", table.stdout);
    // It only looked.
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn completions_are_there_for_each_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let ended = sheaf(&["completions", shell]);
        assert_eq!(ended.code, Some(0));
        // The script asks this program, so that it knows what there is.
        assert!(
            ended.stdout.contains("SHEAF_COMPLETE") && ended.stdout.contains("sheaf"),
            "{shell}: {}",
            ended.stdout
        );
    }
}
