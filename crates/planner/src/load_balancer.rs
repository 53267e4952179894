//! Decides the next step for one load balancer: its address, the node that holds it, its backend servers.
//!
//! ```text
//!   AddFinalizer -> Allocate (in the pool) -> WriteStatus: its address, its node, its machines -> Rest
//!   pool changed:  WriteStatus: no address -> the node lets go -> Release (in the pool) -> Allocate (in the other)
//!   deleted:       the node lets go -> WriteStatus: no address -> Release -> RemoveFinalizer
//!   gone:          Release
//! ```
//!
//! - One step per call. The caller acts, looks again (at the balancer first, then at the pools), and asks again.
//! - A pool is written before the balancer says that an address of it is its own, and the balancer stops saying so before
//!   the pool is written. What a pool has for a balancer that says nothing yet and may have it is what it will say: so
//!   nobody takes it away from somebody who is about to. Interrupted anywhere, an address may be held by nobody for a
//!   while, never by two.
//! - Its node says `status.address` before it holds an address and empties it after it let go. No address is given to
//!   somebody else in between.

pub mod backend;
pub mod forwarding;
pub mod health;
pub mod pool;

use std::sync::Arc;

use sheaf_resources::kinds::{
    harvester_condition::set_condition,
    load_balancer::{
        ADDRESS_FINALIZER, ASK_DHCP, AllocatedAddress, CLUSTER, CLUSTER_ANNOTATION, FORWARDING, LoadBalancer,
        LoadBalancerStatus, NAMESPACE_ANNOTATION, NETWORK_ANNOTATION, PROJECT_ANNOTATION, READY,
    },
    load_balancer_ip_pool::{ANYBODY, IPPool, LoadBalancerIpPoolStatus, Requirement},
};

use self::{
    backend::Backends,
    pool::{Block, Pool},
};

/// A load balancer, and what it depends on.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// `namespace/name`.
    pub holder: &'a str,
    /// `None` when there is none of that name.
    pub balancer: Option<&'a LoadBalancer>,
    /// All there are, read after the balancer.
    pub pools: &'a [Arc<IPPool>],
    /// What machines may get, and balancers therefore not.
    pub blocked: &'a [Block],
    pub nodes: &'a [Candidate],
    pub backends: &'a Backends,
    /// For people.
    pub now: &'a str,
}

/// A node that may hold an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub name: String,
    /// Why it cannot forward, if it cannot.
    pub cannot: Option<String>,
    /// How many addresses it holds.
    pub load: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Rest,
    AddFinalizer,
    /// Give or take back an address: this is what the pool says from then on.
    WritePool {
        pool: String,
        status: Box<LoadBalancerIpPoolStatus>,
    },
    WriteStatus(Box<LoadBalancerStatus>),
    RemoveFinalizer,
}

pub fn next_step(seen: &Seen<'_>) -> Step {
    match seen.balancer {
        None => release(seen, |_, _| true).unwrap_or(Step::Rest),
        Some(balancer) if balancer.metadata.deletion_timestamp.is_some() => farewell(seen, balancer),
        Some(balancer) => upkeep(seen, balancer),
    }
}

/// Who asks.
pub fn requirement(balancer: &LoadBalancer) -> Requirement {
    let said = |key: &str| {
        balancer.metadata.annotations.as_ref().and_then(|all| all.get(key)).cloned().unwrap_or_default()
    };
    let namespace = match said(NAMESPACE_ANNOTATION) {
        empty if empty.is_empty() => balancer.metadata.namespace.clone().unwrap_or_default(),
        namespace => namespace,
    };
    Requirement {
        network: said(NETWORK_ANNOTATION),
        project: said(PROJECT_ANNOTATION),
        namespace,
        // Nobody is every cluster, and what leads to machines is of none.
        cluster: match said(CLUSTER_ANNOTATION) {
            cluster if balancer.spec.workload_type == CLUSTER && cluster != ANYBODY => cluster,
            _ => String::new(),
        },
    }
}

fn has_finalizer(balancer: &LoadBalancer) -> bool {
    balancer.metadata.finalizers.iter().flatten().any(|name| name == ADDRESS_FINALIZER)
}

fn farewell(seen: &Seen<'_>, balancer: &LoadBalancer) -> Step {
    if !has_finalizer(balancer) {
        // It is as good as gone, and what it had is taken back once it is.
        return Step::Rest;
    }
    if !balancer.status.address.is_empty() && is_held(seen, balancer, &balancer.status.address) {
        return Step::Rest;
    }
    if !balancer.status.allocated_address.ip.is_empty() && !balancer.spec.asks_dhcp() {
        let allocated_address = AllocatedAddress::default();
        return Step::WriteStatus(Box::new(LoadBalancerStatus {
            allocated_address,
            ..balancer.status.clone()
        }));
    }
    release(seen, |_, _| true).unwrap_or(Step::RemoveFinalizer)
}

