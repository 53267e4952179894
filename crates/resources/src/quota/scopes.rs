//! Which objects a quota is about, when not all.

use serde_json::Value;

use super::{CLAIMS, INSTANCES};

pub const KNOWN: [&str; 7] = [
    "BestEffort",
    "CrossNamespacePodAffinity",
    "NotBestEffort",
    "NotTerminating",
    "PriorityClass",
    "Terminating",
    "VolumeAttributesClass",
];
/// Nothing is both.
const OPPOSITES: [(&str, &str); 2] = [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")];

/// Whether a quota is about an object.
pub fn matches(quota: &Value, group: &str, plural: &str, object: &Value) -> bool {
    let spec = &quota["spec"];
    let plain = spec["scopes"].as_array().into_iter().flatten();
    let mut plain = plain.map(|scope| (scope.as_str().unwrap_or_default(), "Exists", &Value::Null));
    let selected = spec["scopeSelector"]["matchExpressions"].as_array().into_iter().flatten();
    let mut selected = selected.map(|one| {
        let text = |name: &str| one[name].as_str().unwrap_or_default();
        (text("scopeName"), text("operator"), &one["values"])
    });
    let is_in = |(scope, operator, values): (&str, &str, &Value)| match (group, plural) {
        INSTANCES => is_instance_in(scope, operator, values, object),
        CLAIMS if scope == "VolumeAttributesClass" => {
            is_named_by(object["spec"]["volumeAttributesClassName"].as_str(), operator, values)
        }
        _ => false,
    };
    plain.all(is_in) && selected.all(is_in)
}

/// A machine runs until it is told otherwise, and always says how much memory it takes.
fn is_instance_in(scope: &str, operator: &str, values: &Value, instance: &Value) -> bool {
    match scope {
        "NotTerminating" | "NotBestEffort" => true,
        "PriorityClass" => is_named_by(instance["spec"]["priorityClassName"].as_str(), operator, values),
        _ => false,
    }
}

fn is_named_by(name: Option<&str>, operator: &str, values: &Value) -> bool {
    let name = name.unwrap_or_default();
    let is_one = values.as_array().into_iter().flatten().any(|value| value == name);
    match operator {
        "In" => is_one,
        "NotIn" => !is_one,
        "Exists" => !name.is_empty(),
        "DoesNotExist" => name.is_empty(),
        _ => false,
    }
}

/// What is wrong with a list of scopes: each with what it is about, or with all of them.
pub fn problems(scopes: &[&str]) -> Vec<(Option<String>, &'static str)> {
    let unknown = scopes.iter().filter(|scope| !KNOWN.contains(scope));
    let mut problems: Vec<_> =
        unknown.map(|scope| (Some((*scope).to_owned()), "unsupported scope")).collect();
    if OPPOSITES.iter().any(|(one, other)| scopes.contains(one) && scopes.contains(other)) {
        problems.push((None, "conflicting scopes"));
    }
    problems
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_scope_narrows_a_quota_to_some_machines() {
        let machine = |class: &str| json!({"spec": {"priorityClassName": class}});
        let scoped = |scope: Value| json!({"spec": scope});
        let about = |quota: &Value, machine: &Value| {
            matches(quota, "kubevirt.io", "virtualmachineinstances", machine)
        };
        assert!(about(&scoped(json!({})), &machine("")));
        assert!(about(&scoped(json!({"scopes": ["NotTerminating", "NotBestEffort"]})), &machine("")));
        assert!(!about(&scoped(json!({"scopes": ["Terminating"]})), &machine("")));
        let high = scoped(json!({"scopeSelector": {"matchExpressions":
            [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}}));
        assert!(about(&high, &machine("high")) && !about(&high, &machine("low")));
        assert!(!matches(&scoped(json!({"scopes": ["NotTerminating"]})), "", "configmaps", &json!({})));
    }

    #[test]
    fn opposites_are_refused() {
        assert_eq!(problems(&["Terminating", "NotTerminating"]), [(None, "conflicting scopes")]);
        assert_eq!(problems(&["Odd"]), [(Some("Odd".to_owned()), "unsupported scope")]);
    }
}
