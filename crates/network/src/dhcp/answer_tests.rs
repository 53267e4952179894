//! Promises about what is said to one DHCP message.

use proptest::prelude::*;

use super::*;

const MAC: Mac = Mac([2, 0, 0, 0, 0, 7]);
const OWN: Ipv4Addr = Ipv4Addr::new(10, 52, 0, 7);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 52, 0, 8);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 52, 0, 1);

fn facts() -> Facts {
    Facts {
        cidr: "10.52.0.0/16".parse().unwrap(),
        gateway: GATEWAY,
        mtu: 1450,
        domain: "sheaf.internal".to_owned(),
        lease: Duration::from_secs(3600),
        dns_servers: vec![GATEWAY],
        ntp_servers: Vec::new(),
        routes: Vec::new(),
    }
}

fn leases() -> Leases {
    [(MAC, Lease { address: OWN, hostname: "web".to_owned() })].into_iter().collect()
}

/// A message of the guest, as a client would send it.
fn says(kind: MessageType, change: impl FnOnce(&mut Message)) -> Vec<u8> {
    let none = Ipv4Addr::UNSPECIFIED;
    let mut message = Message::new_with_id(0xfeed, none, none, none, none, &MAC.0);
    message.opts_mut().insert(DhcpOption::MessageType(kind));
    change(&mut message);
    bytes(&message)
}

fn bytes(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut Encoder::new(&mut bytes)).unwrap();
    bytes
}

fn heard(datagram: &[u8]) -> Option<(To, Message)> {
    let answer = answer(datagram, &leases(), &facts())?;
    Some((answer.to, Message::decode(&mut Decoder::new(&answer.bytes)).unwrap()))
}

fn kind(message: &Message) -> MessageType {
    message.opts().msg_type().unwrap()
}

#[test]
fn a_guest_is_offered_its_own_address_with_all_a_cloud_image_needs() {
    let (to, offer) = heard(&says(MessageType::Discover, |_| ())).unwrap();
    assert_eq!(to, To::Newcomer(OWN, MAC));
    assert_eq!((kind(&offer), offer.yiaddr(), offer.xid()), (MessageType::Offer, OWN, 0xfeed));
    assert_eq!((offer.opcode(), offer.chaddr()), (Opcode::BootReply, &MAC.0[..]));
    for option in [
        DhcpOption::ServerIdentifier(GATEWAY),
        DhcpOption::SubnetMask(Ipv4Addr::new(255, 255, 0, 0)),
        DhcpOption::BroadcastAddr(Ipv4Addr::new(10, 52, 255, 255)),
        DhcpOption::Router(vec![GATEWAY]),
        DhcpOption::DomainNameServer(vec![GATEWAY]),
        DhcpOption::InterfaceMtu(1450),
        DhcpOption::Hostname("web".to_owned()),
        DhcpOption::DomainName("sheaf.internal".to_owned()),
        DhcpOption::AddressLeaseTime(3600),
        DhcpOption::Renewal(1800),
        DhcpOption::Rebinding(3150),
    ] {
        assert_eq!(offer.opts().get(OptionCode::from(&option)), Some(&option));
    }
    for absent in [OptionCode::NtpServers, OptionCode::ClasslessStaticRoute] {
        assert_eq!(offer.opts().get(absent), None, "nobody gave any");
    }
}

#[test]
fn routes_given_carry_the_default_route_with_them() {
    let route: (Ipv4Net, Ipv4Addr) = ("192.0.2.0/24".parse().unwrap(), OTHER);
    let facts = Facts { routes: vec![route], ntp_servers: vec![OTHER], ..facts() };
    let answer = answer(&says(MessageType::Discover, |_| ()), &leases(), &facts).unwrap();
    let offer = Message::decode(&mut Decoder::new(&answer.bytes)).unwrap();
    let wanted = DhcpOption::ClasslessStaticRoute(vec![route, (Ipv4Net::default(), GATEWAY)]);
    assert_eq!(offer.opts().get(OptionCode::ClasslessStaticRoute), Some(&wanted));
    assert_eq!(offer.opts().get(OptionCode::NtpServers), Some(&DhcpOption::NtpServers(vec![OTHER])));
}

