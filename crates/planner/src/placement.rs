//! Decides which node an instance is bound to, or says why none.
//!
//! ```text
//!   all nodes -> ready -> open -> tolerated -> chosen by labels -> beside whom -> where its volumes are -> with room,
//!             also for its volumes that are nowhere yet
//!             -> the one that is preferred most, then the emptiest, then the first by name
//! ```
//!
//! - A node that is dropped is counted under the first thing that is wrong with it, in the words of the
//!   original's scheduler, with the numbers where it is about numbers.
//! - What instances ask for is set against what a node says it has to give; what is really used is nobody's business here.
//! - Deliberately absent: the anti-affinity of instances that already run towards the one that is placed, and
//!   making room by driving others out.

mod affinity;

use std::{borrow::Borrow, collections::BTreeMap};

use k8s_openapi::api::core::v1::{Node, NodeSelector, Taint, Toleration};
use sheaf_resources::{
    kinds::{
        node::VOLUME_STORAGE,
        virtual_machine_instance::{
            demand::{Demand, Share},
            spec::VirtualMachineInstanceSpec,
        },
    },
    quantity,
};

use crate::volume_room::{self, Rooms};

/// On a node: `false` keeps machines away.
const SCHEDULABLE_LABEL: &str = "kubevirt.io/schedulable";
const ARCHITECTURE_LABEL: &str = "kubernetes.io/arch";

/// An instance that is on a node, or bound to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Neighbour {
    pub namespace: String,
    pub labels: BTreeMap<String, String>,
    pub node: String,
    pub share: Share,
}

/// An instance that looks for a node.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    pub spec: &'a VirtualMachineInstanceSpec,
    pub namespace: &'a str,
    pub labels: &'a BTreeMap<String, String>,
    /// Where its volumes are, of those that are somewhere.
    pub volumes: &'a [NodeSelector],
    /// The sizes of the others, together.
    pub unplaced_bytes: i64,
}

/// No node suits; the message is for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unschedulable(pub String);

/// The name of the node to bind to.
pub fn choose_node(
    wanted: &Wanted<'_>,
    nodes: &[impl Borrow<Node>],
    neighbours: &[Neighbour],
    rooms: &Rooms,
) -> Result<String, Unschedulable> {
    let nodes: Vec<&Node> = nodes.iter().map(Borrow::borrow).collect();
    let nodes = nodes.as_slice();
    let mut against: BTreeMap<String, usize> = BTreeMap::new();
    let mut best: Option<(i64, i64, &str)> = None;
    for node in nodes {
        match objection(wanted, node, nodes, neighbours, rooms) {
            Some(words) => *against.entry(words).or_default() += 1,
            None => {
                let merit = affinity::preference(wanted, node, nodes, neighbours);
                let candidate = (merit, free_of(node, neighbours).memory_bytes, name_of(node));
                let better = best
                    .is_none_or(|best| (candidate.0, candidate.1, best.2) > (best.0, best.1, candidate.2));
                if better {
                    best = Some(candidate);
                }
            }
        }
    }
    if let Some((_, _, name)) = best {
        return Ok(name.to_owned());
    }
    if nodes.is_empty() {
        return Err(Unschedulable("no nodes available to schedule pods".into()));
    }
    let reasons: Vec<String> = against.into_iter().map(|(words, count)| format!("{count} {words}")).collect();
    Err(Unschedulable(format!("0/{} nodes are available: {}.", nodes.len(), reasons.join(", "))))
}

/// A node that can keep something, when it does not matter which: the first that is ready, by name.
pub fn any_node(nodes: &[impl Borrow<Node>]) -> Option<&str> {
    let able = nodes.iter().map(Borrow::borrow).filter(|node| is_ready(node) && !is_closed(node));
    able.map(name_of).min()
}

