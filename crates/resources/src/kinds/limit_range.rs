//! core/v1 LimitRange: how small and how large one machine or one claim may be in a namespace.
//!
//! What it says of containers and pods holds for machines, which count as one pod with one container each. Defaults of
//! containers are for those who do not say what they need; a machine always does, so only a machine that says nothing of
//! its memory gets any.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::LimitRange;
use serde_json::Value;

use super::{
    created_at_column, name_column, text,
    virtual_machine_instance::{demand::Demand, spec::VirtualMachineInstanceSpec},
};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Kind},
    quantity,
};

const OF_MACHINES: [&str; 2] = ["Container", "Pod"];
const CLAIM: &str = "PersistentVolumeClaim";

pub fn kind() -> Kind {
    Kind::of_type::<LimitRange>("limitranges")
        .short(&["limits"])
        .columns(vec![name_column(), created_at_column()])
        .behaving(Behaviour { validate, default, ..Behaviour::PLAIN })
}

/// What is left out follows from what is there, as in the original: the default limit from the maximum, the default
/// request from the default limit, or else from the minimum.
fn default(range: &mut Value) {
    for item in range["spec"]["limits"].as_array_mut().into_iter().flatten() {
        if item["type"] != "Container" {
            continue;
        }
        for (to, from) in [("default", "max"), ("defaultRequest", "default"), ("defaultRequest", "min")] {
            let amounts = item[from].as_object().cloned().unwrap_or_default();
            for (name, amount) in amounts {
                if item[to].get(&name).is_none() {
                    item[to][name] = amount;
                }
            }
        }
    }
}

fn validate(new: &Value, _old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let path = FieldPath::new("spec").child("limits");
    let mut types = BTreeSet::new();
    for (index, item) in new["spec"]["limits"].as_array().into_iter().flatten().enumerate() {
        let path = path.index(index);
        let sort = text(&item["type"]);
        if !types.insert(sort) {
            errors.push(FieldError::duplicate(&path.child("type"), sort));
        }
        if !OF_MACHINES.contains(&sort) && sort != CLAIM && !sort.contains('/') {
            errors.push(FieldError::invalid(
                &path.child("type"),
                sort,
                "must be a standard limit type or fully qualified",
            ));
        }
        if sort == "Pod" {
            for field in ["default", "defaultRequest"] {
                if item[field].as_object().is_some_and(|amounts| !amounts.is_empty()) {
                    let why = "may not be specified when `type` is 'Pod'";
                    errors.push(FieldError::forbidden(&path.child(field), why));
                }
            }
        }
        if sort == CLAIM && item["min"]["storage"].is_null() && item["max"]["storage"].is_null() {
            let why = "either minimum or maximum storage value is required, but neither was provided";
            errors.push(FieldError::required(&path.child("limits"), why));
        }
        errors.extend(check_order(item, &path));
    }
    errors
}

/// Smaller than larger: min, default request, default, max.
fn check_order(item: &Value, path: &FieldPath) -> Vec<FieldError> {
    let words =
        [("min", "min"), ("defaultRequest", "default request"), ("default", "default"), ("max", "max")];
    let mut errors = Vec::new();
    for (at, (low, low_words)) in words.iter().enumerate() {
        for (name, amount) in item[*low].as_object().into_iter().flatten() {
            for (high, high_words) in &words[at + 1..] {
                let both = quantity::said(amount).zip(quantity::said(&item[*high][name]));
                let Some((small, large)) = both else { continue };
                let exceeds =
                    quantity::milli(&small).zip(quantity::milli(&large)).is_some_and(|(a, b)| a > b);
                if exceeds {
                    let why = format!("{low_words} value {small} is greater than {high_words} value {large}");
                    errors.push(FieldError::invalid(&path.child(low).key(name), small.as_ref(), why));
                }
            }
        }
    }
    for (name, ratio) in item["maxLimitRequestRatio"].as_object().into_iter().flatten() {
        let Some(said) = quantity::said(ratio) else { continue };
        if quantity::milli(&said).is_some_and(|ratio| ratio < 1000) {
            let why = format!("ratio {said} is less than 1");
            errors.push(FieldError::invalid(
                &path.child("maxLimitRequestRatio").key(name),
                said.as_ref(),
                why,
            ));
        }
    }
    errors
}

