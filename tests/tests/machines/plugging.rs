//! What is plugged into machines that run, and pulled out of them, with a guest that looks.

use std::sync::OnceLock;

use serde_json::{Value, json};
use sheaf_tests::{
    machines::{CLAIMS, Farm, INSTANCES, MACHINES, Serial, boot_from, claim, machine},
    patience,
};

fn farm() -> Option<&'static Farm> {
    static FARM: OnceLock<Option<Farm>> = OnceLock::new();
    FARM.get_or_init(Farm::with_tiny_guest).as_ref()
}

/// Starts a machine, after `change`, and waits until its guest is up.
fn start(farm: &Farm, name: &str, number: u32, change: impl FnOnce(&mut Value)) -> (Value, Serial) {
    let mut vm = machine(name, &format!("77777777-0000-4000-8000-{number:012}"), Some("tiny"));
    vm["spec"]["runStrategy"] = "Always".into();
    change(&mut vm);
    farm.api().post(MACHINES, &vm).object();
    let instance = farm.running(name);
    let mut serial = farm.serial(&instance);
    serial.hears("tiny guest is up");
    (instance, serial)
}

fn make_claim(farm: &Farm, name: &str, size: &str) {
    let mut claim = claim(name, None, size);
    claim["apiVersion"] = "v1".into();
    claim["kind"] = "PersistentVolumeClaim".into();
    farm.api().post(CLAIMS, &claim).object();
}

/// What the CSI driver sends: two lists, each with one more at its end.
fn plug(farm: &Farm, machine: &str, name: &str) {
    let vm = farm.api().get(&format!("{MACHINES}/{machine}")).object();
    let patch = json!([
        {"op": "test", "path": "/metadata/resourceVersion", "value": vm["metadata"]["resourceVersion"]},
        {"op": "add", "path": "/spec/template/spec/volumes/-",
            "value": {"name": name, "persistentVolumeClaim": {"claimName": name, "hotpluggable": true}}},
        {"op": "add", "path": "/spec/template/spec/domain/devices/disks/-",
            "value": {"name": name, "disk": {"bus": "scsi"}}},
    ]);
    // The machine's status is written meanwhile, and moves its version: the driver tries again, too.
    let answer = farm.api().patch(&format!("{MACHINES}/{machine}"), "json", &patch.to_string());
    match answer.code {
        200 => {}
        409 | 422 => plug(farm, machine, name),
        code => panic!("{code}: {}", answer.text()),
    }
}

fn change(farm: &Farm, machine: &str, change: impl Fn(&mut Value)) {
    patience::until("a change to be taken", || {
        let mut vm = farm.api().get(&format!("{MACHINES}/{machine}")).object();
        change(&mut vm["spec"]["template"]["spec"]);
        let answer = farm.api().put(&format!("{MACHINES}/{machine}"), &vm);
        assert!([200, 409].contains(&answer.code), "{}", answer.text());
        (answer.code == 200).then_some(())
    });
}

fn unplug(farm: &Farm, machine: &str, name: &str) {
    change(farm, machine, |spec| {
        spec["volumes"].as_array_mut().unwrap().retain(|one| one["name"] != name);
        spec["domain"]["devices"]["disks"].as_array_mut().unwrap().retain(|one| one["name"] != name);
    });
}

/// How a volume of a running machine is; null once there is nothing of it.
fn volume(farm: &Farm, machine: &str, name: &str) -> Value {
    let instance = farm.instance(machine).unwrap_or_default();
    let all = instance["status"]["volumeStatus"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|one| one["name"] == name).unwrap_or_default()
}

fn is_ready(farm: &Farm, machine: &str, name: &str) -> Value {
    patience::until(format!("volume {name} to be ready: {}", volume(farm, machine, name)), || {
        Some(volume(farm, machine, name)).filter(|volume| volume["phase"] == "Ready")
    })
}

fn is_gone(farm: &Farm, machine: &str, name: &str) {
    patience::until(format!("volume {name} to be gone"), || {
        volume(farm, machine, name).is_null().then_some(())
    });
}

fn condition(farm: &Farm, path: &str, kind: &str) -> Value {
    let object = farm.api().get(path).object();
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|one| one["type"] == kind).unwrap_or_default()
}

