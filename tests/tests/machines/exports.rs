//! Images that are made of disks: while a guest writes to them, whatever it wrote.

use std::{fmt::Write, fs, path::Path, process::Command};

use serde_json::{Value, json};
use sheaf_tests::{
    dying::{after_steps, is_every_step_wanted},
    machines::{CLAIMS, Farm, IMAGES, MACHINES, Serial, claim, machine, uids_in},
    node::binary,
    patience,
};

use crate::steps::{self, NAME, Story};

const MIB: usize = 1 << 20;

fn of_claim(name: &str, claim: &str) -> Value {
    json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage",
        "metadata": {"name": name}, "spec": {"displayName": name, "sourceType": "export-from-volume",
            "pvcNamespace": "default", "pvcName": claim}})
}

fn export(farm: &Farm, name: &str, claim: &str) {
    farm.api().post(IMAGES, &of_claim(name, claim)).object();
}

fn imported(farm: &Farm, name: &str) -> Value {
    patience::until(format!("image {name} to be imported"), || {
        let image = farm.api().get(&format!("{IMAGES}/{name}")).object();
        (condition(&image, "Imported")["status"] == "True").then_some(image)
    })
}

fn condition(image: &Value, kind: &str) -> Value {
    let conditions = image["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|one| one["type"] == kind).unwrap_or_default()
}

/// What is in an image, as whoever downloads it reads it.
fn content(farm: &Farm, name: &str) -> Vec<u8> {
    let file = farm.node.scratch().join(format!("{name}.qcow2"));
    let raw = file.with_extension("raw");
    let (file, raw) = (file.to_str().unwrap(), raw.to_str().unwrap());
    let kubeconfig = farm.node.admin_kubeconfig();
    run(Command::new(binary()).args(["image", "download", name, file]).arg("--kubeconfig").arg(kubeconfig));
    let told = run(Command::new("qemu-img").args(["info", "-f", "qcow2", file]));
    assert!(!told.contains("backing"), "{told}");
    run(Command::new("qemu-img").args(["check", "-q", "-f", "qcow2", file]));
    run(Command::new("qemu-img").args(["convert", "-f", "qcow2", "-O", "raw", file, raw]));
    fs::read(raw).unwrap()
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A machine with one more disk, which its guest knows as `sda`.
fn machine_with_data(farm: &Farm, name: &str, number: u32) -> Serial {
    let mut vm = machine(name, &format!("aaaaaaaa-0000-4000-8000-{number:012}"), Some("tiny"));
    let data = format!("{name}-data");
    let claims = json!([claim(name, Some("tiny"), "64Mi"), claim(&data, None, "16Mi")]);
    vm["metadata"]["annotations"] = json!({"harvesterhci.io/volumeClaimTemplates": claims.to_string()});
    vm["spec"]["runStrategy"] = "Always".into();
    let spec = &mut vm["spec"]["template"]["spec"];
    let disks = spec["domain"]["devices"]["disks"].as_array_mut().unwrap();
    disks.push(json!({"name": "data", "disk": {"bus": "scsi"}}));
    let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": data}});
    spec["volumes"].as_array_mut().unwrap().push(volume);
    farm.api().post(MACHINES, &vm).object();
    let mut serial = farm.serial(&farm.running(name));
    serial.hears("tiny guest is up");
    serial
}

/// The first bytes of a qcow2 that lies on a file of the host.
fn header_that_names(secret: &Path) -> Vec<u8> {
    let file = secret.with_extension("qcow2");
    let (path, secret) = (file.to_str().unwrap(), secret.to_str().unwrap());
    run(Command::new("qemu-img")
        .args(["create", "-q", "-f", "qcow2", "-F", "raw", "-b", secret, path, "16M"]));
    let mut header = fs::read(&file).unwrap();
    header.truncate(1024);
    let end = header.iter().rposition(|byte| *byte != 0).unwrap();
    header.truncate(end + 1);
    header
}

/// Nothing is left of what an image was made with.
fn only_the_image_stays(farm: &Farm) {
    patience::until("nothing to be left of an export", || {
        let data_dir = farm.node.data_dir();
        let snapshots = fs::read_dir(data_dir.join("snapshots")).unwrap().count();
        let workshops = uids_in(&data_dir).iter().filter(|uid| uid.starts_with("workshop")).count();
        (snapshots == 0 && workshops == 0).then_some(())
    });
}

#[test]
fn a_disk_is_exported_while_its_machine_runs_whatever_its_guest_makes_it_look_like() {
    let Some(farm) = Farm::with_tiny_guest() else { return };
    let secret = farm.node.scratch().join("secret");
    fs::write(&secret, b"what no guest may see".repeat(MIB / 20)).unwrap();
    let header = header_that_names(&secret);
    let mut serial = machine_with_data(&farm, "exporter", 1);
    let mut typed = String::new();
    for byte in &header {
        write!(typed, "\\{byte:03o}").unwrap();
    }
    // A line that is too long is cut by the terminal.
    for (part, piece) in typed.as_bytes().chunks(800).enumerate() {
        let piece = std::str::from_utf8(piece).unwrap();
        let at = part * 200;
        serial.runs(&format!(
            "printf '{piece}' | dd of=/dev/sda bs=1 seek={at} conv=notrunc,fsync 2>/dev/null"
        ));
    }
    serial.runs("echo marked | dd of=/dev/sda bs=1M seek=5 conv=notrunc,fsync 2>/dev/null");

    export(&farm, "exported", "exporter-data");
    let image = imported(&farm, "exported");
    let status = &image["status"];
    assert_eq!((&status["virtualSize"], &status["progress"]), (&json!(16 * MIB), &json!(100)));
    assert!(status["size"].as_u64().unwrap() < MIB as u64, "what nobody wrote takes no space: {status}");
    only_the_image_stays(&farm);
    serial.runs("echo after__ | dd of=/dev/sda bs=1M seek=5 conv=notrunc,fsync 2>/dev/null");

    let exported = content(&farm, "exported");
    assert_eq!(exported.len(), 16 * MIB);
    assert_eq!(exported[..header.len()], header[..], "what looks like a header is content");
    assert!(exported[5 * MIB..].starts_with(b"marked"));
    assert!(
        !exported.windows(21).any(|part| part == b"what no guest may see"),
        "the host's file is not in it"
    );

    // A disk of the image, beside the one that the image was made of.
    let mut copy = claim("copy", Some("exported"), "16Mi");
    (copy["apiVersion"], copy["kind"]) = ("v1".into(), "PersistentVolumeClaim".into());
    patience::until("the image to have its class", || {
        let class = farm.api().get("/apis/storage.k8s.io/v1/storageclasses/longhorn-exported");
        (class.code == 200).then_some(())
    });
    farm.api().post(CLAIMS, &copy).object();
    let add = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/exporter/addvolume";
    let body = json!({"name": "copy", "disk": {"name": "copy", "disk": {"bus": "scsi"}},
        "volumeSource": {"persistentVolumeClaim": {"claimName": "copy"}}});
    let answer = farm.api().put(add, &body);
    assert_eq!(answer.code, 202, "{}", answer.text());
    serial.runs("until [ -e /sys/block/sdb ]; do sleep 0.1; done");
    assert_eq!(serial.runs("dd if=/dev/sdb bs=1M skip=5 count=1 2>/dev/null | head -c 6").trim(), "marked");
    let differ = serial.runs("cmp -l /dev/sda /dev/sdb | wc -l");
    assert_eq!(differ.trim(), "8", "they differ where it was written since, and nowhere else");

    // An image of the exported one, and the root disk, which lies on an image itself.
    let source = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage",
        "metadata": {"name": "clone"}, "spec": {"displayName": "clone", "sourceType": "clone",
            "securityParameters": {"cryptoOperation": "", "sourceImageName": "exported",
                "sourceImageNamespace": "default"}}});
    farm.api().post(IMAGES, &source).object();
    imported(&farm, "clone");
    assert_eq!(content(&farm, "clone"), exported);
    export(&farm, "root", "exporter");
    imported(&farm, "root");
    let mut vm = machine("second", "aaaaaaaa-0000-4000-8000-000000000002", Some("root"));
    vm["spec"]["runStrategy"] = "Always".into();
    farm.api().post(MACHINES, &vm).object();
    farm.serial(&farm.running("second")).hears("tiny guest is up");
}

