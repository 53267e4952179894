//! Tells the neighbours of an address that this host has it now.
//!
//! A question of who has another address, asked by the address that is new here: everybody on the network hears it, and
//! whoever remembers the asker remembers its hardware address from it, as do switches. The kernel asks it by itself when
//! something is to be sent to a neighbour that it does not know. Nobody depends on it: who has no memory of an address asks
//! for it, and the host answers.

use std::{
    io,
    net::{Ipv4Addr, SocketAddrV4},
};

use ipnet::Ipv4Net;
use socket2::{Domain, Socket, Type};

use crate::{
    config::NetworkConfig,
    links::{Link, LinkError, Links},
};

/// Whoever has it by chance gets one empty datagram at the port for what nobody wants.
const DISCARD: u16 = 9;
/// How many neighbours are looked at to find one that is not known.
const NEIGHBOURS: u32 = 64;

/// An interface on a network of some address.
pub(crate) struct Announced {
    pub link: Link,
    pub network: Ipv4Net,
}

/// The interface whose network an address is of; the smallest where there are several. The segment of the guests is none:
/// nobody is there but they.
pub(crate) async fn interface_of(
    links: &Links,
    config: &NetworkConfig,
    address: Ipv4Addr,
) -> Result<Option<Announced>, LinkError> {
    let all = links.all().await?;
    let networks = links.all_addresses().await?;
    let found = networks
        .into_iter()
        .filter_map(|(index, own, prefix)| Some((index, Ipv4Net::new(own, prefix).ok()?.trunc())))
        .filter(|(_, network)| network.prefix_len() < 32 && network.contains(&address))
        .filter_map(|(index, network)| {
            let link = all.iter().find(|link| link.index == index)?;
            let ours = [&config.names.holder, &config.names.bridge];
            let is_one = link.up && link.name != "lo" && ours.iter().all(|own| link.name != own.as_str());
            is_one.then(|| Announced { link: link.clone(), network })
        })
        .max_by_key(|found| found.network.prefix_len());
    Ok(found)
}

/// What cannot be told is logged: it costs time and nothing else.
pub(crate) async fn announce(links: &Links, on: &Announced, address: Ipv4Addr) {
    if let Err(why) = try_to(links, on, address).await {
        tracing::warn!(%address, interface = on.link.name, %why, "an address could not be announced");
    }
}

async fn try_to(links: &Links, on: &Announced, address: Ipv4Addr) -> io::Result<()> {
    let known = links.neighbours(on.link.index).await.map_err(io::Error::other)?;
    let own = links.all_addresses().await.map_err(io::Error::other)?;
    let is_stranger =
        |one: &Ipv4Addr| *one != address && !known.contains(one) && !own.iter().any(|(_, own, _)| own == one);
    let Some(stranger) = hosts_beside(on.network, address).find(is_stranger) else { return Ok(()) };
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    socket.bind_device(Some(on.link.name.as_bytes()))?;
    socket.bind(&SocketAddrV4::new(address, 0).into())?;
    socket.set_nonblocking(true)?;
    socket.send_to(&[], &SocketAddrV4::new(stranger, DISCARD).into())?;
    Ok(())
}

/// Other addresses that a host on this network can have, the next ones first.
fn hosts_beside(network: Ipv4Net, address: Ipv4Addr) -> impl Iterator<Item = Ipv4Addr> {
    let size = u64::from(u32::from(network.broadcast()) - u32::from(network.network())) + 1;
    let (first, at) = (u32::from(network.network()), u32::from(address));
    (1..u64::from(NEIGHBOURS).min(size))
        .map(move |step| {
            let offset = (u64::from(at - first) + step) % size;
            // Smaller than the network, whose size fits.
            Ipv4Addr::from(first + u32::try_from(offset).unwrap_or_default())
        })
        .filter(move |host| *host != network.network() && *host != network.broadcast())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hosts_of_the_network_are_asked_for() {
        let network: Ipv4Net = "192.0.2.0/29".parse().unwrap();
        let beside: Vec<u8> =
            hosts_beside(network, Ipv4Addr::new(192, 0, 2, 5)).map(|host| host.octets()[3]).collect();
        assert_eq!(beside, [6, 1, 2, 3, 4]);
        let widest: Ipv4Net = "0.0.0.0/0".parse().unwrap();
        assert_eq!(hosts_beside(widest, Ipv4Addr::BROADCAST).count(), 62);
    }
}
