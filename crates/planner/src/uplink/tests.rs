//! A pretended host takes the steps, so that whole stories are told: every one must come to rest.

use super::*;
use crate::link::Bond;

const ALL: Abilities = Abilities { bonding: true, vlan_filtering: true };
const NONE: Abilities = Abilities { bonding: false, vlan_filtering: false };

fn nic(index: u32, name: &str) -> Link {
    Link { index, name: name.into(), kind: "device".into(), mtu: 1500, running: true, ..Link::default() }
}

fn wish(nics: &[&str]) -> Wish {
    Wish {
        cluster_network: "lab".into(),
        nics: nics.iter().map(|nic| nic.to_string()).collect(),
        mode: "active-backup".into(),
        miimon: Some(100),
        mtu: 1500,
        tx_queue_len: None,
        stood: false,
    }
}

/// What a kernel makes of a step.
fn take(links: &mut Vec<Link>, step: &Step, next_index: &mut u32) {
    let mut fresh = |name: &str, kind: &str| {
        *next_index += 1;
        Link { index: *next_index, name: name.into(), kind: kind.into(), mtu: 1500, ..Link::default() }
    };
    let find = |links: &mut Vec<Link>, wanted: u32| -> usize {
        links.iter().position(|link| link.index == wanted).expect("a step is about a link that is there")
    };
    match step {
        Step::MakeBridge { name, mtu, vlan_filtering } => {
            let made = fresh(name, "bridge");
            links.push(Link { ours: true, mtu: *mtu, vlan_filtering: Some(*vlan_filtering), ..made });
        }
        Step::MakeBond { name, bridge, mode, miimon, .. } => {
            let bond = Bond { mode: mode.clone(), miimon: miimon.unwrap_or_default() };
            links.push(Link { controller: Some(*bridge), bond: Some(bond), ..fresh(name, "bond") });
        }
        Step::Attach { index, to, mtu, .. } => {
            let at = find(links, *index);
            assert!(links[at].addresses.is_empty(), "what carries an address is never taken");
            (links[at].controller, links[at].mtu, links[at].on) = (Some(*to), *mtu, true);
        }
        Step::Detach { index, .. } => {
            let at = find(links, *index);
            assert!(!links[at].is_tap(), "no machine is unplugged");
            links[at].controller = None;
        }
        Step::SetMtu { index, mtu, .. } => {
            let at = find(links, *index);
            links[at].mtu = *mtu;
        }
        Step::SwitchOn { index, .. } => {
            let at = find(links, *index);
            links[at].on = true;
        }
        Step::Remove { index, .. } => {
            let at = find(links, *index);
            assert!(links[at].kind != "device", "no NIC is removed");
            links.remove(at);
            links.iter_mut().filter(|link| link.controller == Some(*index)).for_each(|l| l.controller = None);
        }
    }
}

/// Steps until it rests or is refused; how many they were and what was said.
fn settle(links: &mut Vec<Link>, decide: impl Fn(&[Link]) -> Decision) -> (usize, Result<String, String>) {
    let mut next_index = 100 + links.len() as u32 * 10;
    for steps in 0..50 {
        match decide(links) {
            Decision::Rest { note } => return (steps, Ok(note)),
            Decision::Refuse { why } => return (steps, Err(why)),
            Decision::Take(step) => take(links, &step, &mut next_index),
        }
    }
    panic!("it never rests: {links:#?}");
}

fn named<'a>(links: &'a [Link], name: &str) -> &'a Link {
    links.iter().find(|link| link.name == name).unwrap()
}

#[test]
fn two_nics_become_a_bond_in_a_bridge_and_resting_does_nothing() {
    let mut links = vec![nic(2, "eth1"), nic(3, "eth2"), nic(4, "eth0")];
    let before = links.clone();
    let (steps, said) = settle(&mut links, |links| next_step(&wish(&["eth1", "eth2"]), links, ALL));
    assert!(steps > 4 && said == Ok(String::new()), "{said:?}");
    let (bridge, bond) = (named(&links, "lab-br"), named(&links, "lab-bo"));
    assert_eq!((bridge.vlan_filtering, bridge.on, bond.on), (Some(true), true, true));
    assert_eq!(bond.controller, Some(bridge.index));
    assert_eq!(bond.bond, Some(Bond { mode: "active-backup".into(), miimon: 100 }));
    for name in ["eth1", "eth2"] {
        assert_eq!(named(&links, name).controller, Some(bond.index), "{name}");
    }
    assert_eq!(named(&links, "eth0"), named(&before, "eth0"), "what was not named is not touched");
    let (steps, _) = settle(&mut links, |links| next_step(&wish(&["eth1", "eth2"]), links, ALL));
    assert_eq!(steps, 0, "nothing is left to do");
    let (_, said) = settle(&mut links, |links| next_removal("lab", links));
    assert_eq!(said, Ok(String::new()));
    assert_eq!(links.len(), 3, "and nothing of it is left");
    assert!(links.iter().all(|link| link.controller.is_none()));
}

