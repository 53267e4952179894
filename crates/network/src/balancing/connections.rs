//! What the kernel remembers of connections to load balancers, and which of it is to be forgotten.
//!
//! Asked and told over netlink, entry by entry. An entry that a rule of now would make stays; all other entries to our
//! addresses go. A TCP connection that is forgotten in the middle is refused by whoever gets the next piece of it, so its
//! client learns at once; over UDP the next datagram is the first of another conversation.

use std::{collections::BTreeSet, io, net::Ipv4Addr, os::fd::OwnedFd, time::Duration};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind,
        netlink::{self, SocketAddrNetlink},
        recv, send, socket_with,
        sockopt::{Timeout, set_socket_timeout},
    },
};

use super::Balanced;

const PATIENCE: Duration = Duration::from_secs(5);
/// What one piece of an answer fits into.
const PIECE: usize = 1 << 16;
const HEADER: usize = 16;
/// The header of netfilter's own: family, version, resource.
const OF_IPV4: [u8; 4] = [2, 0, 0, 0];
const GET: u16 = 0x0101;
const DELETE: u16 = 0x0102;
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const DUMP: u16 = 0x300;
const ERROR: u16 = 2;
const DONE: u16 = 3;
const ORIGINAL: u16 = 1;
const REPLY: u16 = 2;
const IDENTITY: u16 = 12;

#[derive(Debug, thiserror::Error)]
#[error("the kernel cannot be asked about connections")]
pub struct ConnectionError {
    #[source]
    source: io::Error,
}

/// One that is remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    protocol: u8,
    /// Where the client sent it.
    address: Ipv4Addr,
    port: u16,
    /// Where it went.
    guest: Ipv4Addr,
    guest_port: u16,
    /// What names it, as it was read.
    name: Vec<u8>,
}

/// Forgets all connections to our addresses that do not go where they would go now.
pub(crate) async fn forget(ours: BTreeSet<Ipv4Addr>, wanted: Vec<Balanced>) -> Result<(), ConnectionError> {
    let done = tokio::task::spawn_blocking(move || try_to_forget(&ours, &wanted)).await;
    done.unwrap_or_else(|why| Err(io::Error::other(why))).map_err(|source| ConnectionError { source })
}

fn try_to_forget(ours: &BTreeSet<Ipv4Addr>, wanted: &[Balanced]) -> io::Result<()> {
    let socket = open()?;
    for entry in
        list(&socket)?.iter().filter(|entry| ours.contains(&entry.address) && !goes_on(entry, wanted))
    {
        delete(&socket, entry)?;
    }
    Ok(())
}

/// Whether a rule of now would make the same of it.
fn goes_on(entry: &Entry, wanted: &[Balanced]) -> bool {
    wanted.iter().filter(|one| one.address == entry.address).any(|one| {
        let listens = one.listeners.iter().any(|listener| {
            (listener.protocol.number(), listener.port, listener.guest_port)
                == (entry.protocol, entry.port, entry.guest_port)
        });
        listens && one.guests.contains(&entry.guest)
    })
}

fn open() -> io::Result<OwnedFd> {
    let socket =
        socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(netlink::NETFILTER))?;
    bind(&socket, &SocketAddrNetlink::new(0, 0))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
    Ok(socket)
}

fn list(socket: &OwnedFd) -> io::Result<Vec<Entry>> {
    send(socket, &message(GET, REQUEST | DUMP, &[]), SendFlags::empty())?;
    let mut entries = Vec::new();
    let mut piece = vec![0; PIECE];
    loop {
        let (length, _) = recv(socket, &mut piece[..], RecvFlags::empty())?;
        for (kind, body) in messages(&piece[..length.min(PIECE)]) {
            match kind {
                DONE => return Ok(entries),
                ERROR => return refusal(body).map_or(Ok(entries), Err),
                _ => entries.extend(read(body)),
            }
        }
    }
}

fn delete(socket: &OwnedFd, entry: &Entry) -> io::Result<()> {
    send(socket, &message(DELETE, REQUEST | ACKNOWLEDGE, &entry.name), SendFlags::empty())?;
    let mut piece = vec![0; PIECE];
    let (length, _) = recv(socket, &mut piece[..], RecvFlags::empty())?;
    let mut answers = messages(&piece[..length.min(PIECE)]);
    match answers.find(|(kind, _)| *kind == ERROR).and_then(|(_, body)| refusal(body)) {
        // One that ended meanwhile is as good.
        Some(why) if why.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => Ok(()),
        Some(why) => Err(why),
        None => Ok(()),
    }
}

/// What an error message says; zero is none.
fn refusal(body: &[u8]) -> Option<io::Error> {
    let code = i32::from_ne_bytes(body.get(..4)?.try_into().ok()?);
    (code != 0).then(|| io::Error::from_raw_os_error(-code))
}

fn message(kind: u16, flags: u16, attributes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER + OF_IPV4.len() + attributes.len()).unwrap_or(u32::MAX);
    let mut out = length.to_ne_bytes().to_vec();
    out.extend(kind.to_ne_bytes());
    out.extend(flags.to_ne_bytes());
    // A number of its own and the port that the kernel knows us by, neither of which matters here.
    out.extend([0; 8]);
    out.extend(OF_IPV4);
    out.extend(attributes);
    out
}

/// The messages in a piece, each with what follows its header.
fn messages(mut piece: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(piece.get(..4)?.try_into().ok()?) as usize;
        let kind = u16::from_ne_bytes(piece.get(4..6)?.try_into().ok()?);
        let body = piece.get(HEADER..length)?;
        piece = piece.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, body))
    })
}

