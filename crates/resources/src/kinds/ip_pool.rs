//! network.harvesterhci.io/v1alpha1 IPPool: the addresses of one network, and who has which.
//!
//! `status.ipv4.allocated` is where an address belongs to somebody; the allocator in
//! `planner::address` decides, and whoever runs it writes it down here.

use std::{collections::BTreeMap, fmt, net::Ipv4Addr};

use serde_json::{Value, json};

use super::{age_column, condition_status, harvester_condition::HarvesterCondition, name_column, text};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind},
    wire::{root_type, wire_type},
};

/// In `allocated`: an address nobody gets because the pool leaves it out.
pub const EXCLUDED: &str = "EXCLUDED";
/// In `allocated`: an address of the network itself: its router, its DHCP server.
pub const RESERVED: &str = "RESERVED";

/// The network of machines that name none: the `networkName` of its pool.
pub const DEFAULT_NETWORK: &str = "harvester-system/default";

root_type! {
    /// The addresses of one network.
    IPPool = "io.harvesterhci.network.v1alpha1.IPPool",
    "network.harvesterhci.io" / "v1alpha1" "ippools" NamespaceResourceScope {
        /// Which addresses, of which network.
        spec: IpPoolSpec,
        /// Who has which.
        status: IpPoolStatus,
    }
}

wire_type! {
    /// Which addresses, of which network.
    IpPoolSpec = "io.harvesterhci.network.v1alpha1.IPPoolSpec" {
        /// The addresses, and what DHCP says beside them.
        ipv4_config: Ipv4Config,
        /// `namespace/name` of the NetworkAttachmentDefinition; settled when created.
        network_name: String,
        /// True stops handing out addresses; those who have one keep it.
        paused: Option<bool>,
    }
}

wire_type! {
    /// The addresses, and what DHCP says beside them.
    Ipv4Config = "io.harvesterhci.network.v1alpha1.IPv4Config" {
        /// The network, such as `10.52.0.0/16`.
        cidr: String,
        /// The address of the DHCP server.
        #[serde(rename = "serverIP")]
        server_ip: String,
        /// The part of it that is handed out.
        pool: Pool,
        /// The way to everywhere else.
        router: String,
        /// Name servers, three at most.
        dns: Vec<String>,
        /// What names end in.
        domain_name: Option<String>,
        /// What else names may end in.
        domain_search: Vec<String>,
        /// Time servers, four at most.
        ntp: Vec<String>,
        /// Seconds an address is lent for.
        lease_time: Option<i64>,
    }
}

wire_type! {
    /// The part of a network that is handed out.
    Pool = "io.harvesterhci.network.v1alpha1.Pool" {
        /// The first address; the network's first when left out.
        start: String,
        /// The last address; the network's last when left out.
        end: String,
        /// Addresses in between that are not.
        exclude: Vec<String>,
    }
}

wire_type! {
    /// Who has which address.
    IpPoolStatus = "io.harvesterhci.network.v1alpha1.IPPoolStatus" {
        /// When an address was last given or taken back.
        last_update: String,
        /// The addresses.
        ipv4: Option<Ipv4Status>,
        /// Registered, CacheReady, AgentReady and Stopped.
        conditions: Vec<HarvesterCondition>,
    }
}

wire_type! {
    /// Who has which address.
    Ipv4Status = "io.harvesterhci.network.v1alpha1.IPv4Status" {
        /// By address: a hardware address, EXCLUDED or RESERVED.
        allocated: BTreeMap<String, String>,
        /// How many are given away.
        used: i64,
        /// How many are left.
        available: i64,
        /// The address that was given out last: the next one comes after it.
        last_allocated: String,
    }
}

/// A network of addresses: its first address and how many leading bits they share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    pub network: Ipv4Addr,
    pub prefix: u8,
}

impl Cidr {
    /// The default network of machines, where nobody chose another.
    pub const DEFAULT_NETWORK: Cidr = Cidr { network: Ipv4Addr::new(10, 52, 0, 0), prefix: 16 };

    /// Reads `10.52.0.0/16`; an address inside stands for its network.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        let address: Ipv4Addr = address.parse().ok()?;
        let prefix: u8 = prefix.parse().ok().filter(|prefix| *prefix <= 32)?;
        let cidr = Cidr { network: address, prefix };
        Some(Cidr { network: Ipv4Addr::from_bits(address.to_bits() & cidr.mask()), prefix })
    }

    fn mask(self) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0)
    }

    pub fn contains(self, address: Ipv4Addr) -> bool {
        address.to_bits() & self.mask() == self.network.to_bits()
    }

    pub fn broadcast(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.network.to_bits() | !self.mask())
    }

    /// First and last address that a machine can have; `None` where there is none.
    pub fn hosts(self) -> Option<(Ipv4Addr, Ipv4Addr)> {
        let (first, last) =
            (self.network.to_bits().checked_add(1)?, self.broadcast().to_bits().checked_sub(1)?);
        (first <= last).then(|| (Ipv4Addr::from_bits(first), Ipv4Addr::from_bits(last)))
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix)
    }
}

pub fn kind() -> Kind {
    Kind::of_type::<IPPool>("ippools")
        .short(&["ippl", "ippls"])
        .columns(vec![
            name_column(),
            Column::computed("Network", |pool, _| pool["spec"]["networkName"].clone()),
            Column::computed("Available", |pool, _| number(&pool["status"]["ipv4"]["available"])).integer(),
            Column::computed("Used", |pool, _| number(&pool["status"]["ipv4"]["used"])).integer(),
            Column::computed("Registered", |pool, _| condition_status(pool, "Registered")),
            Column::computed("CacheReady", |pool, _| condition_status(pool, "CacheReady")),
            Column::computed("AgentReady", |pool, _| condition_status(pool, "AgentReady")),
            age_column(),
        ])
        .behaving(Behaviour { validate, generation: true, ..Behaviour::PLAIN })
}

