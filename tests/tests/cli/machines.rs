//! A machine that runs, from a file to its end, with nothing but the command line.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
    time::Duration,
};

use sheaf_testbed::guests;
use sheaf_tests::{machines::Farm, patience};

use crate::{
    person::Person,
    running::{Running, line},
};

#[test]
fn a_machine_lives_and_dies_at_the_command_line() {
    let Some(guest) = guests::tiny() else { return };
    let farm = Farm::start();
    let anna = Person::of(&farm.node, "default");
    anna.says(&["image", "upload", guest.disk.to_str().unwrap(), "--name", "tiny"]);
    assert!(anna.says(&["image", "list"]).contains("ready"));

    // Made, and watched while it comes up.
    let (_watch, changes) = Running::start(&mut anna.command(&["vm", "list", "--watch"]));
    let made = anna.says(&[
        "vm", "create", "web", "--image", "tiny", "--disk", "1Gi", "--cpus", "1", "--memory", "256Mi",
        "--wait",
    ]);
    assert!(made.ends_with("virtual machine default/web runs\n"), "{made}");
    let address = patience::until("the address of the machine", || {
        let instance = farm.running("web");
        instance["status"]["interfaces"][0]["ipAddress"].as_str().map(str::to_owned)
    });
    loop {
        let told = line(&changes);
        if told.contains("Running") && told.contains(&address) {
            break;
        }
    }
    let shown = anna.says(&["vm", "show", "web"]);
    assert!(shown.contains("Status:       Running") && shown.contains("default/tiny"), "{shown}");
    assert!(anna.says(&["vm", "events", "web"]).contains("Started"));
    assert_eq!(anna.says(&["vm", "pause", "web"]), "virtual machine default/web is paused\n");
    assert!(anna.says(&["vm", "list"]).contains("Paused"));
    anna.says(&["vm", "unpause", "web"]);
    let already = anna.complains(&["vm", "start", "web"], 5);
    assert!(already.contains("cannot start the virtual machine default/web"), "{already}");

    // A port of the guest on this computer, and its screen.
    let instance = farm.running("web");
    let address = instance["status"]["interfaces"][0]["ipAddress"].as_str().unwrap().to_owned();
    let mut serial = farm.serial(&instance);
    serial.hears("tiny guest is up");
    serial.runs(&format!("ip link set eth0 up; ip addr add {address}/24 dev eth0"));
    serial.runs("(while :; do echo answer-from-inside | nc -l -p 7; done) </dev/null >/dev/null 2>&1 &");
    let (_forward, told) = Running::start(&mut anna.command(&["vm", "port-forward", "web", ":7"]));
    let address = line(&told).split(' ').next().unwrap().to_owned();
    let heard = patience::until("the guest to answer", || {
        let mut stream = TcpStream::connect(&address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
        let mut heard = String::new();
        stream.read_to_string(&mut heard).ok()?;
        (!heard.is_empty()).then_some(heard)
    });
    assert_eq!(heard, "answer-from-inside\n");
    let mut through = anna.command(&["vm", "port-forward", "web", "7", "--stdio"]);
    let mut through = through.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut heard = String::new();
    through.stdout.take().unwrap().read_to_string(&mut heard).unwrap();
    assert_eq!(heard, "answer-from-inside\n");
    through.wait().unwrap();
    let (_screen, told) = Running::start(&mut anna.command(&["vm", "vnc", "web", "--proxy-only"]));
    let address = line(&told).split(' ').next().unwrap().to_owned();
    let mut greeting = [0; 12];
    TcpStream::connect(&address).unwrap().read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"RFB 003.008\n");
    let picture = anna.home.path().join("screen.png");
    anna.says(&["vm", "vnc", "web", "--screenshot", picture.to_str().unwrap()]);
    assert!(fs::read(&picture).unwrap().starts_with(b"\x89PNG"));

    // A disk in, written to, kept in a snapshot, changed, and back.
    anna.says(&["vm", "attach", "web", "--new-disk", "1Gi", "--as", "data", "--wait"]);
    serial.runs("until [ -e /dev/sda ]; do sleep 1; done; echo before | dd of=/dev/sda conv=notrunc,fsync 2>/dev/null");
    let taken = anna.says(&["vm", "snapshot", "web", "--name", "then", "--wait"]);
    assert!(taken.starts_with("snapshot default/then is taken"), "{taken}");
    assert!(anna.says(&["snapshot", "list"]).contains("then   web       ready"));
    serial.runs("echo after_ | dd of=/dev/sda conv=notrunc,fsync 2>/dev/null");
    let grown = anna.says(&["vm", "resize", "web", "--memory", "320Mi"]);
    assert!(grown.contains("sheaf vm restart web"), "{grown}");
    anna.says(&["vm", "stop", "web", "--force", "--wait"]);
    anna.says(&["vm", "restore", "web", "then", "--yes", "--wait"]);
    anna.says(&["vm", "start", "web", "--wait"]);
    let instance = farm.running("web");
    let mut serial = farm.serial(&instance);
    serial.hears("tiny guest is up");
    let content =
        serial.runs("until [ -e /dev/sda ]; do sleep 1; done; dd if=/dev/sda bs=7 count=1 2>/dev/null");
    assert!(content.contains("before"), "{content}");

    // The disk is taken out again while it runs, and stays as a volume.
    let odd = anna.complains(&["vm", "detach", "web", "date"], 3);
    assert!(odd.contains("date") && odd.contains("data"), "{odd}");
    let out = anna.says(&["vm", "detach", "web", "data", "--wait"]);
    assert!(out.starts_with("the disk data is taken out of the virtual machine default/web"), "{out}");
    serial.runs("while [ -e /dev/sda ]; do sleep 1; done");
    let claim = out.trim_end().rsplit("its volume ").next().unwrap().trim_end_matches(" stays").to_owned();
    assert!(anna.says(&["volume", "show", &claim]).contains("nobody"), "{claim}");

    // Copied, and all of it gone in the end.
    anna.says(&["vm", "clone", "web", "twin", "--stopped", "--wait"]);
    anna.says(&["vm", "restart", "web", "--force", "--wait"]);
    let asked = anna.complains(&["vm", "delete", "web", "twin", "--with-disks"], 2);
    assert!(
        asked.contains("Running now: web.") && asked.contains("What is on these disks is lost"),
        "{asked}"
    );
    let gone = anna.says(&["vm", "delete", "web", "twin", "--with-disks", "--yes", "--wait"]);
    assert_eq!(
        gone,
        "virtual machine default/web is gone, with its disks\nvirtual machine default/twin is gone, with its disks\n"
    );
    assert!(anna.says(&["vm", "list"]).starts_with("there is no virtual machine"));
    std::io::stdout().flush().unwrap();
}

