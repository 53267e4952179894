//! What is to be said of a cluster network: whether a node leads there, and how large frames may be.

use std::collections::BTreeMap;

use sheaf_resources::kinds::{vlan_config::VlanConfig, vlan_status::VlanStatus};

/// What a cluster network other than that of the nodes themselves should say of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub is_ready: bool,
    /// Why it is not.
    pub why: String,
    /// The size of frames and the configuration that says so, as long as there is one.
    pub mtu: Option<(u32, String)>,
}

/// `configs` and `statuses` are those of this cluster network.
pub fn wanted(configs: &[&VlanConfig], statuses: &[&VlanStatus]) -> Wanted {
    let is_ready = statuses.iter().any(|status| status.status.is_ready());
    let told: BTreeMap<&str, &str> = statuses
        .iter()
        .map(|status| {
            let why = status.status.ready().map_or("", |ready| ready.message.as_str());
            (status.status.node.as_str(), why)
        })
        .collect();
    let why = match (is_ready, configs.is_empty(), told.is_empty()) {
        (true, _, _) => String::new(),
        (false, true, _) => {
            "no node has an uplink there: no VlanConfig is of this cluster network".to_owned()
        }
        (false, false, true) => "no node has an uplink there yet".to_owned(),
        (false, false, false) => {
            let each: Vec<String> = told.iter().map(|(node, why)| format!("{node}: {why}")).collect();
            format!("no node has an uplink there yet. {}", each.join("; "))
        }
    };
    let staying = configs.iter().filter(|config| config.metadata.deletion_timestamp.is_none());
    let first = staying.min_by_key(|config| config.metadata.name.as_deref());
    let mtu = first.map(|config| (config.spec.mtu(), config.metadata.name.clone().unwrap_or_default()));
    Wanted { is_ready, why, mtu }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(node: &str, ready: &str, message: &str) -> VlanStatus {
        let ready = json!({"type": "ready", "status": ready, "message": message});
        serde_json::from_value(json!({"status": {"node": node, "conditions": [ready]}})).unwrap()
    }

    fn config(name: &str, mtu: u32) -> VlanConfig {
        serde_json::from_value(
            json!({"metadata": {"name": name}, "spec": {"uplink": {"linkAttributes": {"mtu": mtu}}}}),
        )
        .unwrap()
    }

    #[test]
    fn one_node_that_leads_there_is_enough_and_without_one_it_is_said_why() {
        let (well, ill) = (status("n1", "True", ""), status("n2", "False", "this node has no NIC eth9"));
        let config = config("a", 0);
        assert_eq!(wanted(&[&config], &[&ill, &well]).why, "");
        assert!(wanted(&[&config], &[&ill, &well]).is_ready);
        let said = wanted(&[&config], &[&ill]);
        assert!(!said.is_ready && said.why.contains("n2: this node has no NIC eth9"), "{said:?}");
        assert!(wanted(&[], &[]).why.contains("no VlanConfig"));
        assert!(!wanted(&[&config], &[]).is_ready);
    }

    #[test]
    fn frames_are_as_large_as_its_configurations_say() {
        let (a, b) = (config("a", 9000), config("b", 9000));
        assert_eq!(wanted(&[&b, &a], &[]).mtu, Some((9000, "a".to_owned())));
        assert_eq!(wanted(&[&config("a", 0)], &[]).mtu, Some((1500, "a".to_owned())));
        let mut going = a.clone();
        going.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert_eq!(wanted(&[&going], &[]).mtu, None);
    }
}
