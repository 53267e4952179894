//! Bringing an existing default role or binding up to date at start.
//!
//! What is missing is added; what somebody added stays. An object annotated
//! `rbac.authorization.kubernetes.io/autoupdate: "false"` is left alone altogether.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Binding, Role, Subject, escalation};

const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// What to do with a binding that is there.
#[derive(Clone, Debug, PartialEq)]
pub enum Reconciled {
    Nothing,
    Update(Value),
    /// Its role is another, and a binding's role never changes: delete it and create this.
    Recreate(Value),
}

/// The role as it should be stored, or nothing when it is well as it is.
pub fn reconcile_role(existing: &Value, wanted: &Value) -> Option<Value> {
    if is_protected(existing) {
        return None;
    }
    let mut updated = with_metadata_of(existing, wanted);
    let (have, want) = (Role::deserialize(existing).ok()?, Role::deserialize(wanted).ok()?);
    if let Err(missing) = escalation::covers(&have.rules, &want.rules) {
        append(&mut updated["rules"], missing.0.into_iter().map(|rule| json!(rule)));
    }
    match (have.aggregation_rule, want.aggregation_rule) {
        (Some(_), None) => _ = updated.as_object_mut()?.remove("aggregationRule"),
        (_, None) => {}
        (have, Some(want)) => {
            let have = have.unwrap_or_default().cluster_role_selectors;
            let missing = want.cluster_role_selectors.into_iter().filter(|selector| !have.contains(selector));
            let missing: Vec<Value> = missing.collect();
            if !missing.is_empty() {
                if !updated["aggregationRule"].is_object() {
                    updated["aggregationRule"] = json!({});
                }
                append(&mut updated["aggregationRule"]["clusterRoleSelectors"], missing);
            }
        }
    }
    (updated != *existing).then_some(updated)
}

pub fn reconcile_binding(existing: &Value, wanted: &Value) -> Reconciled {
    let (Ok(have), Ok(want)) = (Binding::deserialize(existing), Binding::deserialize(wanted)) else {
        return Reconciled::Nothing;
    };
    if is_protected(existing) {
        return Reconciled::Nothing;
    }
    if have.role_ref != want.role_ref {
        return Reconciled::Recreate(wanted.clone());
    }
    let mut updated = with_metadata_of(existing, wanted);
    let missing: Vec<&Subject> =
        want.subjects.iter().filter(|subject| !have.subjects.contains(subject)).collect();
    if !missing.is_empty() {
        append(&mut updated["subjects"], missing.into_iter().map(|subject| json!(subject)));
    }
    if updated == *existing { Reconciled::Nothing } else { Reconciled::Update(updated) }
}

fn is_protected(existing: &Value) -> bool {
    existing["metadata"]["annotations"][AUTO_UPDATE] == "false"
}

/// The existing object with wanted labels and annotations added, never overwritten.
fn with_metadata_of(existing: &Value, wanted: &Value) -> Value {
    let mut updated = existing.clone();
    for map in ["labels", "annotations"] {
        let Some(wanted) = wanted["metadata"][map].as_object() else { continue };
        if !updated["metadata"][map].is_object() {
            updated["metadata"][map] = json!({});
        }
        for (key, value) in wanted {
            if updated["metadata"][map].get(key).is_none() {
                updated["metadata"][map][key] = value.clone();
            }
        }
    }
    updated
}

fn append(list: &mut Value, items: impl IntoIterator<Item = Value>) {
    match list {
        Value::Array(list) => list.extend(items),
        absent => *absent = items.into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rbac::{cluster_role_bindings, cluster_roles};

    fn named(objects: Vec<Value>, name: &str) -> Value {
        objects.into_iter().find(|object| object["metadata"]["name"] == name).unwrap()
    }

    #[test]
    fn a_role_that_is_as_wanted_is_left_alone() {
        for role in cluster_roles() {
            assert_eq!(reconcile_role(&role, &role), None);
        }
        for binding in cluster_role_bindings() {
            assert_eq!(reconcile_binding(&binding, &binding), Reconciled::Nothing);
        }
    }

    #[test]
    fn missing_rules_are_added_and_extra_ones_stay() {
        let wanted = named(cluster_roles(), "system:basic-user");
        let mut existing = wanted.clone();
        let extra = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["nodes"]});
        existing["rules"] = json!([extra, wanted["rules"][1]]);
        let updated = reconcile_role(&existing, &wanted).unwrap();
        let rules = updated["rules"].as_array().unwrap();
        assert_eq!(rules[0], extra);
        assert_eq!(rules.len(), 4);
        assert_eq!(reconcile_role(&updated, &wanted), None);
    }

    #[test]
    fn a_role_that_wants_no_updates_gets_none() {
        let wanted = named(cluster_roles(), "system:discovery");
        let mut existing = wanted.clone();
        existing["rules"] = json!([]);
        existing["metadata"]["annotations"][AUTO_UPDATE] = json!("false");
        assert_eq!(reconcile_role(&existing, &wanted), None);
    }

    #[test]
    fn labels_and_annotations_are_added_but_not_overwritten() {
        let wanted = named(cluster_roles(), "view");
        let mut existing = wanted.clone();
        existing["metadata"] = json!({"name": "view", "labels": {"kubernetes.io/bootstrapping": "mine"}});
        let updated = reconcile_role(&existing, &wanted).unwrap();
        assert_eq!(updated["metadata"]["labels"]["kubernetes.io/bootstrapping"], "mine");
        assert_eq!(updated["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-edit"], "true");
        assert_eq!(updated["metadata"]["annotations"][AUTO_UPDATE], "true");
    }

    #[test]
    fn an_aggregating_role_keeps_gathered_rules_and_regains_its_selector() {
        let wanted = named(cluster_roles(), "admin");
        let mut existing = wanted.clone();
        existing["rules"] = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]);
        assert_eq!(reconcile_role(&existing, &wanted), None);
        existing.as_object_mut().unwrap().remove("aggregationRule");
        assert_eq!(reconcile_role(&existing, &wanted).unwrap()["aggregationRule"], wanted["aggregationRule"]);
    }

    #[test]
    fn a_binding_regains_its_subjects_and_keeps_others() {
        let wanted = named(cluster_role_bindings(), "cluster-admin");
        let mut existing = wanted.clone();
        existing["subjects"] = json!([{"kind": "User", "name": "jane", "apiGroup": super::super::GROUP}]);
        let Reconciled::Update(updated) = reconcile_binding(&existing, &wanted) else { panic!("no update") };
        assert_eq!(updated["subjects"].as_array().unwrap().len(), 2);
        existing.as_object_mut().unwrap().remove("subjects");
        let Reconciled::Update(updated) = reconcile_binding(&existing, &wanted) else { panic!("no update") };
        assert_eq!(updated["subjects"], wanted["subjects"]);
    }

    #[test]
    fn a_binding_to_another_role_is_made_anew() {
        let wanted = named(cluster_role_bindings(), "cluster-admin");
        let mut existing = wanted.clone();
        existing["roleRef"]["name"] = json!("view");
        assert_eq!(reconcile_binding(&existing, &wanted), Reconciled::Recreate(wanted.clone()));
        existing["metadata"]["annotations"][AUTO_UPDATE] = json!("false");
        assert_eq!(reconcile_binding(&existing, &wanted), Reconciled::Nothing);
    }
}
