//! A disk that is too small for what is asked of it: what may be promised of it, and what becomes of guests that fill it.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};
use sheaf_testbed::guests;
use sheaf_tests::{
    machines::{CLAIMS, Farm, IMAGES, INSTANCES, MACHINES, claim, machine},
    patience,
};

const SETTING: &str = "/apis/harvesterhci.io/v1beta1/settings/overcommit-config";
const EVENTS: &str = "/api/v1/namespaces/default/events";
const UUID: &str = "99999999-0000-4000-8000-000000000001";
const MIB: u64 = 1 << 20;

/// The guest's blocks of a MiB begin behind the image on the first disk, and at the beginning of the second.
const BLOCKS: u64 = 110;
const FIRST: u64 = 64;
/// Each is written to both disks, is on them when that is said, and has its number before what is all the same.
const WRITE: &str = "(yes abcdefg | head -c 1048576 >/run/block; n=0; while [ $n -lt 110 ]; do printf %07d $n | \
                     dd of=/run/block conv=notrunc 2>/dev/null; \
                     dd if=/run/block of=/dev/vda bs=1M seek=$((n+64)) conv=notrunc,fsync 2>/dev/null && \
                     dd if=/run/block of=/dev/sda bs=1M seek=$n conv=notrunc,fsync 2>/dev/null && \
                     echo \"wrote $n.\" || echo \"FAILED $n.\"; n=$((n+1)); done; echo all are written) &";

fn set_storage_percent(farm: &Farm, percent: u32) {
    let value = json!({"cpu": 1000, "memory": 150, "storage": percent}).to_string();
    farm.api().patch(SETTING, "merge", &json!({"value": value}).to_string()).object();
}

fn new_claim(name: &str, size: &str) -> Value {
    let mut claim = claim(name, None, size);
    claim["apiVersion"] = "v1".into();
    claim["kind"] = "PersistentVolumeClaim".into();
    claim
}

fn messages(farm: &Farm, name: &str, reason: &str) -> Vec<String> {
    let events = farm.api().get(EVENTS).object()["items"].as_array().cloned().unwrap_or_default();
    let about = events.iter().filter(|one| one["involvedObject"]["name"] == name && one["reason"] == reason);
    about.map(|event| event["message"].as_str().unwrap_or_default().to_owned()).collect()
}

fn phase(farm: &Farm, claim: &str) -> Value {
    farm.api().get(&format!("{CLAIMS}/{claim}")).object()["status"]["phase"].clone()
}

#[test]
fn no_more_of_a_disk_is_promised_than_the_setting_lets_and_who_is_refused_is_told_the_numbers() {
    let farm = Farm::start_on_disk(256 * MIB);
    let mut api = farm.api();
    let node = patience::until("the node to say what it gives to volumes", || {
        let answer = api.get("/api/v1/nodes/n1");
        let node = if answer.code == 404 { Value::Null } else { answer.object() };
        node["status"]["allocatable"]["sheaf.io/volume-storage"].is_string().then_some(node)
    });
    let said = |field: &str| node["status"][field]["sheaf.io/volume-storage"].as_str().unwrap().to_owned();
    let kib = |said: String| said.trim_end_matches("Ki").parse::<u64>().unwrap();
    let (has, gives) = (kib(said("capacity")), kib(said("allocatable")));
    assert!(gives < has && has < 256 * 1024 && gives > 128 * 1024, "{gives} of {has}");

    api.post(CLAIMS, &new_claim("fits", "100Mi")).object();
    api.post(CLAIMS, &new_claim("waits", "150Mi")).object();
    let told = patience::until("the claim to say that there is no room", || {
        messages(&farm, "waits", "ProvisioningFailed").into_iter().next()
    });
    for words in
        ["asks for 150Mi", "node n1 has ", "100 % may be promised", "raise \"storage\" in the setting"]
    {
        assert!(told.contains(words), "{words}: {told}");
    }
    patience::until("the other to be bound", || (phase(&farm, "fits") == "Bound").then_some(()));
    assert_eq!(phase(&farm, "waits"), "Pending");
    let larger = json!({"spec": {"resources": {"requests": {"storage": "300Mi"}}}}).to_string();
    let refused = api.patch(&format!("{CLAIMS}/fits"), "merge", &larger);
    assert_eq!(refused.code, 422, "{}", refused.text());
    assert!(refused.text().contains("asks for 200Mi more than its 100Mi"), "{}", refused.text());

    // It helps to let more be promised, and to delete what was.
    set_storage_percent(&farm, 200);
    patience::until("the claim to be bound", || (phase(&farm, "waits") == "Bound").then_some(()));
    set_storage_percent(&farm, 100);
    api.post(CLAIMS, &new_claim("third", "50Mi")).object();
    patience::until("the third to say that there is no room", || {
        messages(&farm, "third", "ProvisioningFailed").into_iter().next()
    });
    api.delete(&format!("{CLAIMS}/waits"));
    patience::until("the third to be bound", || (phase(&farm, "third") == "Bound").then_some(()));
}

