//! ClusterRole: permissions anywhere, on paths too, or gathered from other cluster roles.
//! Nothing is filled in.

use k8s_openapi::api::rbac::v1::ClusterRole as Wire;
use serde_json::{Value, json};

use super::{created_at_column, name_column};
use crate::{
    field_error::FieldError,
    kind::{Behaviour, Kind},
    names::NameRule,
};
use crate::{
    rbac::{Problem, Role, judged, rules_problems},
    selector::LabelSelector,
};

pub fn kind() -> Kind {
    Kind::of_type::<Wire>("clusterroles")
        .cluster_scoped()
        .columns(vec![name_column(), created_at_column()])
        .behaving(Behaviour {
            validate: |new, _| problems(new).into_iter().map(FieldError::from).collect(),
            name_rule: NameRule::PathSegment,
            create_on_update: true,
            ..Behaviour::PLAIN
        })
}

pub fn problems(role: &Value) -> Vec<Problem> {
    judged(role, |role: Role| {
        let mut problems = rules_problems(&role.rules, false);
        if let Some(aggregation) = role.aggregation_rule {
            let at = "aggregationRule.clusterRoleSelectors";
            if aggregation.cluster_role_selectors.is_empty() {
                problems.push(Problem::Required {
                    field: at.to_owned(),
                    detail: "at least one clusterRoleSelector required if aggregationRule is non-nil",
                });
            }
            for (index, selector) in aggregation.cluster_role_selectors.iter().enumerate() {
                if let Err(error) = LabelSelector::from_object(selector) {
                    problems.push(Problem::Invalid {
                        field: format!("{at}[{index}]"),
                        value: json!(selector),
                        detail: error.to_string(),
                    });
                }
            }
        }
        problems
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_role_may_speak_of_paths() {
        let rule = json!({"verbs": ["get"], "nonResourceURLs": ["/metrics"]});
        assert_eq!(problems(&json!({"rules": [rule]})), vec![]);
    }

    #[test]
    fn a_cluster_role_that_gathers_says_what() {
        assert_eq!(problems(&json!({"aggregationRule": {}})).len(), 1);
        let selectors = |selector: Value| json!({"aggregationRule": {"clusterRoleSelectors": [selector]}});
        assert_eq!(problems(&selectors(json!({"matchLabels": {"a": "b"}}))), vec![]);
        assert_eq!(problems(&selectors(json!({"matchLabels": {"a": "-"}}))).len(), 1);
    }
}
