//! Decides which address an interface gets from a pool.
//!
//! - An interface that has an address keeps it; one that had it gets it back while nobody
//!   else took it. That is why a machine's address survives restarts.
//! - Otherwise the next free address after the one given out last, round and round: an
//!   address that was given back rests as long as the pool allows, because others on the
//!   network still remember whose it was.
//! - Nothing is given twice. What is allocated is written down before anybody is told, on
//!   the condition that nobody else wrote meanwhile.

use std::{collections::BTreeMap, net::Ipv4Addr};

use sheaf_resources::kinds::ip_pool::{Cidr, EXCLUDED, IpPoolSpec, Ipv4Status, RESERVED};

/// The addresses of one network, and who has which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    first: Ipv4Addr,
    last: Ipv4Addr,
    /// Who has what, by the interface's key; and what nobody gets.
    allocated: BTreeMap<Ipv4Addr, String>,
    /// The address that was given out last.
    cursor: Option<Ipv4Addr>,
}

/// An interface that wants an address.
#[derive(Clone, Copy, Debug)]
pub struct Nic<'a> {
    /// Who it is in `allocated`: its hardware address, in its one form.
    pub key: &'a str,
    /// The address it must have, or none.
    pub requested: Option<Ipv4Addr>,
    /// The address it had when it was last seen.
    pub previous: Option<Ipv4Addr>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error("{cidr} is not a network with addresses to give")]
    NotANetwork { cidr: String },
    #[error("all {size} addresses from {first} to {last} are taken: enlarge the pool or remove machines")]
    Exhausted { first: Ipv4Addr, last: Ipv4Addr, size: u64 },
    #[error("address {address} is taken by {holder}")]
    Taken { address: Ipv4Addr, holder: String },
    #[error("address {address} is not between {first} and {last}")]
    OutOfRange { address: Ipv4Addr, first: Ipv4Addr, last: Ipv4Addr },
}

impl Pool {
    /// The pool as its object describes it.
    pub fn read(spec: &IpPoolSpec, status: Option<&Ipv4Status>) -> Result<Self, AddressError> {
        let config = &spec.ipv4_config;
        let not_a_network = || AddressError::NotANetwork { cidr: config.cidr.clone() };
        let hosts = Cidr::parse(&config.cidr).and_then(Cidr::hosts).ok_or_else(not_a_network)?;
        let first = config.pool.start.parse().unwrap_or(hosts.0).max(hosts.0);
        let last = config.pool.end.parse().unwrap_or(hosts.1).min(hosts.1);
        if first > last {
            return Err(not_a_network());
        }
        let mut allocated = BTreeMap::new();
        for (address, holder) in status.iter().flat_map(|status| &status.allocated) {
            if let Ok(address) = address.parse::<Ipv4Addr>() {
                allocated.insert(address, holder.clone());
            }
        }
        // The spec has the last word on what nobody gets, but nobody loses what they have.
        allocated.retain(|_, holder| holder != EXCLUDED && holder != RESERVED);
        let excluded = config.pool.exclude.iter().map(|address| (address, EXCLUDED));
        let own = [&config.router, &config.server_ip].into_iter().map(|address| (address, RESERVED));
        for (address, mark) in excluded.chain(own) {
            if let Ok(address) = address.parse::<Ipv4Addr>() {
                allocated.entry(address).or_insert_with(|| mark.to_owned());
            }
        }
        let cursor = status.and_then(|status| status.last_allocated.parse().ok());
        Ok(Pool { first, last, allocated, cursor })
    }

    /// The pool as its object should describe it.
    pub fn into_wire(&self) -> Ipv4Status {
        let inside = self.allocated.range(self.first..=self.last);
        let (taken, used) = inside.fold((0, 0), |(taken, used), (_, holder)| {
            let held = holder != EXCLUDED && holder != RESERVED;
            (taken + 1, used + i64::from(held))
        });
        let size = i64::try_from(self.size()).unwrap_or(i64::MAX);
        Ipv4Status {
            allocated: self
                .allocated
                .iter()
                .map(|(address, holder)| (address.to_string(), holder.clone()))
                .collect(),
            used,
            available: size - taken,
            last_allocated: self.cursor.map(|cursor| cursor.to_string()).unwrap_or_default(),
        }
    }