#[test]
fn whatever_was_half_done_is_gone_on_with_and_can_be_taken_away() {
    let wish = wish(&["eth1", "eth2"]);
    for cut in 0..9 {
        let mut links = vec![nic(2, "eth1"), nic(3, "eth2")];
        let mut next_index = 10;
        for _ in 0..cut {
            if let Decision::Take(step) = next_step(&wish, &links, ALL) {
                take(&mut links, &step, &mut next_index);
            }
        }
        let mut other = links.clone();
        assert_eq!(settle(&mut links, |links| next_step(&wish, links, ALL)).1, Ok(String::new()));
        assert_eq!(settle(&mut other, |links| next_removal("lab", links)).1, Ok(String::new()));
        assert_eq!(other.len(), 2, "cut after {cut}");
    }
}

#[test]
fn another_mode_makes_the_bond_anew_and_other_nics_take_the_place_of_those_before() {
    let mut links = vec![nic(2, "eth1"), nic(3, "eth2")];
    settle(&mut links, |links| next_step(&wish(&["eth1"]), links, ALL)).1.unwrap();
    let mut other = wish(&["eth2"]);
    other.mode = LACP.into();
    other.mtu = 9000;
    settle(&mut links, |links| next_step(&other, links, ALL)).1.unwrap();
    let bond = named(&links, "lab-bo");
    assert_eq!(bond.bond.as_ref().unwrap().mode, LACP);
    assert_eq!(
        (named(&links, "eth1").controller, named(&links, "eth2").controller),
        (None, Some(bond.index))
    );
    for name in ["lab-br", "lab-bo", "eth2"] {
        assert_eq!(named(&links, name).mtu, 9000, "{name}");
    }
}