#[test]
fn a_request_for_its_own_address_is_granted_in_every_state_a_client_can_be_in() {
    let selecting = says(MessageType::Request, |message| {
        message.opts_mut().insert(DhcpOption::ServerIdentifier(GATEWAY));
        message.opts_mut().insert(DhcpOption::RequestedIpAddress(OWN));
    });
    let rebooting = says(MessageType::Request, |message| {
        message.opts_mut().insert(DhcpOption::RequestedIpAddress(OWN));
    });
    for datagram in [selecting, rebooting] {
        let (to, ack) = heard(&datagram).unwrap();
        assert_eq!((kind(&ack), ack.yiaddr(), to), (MessageType::Ack, OWN, To::Newcomer(OWN, MAC)));
    }
    let renewing = says(MessageType::Request, |message| {
        message.set_ciaddr(OWN);
    });
    let (to, ack) = heard(&renewing).unwrap();
    assert_eq!((kind(&ack), ack.yiaddr(), to), (MessageType::Ack, OWN, To::Address(OWN)));
}

#[test]
fn a_request_for_another_address_is_refused_loudly_in_every_state() {
    let selecting = says(MessageType::Request, |message| {
        message.opts_mut().insert(DhcpOption::ServerIdentifier(GATEWAY));
        message.opts_mut().insert(DhcpOption::RequestedIpAddress(OTHER));
    });
    let rebooting = says(MessageType::Request, |message| {
        message.opts_mut().insert(DhcpOption::RequestedIpAddress(OTHER));
    });
    let renewing = says(MessageType::Request, |message| {
        message.set_ciaddr(OTHER);
    });
    let of_two_minds = says(MessageType::Request, |message| {
        message.set_ciaddr(OTHER);
        message.opts_mut().insert(DhcpOption::RequestedIpAddress(OWN));
    });
    for datagram in [selecting, rebooting, renewing, of_two_minds] {
        let (to, nak) = heard(&datagram).unwrap();
        assert_eq!((kind(&nak), nak.yiaddr(), to), (MessageType::Nak, Ipv4Addr::UNSPECIFIED, To::Everyone));
        assert_eq!(nak.opts().get(OptionCode::Router), None, "who is refused is told nothing else");
    }
}

#[test]
fn a_guest_that_chose_another_server_is_left_alone() {
    let datagram = says(MessageType::Request, |message| {
        message.opts_mut().insert(DhcpOption::ServerIdentifier(OTHER));
        message.opts_mut().insert(DhcpOption::RequestedIpAddress(OTHER));
    });
    assert_eq!(heard(&datagram), None);
}

#[test]
fn a_request_for_nothing_is_no_request() {
    assert_eq!(heard(&says(MessageType::Request, |_| ())), None);
}

#[test]
fn a_mac_nobody_knows_hears_nothing_whatever_it_says() {
    for kind in [MessageType::Discover, MessageType::Request, MessageType::Inform] {
        let datagram = says(kind, |message| {
            message.set_chaddr(&[2, 0, 0, 0, 0, 9]);
            message.opts_mut().insert(DhcpOption::RequestedIpAddress(OWN));
        });
        assert_eq!(heard(&datagram), None, "{kind:?}");
    }
}

#[test]
fn what_did_not_come_from_a_guest_on_the_segment_is_not_answered() {
    let relayed = says(MessageType::Discover, |message| {
        message.set_giaddr(OTHER);
    });
    let reply = says(MessageType::Discover, |message| {
        message.set_opcode(Opcode::BootReply);
    });
    let bootp = says(MessageType::Discover, |message| {
        message.opts_mut().remove(OptionCode::MessageType);
    });
    for datagram in [relayed, reply, bootp] {
        assert_eq!(heard(&datagram), None);
    }
}

#[test]
fn one_who_has_its_address_may_ask_for_the_rest_alone() {
    let inform = |address| {
        says(MessageType::Inform, |message| {
            message.set_ciaddr(address);
        })
    };
    let (to, ack) = heard(&inform(OWN)).unwrap();
    assert_eq!((kind(&ack), to, ack.yiaddr()), (MessageType::Ack, To::Address(OWN), Ipv4Addr::UNSPECIFIED));
    assert!(ack.opts().contains(OptionCode::DomainNameServer));
    assert!(!ack.opts().contains(OptionCode::AddressLeaseTime), "RFC 2131: it asked for no lease");
    assert_eq!(heard(&inform(OTHER)), None);
}

#[test]
fn giving_an_address_back_or_complaining_about_it_changes_nothing() {
    for kind in [MessageType::Release, MessageType::Decline] {
        assert_eq!(heard(&says(kind, |_| ())), None);
    }
    assert_eq!(heard(&says(MessageType::Discover, |_| ())).unwrap().1.yiaddr(), OWN);
}

