//! Starting, stopping, losing and finding etcd; certificates; history that stays bounded.

use std::{path::Path, time::Duration};

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustix::process::{Pid, Signal, kill_process};
use sheaf_store::{
    MAX_TRANSACTION_BYTES, Range, Store, StoreError,
    etcd::{
        self, Config, TlsFiles,
        server::{Server, ServerError},
    },
};

use crate::{etcdctl, put, quick_etcd, start};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_with_keys_of_somebody_else_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(quick_etcd(directory.path())).await;
    etcdctl(Some(&server), &["put", "theirs", "1"]);
    let config = Config::new(vec![server.endpoint()]);
    let refused = etcd::open(config.clone()).await.unwrap_err();
    assert!(matches!(refused, etcd::OpenError::NotOurs), "{refused}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_etcd_says_how_to_get_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = quick_etcd(directory.path());
    config.binary = "/nowhere/etcd".into();
    let missing = Server::start(config).await.unwrap_err();
    assert!(matches!(missing, ServerError::NotInstalled { .. }), "{missing}");
    assert!(missing.to_string().contains("apt-get install etcd-server"), "{missing}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_etcd_is_away_reads_are_unavailable_and_nobody_listening_means_not_written() {
    let directory = tempfile::tempdir().unwrap();
    let config = quick_etcd(directory.path());
    let server = start(config.clone()).await;
    let mut to = Config::new(vec![server.endpoint()]);
    to.timeout = Duration::from_secs(2);
    let store = etcd::open(to).await.unwrap();
    store.commit(put("k", "1")).await.unwrap();
    server.stop().await;
    let read = store.get(&"k".into()).await;
    assert!(matches!(read, Err(StoreError::Unavailable { .. })), "{read:?}");
    let written = store.commit(put("k", "2")).await;
    assert!(matches!(written, Err(StoreError::Unavailable { .. })), "{written:?}");
    let server = start(config).await;
    let read = loop {
        match store.get(&"k".into()).await {
            Ok(read) => break read,
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    assert_eq!(read.unwrap().value, "1", "the same store goes on when etcd is back");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_answer_is_lost_has_an_unknown_outcome() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(quick_etcd(directory.path())).await;
    let mut to = Config::new(vec![server.endpoint()]);
    to.timeout = Duration::from_secs(1);
    let store = etcd::open(to).await.unwrap();
    store.commit(put("k", "1")).await.unwrap();
    let hung = Pid::from_raw(server.pid().unwrap() as i32).unwrap();
    kill_process(hung, Signal::STOP).unwrap();
    let written = store.commit(put("k", "2")).await;
    assert!(matches!(written, Err(StoreError::OutcomeUnknown { .. })), "{written:?}");
    let read = store.get(&"k".into()).await;
    assert!(matches!(read, Err(StoreError::Unavailable { .. })), "{read:?}");
    kill_process(hung, Signal::CONT).unwrap();
    // It did happen, as it turns out; or it did not. Nobody was told anything else.
    let found = loop {
        match store.get(&"k".into()).await {
            Ok(found) => break found.unwrap(),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    assert!(found.value == "1" || found.value == "2", "{found:?}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_range_of_the_largest_entries_arrives_whole() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(quick_etcd(directory.path())).await;
    let store = etcd::open(Config::new(vec![server.endpoint()])).await.unwrap();
    // Together more than any message may be, and fewer than are asked for at first.
    let size = MAX_TRANSACTION_BYTES - 16;
    for index in 0..18u8 {
        store.commit(put(format!("big/{index:02}"), vec![index; size])).await.unwrap();
    }
    let page = store.range(Range { prefix: "big/".into(), ..Range::default() }).await.unwrap();
    assert_eq!((page.entries.len(), page.more), (18, false));
    assert!(page.entries.iter().zip(0u8..).all(|(entry, index)| entry.value == vec![index; size]));
    server.stop().await;
}

/// A key and a certificate signed by a new authority, as files.
fn certificates(directory: &Path, name: &str) -> TlsFiles {
    let mut authority = CertificateParams::new(vec![]).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().unwrap();
    let ca = authority.self_signed(&authority_key).unwrap().pem();
    let issuer = Issuer::new(authority, authority_key);
    let mut own = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    own.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    let certificate = own.signed_by(&key, &issuer).unwrap().pem();
    let file = |kind: &str, content: String| {
        let path = directory.join(format!("{name}-{kind}.pem"));
        std::fs::write(&path, content).unwrap();
        path
    };
    TlsFiles {
        ca: file("ca", ca),
        certificate: file("certificate", certificate),
        key: file("key", key.serialize_pem()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_certificates_only_those_it_knows_are_served() {
    let directory = tempfile::tempdir().unwrap();
    let ours = certificates(directory.path(), "ours");
    let mut config = quick_etcd(directory.path());
    config.client_url = config.client_url.replace("http:", "https:");
    config.peer_url = config.peer_url.replace("http:", "https:");
    config.tls = Some(ours.clone());
    let server = start(config).await;
    let mut to = Config::new(vec![server.endpoint()]);
    to.timeout = Duration::from_secs(2);
    to.tls = Some(ours.clone());
    let store = etcd::open(to.clone()).await.unwrap();
    store.commit(put("k", "1")).await.unwrap();

    // Trusts the server but has a certificate of somebody else.
    to.tls = Some(TlsFiles { ca: ours.ca, ..certificates(directory.path(), "theirs") });
    let refused = etcd::open(to).await.unwrap_err();
    assert!(matches!(refused, etcd::OpenError::Unreachable { .. }), "{refused}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_left_by_a_killed_process_is_ended_before_the_next_begins() {
    let directory = tempfile::tempdir().unwrap();
    let config = quick_etcd(directory.path());
    std::fs::create_dir_all(&config.data_dir).unwrap();
    // As a kill leaves it: nobody supervises it, and it runs on, on the same data and the same ports.
    let mut stray = std::process::Command::new("etcd")
        .args([
            format!("--data-dir={}", config.data_dir.display()),
            format!("--name={}", config.name),
            format!("--listen-client-urls={}", config.client_url),
            format!("--advertise-client-urls={}", config.client_url),
            format!("--listen-peer-urls={}", config.peer_url),
            format!("--initial-advertise-peer-urls={}", config.peer_url),
            format!("--initial-cluster={}={}", config.name, config.peer_url),
        ])
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    std::fs::write(config.data_dir.join("etcd.pid"), stray.id().to_string()).unwrap();
    // An etcd that is ended in the middle of its very first start never becomes ready again, so not before it is.
    while etcd::open(Config::new(vec![config.client_url.clone()])).await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let server = start(config).await;
    assert_ne!(server.pid(), Some(stray.id()));
    assert!(stray.try_wait().unwrap().is_some(), "the stray one is gone");
    let store = etcd::open(Config::new(vec![server.endpoint()])).await.unwrap();
    store.commit(put("k", "1")).await.unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_in_etcd_stays_within_its_bound_by_itself() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(quick_etcd(directory.path())).await;
    let mut config = Config::new(vec![server.endpoint()]);
    config.keep_revisions = 60;
    let store = etcd::open(config).await.unwrap();
    for round in 0..400 {
        store.commit(put(format!("k/{}", round % 5), round.to_string())).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let (head, oldest) = (store.revision().await.unwrap(), store.compacted().await.unwrap());
    assert!((60..=150).contains(&(head.0 - oldest.0)), "{} revisions are kept", head.0 - oldest.0);
    // etcd itself has forgotten too, not only we.
    let old = std::process::Command::new("etcdctl")
        .env("ETCDCTL_API", "3")
        .args(["get", "k/1", "--rev=100", &format!("--endpoints={}", server.endpoint())])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&old.stderr).into_owned();
    assert!(said.contains("required revision has been compacted"), "{said}");
    server.stop().await;
}
