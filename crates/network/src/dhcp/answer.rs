//! What to say to one DHCP message. Pure.
//!
//! | the guest says | and | it hears |
//! |---|---|---|
//! | DISCOVER | | OFFER of its address |
//! | REQUEST, naming another server | | nothing: it chose somebody else |
//! | REQUEST | for its own address | ACK |
//! | REQUEST | for any other address | NAK, so that it starts over at once |
//! | INFORM | from its own address | ACK without a lease |
//! | RELEASE, DECLINE | | nothing, and nothing changes |
//!
//! A MAC without a lease, a relay's message, plain BOOTP and nonsense hear nothing.

use std::{net::Ipv4Addr, time::Duration};

use dhcproto::{
    Decodable as _, Decoder, Encodable as _, Encoder,
    v4::{DhcpOption, HType, Message, MessageType, Opcode, OptionCode},
};
use ipnet::Ipv4Net;

use super::{
    essentials::essentials,
    lease::{Lease, Leases},
};
use crate::{addresses::Mac, config::NetworkConfig};

/// What every client takes, and what some refuse to be without.
const SMALLEST_MESSAGE: usize = 300;
/// The payload of the 576 bytes every client must take.
const ORDINARY_MESSAGE: usize = 548;
/// The payload of one Ethernet frame.
const LARGEST_MESSAGE: usize = 1472;
const IP_AND_UDP: usize = 28;

/// Left out in this order when an answer would not fit.
const DISPENSABLE: [OptionCode; 5] = [
    OptionCode::ClasslessStaticRoute,
    OptionCode::NtpServers,
    OptionCode::DomainName,
    OptionCode::Hostname,
    OptionCode::ClientIdentifier,
];

/// What all guests of a segment are told alike.
#[derive(Clone, Debug)]
pub struct Facts {
    pub cidr: Ipv4Net,
    pub gateway: Ipv4Addr,
    pub mtu: u16,
    pub domain: String,
    pub lease: Duration,
    pub dns_servers: Vec<Ipv4Addr>,
    pub ntp_servers: Vec<Ipv4Addr>,
    pub routes: Vec<(Ipv4Net, Ipv4Addr)>,
}

impl Facts {
    pub(crate) fn of(config: &NetworkConfig) -> Facts {
        let gateway = config.gateway;
        let dns_servers =
            if config.dns_servers.is_empty() { vec![gateway] } else { config.dns_servers.clone() };
        Facts {
            cidr: config.cidr,
            gateway,
            mtu: config.mtu,
            domain: config.domain.clone(),
            lease: config.lease,
            dns_servers,
            ntp_servers: config.ntp_servers.clone(),
            routes: config.routes.clone(),
        }
    }
}

/// How an answer gets to its guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    Everyone,
    /// It has this address and answers for it.
    Address(Ipv4Addr),
    /// It will have this address, and nobody can ask it where it is yet.
    Newcomer(Ipv4Addr, Mac),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub to: To,
    pub bytes: Vec<u8>,
}

/// The answer to one datagram, or silence.
pub fn answer(datagram: &[u8], leases: &Leases, facts: &Facts) -> Option<Answer> {
    let request = Message::decode(&mut Decoder::new(&essentials(datagram)?)).ok()?;
    let mac = mac_of(&request)?;
    let lease = leases.get(mac)?;
    let (kind, message) = match request.opts().msg_type()? {
        MessageType::Discover => (MessageType::Offer, offer(&request, MessageType::Offer, lease, facts)),
        MessageType::Request => {
            let kind = verdict(&request, lease, facts)?;
            let message = match kind {
                MessageType::Nak => begin(&request, kind, facts),
                _ => offer(&request, kind, lease, facts),
            };
            (kind, message)
        }
        // It has its address from elsewhere; by the rules of the bridge that is this one.
        MessageType::Inform if request.ciaddr() == lease.address => {
            let mut message = begin(&request, MessageType::Ack, facts);
            message.set_ciaddr(request.ciaddr());
            tell(&mut message, lease, facts);
            (MessageType::Ack, message)
        }
        MessageType::Decline => {
            tracing::warn!(%mac, address = %lease.address, "a guest says that somebody else has its address");
            return None;
        }
        _ => return None,
    };
    let asked = |code| request.opts().get(code);
    let room = match asked(OptionCode::MaxMessageSize) {
        Some(DhcpOption::MaxMessageSize(size)) => {
            usize::from(*size).saturating_sub(IP_AND_UDP).clamp(ORDINARY_MESSAGE, LARGEST_MESSAGE)
        }
        _ => ORDINARY_MESSAGE,
    };
    let to = match kind {
        MessageType::Nak => To::Everyone,
        // One that uses its address answers for it. A DISCOVER has no business naming one.
        _ if request.ciaddr() == lease.address && kind == MessageType::Ack => To::Address(lease.address),
        _ if request.flags().broadcast() => To::Everyone,
        _ => To::Newcomer(lease.address, mac),
    };
    Some(Answer { to, bytes: encode(message, room)? })
}

