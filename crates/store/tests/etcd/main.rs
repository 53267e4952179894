//! What only etcd can show: it is killed and comes back, it is restored from a snapshot, it has several
//! members, it wants certificates. With the real `etcd` and `etcdctl`.

// clippy.toml allows it inside test functions only, and these tests have helpers.
#![allow(clippy::unwrap_used)]

mod cluster;
mod epochs;
mod supervision;

use std::{path::Path, process::Command, time::Duration};

use bytes::Bytes;
use sheaf_store::{
    Transaction, Write,
    etcd::server::{Server, ServerConfig},
};

pub fn put(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Transaction {
    Transaction { expect: vec![], writes: vec![Write::Put { key: key.into(), value: value.into() }] }
}

pub fn quick_etcd(directory: &Path) -> ServerConfig {
    let mut config = ServerConfig::alone(directory.join("etcd")).unwrap();
    (config.heartbeat, config.election) = (Duration::from_millis(20), Duration::from_millis(200));
    config
}

pub async fn start(config: ServerConfig) -> Server {
    Server::start(config).await.unwrap_or_else(|error| panic!("{error}"))
}

pub fn etcdctl(server: Option<&Server>, arguments: &[&str]) {
    let mut command = Command::new("etcdctl");
    command.env("ETCDCTL_API", "3").args(arguments);
    if let Some(server) = server {
        command.arg(format!("--endpoints={}", server.endpoint()));
    }
    let output = command.output().unwrap_or_else(|error| {
        panic!("etcdctl cannot be run ({error}); on Debian: apt-get install etcd-client")
    });
    assert!(output.status.success(), "etcdctl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}