#[test]
fn without_bonding_one_nic_is_in_the_bridge_itself_and_that_is_said() {
    let mut links = vec![nic(2, "eth1"), nic(3, "eth2")];
    let (_, said) = settle(&mut links, |links| next_step(&wish(&["eth1"]), links, NONE));
    let said = said.unwrap();
    assert!(said.contains("CONFIG_BONDING") && said.contains("eth1 is in lab-br itself"), "{said}");
    assert!(said.contains("CONFIG_BRIDGE_VLAN_FILTERING") && said.contains("only untagged"), "{said}");
    assert_eq!(named(&links, "eth1").controller, Some(named(&links, "lab-br").index));
    settle(&mut links, |links| next_step(&wish(&["eth2"]), links, NONE)).1.unwrap();
    assert_eq!(named(&links, "eth1").controller, None);
    // The kernel learned it meanwhile.
    settle(&mut links, |links| next_step(&wish(&["eth2"]), links, ALL)).1.unwrap();
    assert_eq!(named(&links, "eth2").controller, Some(named(&links, "lab-bo").index));
    settle(&mut links, |links| next_step(&wish(&["eth2"]), links, NONE)).1.unwrap();
    assert!(links.iter().all(|link| link.name != "lab-bo"));
    settle(&mut links, |links| next_removal("lab", links)).1.unwrap();
    assert_eq!(links.len(), 2);
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_touched() {
    let mut reached = nic(2, "eth0");
    reached.addresses = vec!["192.0.2.1".parse().unwrap()];
    let host = vec![
        reached,
        nic(3, "eth1"),
        Link { kind: "bridge".into(), ..nic(4, "br0") },
        Link { controller: Some(4), ..nic(5, "eth2") },
        Link { below: Some(7), kind: "vlan".into(), ..nic(6, "eth3.5") },
        nic(7, "eth3"),
        Link { loopback: true, ..nic(1, "lo") },
    ];
    let mut lacp = wish(&["eth1"]);
    lacp.mode = LACP.into();
    for (wish, abilities, words) in [
        (wish(&["eth9"]), ALL, "this node has no NIC eth9"),
        (wish(&["eth1", "eth0"]), ALL, "eth0 carries 192.0.2.1, by which this node is reached"),
        (wish(&["eth2"]), ALL, "eth2 is already part of br0"),
        (wish(&["eth3"]), ALL, "eth3 carries the interface eth3.5"),
        (wish(&["br0"]), ALL, "br0 is no NIC"),
        (wish(&["lo"]), ALL, "lo is no NIC"),
        (wish(&["eth1", "eth3"]), NONE, "no bonding (CONFIG_BONDING), which an uplink of 2 NICs takes"),
        (lacp, NONE, "which mode 802.3ad takes"),
    ] {
        let mut links = host.clone();
        let (steps, said) = settle(&mut links, |links| next_step(&wish, links, abilities));
        assert!(said.as_ref().is_err_and(|why| why.contains(words)), "{said:?}, not {words}");
        assert_eq!((steps, links), (0, host.clone()));
    }
}

#[test]
fn the_nic_that_the_node_was_reached_by_is_not_taken_when_its_address_is_gone() {
    let own = Link { own: Some("the default route of this node goes over it".into()), ..nic(2, "eth0") };
    let mut links = vec![own, nic(3, "eth1")];
    let before = links.clone();
    for wish in [wish(&["eth0"]), wish(&["eth1", "eth0"])] {
        let (_, said) = settle(&mut links, |links| next_step(&wish, links, ALL));
        let why = said.unwrap_err();
        assert!(
            why.contains("eth0 is the node's own: the default route") && why.contains("sheaf.io/own-nics")
        );
        assert_eq!(links, before);
    }
    // One that the uplink has when the node comes to be reached by it is let go of.
    links[0].own = None;
    settle(&mut links, |links| next_step(&wish(&["eth1", "eth0"]), links, ALL)).1.unwrap();
    links[0].own = Some("the address 192.0.2.1 of this node is on it".into());
    let note = settle(&mut links, |links| next_step(&wish(&["eth1", "eth0"]), links, ALL)).1.unwrap();
    assert!(note.contains("eth0 is left out: eth0 is the node's own"), "{note}");
    assert_eq!(links[0].controller, None);
    assert_eq!(links[1].controller, Some(named(&links, "lab-bo").index));
}

#[test]
fn an_uplink_stays_while_it_has_a_good_nic_and_says_which_is_not() {
    let both = wish(&["eth1", "eth2"]);
    let mut links = vec![nic(2, "eth1"), nic(3, "eth2")];
    settle(&mut links, |links| next_step(&both, links, ALL)).1.unwrap();
    let whole = links.clone();
    let bond = named(&links, "lab-bo").index;
    // It is gone, and comes back.
    links.retain(|link| link.name != "eth2");
    let (steps, said) = settle(&mut links, |links| next_step(&both, links, ALL));
    assert_eq!((steps, said.unwrap().as_str()), (0, "eth2 is left out: this node has no NIC eth2"));
    assert_eq!(named(&links, "eth1").controller, Some(bond));
    links.push(nic(9, "eth2"));
    assert_eq!(settle(&mut links, |links| next_step(&both, links, ALL)).1.unwrap(), "");
    assert_eq!(named(&links, "eth2").controller, Some(bond));
    // Its cable is out, or it did not do what it was told: the other one carries on.
    let at = links.iter().position(|link| link.name == "eth2").unwrap();
    links[at].running = false;
    assert_eq!(
        settle(&mut links, |links| next_step(&both, links, ALL)),
        (0, Ok("eth2 has no carrier".into()))
    );
    (links[at].running, links[at].trouble) = (true, Some("cannot change eth2".into()));
    let note = settle(&mut links, |links| next_step(&both, links, ALL)).1.unwrap();
    assert_eq!(note, "eth2 is left out: cannot change eth2");
    assert_eq!((named(&links, "eth1").controller, links[at].controller), (Some(bond), None));
    // With none that is good there is no uplink; nor is one made of half its NICs that never was.
    links.iter_mut().for_each(|link| link.trouble = Some("no".into()));
    assert_eq!(settle(&mut links, |links| next_step(&both, links, ALL)).1, Err("no".into()));
    let mut fresh = vec![nic(2, "eth1")];
    assert!(settle(&mut fresh, |links| next_step(&both, links, ALL)).1.is_err());
    // One that was there is made again of what there is, as after a restart of the host.
    let again = Wish { stood: true, ..both };
    assert!(settle(&mut fresh, |links| next_step(&again, links, ALL)).1.unwrap().contains("no NIC eth2"));
    assert_eq!(whole.len(), 4);
}

#[test]
fn what_somebody_else_named_like_ours_is_never_touched() {
    for (name, kind) in [("lab-br", "bridge"), ("lab-bo", "bond"), ("lab-bo", "device")] {
        let mut links = vec![nic(2, "eth1"), Link { kind: kind.into(), ..nic(3, name) }];
        let before = links.clone();
        let (_, said) = settle(&mut links, |links| next_step(&wish(&["eth1"]), links, ALL));
        assert!(said.is_err_and(|why| why.contains("Sheaf did not make it")), "{name}");
        settle(&mut links, |links| next_removal("lab", links)).1.unwrap();
        assert_eq!(links, before);
    }
}

#[test]
fn a_bridge_is_not_removed_from_under_machines() {
    let mut links = vec![nic(2, "eth1")];
    settle(&mut links, |links| next_step(&wish(&["eth1"]), links, ALL)).1.unwrap();
    let bridge = named(&links, "lab-br").index;
    links.push(Link { kind: "tun".into(), controller: Some(bridge), ..nic(50, "vmnic-1") });
    let before = links.clone();
    let (_, said) = settle(&mut links, |links| next_removal("lab", links));
    assert!(said.is_err_and(|why| why.contains("vmnic-1")));
    assert_eq!(links, before);
    assert_eq!(settle(&mut links, |links| next_step(&wish(&["eth1"]), links, ALL)).0, 0, "and may stay");
}