/// Who a message is from, if it is one that a guest on this segment can send.
pub(crate) fn mac_of(request: &Message) -> Option<Mac> {
    let from_a_guest = request.opcode() == Opcode::BootRequest
        && request.htype() == HType::Eth
        && request.hlen() == 6
        && request.giaddr().is_unspecified();
    // Asked for only then: the crate falls over a length that its field cannot hold.
    if from_a_guest { request.chaddr().try_into().ok().map(Mac) } else { None }
}

/// Whether a request is granted. None if it was not for us, or is none at all.
fn verdict(request: &Message, lease: &Lease, facts: &Facts) -> Option<MessageType> {
    let asked_of = match request.opts().get(OptionCode::ServerIdentifier) {
        Some(DhcpOption::ServerIdentifier(server)) => Some(*server),
        _ => None,
    };
    if asked_of.is_some_and(|server| server != facts.gateway) {
        return None;
    }
    let wanted = match request.opts().get(OptionCode::RequestedIpAddress) {
        Some(DhcpOption::RequestedIpAddress(address)) => *address,
        // Renewing, or looking for anyone who would renew: the address is in use already.
        _ => request.ciaddr(),
    };
    // One who uses an address that is not its own is told so, whatever it asks for.
    let in_use = request.ciaddr();
    let fits = wanted == lease.address && (in_use.is_unspecified() || in_use == lease.address);
    match wanted.is_unspecified() {
        true => None,
        false if fits => Some(MessageType::Ack),
        false => Some(MessageType::Nak),
    }
}

fn begin(request: &Message, kind: MessageType, facts: &Facts) -> Message {
    let unspecified = Ipv4Addr::UNSPECIFIED;
    let mut message = Message::new_with_id(
        request.xid(),
        unspecified,
        unspecified,
        unspecified,
        unspecified,
        request.chaddr(),
    );
    message.set_opcode(Opcode::BootReply).set_htype(HType::Eth).set_flags(request.flags());
    let options = message.opts_mut();
    options.insert(DhcpOption::MessageType(kind));
    options.insert(DhcpOption::ServerIdentifier(facts.gateway));
    // RFC 6842: it comes back, so that a client can tell its answers from others'.
    if let Some(client) = request.opts().get(OptionCode::ClientIdentifier) {
        options.insert(client.clone());
    }
    message
}

/// An offer, or the acknowledgement of one.
fn offer(request: &Message, kind: MessageType, lease: &Lease, facts: &Facts) -> Message {
    let mut message = begin(request, kind, facts);
    message.set_yiaddr(lease.address);
    if kind == MessageType::Ack {
        message.set_ciaddr(request.ciaddr());
    }
    let seconds = u32::try_from(facts.lease.as_secs()).unwrap_or(u32::MAX);
    let options = message.opts_mut();
    options.insert(DhcpOption::AddressLeaseTime(seconds));
    options.insert(DhcpOption::Renewal(seconds / 2));
    options.insert(DhcpOption::Rebinding(seconds - seconds / 8));
    tell(&mut message, lease, facts);
    message
}

/// What a guest needs beside its address. All of it whatever was asked for: it is little,
/// and clients leave what they do not know.
fn tell(message: &mut Message, lease: &Lease, facts: &Facts) {
    let options = message.opts_mut();
    options.insert(DhcpOption::SubnetMask(facts.cidr.netmask()));
    options.insert(DhcpOption::BroadcastAddr(facts.cidr.broadcast()));
    options.insert(DhcpOption::Router(vec![facts.gateway]));
    options.insert(DhcpOption::DomainNameServer(facts.dns_servers.clone()));
    options.insert(DhcpOption::InterfaceMtu(facts.mtu));
    options.insert(DhcpOption::Hostname(lease.hostname.clone()));
    options.insert(DhcpOption::DomainName(facts.domain.clone()));
    if !facts.ntp_servers.is_empty() {
        options.insert(DhcpOption::NtpServers(facts.ntp_servers.clone()));
    }
    if !facts.routes.is_empty() {
        // A client that takes these ignores the router above, so it is said here again.
        let default = (Ipv4Net::default(), facts.gateway);
        let routes = facts.routes.iter().copied().chain([default]).collect();
        options.insert(DhcpOption::ClasslessStaticRoute(routes));
    }
}

fn encode(mut message: Message, room: usize) -> Option<Vec<u8>> {
    let mut dispensable = DISPENSABLE.iter();
    loop {
        let mut bytes = Vec::with_capacity(ORDINARY_MESSAGE);
        message.encode(&mut Encoder::new(&mut bytes)).ok()?;
        if bytes.len() <= room {
            bytes.resize(bytes.len().max(SMALLEST_MESSAGE), 0);
            return Some(bytes);
        }
        message.opts_mut().remove(*dispensable.next()?);
    }
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
