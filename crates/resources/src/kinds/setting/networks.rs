//! Settings that name networks: of their own for what goes between nodes, and pools of addresses.
//!
//! Whether a cluster network of that name is there is not for here: that looks at other objects.

use std::{collections::BTreeMap, net::Ipv4Addr};

use serde::Deserialize;

use super::{super::ip_pool::Cidr, shapes::unreadable};

/// Networks larger than this are not taken, as in the original.
const WIDEST_PREFIX: u8 = 16;
const MANAGEMENT: &str = "mgmt";

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct NodeNetwork {
    vlan: i64,
    cluster_network: String,
    range: String,
    exclude: Vec<String>,
    exclusive_vlan: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
struct SharedVolumes {
    share_storage_network: bool,
    network: Option<NodeNetwork>,
}

/// The cluster network that a value of one of these settings names.
pub fn cluster_network_of(value: &str) -> Option<String> {
    let shared = serde_json::from_str::<SharedVolumes>(value).ok().and_then(|shared| shared.network);
    let network = shared.or_else(|| serde_json::from_str(value).ok())?;
    Some(network.cluster_network).filter(|name| !name.is_empty())
}

pub(super) fn of_nodes(value: &str) -> Result<(), String> {
    if value.is_empty() {
        return Ok(());
    }
    let network = serde_json::from_str(value).map_err(|why| unreadable(&why))?;
    check(&network)
}

pub(super) fn of_shared_volumes(value: &str) -> Result<(), String> {
    if value.is_empty() {
        return Ok(());
    }
    let shared: SharedVolumes = serde_json::from_str(value).map_err(|why| unreadable(&why))?;
    match (shared.share_storage_network, shared.network) {
        (true, Some(_)) => Err("network has no place beside share-storage-network: true".into()),
        (_, None) => Ok(()),
        (false, Some(network)) => check(&network),
    }
}

fn check(network: &NodeNetwork) -> Result<(), String> {
    if network.cluster_network.is_empty() {
        return Err("clusterNetwork must name a cluster network".into());
    }
    if !(0..=4094).contains(&network.vlan) {
        return Err("the valid value range for VLAN IDs is 0 to 4094".into());
    }
    if network.vlan <= 1 && network.cluster_network == MANAGEMENT {
        return Err(format!("network with vlan id {} not allowed on {MANAGEMENT} cluster", network.vlan));
    }
    let range = subnet(&network.range).map_err(|why| format!("range {why}"))?;
    let mut former: Vec<(u32, u32)> = Vec::new();
    for exclude in &network.exclude {
        let (first, last) = subnet(exclude).map_err(|why| format!("exclude {why}"))?;
        if last < range.0 || range.1 < first {
            return Err(format!("exclude range {exclude} do not overlap include range {}", network.range));
        }
        if first <= range.0 && range.1 <= last {
            return Err(format!("exclude range {exclude} leaves no addresses in {}", network.range));
        }
        if former.iter().any(|(begin, end)| *begin <= last && first <= *end) {
            return Err(format!("exclude ranges have overlapping subnets: {exclude}"));
        }
        former.push((first, last));
    }
    Ok(())
}

/// First and last address of a subnet that is written as one.
fn subnet(text: &str) -> Result<(u32, u32), String> {
    let wrong = || format!("{text:?} is not an IPv4 subnet in CIDR form");
    let (address, prefix) = text.split_once('/').ok_or_else(wrong)?;
    let (address, prefix): (Ipv4Addr, u8) =
        (address.parse().map_err(|_| wrong())?, prefix.parse().map_err(|_| wrong())?);
    if prefix > 32 {
        return Err(wrong());
    }
    if prefix < WIDEST_PREFIX {
        return Err(format!("{text:?} is too wide: min supported prefix length is {WIDEST_PREFIX}"));
    }
    let hosts = u32::MAX.checked_shr(u32::from(prefix)).unwrap_or(0);
    let first = u32::from(address);
    if first & hosts != 0 {
        return Err(format!("{text:?} should be subnet CIDR {}/{prefix}", Ipv4Addr::from(first & !hosts)));
    }
    Ok((first, first | hosts))
}

/// By namespace, subnets and ranges with commas between them.
pub(super) fn address_pools(value: &str) -> Result<(), String> {
    if value.is_empty() {
        return Ok(());
    }
    let pools: BTreeMap<String, String> = serde_json::from_str(value).map_err(|why| unreadable(&why))?;
    for (namespace, pool) in &pools {
        for part in pool.split(',').map(str::trim) {
            let is_range = part.split_once('-').is_some_and(|(from, to)| {
                let parse = |text: &str| text.trim().parse::<Ipv4Addr>().ok();
                matches!((parse(from), parse(to)), (Some(from), Some(to)) if from <= to)
            });
            if !is_range && Cidr::parse(part).is_none() {
                return Err(format!("{part:?} in the pool of {namespace} is neither a CIDR nor a range"));
            }
        }
    }
    Ok(())
}
