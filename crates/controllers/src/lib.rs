//! Cluster-wide hands: what the control plane does by itself, one module per kind.
//!
//! Every controller goes through the public Kubernetes API and nothing else, so it sees what any client
//! sees and may do what its role allows. State moves only through objects: nothing is
//! remembered that the objects do not say, and a controller killed between any two writes carries on
//! where they stand. Decisions are in `planner` and `resources`; here is only looking and acting.
//!
//! Deliberately absent: leader election. Two sets of controllers on one cluster do no harm, only double work: every
//! write names the version it saw, and what no version guards is decided on what the API itself says.

pub mod cluster_network;
pub mod cluster_role;
pub mod custom_resource_definition;
pub mod event;
pub mod garbage_collection;
pub mod harvester_resource_quota;
pub mod load_balancer;
pub mod namespace;
pub mod node;
mod object;
pub mod persistent_volume;
pub mod persistent_volume_claim;
mod references;
pub mod root_ca;
mod rounds;
mod secret_copy;
pub mod service_account;
pub mod service_account_token;
pub mod setting;
pub mod support_bundle;
mod telling;
pub mod token;
pub mod user;
pub mod virtual_machine;
pub mod virtual_machine_backup;
pub mod virtual_machine_clone;
pub mod virtual_machine_image;
pub mod virtual_machine_instance;
pub mod virtual_machine_instance_pod;
pub mod virtual_machine_instance_topology;
pub mod virtual_machine_network_config;
pub mod virtual_machine_restore;
pub mod virtual_machine_template;
pub mod vlan_config;
pub mod volume_attachment;
mod volume_room;
pub mod volume_snapshot;
pub mod volume_snapshot_content;

use std::{fmt, pin::Pin, sync::Arc, time::Duration};

use kube::Client;
use sheaf_client::memory::Memory;
use sheaf_resources::rbac;
use sheaf_world::World;
use tokio::task::JoinSet;

use self::object::Eyes;

/// Signs a token without an end for a Secret that holds it: namespace, account, the account's uid, the
/// Secret's name. Handed in, since only the API server has the key.
pub type LegacyToken = Arc<dyn Fn(&str, &str, &str, &str) -> String + Send + Sync>;

/// Lets the log of this process say as much as a level of Harvester's asks for, or says why it could not. Handed in, since
/// only the binary has the log.
pub type SetLogLevel = Arc<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// What controllers need to know and cannot find in the API.
#[derive(Clone)]
pub struct Settings {
    /// PEM of the CA that signed the API server's certificate.
    pub ca_pem: String,
    pub legacy_token: LegacyToken,
    pub set_log_level: SetLogLevel,
    /// Events are kept this long after they last happened.
    pub event_lifetime: Duration,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("event_lifetime", &self.event_lifetime).finish_non_exhaustive()
    }
}

/// How long events are kept when nobody says otherwise.
pub const EVENT_LIFETIME: Duration = Duration::from_secs(3600);

/// A controller that ended by a panic starts again after this.
const RESTART_AFTER: Duration = Duration::from_secs(1);

/// So many keys a controller looks at side by side, where none must see what was decided for another.
const SIDE_BY_SIDE: usize = 8;

/// What could not be done, because of something that no watch tells the end of, is looked at again after this.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// What every controller is handed.
#[derive(Clone)]
pub(crate) struct Context {
    pub client: Client,
    /// Of the objects that several controllers look at, as the cluster itself sees them.
    pub memory: Arc<Memory>,
    pub world: World,
    pub settings: Arc<Settings>,
    /// Held by whoever promises room on a node's disk, from looking to writing.
    pub promising: Arc<tokio::sync::Mutex<()>>,
}

impl Context {
    pub(crate) fn eyes(&self) -> Eyes {
        Eyes::remembering(self.client.clone(), self.memory.clone())
    }
}

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

type Start = fn(Context) -> Running;

