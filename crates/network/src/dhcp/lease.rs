//! Which MAC has which address.

use std::{collections::BTreeMap, net::Ipv4Addr};

use crate::{
    addresses::{Mac, hostname_of},
    port::Port,
};

/// What one NIC is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub address: Ipv4Addr,
    pub hostname: String,
}

/// Every NIC that is told something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leases(BTreeMap<Mac, Lease>);

impl Leases {
    /// The leases of these ports: the first address of each. A port without one has no lease.
    pub fn of(ports: &[Port]) -> Leases {
        let lease = |port: &Port| {
            let hostname = port.hostname.clone().unwrap_or_else(|| hostname_of(port.mac));
            Some((port.mac, Lease { address: *port.addresses.first()?, hostname }))
        };
        Leases(ports.iter().filter_map(lease).collect())
    }

    pub fn get(&self, mac: Mac) -> Option<&Lease> {
        self.0.get(&mac)
    }
}

impl FromIterator<(Mac, Lease)> for Leases {
    fn from_iter<T: IntoIterator<Item = (Mac, Lease)>>(leases: T) -> Leases {
        Leases(leases.into_iter().collect())
    }
}
