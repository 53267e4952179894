//! The bridges of cluster networks and the NICs in them: the single things done to a host.
//!
//! What to do, and in which order, is decided elsewhere; here each call is small, and doing it twice does no harm. A bridge
//! is ours if its MAC is the one that this instance gives the bridge of that cluster network: it is set in the call that
//! makes the bridge, so there is no moment at which it is not. A bond is ours if it is a port of such a bridge, which it is
//! from the call that makes it.
//!
//! What survives a crash: all of it, in the kernel, to be found by [`crate::interfaces::look`].

use rtnetlink::{
    LinkBond, LinkBridge, LinkMessageBuilder, LinkUnspec,
    packet_route::link::{BondMode, BridgeStpState, LinkMessage},
};
use sha2::{Digest as _, Sha256};

use crate::{
    addresses::{Mac, OUR_UPLINKS},
    forwarding::{self, SysctlError},
    interfaces::{self, Interface},
    links::{LinkError, Links},
    names::{InterfaceName, NameError, NetworkNames, digest},
};

const BRIDGE: &str = "-br";
const BOND: &str = "-bo";

#[derive(Debug, thiserror::Error)]
pub enum UplinkError {
    #[error("{mode:?} is not a way to put NICs together")]
    NoSuchMode { mode: String },
    #[error(transparent)]
    Name(#[from] NameError),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
}

/// What the kernel can do that not every kernel can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelAbilities {
    pub bonding: bool,
    pub vlan_filtering: bool,
}

/// A bond to be made.
#[derive(Clone, Debug)]
pub struct BondOptions<'a> {
    pub name: &'a str,
    /// The bridge it is a port of.
    pub bridge: u32,
    pub mtu: u32,
    pub mode: &'a str,
    pub miimon: Option<u32>,
    pub tx_queue_len: Option<u32>,
}

/// The uplinks of one instance of Sheaf on this host.
#[derive(Clone, Debug)]
pub struct Uplinks {
    instance: String,
}

impl Uplinks {
    pub fn of(names: &NetworkNames) -> Uplinks {
        Uplinks { instance: names.bridge.to_string() }
    }

