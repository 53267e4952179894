//! network.harvesterhci.io/v1beta1 VlanConfig: which NICs of which nodes are the uplink of a cluster network.
//!
//! Which nodes those are is in an annotation, put there as it is written and kept true by a controller: a node makes the
//! uplinks of the configurations that name it there, and of no others. How a node fares is said in its own
//! [`super::vlan_status`]; this kind has no status, as in the original.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use serde_json::{Value, json};

use super::{
    age_column,
    cluster_network::{MANAGEMENT, MAX_NAME},
    name_column,
    network_attachment_definition::CLUSTER_NETWORK_LABEL,
    text,
};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind},
    names,
    not_yet::{NotYet, Unsupported},
    object_meta,
    wire::{root_type, wire_type},
};

pub const GROUP: &str = "network.harvesterhci.io";
pub const VLAN_CONFIGS: &str = "vlanconfigs";
/// The nodes it is for, as a JSON array.
pub const MATCHED_NODES: &str = "network.harvesterhci.io/matched-nodes";
/// On a node, which configuration its uplink is of; on a status, which it is about.
pub const VLAN_CONFIG_LABEL: &str = "network.harvesterhci.io/vlanconfig";
/// On a node, before the name of a cluster network: `true` once the node leads there.
pub const NODE_LABEL_PREFIX: &str = "network.harvesterhci.io/";
/// Put on as it is deleted, and taken off once no node has its uplink any more.
pub const UPLINK_FINALIZER: &str = "sheaf.io/uplink";
/// Nodes with this label run no machines and get no uplinks.
pub const WITNESS_LABEL: &str = "node-role.harvesterhci.io/witness";

pub const ACTIVE_BACKUP: &str = "active-backup";
pub const LACP: &str = "802.3ad";
/// What Linux's bonding knows.
pub const BOND_MODES: [&str; 7] =
    ["balance-rr", ACTIVE_BACKUP, "balance-xor", "broadcast", LACP, "balance-tlb", "balance-alb"];
const MTU: std::ops::RangeInclusive<i64> = 576..=9000;
pub const DEFAULT_MTU: u32 = 1500;
/// More than any host has in one bond.
const MOST_NICS: usize = 64;
/// Milliseconds.
const LONGEST_MIIMON: i64 = 1_000_000;
const MOST_QUEUED: i64 = 1_000_000;
/// Linux allows 15 letters, without the zero at the end.
const LONGEST_INTERFACE_NAME: usize = 15;

root_type! {
    /// Which NICs of which nodes are the uplink of a cluster network.
    VlanConfig = "io.harvesterhci.network.v1beta1.VlanConfig",
    "network.harvesterhci.io" / "v1beta1" "vlanconfigs" ClusterResourceScope {
        /// The uplink, and where.
        spec: VlanConfigSpec,
    }
}

wire_type! {
    /// An uplink, and where.
    VlanConfigSpec = "io.harvesterhci.network.v1beta1.VlanConfigSpec" {
        /// For people.
        description: String,
        /// The cluster network. Not mgmt.
        cluster_network: String,
        /// The nodes: those that have all of these labels; all nodes when left out.
        node_selector: BTreeMap<String, String>,
        /// The NICs and how they are put together.
        uplink: Uplink,
    }
}

wire_type! {
    /// NICs, and how they are put together.
    Uplink = "io.harvesterhci.network.v1beta1.Uplink" {
        /// Their names on the nodes.
        nics: Vec<String>,
        /// What the link they make has.
        link_attributes: Option<LinkAttributes>,
        /// How several are one.
        bond_options: Option<BondOptions>,
    }
}

wire_type! {
    /// What a link has.
    LinkAttributes = "io.harvesterhci.network.v1beta1.LinkAttrs" {
        /// The largest frame, in bytes: 576 to 9000, or 0 for 1500. The same in all configurations of a cluster network.
        mtu: i64,
        /// How many frames may wait to be sent; -1 leaves it to the kernel.
        #[serde(rename = "txQLen")]
        tx_queue_len: Option<i64>,
        /// A hardware address other than that of the first NIC.
        hardware_addr: NotYet,
    }
}

wire_type! {
    /// How several NICs are one.
    BondOptions = "io.harvesterhci.network.v1beta1.BondOptions" {
        /// balance-rr, active-backup, balance-xor, broadcast, 802.3ad, balance-tlb or balance-alb.
        mode: String,
        /// Milliseconds between two looks at whether the NICs have a carrier; -1 leaves it to the kernel.
        miimon: Option<i64>,
    }
}

impl VlanConfigSpec {
    /// The largest frame.
    pub fn mtu(&self) -> u32 {
        let given = self.uplink.link_attributes.as_ref().map_or(0, |attributes| attributes.mtu);
        u32::try_from(given).ok().filter(|mtu| *mtu != 0).unwrap_or(DEFAULT_MTU)
    }

