//! Looks at and changes the kernel's network interfaces, over netlink.
//!
//! A connection is opened for a piece of work and closed after it: it costs a system
//! call or two, belongs to the network namespace of the thread that opened it, and can
//! never be found broken.

use std::{
    collections::BTreeSet,
    io,
    net::{Ipv4Addr, Ipv6Addr},
};

use futures::TryStreamExt as _;
use rtnetlink::{
    AddressMessageBuilder, Handle, RouteMessageBuilder,
    packet_route::{
        address::{AddressAttribute, AddressMessage},
        link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage},
        neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState},
        route::{RouteAttribute, RouteMessage, RouteType},
    },
};
use rustix::io::Errno;
use tokio::task::JoinHandle;

use crate::addresses::Mac;

/// What the kernel would not do, and on what.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("cannot talk to the kernel about network interfaces")]
    Unreachable {
        #[source]
        source: io::Error,
    },
    #[error("cannot {attempted} {name}")]
    Refused {
        attempted: &'static str,
        name: String,
        #[source]
        source: rtnetlink::Error,
    },
}

impl LinkError {
    /// Whether the kernel does not know how.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, LinkError::Refused { source, .. } if is(source, Errno::OPNOTSUPP))
    }
}

/// A network interface as found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub index: u32,
    pub name: String,
    pub kind: Kind,
    pub mac: Option<Mac>,
    pub mtu: u32,
    pub up: bool,
    /// The bridge it is a port of.
    pub controller: Option<u32>,
    pub alias: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Bridge,
    Tap,
    Other,
}

/// An open connection.
pub(crate) struct Links {
    handle: Handle,
    connection: JoinHandle<()>,
}

impl Drop for Links {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Links {
    pub fn open() -> Result<Links, LinkError> {
        let (connection, handle, _) =
            rtnetlink::new_connection().map_err(|source| LinkError::Unreachable { source })?;
        Ok(Links { handle, connection: tokio::spawn(connection) })
    }

    pub async fn find(&self, name: &str) -> Result<Option<Link>, LinkError> {
        let mut found = self.handle.link().get().match_name(name).execute();
        match found.try_next().await {
            Ok(message) => Ok(message.map(read)),
            Err(why) if is(&why, Errno::NODEV) => Ok(None),
            Err(source) => Err(refused("look at", name, source)),
        }
    }

    pub async fn all(&self) -> Result<Vec<Link>, LinkError> {
        let found = self.handle.link().get().execute();
        found.map_ok(read).try_collect().await.map_err(|source| refused("list", "interfaces", source))
    }

    /// All that the kernel says of all interfaces.
    pub async fn messages(&self) -> Result<Vec<LinkMessage>, LinkError> {
        let found = self.handle.link().get().execute();
        found.try_collect().await.map_err(|source| refused("list", "interfaces", source))
    }

    /// The addresses of all interfaces, of every family.
    pub async fn address_messages(&self) -> Result<Vec<AddressMessage>, LinkError> {
        let found = self.handle.address().get().execute();
        found.try_collect().await.map_err(|source| refused("list the addresses of", "all interfaces", source))
    }

    /// The interfaces that what has no other route leaves by, in both families.
    pub async fn default_route_indexes(&self) -> Result<BTreeSet<u32>, LinkError> {
        let mut indexes = BTreeSet::new();
        let families =
            [RouteMessageBuilder::<Ipv4Addr>::new().build(), RouteMessageBuilder::<Ipv6Addr>::new().build()];
        for family in families {
            let found = self.handle.route().get(family).execute();
            let routes: Vec<RouteMessage> = match found.try_collect().await {
                // A kernel without one of them.
                Err(why) if is(&why, Errno::OPNOTSUPP) || is(&why, Errno::AFNOSUPPORT) => continue,
                found => found.map_err(|source| refused("list the routes of", "this host", source))?,
            };
            routes.iter().for_each(|route| indexes.extend(default_route_by(route)));
        }
        Ok(indexes)
    }

    /// Makes an interface. One that is already there is left as it is.
    pub async fn add(&self, name: &str, message: LinkMessage) -> Result<(), LinkError> {
        match self.handle.link().add(message).execute().await {
            Err(why) if is(&why, Errno::EXIST) => Ok(()),
            done => done.map_err(|source| refused("make", name, source)),
        }
    }

    /// Changes an interface.
    pub async fn change(&self, name: &str, message: LinkMessage) -> Result<(), LinkError> {
        self.handle.link().set(message).execute().await.map_err(|source| refused("change", name, source))
    }

    /// Removes an interface. One that is already gone is as good.
    pub async fn remove(&self, link: &Link) -> Result<(), LinkError> {
        self.remove_by_index(link.index, &link.name).await
    }

    pub async fn remove_by_index(&self, index: u32, name: &str) -> Result<(), LinkError> {
        match self.handle.link().del(index).execute().await {
            Err(why) if is(&why, Errno::NODEV) => Ok(()),
            done => done.map_err(|source| refused("remove", name, source)),
        }
    }