/// Takes what is free, in a file of somebody else's, and in one go: what is given up thereupon is for others.
fn take_all_but(folder: &Path, left: u64) {
    let file = File::create(folder.join(fs::read_dir(folder).unwrap().count().to_string())).unwrap();
    let space = rustix::fs::statvfs(folder).unwrap();
    let free = (space.f_bavail * space.f_frsize).saturating_sub(left);
    // Some of it is the file system's own, to note down what is where.
    let tries = (0..64).map(|times| free.saturating_sub(times * 64 * 1024));
    let taken = { tries }.find(|bytes| {
        *bytes > 0 && rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, *bytes).is_ok()
    });
    assert!(taken.is_some() || free < MIB, "{free} bytes are free and cannot be had");
}

/// Waits until the disk stopped the machine, and it says so.
fn stopped_by_disk(farm: &Farm) -> String {
    let message = patience::until_within(patience::TOO_LONG_FOR_A_GUEST, "the guest to be stopped", || {
        let instance = farm.api().get(&format!("{INSTANCES}/fills")).object();
        let conditions = instance["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let paused = conditions.into_iter().find(|one| one["type"] == "Paused" && one["status"] == "True")?;
        assert_eq!(paused["reason"], "PausedIOError", "{paused}");
        Some(paused["message"].as_str().unwrap().to_owned())
    });
    assert!(message.contains("disk is full") && message.contains("nothing is lost"), "{message}");
    patience::until("the machine to say that it is paused", || {
        let machine = farm.api().get(&format!("{MACHINES}/fills")).object();
        (machine["status"]["printableStatus"] == "Paused").then_some(())
    });
    message
}

fn goes_on(farm: &Farm) {
    patience::until("the guest to go on", || {
        let instance = farm.api().get(&format!("{INSTANCES}/fills")).object();
        let conditions = instance["status"]["conditions"].as_array().cloned().unwrap_or_default();
        (!conditions.iter().any(|one| one["type"] == "Paused")).then_some(())
    });
}

/// The topmost layer of a claim's volume.
fn layer_of(farm: &Farm, claim: &str) -> PathBuf {
    let claim = farm.api().get(&format!("{CLAIMS}/{claim}")).object();
    let uid = claim["metadata"]["uid"].as_str().unwrap();
    let folder = farm.node.data_dir().join("volumes").join(uid);
    let entries = fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.path());
    let layers = entries.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("layer-"));
    layers.max().unwrap()
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&said));
}

/// Every block has its number, and nothing else stands in it.
fn has_all_blocks(disk: &Path, first: u64) {
    let disk = File::open(disk).unwrap();
    let mut found = vec![0; usize::try_from(MIB).unwrap()];
    for number in 0..BLOCKS {
        disk.read_exact_at(&mut found, (first + number) * MIB).unwrap();
        let mut wanted = b"abcdefg\n".repeat(1 << 17);
        wanted[..7].copy_from_slice(format!("{number:07}").as_bytes());
        assert!(found == wanted, "block {number} is not what was written: {:?}", &found[..16]);
    }
}