#[test]
fn a_client_that_asks_for_broadcasts_gets_one() {
    let datagram = says(MessageType::Discover, |message| {
        message.set_flags(message.flags().set_broadcast());
    });
    let (to, offer) = heard(&datagram).unwrap();
    assert_eq!(to, To::Everyone);
    assert!(offer.flags().broadcast());
}

#[test]
fn an_answer_carries_the_clients_own_identifier_back() {
    let identifier = DhcpOption::ClientIdentifier(vec![0xff, 1, 2, 3]);
    let datagram = says(MessageType::Discover, |message| {
        message.opts_mut().insert(identifier.clone());
    });
    assert_eq!(heard(&datagram).unwrap().1.opts().get(OptionCode::ClientIdentifier), Some(&identifier));
}

#[test]
fn an_answer_that_would_not_fit_leaves_out_what_a_guest_can_do_without() {
    let many = (0..60).map(|number| (Ipv4Net::new(Ipv4Addr::new(172, 16, number, 0), 24).unwrap(), OTHER));
    let facts = Facts { routes: many.collect(), ..facts() };
    let answer = answer(&says(MessageType::Discover, |_| ()), &leases(), &facts).unwrap();
    assert!(answer.bytes.len() <= ORDINARY_MESSAGE, "{}", answer.bytes.len());
    let offer = Message::decode(&mut Decoder::new(&answer.bytes)).unwrap();
    assert!(!offer.opts().contains(OptionCode::ClasslessStaticRoute));
    assert!(offer.opts().contains(OptionCode::Router) && offer.opts().contains(OptionCode::Hostname));
}

#[test]
fn options_that_break_decoders_do_not_cost_a_guest_its_answer() {
    // A host name that is not UTF-8, and a route with a prefix of 33 bits.
    for option in [&[12, 2, 0xff, 0xfe][..], &[121, 9, 33, 1, 2, 3, 4, 5, 6, 7, 8]] {
        let mut datagram = says(MessageType::Discover, |_| ());
        let end = datagram.iter().rposition(|byte| *byte == 255).unwrap();
        datagram.truncate(end);
        datagram.extend_from_slice(option);
        datagram.push(255);
        assert_eq!(heard(&datagram).unwrap().1.yiaddr(), OWN);
    }
}

/// A client's message with anything in it that a guest can put there.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let kinds = prop_oneof![(0u8..=20).prop_map(MessageType::from)];
    (kinds, any::<[u8; 4]>(), any::<[u8; 4]>(), any::<u16>(), prop::collection::vec(any::<u8>(), 0..64))
        .prop_map(|(kind, wanted, in_use, size, identifier)| {
            says(kind, |message| {
                message.set_ciaddr(in_use);
                message.opts_mut().insert(DhcpOption::RequestedIpAddress(wanted.into()));
                message.opts_mut().insert(DhcpOption::MaxMessageSize(size));
                message.opts_mut().insert(DhcpOption::ClientIdentifier(identifier));
            })
        })
}

proptest! {
    #[test]
    fn no_bytes_make_the_server_fall_over(datagram in prop::collection::vec(any::<u8>(), 0..2048)) {
        let _ = answer(&datagram, &leases(), &facts());
    }

    #[test]
    fn a_message_broken_anywhere_never_makes_it_fall_over_or_give_another_address(
        datagram in hostile(), at in 0usize..400, byte: u8, length in 0usize..600,
    ) {
        let mut datagram = datagram;
        let at = at % datagram.len();
        datagram[at] = byte;
        datagram.truncate(length);
        if let Some((_, message)) = heard(&datagram) {
            prop_assert!(message.yiaddr() == OWN || message.yiaddr().is_unspecified());
        }
    }

    #[test]
    fn whatever_a_guest_says_it_gets_its_own_address_or_none_and_the_answer_fits(datagram in hostile()) {
        if let Some(said) = answer(&datagram, &leases(), &facts()) {
            prop_assert!((SMALLEST_MESSAGE..=LARGEST_MESSAGE).contains(&said.bytes.len()));
            let message = Message::decode(&mut Decoder::new(&said.bytes)).unwrap();
            prop_assert!(message.yiaddr() == OWN || message.yiaddr().is_unspecified());
            prop_assert_eq!(kind(&message) == MessageType::Nak, said.to == To::Everyone);
            if let To::Address(address) | To::Newcomer(address, _) = said.to {
                prop_assert_eq!(address, OWN);
            }
        }
    }
}
