//! The rules that keep guests honest and let them out, as text for `nft`. Pure.
//!
//! Whole rulesets are rendered from plain data, and one replaces another in one
//! transaction (see `nft`). Two tables of the same name:
//!
//! **`bridge`: what a guest's tap may send.** Checked before the bridge learns anything
//! from a frame.
//!
//! - Frames from its own MAC, and no other.
//! - IPv4 from its own addresses, and DHCP questions before it has one.
//! - ARP that speaks of itself: sender MAC and address its own, or no address at all
//!   (the probe for a duplicate before an address is used).
//! - RARP, which is how QEMU announces a guest that has moved here. Nobody acts on what
//!   it says; its sender is what bridges learn from, and that was checked.
//! - Nothing to the DHCP clients' port: only the host answers those.
//! - Nothing else. In particular no VLAN tags, no spanning tree, and **no IPv6**: the
//!   segment gives out no IPv6 addresses, guests choose link-local ones that cannot be
//!   told from a neighbour's (RFC 7217 derives them from a secret of the guest), and a
//!   forged router advertisement would draw every other guest's traffic. Guests without
//!   a global address use IPv4 at once, so nobody waits.
//!
//! A tap with our prefix that no port names passes nothing at all: between making a
//! tap and naming its port, it is shut.
//!
//! **`inet`: where guests get to.** They reach each other, and through the host with its
//! address the outside, except link-local addresses (a cloud's metadata service would
//! take a guest for its host). Nothing from outside reaches them unasked, but for what
//! somebody on the host leads to them: a load balancer does. Of the host
//! itself they reach DHCP, and on the gateway's address DNS and ping; beyond that only
//! the TCP ports that were opened to them, and answers to what the host asked. A service
//! of the host that listens on every address is therefore not theirs to use; one that
//! listens on loopback is out of reach anyway.
//!
//! What these rules cannot do is overrule somebody else's: a packet that another table on
//! the host drops is dropped.

use std::{collections::BTreeSet, fmt::Write as _, net::Ipv4Addr};

use ipnet::Ipv4Net;

use crate::{
    addresses::Mac,
    names::{InterfaceName, NetworkNames, TableName},
};

/// What the rules need to know of a segment.
#[derive(Clone, Debug)]
pub struct SegmentRules<'a> {
    pub names: &'a NetworkNames,
    pub cidr: Ipv4Net,
    pub gateway: Ipv4Addr,
    pub guests_may_reach: &'a BTreeSet<u16>,
}

/// What the rules need to know of a port.
#[derive(Clone, Debug)]
pub struct PortRules {
    pub tap: InterfaceName,
    pub mac: Mac,
    pub addresses: Vec<Ipv4Addr>,
}

/// The ruleset that replaces whatever was there under the same names.
pub fn render(segment: &SegmentRules<'_>, ports: &[PortRules]) -> String {
    let mut out = render_removal(&segment.names.table);
    render_bridge(&mut out, segment, ports);
    render_inet(&mut out, segment);
    out
}

/// The ruleset that removes ours, whether it is there or not.
pub fn render_removal(table: &TableName) -> String {
    let table = table.as_str();
    // Removing what is not there fails, adding what is there does not; hence both.
    ["bridge", "inet"]
        .map(|family| format!("add table {family} {table}\ndelete table {family} {table}\n"))
        .concat()
}

fn render_bridge(out: &mut String, segment: &SegmentRules<'_>, ports: &[PortRules]) {
    let names = segment.names;
    let macs = ports.iter().map(|port| format!("\"{}\" . {}", port.tap, port.mac));
    let each_address =
        || ports.iter().flat_map(|port| port.addresses.iter().map(move |address| (port, address)));
    let addresses = each_address().map(|(port, address)| format!("\"{}\" . {address}", port.tap));
    let speakers =
        each_address().map(|(port, address)| format!("\"{}\" . {} . {address}", port.tap, port.mac));
    let sets = [
        set("macs", "ifname . ether_addr", macs),
        set("addresses", "ifname . ipv4_addr", addresses),
        set("arp_speakers", "ifname . ether_addr . ipv4_addr", speakers),
    ]
    .concat();
    let (table, prefix) = (names.table.as_str(), names.tap_prefix.as_str());
    let _ = write!(
        out,
        r#"
table bridge {table} {{
{sets}	chain prerouting {{
		type filter hook prerouting priority -200; policy accept;
		iifname "{prefix}*" goto from_guest
	}}

	chain from_guest {{
		iifname . ether saddr != @macs drop
		ether type ip goto guest_ipv4
		ether type arp goto guest_arp
		ether type 0x8035 accept
		drop
	}}

	chain guest_ipv4 {{
		udp dport 68 drop
		ip saddr 0.0.0.0 ip daddr 255.255.255.255 udp sport 68 udp dport 67 accept
		iifname . ip saddr @addresses accept
		drop
	}}

	chain guest_arp {{
		arp htype != 1 drop
		arp ptype != ip drop
		arp hlen != 6 drop
		arp plen != 4 drop
		iifname . arp saddr ether . arp saddr ip @arp_speakers accept
		arp saddr ip 0.0.0.0 iifname . arp saddr ether @macs accept
		drop
	}}
}}
"#
    );
}

