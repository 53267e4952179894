//! Runs the instances that are bound to this node: one keeper per machine, all by the same loop.
//!
//! ```text
//!   API --watch--> machines --wakes--> keeper of one machine
//!   host (at start) --^                  look (host) -> decide (planner) -> act (hypervisor, network, storage)
//!                                          ^                                      |
//!                                          +--- QEMU's events, the clock, a wake -+---> status
//! ```
//!
//! - The host says how things stand, the object says how they should; what an earlier process did
//!   is found on the host, never remembered.
//! - Keepers do not wait for each other: a guest that takes its time to shut down holds up nobody.
//! - A machine that is here and whose object is not is asked to shut down, then removed.

mod credentials;
mod events;
mod guest;
mod hardware;
mod keeper;
mod look;
mod note;
mod plugging;
mod preparation;
mod report;
mod seed;
mod turns;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use parking_lot::Mutex;
use sheaf_client::watching::{self, NOTICES, Noticed, Watched};
use sheaf_hypervisor::{Hypervisor, MachineId};
use sheaf_resources::kinds::persistent_volume::CLAIM_ANNOTATION;
use sheaf_storage::Storage;
use sheaf_world::World;
use tokio::{
    sync::{Notify, OnceCell, Semaphore, mpsc},
    task::JoinSet,
};

pub(crate) use self::preparation::{Trouble, found, read_claim, with_causes};
use self::{events::Events, keeper::Keeper, turns::MachineTurns};
pub use self::{
    hardware::Abilities,
    note::{Note, NoteError, NotedPort, NotedVolume, Notes},
};
use crate::{
    metrics::MachineMetrics,
    ports::{Plugged, Ports},
    step::AfterStep,
    stream_port::SoftReboots,
    support_bundle::BundleShelf,
    workshop::is_workshop,
};

/// How many machines are made ready and launched at the same time, for each processor: enough to keep it busy while some
/// wait for the disk, and few enough that the first run long before the last. Those that run already hold up nobody, since
/// one that starts outweighs them.
const LAUNCHES_PER_PROCESSOR: usize = 3;
/// How many disks are copied into images at the same time: the machines need the disk, too.
const EXPORTS_AT_ONCE: usize = 2;
/// How often the host's network is looked after.
const MEND_EVERY: Duration = Duration::from_secs(60);

/// What the keepers of one node share.
pub struct Hands {
    pub(crate) client: Client,
    pub(crate) world: World,
    pub(crate) node: String,
    pub(crate) hypervisor: Arc<Hypervisor>,
    pub(crate) storage: Storage,
    pub(crate) ports: Arc<Ports>,
    pub(crate) notes: Notes,
    pub(crate) soft_reboots: Arc<SoftReboots>,
    pub(crate) abilities: Abilities,
    pub(crate) after: AfterStep,
    pub(crate) launches: Arc<Semaphore>,
    pub(crate) turns: MachineTurns,
    /// Machines that QEMU stopped over a write that did not fit.
    pub(crate) full_disks: Mutex<BTreeSet<MachineId>>,
    /// Told when layers may have become mergeable.
    pub(crate) layers_changed: Notify,
    /// Filled once nothing is left of the workshops of earlier processes.
    pub(crate) workshops: OnceCell<()>,
    /// Places for disks that are being copied into images.
    pub(crate) exports: Semaphore,
}

impl Hands {
    pub fn new(client: Client, world: World, node: &str, tools: Tools, abilities: Abilities) -> Hands {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Hands {
            client,
            world,
            node: node.to_owned(),
            hypervisor: tools.hypervisor,
            storage: tools.storage,
            ports: tools.ports,
            notes: tools.notes,
            soft_reboots: tools.soft_reboots,
            abilities,
            after: tools.after_step,
            launches: Arc::new(Semaphore::new(LAUNCHES_PER_PROCESSOR * processors)),
            turns: MachineTurns::default(),
            full_disks: Mutex::default(),
            layers_changed: Notify::new(),
            workshops: OnceCell::new(),
            exports: Semaphore::new(EXPORTS_AT_ONCE),
        }
    }
}

/// What a node has to run machines with.
#[derive(Clone)]
pub struct Tools {
    pub hypervisor: Arc<Hypervisor>,
    pub storage: Storage,
    pub ports: Arc<Ports>,
    pub notes: Notes,
    /// Machines that power themselves off only to be started again; the stream port knows.
    pub soft_reboots: Arc<SoftReboots>,
    /// Where what machines use is written.
    pub metrics: Arc<MachineMetrics>,
    pub after_step: AfterStep,
    /// Where support bundles are.
    pub bundles: Arc<BundleShelf>,
}

/// A keeper under way.
struct Kept {
    wake: Arc<Notify>,
    claims: Arc<ClaimNews>,
}

/// The claims that a machine uses, and how often something was heard of their volumes.
#[derive(Default)]
pub(crate) struct ClaimNews {
    /// `namespace/name`.
    pub claims: Mutex<BTreeSet<String>>,
    pub edition: AtomicU64,
}

