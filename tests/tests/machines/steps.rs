//! A node that dies after every kind of step of what it does to a machine, one after the other: the next start finds
//! everything from the host and goes on. No machine is lost, doubled, or started again that need not be, and nothing is
//! left behind. `make soak` has it die after every single step.
//!
//! The machine has one of everything that a node makes for one, so that there is a step of each kind to die after.
//!
//! The steps are enumerated by running into them: the node is told to die after a step of a kind that it has not died after
//! yet (or after step 1, 2, 3 and so on), until what it was asked for is done before it dies.

use std::collections::BTreeSet;

use serde_json::json;
use sheaf_testbed::guests;
use sheaf_tests::{
    dying::{Death, after_steps, die_after, restart_mortal},
    machines::{CLAIMS, Farm, MACHINES, machine, rich_machine},
    patience,
};

pub const NAME: &str = "vm";

/// One farm on which a machine is put through the same thing again and again.
pub struct Story {
    farm: Option<Farm>,
    pub uuid: &'static str,
    /// All instances there ever were, to look for what they left.
    uids: Vec<String>,
}

impl Story {
    pub fn begin(uuid: &'static str) -> Story {
        let farm = Farm::start();
        farm.furnish();
        farm.api().post(MACHINES, &rich_machine(NAME, uuid)).object();
        Story::on(farm, uuid)
    }

    fn on(farm: Farm, uuid: &'static str) -> Story {
        Story { farm: Some(restart_mortal(farm)), uuid, uids: Vec::new() }
    }

    pub fn farm(&self) -> &Farm {
        self.farm.as_ref().unwrap()
    }

    /// Has the node die after step `last` of what it is asked for. A new node runs afterwards.
    pub fn dies(&mut self, last: &str, ask: impl Fn(&Farm), done: impl Fn(&Farm) -> bool) -> Death {
        let (farm, death) = die_after(self.farm.take().unwrap(), last, ask, done);
        self.farm = Some(farm);
        death
    }

    /// The machine runs, once; answers its instance's uid and its process.
    pub fn is_running(&mut self, last: &str) -> (String, i32) {
        let instance = self.farm().running(NAME);
        let uid = instance["metadata"]["uid"].as_str().unwrap().to_owned();
        if !self.uids.contains(&uid) {
            self.uids.push(uid.clone());
        }
        let interfaces = instance["status"]["interfaces"].as_array().cloned().unwrap_or_default();
        let addresses: BTreeSet<&str> =
            interfaces.iter().filter_map(|interface| interface["ipAddress"].as_str()).collect();
        let wanted = instance["spec"]["domain"]["devices"]["interfaces"].as_array().unwrap().len();
        assert_eq!(
            (addresses.len(), self.farm().taps().len()),
            (wanted, wanted),
            "step {last}: a running machine has its addresses, each on a tap: {interfaces:?}"
        );
        let processes = self.farm().processes(self.uuid);
        assert_eq!(processes.len(), 1, "step {last}: there is one of it: {processes:?}");
        (uid, processes[0])
    }

    /// Of an instance that was followed by another one of the same machine.
    fn nothing_is_left_of(&self, uid: &str, last: &str) {
        patience::until(format!("step {last}: nothing is left of instance {uid}"), || {
            let left = self.farm().leftovers(&[uid.to_owned()]);
            let is_there = left.iter().any(|what| what.contains(uid));
            (!is_there && self.farm().taps().len() == 2).then_some(())
        });
    }

