//! From which addresses an image is never fetched.
//!
//! Whoever may create an image chooses a URL and the node asks for it, so the URL must not
//! reach what only the node itself can: its own services, and the link-local address
//! under which clouds hand out credentials. Names are no guide, since anyone can
//! let a name mean `127.0.0.1`: the address that is connected to is what is judged. The host's other
//! addresses, that of the guests' gateway among them, lead to the same services.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// Whether this host itself, or only its own link, is reached at `address`.
pub fn is_refused(address: IpAddr) -> bool {
    is_local(address) || is_own(address)
}

/// Whether one of this host's interfaces has it now. The kernel lets nobody be an address that is not here; where it
/// was told to let everybody (`ip_nonlocal_bind`), nothing is fetched at all.
fn is_own(address: IpAddr) -> bool {
    let inner = match address {
        IpAddr::V6(address) => in_disguise(address).map_or(IpAddr::V6(address), IpAddr::V4),
        address => address,
    };
    UdpSocket::bind((inner, 0)).is_ok()
}

/// Whether only this host, or only its own link, is reached at `address`.
fn is_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_local_v4(address),
        IpAddr::V6(address) => is_local_v6(address),
    }
}

fn is_local_v4(address: Ipv4Addr) -> bool {
    address.is_loopback()
        || address.is_link_local()
        || address.is_broadcast()
        || address.is_multicast()
        // Linux takes all of 0.0.0.0/8 that it does not refuse for itself.
        || address.octets()[0] == 0
}

fn is_local_v6(address: Ipv6Addr) -> bool {
    address.is_loopback()
        || address.is_unspecified()
        || address.is_multicast()
        || address.is_unicast_link_local()
        || in_disguise(address).is_some_and(is_local_v4)
}

/// IPv4 as IPv6: mapped, compatible, or translated on the way.
fn in_disguise(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let segments = address.segments();
    let low = Ipv4Addr::from(((u32::from(segments[6])) << 16) | u32::from(segments[7]));
    match segments {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        [0, 0, 0, 0, 0, 0xffff | 0, _, _] | [0x64, 0xff9b, 0, 0, 0, 0, _, _] => Some(low),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_the_node_reaches_is_local_in_every_spelling() {
        for address in [
            "127.0.0.1",
            "127.8.9.1",
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
        ] {
            assert!(is_local(address.parse().unwrap()), "{address}");
        }
        for address in ["10.0.0.1", "192.168.1.1", "1.1.1.1", "2001:db8::1", "fd00::1", "::ffff:10.0.0.1"] {
            assert!(!is_local(address.parse().unwrap()), "{address}");
        }
    }
}
