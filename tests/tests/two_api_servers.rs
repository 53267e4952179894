//! Two API servers on one real etcd: what one acknowledged, the other shows.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

use std::thread;

use serde_json::json;
use sheaf_store::etcd::server::{Server, ServerConfig};
use sheaf_tests::node::Node;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const THREADS: usize = 20;

#[test]
fn a_thousand_writes_through_one_are_read_through_the_other() {
    write_through_one_and_read_through_the_other(50);
}

#[test]
#[ignore = "takes minutes: make soak runs it"]
fn soak_ten_thousand_writes_through_one_are_read_through_the_other() {
    write_through_one_and_read_through_the_other(500);
}

fn write_through_one_and_read_through_the_other(rounds: usize) {
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let etcd = runtime
        .block_on(Server::start(ServerConfig::alone(directory.path().to_path_buf()).unwrap()))
        .unwrap();
    let endpoint = etcd.endpoint().to_string();
    let one = Node::start_with(&["--etcd", &endpoint]);
    let other = one.start_beside(&["--etcd", &endpoint]);

    thread::scope(|scope| {
        for writer in 0..THREADS {
            let (one, other) = (&one, &other);
            scope.spawn(move || {
                let mut write = one.admin().connect(one);
                let mut read = other.admin().connect(other);
                let path = format!("{MAPS}/m{writer}");
                write.post(MAPS, &json!({"metadata": {"name": format!("m{writer}")}})).object();
                for round in 0..rounds {
                    let patch = json!({"data": {"round": round.to_string()}}).to_string();
                    let written = write.patch(&path, "merge", &patch).object();
                    let seen = read.get(&path).object();
                    assert_eq!(seen["data"]["round"], round.to_string());
                    assert_eq!(seen["metadata"]["resourceVersion"], written["metadata"]["resourceVersion"]);
                }
            });
        }
    });
    drop((one, other));
    runtime.block_on(etcd.stop());
}