    pub fn tx_queue_len(&self) -> Option<u32> {
        let given = self.uplink.link_attributes.as_ref()?.tx_queue_len?;
        u32::try_from(given).ok()
    }

    pub fn bond_mode(&self) -> &str {
        let given = self.uplink.bond_options.as_ref().map_or("", |options| &options.mode);
        if given.is_empty() { ACTIVE_BACKUP } else { given }
    }

    pub fn miimon(&self) -> Option<u32> {
        let given = self.uplink.bond_options.as_ref()?.miimon?;
        u32::try_from(given).ok()
    }

    /// Whether a node with these labels is meant.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        let mut wanted = self.node_selector.iter();
        !labels.contains_key(WITNESS_LABEL)
            && wanted.all(|(key, value)| labels.get(key).is_some_and(|held| held == value))
    }
}

pub fn kind() -> Kind {
    Kind::of_type::<VlanConfig>(VLAN_CONFIGS)
        .cluster_scoped()
        .short(&["vc", "vcs"])
        .columns(vec![
            name_column(),
            Column::computed("CLUSTERNETWORK", |config, _| config["spec"]["clusterNetwork"].clone()),
            Column::computed("DESCRIPTION", |config, _| config["spec"]["description"].clone()),
            age_column(),
        ])
        .behaving(Behaviour {
            default,
            validate,
            generation: true,
            finalizer_on_delete: Some(UPLINK_FINALIZER),
            ..Behaviour::PLAIN
        })
}

/// As the original's definition has them: what is inside is filled in where there is an outside. And the label by which
/// clients find the configurations of a cluster network, which says nothing of its own.
fn default(config: &mut Value) {
    let uplink = &mut config["spec"]["uplink"];
    for (part, field, value) in [
        ("linkAttributes", "txQLen", json!(-1)),
        ("bondOptions", "mode", json!(ACTIVE_BACKUP)),
        ("bondOptions", "miimon", json!(-1)),
    ] {
        if let Some(part) = uplink.get_mut(part).and_then(Value::as_object_mut) {
            let held = part.entry(field).or_insert(Value::Null);
            if held.is_null() || held == "" {
                *held = value;
            }
        }
    }
    // Looking made them; nothing was there.
    if config["spec"]["uplink"].is_null()
        && let Some(spec) = config["spec"].as_object_mut()
    {
        spec.remove("uplink");
    }
    let cluster_network = text(&config["spec"]["clusterNetwork"]).to_owned();
    let labels = &mut config["metadata"]["labels"];
    if labels.is_null() {
        *labels = json!({});
    }
    if let Some(labels) = labels.as_object_mut()
        && !cluster_network.is_empty()
    {
        labels.insert(CLUSTER_NETWORK_LABEL.into(), cluster_network.into());
    }
}

fn validate(new: &Value, _old: Option<&Value>) -> Vec<FieldError> {
    static UNSUPPORTED: LazyLock<Unsupported> = LazyLock::new(Unsupported::of::<VlanConfig>);
    // One on its way out is let go, whatever it says.
    if object_meta::is_being_deleted(new) {
        return Vec::new();
    }
    let path = FieldPath::new("spec");
    let spec: VlanConfigSpec = match serde_json::from_value(new["spec"].clone()) {
        Ok(spec) => spec,
        Err(why) => return vec![FieldError::invalid(&path, "<object>", why.to_string())],
    };
    let mut errors = UNSUPPORTED.refuse(new);
    // Nodes carry it in a label.
    let name = text(&new["metadata"]["name"]);
    for why in names::label_value_problems(name) {
        errors.push(FieldError::invalid(&FieldPath::new("metadata").child("name"), name, why));
    }
    check_cluster_network(&spec.cluster_network, &path.child("clusterNetwork"), &mut errors);
    errors.extend(object_meta::validate_labels(&new["spec"]["nodeSelector"], &path.child("nodeSelector")));
    check_uplink(&spec.uplink, &path.child("uplink"), &mut errors);
    errors
}

fn check_cluster_network(name: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    if name.is_empty() {
        errors.push(FieldError::required(at, "an uplink is that of a cluster network"));
    } else if name == MANAGEMENT {
        errors.push(FieldError::invalid(at, name, format!("cluster network can't be {MANAGEMENT}")));
    } else if name.len() > MAX_NAME {
        let why = format!("the length of the clusterNetwork name is more than {MAX_NAME}");
        errors.push(FieldError::invalid(at, name, why));
    }
}

