//! Gives the interfaces of machines on the default network their addresses, and takes them back.
//!
//! One VirtualMachineNetworkConfig per machine (or per instance without one), of its name and owned by it, says
//! which interface has which address; the pool says which address is whose, and is what counts. The decisions are
//! [`sheaf_planner::network_config`] and [`sheaf_planner::address`]. An address is given by one
//! compare-and-swap on the pool, so however many hands there are, nobody gets one twice.

mod default_network;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::{
    Resource,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use serde_json::json;
use sheaf_client::{
    memory::Remembering,
    reconciling::{self, Next, ReconcileError, Reconciler},
};
use sheaf_planner::{
    address::{Nic, Pool},
    network_config::{self, Seen, Step},
};
use sheaf_resources::kinds::{
    ip_pool::{DEFAULT_NETWORK, IPPool},
    network_attachment_definition::NetworkAttachmentDefinition,
    virtual_machine::VirtualMachine,
    virtual_machine_instance::VirtualMachineInstance,
    virtual_machine_network_config::{
        ADDRESSES_FINALIZER, ALLOCATED, NetworkConfig, STALE, VirtualMachineNetworkConfig,
    },
};

pub(crate) use self::default_network::{DefaultNetwork, definitions};
use crate::{
    Context,
    object::{Eyes, Object, Place, place_of},
    references::References,
};

pub const NAME: &str = "virtual-machine-network-config";
/// More than any machine takes.
const MOST_STEPS: usize = 16;

pub(crate) async fn run(context: Context) {
    let client = context.client.clone();
    let configs = Configs { context, networks: References::default(), waiting: BTreeSet::new() };
    reconciling::run(configs, client).await;
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// A machine, or an instance without one.
    Machine(Place),
    Pool(Place),
}

struct Configs {
    context: Context,
    /// The definitions machines are plugged into, as `namespace/name`.
    networks: References<Place, String>,
    /// Machines that wait for a pool, or for an address in it.
    waiting: BTreeSet<Place>,
}

impl Reconciler for Configs {
    type Key = Key;

    const NAME: &'static str = NAME;

    fn remembered(&self) -> Vec<Arc<dyn Remembering>> {
        let memory = &self.context.memory;
        vec![
            memory.of::<VirtualMachine>(),
            memory.of::<VirtualMachineInstance>(),
            memory.of::<VirtualMachineNetworkConfig>(),
            memory.of::<NetworkAttachmentDefinition>(),
            memory.of::<IPPool>(),
        ]
    }

    fn keys(&self, watch: usize, metadata: &ObjectMeta) -> Vec<Key> {
        let waiting = || self.waiting.iter().cloned().map(Key::Machine);
        let Some(place) = place_of(metadata) else { return Vec::new() };
        match watch {
            0 | 1 => vec![Key::Machine(place)],
            // What another one lets go of may be what somebody waits for.
            2 if metadata.deletion_timestamp.is_some() => waiting().chain([Key::Machine(place)]).collect(),
            2 => vec![Key::Machine(place)],
            3 => {
                let users = self.networks.to(&format!("{}/{}", place.0, place.1));
                users.into_iter().map(Key::Machine).collect()
            }
            _ => waiting().chain([Key::Pool(place)]).collect(),
        }
    }

