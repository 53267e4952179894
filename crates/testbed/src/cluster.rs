//! One node's control plane: an empty store in memory, an API server on it, controllers when asked for.

use std::{sync::Arc, time::Duration};

use rustls::{ClientConfig, ServerConfig};
use sheaf_apiserver::{
    ApiConfig, ApiServer,
    encryption::{KeepNothing, KeyRing},
    identity::{
        SigningKeys, User, generate_key_pem,
        service_accounts::{ServiceAccount, TokenIssuer, TokenSettings},
    },
    machines::agents::{DialAgent, NoAgents, OverTls},
    server,
};
use sheaf_controllers::Settings;
use sheaf_resources::kinds::ip_pool::Cidr;
use sheaf_store::{Expect, Range, Store, Transaction, Write, embedded};
use sheaf_world::World;
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};

const ISSUER: &str = "https://10.0.0.1:6443";
/// What stands in for a certificate authority: nobody here checks a certificate.
pub const CA_PEM: &str = "-----BEGIN CERTIFICATE-----\nc2ltdWxhdGVk\n-----END CERTIFICATE-----\n";

pub struct Cluster {
    pub world: World,
    pub store: Arc<dyn Store>,
    pub server: ApiServer,
    token_keys: Arc<SigningKeys>,
}

impl Cluster {
    /// Store and API server; nothing acts by itself yet.
    pub async fn start(seed: u64) -> Self {
        Cluster::start_in(World::seeded(seed), Arc::new(NoAgents)).await
    }

    /// The same in a world of the caller's, with nodes that are reached over TLS.
    pub async fn start_reaching_nodes(world: World, tls: Arc<ClientConfig>) -> Self {
        Cluster::start_in(world, Arc::new(OverTls::new(tls))).await
    }

    async fn start_in(world: World, agents: Arc<dyn DialAgent>) -> Self {
        let store: Arc<dyn Store> = Arc::new(embedded::in_memory().expect("memory can be opened"));
        let pem = generate_key_pem(&world.chance).expect("a key can be drawn");
        let token_keys =
            Arc::new(SigningKeys::from_pem(pem.as_bytes(), &[]).expect("a drawn key can be read"));
        let config = ApiConfig {
            address: "10.0.0.1:6443".into(),
            issuer: ISSUER.into(),
            ca_pem: CA_PEM.into(),
            token_keys: token_keys.clone(),
            encryption_keys: KeyRing::generate(&world),
            keep_keys: Arc::new(KeepNothing),
            vm_cidr: Cidr::DEFAULT_NETWORK,
            agents,
            audit: None,
            metric_sources: vec![],
            threads: false,
        };
        let server =
            ApiServer::build(config, store.clone(), world.clone()).await.expect("the API server starts");
        Cluster { world, store, server, token_keys }
    }

    /// Answers at `listener` as a node does, until the task is aborted.
    pub fn listen(&self, listener: TcpListener, tls: Arc<ServerConfig>) -> JoinHandle<std::io::Result<()>> {
        tokio::spawn(server::serve(self.server.clone(), listener, tls, std::future::pending()))
    }

    /// A client that may do anything.
    pub fn client(&self) -> kube::Client {
        self.client_of("admin", &["system:masters"])
    }

    pub fn client_of(&self, name: &str, groups: &[&str]) -> kube::Client {
        let mut groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
        groups.push("system:authenticated".into());
        sheaf_client::in_process(&self.server, User { name: name.into(), groups, ..User::default() })
    }

    pub fn settings(&self) -> Settings {
        let settings = TokenSettings {
            issuer: ISSUER.into(),
            audiences: vec![ISSUER.into()],
            max_expiration_secs: 3600,
        };
        let issuer = TokenIssuer::new(self.token_keys.clone(), settings, self.world.clone());
        Settings {
            ca_pem: CA_PEM.into(),
            legacy_token: Arc::new(move |namespace, name, uid, secret| {
                issuer.issue_legacy(&ServiceAccount { namespace, name, uid }, secret)
            }),
            set_log_level: Arc::new(|_| Ok(())),
            event_lifetime: sheaf_controllers::EVENT_LIFETIME,
        }
    }

    /// Starts all controllers.
    pub fn start_controllers(&self) -> RunningControllers {
        self.start_controllers_with(self.client_of("system:sheaf:controllers", &["system:masters"]))
    }

    /// Starts all controllers with a client of the caller's choice.
    pub fn start_controllers_with(&self, client: kube::Client) -> RunningControllers {
        let controllers = sheaf_controllers::build(client, self.world.clone(), self.settings());
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(controllers.run(async {
            // Told to stop, or forgotten by whoever could.
            let _ = stopped.await;
        }));
        RunningControllers { stop, running }
    }

    /// Replaces a text in everything that is stored, behind the API server's back: for objects that a release with other
    /// rules stored. Answers how many objects had it.
    pub async fn rewrite_stored(&self, from: &str, to: &str) -> usize {
        let page = self.store.range(Range::default()).await.expect("a store in memory answers");
        let mut rewritten = 0;
        for entry in page.entries {
            let Ok(text) = std::str::from_utf8(&entry.value) else { continue };
            if text.contains(from) {
                let value = text.replace(from, to).into();
                let expect = vec![Expect::ModifiedAt { key: entry.key.clone(), revision: entry.modified }];
                let writes = vec![Write::Put { key: entry.key, value }];
                self.store.commit(Transaction { expect, writes }).await.expect("nobody else writes now");
                rewritten += 1;
            }
        }
        rewritten
    }

    /// The newest revision of the store: whoever writes moves it.
    pub async fn revision(&self) -> u64 {
        self.store.revision().await.expect("a store in memory answers").0
    }

    /// Lets time pass until nothing has been written for a while; answers the revision then.
    pub async fn settle(&self) -> u64 {
        // Longer than the longest wait of a controller that has work left.
        const QUIET: Duration = Duration::from_secs(70);
        const MOST: u32 = 60;
        let mut before = self.revision().await;
        for _ in 0..MOST {
            tokio::time::sleep(QUIET).await;
            let now = self.revision().await;
            if now == before {
                return now;
            }
            before = now;
        }
        panic!("the cluster never comes to rest");
    }
}

/// Controllers under way.
pub struct RunningControllers {
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

impl RunningControllers {
    /// Stops them wherever they are.
    pub async fn stop(self) {
        let _ = self.stop.send(());
        self.running.await.expect("controllers do not panic");
    }
}
