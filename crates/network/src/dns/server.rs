//! Answers DNS on the gateway's address, over UDP and TCP.
//!
//! Bounded: so many questions at once and no more, of which one guest has only its share,
//! and TCP connections likewise, which are closed when nothing comes. What is over the
//! bound is dropped; the guest asks again. The sockets are bound to the bridge, so the
//! host's other networks find no resolver here, and when the bridge is replaced they are
//! too. Dropping the future ends every question under way.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use hickory_proto::op::{Message, ResponseCode};
use parking_lot::Mutex;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::{
    net::{TcpListener, TcpStream, UdpSocket},
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    forward::{self, Over, ask},
    resolvers::Resolvers,
    zone::{Decision, Zone, begin, for_a_datagram},
};
use crate::{dhcp::wait_for_change, names::InterfaceName};

const PORT: u16 = 53;
/// Questions under way and open connections, each.
const MOST: usize = 512;
const MOST_PER_GUEST: usize = 32;
const LARGEST_DATAGRAM: usize = 4096;
/// How long a connection may say nothing.
const IDLE: Duration = Duration::from_secs(10);
/// Before another try at what failed for reasons outside.
const PAUSE: Duration = Duration::from_secs(1);

/// What a server serves.
pub(crate) struct Served {
    pub bridge: InterfaceName,
    pub gateway: Ipv4Addr,
    /// The bridge's index; none while there is no bridge.
    pub index: watch::Receiver<Option<u32>>,
    pub zone: watch::Receiver<Arc<Zone>>,
    pub resolv_conf: PathBuf,
}

/// Answers for as long as it is polled.
pub(crate) async fn serve(mut served: Served) -> Infallible {
    let resolvers = Resolvers::new(served.resolv_conf.clone(), served.gateway);
    let desk = Arc::new(Desk { zone: served.zone.clone(), resolvers });
    loop {
        let index = *served.index.borrow_and_update();
        if index.is_none() {
            wait_for_change(&mut served.index).await;
            continue;
        }
        let mut changes = served.index.clone();
        tokio::select! {
            biased;
            () = wait_for_change(&mut changes) => continue,
            Err(why) = serve_udp(&served, &desk) => report(&served, &why),
            Err(why) = serve_tcp(&served, &desk) => report(&served, &why),
        }
        sleep(PAUSE).await;
    }
}

fn report(served: &Served, why: &io::Error) {
    tracing::warn!(bridge = %served.bridge, error = %why, "names cannot be resolved for guests; trying again");
}

async fn serve_udp(served: &Served, desk: &Arc<Desk>) -> io::Result<Infallible> {
    let socket = Arc::new(UdpSocket::from_std(bind(served, Type::DGRAM, Protocol::UDP)?.into())?);
    let shares = Shares::default();
    let mut questions = JoinSet::new();
    let mut datagram = vec![0; LARGEST_DATAGRAM];
    loop {
        let (length, guest) = socket.recv_from(&mut datagram).await?;
        while questions.try_join_next().is_some() {}
        let Some(share) = shares.take(guest.ip()) else { continue };
        let (desk, socket, bytes) = (desk.clone(), socket.clone(), datagram[..length].to_vec());
        questions.spawn(async move {
            if let Some(answer) = desk.answer(&bytes, Over::Udp).await {
                // The guest may be gone; there is nobody to tell.
                let _ = socket.send_to(&answer, guest).await;
            }
            drop(share);
        });
    }
}

async fn serve_tcp(served: &Served, desk: &Arc<Desk>) -> io::Result<Infallible> {
    let socket = bind(served, Type::STREAM, Protocol::TCP)?;
    socket.listen(128)?;
    let listener = TcpListener::from_std(socket.into())?;
    let shares = Shares::default();
    let mut connections = JoinSet::new();
    loop {
        let (stream, guest) = listener.accept().await?;
        while connections.try_join_next().is_some() {}
        let Some(share) = shares.take(guest.ip()) else { continue };
        let desk = desk.clone();
        connections.spawn(async move {
            if let Err(why) = converse(stream, &desk).await {
                tracing::debug!(%guest, error = %why, "a guest's connection ended");
            }
            drop(share);
        });
    }
}

async fn converse(mut stream: TcpStream, desk: &Desk) -> io::Result<()> {
    loop {
        let question = timeout(IDLE, forward::read_message(&mut stream)).await??;
        let Some(answer) = desk.answer(&question, Over::Tcp).await else { return Ok(()) };
        timeout(IDLE, forward::write_message(&mut stream, &answer)).await??;
    }
}

fn bind(served: &Served, kind: Type, protocol: Protocol) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, kind, Some(protocol))?;
    socket.set_reuse_address(true)?;
    socket.bind_device(Some(served.bridge.as_str().as_bytes()))?;
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddr::from((served.gateway, PORT)).into())?;
    Ok(socket)
}

/// Where questions are answered, however they came.
struct Desk {
    zone: watch::Receiver<Arc<Zone>>,
    resolvers: Resolvers,
}

impl Desk {
    async fn answer(&self, bytes: &[u8], over: Over) -> Option<Vec<u8>> {
        let question = Message::from_vec(bytes).ok()?;
        let zone = self.zone.borrow().clone();
        let answer = match zone.decide(&question) {
            Decision::Ignore => return None,
            Decision::Answer(answer) => *answer,
            Decision::Forward => match ask(&self.resolvers.list().await, over, bytes, &question).await {
                Some(answer) => return Some(answer),
                None => begin(&question, ResponseCode::ServFail),
            },
        };
        match over {
            Over::Udp => for_a_datagram(&answer, &question),
            Over::Tcp => answer.to_vec().ok(),
        }
    }
}

/// How much is under way, for whom.
#[derive(Clone, Default)]
struct Shares(Arc<Mutex<BTreeMap<IpAddr, usize>>>);

/// One thing under way. Dropping it gives its share back.
struct Share {
    shares: Shares,
    guest: IpAddr,
}

impl Shares {
    /// None when there is too much already, of this guest or of all.
    fn take(&self, guest: IpAddr) -> Option<Share> {
        let mut taken = self.0.lock();
        if taken.values().sum::<usize>() >= MOST
            || taken.get(&guest).is_some_and(|count| *count >= MOST_PER_GUEST)
        {
            return None;
        }
        *taken.entry(guest).or_default() += 1;
        Some(Share { shares: self.clone(), guest })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.shares.0.lock();
        if let Some(count) = taken.get_mut(&self.guest) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.guest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_guest_cannot_take_every_place() {
        let shares = Shares::default();
        let (one, other) = (IpAddr::from([10, 52, 0, 2]), IpAddr::from([10, 52, 0, 3]));
        let taken: Vec<_> = (0..MOST).map_while(|_| shares.take(one)).collect();
        assert_eq!(taken.len(), MOST_PER_GUEST);
        assert!(shares.take(other).is_some());
        drop(taken);
        assert!(shares.take(one).is_some(), "what is given back can be taken again");
    }

    #[test]
    fn all_guests_together_have_a_bound() {
        let shares = Shares::default();
        let guest = |number: usize| IpAddr::from([10, 52, (number / 256) as u8, (number % 256) as u8]);
        let taken: Vec<_> = (0..2 * MOST).map_while(|number| shares.take(guest(number))).collect();
        assert_eq!(taken.len(), MOST);
        drop(taken);
        assert!(shares.0.lock().is_empty(), "nothing is kept of guests that are done");
    }
}