#[test]
fn a_disk_is_found_by_its_claims_name_keeps_what_is_written_and_is_there_after_a_restart() {
    let Some(farm) = farm() else { return };
    let name = "pvc-0e9ad7f6-6f2c-4a3e-9d8c-0a1b2c3d4e5f";
    let (instance, mut serial) = start(farm, "plugs", 1, |_| {});
    make_claim(farm, name, "8Mi");
    for written in ["", "kept"] {
        plug(farm, "plugs", name);
        let status = is_ready(farm, "plugs", name);
        assert!(
            status["hotplugVolume"]["attachPodName"].as_str().is_some_and(|pod| !pod.is_empty()),
            "{status}"
        );
        assert_eq!(status["target"], "sda");
        assert_eq!(status["persistentVolumeClaimInfo"]["claimName"], name);
        serial.runs("until [ -e /sys/block/sda ]; do sleep 0.1; done");
        let ids = serial.runs("tr -cd ' -~' </sys/block/sda/device/vpd_pg83");
        assert!(ids.contains(name), "the guest finds it by its whole name: {ids}");
        assert_eq!(serial.runs("head -c 4 /dev/sda | tr -cd 'a-z'").trim(), written);
        serial.runs("echo kept | dd of=/dev/sda conv=notrunc,fsync 2>/dev/null");
        if written.is_empty() {
            unplug(farm, "plugs", name);
            is_gone(farm, "plugs", name);
            serial.runs("while [ -e /sys/block/sda ]; do sleep 0.1; done");
        }
    }
    let vm = format!("{MACHINES}/plugs");
    assert!(condition(farm, &vm, "RestartRequired").is_null(), "nothing waits for a restart");
    let now = farm.instance("plugs").unwrap();
    assert_eq!(now["metadata"]["uid"], instance["metadata"]["uid"], "it never stopped");

    let restart = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/plugs/restart";
    assert_eq!(farm.api().put(restart, &json!({})).code, 202);
    let again = patience::until("another instance", || {
        farm.instance("plugs").filter(|now| {
            now["metadata"]["uid"] != instance["metadata"]["uid"] && now["status"]["phase"] == "Running"
        })
    });
    let mut serial = farm.serial(&again);
    serial.hears("tiny guest is up");
    assert_eq!(serial.runs("head -c 4 /dev/sda").trim(), "kept");
    is_ready(farm, "plugs", name);
    farm.api().delete(&vm);
}

#[test]
fn a_claim_that_grows_grows_under_the_guest_and_what_cannot_change_says_so() {
    let Some(farm) = farm() else { return };
    let (_, mut serial) = start(farm, "grows", 2, |_| {});
    let bigger = json!({"spec": {"resources": {"requests": {"storage": "96Mi"}}}}).to_string();
    farm.api().patch(&format!("{CLAIMS}/grows"), "merge", &bigger).object();
    patience::until("the claim to have grown", || {
        let claim = farm.api().get(&format!("{CLAIMS}/grows")).object();
        (claim["status"]["capacity"]["storage"] == "96Mi").then_some(())
    });
    serial.runs("until [ $(cat /sys/block/vda/size) = 196608 ]; do sleep 0.1; done");

    let vm = format!("{MACHINES}/grows");
    change(farm, "grows", |spec| spec["domain"]["cpu"]["cores"] = json!(2));
    let told = patience::until("the condition to be told", || {
        Some(condition(farm, &vm, "RestartRequired")).filter(|condition| condition["status"] == "True")
    });
    assert!(told["message"].as_str().unwrap().contains("domain.cpu.cores"), "{told}");
    change(farm, "grows", |spec| spec["domain"]["cpu"]["cores"] = json!(1));
    patience::until("the condition to go", || {
        condition(farm, &vm, "RestartRequired").is_null().then_some(())
    });
    farm.api().delete(&vm);
}

