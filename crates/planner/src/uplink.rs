//! Decides the next step for the uplink of one cluster network on one node.
//!
//! ```text
//!     machines            machines                 nothing wanted: the same backwards
//!         |                   |
//!   ---- lab-br ----    ---- lab-br ----           Detach ... Remove(lab-bo), Remove(lab-br)
//!         |                   |
//!       lab-bo                |  one NIC, and a kernel without bonding
//!      |      |               |
//!    eth1   eth2            eth1
//! ```
//!
//! - One step per call. The caller acts, looks again, and asks again. Nothing is remembered: what an earlier process left
//!   half done is found on the host and gone on with, or taken away.
//! - What cannot be is refused before anything is touched. A NIC that the node itself is reached by or was
//!   reached by, or that is part of something else, is never taken.
//! - It is made of all its NICs or not at all. One that is there stays while it has a good one; the others are left out, and
//!   that is said.
//! - A bridge that machines are plugged into is never removed from under them.

use std::fmt::Write as _;

use sheaf_resources::kinds::{
    cluster_network::{bond_of, bridge_of},
    vlan_config::{LACP, VlanConfigSpec},
};

use crate::link::Link;

/// On a node: its NICs that no uplink is made of, and why each is the node's own. A JSON object; its agent adds to it.
pub const OWN_NICS_ANNOTATION: &str = "sheaf.io/own-nics";

/// What the kernel of this node can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    pub bonding: bool,
    pub vlan_filtering: bool,
}

/// An uplink that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    pub cluster_network: String,
    pub nics: Vec<String>,
    pub mode: String,
    /// None leaves it to the kernel.
    pub miimon: Option<u32>,
    pub mtu: u32,
    pub tx_queue_len: Option<u32>,
    /// Whether it has been there: then it stays for as long as one of its NICs can be had.
    pub stood: bool,
}

impl Wish {
    pub fn of(spec: &VlanConfigSpec) -> Wish {
        Wish {
            cluster_network: spec.cluster_network.clone(),
            nics: spec.uplink.nics.clone(),
            mode: spec.bond_mode().to_owned(),
            miimon: spec.miimon(),
            mtu: spec.mtu(),
            tx_queue_len: spec.tx_queue_len(),
            stood: false,
        }
    }