#[test]
fn a_claim_that_nobody_used_is_exported_empty_and_one_that_is_not_there_is_refused() {
    let farm = Farm::start();
    let mut unused = claim("unused", None, "8Mi");
    (unused["apiVersion"], unused["kind"]) = ("v1".into(), "PersistentVolumeClaim".into());
    farm.api().post(CLAIMS, &unused).object();
    export(&farm, "empty", "unused");
    imported(&farm, "empty");
    assert_eq!(content(&farm, "empty"), vec![0; 8 * MIB]);

    let refused = farm.api().post(IMAGES, &of_claim("impossible", "nobody"));
    assert_eq!(refused.code, 422);
    assert!(refused.text().contains("spec.pvcName: Not found: \\\"default/nobody\\\""), "{}", refused.text());
    only_the_image_stays(&farm);
    farm.api().delete(&format!("{IMAGES}/empty"));
    patience::until("the image to be gone", || {
        (farm.api().get(&format!("{IMAGES}/empty")).code == 404).then_some(())
    });
    assert_eq!(fs::read_dir(farm.node.data_dir().join("images")).unwrap().count(), 0);
}

/// The images that a node has anything of, finished or not.
fn images_on_disk(farm: &Farm) -> usize {
    fs::read_dir(farm.node.data_dir().join("images")).unwrap().count()
}

