//! Gives load balancers their addresses, their nodes and their backend servers, and takes the addresses back.
//!
//! The decisions are [`sheaf_planner::load_balancer`]. A pool says which address is whose, and is what counts; an address is
//! given and taken back by one compare-and-swap on it. Forwarding is the work of the node that a balancer names.
//!
//! Nothing has to be told that a balancer is gone: whoever a pool has an address for is looked at, so what was forced away,
//! or was about to be taken back when somebody died, is taken back all the same.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde_json::json;
use sheaf_client::{
    memory::Remembering,
    reconciling::{self, Next, ReconcileError, Reconciler},
};
use sheaf_planner::load_balancer::{
    self, Candidate, Seen, Step,
    backend::{Backends, Machine},
    pool::{Block, Pool},
};
use sheaf_resources::kinds::{
    ip_pool,
    load_balancer::{ADDRESS_FINALIZER, LoadBalancer},
    load_balancer_ip_pool::{IPPool, LoadBalancerIpPoolStatus, RELEASE_ANNOTATION},
    node::TAPS_CONDITION,
    virtual_machine_instance::VirtualMachineInstance,
    virtual_machine_network_config::VirtualMachineNetworkConfig,
};

use crate::{
    Context,
    object::{Eyes, Object, Place, place_of},
    telling::{How, tell},
};

pub const NAME: &str = "load-balancer";
const COMPONENT: &str = "harvester-lb-controller";
/// More than any balancer takes.
const MOST_STEPS: usize = 16;

pub(crate) async fn run(context: Context) {
    let client = context.client.clone();
    reconciling::run(Balancers { context, waiting: BTreeSet::new() }, client).await;
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Balancer(Place),
    Pool(String),
}

struct Balancers {
    context: Context,
    /// Those that wait for an address.
    waiting: BTreeSet<Place>,
}

impl Reconciler for Balancers {
    type Key = Key;

    const NAME: &'static str = NAME;

    fn remembered(&self) -> Vec<Arc<dyn Remembering>> {
        let memory = &self.context.memory;
        vec![
            memory.of::<LoadBalancer>(),
            memory.of::<IPPool>(),
            memory.of::<VirtualMachineInstance>(),
            memory.of::<VirtualMachineNetworkConfig>(),
            memory.of::<Node>(),
            memory.of::<ip_pool::IPPool>(),
        ]
    }

    fn keys(&self, watch: usize, metadata: &ObjectMeta) -> Vec<Key> {
        let name = || metadata.name.clone().unwrap_or_default();
        match watch {
            // What one lets go of may be what somebody waits for; the pool says so.
            0 => place_of(metadata).map(Key::Balancer).into_iter().collect(),
            1 => vec![Key::Pool(name())],
            // Machines and their addresses matter to the balancers beside them.
            2 | 3 => self.balancers_in(metadata.namespace.as_deref().unwrap_or_default()),
            4 => self.balancers_in(""),
            _ => self.waiting.iter().cloned().map(Key::Balancer).collect(),
        }
    }

    async fn reconcile(&mut self, key: &Key) -> Result<Next<Key>, ReconcileError> {
        match key {
            Key::Balancer(place) => self.reconcile_balancer(place).await,
            Key::Pool(name) => self.reconcile_pool(name).await,
        }
    }
}

/// A balancer, and all that is decided on.
struct Look {
    balancer: Option<Object<LoadBalancer>>,
    pools: Vec<Arc<IPPool>>,
    blocked: Vec<Block>,
    nodes: Vec<Candidate>,
    backends: Backends,
}

impl Balancers {
    fn balancers_in(&self, namespace: &str) -> Vec<Key> {
        // What cannot be read is told by whoever looks at it.
        let all = self.context.memory.of::<LoadBalancer>().list(namespace).unwrap_or_default();
        all.iter().filter_map(|balancer| place_of(&balancer.metadata)).map(Key::Balancer).collect()
    }

