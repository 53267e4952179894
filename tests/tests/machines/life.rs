//! The life of machines with a real guest in them, from their creation to their end.

use std::{fs, sync::OnceLock, thread, time::Duration};

use serde_json::{Value, json};
use sheaf_tests::{
    machines::{Farm, INSTANCES, MACHINES, NETWORKS, boot_from, control_group_files, machine, network},
    patience,
};

/// The farm that most tests share, with the image `tiny`.
fn farm() -> Option<&'static Farm> {
    static FARM: OnceLock<Option<Farm>> = OnceLock::new();
    FARM.get_or_init(Farm::with_tiny_guest).as_ref()
}

fn uuid(number: u32) -> String {
    format!("22222222-0000-4000-8000-{number:012}")
}

/// Creates a machine that runs by `strategy`, after `change`.
fn create(farm: &Farm, name: &str, number: u32, strategy: &str, change: impl FnOnce(&mut Value)) {
    let mut vm = machine(name, &uuid(number), Some("tiny"));
    vm["spec"]["runStrategy"] = strategy.into();
    // The guest hears the button once it is up.
    vm["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 60.into();
    change(&mut vm);
    farm.api().post(MACHINES, &vm).object();
}

fn kill(pid: i32) {
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(pid).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
}

fn conditions(instance: &Value, kind: &str) -> Value {
    let all = instance["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|one| one["type"] == kind).unwrap_or_default()
}

#[test]
fn what_a_machine_uses_is_counted_by_its_node_and_kept_for_graphs() {
    let Some(farm) = farm() else { return };
    create(farm, "counted", 50, "Always", |_| {});
    farm.running("counted");
    let of_it = |metric: &str| format!("{metric}{{node=\"n1\",namespace=\"default\",name=\"counted\"");
    patience::until("its processor time to be counted", || {
        let page = farm.api().get("/metrics");
        let used =
            page.text().lines().find(|line| line.starts_with(&of_it("kubevirt_vmi_cpu_usage_seconds_total")));
        used?.rsplit(' ').next()?.parse::<f64>().ok().filter(|seconds| *seconds > 0.0)
    });
    let page = farm.api().get("/metrics");
    assert!(page.text().lines().any(|line| line.starts_with(&of_it("kubevirt_vmi_info"))), "{}", page.text());
    let history =
        "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/counted/history";
    patience::until("its history to begin", || {
        let points = farm.api().get(history).object()["points"].as_array().cloned().unwrap_or_default();
        points
            .iter()
            .any(|point| point["memoryBytes"].as_u64().is_some_and(|bytes| bytes > 1 << 20))
            .then_some(())
    });
    farm.api().delete(&format!("{MACHINES}/counted"));
}

#[test]
fn a_machine_boots_and_obeys_its_power_button_and_leaves_nothing_but_its_disk() {
    let Some(farm) = farm() else { return };
    create(farm, "boots", 1, "Always", |_| {});
    let instance = farm.running("boots");
    let mut serial = farm.serial(&instance);
    let report = serial.hears("END report");
    assert!(report.contains("disk vda virtio 67108864 ro=0"), "{report}");
    assert!(report.contains("disk vdb virtio") && report.contains("ro=1"), "{report}");
    serial.hears("tiny guest is up");

    let pod_name = format!(
        "virt-launcher-boots-{}",
        &instance["metadata"]["uid"].as_str().unwrap().replace('-', "")[..5]
    );
    let pod = format!("/api/v1/namespaces/default/pods/{pod_name}");
    let shown = patience::until("its pod to be shown as running", || {
        let answer = farm.api().get(&pod);
        (answer.code == 200).then(|| answer.object()).filter(|pod| pod["status"]["phase"] == "Running")
    });
    assert_eq!(shown["spec"]["nodeName"], "n1");
    assert_eq!(farm.api().delete(&pod).code, 405, "pods are only read");

    farm.set_run_strategy("boots", "Halted");
    serial.hears("power button");
    farm.stopped("boots");
    assert_eq!(farm.processes(&uuid(1)), [] as [i32; 0]);
    assert_ne!(farm.api().get(&pod).code, 200);
    let events = farm.api().get("/api/v1/namespaces/default/events").object();
    let events = events["items"].as_array().unwrap().clone();
    let told: Vec<&str> = events
        .iter()
        .filter(|event| event["involvedObject"]["uid"] == instance["metadata"]["uid"])
        .map(|event| event["reason"].as_str().unwrap())
        .collect();
    for reason in ["Created", "Started", "ShuttingDown", "Stopped", "Deleted"] {
        assert!(told.contains(&reason), "{reason} is not among {told:?}");
    }
}

#[test]
fn every_bus_is_what_the_guest_sees() {
    let Some(farm) = farm() else { return };
    let Some(()) = farm.bring_guest_with_every_bus() else { return };
    create(farm, "buses", 2, "Always", |vm| {
        boot_from(vm, "every-bus");
        let claim = |name: &str| {
            json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Block",
                "resources": {"requests": {"storage": "8Mi"}}}})
        };
        let mut claims: Value = serde_json::from_str(
            vm["metadata"]["annotations"]["harvesterhci.io/volumeClaimTemplates"].as_str().unwrap(),
        )
        .unwrap();
        let spec = &mut vm["spec"]["template"]["spec"];
        let long = "pvc-0e9ad7f6-6f2c-4a3e-9d8c-0a1b2c3d4e5f";
        for (name, claim_name, target) in [
            ("scsi", long, json!({"disk": {"bus": "scsi"}})),
            ("sata", "buses-sata", json!({"disk": {"bus": "sata"}, "serial": "SATA1"})),
            ("disc", "buses-disc", json!({"cdrom": {"bus": "sata"}})),
        ] {
            claims.as_array_mut().unwrap().push(claim(claim_name));
            let mut disk = target;
            disk["name"] = name.into();
            spec["domain"]["devices"]["disks"].as_array_mut().unwrap().push(disk);
            let volume = json!({"name": name, "persistentVolumeClaim": {"claimName": claim_name}});
            spec["volumes"].as_array_mut().unwrap().push(volume);
        }
        vm["metadata"]["annotations"]["harvesterhci.io/volumeClaimTemplates"] = claims.to_string().into();
        let devices = &mut vm["spec"]["template"]["spec"]["domain"]["devices"];
        devices["rng"] = json!({});
        devices["interfaces"]
            .as_array_mut()
            .unwrap()
            .push(json!({"name": "second", "bridge": {}, "model": "e1000e"}));
        vm["spec"]["template"]["spec"]["networks"]
            .as_array_mut()
            .unwrap()
            .push(json!({"name": "second", "multus": {"networkName": "default/plain"}}));
    });
    farm.api().post(NETWORKS, &network("plain", json!({}))).object();
    let instance = farm.running("buses");
    let names: Vec<&str> = instance["status"]["interfaces"]
        .as_array()
        .unwrap()
        .iter()
        .map(|i| i["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["default", "second"]);
    let report = farm.serial(&instance).hears("END report");
    for seen in [
        "disk vda virtio",
        "scsi 8388608 ro=0 removable=0 disk",
        "id=",
        "pvc-0e9ad7f6-6f2c-4a3e-9d8c-0a1b2c3d4e5f",
        "sata 8388608 ro=0 removable=0 disk serial=SATA1",
        "sata 8388608 ro=1 removable=1 cdrom",
        "virtio_net",
        "e1000e",
        "rng virtio_rng.0",
        "port org.qemu.guest_agent.0",
    ] {
        assert!(report.contains(seen), "the guest does not see {seen:?}: {report}");
    }
    farm.api().delete(&format!("{MACHINES}/buses"));
}

#[test]
#[ignore = "boots six guests at once, which takes minutes under emulation: `make soak` does"]
fn soak_run_strategies_say_what_follows_when_a_guest_goes_by_itself_and_when_it_dies() {
    let Some(farm) = farm() else { return };
    // strategy, after a shutdown from inside, after a crash: whether there is another instance.
    let strategies = [("Always", true, true), ("RerunOnFailure", false, true), ("Once", false, false)];
    let mut consoles = Vec::new();
    for (number, (strategy, _, _)) in (10..).zip(strategies) {
        for (offset, end) in [(0, "goes"), (5, "dies")] {
            let name = format!("{}-{end}", strategy.to_lowercase());
            create(farm, &name, number + offset, strategy, |_| {});
            // Listened to from the beginning: what a guest says to nobody is gone.
            consoles.push(farm.serial(&farm.running(&name)));
        }
    }
    let mut consoles = consoles.into_iter();
    for (number, (strategy, after_shutdown, after_crash)) in (10..).zip(strategies) {
        for (offset, end, expected) in [(0, "goes", after_shutdown), (5, "dies", after_crash)] {
            let name = format!("{}-{end}", strategy.to_lowercase());
            let instance = farm.running(&name);
            let uid = instance["metadata"]["uid"].clone();
            // Held until the end: what was typed into a console that is closed at once may not be read.
            let mut serial = consoles.next().unwrap();
            match end {
                "goes" => {
                    serial.hears("tiny guest is up");
                    serial.types("poweroff");
                }
                _ => kill(farm.processes(&uuid(number + offset))[0]),
            }
            let what = format!("{name}: {}", if expected { "another instance" } else { "no other instance" });
            let settled = patience::until(what, || {
                let now = farm.instance(&name);
                let is_other = now.as_ref().is_some_and(|now| now["metadata"]["uid"] != uid);
                let is_over = now.as_ref().is_none_or(|now| {
                    now["metadata"]["uid"] == uid
                        && ["Succeeded", "Failed"].iter().any(|phase| now["status"]["phase"] == *phase)
                });
                if expected { is_other.then_some(true) } else { is_over.then_some(false) }
            });
            assert_eq!(settled, expected);
            if !expected {
                thread::sleep(Duration::from_secs(2));
                let now = farm.instance(&name);
                assert!(now.is_none_or(|now| now["metadata"]["uid"] == uid), "{name} was started again");
            }
            farm.api().delete(&format!("{MACHINES}/{name}"));
        }
    }
}

#[test]
fn what_cannot_be_started_tells_its_owner_why_and_qemu_in_its_own_words() {
    let Some(farm) = farm() else { return };
    let cases = [
        // Known before a process is made.
        ("unknown-model", 3, json!({"cpu": {"cores": 1, "model": "Weitek"}}), "no CPU model \"Weitek\""),
        // Only trying it tells.
        (
            "too-much",
            17,
            json!({"cpu": {"cores": 1}, "memory": {"guest": "4Ti"}, "resources": {"requests": {"memory": "64Mi"}}}),
            "Cannot allocate memory",
        ),
    ];
    for (name, number, hardware, reason) in cases {
        create(farm, name, number, "Always", |vm| {
            let domain = vm["spec"]["template"]["spec"]["domain"].as_object_mut().unwrap();
            domain.extend(hardware.as_object().unwrap().clone());
        });
        let condition = patience::until(format!("the reason of {name} to be told"), || {
            let instance = farm.instance(name)?;
            let condition = conditions(&instance, "Synchronized");
            // Before it has a node it waits for its claim and its address, and says so.
            (condition["status"] == "False" && condition["reason"] != "NotReady").then_some(condition)
        });
        assert!(condition["message"].as_str().unwrap().contains(reason), "{condition}");
        assert_eq!(farm.instance(name).unwrap()["status"]["phase"], "Scheduled");
        farm.api().delete(&format!("{MACHINES}/{name}"));
    }
}

#[test]
fn a_machine_waits_for_a_secret_that_comes_after_it() {
    let Some(farm) = farm() else { return };
    create(farm, "waits", 4, "Always", |vm| {
        vm["spec"]["template"]["spec"]["volumes"][1] =
            json!({"name": "seed", "cloudInitNoCloud": {"secretRef": {"name": "waits-seed"}}});
    });
    patience::until("it to say what it waits for", || {
        let condition = conditions(&farm.instance("waits")?, "Synchronized");
        condition["message"].as_str()?.contains("waiting for Secret waits-seed").then_some(())
    });
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "waits-seed"},
        "stringData": {"userdata": "#cloud-config\nhostname: late\n"}});
    farm.api().post("/api/v1/namespaces/default/secrets", &secret).object();
    let instance = farm.running("waits");
    let mut serial = farm.serial(&instance);
    serial.hears("tiny guest is up");
    assert!(serial.runs("strings /dev/vdb").contains("hostname: late"));
    farm.api().delete(&format!("{MACHINES}/waits"));
}

