//! Load balancers on this host: addresses that it holds, and rules that lead from them to guests.
//!
//! ```text
//!    client --- address:port ---> host --- one of the guests' addresses:port ---> guest
//!                                   | connections that come from guests or the host itself go on as the gateway's,
//!                                   | so that answers come back this way; all others keep their client's address
//! ```
//!
//! The addresses are on a bridge without ports, so that all that is on it is ours by construction: what an earlier
//! process left is found there and removed. Rules are in a table of their own, rendered whole and swapped at once. They stay
//! when the process ends, and connections with them.
//!
//! What is swapped out is also forgotten by the kernel's connection tracking: a client that goes on sending from one port,
//! as many do over UDP, would otherwise be led for ever to a guest that is not there any more, or to whoever has its
//! address next.

pub(crate) mod announcing;
pub(crate) mod connections;
pub(crate) mod holding;
pub mod rules;

use std::{collections::BTreeMap, net::Ipv4Addr};

use crate::{
    balancing::connections::ConnectionError,
    bridge::BridgeError,
    config::NetworkConfig,
    links::{LinkError, Links},
    nft::{self, NftError},
    step::{AfterStep, Step},
};

/// One address and where it leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balanced {
    pub address: Ipv4Addr,
    pub listeners: Vec<Listener>,
    /// The guests that get connections, each in turn.
    pub guests: Vec<Ipv4Addr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listener {
    pub protocol: Protocol,
    pub port: u16,
    pub guest_port: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        }
    }

    pub(crate) fn number(self) -> u8 {
        match self {
            Protocol::Tcp => 6,
            Protocol::Udp => 17,
        }
    }
}

/// How an address can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// An interface is on a network of it, where the host answers for it.
    Network,
    /// Only by who has a route to the host.
    Route,
}

#[derive(Debug, thiserror::Error)]
pub enum BalancingError {
    #[error(transparent)]
    Bridge(#[from] BridgeError),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Rules(#[from] NftError),
    #[error(transparent)]
    Connections(#[from] ConnectionError),
}

/// Has the host balance these and nothing else; how each can be reached. Every step is idempotent and looks first.
pub(crate) async fn set(
    config: &NetworkConfig,
    wanted: &[Balanced],
    after: &AfterStep,
) -> Result<BTreeMap<Ipv4Addr, Reach>, BalancingError> {
    let links = Links::open()?;
    let held = holding::held(&links, config).await?;
    let table = &config.names.balancing;
    let is_bare = held.is_empty() && !holding::is_there(&links, config).await?;
    if wanted.is_empty() && is_bare && !nft::has_inet(table).await? {
        return Ok(BTreeMap::new());
    }
    // First nothing leads where it should not, then nothing goes on that did, then addresses go, then they come.
    nft::apply(&rules::render(config, wanted)).await?;
    after.took(Step::SwapBalancing);
    let ours = held.iter().copied().chain(wanted.iter().map(|one| one.address)).collect();
    connections::forget(ours, wanted.to_vec()).await?;
    after.took(Step::ForgetConnections);
    holding::let_go(&links, config, wanted, after).await?;
    if wanted.is_empty() {
        holding::remove(&links, config, after).await?;
    }
    let mut reach = BTreeMap::new();
    for one in wanted {
        let is_new = holding::hold(&links, config, one.address, after).await?;
        let found = announcing::interface_of(&links, config, one.address).await?;
        if let (Some(interface), true) = (&found, is_new) {
            announcing::announce(&links, interface, one.address).await;
        }
        reach.insert(one.address, if found.is_some() { Reach::Network } else { Reach::Route });
    }
    Ok(reach)
}

/// Takes all of it off the host.
pub(crate) async fn remove(config: &NetworkConfig, after: &AfterStep) -> Result<(), BalancingError> {
    set(config, &[], after).await.map(drop)
}
