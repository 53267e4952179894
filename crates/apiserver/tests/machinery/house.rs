//! A server to try things on: in memory, as anybody one likes.

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use http::{Method, Request};
use http_body_util::{BodyExt, BodyStream, Full};
use serde_json::{Value, json};
use sheaf_apiserver::{
    ApiConfig, ApiServer,
    audit::Recording,
    dispatch::Peer,
    encryption::{KeepKeys, KeepNothing, KeyRing},
    identity::{MASTERS, SigningKeys, User, generate_key_pem},
    machines::agents::{DialAgent, NoAgents},
    respond::ApiBody,
};
use sheaf_resources::kinds::ip_pool::Cidr;
use sheaf_store::{Store, embedded};
use sheaf_world::World;

pub struct House {
    pub server: ApiServer,
    pub store: Arc<dyn Store>,
    pub user: User,
}

/// An answer, read whole.
#[derive(Debug)]
pub struct Answer {
    pub code: u16,
    pub warnings: Vec<String>,
    pub body: Value,
}

impl Answer {
    /// The body of an answer that must be a success.
    #[track_caller]
    pub fn ok(self) -> Value {
        assert!(self.code < 300, "{} {:#}", self.code, self.body);
        self.body
    }

    /// `(code, reason)` of a refusal.
    #[track_caller]
    pub fn refusal(&self) -> (u16, &str) {
        assert_eq!(self.body["kind"], "Status", "{:#}", self.body);
        (self.code, self.body["reason"].as_str().unwrap_or_default())
    }

    pub fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }
}

impl House {
    pub async fn new() -> Self {
        Self::on(Arc::new(embedded::in_memory().unwrap())).await
    }

    pub async fn on(store: Arc<dyn Store>) -> Self {
        let world = World::seeded(1);
        let keys = generate_key_pem(&world.chance).unwrap();
        let ring = KeyRing::generate(&world);
        Self::with_keys(store, world, keys.as_bytes(), ring, Arc::new(KeepNothing)).await
    }

    /// On a store, asked for other addresses of machines than usual.
    pub async fn with_network(store: Arc<dyn Store>, vm_cidr: Cidr) -> Self {
        let world = World::seeded(1);
        let keys = generate_key_pem(&world.chance).unwrap();
        let ring = KeyRing::generate(&world);
        let (keep, agents) = (Arc::new(KeepNothing), Arc::new(NoAgents));
        Self::made(store, world, keys.as_bytes(), ring, keep, vm_cidr, agents, None).await
    }

    /// A server that reaches nodes through `agents`.
    pub async fn reaching(agents: Arc<dyn DialAgent>) -> Self {
        Self::reaching_on(Arc::new(embedded::in_memory().unwrap()), agents).await
    }

    pub async fn reaching_on(store: Arc<dyn Store>, agents: Arc<dyn DialAgent>) -> Self {
        let world = World::seeded(1);
        let keys = generate_key_pem(&world.chance).unwrap();
        let ring = KeyRing::generate(&world);
        let keep = Arc::new(KeepNothing);
        Self::made(store, world, keys.as_bytes(), ring, keep, Cidr::DEFAULT_NETWORK, agents, None).await
    }

    /// A server that writes down what is done.
    pub async fn audited(audit: Recording) -> Self {
        let world = World::seeded(1);
        let keys = generate_key_pem(&world.chance).unwrap();
        let ring = KeyRing::generate(&world);
        let (store, keep) = (Arc::new(embedded::in_memory().unwrap()), Arc::new(KeepNothing));
        let (cidr, agents) = (Cidr::DEFAULT_NETWORK, Arc::new(NoAgents));
        Self::made(store, world, keys.as_bytes(), ring, keep, cidr, agents, Some(audit)).await
    }

    pub async fn with_keys(
        store: Arc<dyn Store>,
        world: World,
        signing: &[u8],
        ring: KeyRing,
        keep_keys: Arc<dyn KeepKeys>,
    ) -> Self {
        let (cidr, agents) = (Cidr::DEFAULT_NETWORK, Arc::new(NoAgents));
        Self::made(store, world, signing, ring, keep_keys, cidr, agents, None).await
    }

    #[allow(clippy::too_many_arguments, reason = "each of them is something that a test wants otherwise")]
    async fn made(
        store: Arc<dyn Store>,
        world: World,
        signing: &[u8],
        ring: KeyRing,
        keep_keys: Arc<dyn KeepKeys>,
        vm_cidr: Cidr,
        agents: Arc<dyn DialAgent>,
        audit: Option<Recording>,
    ) -> Self {
        let config = ApiConfig {
            address: "127.0.0.1:6443".into(),
            issuer: "https://127.0.0.1:6443".into(),
            ca_pem: CA_PEM.to_owned(),
            token_keys: Arc::new(SigningKeys::from_pem(signing, &[]).unwrap()),
            encryption_keys: ring,
            keep_keys,
            vm_cidr,
            agents,
            audit,
            metric_sources: vec![Arc::new(|text| text.push_str("of_somebody_else 1\n"))],
            threads: false,
        };
        let server = ApiServer::build(config, store.clone(), world).await.unwrap();
        let user = User { name: "root".into(), groups: vec![MASTERS.into()], ..User::default() };
        House { server, store, user }
    }