    pub fn holder(&self, address: Ipv4Addr) -> Option<&str> {
        self.allocated.get(&address).map(String::as_str)
    }

    pub fn address_of(&self, key: &str) -> Option<Ipv4Addr> {
        self.allocated.iter().find(|(_, holder)| *holder == key).map(|(address, _)| *address)
    }

    /// Gives an interface its address, and notes it.
    pub fn allocate(&mut self, nic: Nic<'_>) -> Result<Ipv4Addr, AddressError> {
        let held = self.address_of(nic.key);
        if let Some(address) = nic.requested {
            return self.allocate_requested(nic.key, address, held);
        }
        if let Some(held) = held {
            return Ok(held);
        }
        let previous =
            nic.previous.filter(|address| self.is_inside(*address) && self.holder(*address).is_none());
        let address = match previous {
            Some(address) => address,
            None => {
                let next = self.next_free()?;
                self.cursor = Some(next);
                next
            }
        };
        self.allocated.insert(address, nic.key.to_owned());
        Ok(address)
    }

    fn allocate_requested(
        &mut self,
        key: &str,
        address: Ipv4Addr,
        held: Option<Ipv4Addr>,
    ) -> Result<Ipv4Addr, AddressError> {
        if !self.is_inside(address) {
            return Err(AddressError::OutOfRange { address, first: self.first, last: self.last });
        }
        match self.holder(address) {
            Some(holder) if holder != key => {
                return Err(AddressError::Taken { address, holder: holder.to_owned() });
            }
            Some(_) | None => {}
        }
        if let Some(held) = held.filter(|held| *held != address) {
            self.allocated.remove(&held);
        }
        self.allocated.insert(address, key.to_owned());
        Ok(address)
    }

    /// Takes back what an interface has; what it has not is not taken from anybody.
    pub fn release(&mut self, key: &str) -> Option<Ipv4Addr> {
        if key == EXCLUDED || key == RESERVED {
            return None;
        }
        let address = self.address_of(key)?;
        self.allocated.remove(&address);
        Some(address)
    }

    fn size(&self) -> u64 {
        u64::from(self.last.to_bits() - self.first.to_bits()) + 1
    }

    fn is_inside(&self, address: Ipv4Addr) -> bool {
        (self.first..=self.last).contains(&address)
    }

    fn next_free(&self) -> Result<Ipv4Addr, AddressError> {
        let after = self.cursor.filter(|cursor| self.is_inside(*cursor)).and_then(|cursor| {
            let next = Ipv4Addr::from_bits(cursor.to_bits().checked_add(1)?);
            self.is_inside(next).then_some(next)
        });
        let start = after.unwrap_or(self.first);
        let ahead = self.first_gap(start, self.last);
        let behind = || self.first_gap(self.first, Ipv4Addr::from_bits(start.to_bits().checked_sub(1)?));
        ahead.or_else(behind).ok_or(AddressError::Exhausted {
            first: self.first,
            last: self.last,
            size: self.size(),
        })
    }

    /// The first address nobody has: steps over what is taken, not over the whole range.
    fn first_gap(&self, from: Ipv4Addr, to: Ipv4Addr) -> Option<Ipv4Addr> {
        if from > to {
            return None;
        }
        let mut candidate = from.to_bits();
        for taken in self.allocated.range(from..=to).map(|(address, _)| address.to_bits()) {
            if taken != candidate {
                break;
            }
            candidate = candidate.checked_add(1)?;
        }
        (candidate <= to.to_bits()).then(|| Ipv4Addr::from_bits(candidate))
    }
}

#[cfg(test)]
mod tests;