    async fn reconcile(&mut self, key: &Key) -> Result<Next<Key>, ReconcileError> {
        match key {
            Key::Machine(place) => self.reconcile_machine(place).await,
            Key::Pool(place) => self.reconcile_pool(place).await,
        }
    }
}

/// A machine, and the config of its name.
struct Look {
    /// Who the config is to belong to; `None` when there is no machine.
    owner: Option<OwnerReference>,
    wanted: Vec<NetworkConfig>,
    may_run: bool,
    config: Option<Object<VirtualMachineNetworkConfig>>,
    network: DefaultNetwork,
}

impl Configs {
    async fn reconcile_machine(&mut self, place: &Place) -> Result<Next<Key>, ReconcileError> {
        self.waiting.remove(place);
        let mut failure = None;
        // What was allocated in this very pass is this machine's for sure.
        let mut allocated = BTreeSet::new();
        let mut eyes = self.context.eyes();
        for _ in 0..MOST_STEPS {
            let look = self.look(&eyes, place).await?;
            let pool = look.network.pool();
            let taken = self.taken(place, &look, pool.as_ref(), &allocated).await?;
            let config = look.config.as_ref();
            let now = self.context.world.clock.rfc3339();
            let is_own = config.zip(look.owner.as_ref()).is_some_and(|(config, owner)| {
                config.metadata().owner_references.iter().flatten().any(|held| held.uid == owner.uid)
            });
            let step = network_config::next_step(&Seen {
                wanted: look.owner.as_ref().map(|_| look.wanted.as_slice()),
                config: config.map(|config| &*config.typed),
                is_own,
                may_run: look.may_run,
                pool: pool.as_ref(),
                taken: &taken,
                failure: failure.as_deref(),
                now: &now,
            });
            match step {
                Step::Rest => {
                    let unsettled = |config: &Object<VirtualMachineNetworkConfig>| {
                        config.typed.status.network_configs.iter().any(|one| one.state != ALLOCATED)
                    };
                    if config.is_some_and(unsettled) {
                        self.waiting.insert(place.clone());
                    }
                    return Ok(Next::rest());
                }
                // Every step rests on something that is absent somewhere: nothing is made for a machine that is gone, nor
                // taken away from one that is only late.
                _ if !eyes.are_fresh() => eyes = eyes.fresh(),
                Step::Allocate(all) => match allocate(&look.network, &look, &all, &now).await? {
                    Ok(()) => allocated.extend(all.into_iter().map(|one| one.mac_address)),
                    Err(why) => failure = Some(why),
                },
                Step::Release(macs) => {
                    let Some(mut pool) = pool else { return Ok(Next::rest()) };
                    for mac in &macs {
                        pool.release(mac);
                    }
                    look.network.write(&pool, &now).await?;
                }
                step => {
                    if !self.act(&eyes, step, place, look).await? {
                        return Ok(Next::again_after(crate::LOOK_AGAIN));
                    }
                }
            }
        }
        // So many steps mean that somebody undoes them; that is no reason to run in circles.
        Ok(Next::again_after(crate::LOOK_AGAIN))
    }

    async fn look(&mut self, eyes: &Eyes, place: &Place) -> Result<Look, ReconcileError> {
        let vm: Option<Object<VirtualMachine>> = eyes.find(&place.0, &place.1).await?;
        let instance: Option<Object<VirtualMachineInstance>> = eyes.find(&place.0, &place.1).await?;
        let config: Option<Object<VirtualMachineNetworkConfig>> = eyes.find(&place.0, &place.1).await?;
        let live = instance.as_ref().filter(|instance| !instance.typed.status.phase.is_final());
        let template = vm.as_ref().and_then(|vm| vm.typed.spec.template.as_ref());
        let specs =
            live.map(|instance| &instance.typed.spec).into_iter().chain(template.map(|all| &all.spec));
        let names: BTreeSet<String> = specs.flat_map(|spec| definitions(spec, &place.0)).collect();
        self.networks.set(place, names.clone());
        let network = DefaultNetwork::read(eyes, &names).await?;
        let is_default = |name: &str| network.is_default(name);
        let running = live.map(|instance| &instance.typed.spec);
        let wanted = network_config::wanted(vm.as_ref().map(|vm| &*vm.typed), running, &place.0, &is_default);
        let (owner, going) = match (&vm, live) {
            (Some(vm), _) => (Some(owner_of::<VirtualMachine>(vm.metadata())), vm.is_being_deleted()),
            (None, Some(instance)) => {
                let owner = owner_of::<VirtualMachineInstance>(instance.metadata());
                (Some(owner), instance.is_being_deleted())
            }
            (None, None) => (None, true),
        };
        // For who is on the way out nothing is made anew: it would be collected, and made, and collected.
        let owner = owner.filter(|_| config.is_some() || !going);
        // Who has no node cannot be using an address.
        let may_run = live.is_some_and(|instance| !instance.typed.status.node_name.is_empty());
        Ok(Look { owner, wanted, may_run, config, network })
    }

    /// Which of the interfaces belong to somebody else: the pool has their hardware address, and not for us.
    async fn taken(
        &self,
        place: &Place,
        look: &Look,
        pool: Option<&Pool>,
        allocated: &BTreeSet<String>,
    ) -> Result<BTreeMap<String, String>, ReconcileError> {
        let config = look.config.as_ref().map(|config| &*config.typed);
        let doubtful: Vec<&str> = look
            .wanted
            .iter()
            .map(|one| one.mac_address.as_str())
            .filter(|mac| pool.is_some_and(|pool| pool.address_of(mac).is_some()))
            .filter(|mac| !allocated.contains(*mac))
            .filter(|mac| !config.is_some_and(|config| network_config::has_address(config, mac)))
            .collect();
        let mut taken = BTreeMap::new();
        if doubtful.is_empty() {
            return Ok(taken);
        }
        let own = config.map(|config| &config.metadata);
        let others: Vec<Arc<VirtualMachineNetworkConfig>> = self.context.eyes().fresh().list("").await?;
        for other in others.iter().filter(|other| place_of(&other.metadata).as_ref() != Some(place)) {
            for mac in &doubtful {
                let says =
                    other.status.network_configs.iter().any(|one| {
                        one.mac_address == *mac && [ALLOCATED, STALE].contains(&one.state.as_str())
                    });
                let asks = other.spec.network_configs.iter().any(|one| one.mac_address == *mac);
                let older = own.is_none_or(|own| age(&other.metadata) < age(own));
                if says || (asks && older) {
                    let name = place_of(&other.metadata).unwrap_or_default();
                    taken.insert((*mac).to_owned(), format!("{}/{}", name.0, name.1));
                }
            }
        }
        Ok(taken)
    }

