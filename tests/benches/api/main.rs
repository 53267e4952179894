//! How fast the API is and what it costs: real binary, real TLS, real disk, clients in this process.
//!
//! Clients share the cores with the server, so wall time alone says little: server CPU time stands
//! beside it everywhere. Bars are checked and shown as they are; a missed one does not fail the run.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on says so by panicking")]

mod table;

use std::time::Duration;

use sheaf_store::etcd::server::{Server, ServerConfig};
use sheaf_tests::{
    bench::{
        api::{self, MAPS, Meter, object},
        clients::run_clients,
        process::Process,
        report::micros,
    },
    node::Node,
};

use table::Table;

const MANY_OBJECTS: usize = 10_000;
const WATCHERS: usize = 1000;

fn main() {
    let mut report = Table::new();
    embedded(&mut report);
    on_etcd(&mut report);
    slow_disk(&mut report);
    report.finish();
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
    api::fill(&node, MANY_OBJECTS);
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
    let work = api::creates(node, &Meter::of(node), clients, count);
    report.work(&format!("creates, {store}, {clients} client(s)"), &work, "");
}

fn gets(report: &mut Table, node: &Node) {
    for (clients, count) in [(1, 5000), (64, 20_000)] {
        let work = api::gets(node, &Meter::of(node), clients, count, 1000);
        report.work(&format!("gets, {clients} client(s)"), &work, "");
        if clients == 1 {
            let p50 = work.sample.percentile(50.0);
            report.bar(
                "get P50 at most 200 us, kept-alive TLS",
                p50 <= Duration::from_micros(200),
                micros(p50),
            );
        }
    }
}

fn list(report: &mut Table, node: &Node) {
    const ROUNDS: usize = 20;
    let (work, bytes) = api::lists(node, &Meter::of(node), ROUNDS, MANY_OBJECTS);
    let beside = format!("{:.1} MB each", bytes as f64 / 1e6);
    report.timed("lists of 10,000 objects", &work.sample, ROUNDS, work.cpu, &beside);
}

fn watchers(report: &mut Table, node: &Node) {
    const CHANGES: usize = 20;
    let (work, memory) = api::watchers(node, &Meter::of(node), WATCHERS, CHANGES);
    let beside = format!("events; latency until the last has it; memory with them (PSS) {memory:.1} MB");
    report.work(&format!("{CHANGES} changes to 1,000 watchers"), &work, &beside);
}
