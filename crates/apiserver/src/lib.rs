//! The door: Kubernetes API machinery over a store, generic over kinds.
//!
//! ```text
//!  request -> who? (identity) -> may they? (authorization) -> a seat (fairness) -> which kind? (registry)
//!          -> read: cache, already encoded          (rest/get, list, watch)
//!          -> write: decode, default, admit, validate, compare-and-swap (rest/...)
//!          -> a line about it (audit)
//! ```
//!
//! The only crate that writes the store. It holds no state of its own that matters: the cache is
//! derived, and a second API server on the same store is as good as this one.

pub mod admission;
pub mod audit;
pub mod authorization;
pub mod body;
pub mod bootstrap;
pub mod cache;
mod console;
pub mod discovery;
pub mod dispatch;
pub mod encryption;
pub mod fairness;
pub mod health;
mod heard_out;
pub mod identity;
pub mod intake;
pub mod machines;
pub mod metrics;
pub mod negotiate;
pub mod openapi;
mod outlasting;
mod quota;
mod rancher;
pub mod registry;
pub mod request;
pub mod respond;
pub mod rest;
pub mod seals;
pub mod server;
pub mod status;
pub mod steve;
pub mod subresources;
pub mod support_bundle;
pub mod virtual_machine_image;

use std::{ops::Deref, sync::Arc};

use sheaf_resources::kinds::ip_pool::Cidr;
use sheaf_store::{Store, StoreError};
use sheaf_world::World;
use tokio::sync::watch;

use crate::{
    authorization::Authorizer,
    cache::Cache,
    encryption::{Cipher, KeepKeys, KeyRing},
    identity::{
        Authenticator, SigningKeys,
        passwords::Passwords,
        service_accounts::{ServiceAccount, TokenIssuer, TokenSettings},
        users::LocalUsers,
    },
    machines::{Nodes, agents::DialAgent},
    metrics::{MetricSource, Metrics},
    registry::Registry,
    seals::Seals,
};

/// The Kubernetes version whose API this is.
pub const KUBERNETES_VERSION: &str = "v1.34.1";

/// What an API server is made from.
pub struct ApiConfig {
    /// How clients reach this server: `10.0.0.5:6443`.
    pub address: String,
    /// What service-account tokens name as their issuer, and clients find it by.
    pub issuer: String,
    /// PEM of the cluster's CA, published to every namespace.
    pub ca_pem: String,
    pub token_keys: Arc<SigningKeys>,
    pub encryption_keys: KeyRing,
    pub keep_keys: Arc<dyn KeepKeys>,
    /// The addresses of the default network, settled when a cluster is first started.
    pub vm_cidr: Cidr,
    /// How the agents of nodes are reached.
    pub agents: Arc<dyn DialAgent>,
    /// Where it is written down who did what; nowhere if `None`.
    pub audit: Option<audit::Recording>,
    /// What is shown on `/metrics` beside the server's own numbers.
    pub metric_sources: Vec<MetricSource>,
    /// Whether slow work (password hashing, large bodies) may use threads; not in a simulation. Needs a runtime with
    /// several.
    pub threads: bool,
}

/// Cheap to clone; all clones are one server.
#[derive(Clone)]
pub struct ApiServer(Arc<Inner>);

pub struct Inner {
    pub world: World,
    pub config: ApiConfig,
    pub metrics: Metrics,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) registry: Registry,
    pub(crate) seals: Arc<Seals>,
    /// The keys in use. Locked for the whole of a rotation: one at a time.
    pub(crate) key_ring: tokio::sync::Mutex<KeyRing>,
    pub(crate) authenticator: Authenticator,
    pub(crate) authorizer: Authorizer,
    pub(crate) token_issuer: TokenIssuer,
    pub(crate) users: std::sync::OnceLock<LocalUsers>,
    pub(crate) openapi: openapi::Documents,
    /// Who uses what, for admission.
    pub(crate) machines: admission::Machines,
    pub(crate) intake: intake::Intake,
    /// Nodes bring theirs by a door of their own: whoever crowds the other must not cut them off.
    pub(crate) intake_of_nodes: intake::Intake,
    pub(crate) turns: quota::Turns,
    pub(crate) fairness: fairness::Fairness,
    pub(crate) audit: Arc<audit::Audit>,
    /// The way to the agents of nodes.
    pub(crate) nodes: Nodes,
    pub(crate) subscribers: steve::subscribe::Room,
    pub(crate) stopping: watch::Sender<bool>,
}

