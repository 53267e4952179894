//! k8s.cni.cncf.io/v1 NetworkAttachmentDefinition: a network machines can be plugged into.
//!
//! All it says is in `spec.config`, a text with CNI's JSON. What that means is put into
//! labels as it is written, because Harvester's clients read it there, and read it in the
//! answer to their create.

use serde_json::{Value, json};

use super::{age_column, cluster_network, name_column, text};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Kind},
    wire::{root_type, wire_type},
};

pub const TYPE_LABEL: &str = "network.harvesterhci.io/type";
pub const CLUSTER_NETWORK_LABEL: &str = "network.harvesterhci.io/clusternetwork";
pub const VLAN_LABEL: &str = "network.harvesterhci.io/vlan-id";
pub const READY_LABEL: &str = "network.harvesterhci.io/ready";
/// The labels that follow from the configuration, and from nothing else.
const DERIVED: [&str; 4] = [TYPE_LABEL, CLUSTER_NETWORK_LABEL, VLAN_LABEL, READY_LABEL];

const MAX_VLAN: u64 = 4094;
const MTU: std::ops::RangeInclusive<u64> = 576..=9000;

root_type! {
    /// A network machines can be plugged into.
    NetworkAttachmentDefinition = "io.cncf.cni.v1.NetworkAttachmentDefinition",
    "k8s.cni.cncf.io" / "v1" "network-attachment-definitions" NamespaceResourceScope {
        /// The network.
        spec: NetworkAttachmentDefinitionSpec,
    }
}

wire_type! {
    /// A network, in CNI's words.
    NetworkAttachmentDefinitionSpec = "io.cncf.cni.v1.NetworkAttachmentDefinitionSpec" {
        /// CNI's JSON, as a text.
        config: String,
    }
}

/// What a configuration means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    pub cluster_network: String,
    pub tagging: Tagging,
    pub mtu: Option<u64>,
}

/// How frames look on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tagging {
    Untagged,
    Vlan(u16),
    /// The guest tags, within these ranges.
    Trunk(Vec<(u16, u16)>),
}

impl Tagging {
    /// As Harvester's label says it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Tagging::Untagged => "UntaggedNetwork",
            Tagging::Vlan(_) => "L2VlanNetwork",
            Tagging::Trunk(_) => "L2VlanTrunkNetwork",
        }
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("is not JSON: {reason}")]
    NotJson { reason: String },
    #[error("CNI type {found} is not supported by Sheaf yet")]
    Type { found: String },
    #[error("the suffix of the bridge name should be -br")]
    Bridge { found: String },
    #[error("VLAN ID must be in the range of 0 to 4094")]
    Vlan,
    #[error("vlanTrunk must be a list of ranges within 1 to 4094, without a vlan beside it")]
    Trunk,
    #[error("mtu must be in the range of 576 to 9000")]
    Mtu,
    #[error("ipam {found} is not supported by Sheaf yet")]
    Ipam { found: String },
}

pub fn kind() -> Kind {
    Kind::of_type::<NetworkAttachmentDefinition>("network-attachment-definitions")
        .short(&["net-attach-def"])
        .columns(vec![name_column(), age_column()])
        .behaving(Behaviour { default, validate, generation: true, ..Behaviour::PLAIN })
}

/// Reads a configuration.
pub fn parse(config: &str) -> Result<Attachment, ConfigError> {
    let config: Value =
        serde_json::from_str(config).map_err(|why| ConfigError::NotJson { reason: why.to_string() })?;
    let cni = text(&config["type"]);
    if !["", "bridge"].contains(&cni) {
        return Err(ConfigError::Type { found: cni.into() });
    }
    let bridge = text(&config["bridge"]);
    let cluster_network = bridge.strip_suffix("-br").filter(|name| !name.is_empty());
    let Some(cluster_network) = cluster_network else {
        return Err(ConfigError::Bridge { found: bridge.into() });
    };
    // Addresses come from IPPools here, not from the attachment.
    let ipam = text(&config["ipam"]["type"]);
    if !ipam.is_empty() {
        return Err(ConfigError::Ipam { found: ipam.into() });
    }
    let vlan = match &config["vlan"] {
        Value::Null => 0,
        found => found.as_u64().filter(|vlan| *vlan <= MAX_VLAN).ok_or(ConfigError::Vlan)?,
    };
    let tagging = match (&config["vlanTrunk"], vlan) {
        (Value::Null, 0) => Tagging::Untagged,
        (Value::Null, vlan) => Tagging::Vlan(u16::try_from(vlan).map_err(|_| ConfigError::Vlan)?),
        (trunk, 0) => trunk_ranges(trunk)?,
        (_, _) => return Err(ConfigError::Trunk),
    };
    let mtu = match &config["mtu"] {
        Value::Null => None,
        found => match found.as_u64() {
            Some(0) => None,
            Some(mtu) if MTU.contains(&mtu) => Some(mtu),
            _ => return Err(ConfigError::Mtu),
        },
    };
    Ok(Attachment { cluster_network: cluster_network.into(), tagging, mtu })
}