/// Everything the control plane does by itself, in the order in which it is started.
const ALL: &[(&str, Start)] = &[
    (custom_resource_definition::NAME, |context| Box::pin(custom_resource_definition::run(context))),
    (namespace::NAME, |context| Box::pin(namespace::run(context))),
    (service_account::NAME, |context| Box::pin(service_account::run(context))),
    (service_account_token::NAME, |context| Box::pin(service_account_token::run(context))),
    (root_ca::NAME, |context| Box::pin(root_ca::run(context))),
    (cluster_role::NAME, |context| Box::pin(cluster_role::run(context))),
    (garbage_collection::NAME, |context| Box::pin(garbage_collection::run(context))),
    (setting::NAME, |context| Box::pin(setting::run(context))),
    (event::NAME, |context| Box::pin(event::run(context))),
    (token::NAME, |context| Box::pin(token::run(context))),
    (user::NAME, |context| Box::pin(user::run(context))),
    (node::NAME, |context| Box::pin(node::run(context))),
    (persistent_volume_claim::NAME, |context| Box::pin(persistent_volume_claim::run(context))),
    (persistent_volume::NAME, |context| Box::pin(persistent_volume::run(context))),
    (volume_snapshot::NAME, |context| Box::pin(volume_snapshot::run(context))),
    (volume_snapshot_content::NAME, |context| Box::pin(volume_snapshot_content::run(context))),
    (virtual_machine_image::NAME, |context| Box::pin(virtual_machine_image::run(context))),
    (virtual_machine_network_config::NAME, |context| Box::pin(virtual_machine_network_config::run(context))),
    (cluster_network::NAME, |context| Box::pin(cluster_network::run(context))),
    (vlan_config::NAME, |context| Box::pin(vlan_config::run(context))),
    (load_balancer::NAME, |context| Box::pin(load_balancer::run(context))),
    (virtual_machine::NAME, |context| Box::pin(virtual_machine::run(context))),
    (virtual_machine_instance::NAME, |context| Box::pin(virtual_machine_instance::run(context))),
    (virtual_machine_instance_pod::NAME, |context| Box::pin(virtual_machine_instance_pod::run(context))),
    (virtual_machine_instance_topology::NAME, |context| {
        Box::pin(virtual_machine_instance_topology::run(context))
    }),
    (volume_attachment::NAME, |context| Box::pin(volume_attachment::run(context))),
    (virtual_machine_backup::NAME, |context| Box::pin(virtual_machine_backup::run(context))),
    (virtual_machine_restore::NAME, |context| Box::pin(virtual_machine_restore::run(context))),
    (harvester_resource_quota::NAME, |context| Box::pin(harvester_resource_quota::run(context))),
    (virtual_machine_template::NAME, |context| Box::pin(virtual_machine_template::run(context))),
    (virtual_machine_clone::NAME, |context| Box::pin(virtual_machine_clone::run(context))),
    (support_bundle::NAME, |context| Box::pin(support_bundle::run(context))),
];

/// Those who act in the cluster's own name, because nobody else may do their work.
const OF_THE_CLUSTER: [&str; 2] = [virtual_machine_instance_pod::NAME, volume_attachment::NAME];

/// All controllers, ready to run.
pub struct Controllers {
    context: Context,
}

/// Makes the controllers; nothing happens until they [run](Controllers::run).
///
/// `client` is used to act as each controller's own user, whose role (`resources::rbac`) says what it may do. So it
/// must be allowed to impersonate them. What several of them look at is watched once, in its own name; Pods and
/// VolumeAttachments, which nobody else may write, are also written in its own name.
pub fn build(client: Client, world: World, settings: Settings) -> Controllers {
    let memory = Arc::new(Memory::new(client.clone()));
    let (settings, promising) = (Arc::new(settings), Arc::default());
    Controllers { context: Context { client, memory, world, settings, promising } }
}

impl Controllers {
    /// Runs all controllers until `stop` is done. Work under way is dropped where it is, which is safe at any
    /// point.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let mut running = JoinSet::new();
        let mut names = std::collections::BTreeMap::new();
        for (name, start) in ALL {
            names.insert(running.spawn(start(self.context_of(name))).id(), (*name, *start));
        }
        let mut stop = std::pin::pin!(stop);
        loop {
            tokio::select! {
                biased;
                () = &mut stop => break,
                Some(ended) = running.join_next_with_id() => {
                    let (id, why) = match ended {
                        Ok((id, ())) => (id, None),
                        Err(why) => (why.id(), Some(why)),
                    };
                    let Some((name, start)) = names.remove(&id) else { continue };
                    tracing::error!(controller = name, why = ?why, "a controller ended, which none should; starting it again");
                    let context = self.context_of(name);
                    let again = async move {
                        tokio::time::sleep(RESTART_AFTER).await;
                        start(context).await;
                    };
                    names.insert(running.spawn(again).id(), (name, start));
                }
            }
        }
        running.shutdown().await;
    }

    /// The context with a client that is the controller's own.
    fn context_of(&self, name: &str) -> Context {
        if OF_THE_CLUSTER.contains(&name) {
            return self.context.clone();
        }
        let user = rbac::controller_user(name);
        let client = sheaf_client::impersonating(&self.context.client, &user)
            .expect("the name of a controller can stand in a header");
        Context { client, ..self.context.clone() }
    }
}
