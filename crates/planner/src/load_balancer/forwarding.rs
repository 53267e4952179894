//! Decides what a node does for a load balancer that is its own: which address it holds, where it forwards to, what it says.
//!
//! A node takes nobody's word for what is safe to do to its host. It holds no address that is its own, a guest's or no
//! ordinary one, and it forwards to nothing but guests of its segment.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
};

use sheaf_resources::kinds::{
    harvester_condition::set_condition,
    ip_pool::Cidr,
    load_balancer::{FORWARDING, LoadBalancer, LoadBalancerStatus},
};

use super::health::Health;

/// What a node knows of its host.
#[derive(Clone, Copy, Debug)]
pub struct Host<'a> {
    pub node: &'a str,
    /// The network that its guests are on, and its own address there.
    pub segment: Cidr,
    pub gateway: Ipv4Addr,
    /// The addresses of the host that no load balancer brought.
    pub own: &'a BTreeSet<Ipv4Addr>,
    /// The addresses of the guests here.
    pub guests: &'a BTreeSet<Ipv4Addr>,
}

/// What is to be done about an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// None is held.
    Nothing,
    Hold(Ipv4Addr),
    /// It was given one that this node does not hold.
    Refuse(String),
}

pub fn wish(balancer: &LoadBalancer, host: &Host<'_>) -> Wish {
    let status = &balancer.status;
    let is_ours = status.node_name == host.node && !balancer.spec.is_for_cluster();
    if !is_ours || balancer.metadata.deletion_timestamp.is_some() || status.allocated_address.ip.is_empty() {
        return Wish::Nothing;
    }
    let Ok(address) = status.allocated_address.ip.parse::<Ipv4Addr>() else {
        return Wish::Refuse(format!("{} is not an IPv4 address", status.allocated_address.ip));
    };
    match why_not(address, host) {
        None => Wish::Hold(address),
        Some(why) => Wish::Refuse(format!("node {} does not hold {address}: {why}", host.node)),
    }
}

fn why_not(address: Ipv4Addr, host: &Host<'_>) -> Option<&'static str> {
    let is_ordinary = !(address.is_unspecified()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_broadcast()
        // The last block, which no host has.
        || address.octets()[0] >= 240
        || address.octets()[0] == 0);
    if !is_ordinary {
        return Some("it is not an address that a service can have");
    }
    if host.own.contains(&address) || address == host.gateway {
        return Some("it is an address of the node itself");
    }
    if host.guests.contains(&address) {
        return Some("it is the address of a machine");
    }
    if address == host.segment.network || address == host.segment.broadcast() {
        return Some("it is the address of the machines' network itself");
    }
    None
}

/// What may be on the host: the addresses that their balancers say. That one of them could not be written is no reason to
/// hold up the others.
pub fn said<'a, Place: Ord>(
    wishes: &'a BTreeMap<Place, Wish>,
    balancers: &BTreeMap<Place, LoadBalancer>,
) -> BTreeMap<&'a Place, Ipv4Addr> {
    let wanted = wishes.iter().filter_map(|(place, wish)| match wish {
        Wish::Hold(address) => Some((place, *address)),
        Wish::Nothing | Wish::Refuse(_) => None,
    });
    wanted
        .filter(|(place, address)| {
            balancers.get(*place).is_some_and(|one| one.status.address == address.to_string())
        })
        .collect()
}

/// The backend servers that connections may go to.
pub fn backends(status: &LoadBalancerStatus, host: &Host<'_>) -> Vec<Ipv4Addr> {
    let is_guest = |address: &Ipv4Addr| {
        host.segment.contains(*address)
            && *address != host.gateway
            && *address != host.segment.network
            && *address != host.segment.broadcast()
            && !host.own.contains(address)
    };
    status.backend_servers.iter().filter_map(|text| text.parse().ok()).filter(is_guest).collect()
}

/// What was found out about a backend server before, here or on another node. Only while the address is held anything is.
pub fn health_of(status: &LoadBalancerStatus, server: Ipv4Addr) -> Health {
    let text = server.to_string();
    match status.address.is_empty() || status.condition(FORWARDING).is_none() {
        true => Health::Unknown,
        false => Health::known(!status.unhealthy_servers.contains(&text)),
    }
}

