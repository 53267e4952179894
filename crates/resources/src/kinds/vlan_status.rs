//! network.harvesterhci.io/v1beta1 VlanStatus: how the uplink of a cluster network fares on one node.
//!
//! The agent of that node makes it before it touches a link, keeps it true, and deletes it once nothing of the uplink is
//! left on the node. So a configuration without one has no uplink anywhere.

use serde_json::Value;

use super::{
    age_column, harvester_condition::HarvesterCondition, name_column,
    network_attachment_definition::CLUSTER_NETWORK_LABEL, text, vlan_config::VLAN_CONFIG_LABEL,
};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind},
    wire::{root_type, wire_type},
};

pub const VLAN_STATUSES: &str = "vlanstatuses";
/// Which node it is of.
pub const NODE_LABEL: &str = "network.harvesterhci.io/node";
/// Whether the node leads to the cluster network.
pub const READY: &str = "ready";
const LONGEST_NAME: usize = 63;

root_type! {
    /// How the uplink of a cluster network fares on one node.
    VlanStatus = "io.harvesterhci.network.v1beta1.VlanStatus",
    "network.harvesterhci.io" / "v1beta1" "vlanstatuses" ClusterResourceScope {
        /// How it fares.
        status: VlanStatusStatus,
    }
}

wire_type! {
    /// How an uplink fares.
    VlanStatusStatus = "io.harvesterhci.network.v1beta1.VlStatus" {
        /// The cluster network.
        cluster_network: String,
        /// The configuration it is made after.
        vlan_config: String,
        /// The LinkMonitor that shows its links.
        link_monitor: String,
        /// The node.
        node: String,
        /// The tagged networks that pass the uplink.
        local_areas: Vec<LocalArea>,
        /// `ready`.
        conditions: Vec<HarvesterCondition>,
    }
}

wire_type! {
    /// A tagged network.
    LocalArea = "io.harvesterhci.network.v1beta1.LocalArea" {
        /// Its tag.
        #[serde(rename = "vlanID")]
        vlan_id: u32,
        /// Its addresses, where they are known.
        cidr: String,
    }
}

impl VlanStatusStatus {
    pub fn ready(&self) -> Option<&HarvesterCondition> {
        self.conditions.iter().find(|condition| condition.condition_type == READY)
    }

    pub fn is_ready(&self) -> bool {
        self.ready().is_some_and(|ready| ready.status == "True")
    }
}

pub fn kind() -> Kind {
    Kind::of_type::<VlanStatus>(VLAN_STATUSES)
        .cluster_scoped()
        // Harvester's has `vs`, too, which kubectl then takes from volume snapshots.
        .short(&["vss"])
        .columns(vec![
            name_column(),
            Column::computed("CLUSTERNETWORK", |status, _| status["status"]["clusterNetwork"].clone()),
            Column::computed("VLANCONFIG", |status, _| status["status"]["vlanConfig"].clone()),
            Column::computed("NODE", |status, _| status["status"]["node"].clone()),
            age_column(),
            Column::computed("READY", |status, _| super::condition_status(status, READY)).wide(),
        ])
        .behaving(Behaviour { validate, generation: true, ..Behaviour::PLAIN })
}

/// One is about something, and its name and labels say the same as it does.
fn validate(new: &Value, _old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let status = FieldPath::new("status");
    for (field, label) in [
        ("clusterNetwork", Some(CLUSTER_NETWORK_LABEL)),
        ("vlanConfig", Some(VLAN_CONFIG_LABEL)),
        ("node", Some(NODE_LABEL)),
        ("linkMonitor", None),
    ] {
        let said = text(&new["status"][field]);
        if said.is_empty() {
            errors.push(FieldError::required(&status.child(field), "one is about an uplink on a node"));
        } else if let Some(label) = label.filter(|label| new["metadata"]["labels"][*label] != said) {
            let at = FieldPath::new("metadata").child("labels").key(label);
            let found = text(&new["metadata"]["labels"][label]);
            errors.push(FieldError::invalid(&at, found, format!("must be {said}, as the status says")));
        }
    }
    let name = name_of(text(&new["status"]["clusterNetwork"]), text(&new["status"]["node"]));
    if errors.is_empty() && text(&new["metadata"]["name"]) != name {
        let at = FieldPath::new("metadata").child("name");
        errors.push(FieldError::invalid(&at, text(&new["metadata"]["name"]), format!("must be {name}")));
    }
    errors
}

/// What the one of a cluster network and a node is called. The sum is of the whole, so that two long names that begin the
/// same have two names.
pub fn name_of(cluster_network: &str, node: &str) -> String {
    let whole = format!("{cluster_network}-{node}");
    let sum = format!("{:08x}", crc32(whole.as_bytes()));
    let mut end = whole.len().min(LONGEST_NAME - 1 - sum.len());
    while !whole.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}-{sum}", &whole[..end])
}

/// As of IEEE 802.3: names are short, so no table.
fn crc32(bytes: &[u8]) -> u32 {
    let fold = |sum: u32, byte: &u8| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0xEDB8_8320 & (sum & 1).wrapping_neg()))
    };
    !bytes.iter().fold(!0, fold)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_sum_is_the_one_everybody_knows() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
        assert_eq!(crc32(b""), 0);
    }

    #[test]
    fn a_name_fits_a_label_and_tells_long_names_apart() {
        assert_eq!(name_of("lab", "node-1"), format!("lab-node-1-{:08x}", crc32(b"lab-node-1")));
        let (one, other) = (format!("{}1", "n".repeat(80)), format!("{}2", "n".repeat(80)));
        let (one, other) = (name_of("lab", &one), name_of("lab", &other));
        assert!(one.len() == 63 && other.len() == 63 && one != other);
    }

    #[test]
    fn one_that_is_about_nothing_is_refused_and_so_is_one_that_says_two_things() {
        let named = |node: &str| {
            json!({"metadata": {"name": name_of("lab", "node-1"), "labels": {CLUSTER_NETWORK_LABEL: "lab",
                VLAN_CONFIG_LABEL: "a", NODE_LABEL: node}},
                "status": {"clusterNetwork": "lab", "vlanConfig": "a", "linkMonitor": "lab", "node": node}})
        };
        assert!(validate(&named("node-1"), None).is_empty());
        assert_eq!(validate(&named("node-2"), None)[0].field, "metadata.name");
        assert_eq!(validate(&json!({"metadata": {"name": "x"}}), None).len(), 4);
        let mut two = named("node-1");
        two["metadata"]["labels"][NODE_LABEL] = json!("node-2");
        assert!(validate(&two, None)[0].detail.contains("must be node-1"));
    }
}
