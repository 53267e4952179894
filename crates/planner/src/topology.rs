//! Decides what the machines of guest clusters say of the place they run at.
//!
//! A guest cluster's cloud provider reads zone, region and host from the annotations of the instance that its node is, and
//! nowhere else. They are those of the labels of the node it runs on: when an operator labels a node otherwise, they
//! change, and a label that is taken away is taken away from them.

use std::collections::BTreeMap;

type Texts = BTreeMap<String, String>;

/// Who made a machine.
pub const CREATOR_LABEL: &str = "harvesterhci.io/creator";
/// What makes the machines of guest clusters.
pub const NODE_DRIVER: &str = "docker-machine-driver-harvester";
const KEYS: [&str; 3] =
    ["topology.kubernetes.io/zone", "topology.kubernetes.io/region", "kubernetes.io/hostname"];

/// Whether an instance with these labels is a node of a guest cluster.
pub fn is_told(labels: Option<&Texts>) -> bool {
    labels.and_then(|labels| labels.get(CREATOR_LABEL)).is_some_and(|creator| creator == NODE_DRIVER)
}

/// What must change in an instance's annotations; `None` for what goes. Nothing when they say what the node does.
pub fn changes(
    of_node: Option<&Texts>,
    annotations: Option<&Texts>,
) -> BTreeMap<&'static str, Option<String>> {
    let value = |texts: Option<&Texts>, key: &str| texts.and_then(|texts| texts.get(key)).cloned();
    KEYS.into_iter()
        .filter_map(|key| {
            let wanted = value(of_node, key);
            (wanted != value(annotations, key)).then_some((key, wanted))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(pairs: &[(&str, &str)]) -> Texts {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn only_machines_of_the_node_driver_are_told() {
        assert!(is_told(Some(&texts(&[("harvesterhci.io/creator", "docker-machine-driver-harvester")]))));
        assert!(!is_told(Some(&texts(&[("harvesterhci.io/creator", "harvester")]))));
        assert!(!is_told(None));
    }

    #[test]
    fn what_the_node_says_is_said_and_what_it_no_longer_says_goes() {
        let node =
            texts(&[("topology.kubernetes.io/zone", "b"), ("kubernetes.io/hostname", "n1"), ("other", "x")]);
        let said = texts(&[
            ("topology.kubernetes.io/zone", "a"),
            ("topology.kubernetes.io/region", "r"),
            ("kubernetes.io/hostname", "n1"),
            ("mine", "y"),
        ]);
        let expected = BTreeMap::from([
            ("topology.kubernetes.io/region", None),
            ("topology.kubernetes.io/zone", Some("b".to_owned())),
        ]);
        assert_eq!(changes(Some(&node), Some(&said)), expected);
    }

    proptest! {
        #[test]
        fn after_the_changes_there_is_nothing_to_change(
            node in proptest::collection::btree_map("topology.kubernetes.io/(zone|region)|kubernetes.io/hostname|x", "[ab]", 0..4),
            mut said in proptest::collection::btree_map("topology.kubernetes.io/(zone|region)|kubernetes.io/hostname|y", "[ab]", 0..4),
        ) {
            let others: Vec<String> = said.iter().filter(|(key, _)| *key == "y").map(|(_, v)| v.clone()).collect();
            for (key, value) in changes(Some(&node), Some(&said)) {
                match value {
                    Some(value) => said.insert(key.to_owned(), value),
                    None => said.remove(key),
                };
            }
            prop_assert!(changes(Some(&node), Some(&said)).is_empty());
            prop_assert_eq!(said.get("y").cloned().into_iter().collect::<Vec<_>>(), others);
        }
    }
}
