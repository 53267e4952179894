//! The addresses of load balancers on this host: on a bridge of ours that has no ports and carries nothing.
//!
//! The kernel answers for an address of any interface on all of them, so where it is does not matter to anybody outside.
//! To us it does: whatever is on that bridge is a load balancer's, whoever put it there.

use std::{collections::BTreeSet, net::Ipv4Addr};

use rtnetlink::{LinkBridge, LinkUnspec, packet_route::link::BridgeStpState};

use super::{Balanced, BalancingError};
use crate::{
    addresses,
    bridge::{self, BridgeError},
    config::NetworkConfig,
    forwarding,
    links::Links,
    step::{AfterStep, Step},
};

/// Each address is alone: nobody else is on a network of this bridge.
const ALONE: u8 = 32;

/// What is held, as the host says.
pub(crate) async fn held(
    links: &Links,
    config: &NetworkConfig,
) -> Result<BTreeSet<Ipv4Addr>, BalancingError> {
    let Some(holder) = bridge::find(links, &config.names.holder).await? else { return Ok(BTreeSet::new()) };
    Ok(links.addresses(&holder).await?.into_iter().map(|(address, _, _)| address).collect())
}

pub(crate) async fn is_there(links: &Links, config: &NetworkConfig) -> Result<bool, BalancingError> {
    Ok(bridge::find(links, &config.names.holder).await?.is_some())
}

/// Holds an address; whether it was not held before.
pub(crate) async fn hold(
    links: &Links,
    config: &NetworkConfig,
    address: Ipv4Addr,
    after: &AfterStep,
) -> Result<bool, BalancingError> {
    let name = &config.names.holder;
    if bridge::find(links, name).await?.is_none() {
        let message = LinkBridge::new(name.as_str())
            .address(addresses::HOLDER_MAC.0.to_vec())
            .stp_state(BridgeStpState::Disabled)
            .build();
        links.add(name.as_str(), message).await?;
        after.took(Step::CreateHolder);
    }
    let vanished = || BridgeError::Vanished { name: name.to_string() };
    let holder = bridge::find(links, name).await?.ok_or_else(vanished)?;
    forwarding::silence_ipv6(name).map_err(BridgeError::from)?;
    if !holder.up {
        links.change(name.as_str(), LinkUnspec::new_with_index(holder.index).up().build()).await?;
        after.took(Step::RaiseHolder);
    }
    if links.addresses(&holder).await?.iter().any(|(one, _, _)| *one == address) {
        return Ok(false);
    }
    links.add_address(&holder, address, ALONE).await?;
    after.took(Step::HoldAddress);
    Ok(true)
}

/// Lets go of all but these.
pub(crate) async fn let_go(
    links: &Links,
    config: &NetworkConfig,
    wanted: &[Balanced],
    after: &AfterStep,
) -> Result<(), BalancingError> {
    let Some(holder) = bridge::find(links, &config.names.holder).await? else { return Ok(()) };
    for (address, _, message) in links.addresses(&holder).await? {
        if !wanted.iter().any(|one| one.address == address) {
            links.remove_address(&holder, message).await?;
            after.took(Step::LetGoOfAddress);
        }
    }
    Ok(())
}

pub(crate) async fn remove(
    links: &Links,
    config: &NetworkConfig,
    after: &AfterStep,
) -> Result<(), BalancingError> {
    if let Some(holder) = bridge::find(links, &config.names.holder).await? {
        links.remove(&holder).await?;
        after.took(Step::RemoveHolder);
    }
    Ok(())
}
