//! Decides which nodes a configuration of uplinks is for, and when one that is deleted may go.
//!
//! - A node has one uplink of a cluster network, after one configuration: whoever has it keeps it, and of two that came to
//!   have it at the same moment the older one does.
//! - One that is deleted goes when no node has anything of it any more. It stays a moment longer than that takes: clients
//!   begin to watch for its end only after they asked for it, and see nothing of what was over before.

use std::collections::{BTreeMap, BTreeSet};

use sheaf_resources::kinds::{
    vlan_config::{UPLINK_FINALIZER, VlanConfig, matched_nodes},
    vlan_status::VlanStatus,
};

/// So many seconds one is to be seen on its way out. Times are in whole seconds, so it is one less that is sure.
const SEEN_GOING_SECS: i64 = 3;

/// A node, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    pub labels: BTreeMap<String, String>,
}

/// The nodes a configuration means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matched {
    pub nodes: BTreeSet<String>,
    /// Those it means, too, and that another has.
    pub held_by_others: BTreeSet<String>,
}

/// `others` may have `config` itself among them.
pub fn matched<'a>(
    config: &VlanConfig,
    others: impl IntoIterator<Item = &'a VlanConfig>,
    nodes: &[Node],
) -> Matched {
    let own = matched_nodes(config.metadata.annotations.as_ref());
    let mut held: BTreeSet<String> = BTreeSet::new();
    for other in others {
        let is_beside = other.metadata.name != config.metadata.name
            && other.spec.cluster_network == config.spec.cluster_network;
        if is_beside {
            let is_first = age(other) < age(config);
            let of_other = matched_nodes(other.metadata.annotations.as_ref()).into_iter();
            held.extend(of_other.filter(|node| is_first || !own.contains(node)));
        }
    }
    let meant = nodes.iter().filter(|node| config.spec.selects(&node.labels)).map(|node| node.name.clone());
    let (held_by_others, nodes) = meant.partition(|node| held.contains(node));
    Matched { nodes, held_by_others }
}

/// Without a time for one that is not made yet: it is younger than all that are.
fn age(config: &VlanConfig) -> (bool, Option<String>, Option<&str>) {
    let made = config.metadata.creation_timestamp.as_ref().map(|time| time.0.to_string());
    (made.is_none(), made, config.metadata.name.as_deref())
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Rest,
    /// Looks again after so many seconds, at the latest.
    Wait(u64),
    /// Writes the nodes it is for.
    Match(BTreeSet<String>),
    /// Removes the status of a node that is no more; nobody else will.
    ForgetNode(String),
    RemoveFinalizer,
}

pub struct Seen<'a> {
    pub config: &'a VlanConfig,
    /// All that there are.
    pub configs: &'a [&'a VlanConfig],
    pub statuses: &'a [&'a VlanStatus],
    pub nodes: &'a [Node],
    /// Seconds since the epoch.
    pub now: i64,
}

