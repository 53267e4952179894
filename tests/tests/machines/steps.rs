//! A node that dies after every single step of what it does to a machine, one after the other: the next start finds
//! everything from the host and goes on. No machine is lost, doubled, or started again that need not be, and nothing is
//! left behind.
//!
//! The machine has one of everything that a node makes for one, so that there is a step of each kind to die after.
//!
//! The steps are enumerated by running into them: the node is told to die after step 1, 2, 3 and so on, until what it
//! was asked for is done before it dies.

use std::collections::BTreeSet;

use serde_json::json;
use sheaf_testbed::guests;
use sheaf_tests::{
    dying::unless_it_dies,
    machines::{CLAIMS, Farm, MACHINES, machine, rich_machine},
    node::Node,
    patience,
};

/// More steps than any of these takes: an enumeration that never ends is a failure.
pub const MOST: u64 = 120;
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
        Story { farm: Some(farm), uuid, uids: Vec::new() }
    }

    pub fn farm(&self) -> &Farm {
        self.farm.as_ref().unwrap()
    }

    /// Runs `ask` on a node that dies after step `number`, if it gets so far, and waits for `done`. Answers whether it
    /// was done without dying.
    pub fn dies(&mut self, number: u64, ask: impl Fn(&Farm), done: impl Fn(&Farm) -> bool) -> bool {
        let mut farm = self.farm.take().unwrap();
        farm.node.kill();
        let arguments = farm.arguments().map(str::to_owned);
        let place = farm.node.into_place();
        let step = number.to_string();
        let mut with_death: Vec<&str> = arguments.iter().map(String::as_str).collect();
        with_death.extend(["--die-after-step", &step]);
        let mut survived = false;
        let mut place = place;
        if let Some(node) = Node::start_mortal(&place, &with_death) {
            let mut mortal = Farm::with_node(node, &arguments[1]);
            // It may die while it is asked.
            unless_it_dies(|| ask(&mortal));
            survived = patience::until(format!("step {number} or the end"), || {
                if mortal.node.has_ended() {
                    return Some(false);
                }
                unless_it_dies(|| done(&mortal)).filter(|done| *done)
            });
            if survived {
                mortal.node.kill();
            }
            place = mortal.node.into_place();
        }
        let plain: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let node = Node::start_mortal(&place, &plain).expect("a node that died starts again");
        self.farm = Some(Farm::with_node(node, &arguments[1]));
        survived
    }

    /// The machine runs, once; answers its instance's uid and its process.
    pub fn is_running(&mut self, number: u64) -> (String, i32) {
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
            "step {number}: a running machine has its addresses, each on a tap: {interfaces:?}"
        );
        let processes = self.farm().processes(self.uuid);
        assert_eq!(processes.len(), 1, "step {number}: there is one of it: {processes:?}");
        (uid, processes[0])
    }

    /// Of an instance that was followed by another one of the same machine.
    fn nothing_is_left_of(&self, uid: &str, number: u64) {
        patience::until(format!("step {number}: nothing is left of instance {uid}"), || {
            let left = self.farm().leftovers(&[uid.to_owned()]);
            let is_there = left.iter().any(|what| what.contains(uid));
            (!is_there && self.farm().taps().len() == 2).then_some(())
        });
    }

    fn is_gone_from_the_host(&self, number: u64, but: &[&str]) {
        let farm = self.farm();
        assert_eq!(farm.processes(self.uuid), [] as [i32; 0], "step {number}: no process is left");
        let mut last = Vec::new();
        // The API says that something is gone a moment before the last of it is.
        for _ in 0..50 {
            last = farm.leftovers(&self.uids);
            last.retain(|what| !but.iter().any(|but| what.contains(but)));
            if last.is_empty() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        panic!("step {number}: something is left: {last:?}");
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

fn restart(farm: &Farm) {
    let path = format!("/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/{NAME}/restart");
    let answer = farm.api().put(&path, &json!({}));
    assert!(answer.code == 202 || answer.code == 409, "{} {}", answer.code, answer.text());
}

#[test]
fn a_start_survives_death_after_every_step() {
    let mut story = Story::begin("11111111-0000-4000-8000-000000000001");
    for number in 1..MOST {
        let before = story.farm().processes(story.uuid);
        assert_eq!(before, [] as [i32; 0]);
        let done = story.dies(number, start, runs);
        let launched = story.farm().processes(story.uuid);
        start(story.farm());
        let (_, process) = story.is_running(number);
        if let [launched] = launched[..] {
            assert_eq!(process, launched, "step {number}: a machine that ran goes on running");
        }
        stop(story.farm());
        story.farm().stopped(NAME);
        story.is_gone_from_the_host(number, &["/volumes/"]);
        if done {
            assert!(number > 10, "a start has more steps than {number}");
            return;
        }
    }
    panic!("a start never came to its end");
}

#[test]
fn a_stop_survives_death_after_every_step() {
    stop_after_every_step(Story::begin("11111111-0000-4000-8000-000000000002"), |_| {});
}

/// Starts the machine, waits until it is `ready`, and stops it with a death after one more step each time.
fn stop_after_every_step(mut story: Story, ready: impl Fn(&Farm)) {
    for number in 1..MOST {
        start(story.farm());
        story.is_running(number);
        ready(story.farm());
        let done = story.dies(number, stop, |farm| farm.instance(NAME).is_none());
        stop(story.farm());
        story.farm().stopped(NAME);
        story.is_gone_from_the_host(number, &["/volumes/"]);
        if done {
            assert!(number > 8, "a stop has more steps than {number}");
            return;
        }
    }
    panic!("a stop never came to its end");
}

#[test]
#[ignore = "a guest boots for every step: for make soak"]
fn soak_a_stop_that_the_guest_obeys_survives_death_after_every_step() {
    let Some(guest) = guests::tiny() else { return };
    let uuid = "11111111-0000-4000-8000-000000000005";
    let farm = Farm::start();
    farm.image("tiny", &guest.disk);
    let mut obedient = machine(NAME, uuid, Some("tiny"));
    // Power is never cut: a guest that is not heard leaving would keep the test waiting.
    obedient["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 3600.into();
    farm.api().post(MACHINES, &obedient).object();
    stop_after_every_step(Story { farm: Some(farm), uuid, uids: Vec::new() }, |farm| {
        farm.serial(&farm.running(NAME)).hears("tiny guest is up");
    });
}

#[test]
fn a_restart_survives_death_after_every_step() {
    let mut story = Story::begin("11111111-0000-4000-8000-000000000003");
    start(story.farm());
    let mut last = None;
    for number in 1..MOST {
        let (before, _) = story.is_running(number);
        assert!(last.is_none_or(|last| last == before), "step {number}: nobody asked for yet another one");
        let is_another = |farm: &Farm| {
            farm.instance(NAME).is_some_and(|instance| {
                instance["metadata"]["uid"] != before.as_str() && instance["status"]["phase"] == "Running"
            })
        };
        let done = story.dies(number, restart, is_another);
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
        patience::until(format!("step {number}: another instance"), || {
            is_another(story.farm()).then_some(())
        });
        last = Some(story.is_running(number).0);
        story.nothing_is_left_of(&before, number);
        if done {
            assert!(number > 15, "a restart has more steps than {number}");
            return;
        }
    }
    panic!("a restart never came to its end");
}

#[test]
fn a_deletion_survives_death_after_every_step() {
    let uuid = "11111111-0000-4000-8000-000000000004";
    let mut story = Story::begin(uuid);
    for number in 1..MOST {
        start(story.farm());
        story.is_running(number);
        let delete = |farm: &Farm| {
            let code = farm.api().delete(&format!("{MACHINES}/{NAME}")).code;
            assert!(code < 300 || code == 404, "{code}");
        };
        let gone = |farm: &Farm| {
            let mut api = farm.api();
            api.get(&format!("{MACHINES}/{NAME}")).code == 404
                && api.get(CLAIMS).object()["items"] == json!([])
                && api.get("/api/v1/persistentvolumes").object()["items"] == json!([])
        };
        let done = story.dies(number, delete, gone);
        delete(story.farm());
        patience::until(format!("step {number}: all of it to be gone"), || gone(story.farm()).then_some(()));
        story.is_gone_from_the_host(number, &[]);
        if done {
            assert!(number > 8, "a deletion has more steps than {number}");
            return;
        }
        story.farm().api().post(MACHINES, &rich_machine(NAME, uuid)).object();
    }
    panic!("a deletion never came to its end");
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
fn plugging_a_disk_in_and_pulling_it_out_survives_death_after_every_step() {
    let mut story = Story::begin("11111111-0000-4000-8000-000000000006");
    let mut claim = sheaf_tests::machines::claim(CLAIM, None, "8Mi");
    (claim["apiVersion"], claim["kind"]) = ("v1".into(), "PersistentVolumeClaim".into());
    story.farm().api().post(CLAIMS, &claim).object();
    start(story.farm());
    let (uid, process) = story.is_running(0);
    for there in [true, false] {
        for number in 1..=MOST {
            assert_ne!(number, MOST, "it never came to its end");
            let settle = |farm: &Farm, there: bool| {
                patience::until(format!("step {number}: the disk to be there: {there}"), || {
                    with_disk(farm, there);
                    is_plugged(farm, there).then_some(())
                });
            };
            settle(story.farm(), !there);
            let done = story.dies(number, |farm| with_disk(farm, there), |farm| is_plugged(farm, there));
            settle(story.farm(), there);
            assert_eq!(held(story.farm()), if there { (2, 1) } else { (0, 0) }, "step {number}");
            assert_eq!(story.is_running(number), (uid.clone(), process), "step {number}: it never stopped");
            if done {
                assert!(number > 3, "there are more steps than {number}");
                break;
            }
        }
    }
}
