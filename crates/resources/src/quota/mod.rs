//! Resource quotas: what counts in a namespace, how much of it an object takes, and whether it may.
//!
//! A machine that is not over counts as the pod that a client would expect of it (`pods`, `requests.cpu`,
//! `limits.memory`, ...). The pods that are shown of machines do not count again.
//!
//! Pure: who writes down what is used, and that nobody else does so meanwhile, is the API server's to see to.

mod amounts;
mod names;
mod scopes;
mod verdict;

use serde_json::Value;

pub use self::{
    amounts::{Amounts, read, read_all},
    names::{counted_kinds, problem},
    scopes::{KNOWN as KNOWN_SCOPES, matches, problems as scope_problems},
    verdict::{Verdict, charge, counted, is_counted},
};
use crate::{
    kinds::virtual_machine_instance::{VirtualMachineInstance, demand::Demand},
    quantity,
};

pub(crate) const INSTANCES: (&str, &str) = ("kubevirt.io", "virtualmachineinstances");
pub(crate) const CLAIMS: (&str, &str) = ("", "persistentvolumeclaims");
const PODS: (&str, &str) = ("", "pods");
/// Core kinds that count under their own name, beside `count/`.
pub(crate) const BY_NAME: [&str; 5] =
    ["configmaps", "persistentvolumeclaims", "resourcequotas", "secrets", "services"];
pub(crate) const OF_CLASS: &str = ".storageclass.storage.k8s.io/";

/// Whether it hangs on an object's contents what it takes; otherwise all of a kind are alike.
pub fn counts_content(group: &str, plural: &str) -> bool {
    [CLAIMS, INSTANCES].contains(&(group, plural))
}

/// What an object takes.
pub fn usage_of(group: &str, plural: &str, object: &Value) -> Amounts {
    let mut usage = Amounts::new();
    if (group, plural) == PODS {
        return usage;
    }
    let counted =
        if group.is_empty() { format!("count/{plural}") } else { format!("count/{plural}.{group}") };
    usage.insert(counted, 1);
    if group.is_empty() && BY_NAME.contains(&plural) {
        usage.insert(plural.into(), 1);
    }
    match (group, plural) {
        CLAIMS => add_claim(&mut usage, object),
        INSTANCES => add_instance(&mut usage, object),
        _ => {}
    }
    usage
}

fn add_claim(usage: &mut Amounts, claim: &Value) {
    let asked = quantity::said(&claim["spec"]["resources"]["requests"]["storage"]);
    let bytes = asked.and_then(|asked| quantity::value(&asked)).unwrap_or(0);
    usage.insert("requests.storage".into(), bytes);
    if let Some(class) = claim["spec"]["storageClassName"].as_str().filter(|class| !class.is_empty()) {
        usage.insert(format!("{class}{OF_CLASS}requests.storage"), bytes);
        usage.insert(format!("{class}{OF_CLASS}persistentvolumeclaims"), 1);
    }
}

fn add_instance(usage: &mut Amounts, instance: &Value) {
    let Ok(instance) = serde_json::from_value::<VirtualMachineInstance>(instance.clone()) else { return };
    if instance.status.phase.is_final() {
        return;
    }
    let Demand { requested, limit } = Demand::of(&instance.spec);
    for (name, amount) in [
        ("pods", 1),
        ("count/pods", 1),
        ("cpu", requested.cpu_milli),
        ("requests.cpu", requested.cpu_milli),
        ("limits.cpu", limit.cpu_milli),
        ("memory", requested.memory_bytes),
        ("requests.memory", requested.memory_bytes),
        ("limits.memory", limit.memory_bytes),
    ] {
        usage.insert(name.into(), amount);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_machine_counts_as_its_pod_until_it_is_over() {
        let instance = |phase: &str| {
            json!({"spec": {"domain": {"cpu": {"cores": 2}, "memory": {"guest": "1Gi"}, "devices": {}}},
                "status": {"phase": phase}})
        };
        let usage = usage_of("kubevirt.io", "virtualmachineinstances", &instance("Running"));
        assert_eq!((usage["pods"], usage["requests.cpu"], usage["limits.memory"]), (1, 200, 1 << 30));
        let over = usage_of("kubevirt.io", "virtualmachineinstances", &instance("Succeeded"));
        assert_eq!(over, Amounts::from([("count/virtualmachineinstances.kubevirt.io".into(), 1)]));
        assert!(usage_of("", "pods", &json!({})).is_empty());
    }

    #[test]
    fn a_claim_counts_in_its_class_too() {
        let claim =
            json!({"spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "3Gi"}}}});
        let usage = usage_of("", "persistentvolumeclaims", &claim);
        assert_eq!(usage["requests.storage"], 3 << 30);
        assert_eq!(usage["fast.storageclass.storage.k8s.io/requests.storage"], 3 << 30);
        assert_eq!(usage["fast.storageclass.storage.k8s.io/persistentvolumeclaims"], 1);
        assert_eq!((usage["persistentvolumeclaims"], usage["count/persistentvolumeclaims"]), (1, 1));
        let bare = json!({"spec": {"resources": {"requests": {"storage": 1024}}}});
        assert_eq!(usage_of("", "persistentvolumeclaims", &bare)["requests.storage"], 1024);
    }
}
