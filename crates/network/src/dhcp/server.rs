//! Answers DHCP on the bridge.
//!
//! The socket is bound to the bridge and to nothing else, so no other network of the host
//! is ever answered, and several servers can live on one host. How an answer reaches a
//! guest that has no address and so cannot say where it is: the kernel is told its MAC
//! first, then it is an ordinary datagram. Clients that cannot take one before they
//! have an address say so, and get a broadcast, as does a guest that is refused.
//!
//! Bounded: one message at a time, and of one guest no more than [`MOST_PER_SECOND`], so
//! that one that floods costs no more than its share. When the bridge is replaced, the
//! socket is too. Dropping the future closes it; nothing else is held.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::{
    net::UdpSocket,
    sync::watch,
    time::{Instant, sleep},
};

use super::{
    answer::{Facts, To, answer},
    lease::Leases,
};
use crate::{addresses::Mac, links::Links, names::InterfaceName};

const SERVER: u16 = 67;
const CLIENT: u16 = 68;
/// A client that gets on asks two or three times in a minute.
const MOST_PER_SECOND: u32 = 20;
/// Before another try at what failed for reasons outside.
const PAUSE: Duration = Duration::from_secs(1);
/// Beyond any message a client may send.
const LARGEST_DATAGRAM: usize = 2048;

/// What a server serves.
pub(crate) struct Served {
    pub bridge: InterfaceName,
    /// The bridge's index; none while there is no bridge.
    pub index: watch::Receiver<Option<u32>>,
    pub leases: watch::Receiver<Arc<Leases>>,
    pub facts: Facts,
}

/// Answers for as long as it is polled.
pub(crate) async fn serve(mut served: Served) -> Infallible {
    loop {
        let index = *served.index.borrow_and_update();
        let Some(index) = index else {
            wait_for_change(&mut served.index).await;
            continue;
        };
        let mut changes = served.index.clone();
        tokio::select! {
            biased;
            () = wait_for_change(&mut changes) => continue,
            Err(why) = serve_on(&served, index) => {
                tracing::warn!(bridge = %served.bridge, error = %why, "DHCP cannot be answered; trying again");
            }
        }
        sleep(PAUSE).await;
    }
}

/// Waits until the bridge is another one. When nobody is left who could say so, for ever.
pub(crate) async fn wait_for_change(index: &mut watch::Receiver<Option<u32>>) {
    if index.changed().await.is_err() {
        std::future::pending().await
    }
}

async fn serve_on(served: &Served, index: u32) -> io::Result<Infallible> {
    let socket = bind(&served.bridge)?;
    let mut shares = Shares::default();
    let mut datagram = vec![0; LARGEST_DATAGRAM];
    tracing::debug!(bridge = %served.bridge, "answering DHCP");
    loop {
        let (length, _) = socket.recv_from(&mut datagram).await?;
        // Behind the header's fixed part; the guest is unknown if there is no such byte.
        let mac = datagram[..length].get(28..34).and_then(|octets| octets.try_into().ok()).map(Mac);
        let leases = served.leases.borrow().clone();
        let Some(mac) = mac.filter(|mac| leases.get(*mac).is_some()) else { continue };
        if !shares.grant(mac, &leases) {
            continue;
        }
        let Some(reply) = answer(&datagram[..length], &leases, &served.facts) else { continue };
        let address = match reply.to {
            To::Everyone => Ipv4Addr::BROADCAST,
            To::Address(address) => address,
            To::Newcomer(address, mac) => match introduce(index, address, mac).await {
                Ok(()) => address,
                Err(why) => {
                    tracing::warn!(%mac, error = %why, "a guest is answered by broadcast");
                    Ipv4Addr::BROADCAST
                }
            },
        };
        // One guest that cannot be reached is no reason to stop serving the others.
        if let Err(why) = socket.send_to(&reply.bytes, SocketAddr::from((address, CLIENT))).await {
            tracing::debug!(%mac, error = %why, "a guest could not be answered");
        }
    }
}

async fn introduce(index: u32, address: Ipv4Addr, mac: Mac) -> Result<(), crate::LinkError> {
    Links::open()?.introduce(index, address, mac).await
}

fn bind(bridge: &InterfaceName) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_address(true)?;
    socket.set_broadcast(true)?;
    socket.bind_device(Some(bridge.as_str().as_bytes()))?;
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, SERVER)).into())?;
    UdpSocket::from_std(socket.into())
}

/// How much each guest has asked this second. Never larger than the table of leases.
#[derive(Default)]
struct Shares(BTreeMap<Mac, (Instant, u32)>);

impl Shares {
    fn grant(&mut self, mac: Mac, leases: &Leases) -> bool {
        let now = Instant::now();
        if !self.0.contains_key(&mac) {
            self.0.retain(|known, _| leases.get(*known).is_some());
        }
        let (since, count) = self.0.entry(mac).or_insert((now, 0));
        if now.duration_since(*since) >= Duration::from_secs(1) {
            (*since, *count) = (now, 0);
        }
        *count += 1;
        *count <= MOST_PER_SECOND
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dhcp::Lease;

    #[tokio::test(start_paused = true)]
    async fn a_guest_that_floods_uses_up_its_own_share_only() {
        let lease = |last| Lease { address: Ipv4Addr::new(10, 52, 0, last), hostname: "vm".to_owned() };
        let (one, other) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
        let leases: Leases = [(one, lease(2)), (other, lease(3))].into_iter().collect();
        let mut shares = Shares::default();
        let granted = (0..1000).filter(|_| shares.grant(one, &leases)).count();
        assert_eq!(granted, MOST_PER_SECOND as usize);
        assert!(shares.grant(other, &leases));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(shares.grant(one, &leases), "a second later it is heard again");
    }

    #[tokio::test]
    async fn what_is_counted_never_outgrows_the_table() {
        let mut shares = Shares::default();
        for number in 0..1000u32 {
            let [a, b, c, d] = number.to_be_bytes();
            let mac = Mac([2, 0, a, b, c, d]);
            let lease = Lease { address: Ipv4Addr::new(10, 52, 0, 2), hostname: "vm".to_owned() };
            shares.grant(mac, &[(mac, lease)].into_iter().collect());
            assert!(shares.0.len() <= 2);
        }
    }
}
