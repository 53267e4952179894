//! network.harvesterhci.io/v1beta1 ClusterNetwork: a name for a physical network that nodes
//! are on. It has nothing to set; `mgmt` is always there, and others are as good as the uplinks that
//! [`super::vlan_config`] gives them.

use serde_json::Value;

use super::{age_column, harvester_condition::HarvesterCondition, name_column, text};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Kind},
    names::NameRule,
    wire::{root_type, wire_type},
};

/// The network every node is on.
pub const MANAGEMENT: &str = "mgmt";
/// True once a node leads there.
pub const READY: &str = "ready";
/// A bridge on the host is named after it, with `-br` behind, and an interface's name has 15 letters.
pub const MAX_NAME: usize = 12;
/// The size of frames on it, where an uplink says so; a controller's to say.
pub const MTU_ANNOTATION: &str = "network.harvesterhci.io/uplink-mtu";
/// The configuration that says so.
pub const MTU_SOURCE_ANNOTATION: &str = "network.harvesterhci.io/mtu-source-vc";

root_type! {
    /// A physical network that nodes are on.
    ClusterNetwork = "io.harvesterhci.network.v1beta1.ClusterNetwork",
    "network.harvesterhci.io" / "v1beta1" "clusternetworks" ClusterResourceScope {
        /// Whether it can be used.
        status: ClusterNetworkStatus,
    }
}

wire_type! {
    /// Whether a cluster network can be used.
    ClusterNetworkStatus = "io.harvesterhci.network.v1beta1.ClusterNetworkStatus" {
        /// `ready`.
        conditions: Vec<HarvesterCondition>,
    }
}

pub fn kind() -> Kind {
    Kind::of_type::<ClusterNetwork>("clusternetworks")
        .cluster_scoped()
        .short(&["cn", "cns"])
        .columns(vec![name_column(), age_column()])
        .behaving(Behaviour { validate, name_rule: NameRule::DnsLabel, generation: true, ..Behaviour::PLAIN })
}

fn validate(new: &Value, _old: Option<&Value>) -> Vec<FieldError> {
    let name = text(&new["metadata"]["name"]);
    if name.len() > MAX_NAME {
        let at = FieldPath::new("metadata").child("name");
        let why = format!("the length of the name can't be more than {MAX_NAME}");
        return vec![FieldError::invalid(&at, name, why)];
    }
    Vec::new()
}

/// The bridge on each node that carries it.
pub fn bridge_of(cluster_network: &str) -> String {
    format!("{cluster_network}-br")
}

/// What the NICs of its uplink are put together to on each node.
pub fn bond_of(cluster_network: &str) -> String {
    format!("{cluster_network}-bo")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_bridge_can_be_named_after_it() {
        assert!(validate(&json!({"metadata": {"name": "a23456789012"}}), None).is_empty());
        assert_eq!(validate(&json!({"metadata": {"name": "a234567890123"}}), None).len(), 1);
        assert!(bridge_of("a23456789012").len() <= 15);
    }
}