    async fn reconcile_balancer(&mut self, place: &Place) -> Result<Next<Key>, ReconcileError> {
        self.waiting.remove(place);
        let holder = format!("{}/{}", place.0, place.1);
        let mut eyes = self.context.eyes();
        for _ in 0..MOST_STEPS {
            let look = self.look(&eyes, place).await?;
            let now = self.context.world.clock.rfc3339();
            let step = load_balancer::next_step(&Seen {
                holder: &holder,
                balancer: look.balancer.as_ref().map(|balancer| &*balancer.typed),
                pools: &look.pools,
                blocked: &look.blocked,
                nodes: &look.nodes,
                backends: &look.backends,
                now: &now,
            });
            match (step, look.balancer) {
                (Step::Rest, balancer) => {
                    let has_none =
                        |one: &Object<LoadBalancer>| one.typed.status.allocated_address.ip.is_empty();
                    if balancer.as_ref().is_some_and(has_none) {
                        self.waiting.insert(place.clone());
                    }
                    return Ok(Next::rest());
                }
                // Nothing is taken away from one that is only late, nor given to one that is gone.
                _ if !eyes.are_fresh() => eyes = eyes.fresh(),
                (Step::WritePool { pool, status }, _) => {
                    write_pool(&eyes, &look.pools, &pool, *status).await?;
                }
                (step, Some(balancer)) => act(&balancer, step).await?,
                (Step::AddFinalizer | Step::WriteStatus(_) | Step::RemoveFinalizer, None) => {
                    return Ok(Next::rest());
                }
            }
        }
        // So many steps mean that somebody undoes them; that is no reason to run in circles.
        Ok(Next::again_after(crate::LOOK_AGAIN))
    }

    /// The balancer first: what the pools say must not be older than what it says.
    async fn look(&self, eyes: &Eyes, place: &Place) -> Result<Look, ReconcileError> {
        let balancer: Option<Object<LoadBalancer>> = eyes.find(&place.0, &place.1).await?;
        let pools: Vec<Arc<IPPool>> = eyes.list("").await?;
        let of_machines: Vec<Arc<ip_pool::IPPool>> = eyes.list("").await?;
        let nodes: Vec<Arc<Node>> = eyes.list("").await?;
        // What of these is only late wakes us when it comes.
        let remembered = eyes.remembered();
        let balancers: Vec<Arc<LoadBalancer>> = remembered.list("").await?;
        let mut loads: BTreeMap<&str, usize> = BTreeMap::new();
        for balancer in &balancers {
            *loads.entry(&balancer.status.node_name).or_default() += 1;
        }
        let backends = match &balancer {
            Some(balancer) if !balancer.typed.spec.is_for_cluster() => {
                backends(&remembered, place, balancer).await?
            }
            _ => Backends::default(),
        };
        Ok(Look {
            balancer,
            pools,
            blocked: of_machines
                .iter()
                .flat_map(|pool| Block::of_machines(&pool.spec))
                .chain(nodes.iter().flat_map(|node| Block::of_node(node)))
                .collect(),
            nodes: nodes.iter().map(|node| candidate(node, &loads)).collect(),
            backends,
        })
    }

    /// Keeps what a pool says of itself true, and takes back what somebody says is to be.
    async fn reconcile_pool(&mut self, name: &str) -> Result<Next<Key>, ReconcileError> {
        let found: Option<Object<IPPool>> = self.context.eyes().find("", name).await?;
        let waiting = || self.waiting.iter().cloned().map(Key::Balancer);
        let Some(found) = found else { return Ok(Next::wake(waiting().collect())) };
        let mut pool = Pool::read(&found.typed);
        let request = found.annotation(RELEASE_ANNOTATION).to_owned();
        if !request.is_empty() {
            self.release_by_hand(&found, &mut pool, &request).await?;
        }
        let now = self.context.world.clock.rfc3339();
        let status = pool.status(&found.typed.status, &now);
        if status != found.typed.status || !request.is_empty() {
            let mut changed = found.whole()?;
            changed.data["status"] = json!(status);
            if let Some(annotations) = &mut changed.metadata.annotations {
                annotations.remove(RELEASE_ANNOTATION);
            }
            found.write(&changed).await?;
        }
        // Who has an address of it may be gone, who says so may have been forgotten, and who waits for one may get it now.
        let holders = pool.holders();
        let holders = holders.into_iter().filter_map(|holder| holder.split_once('/'));
        let holders = holders.map(|(namespace, name)| Key::Balancer((namespace.to_owned(), name.to_owned())));
        let balancers: Vec<Arc<LoadBalancer>> = self.context.eyes().list("").await?;
        let sayers = balancers.iter().filter(|one| one.status.allocated_address.ip_pool == name);
        let sayers = sayers.filter_map(|one| place_of(&one.metadata)).map(Key::Balancer);
        let woken: BTreeSet<Key> = holders.chain(sayers).chain(waiting()).collect();
        Ok(Next::wake(woken.into_iter().collect()))
    }

