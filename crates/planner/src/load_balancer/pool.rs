//! Decides which pool a load balancer gets its address of, and which one.
//!
//! - Whoever has an address keeps it; whoever had one gets it back while nobody else took it.
//! - Otherwise the next free one after the one given out last, round and round, and those that somebody had last of all, so
//!   that one that was given back rests as long as the pool allows.
//! - Never the gateway of a range, nor what machines may get, nor what nodes have.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    sync::Arc,
};

use k8s_openapi::api::core::v1::Node;
use sheaf_resources::kinds::{
    harvester_condition::set_condition,
    ip_pool::{Cidr, IpPoolSpec},
    load_balancer::{AllocatedAddress, LoadBalancerSpec},
    load_balancer_ip_pool::{AddressRange, Closely, IPPool, LoadBalancerIpPoolStatus, READY, Requirement},
};

/// A pool of addresses, and who has which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    pub name: String,
    ranges: Vec<AddressRange>,
    allocated: BTreeMap<Ipv4Addr, String>,
    history: BTreeMap<Ipv4Addr, String>,
    last: Option<Ipv4Addr>,
}

/// Addresses that follow each other and are not to be had, but for some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    pub first: Ipv4Addr,
    pub last: Ipv4Addr,
    pub except: BTreeSet<Ipv4Addr>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    #[error(
        "no available IP in IPPool {pool}: all {size} addresses are taken; enlarge it or remove load balancers"
    )]
    Exhausted { pool: String, size: i64 },
}

impl Block {
    /// What the allocator of a network of machines may give to one of them, and the network's own addresses.
    pub fn of_machines(spec: &IpPoolSpec) -> Vec<Block> {
        let config = &spec.ipv4_config;
        let Some(hosts) = Cidr::parse(&config.cidr).and_then(Cidr::hosts) else { return Vec::new() };
        let given = Block {
            first: config.pool.start.parse().unwrap_or(hosts.0),
            last: config.pool.end.parse().unwrap_or(hosts.1),
            except: config.pool.exclude.iter().filter_map(|address| address.parse().ok()).collect(),
        };
        let own = [&config.router, &config.server_ip].into_iter().filter_map(|address| address.parse().ok());
        own.map(Block::single).chain([given]).collect()
    }

    /// The addresses that a node has of its own.
    pub fn of_node(node: &Node) -> Vec<Block> {
        let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
        addresses.filter_map(|address| address.address.parse().ok()).map(Block::single).collect()
    }

    fn single(address: Ipv4Addr) -> Block {
        Block { first: address, last: address, except: BTreeSet::new() }
    }

    pub fn contains(&self, address: Ipv4Addr) -> bool {
        (self.first..=self.last).contains(&address) && !self.except.contains(&address)
    }

    /// The first address behind `address`, which is in it, that is not.
    fn behind(&self, address: Ipv4Addr) -> Option<Ipv4Addr> {
        let exception = self.except.range(address..=self.last.max(address)).next().copied();
        exception.or_else(|| self.last.to_bits().checked_add(1).map(Ipv4Addr::from_bits))
    }

    pub fn overlaps(&self, range: &AddressRange) -> bool {
        let (first, last) = (self.first.max(range.first), self.last.min(range.last));
        if first > last {
            return false;
        }
        let all = u64::from(last.to_bits() - first.to_bits()) + 1;
        let free = self.except.range(first..=last).count() as u64;
        all > free
    }
}