    /// Whether the same is wished, whatever has been there.
    pub fn is_as(&self, other: &Wish) -> bool {
        Wish { stood: other.stood, ..self.clone() } == *other
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Makes the bridge, marked as ours, with VLANs told apart where that is possible.
    MakeBridge {
        name: String,
        mtu: u32,
        vlan_filtering: bool,
    },
    /// Makes the bond as a port of the bridge, in one call, so that it is never anybody else's.
    MakeBond {
        name: String,
        bridge: u32,
        mtu: u32,
        mode: String,
        miimon: Option<u32>,
        tx_queue_len: Option<u32>,
    },
    /// Makes a link a port of another, and switches it on.
    Attach {
        index: u32,
        name: String,
        to: u32,
        mtu: u32,
    },
    /// Takes a port off, and leaves it switched on for whoever uses it next.
    Detach {
        index: u32,
        name: String,
    },
    SetMtu {
        index: u32,
        name: String,
        mtu: u32,
    },
    SwitchOn {
        index: u32,
        name: String,
    },
    /// Removes a link of ours.
    Remove {
        index: u32,
        name: String,
    },
}

impl Step {
    /// The link it changes, if it changes one that is there.
    pub fn link_name(&self) -> Option<&str> {
        match self {
            Step::MakeBridge { .. } | Step::MakeBond { .. } => None,
            Step::Attach { name, .. }
            | Step::Detach { name, .. }
            | Step::SetMtu { name, .. }
            | Step::SwitchOn { name, .. }
            | Step::Remove { name, .. } => Some(name),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    Take(Step),
    /// All is as it should be; what is worth knowing about it.
    Rest {
        note: String,
    },
    /// It cannot be: why, and what to do.
    Refuse {
        why: String,
    },
}

/// Brings the uplink into being.
pub fn next_step(wish: &Wish, links: &[Link], abilities: Abilities) -> Decision {
    let (bridge_name, bond_name) = (bridge_of(&wish.cluster_network), bond_of(&wish.cluster_network));
    let named = |name: &str| links.iter().find(|link| link.name == name);
    let (bridge, bond) = (named(&bridge_name), named(&bond_name));
    if let Some(why) = refusal(wish, abilities, bridge, bond) {
        return Decision::Refuse { why };
    }
    let out: Vec<(&String, String)> =
        wish.nics.iter().filter_map(|name| Some((name, unfitness(name, links, [bridge, bond])?))).collect();
    let stands =
        wish.stood || wish.nics.iter().any(|name| named(name).is_some_and(|nic| is_in(nic, [bridge, bond])));
    if let Some((_, why)) = out.first().filter(|_| !stands || out.len() == wish.nics.len()) {
        return Decision::Refuse { why: why.clone() };
    }
    let nics: Vec<&String> =
        wish.nics.iter().filter(|nic| !out.iter().any(|(left, _)| left == nic)).collect();
    let Some(bridge) = bridge else {
        let vlan_filtering = abilities.vlan_filtering;
        return Decision::Take(Step::MakeBridge { name: bridge_name, mtu: wish.mtu, vlan_filtering });
    };
    let step = match (abilities.bonding, bond) {
        (true, None) => {
            let direct = ports_of(links, bridge.index).find(|port| !port.is_tap());
            Some(direct.map_or_else(
                || Step::MakeBond {
                    name: bond_name,
                    bridge: bridge.index,
                    mtu: wish.mtu,
                    mode: wish.mode.clone(),
                    miimon: wish.miimon,
                    tx_queue_len: wish.tx_queue_len,
                },
                // From a time when this kernel had no bonding.
                detach,
            ))
        }
        (true, Some(bond)) => mend_bond(wish, &nics, links, bond).or_else(|| mend(bond, wish.mtu)),
        (false, Some(bond)) => Some(take_away_bond(links, bond)),
        (false, None) => mend_ports(wish, &nics, links, bridge.index),
    };
    match step.or_else(|| mend(bridge, wish.mtu)) {
        Some(step) => Decision::Take(step),
        None => {
            let note = [faults(&nics, &out, links), note(wish, abilities)];
            let said: Vec<String> = note.into_iter().filter(|note| !note.is_empty()).collect();
            Decision::Rest { note: said.join(". ") }
        }
    }
}

/// Takes away what is left of an uplink that is not wanted. [`Decision::Rest`] means that nothing is.
pub fn next_removal(cluster_network: &str, links: &[Link]) -> Decision {
    let of_ours = |link: &&Link| link.ours && link.name == bridge_of(cluster_network);
    let Some(bridge) = links.iter().find(of_ours) else { return Decision::Rest { note: String::new() } };
    let taps: Vec<&str> =
        ports_of(links, bridge.index).filter(|port| port.is_tap()).map(|port| port.name.as_str()).collect();
    if !taps.is_empty() {
        let why = format!(
            "machines are still plugged into {} ({}); stop them, and the uplink goes",
            bridge.name,
            taps.join(", ")
        );
        return Decision::Refuse { why };
    }
    let bond = ports_of(links, bridge.index).find(|port| port.name == bond_of(cluster_network));
    Decision::Take(match (bond, ports_of(links, bridge.index).next()) {
        (Some(bond), _) => take_away_bond(links, bond),
        (None, Some(port)) => detach(port),
        (None, None) => Step::Remove { index: bridge.index, name: bridge.name.clone() },
    })
}

/// Why it cannot be, before anything is touched.
fn refusal(wish: &Wish, abilities: Abilities, bridge: Option<&Link>, bond: Option<&Link>) -> Option<String> {
    if let Some(bridge) = bridge.filter(|bridge| !bridge.ours) {
        return Some(format!(
            "this node already has an interface {}, and Sheaf did not make it; rename or remove it",
            bridge.name
        ));
    }
    let of_bridge = |link: &Link| bridge.is_some_and(|bridge| link.controller == Some(bridge.index));
    if let Some(bond) = bond.filter(|bond| bond.bond.is_none() || !of_bridge(bond)) {
        return Some(format!(
            "this node already has an interface {}, and Sheaf did not make it; rename or remove it",
            bond.name
        ));
    }
    if !abilities.bonding && (wish.nics.len() > 1 || wish.mode == LACP) {
        let asked = match wish.nics.len() {
            1 => format!("mode {LACP}"),
            several => format!("an uplink of {several} NICs"),
        };
        return Some(format!(
            "the kernel of this node has no bonding (CONFIG_BONDING), which {asked} takes; load the module bonding, \
             boot a kernel that has it, or name one NIC with another mode"
        ));
    }
    None
}

/// Why a NIC cannot be part of the uplink.
fn unfitness(name: &str, links: &[Link], ours: [Option<&Link>; 2]) -> Option<String> {
    let Some(nic) = links.iter().find(|link| link.name == name) else {
        return Some(format!("this node has no NIC {name}"));
    };
    if nic.loopback || ["bridge", "bond", "tun"].contains(&nic.kind.as_str()) {
        return Some(format!("{name} is no NIC that an uplink can be made of"));
    }
    if !nic.addresses.is_empty() {
        let addresses: Vec<String> = nic.addresses.iter().map(ToString::to_string).collect();
        return Some(format!(
            "{name} carries {}, by which this node is reached; an uplink would cut it off. Name another NIC",
            addresses.join(", ")
        ));
    }
    if let Some(why) = &nic.own {
        return Some(format!(
            "{name} is the node's own: {why}; an uplink would cut it off. Name another NIC, or, if the node is \
             reached another way for good, take {name} out of the annotation {OWN_NICS_ANNOTATION} of the node"
        ));
    }
    if let Some(above) = links.iter().find(|link| link.below == Some(nic.index)) {
        return Some(format!("{name} carries the interface {}; name another NIC", above.name));
    }
    if let Some(index) = nic.controller.filter(|_| !is_in(nic, ours)) {
        let holder = links.iter().find(|link| link.index == index);
        let holder = holder.map_or_else(|| format!("interface {index}"), |holder| holder.name.clone());
        return Some(format!("{name} is already part of {holder}; an uplink needs NICs of its own"));
    }
    nic.trouble.clone()
}

/// Whether a NIC is a port of our bridge or our bond.
fn is_in(nic: &Link, ours: [Option<&Link>; 2]) -> bool {
    ours.into_iter().flatten().any(|link| nic.controller == Some(link.index))
}

/// The bond as wished, with the NICs that are wished and no others.
fn mend_bond(wish: &Wish, nics: &[&String], links: &[Link], bond: &Link) -> Option<Step> {
    let is_otherwise = bond.bond.as_ref().is_some_and(|found| {
        // Some modes cannot do without looking, and then the kernel looks although nobody asked.
        let looks_otherwise = |miimon: &u32| *miimon != found.miimon && *miimon != 0;
        found.mode != wish.mode || wish.miimon.as_ref().is_some_and(looks_otherwise)
    });
    // A mode can only be changed while there are no NICs; so it is made anew.
    if is_otherwise {
        return Some(take_away_bond(links, bond));
    }
    mend_ports(wish, nics, links, bond.index)
}

/// Of the bond or, without one, of the bridge: the NICs that are wished, and none else but taps.
fn mend_ports(wish: &Wish, nics: &[&String], links: &[Link], to: u32) -> Option<Step> {
    let is_left = |port: &&Link| !port.is_tap() && !nics.contains(&&port.name);
    if let Some(left) = ports_of(links, to).find(is_left) {
        return Some(detach(left));
    }
    nics.iter().find_map(|name| {
        let nic = links.iter().find(|link| link.name == **name)?;
        if nic.controller != Some(to) {
            let (index, name) = (nic.index, nic.name.clone());
            return Some(Step::Attach { index, name, to, mtu: wish.mtu });
        }
        mend(nic, wish.mtu)
    })
}

/// The NICs first, each by itself, so that they are left switched on.
fn take_away_bond(links: &[Link], bond: &Link) -> Step {
    match ports_of(links, bond.index).next() {
        Some(nic) => detach(nic),
        None => Step::Remove { index: bond.index, name: bond.name.clone() },
    }
}

fn mend(link: &Link, mtu: u32) -> Option<Step> {
    let (index, name) = (link.index, link.name.clone());
    if link.mtu != mtu {
        return Some(Step::SetMtu { index, name, mtu });
    }
    (!link.on).then_some(Step::SwitchOn { index, name })
}

fn detach(port: &Link) -> Step {
    Step::Detach { index: port.index, name: port.name.clone() }
}

fn ports_of(links: &[Link], controller: u32) -> impl Iterator<Item = &Link> {
    links.iter().filter(move |link| link.controller == Some(controller))
}

/// Which of the NICs are not good, and why; empty when all are.
fn faults(nics: &[&String], out: &[(&String, String)], links: &[Link]) -> String {
    let is_silent = |name: &str| links.iter().any(|link| link.name == name && !link.running);
    let left_out = out.iter().map(|(name, why)| format!("{name} is left out: {why}"));
    let silent = nics.iter().filter(|name| is_silent(name));
    let faults: Vec<String> = left_out.chain(silent.map(|name| format!("{name} has no carrier"))).collect();
    faults.join(". ")
}

/// What of the wish this kernel does another way, or not at all.
fn note(wish: &Wish, abilities: Abilities) -> String {
    let mut note = String::new();
    if !abilities.bonding {
        let (nic, bridge) = (wish.nics.join(", "), bridge_of(&wish.cluster_network));
        let _ = write!(
            note,
            "the kernel of this node has no bonding (CONFIG_BONDING), so {nic} is in {bridge} itself"
        );
    }
    if !abilities.vlan_filtering {
        let and = if note.is_empty() { "the kernel of this node has" } else { "; it has" };
        let _ = write!(
            note,
            "{and} no VLAN filtering (CONFIG_BRIDGE_VLAN_FILTERING), so only untagged networks can be carried"
        );
    }
    note
}

#[cfg(test)]
mod tests;
