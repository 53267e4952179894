//! What needs a guest, and no more of one than a kernel and a shell.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::OnceLock,
    time::Duration,
};

use serde_json::Value;
use sheaf_testbed::guests;
use sheaf_tests::{
    machines::{Farm, MACHINES, machine},
    node::{Node, Rights},
    patience::{self, TOO_LONG_FOR_A_GUEST},
    virtctl::Virtctl,
};

fn farm() -> Option<&'static Farm> {
    static FARM: OnceLock<Option<Farm>> = OnceLock::new();
    FARM.get_or_init(Farm::with_tiny_guest).as_ref()
}

/// A machine that is off and would be started by hand.
fn make(farm: &Farm, name: &str, number: u32) -> Virtctl {
    let mut vm = machine(name, &format!("33333333-0000-4000-8000-{number:012}"), Some("tiny"));
    vm["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 60.into();
    farm.api().post(MACHINES, &vm).object();
    Virtctl::admin(&farm.node, name)
}

fn condition(instance: &Value, kind: &str) -> Value {
    let all = instance["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|one| one["type"] == kind).map_or(Value::Null, |one| one["status"].clone())
}

#[test]
#[ignore = "needs the real virtctl: scripts/test brings it"]
fn versions_of_client_and_server_agree() {
    let Some(farm) = farm() else { return };
    let said = Virtctl::admin(&farm.node, "version").says(&["version"]);
    let versions: Vec<&str> =
        said.lines().filter_map(|line| line.split("GitVersion:\"").nth(1)?.split('"').next()).collect();
    assert_eq!(versions.len(), 2, "{said}");
    let minor = |version: &str| version.split('.').take(2).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(minor(versions[0]), minor(versions[1]), "{said}");
}

#[test]
#[ignore = "needs the real virtctl: scripts/test brings it"]
fn start_console_restart_and_stop() {
    let Some(farm) = farm() else { return };
    let virtctl = make(farm, "walk", 1);
    virtctl.says(&["start", "walk"]);
    let instance = farm.running("walk");
    assert!(virtctl.complains(&["start", "walk"]).contains("VM is already running"));

    let mut console = virtctl.console("walk");
    console.hears_within("tiny guest is up", TOO_LONG_FOR_A_GUEST);
    console.types("run echo typed-$((40 + 2))\n");
    console.hears("typed-42");
    // Whoever comes second has it; the first is told.
    let mut second = virtctl.console("walk");
    second.types("run echo mine-$((1 + 1))\n");
    second.hears("mine-2");
    second.leave();

    virtctl.says(&["restart", "walk"]);
    let uid = instance["metadata"]["uid"].clone();
    patience::until("another instance", || {
        let now = farm.instance("walk")?;
        (now["metadata"]["uid"] != uid && now["status"]["phase"] == "Running").then_some(())
    });

    virtctl.says(&["stop", "walk", "--force", "--grace-period=0"]);
    farm.stopped("walk");
    assert!(virtctl.complains(&["stop", "walk"]).contains("VM is not running"));
    assert!(
        virtctl.complains(&["restart", "walk"]).contains("VM is not running")
            || virtctl.complains(&["restart", "walk"]).contains("does not support manual restart")
    );
    assert!(virtctl.complains(&["start", "nobody"]).contains("not found"));
}

#[test]
#[ignore = "needs the real virtctl: scripts/test brings it"]
fn pause_and_unpause_are_seen_in_the_guest_and_in_its_conditions() {
    let Some(farm) = farm() else { return };
    let virtctl = make(farm, "rests", 2);
    virtctl.says(&["start", "rests"]);
    farm.running("rests");
    virtctl.says(&["pause", "vm", "rests"]);
    patience::until("the pause to be told", || {
        (condition(&farm.instance("rests")?, "Paused") == "True").then_some(())
    });
    assert!(virtctl.complains(&["pause", "vm", "rests"]).contains("VMI is already paused"));
    virtctl.says(&["unpause", "vm", "rests"]);
    patience::until("its end to be told", || {
        let instance = farm.instance("rests")?;
        (condition(&instance, "Paused").is_null() && condition(&instance, "Ready") == "True").then_some(())
    });
    assert!(virtctl.complains(&["unpause", "vm", "rests"]).contains("VMI is not paused"));
    farm.api().delete(&format!("{MACHINES}/rests"));
}

#[test]
#[ignore = "needs the real virtctl: scripts/test brings it"]
fn reset_and_soft_reboot_begin_the_guest_anew_in_the_same_instance() {
    let Some(farm) = farm() else { return };
    let virtctl = make(farm, "again", 3);
    virtctl.says(&["start", "again"]);
    let instance = farm.running("again");
    let mut console = virtctl.console("again");
    console.hears_within("tiny guest is up", TOO_LONG_FOR_A_GUEST);
    virtctl.says(&["reset", "again"]);
    console.hears_within("tiny guest is up", TOO_LONG_FOR_A_GUEST);
    virtctl.says(&["soft-reboot", "again"]);
    console.hears_within("power button", TOO_LONG_FOR_A_GUEST);
    console.hears_within("tiny guest is up", TOO_LONG_FOR_A_GUEST);
    let now = farm.instance("again").unwrap();
    assert_eq!(now["metadata"]["uid"], instance["metadata"]["uid"], "it is the same instance");
    farm.api().delete(&format!("{MACHINES}/again"));
}

#[test]
#[ignore = "needs the real virtctl: scripts/test brings it"]
fn a_screen_is_proxied_and_photographed() {
    let Some(farm) = farm() else { return };
    let virtctl = make(farm, "seen", 4);
    virtctl.says(&["start", "seen"]);
    farm.running("seen");
    let proxy = virtctl.follow(&["vnc", "seen", "--proxy-only", "--address=127.0.0.1"]);
    let line = proxy.line();
    let port: u16 =
        serde_json::from_str::<Value>(&line).unwrap()["port"].as_u64().unwrap().try_into().unwrap();
    let mut screen = TcpStream::connect(("127.0.0.1", port)).unwrap();
    screen.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut greeting = [0; 12];
    screen.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"RFB 003.008\n");
    screen.write_all(&greeting).unwrap();
    let mut offered = [0; 2];
    screen.read_exact(&mut offered).unwrap();
    assert_eq!(offered, [1, 1], "one way in: none, since the API has asked already");
    screen.write_all(&[1]).unwrap();
    let mut verdict = [9; 4];
    screen.read_exact(&mut verdict).unwrap();
    assert_eq!(verdict, [0; 4]);
    screen.write_all(&[1]).unwrap();
    let mut size = [0; 4];
    screen.read_exact(&mut size).unwrap();
    let (width, height) = (u16::from_be_bytes([size[0], size[1]]), u16::from_be_bytes([size[2], size[3]]));
    assert!(width >= 320 && height >= 200, "a screen of {width}x{height}");
    drop(screen);

    let photo = farm.node.scratch().join("seen.png");
    virtctl.says(&["vnc", "screenshot", "seen", "-f", photo.to_str().unwrap()]);
    assert!(std::fs::read(photo).unwrap().starts_with(b"\x89PNG\r\n"));
    farm.api().delete(&format!("{MACHINES}/seen"));
}

#[test]
#[ignore = "needs the real virtctl: scripts/test brings it"]
fn a_port_is_forwarded_into_the_guest() {
    let Some(farm) = farm() else { return };
    let virtctl = make(farm, "ports", 5);
    virtctl.says(&["start", "ports"]);
    let instance = farm.running("ports");
    let address = instance["status"]["interfaces"][0]["ipAddress"].as_str().unwrap().to_owned();
    let mut serial = farm.serial(&instance);
    serial.hears("tiny guest is up");
    serial.runs(&format!("ip link set eth0 up; ip addr add {address}/24 dev eth0"));
    serial.runs("(while :; do echo answer-from-inside | nc -l -p 7; done) </dev/null >/dev/null 2>&1 &");
    serial.runs("until netstat -ltn | grep -q ':7 '; do sleep 0.2; done");
    let mut through = virtctl.converse(&["port-forward", "--stdio=true", "vm/ports", "7"]);
    through.hears("answer-from-inside");
    let nobody = virtctl.run(&["port-forward", "--stdio=true", "vm/ports", "8"]);
    assert_ne!(nobody.code, 0, "a port that nobody listens on: {}", nobody.stdout);
    farm.api().delete(&format!("{MACHINES}/ports"));
}

#[test]
#[ignore = "needs the real virtctl: scripts/test brings it"]
fn without_the_right_to_make_taps_a_guest_gets_an_address_and_a_port_is_forwarded_into_it() {
    let Some(guest) = guests::tiny() else { return };
    let node = Node::start_with_rights(Rights::NoNetwork, &["--allow-local-images"]);
    let farm = Farm::with_node(node, "");
    farm.image("tiny", &guest.disk);
    let virtctl = make(&farm, "behind", 6);
    virtctl.says(&["start", "behind"]);
    let instance = farm.running("behind");
    let address = instance["status"]["interfaces"][0]["ipAddress"].as_str().unwrap().to_owned();
    let mut serial = farm.serial(&instance);
    serial.hears("tiny guest is up");
    // The guest's own DHCP client finds the address that its status already told.
    serial.runs("ip link set eth0 up");
    let lease = serial.runs("udhcpc -i eth0 -n -q -f -s /bin/true 2>&1");
    assert!(lease.contains(&address), "{address} is not in {lease}");
    serial.runs(&format!("ip addr add {address}/24 dev eth0"));
    serial.runs("(while :; do echo answer-from-inside | nc -l -p 7; done) </dev/null >/dev/null 2>&1 &");
    for _ in 0..2 {
        // It takes one connection and is then started again.
        serial.runs("until netstat -ltn | grep -q ':7 '; do sleep 0.2; done");
        let mut through = virtctl.converse(&["port-forward", "--stdio=true", "vm/behind", "7"]);
        through.hears("answer-from-inside");
    }
    let datagrams = virtctl.run(&["port-forward", "--stdio=true", "vm/behind", "udp/7"]);
    assert!(datagrams.stderr.contains("carries TCP only"), "{}", datagrams.stderr);
}

#[test]
#[ignore = "needs the real virtctl: scripts/test brings it"]
fn volumes_are_added_and_removed_while_the_machine_runs() {
    let Some(farm) = farm() else { return };
    let virtctl = make(farm, "volumes", 7);
    let mut claim = sheaf_tests::machines::claim("virtctl-data", None, "8Mi");
    (claim["apiVersion"], claim["kind"]) = ("v1".into(), "PersistentVolumeClaim".into());
    farm.api().post(sheaf_tests::machines::CLAIMS, &claim).object();
    virtctl.says(&["start", "volumes"]);
    let mut serial = farm.serial(&farm.running("volumes"));
    serial.hears("tiny guest is up");
    let status = || {
        let all = farm.instance("volumes")?["status"]["volumeStatus"].as_array().cloned()?;
        Some(all.into_iter().find(|one| one["name"] == "virtctl-data").unwrap_or_default())
    };
    virtctl.says(&["addvolume", "volumes", "--volume-name=virtctl-data"]);
    patience::until("the volume to be ready", || status().filter(|volume| volume["phase"] == "Ready"));
    serial.runs("until [ -e /sys/block/sda ]; do sleep 0.1; done");
    let ids = serial.runs("tr -cd ' -~' </sys/block/sda/device/vpd_pg83");
    assert!(ids.contains("virtctl-data"), "{ids}");
    let again = virtctl.complains(&["addvolume", "volumes", "--volume-name=virtctl-data"]);
    assert!(
        again.contains("Unable to add volume [virtctl-data] because volume with that name already exists"),
        "{again}"
    );
    let root = virtctl.complains(&["removevolume", "volumes", "--volume-name=root"]);
    assert!(root.contains("Unable to remove volume [root] because it is not hotpluggable"), "{root}");
    virtctl.says(&["removevolume", "volumes", "--volume-name=virtctl-data"]);
    patience::until("the volume to be gone", || status().filter(Value::is_null));
    serial.runs("while [ -e /sys/block/sda ]; do sleep 0.1; done");
    farm.api().delete(&format!("{MACHINES}/volumes"));
}
