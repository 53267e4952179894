//! What may be stored as a role or a binding, and what is filled in when left out.
//!
//! Metadata is judged with that of all kinds, elsewhere; an unknown field too. Whether the
//! author holds what they grant is [`super::escalation`]'s question.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Binding, GROUP, PolicyRule, RoleRef, Subject};
use crate::{
    field_error::{FieldError, FieldPath},
    names,
};

/// One thing wrong with one field; becomes a cause in an Invalid answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Problem {
    Required { field: String, detail: &'static str },
    Invalid { field: String, value: Value, detail: String },
    NotSupported { field: String, value: String, supported: &'static [&'static str] },
}

impl From<Problem> for FieldError {
    fn from(problem: Problem) -> Self {
        match problem {
            Problem::Required { field, detail } => FieldError::required(&FieldPath::new(&field), detail),
            Problem::Invalid { field, value, detail } => {
                FieldError::invalid(&FieldPath::new(&field), value, detail)
            }
            Problem::NotSupported { field, value, supported } => {
                FieldError::not_supported(&FieldPath::new(&field), value.as_str(), supported)
            }
        }
    }
}

/// Judges the rules of a Role (`namespaced`) or a ClusterRole.
pub fn rules_problems(rules: &[PolicyRule], namespaced: bool) -> Vec<Problem> {
    rules
        .iter()
        .enumerate()
        .flat_map(|(at, rule)| rule_problems(rule, namespaced, &format!("rules[{at}]")))
        .collect()
}

fn rule_problems(rule: &PolicyRule, namespaced: bool, at: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    let required =
        |field: &str, detail: &'static str| Problem::Required { field: format!("{at}.{field}"), detail };
    if rule.verbs.is_empty() {
        problems.push(required("verbs", "verbs must contain at least one value"));
    }
    if !rule.non_resource_urls.is_empty() {
        let mut refuse = |detail: &str| {
            problems.push(Problem::Invalid {
                field: format!("{at}.nonResourceURLs"),
                value: json!(rule.non_resource_urls),
                detail: detail.to_owned(),
            });
        };
        if namespaced {
            refuse("namespaced rules cannot apply to non-resource URLs");
        }
        if !(rule.api_groups.is_empty() && rule.resources.is_empty() && rule.resource_names.is_empty()) {
            refuse("rules cannot apply to both regular resources and non-resource URLs");
        }
        return problems;
    }
    if rule.api_groups.is_empty() {
        problems.push(required("apiGroups", "resource rules must supply at least one api group"));
    }
    if rule.resources.is_empty() {
        problems.push(required("resources", "resource rules must supply at least one resource"));
    }
    problems
}

/// Fills in the groups of subjects and role, and, as the original's read of old objects
/// does, nothing else.
pub fn default_binding(binding: &mut Value) {
    if let Some(Value::Object(role)) = binding.get_mut("roleRef") {
        default_group(role, GROUP);
    }
    let subjects = binding.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten();
    for subject in subjects.filter_map(Value::as_object_mut) {
        // A service account's group is the core one, whose name is empty: left out.
        if let Some("User" | "Group") = subject.get("kind").and_then(Value::as_str) {
            default_group(subject, GROUP);
        }
    }
}

fn default_group(object: &mut serde_json::Map<String, Value>, group: &str) {
    let group_now = object.get("apiGroup").and_then(Value::as_str).unwrap_or_default();
    if group_now.is_empty() {
        object.insert("apiGroup".to_owned(), json!(group));
    }
}

/// What is wrong with a RoleBinding (`namespaced`) or a ClusterRoleBinding; `before` is what an update replaces.
pub fn changed_binding_problems(binding: &Value, before: Option<&Value>, namespaced: bool) -> Vec<Problem> {
    judged(binding, |binding: Binding| {
        let mut problems = binding_problems(&binding, namespaced);
        problems.extend(before.into_iter().flat_map(|before| {
            judged(before, |before: Binding| {
                role_ref_change_problem(&before.role_ref, &binding.role_ref).into_iter().collect()
            })
        }));
        problems
    })
}