fn check_uplink(uplink: &Uplink, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let nics = at.child("nics");
    if uplink.nics.is_empty() {
        errors.push(FieldError::required(&nics, "an uplink has at least one NIC"));
    }
    if uplink.nics.len() > MOST_NICS {
        errors.push(FieldError::too_many(&nics, uplink.nics.len() as u64, MOST_NICS as u64));
        return;
    }
    let mut seen = BTreeSet::new();
    for (n, nic) in uplink.nics.iter().enumerate() {
        if !is_interface_name(nic) {
            let why = "must be the name of an interface: 1 to 15 letters, digits, `_`, `.` and `-`, a letter or digit first";
            errors.push(FieldError::invalid(&nics.index(n), nic.as_str(), why));
        } else if !seen.insert(nic) {
            errors.push(FieldError::duplicate(&nics.index(n), nic.as_str()));
        }
    }
    if let Some(attributes) = &uplink.link_attributes {
        let (at, mtu) = (at.child("linkAttributes"), attributes.mtu);
        if mtu != 0 && !MTU.contains(&mtu) {
            let why = format!("the MTU {mtu} is out of range [0, {}..{}]", MTU.start(), MTU.end());
            errors.push(FieldError::invalid(&at.child("mtu"), mtu, why));
        }
        check_range(attributes.tx_queue_len, MOST_QUEUED, &at.child("txQLen"), errors);
    }
    if let Some(options) = &uplink.bond_options {
        let at = at.child("bondOptions");
        if !options.mode.is_empty() && !BOND_MODES.contains(&options.mode.as_str()) {
            errors.push(FieldError::not_supported(&at.child("mode"), options.mode.as_str(), BOND_MODES));
        }
        check_range(options.miimon, LONGEST_MIIMON, &at.child("miimon"), errors);
    }
}

fn check_range(given: Option<i64>, most: i64, at: &FieldPath, errors: &mut Vec<FieldError>) {
    if let Some(given) = given.filter(|given| !(-1..=most).contains(given)) {
        let why = format!("must be from 0 to {most}, or -1 to leave it to the kernel");
        errors.push(FieldError::invalid(at, given, why));
    }
}

/// Nothing that means anything in a path or a rule.
fn is_interface_name(name: &str) -> bool {
    (1..=LONGEST_INTERFACE_NAME).contains(&name.len())
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}

/// The nodes that the annotation of a configuration names; none where it makes no sense.
pub fn matched_nodes(annotations: Option<&BTreeMap<String, String>>) -> BTreeSet<String> {
    let said = annotations.and_then(|annotations| annotations.get(MATCHED_NODES));
    said.and_then(|said| serde_json::from_str(said).ok()).unwrap_or_default()
}

/// Puts the nodes into the annotation.
pub fn set_matched_nodes(config: &mut Value, nodes: &BTreeSet<String>) {
    let annotations = &mut config["metadata"]["annotations"];
    if annotations.is_null() {
        *annotations = json!({});
    }
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(MATCHED_NODES.into(), json!(nodes).to_string().into());
    }
}