/// The pool that one who asks gets an address of, or why there is none.
pub fn choose<'a>(
    spec: &LoadBalancerSpec,
    asked: &Requirement,
    pools: &'a [Arc<IPPool>],
) -> Result<&'a IPPool, String> {
    let name = |pool: &IPPool| pool.metadata.name.clone().unwrap_or_default();
    let usable =
        || pools.iter().map(|pool| &**pool).filter(|pool| pool.metadata.deletion_timestamp.is_none());
    if !spec.ip_pool.is_empty() {
        let named = usable().find(|pool| name(pool) == spec.ip_pool);
        let pool = named.ok_or_else(|| format!("no matched IPPool: there is no IPPool {}", spec.ip_pool))?;
        return match pool.spec.selector.admits(asked) {
            true => Ok(pool),
            false => Err(format!(
                "no matched IPPool: IPPool {} is not for namespace {}, as its scope says",
                spec.ip_pool, asked.namespace
            )),
        };
    }
    let looks: &[Closely] =
        if spec.is_for_cluster() { &[Closely::Strictly, Closely::Loosely] } else { &[Closely::Strictly] };
    for how in looks {
        let fitting =
            usable().filter(|pool| !pool.spec.is_global() && pool.spec.selector.matches(asked, *how));
        // Of two with the same priority the first by name, so that every look chooses the same.
        let best = fitting.max_by(|one, other| {
            let priorities = one.spec.selector.priority.cmp(&other.spec.selector.priority);
            priorities.then_with(|| name(other).cmp(&name(one)))
        });
        if let Some(pool) = best.or_else(|| usable().find(|pool| pool.spec.is_global())) {
            return Ok(pool);
        }
    }
    Err(format!(
        "no matched IPPool with requirement network {:?}, project {:?}, namespace {:?}, cluster {:?}",
        asked.network, asked.project, asked.namespace, asked.cluster
    ))
}

impl Pool {
    pub fn read(pool: &IPPool) -> Pool {
        let addresses = |map: &BTreeMap<String, String>| -> BTreeMap<Ipv4Addr, String> {
            map.iter().filter_map(|(address, holder)| Some((address.parse().ok()?, holder.clone()))).collect()
        };
        Pool {
            name: pool.metadata.name.clone().unwrap_or_default(),
            ranges: pool.spec.address_ranges(),
            allocated: addresses(&pool.status.allocated),
            history: addresses(&pool.status.allocated_history),
            last: pool.status.last_allocated.parse().ok(),
        }
    }

    pub fn total(&self) -> i64 {
        self.ranges.iter().map(AddressRange::size).sum()
    }

    fn contains(&self, address: Ipv4Addr) -> bool {
        self.ranges.iter().any(|range| range.contains(address))
    }

    pub fn holder_of(&self, address: Ipv4Addr) -> Option<&str> {
        self.allocated.get(&address).map(String::as_str)
    }

    pub fn addresses_of<'a>(&'a self, holder: &'a str) -> impl Iterator<Item = Ipv4Addr> + 'a {
        self.allocated.iter().filter(move |(_, one)| *one == holder).map(|(address, _)| *address)
    }

    /// What somebody has.
    pub fn given(&self) -> Vec<Block> {
        self.allocated.keys().copied().map(Block::single).collect()
    }

    /// Everybody who has an address.
    pub fn holders(&self) -> BTreeSet<&str> {
        self.allocated.values().map(String::as_str).collect()
    }

    /// Gives this very address; answers whether it is the holder's.
    pub fn claim(&mut self, holder: &str, address: Ipv4Addr) -> bool {
        match self.allocated.get(&address) {
            Some(other) => other == holder,
            None if !self.contains(address) => false,
            None => {
                self.history.remove(&address);
                self.allocated.insert(address, holder.to_owned());
                true
            }
        }
    }

    pub fn allocate(&mut self, holder: &str, blocked: &[Block]) -> Result<Ipv4Addr, PoolError> {
        if let Some(address) = self.addresses_of(holder).next() {
            return Ok(address);
        }
        let is_free = |address: &Ipv4Addr| {
            !self.allocated.contains_key(address)
                && self.contains(*address)
                && !blocked.iter().any(|block| block.contains(*address))
        };
        let had = self.history.iter().filter(|(_, one)| *one == holder).map(|(address, _)| *address);
        // What somebody else had is given to others last.
        let rested = || self.next_free(blocked, |address| self.history.contains_key(&address));
        let address = { had }.find(is_free).or_else(rested).or_else(|| self.next_free(blocked, |_| false));
        let address =
            address.ok_or_else(|| PoolError::Exhausted { pool: self.name.clone(), size: self.total() })?;
        self.claim(holder, address);
        self.last = Some(address);
        Ok(address)
    }

