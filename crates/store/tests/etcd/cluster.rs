//! Three members: what is written through one is read through the others, at once.

use std::{path::Path, sync::Arc, time::Duration};

use rustix::process::{Pid, Signal, kill_process};
use sheaf_store::{
    Store, StoreError,
    etcd::{
        self, Config, Etcd,
        server::{Server, ServerConfig},
    },
};

use crate::{put, quick_etcd};

async fn three(directory: &Path) -> Vec<Server> {
    let mut members: Vec<ServerConfig> = (0..3).map(|_| quick_etcd(directory)).collect();
    for (number, member) in members.iter_mut().enumerate() {
        member.name = format!("member{number}");
        member.data_dir = directory.join(&member.name);
    }
    let all: Vec<String> =
        members.iter().map(|member| format!("{}={}", member.name, member.peer_url)).collect();
    members.iter_mut().for_each(|member| member.initial_cluster = Some(all.join(",")));
    let servers = futures::future::join_all(members.into_iter().map(Server::start)).await;
    servers.into_iter().map(|server| server.unwrap_or_else(|error| panic!("{error}"))).collect()
}

async fn through(server: &Server) -> Arc<Etcd> {
    Arc::new(etcd::open(Config::new(vec![server.endpoint()])).await.unwrap())
}

/// Each check is a write that was acknowledged through one member and then a read through another that must
/// show it: a read that is not linearizable would answer from before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_written_through_one_member_is_read_through_another_at_once() {
    const LANES: usize = 40;
    const ROUNDS: usize = 50;
    let directory = tempfile::tempdir().unwrap();
    let servers = three(directory.path()).await;
    let mut stores = vec![];
    for server in &servers {
        stores.push(through(server).await);
    }
    let lanes = (0..LANES).map(|lane| {
        let (writer, reader) = (Arc::clone(&stores[lane % 3]), Arc::clone(&stores[(lane + 1) % 3]));
        tokio::spawn(async move {
            let key = format!("lane/{lane}");
            for round in 0..ROUNDS {
                let value = format!("{lane}.{round}");
                let revision = writer.commit(put(key.clone(), value.clone())).await.unwrap();
                let entry = reader
                    .get(&key.clone().into())
                    .await
                    .unwrap()
                    .expect("an acknowledged write is not there");
                assert_eq!((entry.value, entry.modified), (value.into(), revision));
                assert!(reader.revision().await.unwrap() >= revision);
            }
        })
    });
    for lane in futures::future::join_all(lanes).await {
        lane.unwrap();
    }
    for server in servers {
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_one_member_of_three_hung_writes_go_on_through_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let servers = three(directory.path()).await;
    let store = through(&servers[0]).await;
    let before = store.commit(put("k", "before")).await.unwrap();
    // Stopped rather than killed: a killed one would be started again at once.
    let hung = Pid::from_raw(servers[2].pid().unwrap() as i32).unwrap();
    kill_process(hung, Signal::STOP).unwrap();
    let mut rounds = 0;
    let after = loop {
        match store.commit(put("k", "after")).await {
            Ok(revision) => break revision,
            Err(StoreError::Unavailable { .. } | StoreError::OutcomeUnknown { .. }) if rounds < 100 => {
                rounds += 1;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(other) => panic!("{other}"),
        }
    };
    assert!(after > before);
    assert_eq!(through(&servers[1]).await.get(&"k".into()).await.unwrap().unwrap().value, "after");
    kill_process(hung, Signal::CONT).unwrap();
    for server in servers {
        server.stop().await;
    }
}
