//! A network interface of a node as it was seen, in the planner's words.

use std::net::IpAddr;

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
