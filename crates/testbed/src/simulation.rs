//! A scripted workload on a whole control plane, from one seed.
//!
//! Two clients at a time make, change and delete objects that own each other, namespaces, accounts with tokens, and a
//! kind of their own from birth to death; watchers follow all of it. What they do is drawn from the seed, and so
//! is everything the servers draw. The [trace](crate::trace) holds all there is to see.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use sheaf_world::Chance;

use crate::{
    cluster::Cluster,
    in_virtual_time,
    kubectl::Kubectl,
    trace::{Trace, Traced},
};

/// Collections followed from the first moment.
const FOLLOWED: [&str; 9] = [
    "/api/v1/namespaces",
    "/api/v1/configmaps",
    "/api/v1/secrets",
    "/api/v1/serviceaccounts",
    "/api/v1/events",
    "/apis/coordination.k8s.io/v1/leases",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
];
const NAMESPACES: [&str; 3] = ["default", "red", "blue"];
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "widgets.example.com";

#[derive(Clone, Copy, Debug)]
pub struct Simulation {
    pub seed: u64,
    /// What each of the two clients does.
    pub steps: usize,
}

impl Simulation {
    /// Runs it and answers all that was seen.
    pub fn run(self) -> Vec<String> {
        in_virtual_time(async {
            let cluster = Cluster::start(self.seed).await;
            let trace = Trace::new(cluster.world.clock.clone());
            for path in FOLLOWED {
                trace.follow(cluster.client(), path.to_owned());
            }
            let controllers = cluster.start_controllers();
            let clients = ["first", "second"].map(|name| {
                let kubectl = Kubectl(cluster.client_of(name, &["system:masters"]));
                let client = Traced { name, kubectl, trace: trace.clone() };
                // A stream of its own: what a client does must not hang on what servers draw.
                let chance = Chance::seeded(self.seed ^ u64::from(name.as_bytes()[0]));
                tokio::spawn(Workload { client, chance, made: Vec::new() }.run(self.steps))
            });
            for client in clients {
                client.await.expect("a workload does not panic");
            }
            cluster.settle().await;
            let last = Traced { name: "last", kubectl: Kubectl(cluster.client()), trace: trace.clone() };
            for path in FOLLOWED {
                last.ask(Method::GET, path, None).await;
            }
            controllers.stop().await;
            trace.lines()
        })
    }
}

/// What one client does.
struct Workload {
    client: Traced,
    chance: Chance,
    /// Path of each object made, and the reference another would own itself to.
    made: Vec<(String, Value)>,
}

impl Workload {
    async fn run(mut self, steps: usize) {
        for name in NAMESPACES.iter().skip(1) {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            self.ask(Method::POST, "/api/v1/namespaces", Some(namespace)).await;
        }
        for _ in 0..steps {
            self.step().await;
            let pause = self.chance.below(400);
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }

    async fn step(&mut self) {
        let namespace = NAMESPACES[self.draw(NAMESPACES.len())];
        match self.draw(14) {
            0..=3 => {
                self.make(&format!("/api/v1/namespaces/{namespace}/configmaps"), "v1", "ConfigMap").await
            }
            4 | 5 => {
                let path = format!("/apis/example.com/v1/namespaces/{namespace}/widgets");
                self.make(&path, "example.com/v1", "Widget").await;
            }
            6 => self.label().await,
            7..=9 => self.delete().await,
            10 => self.ask_for_token(namespace).await,
            11 => self.define().await,
            12 => {
                self.ask(Method::DELETE, &format!("{DEFINITIONS}/{WIDGETS}"), None).await;
            }
            _ => {
                let name = NAMESPACES[1 + self.draw(NAMESPACES.len() - 1)];
                self.ask(Method::DELETE, &format!("/api/v1/namespaces/{name}"), None).await;
                tokio::time::sleep(Duration::from_secs(2)).await;
                let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
                self.ask(Method::POST, "/api/v1/namespaces", Some(namespace)).await;
            }
        }
    }

    /// Makes an object with a name drawn by the server, owned by up to two of those made before.
    async fn make(&mut self, path: &str, api_version: &str, kind: &str) {
        let owners: Vec<Value> = (0..self.draw(3)).filter_map(|_| self.owner()).collect();
        let object = json!({
            "apiVersion": api_version, "kind": kind,
            "metadata": {"generateName": "made-", "ownerReferences": owners},
        });
        let (code, made) = self.ask(Method::POST, path, Some(object)).await;
        if code == 201 {
            let metadata = &made["metadata"];
            let reference = json!({
                "apiVersion": api_version, "kind": kind, "name": metadata["name"], "uid": metadata["uid"],
            });
            self.made.push((format!("{path}/{}", metadata["name"].as_str().unwrap_or_default()), reference));
        }
    }

    fn owner(&mut self) -> Option<Value> {
        let at = self.draw(self.made.len().max(1));
        let mut reference = self.made.get(at)?.1.clone();
        reference["blockOwnerDeletion"] = (self.draw(2) == 0).into();
        Some(reference)
    }

    async fn label(&mut self) {
        let at = self.draw(self.made.len().max(1));
        let Some((path, _)) = self.made.get(at).cloned() else { return };
        let change = json!({"metadata": {"labels": {"drawn": self.draw(9).to_string()}}});
        self.ask(Method::PATCH, &path, Some(change)).await;
    }

    async fn delete(&mut self) {
        let at = self.draw(self.made.len().max(1));
        let Some((path, _)) = self.made.get(at).cloned() else { return };
        let propagation = ["Background", "Foreground", "Orphan"][self.draw(3)];
        self.ask(Method::DELETE, &path, Some(json!({"propagationPolicy": propagation}))).await;
    }

    async fn ask_for_token(&mut self, namespace: &str) {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "metadata": {
                "generateName": "token-",
                "annotations": {"kubernetes.io/service-account.name": "default"},
            },
        });
        self.ask(Method::POST, &format!("/api/v1/namespaces/{namespace}/secrets"), Some(secret)).await;
        if self.draw(3) == 0 {
            let account = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
            self.ask(Method::DELETE, &account, None).await;
        }
    }

    async fn define(&mut self) {
        let (code, _) = self.ask(Method::POST, DEFINITIONS, Some(widgets())).await;
        if code == 201 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let client = self.client.kubectl.0.clone();
            self.client.trace.follow(client, "/apis/example.com/v1/widgets".to_owned());
        }
    }

    async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> (u16, Value) {
        self.client.ask(method, path, body).await
    }

    fn draw(&self, below: usize) -> usize {
        self.chance.below(below as u64) as usize
    }
}

/// A definition of a namespaced kind that takes anything.
pub fn widgets() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": WIDGETS},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}
