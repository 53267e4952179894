//! What a person types, against a real node with a real guest: an image brought, a console entered, a node put down.

use std::{
    fs,
    io::{Read, Write},
    process::{Command, Output, Stdio},
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use sheaf_testbed::guests;
use sheaf_tests::{
    machines::{Farm, MACHINES, directories_of_control_groups, machine},
    node, patience,
};

const ESCAPE: &[u8] = b"\x1d";

fn uuid(number: u32) -> String {
    format!("33333333-0000-4000-8000-{number:012}")
}

/// The binary with these words, to its end.
fn sheaf(words: &[&str]) -> Output {
    Command::new(node::binary()).args(words).stdin(Stdio::null()).output().unwrap()
}

#[track_caller]
fn says(words: &[&str]) -> String {
    let ended = sheaf(words);
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{words:?}: {stderr}");
    String::from_utf8(ended.stdout).unwrap()
}

fn create(farm: &Farm, name: &str, number: u32) {
    let mut vm = machine(name, &uuid(number), Some("brought"));
    vm["spec"]["runStrategy"] = "Always".into();
    farm.api().post(MACHINES, &vm).object();
}

/// Types into the console of a machine what `talk` says, and answers all that came, to the end.
fn in_the_console(farm: &Farm, name: &str, typed: &str, until: &str) -> String {
    let mut console = Command::new(node::binary())
        .args(["vm", "console", name, "--kubeconfig"])
        .arg(farm.node.admin_kubeconfig())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut keys, mut screen) = (console.stdin.take().unwrap(), console.stdout.take().unwrap());
    let (send, shown) = channel();
    thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(read @ 1..) = screen.read(&mut piece) {
            if send.send(piece[..read].to_vec()).is_err() {
                return;
            }
        }
    });
    let began = Instant::now();
    let mut seen = Vec::new();
    let mut typed_at: Option<Instant> = None;
    while !String::from_utf8_lossy(&seen).contains(until) {
        assert!(began.elapsed() < patience::TOO_LONG_FOR_A_GUEST, "{}", String::from_utf8_lossy(&seen));
        // A guest that is still booting hears nothing; it is told again.
        if typed_at.is_none_or(|at| at.elapsed() > Duration::from_secs(5)) {
            keys.write_all(typed.as_bytes()).unwrap();
            typed_at = Some(Instant::now());
        }
        match shown.recv_timeout(Duration::from_millis(200)) {
            Ok(piece) => seen.extend(piece),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => panic!("it ended: {}", String::from_utf8_lossy(&seen)),
        }
    }
    keys.write_all(ESCAPE).unwrap();
    assert!(console.wait().unwrap().success());
    String::from_utf8_lossy(&seen).into_owned()
}

#[test]
fn a_file_is_brought_booted_and_entered_and_the_node_put_down() {
    let Some(guest) = guests::tiny() else { return };
    let farm = Farm::start();
    let (kubeconfig, data_dir) = (farm.node.admin_kubeconfig(), farm.node.data_dir());
    let (kubeconfig, data_dir) = (kubeconfig.to_str().unwrap(), data_dir.to_str().unwrap());

    // Brought.
    let upload =
        ["image", "upload", guest.disk.to_str().unwrap(), "--name", "brought", "--kubeconfig", kubeconfig];
    says(&upload);
    let again = sheaf(&upload);
    assert!(String::from_utf8_lossy(&again.stderr).contains("there is an image default/brought already"));
    let not_an_image = farm.node.scratch().join("text");
    fs::write(&not_an_image, "").unwrap();
    let refused = sheaf(&[
        "image",
        "upload",
        not_an_image.to_str().unwrap(),
        "--name",
        "text",
        "--kubeconfig",
        kubeconfig,
    ]);
    assert!(!refused.status.success(), "an empty file is no disk");

    // Booted and entered.
    create(&farm, "typed", 1);
    let instance = farm.running("typed");
    let nobody = sheaf(&["vm", "console", "nobody", "--kubeconfig", kubeconfig]);
    let why = String::from_utf8_lossy(&nobody.stderr).into_owned();
    assert!(why.contains("there is no virtual machine default/nobody"), "{why}");
    assert_eq!(nobody.status.code(), Some(3));
    in_the_console(&farm, "typed", "run echo $((6 * 7))\n", "42");

    // Put down, without and with its machine.
    let down = says(&["down", "--data-dir", data_dir]);
    assert!(down.contains("The node stopped") && down.contains("1 virtual machine of it runs on"), "{down}");
    assert_eq!(farm.processes(&uuid(1)).len(), 1);
    let down = says(&["down", "--stop-vms", "--grace", "120", "--data-dir", data_dir]);
    assert!(down.contains("No node runs") && down.contains("1 virtual machine shut down"), "{down}");
    assert_eq!(farm.processes(&uuid(1)), [] as [i32; 0]);
    assert_eq!(farm.taps(), [] as [&str; 0]);
    let uid = instance["metadata"]["uid"].as_str().unwrap().to_owned();
    assert_eq!(directories_of_control_groups(&[uid]), [] as [&str; 0]);

    // What should run runs again, as another instance with the same address.
    let network = farm.arguments()[1].to_owned();
    let arguments = farm.arguments().map(str::to_owned);
    let node = farm.node.start_again_with(&arguments.each_ref().map(String::as_str));
    let farm = Farm::with_node(node, &network);
    let next = patience::until("it to run again", || {
        let next = farm.instance("typed").filter(|next| next["status"]["phase"] == "Running")?;
        (next["metadata"]["uid"] != instance["metadata"]["uid"]).then_some(next)
    });
    assert_eq!(
        next["status"]["interfaces"][0]["ipAddress"],
        instance["status"]["interfaces"][0]["ipAddress"]
    );
    farm.set_run_strategy("typed", "Halted");
    farm.stopped("typed");
    let down = says(&["down", "--stop-vms", "--data-dir", farm.node.data_dir().to_str().unwrap()]);
    assert!(down.contains("No virtual machine ran"), "{down}");
}
