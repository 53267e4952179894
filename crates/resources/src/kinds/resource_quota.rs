//! core/v1 ResourceQuota: how much there may be of what in a namespace. What counts is [`crate::quota`].

use k8s_openapi::api::core::v1::ResourceQuota;
use serde_json::Value;

use super::{age_column, name_column, text};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind},
    quantity, quota,
};

pub fn kind() -> Kind {
    Kind::of_type::<ResourceQuota>("resourcequotas")
        .short(&["quota"])
        .with_status()
        .columns(vec![
            name_column(),
            Column::computed("Request", |quota, _| shown(quota, |name| !name.starts_with("limits"))),
            Column::computed("Limit", |quota, _| shown(quota, |name| name.starts_with("limits"))),
            age_column(),
        ])
        .behaving(Behaviour { validate, prepare_create, ..Behaviour::PLAIN })
}

fn shown(quota: &Value, is_meant: fn(&str) -> bool) -> Value {
    let hard = quota["status"]["hard"].as_object().into_iter().flatten();
    let said = |amount: &Value| quantity::said(amount).map_or_else(|| "0".into(), |said| said.into_owned());
    let all = hard
        .filter(|(name, _)| is_meant(name))
        .map(|(name, hard)| format!("{name}: {}/{}", said(&quota["status"]["used"][name]), said(hard)));
    all.collect::<Vec<_>>().join(", ").into()
}

/// What is used is for the server to count.
fn prepare_create(quota: &mut Value) {
    if let Some(fields) = quota.as_object_mut() {
        fields.remove("status");
    }
}

fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let spec = FieldPath::new("spec");
    let mut errors = Vec::new();
    for (field, part) in [("spec", "hard"), ("status", "hard"), ("status", "used")] {
        let path = FieldPath::new(field).child(part);
        for (name, amount) in new[field][part].as_object().into_iter().flatten() {
            let path = path.key(name);
            errors.extend(
                quota::problem(name).into_iter().map(|why| FieldError::invalid(&path, name.as_str(), why)),
            );
            errors.extend(check_amount(&path, name, amount));
        }
    }
    let scopes: Vec<&str> = new["spec"]["scopes"].as_array().into_iter().flatten().map(text).collect();
    for (scope, why) in quota::scope_problems(&scopes) {
        let about = scope.map_or_else(|| new["spec"]["scopes"].clone(), Value::from);
        errors.push(FieldError::invalid(&spec.child("scopes"), about, why));
    }
    errors.extend(check_selector(&new["spec"]["scopeSelector"], &spec.child("scopeSelector")));
    if let Some(old) = old
        && sorted(&old["spec"]["scopes"]) != sorted(&new["spec"]["scopes"])
    {
        let path = spec.child("scopes");
        errors.push(FieldError::invalid(&path, new["spec"]["scopes"].clone(), "field is immutable"));
    }
    errors
}

fn sorted(scopes: &Value) -> std::collections::BTreeSet<&str> {
    scopes.as_array().into_iter().flatten().map(text).collect()
}

fn check_amount(path: &FieldPath, name: &str, amount: &Value) -> Option<FieldError> {
    let said = quantity::said(amount)?;
    let is_divisible = ["cpu", "memory", "storage"].iter().any(|divisible| name.ends_with(divisible));
    let is_broken = || quantity::milli(&said).is_some_and(|milli| milli % 1000 != 0);
    let why = match quota::read(name, amount) {
        None => "is more than can be counted",
        Some(..0) => "must be greater than or equal to 0",
        Some(_) if !is_divisible && is_broken() => "must be an integer",
        Some(_) => return None,
    };
    Some(FieldError::invalid(path, said.as_ref(), why))
}

fn check_selector(selector: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let path = path.child("matchExpressions");
    for (index, one) in selector["matchExpressions"].as_array().into_iter().flatten().enumerate() {
        let path = path.index(index);
        let (scope, operator) = (text(&one["scopeName"]), text(&one["operator"]));
        if !quota::KNOWN_SCOPES.contains(&scope) {
            errors.push(FieldError::invalid(&path.child("scopeName"), scope, "unsupported scope"));
        }
        let by_name = ["PriorityClass", "VolumeAttributesClass"].contains(&scope);
        if !by_name && operator != "Exists" {
            let why = "must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            errors.push(FieldError::invalid(&path.child("operator"), operator, why));
        }
        let has_values = one["values"].as_array().is_some_and(|values| !values.is_empty());
        match operator {
            "In" | "NotIn" if !has_values => errors.push(FieldError::required(
                &path.child("values"),
                "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
            )),
            "Exists" | "DoesNotExist" if has_values => errors.push(FieldError::invalid(
                &path.child("values"),
                one["values"].clone(),
                "must be no value when `operator` is 'Exists' or 'DoesNotExist' for scope selector",
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => errors.push(FieldError::invalid(
                &path.child("operator"),
                operator,
                "not a valid selector operator",
            )),
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wrong(spec: Value) -> Vec<String> {
        validate(&json!({"spec": spec}), None).into_iter().map(|error| error.to_string()).collect()
    }

    #[test]
    fn limits_are_amounts_of_what_can_be_counted() {
        assert_eq!(
            wrong(json!({"hard": {"pods": "10", "requests.cpu": "1500m", "count/widgets.example.com": "0"}})),
            [""; 0]
        );
        assert_eq!(wrong(json!({"hard": {"pods": "-1"}})).len(), 1);
        assert_eq!(wrong(json!({"hard": {"pods": "1500m"}})).len(), 1);
        assert_eq!(wrong(json!({"hard": {"podz": "1"}})).len(), 1);
        assert_eq!(wrong(json!({"hard": {"pods": -1}})).len(), 1);
        assert_eq!(wrong(json!({"hard": {"pods": 5}})), [""; 0]);
        for amount in ["10Ei", "-10Pi", "1e30"] {
            assert_eq!(wrong(json!({"hard": {"requests.storage": amount}})).len(), 1, "{amount}");
        }
    }

    #[test]
    fn scopes_are_known_and_stay() {
        assert_eq!(wrong(json!({"scopes": ["Odd"]})).len(), 1);
        assert_eq!(wrong(json!({"scopes": ["BestEffort", "NotBestEffort"]})).len(), 1);
        let selector = |one: Value| json!({"scopeSelector": {"matchExpressions": [one]}});
        assert_eq!(
            wrong(selector(json!({"scopeName": "PriorityClass", "operator": "In", "values": ["a"]}))),
            [""; 0]
        );
        assert_eq!(wrong(selector(json!({"scopeName": "PriorityClass", "operator": "In"}))).len(), 1);
        let (old, new) = (json!({"spec": {"scopes": ["Terminating"]}}), json!({"spec": {}}));
        assert_eq!(validate(&new, Some(&old)).len(), 1);
    }

    #[test]
    fn what_is_used_is_shown_beside_its_limit() {
        let status =
            json!({"hard": {"limits.cpu": "2", "pods": "3"}, "used": {"limits.cpu": "1", "pods": "2"}});
        let quota = json!({"status": status});
        assert_eq!(shown(&quota, |name| !name.starts_with("limits")), "pods: 2/3");
        assert_eq!(shown(&quota, |name| name.starts_with("limits")), "limits.cpu: 1/2");
    }
}
