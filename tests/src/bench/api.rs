//! The work that API servers are measured by, the same for whoever is measured: ConfigMaps of 2 KB are made, read, listed
//! and watched over HTTP/1.1 and TLS, in JSON.
//!
//! Clients are in this process and share the cores with the server, so that wall time alone says little: what a server
//! used of the processor stands beside it.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{audience::Audience, clients::run_clients, process::Process, sample::Sample};
use crate::server::Server;

pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// 2 KB each, as the promises count them.
const OBJECT_BYTES: usize = 2000;
/// So many of the first objects are read, one after the other.
const READ: usize = 500;

/// Whose processor time is counted: the API server's, and that of the store it asks when that is another process.
pub struct Meter {
    pub server: Process,
    pub store: Option<Process>,
}

impl Meter {
    pub fn of(server: &impl Server) -> Self {
        Meter { server: Process::new(server.pid()), store: None }
    }

    pub fn with_store(mut self, pid: u32) -> Self {
        self.store = Some(Process::new(pid));
        self
    }

    fn read(&self) -> [Duration; 2] {
        [self.server.cpu(), self.store.as_ref().map_or(Duration::ZERO, Process::cpu)]
    }

    /// Runs `work`, from which so many events come, and says what it cost.
    fn measure(&self, work: impl FnOnce() -> (Sample, usize)) -> Work {
        let before = self.read();
        let (sample, events) = work();
        let after = self.read();
        Work { sample, events, cpu: after[0] - before[0], store_cpu: after[1] - before[1] }
    }
}

/// What was done, how long each took, and what it cost.
pub struct Work {
    pub sample: Sample,
    /// Answers, objects or events: what the costs are shared by.
    pub events: usize,
    pub cpu: Duration,
    pub store_cpu: Duration,
}

impl Work {
    /// Of the API server, per event.
    pub fn cpu_each(&self) -> Duration {
        self.cpu / self.events as u32
    }

    pub fn store_cpu_each(&self) -> Duration {
        self.store_cpu / self.events as u32
    }
}

pub fn object(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"x": "x".repeat(OBJECT_BYTES - 300)}})
}

pub fn creates(server: &impl Server, meter: &Meter, clients: usize, count: usize) -> Work {
    meter.measure(|| {
        let done = run_clients(server, clients, count, move |connection, n| {
            let made = connection.post(MAPS, &object(&format!("c{clients}-{n}")));
            assert_eq!(made.code, 201, "{}", made.text());
        });
        (done, count)
    })
}

/// Reads what [`creates`] made with one client.
pub fn gets(server: &impl Server, meter: &Meter, clients: usize, count: usize, there: usize) -> Work {
    let there = there.min(READ);
    meter.measure(|| {
        let done = run_clients(server, clients, count, move |connection, n| {
            let got = connection.get(&format!("{MAPS}/c1-{}", n % there));
            assert_eq!(got.code, 200);
        });
        (done, count)
    })
}

/// Brings the server to `wanted` config maps.
pub fn fill(server: &impl Server, wanted: usize) {
    let made = server.admin().connect(server).get(MAPS).json()["items"].as_array().unwrap().len();
    run_clients(server, 8, wanted.saturating_sub(made), |connection, n| {
        connection.post(MAPS, &object(&format!("fill-{n}")));
    });
}

/// Lists all of them, `objects` in number, so many times; also answers how many bytes that is each time.
pub fn lists(server: &impl Server, meter: &Meter, rounds: usize, objects: usize) -> (Work, usize) {
    let mut connection = server.admin().connect(server);
    let mut bytes = 0;
    let work = meter.measure(|| {
        let latencies = (0..rounds).map(|_| {
            let began = Instant::now();
            let answer = connection.get(MAPS);
            let took = began.elapsed();
            assert_eq!(answer.code, 200);
            bytes = answer.body.len();
            took
        });
        let latencies: Vec<Duration> = latencies.collect();
        // The client's own reading of the answer is not the server's time.
        let wall = latencies.iter().sum();
        (Sample::new(latencies, wall), rounds * objects)
    });
    (work, bytes)
}

/// One change, many watchers: how long until the last has it. Also answers the server's memory while they watch.
pub fn watchers(server: &impl Server, meter: &Meter, watchers: usize, changes: usize) -> (Work, f64) {
    let mut connection = server.admin().connect(server);
    let list = connection.get(&format!("{MAPS}?limit=1")).object();
    let path =
        format!("{MAPS}?watch=1&resourceVersion={}", list["metadata"]["resourceVersion"].as_str().unwrap());
    let audience = Audience::gather(server, path, watchers, changes);
    let memory = meter.server.pss_mb();
    let work = meter.measure(|| {
        let mut sent = Vec::new();
        for n in 0..changes {
            sent.push(Instant::now());
            let change = json!({"data": {"n": n.to_string()}});
            let patched = connection.patch(&format!("{MAPS}/c1-0"), "merge", &change.to_string());
            assert_eq!(patched.code, 200, "{}", patched.text());
            std::thread::sleep(Duration::from_millis(300));
        }
        let seen = audience.seen();
        let last: Vec<Duration> =
            (0..changes).map(|n| seen.iter().map(|times| times[n] - sent[n]).max().unwrap()).collect();
        // Without the pauses between the changes.
        let wall = last.iter().sum();
        (Sample::new(last, wall), changes * watchers)
    });
    (work, memory)
}