fn delete(farm: &Farm, name: &str) {
    let code = farm.api().delete(&format!("{IMAGES}/{name}")).code;
    assert!(code < 300 || code == 404, "{code}");
}

fn is_gone(farm: &Farm, name: &str) -> bool {
    farm.api().get(&format!("{IMAGES}/{name}")).code == 404
}

#[test]
fn an_export_survives_death_after_every_kind_of_step() {
    let mut story = Story::begin("aaaaaaaa-0000-4000-8000-000000000003");
    steps::start(story.farm());
    let before = story.is_running("none");
    let ask = |farm: &Farm| {
        let code = farm.api().post(IMAGES, &of_claim("exported", NAME)).code;
        assert!(code == 201 || code == 409, "{code}");
    };
    let is_imported = |farm: &Farm| {
        let image = farm.api().get(&format!("{IMAGES}/exported")).object();
        condition(&image, "Imported")["status"] == "True"
    };
    after_steps(8, |last| {
        let death = story.dies(last, ask, is_imported);
        // What was not acknowledged is asked for again.
        ask(story.farm());
        imported(story.farm(), "exported");
        only_the_image_stays(story.farm());
        let content = content(story.farm(), "exported");
        assert!(content[..MIB].iter().all(|byte| *byte == 7), "step {last}");
        assert_eq!(story.is_running(last), before, "step {last}: the machine goes on");
        delete(story.farm(), "exported");
        patience::until("the image to be gone", || is_gone(story.farm(), "exported").then_some(()));
        assert_eq!(images_on_disk(story.farm()), 1, "step {last}: the machine's own");
        death
    });
}

/// How far an export gets before its deletion is seen is not the same each time, so these deaths are counted by number.
#[test]
fn an_export_that_is_not_wanted_any_more_leaves_nothing_wherever_the_node_dies() {
    let mut story = Story::begin("aaaaaaaa-0000-4000-8000-000000000004");
    steps::start(story.farm());
    let before = story.is_running("none");
    for number in (1..120).step_by(if is_every_step_wanted() { 1 } else { 3 }) {
        let ask = |farm: &Farm| {
            export(farm, "unwanted", NAME);
            delete(farm, "unwanted");
        };
        let death = story.dies(&number.to_string(), ask, |farm| is_gone(farm, "unwanted"));
        delete(story.farm(), "unwanted");
        patience::until("the image to be gone", || is_gone(story.farm(), "unwanted").then_some(()));
        only_the_image_stays(story.farm());
        assert_eq!(images_on_disk(story.farm()), 1, "step {number}: the machine's own");
        assert_eq!(story.is_running("any"), before, "step {number}: the machine goes on");
        if death.survived {
            return;
        }
    }
}