/// The first thing that is wrong with a node.
fn objection(
    wanted: &Wanted<'_>,
    node: &Node,
    nodes: &[&Node],
    neighbours: &[Neighbour],
    rooms: &Rooms,
) -> Option<String> {
    if !is_ready(node) {
        return Some("node(s) were not ready".into());
    }
    if is_closed(node) {
        return Some("node(s) were unschedulable".into());
    }
    if let Some(taint) = untolerated(node, &wanted.spec.tolerations) {
        return Some(format!(
            "node(s) had untolerated taint {{{}: {}}}",
            taint.key,
            taint.value.as_deref().unwrap_or_default()
        ));
    }
    if !is_chosen(wanted, node) {
        return Some("node(s) didn't match Pod's node affinity/selector".into());
    }
    if let Some(words) = affinity::objection(wanted, node, nodes, neighbours) {
        return Some(words.into());
    }
    if !wanted.volumes.iter().all(|selector| affinity::selects(selector, node)) {
        return Some("node(s) had volume node affinity conflict".into());
    }
    let (asks, free) = (Demand::of(wanted.spec).requested, free_of(node, neighbours));
    if asks.cpu_milli > free.cpu_milli {
        let (asks, free) = (quantity::cores(asks.cpu_milli).0, quantity::cores(free.cpu_milli).0);
        return Some(format!("Insufficient cpu (asks for {asks}, {free} left)"));
    }
    if asks.memory_bytes > free.memory_bytes {
        let mib = |bytes: i64| format!("{}Mi", bytes / quantity::MIB);
        let (asks, free) = (mib(asks.memory_bytes), mib(free.memory_bytes));
        return Some(format!("Insufficient memory (asks for {asks}, {free} left)"));
    }
    let left = rooms.left_on(name_of(node)).filter(|_| wanted.unplaced_bytes > 0);
    if let Some(left) = left.filter(|left| wanted.unplaced_bytes > *left) {
        let (asks, left) = (volume_room::up(wanted.unplaced_bytes), volume_room::down(left.max(0)));
        return Some(format!("Insufficient {VOLUME_STORAGE} (asks for {asks}, {left} left)"));
    }
    None
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| &status.conditions).flatten();
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn is_closed(node: &Node) -> bool {
    let cordoned = node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
    cordoned
        || node.metadata.deletion_timestamp.is_some()
        || label_of(node, SCHEDULABLE_LABEL).is_some_and(|value| value != "true")
}

fn untolerated<'a>(node: &'a Node, tolerations: &[Toleration]) -> Option<&'a Taint> {
    let taints = node.spec.iter().flat_map(|spec| &spec.taints).flatten();
    taints
        .filter(|taint| taint.effect != "PreferNoSchedule")
        .find(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let same_effect =
        toleration.effect.as_deref().is_none_or(|effect| effect.is_empty() || effect == taint.effect);
    let key = toleration.key.as_deref().unwrap_or_default();
    let exists = toleration.operator.as_deref() == Some("Exists");
    let same_key = key == taint.key || (key.is_empty() && exists);
    let same_value =
        toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default();
    same_effect && same_key && (exists || same_value)
}

fn is_chosen(wanted: &Wanted<'_>, node: &Node) -> bool {
    let spec = wanted.spec;
    let selected = spec.node_selector.iter().all(|(key, value)| label_of(node, key) == Some(value));
    let required = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    let other = label_of(node, ARCHITECTURE_LABEL)
        .is_some_and(|found| !spec.architecture.is_empty() && found != spec.architecture);
    selected && !other && required.is_none_or(|selector| affinity::selects(selector, node))
}

/// What a node has left to give. It may be less than nothing.
fn free_of(node: &Node, neighbours: &[Neighbour]) -> Share {
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    let amount =
        |name: &str| allocatable.and_then(|all| all.get(name)).map_or("0", |amount| amount.0.as_str());
    let here = || neighbours.iter().filter(|neighbour| neighbour.node == name_of(node));
    Share {
        cpu_milli: quantity::milli(amount("cpu")).unwrap_or(0)
            - here().map(|neighbour| neighbour.share.cpu_milli).sum::<i64>(),
        memory_bytes: quantity::value(amount("memory")).unwrap_or(0)
            - here().map(|neighbour| neighbour.share.memory_bytes).sum::<i64>(),
    }
}

fn name_of(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

fn label_of<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

#[cfg(test)]
mod tests;