/// The watches of the loop below.
const OF_INSTANCES: usize = 0;
const OF_VOLUMES: usize = 1;

/// Runs the machines of this node until dropped. Dropping it leaves them running.
pub async fn run(hands: Arc<Hands>) {
    let mut kept: BTreeMap<MachineId, Kept> = BTreeMap::new();
    let mut keepers = JoinSet::new();
    for (id, namespace, name) in here(&hands) {
        start(&hands, &mut kept, &mut keepers, id, namespace, name);
    }
    let (tell, mut notices) = mpsc::channel(NOTICES);
    let instances =
        sheaf_client::api::built_in("kubevirt.io", "v1", "VirtualMachineInstance", "virtualmachineinstances");
    let bound_here = Watched::only(instances, &format!("status.nodeName={}", hands.node));
    let volumes =
        Watched::all(sheaf_client::api::built_in("", "v1", "PersistentVolume", "persistentvolumes"));
    let following = async {
        tokio::join!(
            watching::follow(hands.client.clone(), bound_here, OF_INSTANCES, tell.clone()),
            watching::follow(hands.client.clone(), volumes, OF_VOLUMES, tell),
        );
    };
    let mut following = std::pin::pin!(following);
    let mut mend = tokio::time::interval(MEND_EVERY);
    loop {
        tokio::select! {
            biased;
            Some(notice) = notices.recv() => {
                let (Noticed::Seen(metadata) | Noticed::Gone(metadata)) = notice.noticed else { continue };
                if notice.watch == OF_VOLUMES {
                    wake_users(&kept, &metadata);
                    continue;
                }
                let Some(id) = metadata.uid.as_deref().and_then(|uid| uid.parse::<MachineId>().ok()) else {
                    continue;
                };
                match kept.get(&id) {
                    Some(known) => known.wake.notify_one(),
                    None => {
                        let namespace = metadata.namespace.unwrap_or_default();
                        let name = metadata.name.unwrap_or_default();
                        start(&hands, &mut kept, &mut keepers, id, namespace, name);
                    }
                }
            }
            Some(ended) = keepers.join_next(), if !keepers.is_empty() => match ended {
                Ok(id) => drop(kept.remove(&id)),
                // One that panicked is started anew at the next notice, or by the next list.
                Err(why) => {
                    tracing::error!(%why, "the keeper of a machine ended");
                    kept.retain(|_, kept| Arc::strong_count(&kept.wake) > 1);
                }
            },
            _ = mend.tick() => {
                if let Err(why) = hands.ports.mend().await {
                    tracing::warn!(why = with_causes(&why), "the network of the machines needs mending");
                }
            }
            () = &mut following => return,
        }
    }
}

/// Wakes who uses the claim of a volume: the volume may be to grow.
fn wake_users(kept: &BTreeMap<MachineId, Kept>, volume: &ObjectMeta) {
    let Some(claim) = volume.annotations.as_ref().and_then(|all| all.get(CLAIM_ANNOTATION)) else { return };
    for keeper in kept.values().filter(|keeper| keeper.claims.claims.lock().contains(claim)) {
        keeper.claims.edition.fetch_add(1, Ordering::Relaxed);
        keeper.wake.notify_one();
    }
}

/// Every machine that this host has something of, with whose it is. Running ones are entered in
/// the book of ports, so that the first swap of rules cuts nobody off.
fn here(hands: &Hands) -> Vec<(MachineId, String, String)> {
    let mut ids = hands.notes.all().unwrap_or_else(|why| {
        tracing::error!(why = with_causes(&why), "the notes of machines cannot be read");
        Vec::new()
    });
    match hands.hypervisor.found() {
        Ok(found) => ids.extend(found.into_iter().map(|found| found.id).filter(|id| !is_workshop(id))),
        Err(why) => tracing::error!(why = with_causes(&why), "the machines of this host cannot be read"),
    }
    ids.sort();
    ids.dedup();
    ids.into_iter()
        .map(|id| {
            let note = hands.notes.read(&id).ok().flatten().unwrap_or_default();
            let is_running = matches!(hands.hypervisor.pid(&id), Ok(Some(_)));
            if is_running && hands.abilities.taps {
                match hands.plugged(&id, &note, &note.name) {
                    Ok(plugged) if plugged != Plugged::default() => hands.ports.found(&id, plugged),
                    Ok(_) => {}
                    Err(why) => tracing::warn!(machine = %id, %why, "its NICs are not known"),
                }
            }
            (id, note.namespace, note.name)
        })
        .collect()
}

fn start(
    hands: &Arc<Hands>,
    kept: &mut BTreeMap<MachineId, Kept>,
    keepers: &mut JoinSet<MachineId>,
    id: MachineId,
    namespace: String,
    name: String,
) {
    let wake = Arc::new(Notify::new());
    let claims = Arc::new(ClaimNews::default());
    kept.insert(id.clone(), Kept { wake: wake.clone(), claims: claims.clone() });
    let keeper = Keeper::new(hands.clone(), id, namespace, name, wake, claims);
    keepers.spawn(keeper.keep());
}
