//! How fast the API is and what it costs: real binary, real TLS, real disk, clients in this process.
//!
//! Clients share the cores with the server, so wall time alone says little: server CPU time stands
//! beside it everywhere. Bars are checked and shown as they are; a missed one does not fail the run.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on says so by panicking")]

mod clients;
mod table;

use std::time::Duration;

use serde_json::{Value, json};
use sheaf_store::etcd::server::{Server, ServerConfig};
use sheaf_tests::{
    bench::{process::Process, report::micros, sample::Sample},
    node::Node,
};
use tokio::time::Instant;

use clients::run_clients;
use table::Table;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// 2 KB each, as the promises count them.
const OBJECT_BYTES: usize = 2000;
const MANY_OBJECTS: usize = 10_000;
const WATCHERS: usize = 1000;

fn main() {
    let mut report = Table::new();
    embedded(&mut report);
    on_etcd(&mut report);
    slow_disk(&mut report);
    report.finish();
}

fn object(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"x": "x".repeat(OBJECT_BYTES - 300)}})
}

fn embedded(report: &mut Table) {
    let node = Node::start();
    let process = Process::new(node.pid());
    std::thread::sleep(Duration::from_secs(3));
    let idle = process.pss_mb();
    report.size("idle", format!("memory (PSS) {idle:.1} MB"));
    report.bar("idle memory at most 40 MB", idle <= 40.0, format!("{idle:.1} MB"));

    creates(report, "embedded", &node, 1, 1000);
    creates(report, "embedded", &node, 64, 8000);
    fill(&node);
    let full = process.pss_mb();
    report.size("10,000 objects of 2 KB and more", format!("memory (PSS) {full:.1} MB"));
    gets(report, &node);
    list(report, &node);
    watchers(report, &node);
}

fn on_etcd(report: &mut Table) {
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = runtime
        .block_on(Server::start(ServerConfig::alone(directory.path().to_path_buf()).unwrap()))
        .unwrap();
    let endpoint = server.endpoint().to_string();
    let node = Node::start_with(&["--etcd", &endpoint]);
    creates(report, "etcd", &node, 1, 500);
    creates(report, "etcd", &node, 64, 4000);
    drop(node);
    runtime.block_on(server.stop());
}

/// Group commit: with a slow disk, many clients share each sync, and one alone waits for one.
fn slow_disk(report: &mut Table) {
    const SYNC: Duration = Duration::from_millis(5);
    let node = Node::start_with(&["--sync-delay-ms", "5"]);
    let process = Process::new(node.pid());
    let before = process.cpu();
    let alone = run_clients(&node, 1, 200, |connection, n| {
        connection.post(MAPS, &object(&format!("alone-{n}")));
    });
    let between = process.cpu();
    let many = run_clients(&node, 64, 4000, |connection, n| {
        connection.post(MAPS, &object(&format!("many-{n}")));
    });
    let after = process.cpu();
    // At most one sync fits into each 5 ms: so many creates, at least, shared one.
    let syncs = many.wall.as_secs_f64() / SYNC.as_secs_f64();
    let per_sync = many.count() as f64 / syncs;
    report.timed("creates, 5 ms sync, 1 client(s)", &alone, alone.count(), between - before, "");
    let beside = format!("at least {per_sync:.1} creates per sync");
    report.timed("creates, 5 ms sync, 64 client(s)", &many, many.count(), after - between, &beside);
    report.bar(
        "64 clients get at least 10 creates per 5 ms sync",
        per_sync >= 10.0,
        format!("{per_sync:.1}"),
    );
    let p50 = alone.percentile(50.0);
    report.bar("a lone client waits for one sync, not two", p50 < 2 * SYNC, micros(p50));
}

fn creates(report: &mut Table, store: &str, node: &Node, clients: usize, count: usize) {
    let process = Process::new(node.pid());
    let before = process.cpu();
    let done = run_clients(node, clients, count, move |connection, n| {
        let made = connection.post(MAPS, &object(&format!("c{clients}-{n}")));
        assert_eq!(made.code, 201, "{}", made.text());
    });
    let what = format!("creates, {store}, {clients} client(s)");
    report.timed(&what, &done, done.count(), process.cpu() - before, "");
}