    fn is_gone_from_the_host(&self, last: &str, but: &[&str]) {
        let farm = self.farm();
        assert_eq!(farm.processes(self.uuid), [] as [i32; 0], "step {last}: no process is left");
        let mut left = Vec::new();
        // The API says that something is gone a moment before the last of it is.
        for _ in 0..50 {
            left = farm.leftovers(&self.uids);
            left.retain(|what| !but.iter().any(|but| what.contains(but)));
            if left.is_empty() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        panic!("step {last}: something is left: {left:?}");
    }
}

pub fn start(farm: &Farm) {
    farm.set_run_strategy(NAME, "Always");
}

fn stop(farm: &Farm) {
    farm.set_run_strategy(NAME, "Halted");
}

fn runs(farm: &Farm) -> bool {
    farm.instance(NAME).is_some_and(|instance| instance["status"]["phase"] == "Running")
}

fn delete(farm: &Farm) {
    let code = farm.api().delete(&format!("{MACHINES}/{NAME}")).code;
    assert!(code < 300 || code == 404, "{code}");
}

/// The machine with all its claims and volumes.
fn is_gone(farm: &Farm) -> bool {
    let mut api = farm.api();
    api.get(&format!("{MACHINES}/{NAME}")).code == 404
        && api.get(CLAIMS).object()["items"] == json!([])
        && api.get("/api/v1/persistentvolumes").object()["items"] == json!([])
}

fn restart(farm: &Farm) {
    let path = format!("/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/{NAME}/restart");
    let answer = farm.api().put(&path, &json!({}));
    assert!(answer.code == 202 || answer.code == 409, "{} {}", answer.code, answer.text());
}

#[test]
fn a_start_survives_death_after_every_kind_of_step() {
    let uuid = "11111111-0000-4000-8000-000000000001";
    let mut story = Story::begin(uuid);
    after_steps(18, |last| {
        // A new machine each time: the first start makes its volumes.
        if story.farm().api().get(&format!("{MACHINES}/{NAME}")).code == 404 {
            story.farm().api().post(MACHINES, &rich_machine(NAME, uuid)).object();
        }
        assert_eq!(story.farm().processes(story.uuid), [] as [i32; 0]);
        let death = story.dies(last, start, runs);
        let launched = story.farm().processes(story.uuid);
        start(story.farm());
        let (_, process) = story.is_running(last);
        if let [launched] = launched[..] {
            assert_eq!(process, launched, "step {last}: a machine that ran goes on running");
        }
        delete(story.farm());
        patience::until(format!("step {last}: all of it to be gone"), || is_gone(story.farm()).then_some(()));
        story.is_gone_from_the_host(last, &[]);
        death
    });
}

/// Starts the machine, waits until it is `ready`, and stops it with a death after another step each time.
fn stop_and_die(mut story: Story, ready: impl Fn(&Farm)) {
    after_steps(8, |last| {
        start(story.farm());
        story.is_running(last);
        ready(story.farm());
        let death = story.dies(last, stop, |farm| farm.instance(NAME).is_none());
        stop(story.farm());
        story.farm().stopped(NAME);
        story.is_gone_from_the_host(last, &["/volumes/"]);
        death
    });
}

#[test]
fn a_stop_survives_death_after_every_kind_of_step() {
    stop_and_die(Story::begin("11111111-0000-4000-8000-000000000002"), |_| {});
}

#[test]
#[ignore = "a guest boots for every step: for make soak"]
fn soak_a_stop_that_the_guest_obeys_survives_death_after_every_single_step() {
    let Some(guest) = guests::tiny() else { return };
    let uuid = "11111111-0000-4000-8000-000000000005";
    let farm = Farm::start();
    farm.image("tiny", &guest.disk);
    let mut obedient = machine(NAME, uuid, Some("tiny"));
    // Power is never cut: a guest that is not heard leaving would keep the test waiting.
    obedient["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 3600.into();
    farm.api().post(MACHINES, &obedient).object();
    stop_and_die(Story::on(farm, uuid), |farm| {
        farm.serial(&farm.running(NAME)).hears("tiny guest is up");
    });
}

#[test]
fn a_restart_survives_death_after_every_kind_of_step() {
    let uuid = "11111111-0000-4000-8000-000000000003";
    let mut story = Story::begin(uuid);
    start(story.farm());
    let mut latest: Option<String> = None;
    after_steps(15, |last| {
        let (before, _) = story.is_running(last);
        let is_latest = latest.as_ref().is_none_or(|latest| *latest == before);
        assert!(is_latest, "step {last}: nobody asked for yet another one");
        let is_another = |farm: &Farm| {
            farm.instance(NAME).is_some_and(|instance| {
                instance["metadata"]["uid"] != before.as_str() && instance["status"]["phase"] == "Running"
            })
        };
        let death = story.dies(last, restart, is_another);
        // What was not acknowledged is asked for again.
        let wanted = story.farm().api().get(&format!("{MACHINES}/{NAME}")).object();
        let is_pending =
            wanted["status"]["stateChangeRequests"].as_array().is_some_and(|list| !list.is_empty());
        let is_same = story.farm().instance(NAME).is_some_and(|instance| {
            instance["metadata"]["uid"] == before.as_str()
                && instance["metadata"]["deletionTimestamp"].is_null()
        });
        if is_same && !is_pending {
            restart(story.farm());
        }
        patience::until(format!("step {last}: another instance"), || is_another(story.farm()).then_some(()));
        latest = Some(story.is_running(last).0);
        story.nothing_is_left_of(&before, last);
        death
    });
}

#[test]
fn a_deletion_survives_death_after_every_kind_of_step() {
    let uuid = "11111111-0000-4000-8000-000000000004";
    let mut story = Story::begin(uuid);
    after_steps(8, |last| {
        if story.farm().api().get(&format!("{MACHINES}/{NAME}")).code == 404 {
            story.farm().api().post(MACHINES, &rich_machine(NAME, uuid)).object();
        }
        start(story.farm());
        story.is_running(last);
        let death = story.dies(last, delete, is_gone);
        delete(story.farm());
        patience::until(format!("step {last}: all of it to be gone"), || is_gone(story.farm()).then_some(()));
        story.is_gone_from_the_host(last, &[]);
        death
    });
}

const CLAIM: &str = "plugged";

/// Lists of the machine's template, with the disk or without it.
fn with_disk(farm: &Farm, there: bool) {
    let mut api = farm.api();
    let mut vm = api.get(&format!("{MACHINES}/{NAME}")).object();
    let spec = &mut vm["spec"]["template"]["spec"];
    let disk = json!({"name": CLAIM, "disk": {"bus": "scsi"}});
    let volume = json!({"name": CLAIM, "persistentVolumeClaim": {"claimName": CLAIM, "hotpluggable": true}});
    for (list, one) in [("/domain/devices/disks", disk), ("/volumes", volume)] {
        let list = spec.pointer_mut(list).unwrap().as_array_mut().unwrap();
        list.retain(|one| one["name"] != CLAIM);
        if there {
            list.push(one);
        }
    }
    let answer = api.put(&format!("{MACHINES}/{NAME}"), &vm);
    assert!([200, 409].contains(&answer.code), "{}", answer.text());
}

/// Whether all agree on it: the machine's status, and QEMU itself, which has one of it or none.
fn is_plugged(farm: &Farm, there: bool) -> bool {
    let vm = farm.api().get(&format!("{MACHINES}/{NAME}")).object();
    let volumes = vm["spec"]["template"]["spec"]["volumes"].as_array().cloned().unwrap_or_default();
    let instance = farm.instance(NAME).unwrap_or_default();
    let all = instance["status"]["volumeStatus"].as_array().cloned().unwrap_or_default();
    let told: Vec<_> = all.iter().filter(|one| one["name"] == CLAIM).collect();
    volumes.iter().any(|one| one["name"] == CLAIM) == there
        && match there {
            true => told.len() == 1 && told[0]["phase"] == "Ready",
            false => told.is_empty(),
        }
}

/// The block nodes and descriptors that QEMU has of the disk, asked over the monitor that is for looking in.
fn held(farm: &Farm) -> (usize, usize) {
    let instance = farm.instance(NAME).unwrap();
    let uid = instance["metadata"]["uid"].as_str().unwrap();
    let socket = farm.node.data_dir().join("machines").join(uid).join("tools");
    let answers = sheaf_tests::machines::ask_monitor(&socket, &["query-named-block-nodes", "query-fdsets"]);
    let count = |answer: &serde_json::Value| answer.to_string().matches(&format!("disk-{CLAIM}-")).count();
    let nodes = answers[0].as_array().unwrap();
    let nodes = nodes
        .iter()
        .filter(|node| node["node-name"].as_str().unwrap().starts_with(&format!("disk-{CLAIM}-")));
    (nodes.count(), count(&answers[1]))
}

#[test]
fn plugging_a_disk_in_and_pulling_it_out_survives_death_after_every_kind_of_step() {
    let uuid = "11111111-0000-4000-8000-000000000006";
    let mut story = Story::begin(uuid);
    let mut claim = sheaf_tests::machines::claim(CLAIM, None, "8Mi");
    (claim["apiVersion"], claim["kind"]) = ("v1".into(), "PersistentVolumeClaim".into());
    story.farm().api().post(CLAIMS, &claim).object();
    start(story.farm());
    let (uid, process) = story.is_running("none");
    for there in [true, false] {
        after_steps(3, |last| {
            let settle = |farm: &Farm, there: bool| {
                patience::until(format!("step {last}: the disk to be there: {there}"), || {
                    with_disk(farm, there);
                    is_plugged(farm, there).then_some(())
                });
            };
            settle(story.farm(), !there);
            let death = story.dies(last, |farm| with_disk(farm, there), |farm| is_plugged(farm, there));
            settle(story.farm(), there);
            assert_eq!(held(story.farm()), if there { (2, 1) } else { (0, 0) }, "step {last}");
            assert_eq!(story.is_running(last), (uid.clone(), process), "step {last}: it never stopped");
            death
        });
    }
}