    pub fn peer(&self) -> Peer {
        Peer { identity: Some(Arc::new(self.user.clone())), ..Peer::default() }
    }

    pub async fn send(
        &self,
        method: Method,
        uri: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).unwrap();
        let response = self.server.handle(request, &self.peer()).await;
        let code = response.status().as_u16();
        let warnings =
            response.headers().get_all("warning").iter().map(|w| w.to_str().unwrap().to_string()).collect();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body = serde_json::from_slice(&body)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&body).into()));
        Answer { code, warnings, body }
    }

    pub async fn get(&self, uri: &str) -> Answer {
        self.send(Method::GET, uri, &[], "").await
    }

    pub async fn post(&self, uri: &str, body: Value) -> Answer {
        self.send(Method::POST, uri, &[("content-type", "application/json")], body.to_string()).await
    }

    pub async fn put(&self, uri: &str, body: Value) -> Answer {
        self.send(Method::PUT, uri, &[("content-type", "application/json")], body.to_string()).await
    }

    pub async fn patch(&self, uri: &str, kind: &str, body: Value) -> Answer {
        let media = format!("application/{kind}+json");
        self.send(Method::PATCH, uri, &[("content-type", &media)], body.to_string()).await
    }

    pub async fn delete(&self, uri: &str) -> Answer {
        self.send(Method::DELETE, uri, &[], "").await
    }

    pub async fn delete_with(&self, uri: &str, options: Value) -> Answer {
        self.send(Method::DELETE, uri, &[("content-type", "application/json")], options.to_string()).await
    }

    /// A node called `n1` that says where its agent listens.
    pub async fn join_node(&self) {
        self.post("/api/v1/nodes", json!({"metadata": {"name": "n1"}})).await.ok();
        let status = json!({"status": {
            "addresses": [{"type": "InternalIP", "address": "192.0.2.7"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        }});
        self.patch("/api/v1/nodes/n1/status", "merge-patch", status).await.ok();
    }

    /// Makes a config map in `default` and answers it.
    pub async fn config_map(&self, name: &str, data: Value) -> Value {
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
        self.post(MAPS, object).await.ok()
    }

    pub async fn watch(&self, uri: &str) -> Watch {
        let request = Request::builder().uri(uri).body(Full::new(Bytes::new())).unwrap();
        let response = self.server.handle(request, &self.peer()).await;
        assert_eq!(response.status(), 200);
        Watch { body: BodyStream::new(response.into_body()), pending: Vec::new() }
    }

    /// A kind that takes whatever it is given; answers where its objects are.
    pub async fn establish_heaps(&self) -> &'static str {
        self.establish(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "heaps.example.com"},
            "spec": {"group": "example.com", "scope": "Cluster", "names": {"plural": "heaps", "kind": "Heap"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                    {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
        }))
        .await;
        "/apis/example.com/v1/heaps"
    }

    /// Lets a definition be served, as the controller would.
    pub async fn establish(&self, definition: Value) -> Value {
        let created = self.post(DEFINITIONS, definition).await.ok();
        let taken = sheaf_resources::kinds::custom_resource_definition::status::TakenNames::default();
        let mut served = created.clone();
        served["status"] = sheaf_resources::kinds::custom_resource_definition::status::next_status(
            &created,
            &taken,
            "2030-01-01T00:00:00Z",
        );
        let name = created["metadata"]["name"].as_str().unwrap();
        self.put(&format!("{DEFINITIONS}/{name}/status"), served).await.ok()
    }
}

/// What the server says that its authority is.
pub const CA_PEM: &str = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

pub struct Watch {
    body: BodyStream<ApiBody>,
    pending: Vec<u8>,
}

impl Watch {
    /// The next event; `None` when the watch ended.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.pending.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = self.body.next().await?.unwrap();
            self.pending.extend_from_slice(&frame.into_data().unwrap());
        }
    }

    /// `TYPE name@version` of the next event.
    pub async fn told(&mut self) -> String {
        let event = self.next().await.expect("the watch goes on");
        format!(
            "{} {}",
            event["type"].as_str().unwrap(),
            event["object"]["metadata"]["name"].as_str().unwrap_or("-")
        )
    }
}

pub fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}