/// Judges subjects and role of a RoleBinding (`namespaced`) or a ClusterRoleBinding.
pub fn binding_problems(binding: &Binding, namespaced: bool) -> Vec<Problem> {
    let mut problems = Vec::new();
    let role = &binding.role_ref;
    if role.api_group != GROUP {
        problems.push(Problem::NotSupported {
            field: "roleRef.apiGroup".to_owned(),
            value: role.api_group.clone(),
            supported: &[GROUP],
        });
    }
    let kinds: &'static [&'static str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&role.kind.as_str()) {
        problems.push(Problem::NotSupported {
            field: "roleRef.kind".to_owned(),
            value: role.kind.clone(),
            supported: kinds,
        });
    }
    if role.name.is_empty() {
        problems.push(Problem::Required { field: "roleRef.name".to_owned(), detail: "" });
    }
    for detail in names::path_segment_problems(&role.name) {
        problems.push(Problem::Invalid { field: "roleRef.name".to_owned(), value: json!(role.name), detail });
    }
    for (at, subject) in binding.subjects.iter().enumerate() {
        problems.extend(subject_problems(subject, namespaced, &format!("subjects[{at}]")));
    }
    problems
}

fn subject_problems(subject: &Subject, namespaced: bool, at: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    let field = |name: &str| format!("{at}.{name}");
    let wrong_name =
        |detail: String| Problem::Invalid { field: field("name"), value: json!(subject.name), detail };
    let wrong_group = |supported| Problem::NotSupported {
        field: field("apiGroup"),
        value: subject.api_group.clone(),
        supported,
    };
    if subject.name.is_empty() {
        problems.push(Problem::Required { field: field("name"), detail: "" });
    }
    match subject.kind.as_str() {
        "ServiceAccount" => {
            if !subject.name.is_empty() {
                problems.extend(names::dns_subdomain_problems(&subject.name).into_iter().map(wrong_name));
            }
            if !subject.api_group.is_empty() {
                problems.push(wrong_group(&[""]));
            }
            if !namespaced && subject.namespace.is_empty() {
                problems.push(Problem::Required { field: field("namespace"), detail: "" });
            }
        }
        kind @ ("User" | "Group") => {
            if subject.name.is_empty() {
                problems.push(wrong_name(format!("{} name cannot be empty", kind.to_lowercase())));
            }
            if subject.api_group != GROUP {
                problems.push(wrong_group(&[GROUP]));
            }
        }
        other => problems.push(Problem::NotSupported {
            field: field("kind"),
            value: other.to_owned(),
            supported: &["ServiceAccount", "User", "Group"],
        }),
    }
    problems
}

/// What a binding grants is fixed for its life: who wants another role makes another
/// binding, so that a list of subjects never silently means something new.
pub fn role_ref_change_problem(before: &RoleRef, after: &RoleRef) -> Option<Problem> {
    (before != after).then(|| Problem::Invalid {
        field: "roleRef".to_owned(),
        value: json!(after),
        detail: "cannot change roleRef".to_owned(),
    })
}

