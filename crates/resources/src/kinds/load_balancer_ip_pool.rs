//! loadbalancer.harvesterhci.io/v1beta1 IPPool: the addresses that load balancers get, who may have them, and who has which.
//!
//! Not to be mistaken for the [`super::ip_pool`] of the same name, which has the addresses of machines. `status.allocated` is
//! where an address belongs to somebody; `planner::load_balancer::pool` decides, and whoever runs it writes it down here.

use std::{collections::BTreeMap, net::Ipv4Addr};

use serde_json::{Value, json};

use super::{age_column, harvester_condition::HarvesterCondition, ip_pool::Cidr, name_column};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind},
    wire::{root_type, wire_type},
};

/// In a scope: whoever.
pub const ANYBODY: &str = "*";
/// The label that says whether a pool is for everybody, for whoever looks for it.
pub const GLOBAL_LABEL: &str = "loadbalancer.harvesterhci.io/global-ip-pool";
/// `<address>: <namespace>/<name>`: what is to be taken back from a load balancer that is gone.
pub const RELEASE_ANNOTATION: &str = "loadbalancer.harvesterhci.io/manuallyReleaseIP";
/// True once addresses can be had.
pub const READY: &str = "Ready";

root_type! {
    /// The addresses that load balancers get.
    IPPool = "io.harvesterhci.loadbalancer.v1beta1.IPPool",
    "loadbalancer.harvesterhci.io" / "v1beta1" "ippools" ClusterResourceScope {
        /// Which addresses, for whom.
        spec: LoadBalancerIpPoolSpec,
        /// Who has which.
        status: LoadBalancerIpPoolStatus,
    }
}

wire_type! {
    /// Which addresses, for whom.
    LoadBalancerIpPoolSpec = "io.harvesterhci.loadbalancer.v1beta1.IPPoolSpec" {
        /// For people.
        description: String,
        /// The addresses.
        ranges: Vec<Range>,
        /// For whom.
        selector: Selector,
    }
}

wire_type! {
    /// Addresses that follow each other, in one network.
    Range = "io.harvesterhci.loadbalancer.v1beta1.Range" {
        /// The first address; the network's first when left out.
        range_start: String,
        /// The last address; the network's last when left out.
        range_end: String,
        /// The network, such as `192.168.0.0/24`.
        subnet: String,
        /// The way to everywhere else, which nobody gets; the network's first address when left out.
        gateway: String,
    }
}

wire_type! {
    /// For whom a pool is that did not name one.
    Selector = "io.harvesterhci.loadbalancer.v1beta1.Selector" {
        /// Of several that fit the highest counts.
        priority: u32,
        /// `namespace/name` of the network of machines.
        network: String,
        /// Any of these.
        scope: Vec<Tuple>,
    }
}

wire_type! {
    /// Whom a pool is for; `*` stands for all.
    Tuple = "io.harvesterhci.loadbalancer.v1beta1.Tuple" {
        /// The project.
        project: String,
        /// The namespace.
        namespace: String,
        /// The cluster in machines.
        guest_cluster: String,
    }
}

wire_type! {
    /// Who has which address.
    LoadBalancerIpPoolStatus = "io.harvesterhci.loadbalancer.v1beta1.IPPoolStatus" {
        /// How many there are.
        total: i64,
        /// How many are left.
        available: i64,
        /// The address that was given out last: the next one comes after it.
        last_allocated: String,
        /// By address: `namespace/name` of the load balancer.
        allocated: BTreeMap<String, String>,
        /// By address: who had it last.
        allocated_history: BTreeMap<String, String>,
        /// Ready.
        conditions: Vec<HarvesterCondition>,
    }
}

/// A range as numbers. Neither a network's own address nor that of all in it is ever one of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    pub first: Ipv4Addr,
    pub last: Ipv4Addr,
    pub subnet: Cidr,
    pub gateway: Option<Ipv4Addr>,
}