fn gets(report: &mut Table, node: &Node) {
    let process = Process::new(node.pid());
    for (clients, count) in [(1, 5000), (64, 20_000)] {
        let before = process.cpu();
        let done = run_clients(node, clients, count, |connection, n| {
            let got = connection.get(&format!("{MAPS}/c1-{}", n % 1000));
            assert_eq!(got.code, 200);
        });
        let what = format!("gets, {clients} client(s)");
        report.timed(&what, &done, done.count(), process.cpu() - before, "");
        if clients == 1 {
            let p50 = done.percentile(50.0);
            report.bar(
                "get P50 at most 200 us, kept-alive TLS",
                p50 <= Duration::from_micros(200),
                micros(p50),
            );
        }
    }
}

/// Brings the store to [`MANY_OBJECTS`] config maps.
fn fill(node: &Node) {
    let made = node.admin().connect(node).get(MAPS).json()["items"].as_array().unwrap().len();
    run_clients(node, 8, MANY_OBJECTS.saturating_sub(made), |connection, n| {
        connection.post(MAPS, &object(&format!("fill-{n}")));
    });
}

fn list(report: &mut Table, node: &Node) {
    let process = Process::new(node.pid());
    let mut connection = node.admin().connect(node);
    const ROUNDS: usize = 20;
    let (mut latencies, mut bytes) = (Vec::new(), 0);
    let before = process.cpu();
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let answer = connection.get(MAPS);
        latencies.push(began.elapsed());
        bytes = answer.text().len();
    }
    let cpu = process.cpu() - before;
    // The client's own reading of the answer is not the server's time.
    let wall = latencies.iter().sum();
    let beside = format!("{:.1} MB each", bytes as f64 / 1e6);
    report.timed("lists of 10,000 objects", &Sample::new(latencies, wall), ROUNDS, cpu, &beside);
}

/// One change, many watchers: how long until the last has it.
fn watchers(report: &mut Table, node: &Node) {
    let process = Process::new(node.pid());
    let version =
        node.admin().connect(node).get(&format!("{MAPS}?limit=1")).json()["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .to_owned();
    let admin = node.admin();
    let watches: Vec<_> = (0..WATCHERS)
        .map(|_| admin.connect(node).watch(&format!("{MAPS}?watch=1&resourceVersion={version}")))
        .collect();
    let memory = process.pss_mb();
    const CHANGES: usize = 20;
    let threads: Vec<_> = watches
        .into_iter()
        .map(|mut watch| {
            std::thread::Builder::new()
                .stack_size(256 * 1024)
                .spawn(move || {
                    (0..CHANGES).map(|_| watch.next().map(|_| Instant::now()).unwrap()).collect::<Vec<_>>()
                })
                .unwrap()
        })
        .collect();
    let before = process.cpu();
    let mut connection = admin.connect(node);
    let mut sent = Vec::new();
    for n in 0..CHANGES {
        sent.push(Instant::now());
        let change = json!({"data": {"n": n.to_string()}});
        let patched = connection.patch(&format!("{MAPS}/c1-0"), "merge", &change.to_string());
        assert_eq!(patched.code, 200, "{}", patched.text());
        std::thread::sleep(Duration::from_millis(300));
    }
    let seen: Vec<Vec<Instant>> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let cpu = process.cpu() - before;
    let last: Vec<Duration> =
        (0..CHANGES).map(|n| seen.iter().map(|times| times[n] - sent[n]).max().unwrap()).collect();
    // Without the pauses between the changes.
    let wall = last.iter().sum();
    let beside = format!("events; latency until the last has it; memory with them (PSS) {memory:.1} MB");
    let what = format!("{CHANGES} changes to 1,000 watchers");
    report.timed(&what, &Sample::new(last, wall), CHANGES * WATCHERS, cpu, &beside);
}
