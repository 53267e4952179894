//! What a machine's process could get at on a node that runs, if its guest took it over.

use std::{fs, process::Command};

use sheaf_tests::machines::{Farm, MACHINES, rich_machine};

const UUID: &str = "bbbbbbbb-0000-4000-8000-000000000001";

/// A field of what the kernel says of a process.
fn field(process: i32, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.unwrap().split_whitespace().next().unwrap().to_owned()
}

#[test]
fn a_machines_process_can_open_nothing_that_the_node_keeps_and_sees_no_network() {
    let farm = Farm::start();
    farm.furnish();
    let mut vm = rich_machine("kept", UUID);
    vm["spec"]["runStrategy"] = "Always".into();
    farm.api().post(MACHINES, &vm).object();
    farm.running("kept");
    let [process] = farm.processes(UUID)[..] else { panic!("one process") };
    let user = field(process, "Uid");
    assert_ne!(user, "0");

    let data_dir = farm.node.data_dir();
    let look = |as_whom: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(as_whom).args(["--no-new-privs", "find"]).arg(&data_dir);
        let output =
            command.args(["-mindepth", "1", "(", "-readable", "-o", "-writable", ")"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let as_root = look(&[]);
    for kept in ["/volumes/", "/images/", "/seeds/", "/machines/", "/instances/", "/pki/"] {
        assert!(as_root.contains(kept), "the node keeps {kept}: {as_root}");
    }
    assert_eq!(look(&["--reuid", &user, "--regid", &user, "--clear-groups"]), "");

    let interfaces = fs::read_to_string(format!("/proc/{process}/net/dev")).unwrap();
    let names: Vec<&str> =
        interfaces.lines().skip(2).filter_map(|line| Some(line.split_once(':')?.0.trim())).collect();
    assert_eq!(names, ["lo"], "its NICs are descriptors, not interfaces");
    assert!(!fs::read_to_string(format!("/proc/{process}/net/unix")).unwrap().contains('@'));
}