fn upkeep(seen: &Seen<'_>, balancer: &LoadBalancer) -> Step {
    let spec = &balancer.spec;
    if spec.asks_dhcp() {
        return write_if_other(balancer, dhcp(seen, balancer));
    }
    if !has_finalizer(balancer) {
        return Step::AddFinalizer;
    }
    let said = &balancer.status.allocated_address;
    let may_be_of = |pool: &str| spec.ip_pool.is_empty() || spec.ip_pool == pool;
    let mut failure = None;
    let address = if said.ip.is_empty() {
        match held(seen).find(|(pool, _)| may_be_of(&pool.name)) {
            Some((pool, address)) => pool.describe(address),
            None => match allocate(seen, balancer) {
                Ok(step) => return step,
                Err(why) => {
                    failure = Some(why);
                    AllocatedAddress::default()
                }
            },
        }
    } else {
        match keep(seen, said, may_be_of(&said.ip_pool)) {
            Kept::Yes => said.clone(),
            Kept::AgainBy(step) => return step,
            Kept::No => AllocatedAddress::default(),
        }
    };
    let status = status_of(seen, balancer, address, failure.as_deref());
    if status != balancer.status {
        return Step::WriteStatus(Box::new(status));
    }
    // What it has beside the one it says, and its node does not hold any more.
    let let_go = |pool: &Pool, address: std::net::Ipv4Addr| {
        let text = address.to_string();
        (pool.name != said.ip_pool || text != said.ip) && !is_held(seen, balancer, &text)
    };
    release(seen, let_go).unwrap_or(Step::Rest)
}

enum Kept {
    Yes,
    /// The pool does not say so any more; it is to say so again.
    AgainBy(Step),
    No,
}

/// Whether a balancer goes on having what it says it has.
fn keep(seen: &Seen<'_>, said: &AllocatedAddress, may: bool) -> Kept {
    let pool = seen.pools.iter().map(|pool| Pool::read(pool)).find(|pool| pool.name == said.ip_pool);
    let (Some(mut pool), Ok(address), true) = (pool, said.ip.parse(), may) else { return Kept::No };
    match pool.holder_of(address) {
        Some(holder) if holder == seen.holder => Kept::Yes,
        Some(_) => Kept::No,
        // Somebody wrote over the pool.
        None => match pool.claim(seen.holder, address) {
            true => Kept::AgainBy(write_pool(seen, &pool)),
            false => Kept::No,
        },
    }
}

fn allocate(seen: &Seen<'_>, balancer: &LoadBalancer) -> Result<Step, String> {
    let chosen = pool::choose(&balancer.spec, &requirement(balancer), seen.pools)?;
    let mut pool = Pool::read(chosen);
    // Pools that overlap are refused; two that came at the same moment may all the same.
    let others = seen.pools.iter().map(|other| Pool::read(other)).filter(|other| other.name != pool.name);
    let others: Vec<Block> = others.flat_map(|other| other.given()).collect();
    let blocked: Vec<Block> = seen.blocked.iter().cloned().chain(others).collect();
    pool.allocate(seen.holder, &blocked).map_err(|why| why.to_string())?;
    Ok(write_pool(seen, &pool))
}

/// What the pools have for this balancer.
fn held<'a>(seen: &'a Seen<'_>) -> impl Iterator<Item = (Pool, std::net::Ipv4Addr)> + 'a {
    let pools = seen.pools.iter().map(|pool| Pool::read(pool));
    pools.flat_map(|pool| {
        let addresses: Vec<_> = pool.addresses_of(seen.holder).collect();
        addresses.into_iter().map(move |address| (pool.clone(), address))
    })
}

/// Takes back the first of what the pools have for this balancer that may be.
fn release(seen: &Seen<'_>, may: impl Fn(&Pool, std::net::Ipv4Addr) -> bool) -> Option<Step> {
    let (mut pool, address) = held(seen).find(|(pool, address)| may(pool, *address))?;
    pool.release(address);
    Some(write_pool(seen, &pool))
}

fn write_pool(seen: &Seen<'_>, pool: &Pool) -> Step {
    let before = seen.pools.iter().find(|one| one.metadata.name.as_deref() == Some(&pool.name));
    let before = before.map(|pool| pool.status.clone()).unwrap_or_default();
    Step::WritePool { pool: pool.name.clone(), status: Box::new(pool.status(&before, seen.now)) }
}

