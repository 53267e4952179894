//! The names of what can be counted.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{BY_NAME, CLAIMS, INSTANCES, OF_CLASS, PODS};
use crate::names;

/// What can be limited by a name without a domain.
const STANDARD: [&str; 16] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "replicationcontrollers",
    "services.loadbalancers",
    "services.nodeports",
    "services",
    "resourcequotas",
];

/// What is wrong with a name; nothing when all is well.
pub fn problem(name: &str) -> Vec<String> {
    let problems = names::qualified_name_problems(name);
    if !problems.is_empty() || name.contains('/') {
        return problems;
    }
    let is_hugepages = name.strip_prefix("requests.").unwrap_or(name).starts_with("hugepages-");
    match STANDARD.contains(&name) || BY_NAME.contains(&name) || is_hugepages {
        true => Vec::new(),
        false => vec!["must be a standard resource for quota".into()],
    }
}

/// The kinds whose objects a quota counts, as (group, plural).
pub fn counted_kinds(quota: &Value) -> BTreeSet<(String, String)> {
    let names = quota["spec"]["hard"].as_object().into_iter().flatten().map(|(name, _)| name);
    names.filter_map(|name| kind_behind(name)).collect()
}

fn kind_behind(name: &str) -> Option<(String, String)> {
    let owned = |(group, plural): (&str, &str)| Some((group.to_owned(), plural.to_owned()));
    if let Some(counted) = name.strip_prefix("count/") {
        let (plural, group) = counted.split_once('.').unwrap_or((counted, ""));
        return owned(if (group, plural) == PODS { INSTANCES } else { (group, plural) });
    }
    if name.contains(OF_CLASS) || name == "requests.storage" {
        return owned(CLAIMS);
    }
    if BY_NAME.contains(&name) {
        return owned(("", name));
    }
    let of_machines =
        ["pods", "cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];
    if of_machines.contains(&name) { owned(INSTANCES) } else { None }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_standard_or_have_a_domain() {
        for name in
            ["pods", "count/widgets.example.com", "requests.nvidia.com/gpu", "hugepages-2Mi", "secrets"]
        {
            assert!(problem(name).is_empty(), "{name}");
        }
        assert_eq!(problem("podz"), ["must be a standard resource for quota"]);
        assert!(!problem("not a name").is_empty());
    }

    #[test]
    fn what_is_counted_is_found_by_its_name() {
        let hard = json!({"count/widgets.example.com": 1, "pods": 1, "requests.storage": "1Gi", "secrets": 1,
            "a.storageclass.storage.k8s.io/persistentvolumeclaims": 1, "services.nodeports": 0});
        let kinds = counted_kinds(&json!({"spec": {"hard": hard}}));
        let named = |group: &str, plural: &str| (group.to_owned(), plural.to_owned());
        let wanted = [
            named("", "persistentvolumeclaims"),
            named("", "secrets"),
            named("example.com", "widgets"),
            named("kubevirt.io", "virtualmachineinstances"),
        ];
        assert_eq!(kinds, BTreeSet::from(wanted));
    }
}