fn items<'a>(range: &'a Value, sorts: &'a [&str]) -> impl Iterator<Item = &'a Value> {
    let items = range["spec"]["limits"].as_array().into_iter().flatten();
    items.filter(move |item| sorts.contains(&text(&item["type"])))
}

/// Gives a machine that says nothing of its memory the default.
pub fn complete_instance(range: &Value, instance: &mut Value) {
    let domain = &mut instance["spec"]["domain"];
    let says = |part: &str| !domain["resources"][part]["memory"].is_null();
    if !domain["memory"]["guest"].is_null() || says("limits") || says("requests") {
        return;
    }
    let default = items(range, &["Container"]).find_map(|item| quantity::said(&item["default"]["memory"]));
    if let Some(default) = default {
        domain["resources"]["limits"]["memory"] = default.as_ref().into();
    }
}

/// Why a machine is too small or too large.
pub fn check_instance(range: &Value, spec: &VirtualMachineInstanceSpec) -> Vec<String> {
    let Demand { requested, limit } = Demand::of(spec);
    let both = [
        ("cpu", requested.cpu_milli, limit.cpu_milli),
        ("memory", requested.memory_bytes.saturating_mul(1000), limit.memory_bytes.saturating_mul(1000)),
    ];
    let mut problems = Vec::new();
    for item in items(range, &OF_MACHINES) {
        for (name, request, limit) in both {
            problems.extend(check_size(item, name, request, limit));
        }
    }
    problems
}

/// Why a claim is too small or too large.
pub fn check_claim(range: &Value, claim: &Value) -> Vec<String> {
    let asked = quantity::said(&claim["spec"]["resources"]["requests"]["storage"]);
    let Some(asked) = asked.and_then(|asked| quantity::milli(&asked)) else { return Vec::new() };
    let sorts = [CLAIM];
    let checked = items(range, &sorts).flat_map(|item| {
        // Of a claim there is only a request.
        let words = |problem: String| problem.replace("but limit is", "but request is");
        check_size(item, "storage", asked, asked).into_iter().map(words)
    });
    checked.collect()
}

