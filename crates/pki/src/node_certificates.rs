//! All certificates of one node, kept in one directory and kept fresh.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use rustls::{ClientConfig, ServerConfig};
use sheaf_world::World;
use tracing::{error, info};

use crate::{
    Leaf, PkiError, ServingNames,
    authority::Authority,
    durable,
    leaf::{self, LeafSpec},
    serving::{self, Shown},
};

/// The name of the certificate the API server shows.
pub const SERVING: &str = "apiserver";
/// The name of the certificate in the administrator's kubeconfig.
pub const ADMIN: &str = "admin";
/// The name of the certificate that the agent's stream port shows.
pub const AGENT: &str = "agent";
/// The name of the certificate with which the API server asks agents.
pub const APISERVER_CLIENT: &str = "apiserver-client";
/// Whom that certificate names. It holds no rights of its own in the API.
pub const APISERVER_USER: &str = "system:sheaf:apiserver";

const CHECKED_EVERY: Duration = Duration::from_secs(3600);

/// The authority and the leaves of one node. The directory is its own: nobody else writes there.
pub struct NodeCertificates {
    directory: PathBuf,
    world: World,
    authority: Authority,
    wanted: BTreeMap<&'static str, LeafSpec>,
    leaves: Mutex<BTreeMap<&'static str, Leaf>>,
    /// What is shown to new connections, by the name of the leaf.
    shown: BTreeMap<&'static str, Arc<Shown>>,
    server_config: Arc<ServerConfig>,
    agent_server_config: Arc<ServerConfig>,
    agent_client_config: Arc<ClientConfig>,
}

impl std::fmt::Debug for NodeCertificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeCertificates").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl NodeCertificates {
    /// Brings the certificates in `directory` to what a node reached by `names` needs,
    /// making the directory, the authority and whatever leaf is missing or due.
    pub fn ensure(directory: &Path, names: ServingNames, world: &World) -> Result<Self, PkiError> {
        durable::ensure_private_directory(directory)
            .map_err(|source| PkiError::Write { path: directory.to_owned(), source })?;
        let authority = Authority::ensure(directory, world)?;
        let agent =
            LeafSpec::Server { common_name: format!("system:node:{}", names.node), names: names.only_node() };
        let wanted = BTreeMap::from([
            (AGENT, agent),
            (
                APISERVER_CLIENT,
                LeafSpec::Client { common_name: APISERVER_USER.into(), organisations: Vec::new() },
            ),
            (SERVING, LeafSpec::Server { common_name: "kube-apiserver".into(), names }),
            (
                ADMIN,
                LeafSpec::Client {
                    common_name: "admin".into(),
                    organisations: vec!["system:masters".into()],
                },
            ),
        ]);
        let mut leaves = BTreeMap::new();
        for (name, spec) in &wanted {
            leaves.insert(*name, ensure_leaf(directory, name, spec, &authority, world)?.0);
        }
        let mut shown = BTreeMap::new();
        for name in [AGENT, APISERVER_CLIENT, SERVING] {
            // Everybody else knows the authority, or would not be let in.
            let behind = if name == SERVING { authority.pem.as_str() } else { "" };
            shown.insert(name, Arc::new(Shown::new(name, &leaves[name], behind)?));
        }
        let (pem, clock) = (&authority.pem, &world.clock);
        let server_config = serving::server_config(shown[SERVING].clone(), pem, clock)?;
        let agent_server_config = serving::agent_server_config(shown[AGENT].clone(), pem, clock)?;
        let agent_client_config = serving::client_config(shown[APISERVER_CLIENT].clone(), pem, clock)?;
        let leaves = Mutex::new(leaves);
        Ok(Self {
            directory: directory.to_owned(),
            world: world.clone(),
            authority,
            wanted,
            leaves,
            shown,
            server_config,
            agent_server_config,
            agent_client_config,
        })
    }

    /// What the API server's listeners use. It follows renewals by itself.
    pub fn server_config(&self) -> Arc<ServerConfig> {
        self.server_config.clone()
    }

    /// What the agent's stream port uses: nobody enters without a certificate of ours, and whose it is the
    /// port itself looks at. It follows renewals by itself.
    pub fn agent_server_config(&self) -> Arc<ServerConfig> {
        self.agent_server_config.clone()
    }

    /// What the API server asks agents with. The name to verify is the node's. It follows renewals by itself.
    pub fn agent_client_config(&self) -> Arc<ClientConfig> {
        self.agent_client_config.clone()
    }

    /// The certificates that clients of this node must trust, as PEM.
    pub fn authority_pem(&self) -> &str {
        &self.authority.pem
    }

    /// When the authority expires, in seconds since the Unix epoch.
    pub fn authority_expires(&self) -> i64 {
        self.authority.expires
    }

    /// The administrator's client certificate as it is now.
    pub fn admin(&self) -> Leaf {
        self.leaves.lock()[ADMIN].clone()
    }

    /// Replaces every leaf that is due and says which ones.
    ///
    /// Looks at the files, not at memory: what an operator removed or replaced is noticed.
    pub fn renew_due(&self) -> Result<Vec<&'static str>, PkiError> {
        let mut renewed = Vec::new();
        for (name, spec) in &self.wanted {
            let (leaf, is_new) = ensure_leaf(&self.directory, name, spec, &self.authority, &self.world)?;
            if self.leaves.lock().get(name) == Some(&leaf) && !is_new {
                continue;
            }
            if let Some(shown) = self.shown.get(name) {
                shown.swap(&leaf)?;
            }
            self.leaves.lock().insert(name, leaf);
            renewed.push(*name);
        }
        Ok(renewed)
    }

    /// Checks every hour, for ever; calls `renewed` with the names of what it replaced.
    ///
    /// A check that fails (a full disk, say) is logged and made again an hour later: with
    /// a third of a year to go there are some three thousand attempts left. The few
    /// kilobytes are written and synced on the calling task.
    pub async fn keep_fresh(&self, mut renewed: impl FnMut(&[&'static str])) -> Infallible {
        loop {
            tokio::time::sleep(CHECKED_EVERY).await;
            match self.renew_due() {
                Ok(names) if names.is_empty() => {}
                Ok(names) => renewed(&names),
                Err(why) => error!(error = &why as &dyn std::error::Error, "cannot renew certificates"),
            }
        }
    }
}

fn ensure_leaf(
    directory: &Path,
    name: &str,
    spec: &LeafSpec,
    authority: &Authority,
    world: &World,
) -> Result<(Leaf, bool), PkiError> {
    match leaf::read(directory, name, spec, authority, leaf::now(world))? {
        Ok(leaf) => Ok((leaf, false)),
        Err(due) => {
            info!(certificate = name, reason = ?due, "making a new certificate");
            Ok((leaf::issue(directory, name, spec, authority, world)?, true))
        }
    }
}