impl Deref for ApiServer {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl ApiServer {
    /// Fills the cache from the store and makes sure that what every cluster has is there.
    pub async fn build(config: ApiConfig, store: Arc<dyn Store>, world: World) -> Result<Self, StoreError> {
        let cipher = Cipher::new(&config.encryption_keys, world.chance.clone());
        let seals = Arc::new(Seals::new(cipher));
        let cache = Cache::start(store.clone(), seals.clone()).await?;
        let directory = Arc::new(identity_view::CachedDirectory::new(cache.clone()));
        let settings = TokenSettings {
            issuer: config.issuer.clone(),
            audiences: vec![config.issuer.clone(), "https://kubernetes.default.svc".into()],
            max_expiration_secs: 365 * 24 * 3600,
        };
        let server = ApiServer(Arc::new(Inner {
            metrics: Metrics::new(),
            registry: Registry::new(cache.clone()),
            authenticator: Authenticator::new(
                directory.clone(),
                config.token_keys.clone(),
                settings.clone(),
                world.clock.clone(),
            ),
            authorizer: Authorizer::new(directory.clone()),
            token_issuer: TokenIssuer::new(config.token_keys.clone(), settings, world.clone()),
            users: std::sync::OnceLock::new(),
            openapi: openapi::Documents::default(),
            machines: admission::Machines::default(),
            intake: intake::Intake::default(),
            intake_of_nodes: intake::Intake::default(),
            turns: quota::Turns::default(),
            fairness: fairness::Fairness::new(cores(config.threads)),
            audit: Arc::new(audit::Audit::new(config.audit.clone(), &world)),
            nodes: Nodes::new(config.agents.clone()),
            subscribers: steve::subscribe::Room::default(),
            stopping: watch::Sender::new(false),
            key_ring: tokio::sync::Mutex::new(config.encryption_keys.clone()),
            store,
            cache,
            seals,
            world,
            config,
        }));
        let passwords = Passwords::new(server.world.chance.clone(), server.config.threads);
        let objects = Arc::new(identity_view::ServerObjects::new(&server));
        let users = LocalUsers::new(directory, objects, passwords, server.world.clone());
        let _ = server.0.users.set(users);
        bootstrap::ensure(&server).await?;
        server.count_quotas().await;
        server.finish_rotation().await.map_err(|why| StoreError::Failed { reason: why.to_string() })?;
        Ok(server)
    }

    /// Ends all watches; new requests are still answered until the listener closes.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Writes the rest of the audit log. What is asked afterwards is not in it.
    pub fn close_audit(&self) {
        if let Some(log) = self.audit.log() {
            log.close();
        }
    }

    /// Blocks until the audit log has everything that was done so far.
    pub fn flush_audit(&self) {
        if let Some(log) = self.audit.log() {
            log.flush();
        }
    }

    /// Does work that takes long for large `bytes`, without holding up those whose requests share the thread.
    pub(crate) fn heavy<T>(&self, bytes: usize, work: impl FnOnce() -> T) -> T {
        const LARGE: usize = 64 * 1024;
        match self.config.threads && bytes > LARGE {
            true => tokio::task::block_in_place(work),
            false => work(),
        }
    }

    /// A token without an end, for a Secret that holds it: it lives as long as the Secret does.
    pub fn legacy_token(&self, account: &ServiceAccount<'_>, secret: &str) -> String {
        self.token_issuer.issue_legacy(account, secret)
    }

    /// Local users and their passwords.
    pub fn users(&self) -> &LocalUsers {
        // Set in `build` before anyone has the server.
        self.users.get().expect("users are there once the server is built")
    }
}

/// How many requests can be worked on at the same moment. The same number everywhere in a simulation.
fn cores(threads: bool) -> usize {
    match threads {
        true => std::thread::available_parallelism().map_or(2, usize::from),
        false => 2,
    }
}

mod identity_view;

#[cfg(test)]
mod identity_requests_tests;