impl AddressRange {
    pub fn read(range: &Range) -> Result<AddressRange, String> {
        let subnet =
            Cidr::parse(&range.subnet).ok_or_else(|| format!("invalid subnet {:?}", range.subnet))?;
        let single = subnet.prefix == 32;
        let hosts = match subnet.prefix {
            31 | 32 => (subnet.network, subnet.broadcast()),
            _ => subnet.hosts().ok_or_else(|| format!("subnet {subnet} has no addresses to give"))?,
        };
        let read = |what: &str, text: &str, default: Ipv4Addr| -> Result<Ipv4Addr, String> {
            if text.is_empty() {
                return Ok(default);
            }
            let address: Ipv4Addr = text.parse().map_err(|_| format!("invalid {what} {text}"))?;
            match subnet.contains(address) {
                true => Ok(address),
                false => Err(format!("{what} {address} is out of subnet {subnet}")),
            }
        };
        let (start, end) =
            (read("rangeStart", &range.range_start, hosts.0)?, read("rangeEnd", &range.range_end, hosts.1)?);
        // As the original takes them: in whichever order.
        let (first, last) = (start.min(end).max(hosts.0), start.max(end).min(hosts.1));
        if first > last {
            return Err(format!("no address from {start} to {end} can be given in subnet {subnet}"));
        }
        let gateway = match (range.gateway.is_empty(), single) {
            (true, true) => None,
            (true, false) => Some(hosts.0),
            (false, _) => {
                Some(range.gateway.parse().map_err(|_| format!("invalid gateway {}", range.gateway))?)
            }
        };
        Ok(AddressRange { first, last, subnet, gateway })
    }

    pub fn contains(&self, address: Ipv4Addr) -> bool {
        (self.first..=self.last).contains(&address) && self.gateway != Some(address)
    }

    pub fn overlaps(&self, other: &AddressRange) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// How many addresses it can give.
    pub fn size(&self) -> i64 {
        let all = i64::from(self.last.to_bits()) - i64::from(self.first.to_bits()) + 1;
        let gateway = self.gateway.is_some_and(|gateway| (self.first..=self.last).contains(&gateway));
        all - i64::from(gateway)
    }
}

impl LoadBalancerIpPoolSpec {
    /// What is not a range gives no address.
    pub fn address_ranges(&self) -> Vec<AddressRange> {
        self.ranges.iter().filter_map(|range| AddressRange::read(range).ok()).collect()
    }

    /// Whether it is for everybody of its network, whom no other pool is for.
    pub fn is_global(&self) -> bool {
        matches!(self.selector.scope.as_slice(), [only]
            if only.project == ANYBODY && only.namespace == ANYBODY && only.guest_cluster == ANYBODY)
    }
}

/// Who asks for an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requirement {
    pub network: String,
    pub project: String,
    pub namespace: String,
    pub cluster: String,
}

/// How closely a scope is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closely {
    /// What a scope does not say must not be asked for, either.
    Strictly,
    /// A scope that names no project and no cluster is for all of them.
    Loosely,
}

impl Selector {
    pub fn matches(&self, asked: &Requirement, how: Closely) -> bool {
        self.network == asked.network && self.scope.iter().any(|tuple| tuple.matches(asked, how))
    }

    /// Whether one who names the pool may have an address of it: a pool that is for somebody is for nobody else.
    pub fn admits(&self, asked: &Requirement) -> bool {
        let fits = |tuple: &Tuple| {
            [
                (&tuple.project, &asked.project),
                (&tuple.namespace, &asked.namespace),
                (&tuple.guest_cluster, &asked.cluster),
            ]
            .iter()
            .all(|(scope, asked)| scope.is_empty() || scope.as_str() == ANYBODY || scope == asked)
        };
        self.scope.is_empty() || self.scope.iter().any(fits)
    }
}

impl Tuple {
    fn matches(&self, asked: &Requirement, how: Closely) -> bool {
        let fits = |scope: &str, asked: &str| scope == ANYBODY || asked == ANYBODY || scope == asked;
        let open = |scope: &str| how == Closely::Loosely && scope.is_empty();
        (fits(&self.project, &asked.project) || open(&self.project))
            && fits(&self.namespace, &asked.namespace)
            && (fits(&self.guest_cluster, &asked.cluster) || open(&self.guest_cluster))
    }

    fn as_requirement(&self, network: &str) -> Requirement {
        Requirement {
            network: network.to_owned(),
            project: self.project.clone(),
            namespace: self.namespace.clone(),
            cluster: self.guest_cluster.clone(),
        }
    }
}

pub fn kind() -> Kind {
    Kind::of_type::<IPPool>("ippools")
        .cluster_scoped()
        .short(&["pool", "pools"])
        .columns(vec![
            name_column(),
            Column::computed("DESCRIPTION", |pool, _| pool["spec"]["description"].clone()),
            Column::computed("RANGES", |pool, _| json!(pool["spec"]["ranges"].to_string())),
            Column::computed("Priority", |pool, _| pool["spec"]["selector"]["priority"].clone()),
            age_column(),
        ])
        .behaving(Behaviour { default, validate, generation: true, ..Behaviour::PLAIN })
}