/// How forwarding goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The address is, or is about to be, on this host; nothing else is known yet.
    Taking(Ipv4Addr),
    /// It is held, and all of so many servers get connections but those that are not well.
    Held { address: Ipv4Addr, unwell: Vec<Ipv4Addr>, of: usize, announced: bool },
    /// It is not on this host, and why.
    NotHeld(String),
    /// It is on this host as before, and something went wrong.
    Failed(String),
}

/// What the node says of it.
pub fn status(balancer: &LoadBalancer, outcome: &Outcome, now: &str) -> LoadBalancerStatus {
    let mut status = balancer.status.clone();
    let (truth, reason, message) = match outcome {
        Outcome::Taking(address) => {
            status.address = address.to_string();
            return status;
        }
        Outcome::Held { address, unwell, of, announced } => {
            status.address = address.to_string();
            status.unhealthy_servers = unwell.iter().map(ToString::to_string).collect();
            let well = of.saturating_sub(unwell.len());
            match (well, announced) {
                (0, _) if *of > 0 => (
                    "False",
                    "NoHealthyServer",
                    format!("running backend servers are not probed as healthy total:{of}, healthy:0"),
                ),
                (0, _) => ("False", "NoBackendServer", "no running backend servers".to_owned()),
                (_, true) => {
                    ("True", "Forwarding", format!("{well} of {of} backend servers get connections"))
                }
                (_, false) => (
                    "True",
                    "NotAnnounced",
                    format!(
                        "{well} of {of} backend servers get connections; no interface of the node is on a network of \
                         {address}, so only who has a route to the node reaches it"
                    ),
                ),
            }
        }
        Outcome::NotHeld(why) => {
            status.address = String::new();
            status.unhealthy_servers = Vec::new();
            ("False", "NotHeld", why.clone())
        }
        Outcome::Failed(why) => ("False", "Failed", why.clone()),
    };
    set_condition(&mut status.conditions, FORWARDING, truth, (reason, &message), now);
    status
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn balancer(change: impl FnOnce(&mut Value)) -> LoadBalancer {
        let mut balancer = json!({"metadata": {"name": "lb"}, "spec": {}, "status": {
            "nodeName": "n1", "allocatedAddress": {"ip": "192.0.2.50"}}});
        change(&mut balancer);
        serde_json::from_value(balancer).unwrap()
    }

    fn asked(change: impl FnOnce(&mut Value)) -> Wish {
        let own = BTreeSet::from([Ipv4Addr::new(192, 0, 2, 1)]);
        let guests = BTreeSet::from([Ipv4Addr::new(10, 52, 0, 2)]);
        let host = Host {
            node: "n1",
            segment: Cidr::DEFAULT_NETWORK,
            gateway: Ipv4Addr::new(10, 52, 0, 1),
            own: &own,
            guests: &guests,
        };
        wish(&balancer(change), &host)
    }

    #[test]
    fn only_the_node_that_is_named_holds_an_address_and_only_while_it_is_given() {
        assert_eq!(asked(|_| {}), Wish::Hold(Ipv4Addr::new(192, 0, 2, 50)));
        let changes: [fn(&mut Value); 4] = [
            |one| one["status"]["nodeName"] = json!("n2"),
            |one| one["status"]["allocatedAddress"] = json!({}),
            |one| one["spec"]["workloadType"] = json!("cluster"),
            |one| one["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
        ];
        for change in changes {
            assert_eq!(asked(change), Wish::Nothing);
        }
    }

    #[test]
    fn a_node_holds_no_address_that_is_its_own_or_a_guests_or_no_ordinary_one() {
        for address in [
            "192.0.2.1",
            "10.52.0.1",
            "10.52.0.2",
            "10.52.0.0",
            "10.52.255.255",
            "127.0.0.1",
            "169.254.169.254",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "0.1.2.3",
            "240.0.0.1",
            "fe80::1",
        ] {
            let wish = asked(|one| one["status"]["allocatedAddress"]["ip"] = json!(address));
            assert!(matches!(wish, Wish::Refuse(_)), "{address}: {wish:?}");
        }
    }

    #[test]
    fn connections_go_to_guests_of_the_segment_and_nowhere_else() {
        let own = BTreeSet::from([Ipv4Addr::new(10, 52, 9, 9)]);
        let guests = BTreeSet::new();
        let host = Host {
            node: "n1",
            segment: Cidr::DEFAULT_NETWORK,
            gateway: Ipv4Addr::new(10, 52, 0, 1),
            own: &own,
            guests: &guests,
        };
        let all = [
            "10.52.0.7",
            "10.52.0.1",
            "127.0.0.1",
            "169.254.0.1",
            "192.0.2.1",
            "10.52.9.9",
            "10.52.255.255",
            "x",
        ];
        let status = LoadBalancerStatus {
            backend_servers: all.map(str::to_owned).to_vec(),
            ..LoadBalancerStatus::default()
        };
        assert_eq!(backends(&status, &host), [Ipv4Addr::new(10, 52, 0, 7)]);
    }

    #[test]
    fn one_balancer_that_cannot_be_written_holds_up_no_other() {
        let address = |last| Ipv4Addr::new(192, 0, 2, last);
        let says = |text: &str| balancer(|one| one["status"]["address"] = json!(text));
        let balancers = BTreeMap::from([
            ("held", says("192.0.2.50")),
            ("written", says("192.0.2.51")),
            ("unwritten", says("")),
            ("moving", says("192.0.2.53")),
            ("refused", says("192.0.2.55")),
        ]);
        let wishes = BTreeMap::from([
            ("held", Wish::Hold(address(50))),
            ("written", Wish::Hold(address(51))),
            ("unwritten", Wish::Hold(address(52))),
            ("moving", Wish::Hold(address(54))),
            ("refused", Wish::Refuse("it is an address of the node itself".to_owned())),
            ("gone", Wish::Hold(address(56))),
        ]);
        let held: Vec<_> = said(&wishes, &balancers).into_iter().map(|(place, at)| (*place, at)).collect();
        assert_eq!(held, [("held", address(50)), ("written", address(51))]);
    }

    #[test]
    fn an_address_is_said_before_it_is_held_and_until_it_is_let_go() {
        let address = Ipv4Addr::new(192, 0, 2, 50);
        let mut held = balancer(|_| {});
        held.status = status(&held, &Outcome::Taking(address), "t1");
        assert_eq!((held.status.address.as_str(), held.status.conditions.len()), ("192.0.2.50", 0));
        let (one, two) = (Ipv4Addr::new(10, 52, 0, 7), Ipv4Addr::new(10, 52, 0, 8));
        let outcome =
            |unwell: &[Ipv4Addr]| Outcome::Held { address, unwell: unwell.to_vec(), of: 2, announced: true };
        assert_eq!(health_of(&held.status, one), Health::Unknown, "nobody has looked yet");
        held.status = status(&held, &outcome(&[two]), "t2");
        assert_eq!(held.status.condition(FORWARDING).unwrap().status, "True");
        assert_eq!(health_of(&held.status, one), Health::known(true));
        assert_eq!(health_of(&held.status, two), Health::known(false));
        let again = status(&held, &outcome(&[two]), "t3");
        assert_eq!(again, held.status, "what stays as it is is not written again");
        let none = status(&held, &outcome(&[one, two]), "t3");
        let said = none.condition(FORWARDING).unwrap();
        assert!(said.status == "False" && said.message.contains("total:2, healthy:0"), "{said:?}");
        let failed = status(&held, &Outcome::Failed("no nft".to_owned()), "t4");
        assert_eq!(failed.address, "192.0.2.50", "it may still be there");
        assert_eq!(failed.unhealthy_servers, ["10.52.0.8"], "nor is it known to be better");
        let gone = status(&held, &Outcome::NotHeld(String::new()), "t5");
        assert_eq!((gone.address.as_str(), gone.unhealthy_servers.len()), ("", 0));
    }
}