/// The attributes in a body: each with its kind, what it holds, and itself as it stands there.
fn attributes(mut body: &[u8]) -> impl Iterator<Item = (u16, &[u8], &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(body.get(..2)?.try_into().ok()?));
        // The two highest bits say how to read it.
        let kind = u16::from_ne_bytes(body.get(2..4)?.try_into().ok()?) & 0x3fff;
        let (inside, whole) = (body.get(4..length)?, body.get(..length)?);
        body = body.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, inside, whole))
    })
}

fn read(body: &[u8]) -> Option<Entry> {
    let attributes_of_it: Vec<_> = attributes(body.get(OF_IPV4.len()..)?).collect();
    let find = |kind: u16| attributes_of_it.iter().find(|(one, _, _)| *one == kind);
    let (original, reply) = (tuple(find(ORIGINAL)?.1)?, tuple(find(REPLY)?.1)?);
    let mut name = Vec::new();
    for (_, _, whole) in [find(ORIGINAL), find(IDENTITY)].into_iter().flatten() {
        name.extend(*whole);
        name.resize(name.len().next_multiple_of(4), 0);
    }
    Some(Entry {
        protocol: original.protocol,
        address: original.to,
        port: original.to_port,
        guest: reply.from,
        guest_port: reply.from_port,
        name,
    })
}

struct Tuple {
    protocol: u8,
    from: Ipv4Addr,
    to: Ipv4Addr,
    from_port: u16,
    to_port: u16,
}

/// Addresses and ports of one direction; none for what has none.
fn tuple(inside: &[u8]) -> Option<Tuple> {
    let part = |kind: u16| attributes(inside).find(|(one, _, _)| *one == kind).map(|(_, inside, _)| inside);
    let (addresses, protocol) = (part(1)?, part(2)?);
    let of = |inside, kind: u16| {
        attributes(inside).find(move |(one, _, _)| *one == kind).map(|(_, inside, _)| inside)
    };
    let address = |kind| Some(Ipv4Addr::from(<[u8; 4]>::try_from(of(addresses, kind)?).ok()?));
    let port = |kind| Some(u16::from_be_bytes(of(protocol, kind)?.try_into().ok()?));
    Some(Tuple {
        protocol: *of(protocol, 1)?.first()?,
        from: address(1)?,
        to: address(2)?,
        from_port: port(2)?,
        to_port: port(3)?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::balancing::{Listener, Protocol};

    fn attribute(kind: u16, inside: &[u8]) -> Vec<u8> {
        let mut out = u16::try_from(4 + inside.len()).unwrap().to_ne_bytes().to_vec();
        out.extend(kind.to_ne_bytes());
        out.extend(inside);
        out.resize(out.len().next_multiple_of(4), 0);
        out
    }

    fn direction(from: [u8; 4], to: [u8; 4], from_port: u16, to_port: u16) -> Vec<u8> {
        let addresses = [attribute(1, &from), attribute(2, &to)].concat();
        let protocol = [
            attribute(1, &[17]),
            attribute(2, &from_port.to_be_bytes()),
            attribute(3, &to_port.to_be_bytes()),
        ];
        [attribute(1 | 0x8000, &addresses), attribute(2 | 0x8000, &protocol.concat())].concat()
    }

    fn entry() -> Vec<u8> {
        let original = attribute(1 | 0x8000, &direction([192, 0, 2, 2], [192, 0, 2, 50], 4444, 53));
        let reply = attribute(2 | 0x8000, &direction([10, 52, 0, 3], [192, 0, 2, 2], 5353, 4444));
        [OF_IPV4.to_vec(), original, reply, attribute(12, &[1, 2, 3, 4])].concat()
    }

    #[test]
    fn an_entry_is_read_as_it_is_and_named_as_it_was_read() {
        let read = read(&entry()).unwrap();
        assert_eq!((read.protocol, read.address, read.port), (17, Ipv4Addr::new(192, 0, 2, 50), 53));
        assert_eq!((read.guest, read.guest_port), (Ipv4Addr::new(10, 52, 0, 3), 5353));
        let named: Vec<u16> = attributes(&read.name).map(|(kind, _, _)| kind).collect();
        assert_eq!(named, [ORIGINAL, IDENTITY]);
    }

    #[test]
    fn what_a_rule_of_now_would_make_goes_on_and_nothing_else() {
        let entry = read(&entry()).unwrap();
        let now = Balanced {
            address: entry.address,
            listeners: vec![Listener { protocol: Protocol::Udp, port: 53, guest_port: 5353 }],
            guests: vec![entry.guest],
        };
        assert!(goes_on(&entry, std::slice::from_ref(&now)));
        let changes: [fn(&mut Balanced); 5] = [
            |one| one.guests = vec![Ipv4Addr::new(10, 52, 0, 4)],
            |one| one.listeners[0].port = 54,
            |one| one.listeners[0].guest_port = 54,
            |one| one.listeners[0].protocol = Protocol::Tcp,
            |one| one.address = Ipv4Addr::new(192, 0, 2, 51),
        ];
        for change in changes {
            let mut other = now.clone();
            change(&mut other);
            assert!(!goes_on(&entry, &[other]));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_fall_over_or_never_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for (_, body) in messages(&bytes) {
                _ = read(body);
            }
            _ = read(&bytes);
        }

        #[test]
        fn an_entry_cut_short_is_no_entry_or_a_whole_one(cut in 0_usize..200) {
            let whole = entry();
            if let Some(read) = read(&whole[..cut.min(whole.len())]) {
                prop_assert_eq!(read.guest_port, 5353);
            }
        }
    }
}