#[test]
fn trap_14_a_guest_gets_the_address_that_is_shown_keeps_it_and_cannot_take_anothers() {
    let Some(farm) = farm() else { return };
    create(farm, "honest", 5, "Always", |_| {});
    let instance = farm.running("honest");
    let address = instance["status"]["interfaces"][0]["ipAddress"].as_str().unwrap().to_owned();
    let gateway = format!("{}.1", address.rsplit_once('.').unwrap().0);
    let mut serial = farm.serial(&instance);
    serial.hears("tiny guest is up");
    serial.runs("ip link set eth0 up");
    let offered = serial.runs("udhcpc -i eth0 -n -q -s /bin/true 2>&1");
    assert!(offered.contains(&format!("lease of {address} obtained")), "{offered}");
    let reaches = |serial: &mut sheaf_tests::machines::Serial| {
        serial
            .runs(&format!("ping -c 2 -W 2 {gateway} >/dev/null && echo reached || echo lost"))
            .contains("reached")
    };
    serial.runs(&format!("ip addr add {address}/24 dev eth0"));
    assert!(reaches(&mut serial), "with its own address it is heard");
    // Somebody else's address.
    let other = format!("{}.200", address.rsplit_once('.').unwrap().0);
    serial.runs(&format!("ip addr flush dev eth0; ip addr add {other}/24 dev eth0"));
    assert!(!reaches(&mut serial), "with another's address it is not");
    // Somebody else's hardware address.
    serial.runs("ip addr flush dev eth0; ip link set eth0 down; ip link set eth0 address 02:00:00:00:00:99; ip link set eth0 up");
    serial.runs(&format!("ip addr add {address}/24 dev eth0"));
    assert!(!reaches(&mut serial), "with another's hardware address it is not");

    farm.set_run_strategy("honest", "Halted");
    farm.stopped("honest");
    farm.set_run_strategy("honest", "Always");
    let again = farm.running("honest");
    assert_eq!(again["status"]["interfaces"][0]["ipAddress"], address.as_str(), "its address stays");
    farm.api().delete(&format!("{MACHINES}/honest"));
}

