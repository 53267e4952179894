//! The bridge of a segment: made, kept as it should be, removed.
//!
//! A bridge is ours if its MAC says so (it is set in the same call that makes the
//! bridge, so there is no moment at which it is not). A bridge of that name which is
//! not ours is refused and never touched: it may be the one that carries the host's own
//! network.

use std::net::Ipv4Addr;

use rtnetlink::{LinkBridge, LinkUnspec, packet_route::link::BridgeStpState};

use crate::{
    addresses::{self, OUR_BRIDGES},
    config::NetworkConfig,
    forwarding::{self, SysctlError},
    links::{Kind, Link, LinkError, Links},
    names::InterfaceName,
    step::{AfterStep, Step},
};

#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    #[error("there is already an interface {name}, and Sheaf did not make it; give the bridge another name")]
    NotOurs { name: String },
    #[error("the bridge {name} went away while it was being set up")]
    Vanished { name: String },
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
}

/// Brings the bridge into shape, whatever shape it is in; its index.
pub(crate) async fn ensure(
    links: &Links,
    config: &NetworkConfig,
    after: &AfterStep,
) -> Result<u32, BridgeError> {
    let name = &config.names.bridge;
    let mac = addresses::gateway_mac(config.gateway);
    let mtu = u32::from(config.mtu);
    if find(links, name).await?.is_none() {
        // No spanning tree and no delay: a guest's port carries frames at once. No
        // multicast snooping: without a querier on the segment it only loses frames.
        let message = LinkBridge::new(name.as_str())
            .address(mac.0.to_vec())
            .mtu(mtu)
            .stp_state(BridgeStpState::Disabled)
            .forward_delay(0)
            .mcast_snooping(false)
            .build();
        links.add(name.as_str(), message).await?;
        after.took(Step::CreateBridge);
    }
    let vanished = || BridgeError::Vanished { name: name.to_string() };
    let bridge = find(links, name).await?.ok_or_else(vanished)?;
    if forwarding::silence_ipv6(name)? {
        after.took(Step::SilenceBridge);
    }
    if bridge.mac != Some(mac) || bridge.mtu != mtu {
        let message = LinkUnspec::new_with_index(bridge.index).address(mac.0.to_vec()).mtu(mtu).build();
        links.change(name.as_str(), message).await?;
        after.took(Step::MendBridge);
    }
    ensure_address(links, &bridge, config.gateway, config.cidr.prefix_len(), after).await?;
    if !bridge.up {
        links.change(name.as_str(), LinkUnspec::new_with_index(bridge.index).up().build()).await?;
        after.took(Step::RaiseBridge);
    }
    Ok(bridge.index)
}

/// Removes the bridge, if it is there and ours.
pub(crate) async fn remove(
    links: &Links,
    name: &InterfaceName,
    after: &AfterStep,
) -> Result<(), BridgeError> {
    if let Some(bridge) = find(links, name).await? {
        links.remove(&bridge).await?;
        after.took(Step::RemoveBridge);
    }
    Ok(())
}

/// Our bridge of this name, if there is one.
pub(crate) async fn find(links: &Links, name: &InterfaceName) -> Result<Option<Link>, BridgeError> {
    let Some(link) = links.find(name.as_str()).await? else { return Ok(None) };
    let is_ours = link.kind == Kind::Bridge && link.mac.is_some_and(|mac| mac.0.starts_with(&OUR_BRIDGES));
    if is_ours { Ok(Some(link)) } else { Err(BridgeError::NotOurs { name: name.to_string() }) }
}

/// Leaves the bridge with the gateway's address and no other: one from before a change
/// of the network would draw guests' traffic to the wrong place.
async fn ensure_address(
    links: &Links,
    bridge: &Link,
    gateway: Ipv4Addr,
    prefix: u8,
    after: &AfterStep,
) -> Result<(), LinkError> {
    let wanted = |address: &Ipv4Addr, found_prefix: &u8| (*address, *found_prefix) == (gateway, prefix);
    for (address, found_prefix, message) in links.addresses(bridge).await? {
        if !wanted(&address, &found_prefix) {
            links.remove_address(bridge, message).await?;
            after.took(Step::RemoveAddress);
        }
    }
    // Asked again, because the kernel takes addresses of one network away together.
    let left = links.addresses(bridge).await?;
    if !left.iter().any(|(address, found_prefix, _)| wanted(address, found_prefix)) {
        links.add_address(bridge, gateway, prefix).await?;
        after.took(Step::AddAddress);
    }
    Ok(())
}
