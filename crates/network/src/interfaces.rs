//! The network interfaces of this host as they are, and the moment at which one changes.
//!
//! Only looks. The loopback is among what is found; so is what others made.

use std::{collections::BTreeMap, io, net::IpAddr};

use futures::{StreamExt as _, channel::mpsc::UnboundedReceiver};
use rtnetlink::{
    MulticastGroup,
    packet_core::NetlinkMessage,
    packet_route::{
        RouteNetlinkMessage,
        address::{AddressAttribute, AddressMessage, AddressScope},
        link::{
            BondMode, InfoBond, InfoBridge, InfoData, InfoKind, LinkAttribute, LinkFlags, LinkInfo,
            LinkLayerType, LinkMessage, State,
        },
    },
    sys::SocketAddr,
};
use tokio::task::JoinHandle;

use crate::{
    addresses::Mac,
    links::{LinkError, Links},
};

/// What an interface is called that no software made.
const DEVICE: &str = "device";
/// What is made on top of another interface of the same host.
const STACKED: [&str; 5] = ["vlan", "macvlan", "macvtap", "ipvlan", "ipvtap"];

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    pub index: u32,
    pub name: String,
    /// `device`, or what software made it, as `ip -d link` says it.
    pub kind: String,
    pub mac: Option<Mac>,
    pub mtu: u32,
    /// Whether somebody switched it on.
    pub on: bool,
    /// Whether frames pass.
    pub running: bool,
    pub promiscuous: bool,
    pub loopback: bool,
    /// The bridge or bond it is a port of.
    pub controller: Option<u32>,
    /// The interface it is made on top of.
    pub below: Option<u32>,
    /// Those that are valid beyond its own link.
    pub addresses: Vec<IpAddr>,
    /// Whether what has no other route leaves by it.
    pub default_route: bool,
    /// Of a bridge: whether it tells VLANs apart; none where the kernel cannot.
    pub vlan_filtering: Option<bool>,
    /// Of a bond: its mode as the kernel writes it, and how often it looks for carriers in milliseconds.
    pub bond: Option<(String, u32)>,
}

/// All of them, in order of their numbers.
pub async fn look() -> Result<Vec<Interface>, LinkError> {
    let links = Links::open()?;
    let mut addresses: BTreeMap<u32, Vec<IpAddr>> = BTreeMap::new();
    for message in links.address_messages().await? {
        if let Some(address) = reachable(&message) {
            addresses.entry(message.header.index).or_default().push(address);
        }
    }
    let ways_out = links.default_route_indexes().await?;
    let mut found: Vec<Interface> = links.messages().await?.into_iter().map(read).collect();
    for interface in &mut found {
        interface.default_route = ways_out.contains(&interface.index);
        interface.addresses = addresses.remove(&interface.index).unwrap_or_default();
    }
    found.sort_by_key(|interface| interface.index);
    Ok(found)
}

/// An address by which others reach this host.
fn reachable(message: &AddressMessage) -> Option<IpAddr> {
    let of = |wanted: fn(&AddressAttribute) -> Option<IpAddr>| message.attributes.iter().find_map(wanted);
    let local = of(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    // IPv6 has no address of its own beside the one of the network.
    let address = local.or_else(|| {
        of(|attribute| match attribute {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        })
    });
    address.filter(|address| match message.header.scope {
        AddressScope::Host => false,
        // Every interface gives itself such an address of IPv6; one of IPv4 was given by somebody.
        AddressScope::Link => address.is_ipv4(),
        _ => true,
    })
}

fn read(message: LinkMessage) -> Interface {
    let mut found = Interface {
        index: message.header.index,
        kind: DEVICE.to_owned(),
        on: message.header.flags.contains(LinkFlags::Up),
        loopback: message.header.link_layer_type == LinkLayerType::Loopback,
        ..Interface::default()
    };
    let mut below = None;
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => found.name = name,
            LinkAttribute::Address(octets) => found.mac = octets.try_into().ok().map(Mac),
            LinkAttribute::Mtu(mtu) => found.mtu = mtu,
            LinkAttribute::Controller(index) => found.controller = Some(index),
            LinkAttribute::Link(index) => below = Some(index),
            LinkAttribute::Promiscuity(count) => found.promiscuous = count != 0,
            LinkAttribute::OperState(state) => found.running = state == State::Up,
            LinkAttribute::LinkInfo(infos) => infos.into_iter().for_each(|info| read_info(&mut found, info)),
            _ => (),
        }
    }
    // Others have the number of a peer there, which may be in another namespace.
    found.below = below.filter(|_| STACKED.contains(&found.kind.as_str()));
    found
}

fn read_info(found: &mut Interface, info: LinkInfo) {
    match info {
        LinkInfo::Kind(InfoKind::Other(kind)) => found.kind = kind,
        LinkInfo::Kind(kind) => found.kind = kind.to_string(),
        LinkInfo::Data(InfoData::Bridge(said)) => {
            found.vlan_filtering = said.into_iter().find_map(|said| match said {
                InfoBridge::VlanFiltering(filtering) => Some(filtering),
                _ => None,
            });
        }
        LinkInfo::Data(InfoData::Bond(said)) => {
            let (mut mode, mut miimon) = (String::new(), 0);
            for said in said {
                match said {
                    InfoBond::Mode(found) => mode = mode_name(found).to_owned(),
                    InfoBond::MiiMon(found) => miimon = found,
                    _ => (),
                }
            }
            found.bond = Some((mode, miimon));
        }
        _ => (),
    }
}

fn mode_name(mode: BondMode) -> &'static str {
    match mode {
        BondMode::BalanceRr => "balance-rr",
        BondMode::ActiveBackup => "active-backup",
        BondMode::BalanceXor => "balance-xor",
        BondMode::Broadcast => "broadcast",
        BondMode::Ieee8023Ad => "802.3ad",
        BondMode::BalanceTlb => "balance-tlb",
        BondMode::BalanceAlb => "balance-alb",
        _ => "",
    }
}

/// Tells when an interface came, went or changed, from the moment it is made.
pub struct Changes {
    told: UnboundedReceiver<(NetlinkMessage<RouteNetlinkMessage>, SocketAddr)>,
    connection: JoinHandle<()>,
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Changes {
    /// Of the network namespace of the thread that calls.
    pub fn follow() -> Result<Changes, LinkError> {
        let unreachable = |source: io::Error| LinkError::Unreachable { source };
        let groups = [MulticastGroup::Link, MulticastGroup::Ipv4Ifaddr, MulticastGroup::Ipv6Ifaddr];
        let (connection, _, told) = rtnetlink::new_multicast_connection(&groups).map_err(unreachable)?;
        Ok(Changes { told, connection: tokio::spawn(connection) })
    }

    /// Waits for the next change; what is told together is one. False when the kernel tells nothing any more.
    pub async fn next(&mut self) -> bool {
        if self.told.next().await.is_none() {
            return false;
        }
        while self.told.try_recv().is_ok() {}
        true
    }
}