    /// The cluster network whose bridge this is, if this instance made it.
    pub fn made_for<'a>(&self, found: &'a Interface) -> Option<&'a str> {
        let cluster_network = found.name.strip_suffix(BRIDGE)?;
        let is_ours = found.kind == "bridge" && found.mac == Some(self.mark(&found.name));
        is_ours.then_some(cluster_network)
    }

    /// The MAC that says so.
    fn mark(&self, bridge: &str) -> Mac {
        let sum = Sha256::digest(format!("{}\n{bridge}", self.instance));
        Mac([OUR_UPLINKS[0], OUR_UPLINKS[1], sum[0], sum[1], sum[2], sum[3]])
    }

    /// Finds out by trying, on interfaces that are gone when this answers.
    pub async fn probe(&self) -> Result<KernelAbilities, UplinkError> {
        let links = Links::open()?;
        let name = |what: &str| format!("{what}{}", digest(&[&self.instance, "probe"], 8));
        let (bond, bridge) = (name("shbo-"), name("shbr-"));
        for left in [&bond, &bridge] {
            remove_by_name(&links, left).await?;
        }
        let bonding = match links.add(&bond, LinkBond::new(&bond).build()).await {
            Ok(()) => true,
            Err(why) if why.is_unsupported() => false,
            Err(why) => return Err(why.into()),
        };
        remove_by_name(&links, &bond).await?;
        let filters = match links.add(&bridge, LinkBridge::new(&bridge).vlan_filtering(true).build()).await {
            Ok(()) => true,
            Err(why) if why.is_unsupported() => false,
            Err(why) => return Err(why.into()),
        };
        // Some kernels take it without a word, and without doing it.
        let found = interfaces::look().await?.into_iter().find(|found| found.name == bridge);
        remove_by_name(&links, &bridge).await?;
        let vlan_filtering = filters && found.is_some_and(|found| found.vlan_filtering == Some(true));
        Ok(KernelAbilities { bonding, vlan_filtering })
    }

    pub async fn make_bridge(&self, name: &str, mtu: u32, vlan_filtering: bool) -> Result<(), UplinkError> {
        let name = InterfaceName::new(name)?;
        // As with the bridge of guests: no spanning tree, no delay, no snooping without a querier.
        // Switched off, which it would not be by itself: it is silenced before frames pass.
        let mut message = LinkBridge::new(name.as_str())
            .down()
            .address(self.mark(name.as_str()).0.to_vec())
            .mtu(mtu)
            .stp_state(BridgeStpState::Disabled)
            .forward_delay(0)
            .mcast_snooping(false);
        if vlan_filtering {
            message = message.vlan_filtering(true);
        }
        Links::open()?.add(name.as_str(), message.build()).await?;
        Ok(())
    }

    pub async fn make_bond(&self, wanted: &BondOptions<'_>) -> Result<(), UplinkError> {
        let name = InterfaceName::new(wanted.name)?;
        let mode =
            mode_of(wanted.mode).ok_or_else(|| UplinkError::NoSuchMode { mode: wanted.mode.to_owned() })?;
        let mut message =
            LinkBond::new(name.as_str()).down().mode(mode).controller(wanted.bridge).mtu(wanted.mtu);
        if let Some(miimon) = wanted.miimon {
            message = message.miimon(miimon);
        }
        if let Some(length) = wanted.tx_queue_len {
            message = message.txqueuelen(length);
        }
        Links::open()?.add(name.as_str(), message.build()).await?;
        Ok(())
    }

    /// Makes a NIC a port of a bridge or a bond. It is switched off meanwhile, since a bond takes no other, and is on
    /// again when this answers, however it went.
    pub async fn attach(&self, index: u32, name: &str, to: u32, mtu: u32) -> Result<(), UplinkError> {
        let links = Links::open()?;
        links.change(name, of(index).down().build()).await?;
        let attached = links.change(name, of(index).mtu(mtu).controller(to).build()).await;
        let raised = links.change(name, of(index).up().build()).await;
        attached?;
        Ok(raised?)
    }

    /// Takes a port off whatever it is a port of.
    pub async fn detach(&self, index: u32, name: &str) -> Result<(), UplinkError> {
        let links = Links::open()?;
        links.change(name, of(index).nocontroller().build()).await?;
        Ok(links.change(name, of(index).up().build()).await?)
    }

    pub async fn set_mtu(&self, index: u32, name: &str, mtu: u32) -> Result<(), UplinkError> {
        change(index, name, |message| message.mtu(mtu)).await
    }

    pub async fn switch_on(&self, index: u32, name: &str) -> Result<(), UplinkError> {
        // The host itself is not on that network, and takes no address that somebody there advertises.
        if name.ends_with(BRIDGE) || name.ends_with(BOND) {
            forwarding::silence_ipv6(&InterfaceName::new(name)?)?;
        }
        change(index, name, LinkMessageBuilder::up).await
    }

    /// Removes a bridge or a bond; one that is gone is as good.
    pub async fn remove(&self, index: u32, name: &str) -> Result<(), UplinkError> {
        Ok(Links::open()?.remove_by_index(index, name).await?)
    }
}

fn of(index: u32) -> LinkMessageBuilder<LinkUnspec> {
    LinkUnspec::new_with_index(index)
}

async fn change(
    index: u32,
    name: &str,
    what: impl FnOnce(LinkMessageBuilder<LinkUnspec>) -> LinkMessageBuilder<LinkUnspec>,
) -> Result<(), UplinkError> {
    let message: LinkMessage = what(of(index)).build();
    Ok(Links::open()?.change(name, message).await?)
}

async fn remove_by_name(links: &Links, name: &str) -> Result<(), LinkError> {
    match links.find(name).await? {
        Some(link) => links.remove(&link).await,
        None => Ok(()),
    }
}

fn mode_of(name: &str) -> Option<BondMode> {
    Some(match name {
        "balance-rr" => BondMode::BalanceRr,
        "active-backup" => BondMode::ActiveBackup,
        "balance-xor" => BondMode::BalanceXor,
        "broadcast" => BondMode::Broadcast,
        "802.3ad" => BondMode::Ieee8023Ad,
        "balance-tlb" => BondMode::BalanceTlb,
        "balance-alb" => BondMode::BalanceAlb,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bridge_is_ours_by_its_name_its_kind_and_all_of_its_mac() {
        let (ours, others) =
            (Uplinks::of(&NetworkNames::plain()), Uplinks::of(&NetworkNames::of_instance("/x")));
        let bridge = Interface {
            name: "lab-br".into(),
            kind: "bridge".into(),
            mac: Some(ours.mark("lab-br")),
            ..Interface::default()
        };
        assert_eq!(ours.made_for(&bridge), Some("lab"));
        assert_eq!(others.made_for(&bridge), None, "another instance in the same namespace");
        assert_eq!(ours.made_for(&Interface { kind: "veth".into(), ..bridge.clone() }), None);
        assert_eq!(ours.made_for(&Interface { name: "lob-br".into(), ..bridge.clone() }), None);
        assert_eq!(ours.made_for(&Interface { mac: None, ..bridge }), None);
        assert!(ours.mark("lab-br").is_unicast());
    }
}