#[test]
fn a_machine_is_changed_in_an_editor_and_what_is_refused_comes_back() {
    let farm = Farm::start();
    let anna = Person::of(&farm.node, "default");
    anna.says(&["volume", "create", "disk", "--size", "1Gi"]);
    anna.says(&["vm", "create", "web", "--volume", "disk", "--stopped"]);
    // The first time it is made something that is refused; the second time, told why, it is put right.
    let editor = anna.home.path().join("editor");
    fs::write(
        &editor,
        "#!/bin/sh\nif grep -q '^# .*terminationGracePeriodSeconds' \"$1\"; then to=60; else to=-1; fi\n\
         sed -i \"s/terminationGracePeriodSeconds: .*/terminationGracePeriodSeconds: $to/\" \"$1\"\n",
    )
    .unwrap();
    Command::new("chmod").args(["+x", editor.to_str().unwrap()]).status().unwrap();
    let ended = crate::person::ended(anna.command(&["vm", "edit", "web"]).env("EDITOR", &editor));
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.stdout.contains("is changed"), "{ended:?}");
    let shown = anna.says(&["vm", "show", "web", "-o", "yaml"]);
    assert!(shown.contains("terminationGracePeriodSeconds: 60"), "{shown}");
    let unchanged = crate::person::ended(anna.command(&["vm", "edit", "web"]).env("EDITOR", "true"));
    assert!(unchanged.stdout.starts_with("nothing was changed"), "{unchanged:?}");
    let no_editor = crate::person::ended(anna.command(&["vm", "edit", "web"]).env("EDITOR", "false"));
    assert_eq!(no_editor.code, 2, "{no_editor:?}");
}