/// Amounts are in thousandths.
fn check_size(item: &Value, name: &str, request: i64, limit: i64) -> Vec<String> {
    let sort = text(&item["type"]);
    let bound = |field: &str| {
        let said = quantity::said(&item[field][name])?;
        let milli = quantity::milli(&said)?;
        Some((said, milli))
    };
    let shown = |milli: i64| match name {
        "cpu" => quantity::cores(milli).0,
        _ => quantity::bytes(milli / 1000).0,
    };
    let mut problems = Vec::new();
    if let Some((said, least)) = bound("min")
        && request < least
    {
        problems
            .push(format!("minimum {name} usage per {sort} is {said}, but request is {}", shown(request)));
    }
    if let Some((said, most)) = bound("max")
        && limit > most
    {
        problems.push(format!("maximum {name} usage per {sort} is {said}, but limit is {}", shown(limit)));
    }
    if let Some((said, most)) = bound("maxLimitRequestRatio")
        && request > 0
        && i128::from(limit) * 1000 > i128::from(most) * i128::from(request)
    {
        let ratio = limit as f64 / request as f64;
        problems.push(format!(
            "{name} max limit to request ratio per {sort} is {said}, but provided ratio is {ratio:.6}"
        ));
    }
    problems
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn range(item: Value) -> Value {
        json!({"spec": {"limits": [item]}})
    }

    fn spec(domain: Value) -> VirtualMachineInstanceSpec {
        serde_json::from_value(json!({"domain": domain})).unwrap()
    }

    #[test]
    fn a_machine_is_no_smaller_and_no_larger_than_it_may_be() {
        let range = range(
            json!({"type": "Container", "min": {"memory": "512Mi"}, "max": {"cpu": "2", "memory": "2Gi"}}),
        );
        let machine = |cores: u64, memory: &str| {
            check_instance(
                &range,
                &spec(json!({"cpu": {"cores": cores}, "memory": {"guest": memory}, "devices": {}})),
            )
        };
        assert!(machine(2, "1Gi").is_empty());
        assert_eq!(
            machine(1, "256Mi"),
            ["minimum memory usage per Container is 512Mi, but request is 256Mi"]
        );
        assert_eq!(
            machine(4, "3Gi"),
            [
                "maximum cpu usage per Container is 2, but limit is 4",
                "maximum memory usage per Container is 2Gi, but limit is 3Gi"
            ]
        );
    }

    #[test]
    fn a_limit_is_not_too_far_from_its_request() {
        let range = range(json!({"type": "Pod", "maxLimitRequestRatio": {"memory": "2"}}));
        let resources = json!({"requests": {"memory": "256Mi"}, "limits": {"memory": "1Gi"}});
        let problems = check_instance(&range, &spec(json!({"resources": resources, "devices": {}})));
        assert_eq!(
            problems,
            ["memory max limit to request ratio per Pod is 2, but provided ratio is 4.000000"]
        );
    }

    #[test]
    fn a_claim_is_within_its_bounds() {
        let range = range(
            json!({"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "10Gi"}}),
        );
        let claim = |size: &str| {
            check_claim(&range, &json!({"spec": {"resources": {"requests": {"storage": size}}}}))
        };
        assert!(claim("5Gi").is_empty());
        assert_eq!(
            claim("20Gi"),
            ["maximum storage usage per PersistentVolumeClaim is 10Gi, but request is 20Gi"]
        );
        assert_eq!(claim("1Mi").len(), 1);
    }

    #[test]
    fn only_a_machine_without_memory_gets_the_default() {
        let range = range(json!({"type": "Container", "default": {"memory": "512Mi", "cpu": "100m"}}));
        let mut silent = json!({"spec": {"domain": {"devices": {}}}});
        complete_instance(&range, &mut silent);
        assert_eq!(silent["spec"]["domain"]["resources"], json!({"limits": {"memory": "512Mi"}}));
        let told = json!({"spec": {"domain": {"memory": {"guest": "4Gi"}}}});
        let mut same = told.clone();
        complete_instance(&range, &mut same);
        assert_eq!(same, told);
    }

    #[test]
    fn a_bare_number_is_an_amount_too() {
        let range = range(json!({"type": "Container", "max": {"cpu": 2}}));
        let spec = spec(json!({"cpu": {"cores": 4}, "memory": {"guest": "1Gi"}, "devices": {}}));
        assert_eq!(check_instance(&range, &spec), ["maximum cpu usage per Container is 2, but limit is 4"]);
        let range = self::range(json!({"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}));
        let claim = json!({"spec": {"resources": {"requests": {"storage": 2_i64 << 30}}}});
        assert_eq!(check_claim(&range, &claim).len(), 1);
    }

    #[test]
    fn bounds_are_in_order() {
        let wrong = |item: Value| validate(&range(item), None).len();
        assert_eq!(wrong(json!({"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}})), 1);
        assert_eq!(wrong(json!({"type": "Pod", "default": {"cpu": "2"}})), 1);
        assert_eq!(wrong(json!({"type": "PersistentVolumeClaim"})), 1);
        assert_eq!(wrong(json!({"type": "Odd"})), 1);
        assert_eq!(wrong(json!({"type": "Container", "min": {"cpu": "1"}, "max": {"cpu": "1"}})), 0);
    }

    #[test]
    fn what_is_left_out_follows_from_what_is_there() {
        let mut range = range(json!({"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"}}));
        default(&mut range);
        let item = &range["spec"]["limits"][0];
        assert_eq!(
            (&item["default"], &item["defaultRequest"]),
            (&json!({"cpu": "2"}), &json!({"cpu": "2", "memory": "1Mi"}))
        );
    }
}