/// Whether two sizes of frames are the same to nodes: 0 is the ordinary one.
pub fn same_mtu(one: u32, other: u32) -> bool {
    let meant = |mtu: u32| if mtu == 0 { DEFAULT_MTU } else { mtu };
    meant(one) == meant(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(uplink: Value) -> Value {
        json!({"metadata": {"name": "a"}, "spec": {"clusterNetwork": "lab", "uplink": uplink}})
    }

    fn refusals(config: &Value) -> Vec<String> {
        validate(config, None).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn defaults_are_inside_what_is_there_and_applying_them_twice_changes_nothing() {
        let mut bare = config(json!({"nics": ["eth1"]}));
        default(&mut bare);
        assert_eq!(bare["spec"]["uplink"], json!({"nics": ["eth1"]}));
        assert_eq!(bare["metadata"]["labels"], json!({CLUSTER_NETWORK_LABEL: "lab"}));
        let mut given =
            config(json!({"nics": ["eth1"], "linkAttributes": {"mtu": 1500}, "bondOptions": {"mode": ""}}));
        default(&mut given);
        assert_eq!(
            given["spec"]["uplink"],
            json!({"nics": ["eth1"], "linkAttributes": {"mtu": 1500, "txQLen": -1},
                "bondOptions": {"mode": "active-backup", "miimon": -1}})
        );
        let once = given.clone();
        default(&mut given);
        assert_eq!(given, once);
        let spec: VlanConfigSpec = serde_json::from_value(given["spec"].clone()).unwrap();
        assert_eq!((spec.mtu(), spec.tx_queue_len(), spec.miimon()), (1500, None, None));
        let mut nothing = json!({"metadata": {"name": "a"}, "spec": {}});
        default(&mut nothing);
        assert_eq!(nothing["spec"], json!({}));
    }

    #[test]
    fn what_no_node_could_make_is_refused_with_the_field() {
        for (uplink, words) in [
            (json!({}), "spec.uplink.nics: Required value: an uplink has at least one NIC"),
            (json!({"nics": ["eth0/../x"]}), "spec.uplink.nics[0]: Invalid value"),
            (json!({"nics": [""]}), "spec.uplink.nics[0]: Invalid value"),
            (json!({"nics": ["sixteen-letters0"]}), "spec.uplink.nics[0]: Invalid value"),
            (json!({"nics": ["e", "e"]}), "spec.uplink.nics[1]: Duplicate value"),
            (
                json!({"nics": ["e"], "bondOptions": {"mode": "fast"}}),
                "spec.uplink.bondOptions.mode: Unsupported value",
            ),
            (
                json!({"nics": ["e"], "bondOptions": {"miimon": -2}}),
                "spec.uplink.bondOptions.miimon: Invalid value: -2",
            ),
            (
                json!({"nics": ["e"], "linkAttributes": {"mtu": 575}}),
                "the MTU 575 is out of range [0, 576..9000]",
            ),
            (json!({"nics": ["e"], "linkAttributes": {"mtu": 9001}}), "the MTU 9001 is out of range"),
            (json!({"nics": ["e"], "linkAttributes": {"mtu": -1}}), "the MTU -1 is out of range"),
            (json!({"nics": ["e"], "linkAttributes": {"txQLen": -2}}), "spec.uplink.linkAttributes.txQLen"),
            (
                json!({"nics": ["e"], "linkAttributes": {"hardwareAddr": "AAAAAAAA"}}),
                "spec.uplink.linkAttributes.hardwareAddr: Forbidden: is not supported by Sheaf yet",
            ),
        ] {
            let said = refusals(&config(uplink.clone()));
            assert!(said.len() == 1 && said[0].contains(words), "{uplink}: {said:?}");
        }
        for fine in [
            json!({"nics": ["e"], "bondOptions": {"mode": "802.3ad", "miimon": 0}}),
            json!({"nics": ["enp1s0f0", "eth0.7"], "linkAttributes": {"mtu": 0}, "bondOptions": {"miimon": -1}}),
        ] {
            assert_eq!(refusals(&config(fine)), Vec::<String>::new());
        }
    }

    #[test]
    fn the_network_of_the_nodes_themselves_is_nobodys_to_configure() {
        for (name, words) in [
            ("mgmt", "cluster network can't be mgmt"),
            ("", "Required value"),
            ("a234567890123", "the length of the clusterNetwork name is more than 12"),
        ] {
            let mut config = config(json!({"nics": ["e"]}));
            config["spec"]["clusterNetwork"] = json!(name);
            let said = refusals(&config);
            assert!(said.len() == 1 && said[0].contains(words), "{said:?}");
        }
        let mut long = config(json!({"nics": ["e"]}));
        long["metadata"]["name"] = json!("a".repeat(64));
        assert!(refusals(&long)[0].starts_with("metadata.name"), "{long}");
    }

    #[test]
    fn a_node_is_meant_that_has_all_labels_and_is_no_witness() {
        let labels = |all: &[(&str, &str)]| -> BTreeMap<String, String> {
            all.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
        };
        let spec = VlanConfigSpec { node_selector: labels(&[("a", "1"), ("b", "2")]), ..Default::default() };
        assert!(spec.selects(&labels(&[("a", "1"), ("b", "2"), ("c", "3")])));
        assert!(!spec.selects(&labels(&[("a", "1"), ("b", "3")])));
        assert!(VlanConfigSpec::default().selects(&labels(&[])));
        assert!(!VlanConfigSpec::default().selects(&labels(&[(WITNESS_LABEL, "true")])));
    }

    #[test]
    fn the_nodes_of_a_configuration_are_read_back_as_they_were_put() {
        let mut config = config(json!({}));
        let nodes: BTreeSet<String> = ["b".to_owned(), "a".to_owned()].into();
        set_matched_nodes(&mut config, &nodes);
        assert_eq!(config["metadata"]["annotations"][MATCHED_NODES], r#"["a","b"]"#);
        let read: VlanConfig = serde_json::from_value(config).unwrap();
        assert_eq!(matched_nodes(read.metadata.annotations.as_ref()), nodes);
        let odd = BTreeMap::from([(MATCHED_NODES.to_owned(), "{".to_owned())]);
        assert!(matched_nodes(Some(&odd)).is_empty() && matched_nodes(None).is_empty());
    }

    #[test]
    fn no_mtu_is_the_ordinary_one() {
        assert!(same_mtu(0, 1500) && same_mtu(1500, 0) && same_mtu(9000, 9000));
        assert!(!same_mtu(0, 9000));
    }
}