/// The label follows from the scope, whatever somebody wrote there.
fn default(pool: &mut Value) {
    let Ok(spec) = serde_json::from_value::<LoadBalancerIpPoolSpec>(pool["spec"].clone()) else { return };
    // Nulls and wrong types are for validation to tell.
    let labels = &mut pool["metadata"]["labels"];
    if labels.is_null() || labels.is_object() {
        labels[GLOBAL_LABEL] = json!(spec.is_global().to_string());
    }
}

fn validate(new: &Value, _: Option<&Value>) -> Vec<FieldError> {
    let path = FieldPath::new("spec");
    let spec: LoadBalancerIpPoolSpec = match serde_json::from_value(new["spec"].clone()) {
        Ok(spec) => spec,
        Err(why) => return vec![FieldError::invalid(&path, "<object>", why.to_string())],
    };
    // One on its way out is let go, whatever it says.
    if !new["metadata"]["deletionTimestamp"].is_null() {
        return Vec::new();
    }
    let at = path.child("ranges");
    if spec.ranges.is_empty() {
        return vec![FieldError::required(&at, "range can't be empty")];
    }
    let mut errors = Vec::new();
    let mut ranges: Vec<AddressRange> = Vec::new();
    for (n, range) in spec.ranges.iter().enumerate() {
        match AddressRange::read(range) {
            Err(why) => errors.push(FieldError::invalid(&at.index(n), range.subnet.as_str(), why)),
            Ok(read) => {
                if let Some(before) = ranges.iter().find(|before| before.overlaps(&read)) {
                    let why = format!(
                        "there are overlaps between range {}-{} and {}-{}",
                        before.first, before.last, read.first, read.last
                    );
                    errors.push(FieldError::invalid(&at.index(n), range.subnet.as_str(), why));
                }
                ranges.push(read);
            }
        }
    }
    let status: LoadBalancerIpPoolStatus = serde_json::from_value(new["status"].clone()).unwrap_or_default();
    for address in status.allocated.keys() {
        let kept = address.parse().is_ok_and(|address| ranges.iter().any(|range| range.contains(address)));
        if !kept {
            let why = format!("allocated IP {address} is excluded");
            errors.push(FieldError::invalid(&at, address.as_str(), why));
        }
    }
    let scope = &spec.selector.scope;
    for (n, tuple) in scope.iter().enumerate() {
        let asked = tuple.as_requirement("");
        if scope[n + 1..].iter().any(|other| other.matches(&asked, Closely::Strictly)) {
            let at = path.child("selector").child("scope").index(n);
            errors.push(FieldError::invalid(&at, "<object>", "scope overlaps"));
        }
    }
    errors
}

/// What a pool must not have in common with the others there are, as the original says it.
pub fn conflict_with(
    name: &str,
    spec: &LoadBalancerIpPoolSpec,
    others: &[(String, LoadBalancerIpPoolSpec)],
) -> Option<String> {
    let ranges = spec.address_ranges();
    for (other_name, other) in others.iter().filter(|(other, _)| other != name) {
        let overlapping = |range: &AddressRange| other.address_ranges().iter().any(|one| one.overlaps(range));
        if let Some(range) = ranges.iter().find(|range| overlapping(range)) {
            return Some(format!(
                "the range {}-{} overlaps with other pools: {other_name}",
                range.first, range.last
            ));
        }
        let (one, two) = (&spec.selector, &other.selector);
        match (spec.is_global(), other.is_global()) {
            (true, true) => return Some(format!("there is already a global IP pool: {other_name}")),
            (true, false) | (false, true) => continue,
            (false, false) => {}
        }
        if one.priority != 0 && one.priority == two.priority {
            return Some(format!("the priority can't be the same as the pool {other_name}"));
        }
        if one.priority == 0 && two.priority == 0 {
            let same = one
                .scope
                .iter()
                .find(|tuple| two.matches(&tuple.as_requirement(&one.network), Closely::Strictly));
            if let Some(tuple) = same {
                return Some(format!(
                    "scope selector is same as the pool {other_name} with priority 0 Project {} Namespace {} \
                     GuestCluster {}, set a different priority or scope",
                    tuple.project, tuple.namespace, tuple.guest_cluster
                ));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests;
