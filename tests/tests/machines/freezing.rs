//! Snapshots of a guest with an agent: its file systems write out what they hold and stand still for the instant, and no
//! death of the node leaves them standing.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    path::PathBuf,
    process::Command,
    time::Duration,
};

use serde_json::{Value, json};
use sheaf_testbed::guests;
use sheaf_tests::{
    dying::{restart_mortal, steps_in, tell_to_die},
    machines::{Farm, MACHINES, claim, machine},
    patience::until_within,
};

use super::snapshot_steps::{back_up, image_of, is_ready, snapshot_of};

/// From power on to the end of cloud-init under emulation, on a machine that has other things to do.
const BOOT: Duration = Duration::from_secs(600);

#[test]
#[ignore = "a whole Debian boots, which takes minutes under emulation: for make soak"]
fn soak_a_guest_with_an_agent_is_frozen_for_its_snapshot_and_thawed_whoever_dies() {
    let Some(image) = guests::debian() else { return };
    let farm = Farm::start();
    farm.image("debian", &image);
    let (key, public) = farm.ssh_key("key");
    farm.api().post(MACHINES, &writer(&public)).object();
    let instance = farm.running("vm");
    let uid = instance["metadata"]["uid"].as_str().unwrap().to_owned();
    let farm = restart_mortal(farm);
    until_within(BOOT, "the guest's agent", || {
        let instance = farm.instance("vm").unwrap();
        let all = instance["status"]["conditions"].as_array().cloned().unwrap_or_default();
        all.iter().any(|one| one["type"] == "AgentConnected" && one["status"] == "True").then_some(())
    });
    let address = farm.instance("vm").unwrap()["status"]["interfaces"][0]["ipAddress"].clone();
    let guest = Guest { key, address: address.as_str().unwrap().to_owned() };
    until_within(BOOT, "SSH", || guest.runs("cloud-init status --wait").map(drop));
    guest
        .runs(
            "sudo mkfs.ext4 -q /dev/sda && sudo mount /dev/sda /mnt && sudo systemd-run --quiet sh -c \
             'n=0; while :; do n=$((n+1)); echo $n >/mnt/new; mv /mnt/new /mnt/last; sleep 0.05; done'",
        )
        .expect("the guest makes a file system and writes to it");
    let last = || {
        until_within(BOOT, "the guest to say how far it is", || {
            guest.runs("cat /mnt/last").and_then(|said| said.trim().parse::<u64>().ok())
        })
    };
    let goes_on = || {
        let before = last();
        until_within(BOOT, "the guest to write on", || (last() > before).then_some(()));
    };
    goes_on();

    // Nobody dies. The file system in the snapshot has nothing to recover.
    let before = (last(), farm.node.log().len());
    back_up(&farm, "first");
    until_within(BOOT, "a backup", || is_ready(&farm, "first").then_some(()));
    let log = farm.node.log().split_off(before.1);
    assert!(log.contains("frozen=true"), "{log}");
    assert!(is_clean(&farm, "first"), "a file system that was frozen has nothing to recover");
    assert_eq!(status(&farm, &uid), "thawed");
    goes_on();

    // It dies when the guest has just been frozen.
    let mut farm = restart_mortal(farm);
    tell_to_die(&farm, "Freeze");
    let before = farm.node.log().len();
    back_up(&farm, "second");
    until_within(BOOT, "its death", || farm.node.has_ended().then_some(()));
    assert_eq!(steps_in(&farm.node.log()[before..]).last().map(String::as_str), Some("Freeze"));
    assert_eq!(status(&farm, &uid), "frozen");
    let farm = restart_mortal(farm);
    until_within(BOOT, "the guest to be thawed", || (status(&farm, &uid) == "thawed").then_some(()));
    goes_on();
    until_within(BOOT, "the backup", || is_ready(&farm, "second").then_some(()));
    assert!(is_clean(&farm, "second"));
    assert_eq!(farm.running("vm")["metadata"]["uid"], uid.as_str(), "it never stopped");

    // Without a freeze there would have been something to recover: what says so above can say otherwise.
    let snapshot = json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
        "metadata": {"name": "third-volume-vm-data", "annotations": {"harvesterhci.io/snapshotFreezeFS": "false"}},
        "spec": {"source": {"persistentVolumeClaimName": "vm-data"}}});
    let snapshots = "/apis/snapshot.storage.k8s.io/v1/namespaces/default/volumesnapshots";
    farm.api().post(snapshots, &snapshot).object();
    until_within(BOOT, "a snapshot without a freeze", || {
        let snapshot = farm.api().get(&format!("{snapshots}/third-volume-vm-data")).object();
        (snapshot["status"]["readyToUse"] == true).then_some(())
    });
    assert!(!is_clean(&farm, "third"), "the guest writes all the time");
}

/// A machine with a whole Debian and an empty disk.
fn writer(public_key: &str) -> Value {
    let mut vm = machine("vm", "11111111-0000-4000-8000-000000000009", Some("debian"));
    let claims = json!([claim("vm", Some("debian"), "3Gi"), claim("vm-data", None, "64Mi")]);
    vm["metadata"]["annotations"] = json!({"harvesterhci.io/volumeClaimTemplates": claims.to_string()});
    vm["spec"]["runStrategy"] = "Always".into();
    let spec = &mut vm["spec"]["template"]["spec"];
    spec["domain"]["memory"]["guest"] = "512Mi".into();
    spec["domain"]["cpu"]["cores"] = 2.into();
    spec["volumes"][1] = json!({"name": "seed", "cloudInitNoCloud": {
        "userData": format!("#cloud-config\nssh_authorized_keys: [\"{public_key}\"]\n")}});
    let disks = spec["domain"]["devices"]["disks"].as_array_mut().unwrap();
    disks.push(json!({"name": "data", "disk": {"bus": "scsi"}}));
    let volumes = spec["volumes"].as_array_mut().unwrap();
    volumes.push(json!({"name": "data", "persistentVolumeClaim": {"claimName": "vm-data"}}));
    vm
}

/// Whether the file system on the data disk of a backup was left in good order.
fn is_clean(farm: &Farm, backup: &str) -> bool {
    let directory = snapshot_of(farm, backup, "vm-data");
    let copy = farm.node.scratch().join("file-system");
    let output = |program: &mut Command| {
        let output = program.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    output(Command::new("qemu-img").args(["convert", "-U", "-O", "raw", &image_of(&directory)]).arg(&copy));
    let said = output(Command::new("dumpe2fs").arg("-h").arg(&copy));
    !said.contains("needs_recovery")
}

/// What the agent in the guest says of its file systems, asked past the node.
fn status(farm: &Farm, uid: &str) -> String {
    until_within(BOOT, "the guest's agent to answer", || {
        let socket = farm.node.data_dir().join("machines").join(uid).join("guest-agent");
        let mut stream = UnixStream::connect(socket).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        writeln!(stream, "{}", json!({"execute": "guest-fsfreeze-status"})).ok()?;
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).ok()?;
        Some(serde_json::from_str::<Value>(&line).ok()?["return"].as_str()?.to_owned())
    })
}

struct Guest {
    key: PathBuf,
    address: String,
}

impl Guest {
    /// What a command printed, if it went well.
    fn runs(&self, command: &str) -> Option<String> {
        let options = [
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "ConnectTimeout=30",
            "LogLevel=ERROR",
        ];
        let output = Command::new("ssh")
            .args(options.iter().flat_map(|option| ["-o", option]))
            .arg("-i")
            .arg(&self.key)
            .arg(format!("debian@{}", self.address))
            .arg(command)
            .output()
            .unwrap();
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }
}