/// Whether its node may still hold this address.
fn is_held(seen: &Seen<'_>, balancer: &LoadBalancer, address: &str) -> bool {
    let status = &balancer.status;
    !balancer.spec.is_for_cluster()
        && status.address == address
        && seen.nodes.iter().any(|node| node.name == status.node_name)
}

/// The node that holds its address: the one that does, while it is there at all, since only the node itself can say that it
/// let go. One that said so and cannot forward does not keep it. Otherwise the one that holds the fewest.
pub fn choose_node(current: &str, has_let_go: bool, nodes: &[Candidate]) -> Result<String, String> {
    let found = nodes.iter().find(|node| node.name == current);
    if found.is_some_and(|node| node.cannot.is_none() || !has_let_go) {
        return Ok(current.to_owned());
    }
    let able = nodes.iter().filter(|node| node.cannot.is_none());
    if let Some(node) = able.min_by_key(|node| (node.load, node.name.as_str())) {
        return Ok(node.name.clone());
    }
    if found.is_some() {
        // No other is better, and this one may be again.
        return Ok(current.to_owned());
    }
    let why: Vec<String> = nodes
        .iter()
        .filter_map(|node| Some(format!("node {}: {}", node.name, node.cannot.as_ref()?)))
        .collect();
    Err(match why.is_empty() {
        true => "there is no node that could hold its address".to_owned(),
        false => format!("no node can hold its address: {}", why.join("; ")),
    })
}

fn status_of(
    seen: &Seen<'_>,
    balancer: &LoadBalancer,
    address: AllocatedAddress,
    failure: Option<&str>,
) -> LoadBalancerStatus {
    let mut status = balancer.status.clone();
    status.allocated_address = address;
    let verdict = match failure {
        Some(why) => Err(("NoAddress", why.to_owned())),
        // A moment later it has another.
        None if status.allocated_address.ip.is_empty() => {
            Err(("NoAddress", "its address is being changed".to_owned()))
        }
        None if balancer.spec.is_for_cluster() => Ok(()),
        None => for_machines(seen, &mut status),
    };
    let (truth, reason, message) = match &verdict {
        Ok(()) => ("True", "", ""),
        Err((reason, message)) => ("False", *reason, message.as_str()),
    };
    set_condition(&mut status.conditions, READY, truth, (reason, message), seen.now);
    status
}

fn for_machines(seen: &Seen<'_>, status: &mut LoadBalancerStatus) -> Result<(), (&'static str, String)> {
    status.backend_servers = seen.backends.addresses.iter().map(ToString::to_string).collect();
    // It says an address before it has it, on the condition that nobody wrote meanwhile: who says none takes none.
    let has_let_go = status.address.is_empty();
    status.node_name =
        choose_node(&status.node_name, has_let_go, seen.nodes).map_err(|why| ("NoNodeCanForward", why))?;
    let node = seen.nodes.iter().find(|node| node.name == status.node_name);
    if let Some(why) = node.and_then(|node| node.cannot.as_ref()) {
        return Err(("NodeCannotForward", format!("node {} does not forward: {why}", status.node_name)));
    }
    if status.backend_servers.is_empty() {
        return Err(("NoBackendServer", seen.backends.why_none()));
    }
    let said = status.condition(FORWARDING);
    match said.filter(|_| status.address == status.allocated_address.ip) {
        Some(said) if said.status == "True" => Ok(()),
        Some(said) if !said.message.is_empty() => Err(("NotForwarding", said.message.clone())),
        _ => Err(("NotForwarding", format!("waiting for node {} to hold the address", status.node_name))),
    }
}

fn dhcp(seen: &Seen<'_>, balancer: &LoadBalancer) -> LoadBalancerStatus {
    let mut status = balancer.status.clone();
    let (truth, reason, message) = match balancer.spec.is_for_cluster() {
        true => {
            status.allocated_address =
                AllocatedAddress { ip: ASK_DHCP.to_owned(), ..AllocatedAddress::default() };
            ("True", "", "")
        }
        false => (
            "False",
            "DhcpNotAvailable",
            "no node asks a DHCP server for the address of a load balancer in front of machines: use ipam `pool`",
        ),
    };
    set_condition(&mut status.conditions, READY, truth, (reason, message), seen.now);
    status
}

fn write_if_other(balancer: &LoadBalancer, status: LoadBalancerStatus) -> Step {
    if status == balancer.status { Step::Rest } else { Step::WriteStatus(Box::new(status)) }
}

#[cfg(test)]
mod tests;
