//! A reflector: a copy of what is there, kept by watching, that must equal what a fresh list says.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt,
    api::ListParams,
    runtime::{
        WatchStreamExt, reflector,
        watcher::{self, watcher},
    },
};
use serde_json::json;
use tokio::{sync::watch, time::sleep};

use super::{Memory, Stage, persist, put, remove, soon};
use crate::server::Server;

const SELECTED: &str = "reflected=yes";
const WRITERS: usize = 4;

/// The copy equals a fresh list, before, during and after a restart, and each object was told in the order of its
/// versions. A server that remembers is never listed again.
pub async fn the_copy_equals_a_fresh_list<S: Server + Send + 'static>(mut stage: Stage<S>, memory: Memory) {
    let maps = stage.config_maps();
    let (store, writer) = reflector::store::<ConfigMap>();
    let told = Arc::new(Mutex::new(Told::default()));
    let noting = told.clone();
    let reflecting = reflector(writer, watcher(maps.clone(), watcher::Config::default().labels(SELECTED)))
        .default_backoff()
        .for_each(move |event| {
            match event {
                Ok(event) => noting.lock().unwrap().note(event),
                Err(_) => noting.lock().unwrap().broken += 1,
            }
            std::future::ready(())
        });
    tokio::spawn(reflecting);
    store.wait_until_ready().await.unwrap();

    for round in 0..2 {
        let (stop, stopped) = watch::channel(false);
        let writers: Vec<_> = (0..WRITERS)
            .map(|n| tokio::spawn(write(maps.clone(), format!("w{n}"), round, stopped.clone())))
            .collect();
        sleep(Duration::from_millis(300)).await;
        stage.restart().await;
        sleep(Duration::from_millis(300)).await;
        stop.send_replace(true);
        for writer in writers {
            writer.await.unwrap();
        }
        soon("the copy equals a fresh list", async || {
            let selected = ListParams::default().labels(SELECTED);
            let list = persist(|| maps.list(&selected)).await;
            let fresh: BTreeMap<_, _> = list.iter().map(identity).collect();
            let copied: BTreeMap<_, _> = store.state().iter().map(|map| identity(map)).collect();
            if fresh == copied { Ok(()) } else { Err(format!("there: {fresh:?}; copied: {copied:?}")) }
        })
        .await;
    }

    let told = told.lock().unwrap();
    assert_eq!(told.disorder, Vec::<String>::new());
    assert!(told.broken > 0, "the restarts were noticed");
    assert!(told.changes > 4 * WRITERS, "{} changes were told", told.changes);
    match memory {
        Memory::Lasting => assert_eq!(told.lists, 1, "a server that remembers is listed once"),
        Memory::Forgetful => assert!(told.lists >= 1),
    }
}

/// Which object, and as of when.
fn identity(map: &ConfigMap) -> (String, (Option<String>, Option<String>)) {
    (map.name_any(), (map.uid(), map.resource_version()))
}

/// Writes, changes and deletes one object over and over; leaves it there in every second name.
async fn write(maps: Api<ConfigMap>, name: String, round: usize, stopped: watch::Receiver<bool>) {
    let labels = json!({"reflected": "yes"});
    for life in 0.. {
        for change in 0..3 {
            put(&maps, &name, labels.clone(), json!({"count": format!("{round}.{life}.{change}")})).await;
        }
        if *stopped.borrow() && name.ends_with(['0', '2']) {
            return;
        }
        remove(&maps, &name).await;
        if *stopped.borrow() {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
}

/// What the reflector was told.
#[derive(Default)]
struct Told {
    lists: usize,
    changes: usize,
    broken: usize,
    /// Per object.
    versions: BTreeMap<String, u64>,
    disorder: Vec<String>,
}

impl Told {
    fn note(&mut self, event: watcher::Event<ConfigMap>) {
        match event {
            watcher::Event::Init => self.lists += 1,
            watcher::Event::Apply(map) | watcher::Event::Delete(map) => {
                self.changes += 1;
                self.in_order(&map, true);
            }
            // A list may tell what is known already.
            watcher::Event::InitApply(map) => self.in_order(&map, false),
            watcher::Event::InitDone => {}
        }
    }

    fn in_order(&mut self, map: &ConfigMap, must_be_new: bool) {
        let version: u64 = map.resource_version().unwrap().parse().unwrap();
        let before = self.versions.insert(map.name_any(), version).unwrap_or_default();
        if version < before || must_be_new && version == before {
            self.disorder.push(format!("{} at {version} after {before}", map.name_any()));
        }
    }
}
