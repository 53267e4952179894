//! The rules that lead from the addresses of load balancers to guests, rendered from plain data.
//!
//! - A connection to a listener goes to one of its guests, each in turn; so does one that the host itself makes.
//! - One that comes from a guest, or from the host, goes on as the gateway's: its answer would otherwise go straight to
//!   the client, who asked somebody else.
//! - A guest that asks is led to another one of them: where a host has its bridges' traffic filtered as IP
//!   (`bridge-nf-call-iptables`), a frame does not go back through the port that it came from. So a guest that is alone
//!   behind an address may not reach itself there.
//! - All else at such an address is refused, but for ping. In particular no service of the host that listens on every
//!   address is reached by way of one; and a listener without a guest to lead to is refused at once, not left to wait.

use std::{fmt::Write as _, net::Ipv4Addr};

use super::Balanced;
use crate::config::NetworkConfig;

/// Up to so many guests each is led to the others: more would be rules without end.
const APART: usize = 16;

/// The ruleset that replaces whatever was there under the same name.
pub fn render(config: &NetworkConfig, wanted: &[Balanced]) -> String {
    let mut out = render_removal(config);
    if wanted.is_empty() {
        return out;
    }
    let table = config.names.balancing.as_str();
    let (bridge, cidr) = (config.names.bridge.as_str(), config.cidr.trunc());
    let addresses: Vec<String> = wanted.iter().map(|one| format!("\t\t\t{}", one.address)).collect();
    let addresses = addresses.join(",\n");
    let (chains, places) = render_listeners(wanted);
    let _ = write!(
        out,
        r#"
table inet {table} {{
	set addresses {{
		type ipv4_addr
		elements = {{
{addresses}
		}}
	}}

{chains}	chain balance {{
{places}	}}

	chain prerouting {{
		type nat hook prerouting priority dstnat; policy accept;
		ip daddr @addresses jump balance
	}}

	chain output {{
		type nat hook output priority -100; policy accept;
		ip daddr @addresses jump balance
	}}

	chain postrouting {{
		type nat hook postrouting priority srcnat; policy accept;
		oifname "{bridge}" ct status dnat ct original ip daddr @addresses jump answers
	}}

	chain answers {{
		ip saddr {cidr} masquerade
		fib saddr type local masquerade
	}}

	chain input {{
		type filter hook input priority filter - 5; policy accept;
		ip daddr @addresses jump refuse
	}}

	chain refuse {{
		ct state established,related accept
		icmp type echo-request accept
		meta l4proto tcp reject with tcp reset
		reject
	}}
}}
"#
    );
    out
}

/// The ruleset that removes ours, whether it is there or not.
pub fn render_removal(config: &NetworkConfig) -> String {
    let table = config.names.balancing.as_str();
    // Removing what is not there fails, adding what is there does not; hence both.
    format!("add table inet {table}\ndelete table inet {table}\n")
}

/// A chain per listener, and the rule that finds it.
fn render_listeners(wanted: &[Balanced]) -> (String, String) {
    let (mut chains, mut places) = (String::new(), Vec::new());
    let listeners = wanted.iter().filter(|one| !one.guests.is_empty());
    let listeners = listeners.flat_map(|one| one.listeners.iter().map(move |listener| (one, listener)));
    for (number, (one, listener)) in listeners.enumerate() {
        let (protocol, port) = (listener.protocol.name(), listener.guest_port);
        let _ = writeln!(chains, "\tchain listener_{number} {{");
        if (2..=APART).contains(&one.guests.len()) {
            for guest in &one.guests {
                let others: Vec<Ipv4Addr> =
                    one.guests.iter().copied().filter(|other| other != guest).collect();
                let to = choice(&others);
                let _ =
                    writeln!(chains, "\t\tip saddr {guest} meta l4proto {protocol} dnat ip to {to}:{port}");
            }
        }
        let _ =
            writeln!(chains, "\t\tmeta l4proto {protocol} dnat ip to {}:{port}\n\t}}\n", choice(&one.guests));
        places.push(format!(
            "\t\t\t{} . {} . {} : goto listener_{number}",
            one.address,
            listener.protocol.name(),
            listener.port
        ));
    }
    if places.is_empty() {
        return (chains, String::new());
    }
    let places = format!("\t\tip daddr . meta l4proto . th dport vmap {{\n{}\n\t\t}}\n", places.join(",\n"));
    (chains, places)
}

/// One of these, each in turn.
fn choice(guests: &[Ipv4Addr]) -> String {
    let places: Vec<String> = guests.iter().enumerate().map(|(n, guest)| format!("{n} : {guest}")).collect();
    match guests {
        [only] => only.to_string(),
        several => format!("numgen inc mod {} map {{ {} }}", several.len(), places.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        balancing::{Listener, Protocol},
        names::NetworkNames,
    };

    fn rendered(wanted: &[Balanced]) -> String {
        render(&NetworkConfig::new(NetworkNames::plain(), "10.52.0.0/16".parse().unwrap()).unwrap(), wanted)
    }

    #[test]
    fn rules_of_nothing_are_none() {
        insta::assert_snapshot!("no_balancers", rendered(&[]));
    }

    #[test]
    fn rules_of_three_balancers_lead_each_listener_to_its_guests() {
        let guest = |last| Ipv4Addr::new(10, 52, 0, last);
        let listener = |protocol, port, guest_port| Listener { protocol, port, guest_port };
        let balanced = [
            Balanced {
                address: Ipv4Addr::new(192, 0, 2, 50),
                listeners: vec![listener(Protocol::Tcp, 80, 8080), listener(Protocol::Udp, 53, 5353)],
                guests: vec![guest(2), guest(3)],
            },
            Balanced {
                address: Ipv4Addr::new(192, 0, 2, 51),
                listeners: vec![listener(Protocol::Tcp, 443, 443)],
                guests: vec![guest(4)],
            },
            Balanced {
                address: Ipv4Addr::new(192, 0, 2, 52),
                listeners: vec![listener(Protocol::Tcp, 22, 22)],
                guests: vec![],
            },
        ];
        insta::assert_snapshot!("three_balancers", rendered(&balanced));
        let mut shut = balanced[2..].to_vec();
        shut[0].listeners.clear();
        assert!(!rendered(&shut).contains("vmap"), "an address without a guest leads nowhere");
    }
}
