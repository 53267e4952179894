//! Who is measured.

use std::time::Duration;

use sheaf_store::etcd::server::{Server as Etcd, ServerConfig};
use sheaf_tests::{
    bench::api::Meter,
    node::Node,
    original::{self, Original},
};

use crate::found::{Found, Size, measure};

/// In the order of the table's columns.
pub const SUBJECTS: [Subject; 3] = [Subject::Embedded, Subject::OnEtcd, Subject::Original];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Sheaf with the store it has by itself.
    Embedded,
    /// Sheaf on an etcd, of the version that the original has.
    OnEtcd,
    /// kube-apiserver on an etcd.
    Original,
}

impl Subject {
    pub fn name(self) -> &'static str {
        match self {
            Subject::Embedded => "Sheaf, embedded store",
            Subject::OnEtcd => "Sheaf on etcd",
            Subject::Original => "kube-apiserver on etcd",
        }
    }

    /// Starts it, measures it and ends it.
    pub fn run(self, size: &Size) -> Found {
        let found = match self {
            Subject::Embedded => {
                let node = Node::start();
                measure(&node, &Meter::of(&node), size)
            }
            Subject::OnEtcd => on_etcd(size),
            Subject::Original => {
                let original = Original::start();
                measure(&original, &Meter::of(&original).with_store(original.etcd_pid()), size)
            }
        };
        // What was ended may still be written back.
        std::thread::sleep(Duration::from_secs(2));
        found
    }
}

fn on_etcd(size: &Size) -> Found {
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let mut config = ServerConfig::alone(directory.path().to_path_buf()).unwrap();
    config.binary = original::binary("etcd");
    let etcd = runtime.block_on(Etcd::start(config)).unwrap();
    let node = Node::start_with(&["--etcd", &etcd.endpoint()]);
    let found = measure(&node, &Meter::of(&node).with_store(etcd.pid().unwrap()), size);
    drop(node);
    runtime.block_on(etcd.stop());
    found
}