    /// The IPv4 addresses of an interface, each with what it takes to remove it.
    pub async fn addresses(&self, link: &Link) -> Result<Vec<(Ipv4Addr, u8, AddressMessage)>, LinkError> {
        let found = self.handle.address().get().set_link_index_filter(link.index).execute();
        let all: Vec<AddressMessage> = found
            .try_collect()
            .await
            .map_err(|source| refused("list the addresses of", &link.name, source))?;
        let ipv4 = |message: AddressMessage| {
            let local = message.attributes.iter().find_map(|attribute| match attribute {
                AddressAttribute::Local(std::net::IpAddr::V4(address)) => Some(*address),
                _ => None,
            })?;
            Some((local, message.header.prefix_len, message))
        };
        Ok(all.into_iter().filter(|message| message.header.index == link.index).filter_map(ipv4).collect())
    }

    /// The IPv4 addresses of all interfaces: whose, which, and how many leading bits its network has.
    pub async fn all_addresses(&self) -> Result<Vec<(u32, Ipv4Addr, u8)>, LinkError> {
        let found = self.address_messages().await?;
        let ipv4 = |message: &AddressMessage| {
            let local = message.attributes.iter().find_map(|attribute| match attribute {
                AddressAttribute::Local(std::net::IpAddr::V4(address)) => Some(*address),
                _ => None,
            })?;
            Some((message.header.index, local, message.header.prefix_len))
        };
        Ok(found.iter().filter_map(ipv4).collect())
    }

    /// The neighbours on an interface that the kernel has ever heard of.
    pub async fn neighbours(&self, index: u32) -> Result<BTreeSet<Ipv4Addr>, LinkError> {
        let found: Vec<NeighbourMessage> = self
            .handle
            .neighbours()
            .get()
            .execute()
            .try_collect()
            .await
            .map_err(|source| refused("list the neighbours on", &index.to_string(), source))?;
        let here = found.into_iter().filter(|message| message.header.ifindex == index);
        let address = |message: NeighbourMessage| {
            message.attributes.into_iter().find_map(|attribute| match attribute {
                NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => Some(address),
                _ => None,
            })
        };
        Ok(here.filter_map(address).collect())
    }

    pub async fn add_address(&self, link: &Link, address: Ipv4Addr, prefix: u8) -> Result<(), LinkError> {
        let message =
            AddressMessageBuilder::<Ipv4Addr>::new().index(link.index).address(address, prefix).build();
        let request = self.handle.address().add(link.index, address.into(), prefix);
        // The builder's message carries the broadcast address, which the plain call leaves out.
        let mut request = request;
        *request.message_mut() = message;
        match request.execute().await {
            Err(why) if is(&why, Errno::EXIST) => Ok(()),
            done => done.map_err(|source| refused("give an address to", &link.name, source)),
        }
    }

    pub async fn remove_address(&self, link: &Link, address: AddressMessage) -> Result<(), LinkError> {
        match self.handle.address().del(address).execute().await {
            Err(why) if is(&why, Errno::ADDRNOTAVAIL) => Ok(()),
            done => done.map_err(|source| refused("take an address off", &link.name, source)),
        }
    }

    /// Tells the kernel where a neighbour is that cannot answer for itself yet.
    pub async fn introduce(&self, index: u32, address: Ipv4Addr, mac: Mac) -> Result<(), LinkError> {
        let request = self.handle.neighbours().add(index, address.into());
        let request = request.link_layer_address(&mac.0).state(NeighbourState::Stale).replace();
        request.execute().await.map_err(|source| refused("introduce", &address.to_string(), source))
    }
}

fn is(why: &rtnetlink::Error, errno: Errno) -> bool {
    matches!(why, rtnetlink::Error::NetlinkError(message) if message.raw_code() == -errno.raw_os_error())
}

/// The interfaces that a route leads to everywhere by; none if it leads elsewhere, or nowhere.
fn default_route_by(route: &RouteMessage) -> Vec<u32> {
    if route.header.destination_prefix_length != 0 || route.header.kind != RouteType::Unicast {
        return Vec::new();
    }
    let hops = route.attributes.iter().flat_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => vec![*index],
        RouteAttribute::MultiPath(hops) => hops.iter().map(|hop| hop.interface_index).collect(),
        _ => Vec::new(),
    });
    hops.collect()
}

fn refused(attempted: &'static str, name: &str, source: rtnetlink::Error) -> LinkError {
    LinkError::Refused { attempted, name: name.to_owned(), source }
}

fn read(message: LinkMessage) -> Link {
    let mut link = Link {
        index: message.header.index,
        name: String::new(),
        kind: Kind::Other,
        mac: None,
        mtu: 0,
        up: message.header.flags.contains(LinkFlags::Up),
        controller: None,
        alias: None,
    };
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::Address(octets) => link.mac = octets.try_into().ok().map(Mac),
            LinkAttribute::Mtu(mtu) => link.mtu = mtu,
            LinkAttribute::Controller(index) => link.controller = Some(index),
            LinkAttribute::IfAlias(alias) => link.alias = Some(alias),
            LinkAttribute::LinkInfo(infos) => {
                for info in infos {
                    match info {
                        LinkInfo::Kind(InfoKind::Bridge) => link.kind = Kind::Bridge,
                        LinkInfo::Kind(InfoKind::Tun) => link.kind = Kind::Tap,
                        _ => (),
                    }
                }
            }
            _ => (),
        }
    }
    link
}