pub fn next_step(seen: &Seen<'_>) -> Step {
    let config = seen.config;
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let of_it = || seen.statuses.iter().filter(|status| status.status.vlan_config == name);
    let is_there = |status: &&&VlanStatus| seen.nodes.iter().any(|node| node.name == status.status.node);
    if let Some(left) = of_it().find(|status| !is_there(status)) {
        return Step::ForgetNode(left.metadata.name.clone().unwrap_or_default());
    }
    let Some(deleted) = &config.metadata.deletion_timestamp else {
        let matched = matched(config, seen.configs.iter().copied(), seen.nodes);
        return match matched.nodes == matched_nodes(config.metadata.annotations.as_ref()) {
            true => Step::Rest,
            false => Step::Match(matched.nodes),
        };
    };
    let is_held = config.metadata.finalizers.iter().flatten().any(|held| held == UPLINK_FINALIZER);
    // Its nodes say that they are done by taking their statuses away.
    if !is_held || of_it().next().is_some() {
        return Step::Rest;
    }
    match SEEN_GOING_SECS - (seen.now - deleted.0.as_second()) {
        // A clock that went back does not hold it for ever.
        more if (1..=SEEN_GOING_SECS).contains(&more) => Step::Wait(more.unsigned_abs()),
        _ => Step::RemoveFinalizer,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(name: &str, cluster_network: &str, made: &str, nodes: &str) -> VlanConfig {
        serde_json::from_value(json!({
            "metadata": {"name": name, "creationTimestamp": made,
                "annotations": {"network.harvesterhci.io/matched-nodes": nodes}},
            "spec": {"clusterNetwork": cluster_network},
        }))
        .unwrap()
    }

    fn nodes(names: &[&str]) -> Vec<Node> {
        names.iter().map(|name| Node { name: name.to_string(), labels: BTreeMap::new() }).collect()
    }

    fn status(config: &str, node: &str) -> VlanStatus {
        serde_json::from_value(json!({"metadata": {"name": format!("lab-{node}")},
            "status": {"vlanConfig": config, "node": node, "clusterNetwork": "lab"}}))
        .unwrap()
    }

    const EARLY: &str = "2026-01-01T00:00:00Z";
    const LATE: &str = "2026-01-01T00:00:09Z";

    #[test]
    fn who_has_a_node_keeps_it_and_of_two_at_once_the_older_does() {
        let set = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<BTreeSet<_>>();
        let all = nodes(&["a", "b"]);
        let (old, new) = (config("old", "lab", EARLY, r#"["a"]"#), config("new", "lab", LATE, "[]"));
        let of = |one: &VlanConfig, other: &VlanConfig| matched(one, [other, one], &all);
        assert_eq!(of(&new, &old), Matched { nodes: set(&["b"]), held_by_others: set(&["a"]) });
        // Whoever has it keeps it, also from one that is older.
        let has = config("new", "lab", LATE, r#"["b"]"#);
        assert_eq!(of(&old, &has).nodes, set(&["a"]));
        // Both at once.
        let both = config("new", "lab", LATE, r#"["a"]"#);
        assert_eq!((of(&old, &both).nodes.contains("a"), of(&both, &old).nodes.contains("a")), (true, false));
        // Another cluster network is no matter.
        let beside = config("beside", "other", EARLY, r#"["a","b"]"#);
        assert_eq!(of(&new, &beside).nodes, set(&["a", "b"]));
        let mut unborn = new.clone();
        unborn.metadata.creation_timestamp = None;
        assert!(of(&unborn, &both).held_by_others.is_empty(), "one of the same name is itself");
    }

    fn step(config: &VlanConfig, statuses: &[&VlanStatus], names: &[&str], now: i64) -> Step {
        next_step(&Seen { config, configs: &[config], statuses, nodes: &nodes(names), now })
    }

    #[test]
    fn its_nodes_are_kept_true_and_at_rest_nothing_is_written() {
        let config = config("a", "lab", EARLY, r#"["n1"]"#);
        assert_eq!(step(&config, &[], &["n1"], 0), Step::Rest);
        let both = ["n1".to_owned(), "n2".to_owned()].into();
        assert_eq!(step(&config, &[], &["n1", "n2"], 0), Step::Match(both));
        assert_eq!(step(&config, &[], &[], 0), Step::Match(BTreeSet::new()));
    }

    #[test]
    fn one_that_is_deleted_waits_for_its_nodes_and_is_seen_going() {
        let mut config = config("a", "lab", EARLY, r#"["n1"]"#);
        config.metadata.finalizers = Some(vec![UPLINK_FINALIZER.to_owned()]);
        config.metadata.deletion_timestamp = serde_json::from_value(json!(EARLY)).unwrap();
        let began = config.metadata.deletion_timestamp.as_ref().unwrap().0.as_second();
        let (mine, others) = (status("a", "n1"), status("b", "n1"));
        assert_eq!(step(&config, &[&mine], &["n1"], began + 99), Step::Rest, "its node has not said so");
        assert_eq!(step(&config, &[&mine], &[], began), Step::ForgetNode("lab-n1".to_owned()));
        assert_eq!(step(&config, &[&others], &["n1"], began), Step::Wait(3));
        assert_eq!(step(&config, &[], &["n1"], began + 2), Step::Wait(1));
        assert_eq!(step(&config, &[], &["n1"], began + 3), Step::RemoveFinalizer);
        assert_eq!(step(&config, &[], &["n1"], began - 9), Step::RemoveFinalizer, "clocks go back, too");
        config.metadata.finalizers = None;
        assert_eq!(step(&config, &[], &["n1"], began + 3), Step::Rest);
    }
}
