//! Arithmetic on addresses that others need: the gateway of a network, what may be given
//! out, MACs. Pure. The allocator that gives addresses out lives elsewhere.

use std::{fmt, net::Ipv4Addr, str::FromStr};

use ipnet::Ipv4Net;

/// The hardware address of a NIC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

/// Text that is not a MAC.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a MAC: six two-digit hexadecimal numbers with colons between them")]
pub struct NotAMac {
    pub text: String,
}

/// What our bridges' own MACs begin with: locally administered, and apart from the
/// `02:` that virtual machines usually get. It is also how a bridge is known to be ours.
pub(crate) const OUR_BRIDGES: [u8; 2] = [0x0e, 0x5f];

/// What the MACs of the bridges of cluster networks begin with, which are known to be ours by the whole of it.
pub(crate) const OUR_UPLINKS: [u8; 2] = [0x0e, 0x5e];

/// The MAC of the bridge that holds the addresses of load balancers: one of ours, and no gateway's.
pub(crate) const HOLDER_MAC: Mac = Mac([OUR_BRIDGES[0], OUR_BRIDGES[1], 0, 0, 0, 0]);

impl Mac {
    /// Whether a NIC can have it: one station's address, and not nobody's.
    pub fn is_unicast(&self) -> bool {
        self.0[0] & 1 == 0 && self.0 != [0; 6]
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Mac {
    type Err = NotAMac;

    fn from_str(text: &str) -> Result<Mac, NotAMac> {
        let refused = || NotAMac { text: text.to_owned() };
        let mut octets = [0; 6];
        let mut parts = text.split([':', '-']);
        for octet in &mut octets {
            let part = parts.next().ok_or_else(refused)?;
            if part.len() != 2 || !part.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return Err(refused());
            }
            *octet = u8::from_str_radix(part, 16).map_err(|_| refused())?;
        }
        if parts.next().is_some() { Err(refused()) } else { Ok(Mac(octets)) }
    }
}

/// The address a network's gateway has unless told otherwise: the first that a host can
/// have. None where a network has no room for a gateway and a guest beside it.
pub fn gateway_of(network: Ipv4Net) -> Option<Ipv4Addr> {
    (network.prefix_len() <= 30).then(|| Ipv4Addr::from(u32::from(network.network()) + 1))
}

/// Whether a guest on `network` can have `address`: inside, and not the network's own,
/// its broadcast or its gateway.
pub fn is_assignable(network: Ipv4Net, gateway: Ipv4Addr, address: Ipv4Addr) -> bool {
    network.contains(&address)
        && address != network.network()
        && address != network.broadcast()
        && address != gateway
}

/// The MAC of the bridge that has this gateway address.
///
/// It follows from the address alone, so it is the same on every node: a guest that
/// moves to another node finds its gateway where its neighbour table says it is. And it
/// is set rather than inherited from a port, which is what a bridge does otherwise, each
/// time a tap comes or goes.
pub fn gateway_mac(gateway: Ipv4Addr) -> Mac {
    let [a, b, c, d] = gateway.octets();
    Mac([OUR_BRIDGES[0], OUR_BRIDGES[1], a, b, c, d])
}

/// The host name of a guest that was given none: the same one every time.
pub fn hostname_of(mac: Mac) -> String {
    let digits: String = mac.0.iter().map(|octet| format!("{octet:02x}")).collect();
    format!("vm-{digits}")
}

/// Whether `name` can be a host name, or several labels with dots between them.
pub fn is_hostname(name: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn networks() -> impl Strategy<Value = Ipv4Net> {
        (any::<u32>(), 1u8..=30)
            .prop_map(|(bits, prefix)| Ipv4Net::new(Ipv4Addr::from(bits), prefix).unwrap().trunc())
    }

    proptest! {
        #[test]
        fn a_gateway_lies_inside_its_network_and_is_neither_end_of_it(network in networks()) {
            let gateway = gateway_of(network).unwrap();
            prop_assert!(network.contains(&gateway));
            prop_assert!(gateway != network.network() && gateway != network.broadcast());
            prop_assert!(!is_assignable(network, gateway, gateway));
        }

        #[test]
        fn what_is_assignable_is_one_of_the_hosts_of_the_network(network in networks(), bits: u32) {
            let gateway = gateway_of(network).unwrap();
            let offset = bits % (1u32 << (32 - network.prefix_len()));
            let address = Ipv4Addr::from(u32::from(network.network()) + offset);
            let last = (1u32 << (32 - network.prefix_len())) - 1;
            prop_assert_eq!(is_assignable(network, gateway, address), offset > 1 && offset < last);
        }

        #[test]
        fn nothing_outside_a_network_is_assignable_in_it(network in networks(), bits: u32) {
            let address = Ipv4Addr::from(bits);
            let outside = bits >> (32 - network.prefix_len()) != u32::from(network.network()) >> (32 - network.prefix_len());
            prop_assert!(!outside || !is_assignable(network, gateway_of(network).unwrap(), address));
        }

        #[test]
        fn a_mac_reads_back_as_it_was_written(octets: [u8; 6]) {
            prop_assert_eq!(Mac(octets).to_string().parse(), Ok(Mac(octets)));
        }

        #[test]
        fn no_text_makes_the_parser_of_macs_fall_over(text in ".{0,24}") {
            let _ = text.parse::<Mac>();
        }

        #[test]
        fn a_name_from_a_mac_is_a_host_name_and_no_two_macs_share_it(one: [u8; 6], other: [u8; 6]) {
            prop_assert!(is_hostname(&hostname_of(Mac(one))));
            prop_assert_eq!(one == other, hostname_of(Mac(one)) == hostname_of(Mac(other)));
        }

        #[test]
        fn gateways_differ_in_mac_and_every_such_mac_is_a_unicast_one(one: u32, other: u32) {
            let mac = |bits| gateway_mac(Ipv4Addr::from(bits));
            prop_assert!(mac(one).is_unicast());
            prop_assert_eq!(one == other, mac(one) == mac(other));
        }
    }

    #[test]
    fn a_network_too_small_for_a_guest_has_no_gateway() {
        assert_eq!(gateway_of("10.0.0.0/31".parse().unwrap()), None);
        assert_eq!(gateway_of("10.0.0.0/32".parse().unwrap()), None);
        assert_eq!(gateway_of("10.52.0.0/16".parse().unwrap()), Some(Ipv4Addr::new(10, 52, 0, 1)));
    }

    #[test]
    fn group_addresses_and_nobodys_are_no_nics() {
        for (mac, unicast) in [
            ("02:00:00:00:00:01", true),
            ("01:00:5e:00:00:01", false),
            ("ff:ff:ff:ff:ff:ff", false),
            ("00:00:00:00:00:00", false),
        ] {
            assert_eq!(mac.parse::<Mac>().unwrap().is_unicast(), unicast, "{mac}");
        }
    }

    #[test]
    fn what_cannot_be_a_host_name_is_told_apart() {
        for good in ["vm", "vm-1", "web.default", "a"] {
            assert!(is_hostname(good), "{good}");
        }
        for bad in ["", "-vm", "vm-", "v m", "vm..x", "vm\n", "ü", &"a".repeat(64)] {
            assert!(!is_hostname(bad), "{bad:?}");
        }
    }
}