    /// `<address>: <namespace>/<name>`. Only from a balancer that is gone.
    async fn release_by_hand(
        &self,
        found: &Object<IPPool>,
        pool: &mut Pool,
        request: &str,
    ) -> Result<(), ReconcileError> {
        let eyes = self.context.eyes().fresh();
        let read = request.split_once(':').and_then(|(address, holder)| {
            let (namespace, name) = holder.trim().split_once('/')?;
            Some((address.trim().parse().ok()?, namespace, name))
        });
        let why = match read {
            None => "it is not `<address>: <namespace>/<name>`",
            Some((address, namespace, name)) => {
                let balancer: Option<Object<LoadBalancer>> = eyes.find(namespace, name).await?;
                match (pool.holder_of(address) == Some(&format!("{namespace}/{name}")), balancer) {
                    (true, None) => {
                        pool.release(address);
                        return Ok(());
                    }
                    (true, Some(_)) => "the load balancer is still there",
                    (false, _) => "the address is not that load balancer's",
                }
            }
        };
        let message = format!("{request:?} was not released: {why}");
        tell(&self.context, COMPONENT, found, ("Warning", "NotReleased", &message), How::Now).await;
        Ok(())
    }
}

/// Writes a pool, provided that it is as it was when it was decided on.
async fn write_pool(
    eyes: &Eyes,
    seen: &[Arc<IPPool>],
    name: &str,
    status: LoadBalancerIpPoolStatus,
) -> Result<(), ReconcileError> {
    let version = |metadata: &ObjectMeta| metadata.resource_version.clone();
    let seen = seen.iter().find(|pool| pool.metadata.name.as_deref() == Some(name));
    let found: Option<Object<IPPool>> = eyes.fresh().find("", name).await?;
    let (Some(seen), Some(found)) = (seen, found) else { return Ok(()) };
    if version(&seen.metadata) != version(found.metadata()) {
        return Ok(());
    }
    let mut changed = found.whole()?;
    changed.data["status"] = json!(status);
    found.write(&changed).await
}

async fn act(balancer: &Object<LoadBalancer>, step: Step) -> Result<(), ReconcileError> {
    match step {
        Step::AddFinalizer => {
            let mut changed = balancer.whole()?;
            changed.metadata.finalizers.get_or_insert_default().push(ADDRESS_FINALIZER.into());
            balancer.write(&changed).await
        }
        Step::WriteStatus(status) => {
            let mut changed = balancer.whole()?;
            changed.data["status"] = json!(status);
            balancer.write(&changed).await
        }
        Step::RemoveFinalizer => balancer.remove_finalizer(ADDRESS_FINALIZER).await,
        Step::Rest | Step::WritePool { .. } => Ok(()),
    }
}

async fn backends(
    eyes: &Eyes,
    place: &Place,
    balancer: &Object<LoadBalancer>,
) -> Result<Backends, ReconcileError> {
    let instances: Vec<Arc<VirtualMachineInstance>> = eyes.list(&place.0).await?;
    let configs: Vec<Arc<VirtualMachineNetworkConfig>> = eyes.list(&place.0).await?;
    let configs: BTreeMap<Option<&String>, &VirtualMachineNetworkConfig> =
        configs.iter().map(|config| (config.metadata.name.as_ref(), &**config)).collect();
    // A config has the name of its machine.
    let machines = instances
        .iter()
        .map(|instance| Machine { instance, config: configs.get(&instance.metadata.name.as_ref()).copied() });
    Ok(Backends::of(&balancer.typed.spec, machines))
}

/// `loads` is how many addresses each node holds.
fn candidate(node: &Node, loads: &BTreeMap<&str, usize>) -> Candidate {
    let name = node.metadata.name.clone().unwrap_or_default();
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let said = |kind: &str| conditions.clone().find(|condition| condition.type_ == kind);
    let is_ready = said("Ready").is_some_and(|ready| ready.status == "True");
    let no_taps = said(TAPS_CONDITION).filter(|taps| taps.status == "False");
    let cannot = match (no_taps, is_ready) {
        (Some(taps), _) => Some(taps.message.clone().unwrap_or_default()),
        (None, false) => Some("it is not ready".to_owned()),
        (None, true) => None,
    };
    let load = loads.get(name.as_str()).copied().unwrap_or_default();
    Candidate { name, cannot, load }
}