#[test]
fn machines_outlive_their_node_and_come_back_when_everything_died() {
    let Some(mut farm) = Farm::with_tiny_guest() else { return };
    create(&farm, "outlives", 6, "Always", |_| {});
    let instance = farm.running("outlives");
    let processes = farm.processes(&uuid(6));
    let network = farm.arguments()[1].to_owned();
    let arguments = ["--vm-cidr", &network, "--allow-local-images"];

    // SIGTERM.
    farm.node.terminate();
    assert_eq!(farm.processes(&uuid(6)), processes, "it goes on without its node");
    let farm = Farm::with_node(farm.node.start_again_with(&arguments), &network);
    let found = farm.running("outlives");
    assert_eq!(found["metadata"]["uid"], instance["metadata"]["uid"]);
    assert_eq!(farm.processes(&uuid(6)), processes);

    // The host goes down: node and machines.
    let mut farm = farm;
    farm.node.kill();
    kill(processes[0]);
    let farm = Farm::with_node(farm.node.start_again_with(&arguments), &network);
    let again = patience::until("it to run again", || {
        farm.instance("outlives").filter(|now| {
            now["status"]["phase"] == "Running" && now["metadata"]["uid"] != instance["metadata"]["uid"]
        })
    });
    assert_ne!(farm.processes(&uuid(6)), processes);
    assert_eq!(farm.processes(&uuid(6)).len(), 1);

    // Somebody removed the object by force: what is on the host goes, too.
    let path = format!("{INSTANCES}/outlives");
    farm.set_run_strategy("outlives", "Halted");
    farm.api().patch(&path, "merge", &json!({"metadata": {"finalizers": null}}).to_string());
    patience::until("its process to end", || farm.processes(&uuid(6)).is_empty().then_some(()));
    let uid = again["metadata"]["uid"].as_str().unwrap().to_owned();
    patience::until("nothing to be left of it", || {
        let left = farm.leftovers(std::slice::from_ref(&uid));
        left.iter().all(|what| what.contains("/volumes/")).then_some(())
    });
}