    /// Takes an address back, and remembers whose it was.
    pub fn release(&mut self, address: Ipv4Addr) {
        if let Some(holder) = self.allocated.remove(&address) {
            // One address each is remembered, or a pool could be full of one name.
            self.history.retain(|_, one| *one != holder);
            self.history.insert(address, holder);
        }
    }

    /// The first free address behind the last one, through all ranges and around.
    fn next_free(&self, blocked: &[Block], not: impl Fn(Ipv4Addr) -> bool) -> Option<Ipv4Addr> {
        let at = self.last.and_then(|last| {
            let nth = self.ranges.iter().position(|range| (range.first..=range.last).contains(&last))?;
            Some((nth, last))
        });
        let Some((nth, last)) = at else {
            return self
                .ranges
                .iter()
                .find_map(|range| self.first_gap(range, range.first, range.last, blocked, &not));
        };
        let range = &self.ranges[nth];
        let after = Ipv4Addr::from_bits(last.to_bits().saturating_add(1));
        let rest =
            (last < range.last).then(|| self.first_gap(range, after, range.last, blocked, &not)).flatten();
        let others = || {
            let others = self.ranges[nth + 1..].iter().chain(&self.ranges[..nth]);
            { others }.find_map(|range| self.first_gap(range, range.first, range.last, blocked, &not))
        };
        rest.or_else(others).or_else(|| self.first_gap(range, range.first, last, blocked, &not))
    }

    /// The first free address from here to there: steps over blocks as a whole.
    fn first_gap(
        &self,
        range: &AddressRange,
        from: Ipv4Addr,
        to: Ipv4Addr,
        blocked: &[Block],
        not: &dyn Fn(Ipv4Addr) -> bool,
    ) -> Option<Ipv4Addr> {
        let mut candidate = from;
        while candidate <= to {
            if let Some(block) = blocked.iter().find(|block| block.contains(candidate)) {
                candidate = block.behind(candidate)?;
            } else if self.allocated.contains_key(&candidate)
                || range.gateway == Some(candidate)
                || not(candidate)
            {
                candidate = Ipv4Addr::from_bits(candidate.to_bits().checked_add(1)?);
            } else {
                return Some(candidate);
            }
        }
        None
    }

    /// An address of it, as a balancer says that it has it.
    pub fn describe(&self, address: Ipv4Addr) -> AllocatedAddress {
        let range = self.ranges.iter().find(|range| range.contains(address));
        let mask = range.map(|range| {
            let bits = u32::MAX.checked_shl(32 - u32::from(range.subnet.prefix)).unwrap_or(0);
            Ipv4Addr::from_bits(bits).to_string()
        });
        let gateway = range.and_then(|range| range.gateway).map(|gateway| gateway.to_string());
        AllocatedAddress {
            ip_pool: self.name.clone(),
            ip: address.to_string(),
            mask: mask.unwrap_or_default(),
            gateway: gateway.unwrap_or_default(),
        }
    }

    /// What its object is to say; what it said before stays as far as it is not about addresses.
    pub fn status(&self, before: &LoadBalancerIpPoolStatus, now: &str) -> LoadBalancerIpPoolStatus {
        let wire = |map: &BTreeMap<Ipv4Addr, String>| {
            map.iter().map(|(address, holder)| (address.to_string(), holder.clone())).collect()
        };
        let mut history = self.history.clone();
        history.retain(|address, _| self.contains(*address) && !self.allocated.contains_key(address));
        let mut conditions = before.conditions.clone();
        set_condition(&mut conditions, READY, "True", ("", ""), now);
        LoadBalancerIpPoolStatus {
            total: self.total(),
            available: (self.total() - i64::try_from(self.allocated.len()).unwrap_or(i64::MAX)).max(0),
            last_allocated: self.last.map(|last| last.to_string()).unwrap_or_default(),
            allocated: wire(&self.allocated),
            allocated_history: wire(&history),
            conditions,
        }
    }
}

#[cfg(test)]
mod tests;