/// A zero is left out on the way, and is a number all the same.
fn number(value: &Value) -> Value {
    if value.is_null() { json!(0) } else { value.clone() }
}

fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let path = FieldPath::new("spec");
    let spec: IpPoolSpec = match serde_json::from_value(new["spec"].clone()) {
        Ok(spec) => spec,
        Err(why) => return vec![FieldError::invalid(&path, "<object>", why.to_string())],
    };
    let mut errors = Vec::new();
    if old.is_some_and(|old| old["spec"]["networkName"] != new["spec"]["networkName"]) {
        let at = path.child("networkName");
        errors.push(FieldError::invalid(&at, spec.network_name.as_str(), "field is immutable"));
    }
    let at = path.child("ipv4Config");
    let config = &spec.ipv4_config;
    let Some(cidr) = Cidr::parse(&config.cidr) else {
        errors.push(FieldError::invalid(&at.child("cidr"), config.cidr.as_str(), "is not an IPv4 network"));
        return errors;
    };
    if cidr.hosts().is_none() {
        errors.push(FieldError::invalid(&at.child("cidr"), config.cidr.as_str(), "has no addresses to give"));
    }
    if old.is_some_and(|old| text(&old["spec"]["ipv4Config"]["cidr"]) != config.cidr) {
        errors.push(FieldError::invalid(&at.child("cidr"), config.cidr.as_str(), "field is immutable"));
    }
    let pool = at.child("pool");
    let single = [
        (at.child("serverIP"), &config.server_ip),
        (at.child("router"), &config.router),
        (pool.child("start"), &config.pool.start),
        (pool.child("end"), &config.pool.end),
    ];
    let excluded = config.pool.exclude.iter().enumerate();
    let excluded = excluded.map(|(n, address)| (pool.child("exclude").index(n), address));
    for (at, address) in single.into_iter().filter(|(_, address)| !address.is_empty()).chain(excluded) {
        match address.parse::<Ipv4Addr>() {
            Err(_) => errors.push(FieldError::invalid(&at, address.as_str(), "is not an IPv4 address")),
            Ok(found) if !cidr.contains(found) => {
                let why = format!("is not within subnet {}", config.cidr);
                errors.push(FieldError::invalid(&at, address.as_str(), why));
            }
            Ok(found) if found == cidr.network || found == cidr.broadcast() => {
                let why = "is the address of the network or of all in it";
                errors.push(FieldError::invalid(&at, address.as_str(), why));
            }
            Ok(_) => {}
        }
    }
    let (start, end) = (config.pool.start.parse::<Ipv4Addr>(), config.pool.end.parse::<Ipv4Addr>());
    if let (Ok(start), Ok(end)) = (start, end)
        && start > end
    {
        let at = pool.child("start");
        errors.push(FieldError::invalid(&at, config.pool.start.as_str(), "comes after the end of the pool"));
    }
    for (field, list, most) in [("dns", &config.dns, 3), ("ntp", &config.ntp, 4)] {
        if list.len() > most {
            errors.push(FieldError::too_many(&at.child(field), list.len() as u64, most as u64));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pool(config: Value) -> Value {
        json!({"spec": {"networkName": "default/vlan1", "ipv4Config": config}})
    }

    #[test]
    fn a_pool_lies_inside_its_network() {
        let fine = json!({"cidr": "10.9.0.0/24", "serverIP": "10.9.0.100", "router": "10.9.0.1",
            "pool": {"start": "10.9.0.101", "end": "10.9.0.120", "exclude": ["10.9.0.105"]}, "leaseTime": 300});
        assert_eq!(validate(&pool(fine.clone()), None), []);
        for (field, value, words) in [
            ("cidr", json!("10.9.0.0"), "is not an IPv4 network"),
            ("cidr", json!("10.9.0.0/32"), "has no addresses to give"),
            ("router", json!("10.8.0.1"), "is not within subnet 10.9.0.0/24"),
            ("router", json!("10.9.0.255"), "is the address of the network or of all in it"),
            ("pool", json!({"start": "x"}), "is not an IPv4 address"),
            ("pool", json!({"start": "10.9.0.9", "end": "10.9.0.8"}), "comes after the end of the pool"),
            ("dns", json!(["1.1.1.1", "1.1.1.1", "1.1.1.1", "1.1.1.1"]), "must have at most 3 items"),
        ] {
            let mut config = fine.clone();
            config[field] = value;
            let said: Vec<String> = validate(&pool(config), None).iter().map(ToString::to_string).collect();
            assert!(said.iter().any(|line| line.contains(words)), "{words}: {said:?}");
        }
    }

    #[test]
    fn a_pool_stays_with_its_network() {
        let old = pool(json!({"cidr": "10.9.0.0/24"}));
        let mut new = old.clone();
        new["spec"]["networkName"] = json!("default/other");
        new["spec"]["ipv4Config"]["cidr"] = json!("10.9.0.0/16");
        assert_eq!(validate(&new, Some(&old)).len(), 2);
    }

    proptest! {
        #[test]
        fn the_hosts_of_a_network_are_in_it_and_its_ends_are_not(bits: u32, prefix in 0_u8..=30) {
            let cidr = Cidr::parse(&format!("{}/{prefix}", Ipv4Addr::from_bits(bits))).unwrap();
            let (first, last) = cidr.hosts().unwrap();
            prop_assert!(cidr.contains(first) && cidr.contains(last));
            prop_assert!(first > cidr.network && last < cidr.broadcast());
        }
    }
}