#[test]
fn guests_on_a_full_disk_pause_and_go_on_when_there_is_room_and_nothing_is_lost() {
    let Some(guest) = guests::tiny() else { return };
    let mut farm = Farm::start_on_disk(1024 * MIB);
    set_storage_percent(&farm, 300);
    farm.image("tiny", &guest.disk);
    let hog = farm.node.scratch().join("hog.raw");
    fs::write(&hog, vec![7; usize::try_from(150 * MIB).unwrap()]).unwrap();
    farm.image("hog", &hog);
    patience::until("the last orders to have their reserve", || {
        farm.node.data_dir().join("ballast").exists().then_some(())
    });

    let mut vm = machine("fills", UUID, Some("tiny"));
    let claims = json!([claim("fills", Some("tiny"), "300Mi"), claim("fills-raw", None, "300Mi")]);
    vm["metadata"]["annotations"] = json!({"harvesterhci.io/volumeClaimTemplates": claims.to_string()});
    vm["spec"]["runStrategy"] = "Always".into();
    let spec = &mut vm["spec"]["template"]["spec"];
    let disk = json!({"name": "raw", "disk": {"bus": "scsi"}});
    spec["domain"]["devices"]["disks"].as_array_mut().unwrap().push(disk);
    let volume = json!({"name": "raw", "persistentVolumeClaim": {"claimName": "fills-raw"}});
    spec["volumes"].as_array_mut().unwrap().push(volume);
    farm.api().post(MACHINES, &vm).object();
    let instance = farm.running("fills");
    let mut serial = farm.serial(&instance);
    serial.hears("tiny guest is up");

    // Somebody else takes all of the disk while the guest writes, faster than the node looks.
    let others = farm.node.data_dir().join("others");
    fs::create_dir(&others).unwrap();
    take_all_but(&others, 200 * MIB);
    serial.types(&format!("run {WRITE}"));
    serial.hears("wrote 3.");
    take_all_but(&others, 0);
    let told = stopped_by_disk(&farm);
    assert!(told.contains("MiB are free"), "{told}");
    assert!(!farm.node.data_dir().join("ballast").exists(), "what is kept for the last orders was given");
    patience::until("an event about it", || messages(&farm, "fills", "PausedIOError").into_iter().next());

    // A node that dies meanwhile finds it as it is, and a full disk keeps it neither from starting nor from taking orders.
    farm = farm.is_killed_and_started_again();
    farm.api().post(CLAIMS, &new_claim("made", "10Mi")).object();
    patience::until("a claim to be bound", || (phase(&farm, "made") == "Bound").then_some(()));
    stopped_by_disk(&farm);
    assert_eq!(farm.processes(UUID).len(), 1);
    farm.api().delete(&format!("{IMAGES}/hog"));
    goes_on(&farm);

    // Now there is room for some blocks more, until the guest is stopped in time.
    serial.hears("wrote 4");
    stopped_by_disk(&farm);
    fs::remove_dir_all(&others).unwrap();
    let wrote = serial.hears("all are written");
    goes_on(&farm);
    assert!(!wrote.contains("FAILED"), "the guest was told of an error: {wrote}");
    assert!(!messages(&farm, "fills", "Resumed").is_empty());

    let uid = farm.instance("fills").unwrap()["metadata"]["uid"].clone();
    assert_eq!(uid, instance["metadata"]["uid"], "it was one machine all the time");
    farm.set_run_strategy("fills", "Halted");
    farm.stopped("fills");
    let (layer, raw) = (layer_of(&farm, "fills"), layer_of(&farm, "fills-raw"));
    run("qemu-img", &["check", "-f", "qcow2", layer.to_str().unwrap()]);
    let whole = farm.node.scratch().join("whole.raw");
    run(
        "qemu-img",
        &["convert", "-f", "qcow2", "-O", "raw", layer.to_str().unwrap(), whole.to_str().unwrap()],
    );
    has_all_blocks(&whole, FIRST);
    has_all_blocks(&raw, 0);
}