fn trunk_ranges(trunk: &Value) -> Result<Tagging, ConfigError> {
    let ranges = trunk.as_array().ok_or(ConfigError::Trunk)?;
    if ranges.is_empty() {
        return Ok(Tagging::Untagged);
    }
    let id = |value: &Value| {
        let id = value.as_u64().filter(|id| (1..=MAX_VLAN).contains(id)).ok_or(ConfigError::Trunk)?;
        u16::try_from(id).map_err(|_| ConfigError::Trunk)
    };
    let mut read = Vec::new();
    for range in ranges {
        let (low, high) = match range.get("id") {
            Some(single) => (id(single)?, id(single)?),
            None => (id(&range["minID"])?, id(&range["maxID"])?),
        };
        if low > high {
            return Err(ConfigError::Trunk);
        }
        read.push((low, high));
    }
    read.sort_unstable();
    Ok(Tagging::Trunk(read))
}

/// Puts what the configuration means into labels. One that cannot be read is left as it is,
/// for validation to refuse.
fn default(definition: &mut Value) {
    let Ok(attachment) = parse(text(&definition["spec"]["config"])) else { return };
    if !definition["metadata"]["labels"].is_object() {
        definition["metadata"]["labels"] = json!({});
    }
    let labels = &mut definition["metadata"]["labels"];
    if let Some(labels) = labels.as_object_mut() {
        labels.retain(|key, _| !DERIVED.contains(&key.as_str()));
    }
    labels[TYPE_LABEL] = attachment.tagging.type_name().into();
    labels[CLUSTER_NETWORK_LABEL] = attachment.cluster_network.into();
    labels[READY_LABEL] = "true".into();
    if let Tagging::Vlan(vlan) = attachment.tagging {
        labels[VLAN_LABEL] = vlan.to_string().into();
    }
}

/// Gives a new definition the MTU of its cluster network, whatever it says of it: what a frame may have is up to the
/// network and not to who is plugged into it. One that says another than before must say that one.
pub fn complete(definition: &mut Value, old: Option<&Value>, cluster_network_mtu: u64) -> Result<(), String> {
    let config = text(&definition["spec"]["config"]);
    let (Ok(mut read), Ok(Attachment { mtu: Some(mtu), .. })) =
        (serde_json::from_str::<Value>(config), parse(config))
    else {
        return Ok(());
    };
    if mtu == cluster_network_mtu {
        return Ok(());
    }
    match old {
        None => {
            read["mtu"] = cluster_network_mtu.into();
            definition["spec"]["config"] = read.to_string().into();
            Ok(())
        }
        // One of an earlier time may have another, and keeps it until somebody changes it.
        Some(old) if parse(text(&old["spec"]["config"])).is_ok_and(|before| before.mtu == Some(mtu)) => {
            Ok(())
        }
        Some(_) => Err(format!("nad MTU {mtu} does not match cluster network MTU {cluster_network_mtu}")),
    }
}

fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let at = FieldPath::new("spec").child("config");
    let config = text(&new["spec"]["config"]);
    let attachment = match parse(config) {
        Ok(attachment) => attachment,
        Err(why) => return vec![FieldError::invalid(&at, config, why.to_string())],
    };
    let before = old.and_then(|old| parse(text(&old["spec"]["config"])).ok());
    if before.as_ref().is_some_and(|before| before.cluster_network != attachment.cluster_network) {
        return vec![FieldError::invalid(&at, config, "the cluster network can't be changed")];
    }
    if cluster_network::bridge_of(&attachment.cluster_network).len() > 15 {
        return vec![FieldError::invalid(&at, config, "the name of the bridge has more than 15 letters")];
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(more: &str) -> String {
        format!(
            r#"{{"cniVersion":"0.3.1","name":"n","type":"bridge","bridge":"mgmt-br","promiscMode":true,"ipam":{{}}{more}}}"#
        )
    }

    fn labels(more: &str) -> Value {
        let mut definition = json!({"metadata": {"name": "n", "labels": {"mine": "1", VLAN_LABEL: "99"}},
            "spec": {"config": config(more)}});
        default(&mut definition);
        let once = definition.clone();
        default(&mut definition);
        assert_eq!(definition, once, "applying them twice changes nothing the second time");
        definition["metadata"]["labels"].clone()
    }

    #[test]
    fn a_vlan_is_said_in_labels() {
        assert_eq!(
            labels(r#","vlan":7"#),
            json!({"mine": "1", TYPE_LABEL: "L2VlanNetwork", CLUSTER_NETWORK_LABEL: "mgmt", VLAN_LABEL: "7",
                READY_LABEL: "true"})
        );
    }

    #[test]
    fn vlan_zero_is_untagged_and_has_no_id() {
        for more in ["", r#","vlan":0"#] {
            let labels = labels(more);
            assert_eq!(labels[TYPE_LABEL], "UntaggedNetwork");
            assert!(labels[VLAN_LABEL].is_null());
        }
    }

    #[test]
    fn a_trunk_is_its_ranges() {
        let more = r#","vlan":0,"vlanTrunk":[{"minID":200,"maxID":300},{"id":5}]"#;
        assert_eq!(labels(more)[TYPE_LABEL], "L2VlanTrunkNetwork");
        assert_eq!(parse(&config(more)).unwrap().tagging, Tagging::Trunk(vec![(5, 5), (200, 300)]));
    }

    #[test]
    fn what_cannot_be_done_is_refused_with_the_reason() {
        for (text, words) in [
            ("", "is not JSON"),
            (r#"{"type":"macvlan","bridge":"mgmt-br"}"#, "CNI type macvlan is not supported by Sheaf yet"),
            (r#"{"type":"bridge","bridge":"cni0"}"#, "the suffix of the bridge name should be -br"),
            (r#"{"type":"bridge","bridge":"a234567890123-br"}"#, "more than 15 letters"),
            (&config(r#","vlan":4095"#), "VLAN ID must be in the range"),
            (&config(r#","vlan":"7""#), "VLAN ID must be in the range"),
            (&config(r#","vlan":7,"vlanTrunk":[{"id":1}]"#), "without a vlan beside it"),
            (&config(r#","vlanTrunk":[{"minID":9,"maxID":2}]"#), "vlanTrunk must be"),
            (&config(r#","mtu":100"#), "mtu must be in the range"),
            (r#"{"bridge":"mgmt-br","ipam":{"type":"dhcp"}}"#, "ipam dhcp is not supported by Sheaf yet"),
        ] {
            let errors = validate(&json!({"spec": {"config": text}}), None);
            assert!(errors[0].detail.contains(words), "{text}: {}", errors[0].detail);
        }
    }

    #[test]
    fn a_definition_has_the_mtu_of_its_cluster_network() {
        let created = |more: &str, of_network: u64| {
            let mut definition = json!({"spec": {"config": config(more)}});
            complete(&mut definition, None, of_network).unwrap();
            assert!(validate(&definition, None).is_empty());
            text(&definition["spec"]["config"]).to_owned()
        };
        for untouched in ["", r#","mtu":0"#, r#","mtu":1500"#] {
            assert_eq!(created(untouched, 1500), config(untouched));
        }
        let told = created(r#","mtu":9000,"mine":1"#, 1500);
        assert_eq!(parse(&told).unwrap().mtu, Some(1500));
        assert!(told.contains(r#""mine":1"#) && told.contains(r#""promiscMode":true"#), "{told}");
        assert_eq!(parse(&created(r#","mtu":1500"#, 9000)).unwrap().mtu, Some(9000));

        let of = |mtu: &str| json!({"spec": {"config": config(mtu)}});
        let (old, other) = (of(""), of(r#","mtu":9000"#));
        let changed = |new: &Value, old: &Value| complete(&mut new.clone(), Some(old), 1500);
        assert_eq!(
            changed(&other, &old),
            Err("nad MTU 9000 does not match cluster network MTU 1500".to_owned())
        );
        assert_eq!(changed(&other, &other), Ok(()), "what was there before stays as it is");
        assert_eq!(changed(&old, &other), Ok(()));
    }

    #[test]
    fn a_definition_stays_on_its_cluster_network() {
        let old = json!({"spec": {"config": config("")}});
        let new = json!({"spec": {"config": config("").replace("mgmt-br", "other-br")}});
        assert_eq!(validate(&new, Some(&old))[0].detail, "the cluster network can't be changed");
    }
}