fn render_inet(out: &mut String, segment: &SegmentRules<'_>) {
    let (table, bridge) = (segment.names.table.as_str(), segment.names.bridge.as_str());
    let (cidr, gateway) = (segment.cidr.trunc(), segment.gateway);
    let opened = match segment.guests_may_reach {
        ports if ports.is_empty() => String::new(),
        ports => {
            let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
            format!("\t\tmeta nfproto ipv4 tcp dport {{ {} }} accept\n", ports.join(", "))
        }
    };
    let _ = write!(
        out,
        r#"
table inet {table} {{
	chain input {{
		type filter hook input priority filter; policy accept;
		iifname "{bridge}" goto from_guests
	}}

	chain from_guests {{
		ct state established,related accept
		meta nfproto ipv4 udp dport 67 accept
		ip daddr {gateway} udp dport 53 accept
		ip daddr {gateway} tcp dport 53 accept
		ip daddr {gateway} icmp type echo-request accept
{opened}		drop
	}}

	chain forward {{
		type filter hook forward priority filter; policy accept;
		iifname "{bridge}" oifname "{bridge}" accept
		iifname "{bridge}" goto outwards
		oifname "{bridge}" goto inwards
	}}

	chain outwards {{
		meta nfproto != ipv4 drop
		ip saddr != {cidr} drop
		ip daddr 169.254.0.0/16 drop
		accept
	}}

	chain inwards {{
		ct state established,related accept
		ct status dnat accept
		drop
	}}

	chain postrouting {{
		type nat hook postrouting priority srcnat; policy accept;
		ip saddr {cidr} ip daddr != {cidr} oifname != "{bridge}" masquerade
	}}
}}
"#
    );
}

fn set(name: &str, kind: &str, elements: impl Iterator<Item = String>) -> String {
    let elements: Vec<String> = elements.map(|element| format!("\t\t\t{element}")).collect();
    let mut out = format!("\tset {name} {{\n\t\ttype {kind}\n");
    if !elements.is_empty() {
        let _ = writeln!(out, "\t\telements = {{\n{}\n\t\t}}", elements.join(",\n"));
    }
    out.push_str("\t}\n\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(ports: &[PortRules], guests_may_reach: &[u16]) -> String {
        let names = NetworkNames::plain();
        let segment = SegmentRules {
            names: &names,
            cidr: "10.52.0.0/16".parse().unwrap(),
            gateway: Ipv4Addr::new(10, 52, 0, 1),
            guests_may_reach: &guests_may_reach.iter().copied().collect(),
        };
        render(&segment, ports)
    }

    fn port(tap: &str, number: u8, addresses: &[u8]) -> PortRules {
        PortRules {
            tap: InterfaceName::new(tap).unwrap(),
            mac: Mac([2, 0, 0, 0, 0, number]),
            addresses: addresses.iter().map(|last| Ipv4Addr::new(10, 52, 0, *last)).collect(),
        }
    }

    #[test]
    fn rules_of_an_empty_host_shut_every_tap() {
        insta::assert_snapshot!("no_ports", rendered(&[], &[]));
    }

    #[test]
    fn rules_of_three_ports_name_each_mac_and_address_once() {
        let ports = [
            port("vmnic-aaaaaaaaa", 2, &[2]),
            port("vmnic-bbbbbbbbb", 3, &[3, 200]),
            port("vmnic-ccccccccc", 4, &[]),
        ];
        insta::assert_snapshot!("three_ports", rendered(&ports, &[6443, 443]));
    }

    #[test]
    fn removal_works_whether_there_was_something_or_not() {
        insta::assert_snapshot!("removal", render_removal(&NetworkNames::plain().table));
    }
}