#[test]
#[ignore = "writes a gigabyte from a guest: for make soak"]
fn soak_a_guest_that_uses_all_its_memory_and_writes_more_than_that_lives() {
    let Some(farm) = farm() else { return };
    create(farm, "greedy", 18, "Always", |vm| {
        let claims = &mut vm["metadata"]["annotations"]["harvesterhci.io/volumeClaimTemplates"];
        *claims = claims.as_str().unwrap().replace("64Mi", "1Gi").into();
        vm["spec"]["template"]["spec"]["domain"]["memory"]["guest"] = "256Mi".into();
    });
    let instance = farm.running("greedy");
    let process = farm.processes(&uuid(18))[0];
    let mut serial = farm.serial(&instance);
    serial.hears("tiny guest is up");
    // More than this, and the guest's own kernel would begin to kill.
    let filled = serial.runs(
        "mkdir /fill; mount -t tmpfs -o size=100% none /fill; dd if=/dev/zero of=/fill/x bs=1M count=128 2>&1",
    );
    assert!(filled.contains("128+0 records out"), "{filled}");
    // More than its limit: what the host caches of it must be given back, not held against it.
    let written = serial.runs("dd if=/dev/zero of=/dev/vda bs=1M count=900 conv=fsync 2>&1");
    assert!(written.contains("900+0 records out"), "{written}");
    assert_eq!(farm.processes(&uuid(18)), [process], "it was not killed");
    let uid = instance["metadata"]["uid"].as_str().unwrap();
    let limits = control_group_files(uid, &["memory.max", "memory.limit_in_bytes"]);
    assert!(!limits.is_empty(), "its memory is limited");
    for (limit, text) in limits {
        let bytes: u64 = text.trim().parse().unwrap();
        assert!((256 << 20..900 << 20).contains(&bytes), "{limit}: {bytes}");
    }
    for (file, text) in control_group_files(uid, &["memory.events", "memory.oom_control"]) {
        let kills = text.lines().find_map(|line| line.strip_prefix("oom_kill ")).unwrap_or("0");
        assert_eq!(kills, "0", "{file}");
    }
    farm.api().delete(&format!("{MACHINES}/greedy"));
}

#[test]
fn every_qemu_has_a_user_of_its_own_and_nothing_to_gain() {
    let Some(farm) = farm() else { return };
    for (number, name) in [(7, "alone-a"), (8, "alone-b")] {
        create(farm, name, number, "Always", |_| {});
    }
    let mut users = Vec::new();
    for (number, name) in [(7, "alone-a"), (8, "alone-b")] {
        farm.running(name);
        let pid = farm.processes(&uuid(number))[0];
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let field = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        let user = field("Uid:")[0].clone();
        assert!(field("Uid:").iter().all(|id| *id == user && id != "0"), "{status}");
        assert_eq!(field("NoNewPrivs:"), ["1"]);
        assert_eq!(field("Seccomp:"), ["2"], "a filter of system calls");
        assert_eq!(field("CapEff:"), ["0000000000000000"]);
        users.push(user);
        farm.api().delete(&format!("{MACHINES}/{name}"));
    }
    assert_ne!(users[0], users[1]);
}
