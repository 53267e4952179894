//! Stories for operators written with kube-rs: what its runtime promises, while the server is killed and comes back.
//!
//! They are told of any server, Sheaf or the original, and know nothing of either but whether it forgets its history
//! when it restarts.

pub mod lamps;
pub mod reflecting;

use std::{fs, time::Duration};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client, Error,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::{patience::TOO_LONG, server::Server};

/// What is known of a server that was killed and started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// A watch from any version that it told goes on from there.
    Lasting,
    /// A watch from before may be refused, and who watched lists again.
    Forgetful,
}

/// A server, a client of it and a namespace.
pub struct Stage<S> {
    server: Option<S>,
    pub client: Client,
    pub namespace: String,
}

/// Tells a story on a stage of its own.
pub fn tell<S: Server + Send + 'static>(server: S, story: impl AsyncFnOnce(Stage<S>)) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let kubeconfig = fs::read_to_string(server.admin_kubeconfig()).unwrap();
        let client = sheaf_client::from_kubeconfig(&kubeconfig).await.unwrap();
        let namespace = "kube-rs".to_owned();
        let made = Namespace {
            metadata: ObjectMeta { name: Some(namespace.clone()), ..ObjectMeta::default() },
            ..Namespace::default()
        };
        Api::all(client.clone()).create(&PostParams::default(), &made).await.unwrap();
        timeout(3 * TOO_LONG, story(Stage { server: Some(server), client, namespace })).await.unwrap();
    });
    // What the story left running ends here.
    runtime.shutdown_timeout(Duration::from_secs(1));
}

impl<S: Server + Send + 'static> Stage<S> {
    /// Has the server killed and started again. Whoever uses it meanwhile sees it gone.
    pub async fn restart(&mut self) {
        let server = self.server.take().unwrap();
        let again = tokio::task::spawn_blocking(move || server.killed_and_started_again()).await.unwrap();
        self.server = Some(again);
    }

    pub fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

/// Says how a ConfigMap is to be, over and over until the server says that it is.
pub async fn put(maps: &Api<ConfigMap>, name: &str, labels: Value, data: Value) -> ConfigMap {
    let wanted = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "labels": labels}, "data": data,
    });
    let (parameters, patch) = (PatchParams::apply("story").force(), Patch::Apply(&wanted));
    persist(|| maps.patch(name, &parameters, &patch)).await
}

/// Deletes, over and over until there is nothing to delete.
pub async fn remove(maps: &Api<ConfigMap>, name: &str) {
    persist(|| async {
        match maps.delete(name, &DeleteParams::default()).await {
            Err(Error::Api(status)) if status.code == 404 => Ok(()),
            other => other.map(drop),
        }
    })
    .await;
}

/// Tries again while the server is away; a refusal by one that is there is a failure.
pub async fn persist<T, F: Future<Output = Result<T, Error>>>(mut attempt: impl FnMut() -> F) -> T {
    let began = Instant::now();
    loop {
        match attempt().await {
            Ok(done) => return done,
            Err(Error::Api(status)) if status.code < 500 && status.code != 429 => {
                panic!("refused: {status:?}")
            }
            Err(why) => assert!(began.elapsed() < TOO_LONG, "the server never comes back: {why}"),
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// Asks `look` until it has nothing to complain about.
pub async fn soon(what: &str, mut look: impl AsyncFnMut() -> Result<(), String>) {
    let began = Instant::now();
    while let Err(complaint) = look().await {
        assert!(began.elapsed() < TOO_LONG, "waited too long: {what}; in the end: {complaint}");
        sleep(Duration::from_millis(50)).await;
    }
}
