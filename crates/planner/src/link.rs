//! A network interface of a node as it was seen, in the planner's words.

use std::{collections::BTreeMap, net::IpAddr};

use sheaf_resources::kinds::link_monitor::{DEVICE, LinkMonitorSpec, LinkStatus};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    /// `device`, or what software made it: `bridge`, `bond`, `tun` and so on.
    pub kind: String,
    pub mac: String,
    pub mtu: u32,
    /// Whether somebody switched it on.
    pub on: bool,
    /// Whether frames pass.
    pub running: bool,
    pub promiscuous: bool,
    pub loopback: bool,
    /// The interface it is a port of.
    pub controller: Option<u32>,
    /// The interface it is made on top of, as a VLAN's is.
    pub below: Option<u32>,
    /// The addresses by which others reach this node.
    pub addresses: Vec<IpAddr>,
    /// Whether what has no other route leaves by it.
    pub default_route: bool,
    /// Why it is the node's own, which nobody else gets: what [`own_links`] said, now or earlier.
    pub own: Option<String>,
    /// What went wrong with it a moment ago.
    pub trouble: Option<String>,
    /// Of a bridge: whether it tells VLANs apart; none where the kernel cannot.
    pub vlan_filtering: Option<bool>,
    /// Of a bond.
    pub bond: Option<Bond>,
    /// Whether this agent made it, for a cluster network.
    pub ours: bool,
}

/// How a bond puts NICs together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bond {
    /// As [`sheaf_resources::kinds::vlan_config::BOND_MODES`] says it.
    pub mode: String,
    pub miimon: u32,
}

impl Link {
    pub fn is_device(&self) -> bool {
        self.kind == DEVICE
    }

    /// Whether it is what a machine is plugged into.
    pub fn is_tap(&self) -> bool {
        self.kind == "tun"
    }

    /// As a LinkMonitor shows it.
    fn shown(&self) -> LinkStatus {
        LinkStatus {
            name: self.name.clone(),
            index: self.index,
            link_type: self.kind.clone(),
            mac: self.mac.clone(),
            promiscuous: self.promiscuous,
            state: if self.running { "up" } else { "down" }.to_owned(),
            master_index: self.controller.unwrap_or_default(),
        }
    }
}

/// The links by which a node of these addresses is reached, by name, and why: those that an address of its or the default
/// route is on, and all that these are made of.
pub fn own_links(links: &[Link], addresses: &[IpAddr]) -> BTreeMap<String, String> {
    let mut own = BTreeMap::new();
    for top in links.iter().filter(|link| !link.loopback) {
        let what = match top.addresses.iter().find(|address| addresses.contains(address)) {
            Some(address) => format!("the address {address} of this node is on"),
            None if top.default_route => "the default route of this node goes over".to_owned(),
            None => continue,
        };
        own.insert(top.name.clone(), format!("{what} it"));
        let mut carriers = vec![top];
        while let Some(link) = carriers.pop() {
            let parts = links.iter().filter(|part| {
                (link.below == Some(part.index) || part.controller == Some(link.index)) && !part.is_tap()
            });
            for part in parts.filter(|part| !own.contains_key(&part.name)).collect::<Vec<_>>() {
                own.insert(part.name.clone(), format!("{what} {}, which it carries", top.name));
                carriers.push(part);
            }
        }
    }
    own
}

/// What a LinkMonitor shows of a node: in order of their numbers, and never the loopback.
pub fn shown(monitor: &LinkMonitorSpec, links: &[Link]) -> Vec<LinkStatus> {
    let Some(picks) = monitor.target_link_rule.picks() else { return Vec::new() };
    let picked = links.iter().filter(|link| !link.loopback && picks.pick(&link.kind, &link.name));
    let mut shown: Vec<LinkStatus> = picked.map(Link::shown).collect();
    shown.sort_by_key(|link| link.index);
    shown
}

#[cfg(test)]
mod tests {
    use sheaf_resources::kinds::link_monitor::TargetLinkRule;

    use super::*;

    fn link(index: u32, name: &str, kind: &str) -> Link {
        Link {
            index,
            name: name.into(),
            kind: kind.into(),
            mac: "02:00:00:00:00:01".into(),
            ..Link::default()
        }
    }

    #[test]
    fn a_node_is_reached_by_what_its_address_or_its_default_route_is_on_and_by_all_below() {
        let address: IpAddr = "192.0.2.1".parse().unwrap();
        let links = [
            Link { loopback: true, addresses: vec![address], ..link(1, "lo", "device") },
            Link { addresses: vec!["10.0.0.1".parse().unwrap()], ..link(2, "eth0", "device") },
            Link { controller: Some(5), ..link(3, "eth1", "device") },
            Link { controller: Some(5), ..link(4, "eth2", "device") },
            Link { ..link(5, "bond0", "bond") },
            Link { below: Some(5), addresses: vec![address], ..link(6, "bond0.7", "vlan") },
            Link { default_route: true, ..link(7, "br0", "bridge") },
            Link { controller: Some(7), ..link(8, "eth3", "device") },
            Link { controller: Some(7), ..link(9, "vmnic", "tun") },
            link(10, "eth4", "device"),
        ];
        let own = own_links(&links, &[address]);
        assert_eq!(own.keys().collect::<Vec<_>>(), ["bond0", "bond0.7", "br0", "eth1", "eth2", "eth3"]);
        assert_eq!(own["bond0.7"], "the address 192.0.2.1 of this node is on it");
        assert_eq!(own["eth1"], "the address 192.0.2.1 of this node is on bond0.7, which it carries");
        assert_eq!(own["eth3"], "the default route of this node goes over br0, which it carries");
        assert_eq!(own_links(&links, &[]).keys().collect::<Vec<_>>(), ["br0", "eth3"]);
    }

    #[test]
    fn what_a_rule_picks_is_shown_in_order_and_the_loopback_never() {
        let mut links = vec![link(3, "eth1", "device"), link(2, "eth0", "device"), link(4, "br0", "bridge")];
        links.push(Link { loopback: true, ..link(1, "lo", "device") });
        links[0].controller = Some(4);
        links[0].running = true;
        let monitor = |type_rule: &str| LinkMonitorSpec {
            target_link_rule: TargetLinkRule { type_rule: type_rule.into(), ..TargetLinkRule::default() },
            ..LinkMonitorSpec::default()
        };
        let devices = shown(&monitor("device"), &links);
        let told: Vec<_> =
            devices.iter().map(|link| (link.name.as_str(), link.state.as_str(), link.master_index)).collect();
        assert_eq!(told, [("eth0", "down", 0), ("eth1", "up", 4)]);
        assert_eq!(shown(&monitor(""), &links).len(), 3);
        assert_eq!(shown(&monitor("("), &links), [], "what cannot be read picks nothing");
    }
}