/// Reads a view and judges it; what does not even read is left to the schema.
pub(crate) fn judged<T, J>(object: &Value, judge: J) -> Vec<Problem>
where
    T: for<'de> Deserialize<'de>,
    J: FnOnce(T) -> Vec<Problem>,
{
    T::deserialize(object).map(judge).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(rule: Value) -> Vec<PolicyRule> {
        vec![serde_json::from_value(rule).unwrap()]
    }

    fn required(field: &str, detail: &'static str) -> Problem {
        Problem::Required { field: field.to_owned(), detail }
    }

    #[test]
    fn a_rule_needs_verbs_groups_and_resources() {
        assert_eq!(
            rules_problems(&rule(json!({})), true),
            vec![
                required("rules[0].verbs", "verbs must contain at least one value"),
                required("rules[0].apiGroups", "resource rules must supply at least one api group"),
                required("rules[0].resources", "resource rules must supply at least one resource"),
            ]
        );
        let fine =
            rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}));
        assert!(rules_problems(&fine, true).is_empty());
    }

    #[test]
    fn paths_are_for_cluster_roles_and_for_rules_of_their_own() {
        let paths = rule(json!({"verbs": ["get"], "nonResourceURLs": ["/x"]}));
        assert!(rules_problems(&paths, false).is_empty());
        assert_eq!(
            rules_problems(&paths, true),
            vec![Problem::Invalid {
                field: "rules[0].nonResourceURLs".into(),
                value: json!(["/x"]),
                detail: "namespaced rules cannot apply to non-resource URLs".into()
            }]
        );
        let mixed = rule(json!({"verbs": ["get"], "nonResourceURLs": ["/x"], "resources": ["pods"]}));
        assert_eq!(
            rules_problems(&mixed, false),
            vec![Problem::Invalid {
                field: "rules[0].nonResourceURLs".into(),
                value: json!(["/x"]),
                detail: "rules cannot apply to both regular resources and non-resource URLs".into()
            }]
        );
    }

    fn binding(binding: Value) -> Binding {
        let mut binding = binding;
        default_binding(&mut binding);
        serde_json::from_value(binding).unwrap()
    }

    #[test]
    fn groups_left_out_are_filled_in() {
        let mut object = json!({
            "roleRef": {"kind": "Role", "name": "r"},
            "subjects": [
                {"kind": "User", "name": "u"}, {"kind": "Group", "name": "g", "apiGroup": ""},
                {"kind": "ServiceAccount", "name": "s", "namespace": "n"},
                {"kind": "User", "name": "u", "apiGroup": "other"},
            ],
        });
        default_binding(&mut object);
        assert_eq!(
            object,
            json!({
                "roleRef": {"kind": "Role", "name": "r", "apiGroup": GROUP},
                "subjects": [
                    {"kind": "User", "name": "u", "apiGroup": GROUP}, {"kind": "Group", "name": "g", "apiGroup": GROUP},
                    {"kind": "ServiceAccount", "name": "s", "namespace": "n"},
                    {"kind": "User", "name": "u", "apiGroup": "other"},
                ],
            })
        );
    }

    #[test]
    fn a_cluster_wide_binding_names_a_cluster_role_and_whole_service_accounts() {
        let local = binding(json!({
            "roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "ServiceAccount", "name": "s"}],
        }));
        assert!(binding_problems(&local, true).is_empty());
        assert_eq!(
            binding_problems(&local, false),
            vec![
                Problem::NotSupported {
                    field: "roleRef.kind".into(),
                    value: "Role".into(),
                    supported: &["ClusterRole"]
                },
                required("subjects[0].namespace", ""),
            ]
        );
    }

    #[test]
    fn subjects_are_of_three_kinds_with_a_name() {
        let odd = binding(json!({
            "roleRef": {"kind": "ClusterRole", "name": "a/b", "apiGroup": "x"},
            "subjects": [
                {"kind": "Robot", "name": "r"}, {"kind": "User"}, {"kind": "Group", "name": "g", "apiGroup": "x"},
                {"kind": "ServiceAccount", "name": "Bad_Name", "apiGroup": "x"},
            ],
        }));
        let problems = binding_problems(&odd, true);
        let fields: Vec<&str> = problems
            .iter()
            .map(|problem| match problem {
                Problem::Required { field, .. }
                | Problem::Invalid { field, .. }
                | Problem::NotSupported { field, .. } => field.as_str(),
            })
            .collect();
        assert_eq!(
            fields,
            [
                "roleRef.apiGroup",
                "roleRef.name",
                "subjects[0].kind",
                "subjects[1].name",
                "subjects[1].name",
                "subjects[2].apiGroup",
                "subjects[3].name",
                "subjects[3].apiGroup",
            ]
        );
        assert!(problems.contains(&Problem::Invalid {
            field: "subjects[1].name".into(),
            value: json!(""),
            detail: "user name cannot be empty".into()
        }));
    }

    #[test]
    fn the_role_of_a_binding_never_changes() {
        let reader = RoleRef { api_group: GROUP.into(), kind: "Role".into(), name: "reader".into() };
        let writer = RoleRef { name: "writer".into(), ..reader.clone() };
        assert_eq!(role_ref_change_problem(&reader, &reader), None);
        assert_eq!(
            role_ref_change_problem(&reader, &writer),
            Some(Problem::Invalid {
                field: "roleRef".into(),
                value: json!({"apiGroup": GROUP, "kind": "Role", "name": "writer"}),
                detail: "cannot change roleRef".into()
            })
        );
    }
}
