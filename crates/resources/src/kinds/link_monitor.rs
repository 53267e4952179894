//! network.harvesterhci.io/v1beta1 LinkMonitor: the network interfaces of nodes, as far as a rule picks them.
//!
//! Every node writes its own entry of the status and touches no other's. The one called [`NICS`] shows the real NICs;
//! a console offers those when somebody sets up an uplink.

use std::collections::BTreeMap;

use regex::{Regex, RegexBuilder};
use serde_json::{Value, json};

use super::{age_column, cluster_network, harvester_condition::HarvesterCondition, name_column, text};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind},
    object_meta,
    wire::{root_type, wire_type},
};

pub const LINK_MONITORS: &str = "linkmonitors";
/// The one that shows the real NICs of all nodes.
pub const NICS: &str = "nic";
/// The type of an interface that no software made.
pub const DEVICE: &str = "device";
/// A rule is looked at on every node whenever an interface changes.
const LONGEST_RULE: usize = 256;
const LARGEST_RULE_BYTES: usize = 64 << 10;

root_type! {
    /// The network interfaces of nodes, as far as a rule picks them.
    LinkMonitor = "io.harvesterhci.network.v1beta1.LinkMonitor",
    "network.harvesterhci.io" / "v1beta1" "linkmonitors" ClusterResourceScope {
        /// Which interfaces of which nodes.
        spec: LinkMonitorSpec,
        /// The interfaces.
        status: LinkMonitorStatus,
    }
}

wire_type! {
    /// Which interfaces of which nodes.
    LinkMonitorSpec = "io.harvesterhci.network.v1beta1.LinkMonitorSpec" {
        /// The nodes: those that have all of these labels; all nodes when left out.
        node_selector: BTreeMap<String, String>,
        /// Which of their interfaces.
        target_link_rule: TargetLinkRule,
    }
}

wire_type! {
    /// Which interfaces. The loopback is never one of them.
    TargetLinkRule = "io.harvesterhci.network.v1beta1.TargetLinkRule" {
        /// A regular expression that is found in their type, such as device, bridge or bond; empty for any.
        type_rule: String,
        /// A regular expression that is found in their name; empty for any.
        name_rule: String,
    }
}

wire_type! {
    /// The interfaces that were picked.
    LinkMonitorStatus = "io.harvesterhci.network.v1beta1.LinkMonitorStatus" {
        /// Unused.
        conditions: Vec<HarvesterCondition>,
        /// By node.
        link_status: BTreeMap<String, Vec<LinkStatus>>,
    }
}

wire_type! {
    /// A network interface.
    LinkStatus = "io.harvesterhci.network.v1beta1.LinkStatus" {
        /// Its name.
        name: String,
        /// Its number.
        index: u32,
        /// device, or what software made it.
        #[serde(rename = "type")]
        link_type: String,
        /// Its hardware address.
        mac: String,
        /// Whether it takes frames that are not for it.
        promiscuous: bool,
        /// up or down.
        state: String,
        /// The number of the interface it is a port of.
        master_index: u32,
    }
}

/// A rule, ready to be asked.
#[derive(Debug)]
pub struct Picks {
    link_type: Option<Regex>,
    name: Option<Regex>,
}

impl TargetLinkRule {
    /// None where a rule cannot be read, which validation refuses.
    pub fn picks(&self) -> Option<Picks> {
        let read = |rule: &str| match rule {
            "" => Some(None),
            rule => expression(rule).ok().map(Some),
        };
        Some(Picks { link_type: read(&self.type_rule)?, name: read(&self.name_rule)? })
    }
}

impl Picks {
    pub fn pick(&self, link_type: &str, name: &str) -> bool {
        let fits = |rule: &Option<Regex>, text: &str| rule.as_ref().is_none_or(|rule| rule.is_match(text));
        fits(&self.link_type, link_type) && fits(&self.name, name)
    }
}

impl LinkMonitorSpec {
    /// Whether a node with these labels is meant.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.node_selector.iter().all(|(key, value)| labels.get(key).is_some_and(|held| held == value))
    }
}