#[test]
fn a_disc_is_ejected_and_another_inserted_while_the_guest_runs() {
    let Some(farm) = farm() else { return };
    let Some(()) = farm.bring_guest_with_every_bus() else { return };
    for (name, size) in [("disc-one", "1Mi"), ("disc-two", "2Mi")] {
        make_claim(farm, name, size);
    }
    let (_, mut serial) = start(farm, "discs", 3, |vm| {
        boot_from(vm, "every-bus");
        let spec = &mut vm["spec"]["template"]["spec"];
        let drive = json!({"name": "drive", "cdrom": {"bus": "sata"}});
        spec["domain"]["devices"]["disks"].as_array_mut().unwrap().push(drive);
        let disc = json!({"name": "drive", "persistentVolumeClaim": {"claimName": "disc-one"}});
        spec["volumes"].as_array_mut().unwrap().push(disc);
    });
    let has = |sectors: u32| {
        format!(
            "until [ $(cat /sys/block/sr0/size) = {sectors} ]; do head -c 1 /dev/sr0 >/dev/null 2>&1; sleep 0.2; done"
        )
    };
    serial.runs(&has(2048));
    change(farm, "discs", |spec| {
        spec["volumes"].as_array_mut().unwrap().retain(|volume| volume["name"] != "drive");
    });
    serial.runs("while head -c 1 /dev/sr0 >/dev/null 2>&1; do sleep 0.2; done");
    change(farm, "discs", |spec| {
        let disc = json!({"name": "drive", "persistentVolumeClaim": {"claimName": "disc-two"}});
        spec["volumes"].as_array_mut().unwrap().push(disc);
    });
    serial.runs(&has(4096));
    assert!(condition(farm, &format!("{MACHINES}/discs"), "RestartRequired").is_null());
    farm.api().delete(&format!("{MACHINES}/discs"));
}

#[test]
fn an_interface_processors_and_memory_come_to_a_machine_that_runs() {
    let Some(farm) = farm() else { return };
    let plain = json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": "late"},
        "spec": {"config": json!({"cniVersion": "0.3.1", "name": "late", "type": "bridge", "bridge": "mgmt-br",
            "promiscMode": true, "vlan": 0, "ipam": {}}).to_string()}});
    farm.api()
        .post("/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions", &plain)
        .object();
    let (_, mut serial) = start(farm, "gains", 4, |vm| {
        vm["metadata"]["annotations"]["harvesterhci.io/enableCPUAndMemoryHotplug"] = json!("true");
        vm["spec"]["template"]["spec"]["domain"]["cpu"] = json!({"sockets": 1});
        // What is plugged in is administered in what was there, which must be enough for both.
        vm["spec"]["template"]["spec"]["domain"]["memory"]["guest"] = json!("256Mi");
    });
    let taps = farm.taps().len();
    change(farm, "gains", |spec| {
        spec["domain"]["devices"]["interfaces"]
            .as_array_mut()
            .unwrap()
            .push(json!({"name": "late", "bridge": {}}));
        spec["networks"]
            .as_array_mut()
            .unwrap()
            .push(json!({"name": "late", "multus": {"networkName": "late"}}));
        spec["domain"]["cpu"]["sockets"] = json!(2);
        spec["domain"]["memory"]["guest"] = json!("384Mi");
    });
    let instance = patience::until("the interface to be told with its address", || {
        farm.instance("gains").filter(|instance| {
            instance["status"]["interfaces"][1]["ipAddress"]
                .as_str()
                .is_some_and(|address| !address.is_empty())
        })
    });
    let (mac, address) = (
        instance["status"]["interfaces"][1]["mac"].as_str().unwrap().to_owned(),
        instance["status"]["interfaces"][1]["ipAddress"].as_str().unwrap().to_owned(),
    );
    serial.runs(&format!("until grep -q {mac} /sys/class/net/*/address; do sleep 0.1; done"));
    serial.runs("ip link set eth1 up");
    let lease = serial.runs("udhcpc -i eth1 -n -q -f -s /bin/true 2>&1");
    assert!(lease.contains(&address), "{address} is not in {lease}");
    serial.runs("until echo 1 >/sys/devices/system/cpu/cpu1/online; do sleep 0.1; done 2>/dev/null");
    patience::until("processors and memory to be told", || {
        let status = farm.instance("gains")?["status"].clone();
        (status["currentCPUTopology"]["sockets"] == 2 && status["memory"]["guestCurrent"] == "384Mi")
            .then_some(())
    });
    let path = format!("{INSTANCES}/gains");
    assert!(condition(farm, &path, "HotMemoryChange").is_null());
    assert!(condition(farm, &format!("{MACHINES}/gains"), "RestartRequired").is_null());

    change(farm, "gains", |spec| {
        for interface in spec["domain"]["devices"]["interfaces"].as_array_mut().unwrap() {
            if interface["name"] == "late" {
                interface["state"] = json!("absent");
            }
        }
    });
    patience::until("the interface and its tap to be gone", || {
        let interfaces = farm.instance("gains")?["status"]["interfaces"].as_array().map_or(0, Vec::len);
        (interfaces == 1 && farm.taps().len() == taps).then_some(())
    });
    serial.runs(&format!("while grep -q {mac} /sys/class/net/*/address; do sleep 0.1; done"));
    farm.api().delete(&format!("{MACHINES}/gains"));
}