    /// Answers whether it was done; what cannot be made, because its namespace goes, was not.
    async fn act(&self, eyes: &Eyes, step: Step, place: &Place, look: Look) -> Result<bool, ReconcileError> {
        let (config, owner) = (look.config, look.owner);
        match (step, config) {
            (Step::Create, _) => {
                let config = json!({
                    "metadata": {
                        "name": place.1, "namespace": place.0, "ownerReferences": owner.into_iter().collect::<Vec<_>>(),
                        "finalizers": [ADDRESSES_FINALIZER],
                    },
                    "spec": {"vmName": place.1, "networkConfigs": look.wanted},
                });
                return Ok(eyes.create::<VirtualMachineNetworkConfig>(&place.0, config).await?);
            }
            (Step::WriteSpec(configs), Some(config)) => {
                let mut changed = config.whole()?;
                changed.data["spec"]["networkConfigs"] = json!(configs);
                if !config.has_finalizer(ADDRESSES_FINALIZER) {
                    let finalizers = changed.metadata.finalizers.get_or_insert_default();
                    finalizers.push(ADDRESSES_FINALIZER.into());
                }
                config.write(&changed).await?;
            }
            (Step::WriteStatus(status), Some(config)) => {
                let mut changed = config.whole()?;
                changed.data["status"] = json!(status);
                config.write(&changed).await?;
            }
            (Step::Delete, Some(config)) => config.delete().await?,
            (Step::RemoveFinalizer, Some(config)) => config.remove_finalizer(ADDRESSES_FINALIZER).await?,
            (Step::Rest | Step::Allocate(_) | Step::Release(_), _) | (_, None) => {}
        }
        Ok(true)
    }

    /// Keeps what a pool says of itself true: what is left out, what is reserved, how many are left.
    async fn reconcile_pool(&self, place: &Place) -> Result<Next<Key>, ReconcileError> {
        let found: Option<Object<IPPool>> = self.context.eyes().find(&place.0, &place.1).await?;
        let found = found.filter(|found| found.typed.spec.network_name == DEFAULT_NETWORK);
        let Some(found) = found else { return Ok(Next::rest()) };
        let network = DefaultNetwork::of(found);
        if let Some(pool) = network.pool()
            && !network.says(&pool)
        {
            network.write(&pool, &self.context.world.clock.rfc3339()).await?;
        }
        Ok(Next::rest())
    }
}

/// In the pool; the inner error is for people, and only a change of the pool helps.
async fn allocate(
    network: &DefaultNetwork,
    look: &Look,
    all: &[NetworkConfig],
    now: &str,
) -> Result<Result<(), String>, ReconcileError> {
    let Some(mut pool) = network.pool() else { return Ok(Err("there is no pool".into())) };
    if network.is_paused() {
        return Ok(Err(format!("the IPPool of network {DEFAULT_NETWORK} is paused")));
    }
    let before = look.config.iter().flat_map(|config| &config.typed.status.network_configs);
    for one in all {
        let previous = before.clone().find(|before| before.mac_address == one.mac_address);
        let nic = Nic {
            key: &one.mac_address,
            requested: one.ip_address.as_deref().and_then(|address| address.parse().ok()),
            previous: previous.and_then(|before| before.allocated_ip_address.parse().ok()),
        };
        if let Err(why) = pool.allocate(nic) {
            return Ok(Err(why.to_string()));
        }
    }
    network.write(&pool, now).await?;
    Ok(Ok(()))
}

fn owner_of<T: Resource>(metadata: &ObjectMeta) -> OwnerReference {
    OwnerReference {
        api_version: T::API_VERSION.into(),
        kind: T::KIND.into(),
        name: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

/// Who came first; those who came at the same moment have another order.
fn age(metadata: &ObjectMeta) -> (Option<String>, Option<Place>) {
    let made = metadata.creation_timestamp.as_ref().map(|time| time.0.to_string());
    (made, place_of(metadata))
}
