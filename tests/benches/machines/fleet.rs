//! Machines made through the API, watched from outside until they run.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    sync::{Arc, Barrier},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use sheaf_tests::{
    http::Connection,
    machines::{Farm, INSTANCES, MACHINES, machine},
    patience,
};

use crate::qmp;

/// `cli; hlt` and back: the whole program of a guest that is idle as soon as its firmware has found it.
const HALT: [u8; 4] = [0xfa, 0xf4, 0xeb, 0xfd];
const IMAGE_BYTES: usize = 1 << 20;

/// A node with an image of a guest that halts.
pub struct Fleet {
    pub farm: Farm,
    pub image: PathBuf,
}

/// How long one machine took from before its creation was asked for.
pub struct Start {
    /// Until it was bound to its node: all that is done before the agent begins.
    pub bound: Duration,
    /// Until QEMU said that the guest runs.
    pub running: Duration,
    /// Until a watch said that its phase is Running.
    pub told: Duration,
}

impl Fleet {
    pub fn start() -> Fleet {
        let farm = Farm::start();
        let mut disk = vec![0; IMAGE_BYTES];
        disk[..HALT.len()].copy_from_slice(&HALT);
        disk[510..512].copy_from_slice(&[0x55, 0xaa]);
        let image = farm.node.scratch().join("halts.raw");
        fs::write(&image, disk).unwrap();
        farm.image("halts", &image);
        Fleet { farm, image }
    }

    /// Creates machines of these names, all at the same moment, and waits until all run.
    pub fn create(&self, names: &[String]) -> Vec<Start> {
        let mut api = self.farm.api();
        let version = api.get(INSTANCES).object()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        let mut watch = api.watch(&format!("{INSTANCES}?watch=1&resourceVersion={version}"));
        let together = Arc::new(Barrier::new(names.len() + 1));
        for name in names {
            let (together, mut api, object) = (together.clone(), self.ready_connection(), halting(name));
            thread::spawn(move || {
                together.wait();
                api.post(MACHINES, &object).object();
            });
        }
        together.wait();
        let began = Instant::now();
        let mut asking = BTreeMap::new();
        let (mut bound, mut told) = (BTreeMap::new(), BTreeMap::new());
        while told.len() < names.len() {
            let instance = watch.next().expect("the watch goes on")["object"].take();
            let name = instance["metadata"]["name"].as_str().unwrap().to_owned();
            if !asking.contains_key(&name) {
                let socket = self.tools_socket(&instance);
                asking.insert(name.clone(), thread::spawn(move || qmp::until_running(&socket)));
            }
            if instance["status"]["nodeName"].is_string() {
                bound.entry(name.clone()).or_insert_with(|| began.elapsed());
            }
            if instance["status"]["phase"] == "Running" {
                told.entry(name).or_insert_with(|| began.elapsed());
            }
        }
        let starts = asking.into_iter().map(|(name, asked)| Start {
            bound: bound[&name],
            running: asked.join().unwrap() - began,
            told: told[&name],
        });
        starts.collect()
    }

    /// A connection that has shaken hands: that is not part of creating a machine.
    fn ready_connection(&self) -> Connection {
        let mut api = self.farm.api();
        api.get("/version");
        api
    }

    fn tools_socket(&self, instance: &Value) -> PathBuf {
        let uid = instance["metadata"]["uid"].as_str().unwrap();
        self.farm.node.data_dir().join("machines").join(uid).join("tools")
    }

    /// Deletes machines and waits until nothing is left of any.
    pub fn remove(&self, names: &[String]) {
        let mut api = self.farm.api();
        for name in names {
            api.delete(&format!("{MACHINES}/{name}"));
        }
        patience::until("all machines to be gone", || {
            let left = api.get(MACHINES).object()["items"].as_array().unwrap().len();
            (left == 0 && self.farm.leftovers(&[]).is_empty()).then_some(())
        });
    }

    /// The QEMU of a running machine.
    pub fn process_of(&self, name: &str) -> i32 {
        self.farm.processes(&uuid(name))[0]
    }
}

/// Names of machines, in the order in which they are made.
pub fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("m{number}")).collect()
}

fn uuid(name: &str) -> String {
    let number: u32 = name[1..].parse().unwrap();
    format!("33333333-0000-4000-8000-{number:012}")
}

fn halting(name: &str) -> Value {
    let mut vm = machine(name, &uuid(name), Some("halts"));
    vm["spec"]["runStrategy"] = "Always".into();
    let spec = &mut vm["spec"]["template"]["spec"];
    spec["terminationGracePeriodSeconds"] = 0.into();
    spec["domain"]["memory"] = json!({"guest": "64Mi"});
    // They halt: fifty of them fit where fifty that compute would not.
    spec["domain"]["resources"] = json!({"requests": {"cpu": "10m"}});
    vm
}
