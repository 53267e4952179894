//! One NIC of one machine, as the network sees it, and which NICs can be.
//!
//! A port that cannot be (an address outside the network, a MAC that another has) is
//! refused by itself, with a reason for its machine's status. It never takes the other
//! ports of the host down with it.

use std::{collections::BTreeSet, fmt, net::Ipv4Addr};

use crate::{
    addresses::{self, Mac, is_hostname},
    config::NetworkConfig,
    segment,
};

/// Whose NIC. The machine is named by whatever the caller knows it by for its whole
/// life; a tap carries it, so that it can be read off the host after a crash.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NicId {
    pub machine: String,
    pub nic: u16,
}

impl fmt::Display for NicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NIC {} of machine {}", self.nic, self.machine)
    }
}

/// One NIC that should be on the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    pub id: NicId,
    pub mac: Mac,
    /// The addresses the guest may use. DHCP offers the first. With none it may only
    /// ask for one, and is not answered.
    pub addresses: Vec<Ipv4Addr>,
    /// What DHCP tells the guest its name is.
    pub hostname: Option<String>,
    /// The network it is on: the bridge's name or another name of it.
    pub bridge: String,
    /// The user its machine runs as.
    pub owner_uid: u32,
}

/// A port that was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedPort {
    pub id: NicId,
    pub why: WhyRefused,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WhyRefused {
    #[error(
        "{machine:?} cannot be the name of a machine here: 1 to 200 printable ASCII characters, no spaces"
    )]
    UnusableName { machine: String },
    #[error("there is no network called {bridge:?} on this host")]
    NoSuchNetwork { bridge: String },
    #[error("the MAC {mac} is not one a NIC can have")]
    UnusableMac { mac: Mac },
    #[error("the MAC {mac} is already that of another NIC on this host")]
    MacTaken { mac: Mac },
    #[error("the address {address} is not one a guest on this network can have")]
    UnusableAddress { address: Ipv4Addr },
    #[error("the address {address} is already that of another NIC on this host")]
    AddressTaken { address: Ipv4Addr },
    #[error("{hostname:?} is not a host name")]
    UnusableHostname { hostname: String },
    #[error("this NIC was named twice")]
    NamedTwice,
}

/// Takes the ports that can be and says why the others cannot. The first to claim a MAC
/// or an address has it.
pub(crate) fn admit(config: &NetworkConfig, ports: &[Port]) -> (Vec<Port>, Vec<RefusedPort>) {
    let mut admitted = Vec::new();
    let mut refused = Vec::new();
    let (mut ids, mut macs, mut addresses) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for port in ports {
        let verdict = can_be(config, port).and_then(|()| {
            if ids.contains(&port.id) {
                return Err(WhyRefused::NamedTwice);
            }
            if macs.contains(&port.mac) {
                return Err(WhyRefused::MacTaken { mac: port.mac });
            }
            match port.addresses.iter().find(|address| addresses.contains(*address)) {
                Some(&address) => Err(WhyRefused::AddressTaken { address }),
                None => Ok(()),
            }
        });
        match verdict {
            Ok(()) => {
                ids.insert(port.id.clone());
                macs.insert(port.mac);
                addresses.extend(port.addresses.iter().copied());
                admitted.push(port.clone());
            }
            Err(why) => refused.push(RefusedPort { id: port.id.clone(), why }),
        }
    }
    (admitted, refused)
}

/// Whether a port can be, looked at alone.
pub(crate) fn can_be(config: &NetworkConfig, port: &Port) -> Result<(), WhyRefused> {
    let machine = &port.id.machine;
    // The kernel keeps 255 characters of a label; see `tap`.
    if !(1..=200).contains(&machine.len()) || !machine.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(WhyRefused::UnusableName { machine: machine.clone() });
    }
    if segment::bridge_of(config, &port.bridge).is_none() {
        return Err(WhyRefused::NoSuchNetwork { bridge: port.bridge.clone() });
    }
    if !port.mac.is_unicast() || port.mac == addresses::gateway_mac(config.gateway) {
        return Err(WhyRefused::UnusableMac { mac: port.mac });
    }
    let unusable = |address: &&Ipv4Addr| !addresses::is_assignable(config.cidr, config.gateway, **address);
    if let Some(&address) = port.addresses.iter().find(unusable) {
        return Err(WhyRefused::UnusableAddress { address });
    }
    match &port.hostname {
        Some(hostname) if !is_hostname(hostname) => {
            Err(WhyRefused::UnusableHostname { hostname: hostname.clone() })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::NetworkNames;

    fn config() -> NetworkConfig {
        NetworkConfig::new(NetworkNames::plain(), "10.52.0.0/16".parse().unwrap()).unwrap()
    }

    fn port(number: u8) -> Port {
        Port {
            id: NicId { machine: format!("default/vm-{number}"), nic: 0 },
            mac: Mac([2, 0, 0, 0, 0, number]),
            addresses: vec![Ipv4Addr::new(10, 52, 0, number)],
            hostname: Some(format!("vm-{number}")),
            bridge: "mgmt-br".to_owned(),
            owner_uid: 1000,
        }
    }

    fn why(change: impl Fn(&mut Port)) -> Option<WhyRefused> {
        let mut bad = port(9);
        change(&mut bad);
        let (admitted, refused) = admit(&config(), &[port(2), bad, port(3)]);
        assert!(admitted.contains(&port(2)) && admitted.contains(&port(3)), "the others go on");
        refused.into_iter().next().map(|refused| refused.why)
    }

    #[test]
    fn a_port_that_cannot_be_is_refused_alone() {
        assert_eq!(why(|_| ()), None);
        let outside = Ipv4Addr::new(10, 53, 0, 9);
        assert_eq!(
            why(|port| port.addresses.push(outside)),
            Some(WhyRefused::UnusableAddress { address: outside })
        );
        let gateway = config().gateway;
        assert_eq!(
            why(|port| port.addresses = vec![gateway]),
            Some(WhyRefused::UnusableAddress { address: gateway })
        );
        let mac = addresses::gateway_mac(gateway);
        assert_eq!(why(|port| port.mac = mac), Some(WhyRefused::UnusableMac { mac }));
        let mac = Mac([0xff; 6]);
        assert_eq!(why(|port| port.mac = mac), Some(WhyRefused::UnusableMac { mac }));
        assert!(matches!(why(|port| port.bridge = "br0".to_owned()), Some(WhyRefused::NoSuchNetwork { .. })));
        assert!(matches!(
            why(|port| port.hostname = Some("a b".to_owned())),
            Some(WhyRefused::UnusableHostname { .. })
        ));
        assert!(matches!(
            why(|port| port.id.machine = "a b".to_owned()),
            Some(WhyRefused::UnusableName { .. })
        ));
    }

    #[test]
    fn the_first_to_claim_a_mac_or_an_address_keeps_it() {
        let (two, mac) = (port(2).addresses[0], port(2).mac);
        assert_eq!(why(|port| port.mac = mac), Some(WhyRefused::MacTaken { mac }));
        assert_eq!(why(|port| port.addresses = vec![two]), Some(WhyRefused::AddressTaken { address: two }));
        assert_eq!(why(|bad| bad.id = port(2).id), Some(WhyRefused::NamedTwice));
    }
}