pub fn kind() -> Kind {
    Kind::of_type::<LinkMonitor>(LINK_MONITORS)
        .cluster_scoped()
        .short(&["lm", "lms"])
        .columns(vec![
            name_column(),
            Column::computed("TYPERULE", |monitor, _| rule(monitor, "typeRule")).wide(),
            Column::computed("NAMERULE", |monitor, _| rule(monitor, "nameRule")).wide(),
            age_column(),
        ])
        .behaving(Behaviour { validate, generation: true, ..Behaviour::PLAIN })
}

fn rule(monitor: &Value, field: &str) -> Value {
    monitor["spec"]["targetLinkRule"][field].clone()
}

/// The one that shows the real NICs.
pub fn of_nics() -> Value {
    json!({
        "apiVersion": "network.harvesterhci.io/v1beta1", "kind": "LinkMonitor", "metadata": {"name": NICS},
        "spec": {"targetLinkRule": {"typeRule": DEVICE}},
    })
}

/// The rule for the links of a cluster network, whose name has nothing in it that means anything to a rule.
pub fn rule_of(cluster_network: &str) -> String {
    let (bridge, bond) =
        (cluster_network::bridge_of(cluster_network), cluster_network::bond_of(cluster_network));
    format!("^({bridge}|{bond})$")
}

fn validate(new: &Value, _old: Option<&Value>) -> Vec<FieldError> {
    let path = FieldPath::new("spec");
    if let Err(why) = serde_json::from_value::<LinkMonitorSpec>(new["spec"].clone()) {
        return vec![FieldError::invalid(&path, "<object>", why.to_string())];
    }
    let mut errors = object_meta::validate_labels(&new["spec"]["nodeSelector"], &path.child("nodeSelector"));
    for field in ["typeRule", "nameRule"] {
        let (at, given) = (path.child("targetLinkRule").child(field), rule(new, field));
        let given = text(&given);
        if given.len() > LONGEST_RULE {
            errors.push(FieldError::too_long(&at, LONGEST_RULE as u64));
        } else if let Err(why) = expression(given) {
            let why = format!("must be a regular expression: {why}");
            errors.push(FieldError::invalid(&at, given, why));
        }
    }
    errors
}

/// Bounded: what a stranger wrote is compiled on every node.
fn expression(rule: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(rule).size_limit(LARGEST_RULE_BYTES).dfa_size_limit(LARGEST_RULE_BYTES).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picks(type_rule: &str, name_rule: &str) -> Picks {
        TargetLinkRule { type_rule: type_rule.into(), name_rule: name_rule.into() }.picks().unwrap()
    }

    #[test]
    fn a_rule_is_found_anywhere_and_an_empty_one_everywhere() {
        assert!(picks("", "").pick("veth", "x"));
        assert!(picks("device", "").pick("device", "eth0") && !picks("device", "").pick("bridge", "eth0"));
        assert!(picks("", "th").pick("device", "eth0") && !picks("", "^th").pick("device", "eth0"));
        assert!(!picks("device", "eth1").pick("device", "eth0"));
    }

    #[test]
    fn the_rule_of_a_cluster_network_picks_its_two_links_and_no_others() {
        let picks = picks("", &rule_of("lab"));
        assert!(picks.pick("bridge", "lab-br") && picks.pick("bond", "lab-bo"));
        assert!(!picks.pick("bridge", "mylab-br") && !picks.pick("bridge", "lab-br0"));
    }

    #[test]
    fn a_rule_that_cannot_be_read_or_would_grow_without_end_is_refused() {
        let refused = |rule: &str| {
            validate(&json!({"spec": {"targetLinkRule": {"nameRule": rule}}}), None)
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        assert!(refused("eth[0-9]+").is_empty());
        for rule in ["(", "((((a{99}){99}){99}){99}){99}", &"a".repeat(257)] {
            let said = refused(rule);
            assert!(
                said.len() == 1 && said[0].starts_with("spec.targetLinkRule.nameRule"),
                "{rule}: {said:?}"
            );
        }
    }
}
