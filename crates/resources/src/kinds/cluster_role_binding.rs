//! ClusterRoleBinding: a cluster role everywhere, for some subjects. Groups left out are
//! filled in; the role it names never changes.

use k8s_openapi::api::rbac::v1::ClusterRoleBinding as Wire;
use serde_json::Value;

use super::binding_columns;
use crate::rbac::{self, Binding, Problem, binding_problems, judged, role_ref_change_problem};
use crate::{
    field_error::FieldError,
    kind::{Behaviour, Kind},
    names::NameRule,
};

pub fn kind() -> Kind {
    Kind::of_type::<Wire>("clusterrolebindings").cluster_scoped().columns(binding_columns()).behaving(
        Behaviour {
            default: fill_in,
            validate: |new, old| problems(new, old).into_iter().map(FieldError::from).collect(),
            name_rule: NameRule::PathSegment,
            ..Behaviour::PLAIN
        },
    )
}

pub fn fill_in(binding: &mut Value) {
    rbac::default_binding(binding);
}

/// `before` is what an update replaces.
pub fn problems(binding: &Value, before: Option<&Value>) -> Vec<Problem> {
    judged(binding, |binding: Binding| {
        let mut problems = binding_problems(&binding, false);
        problems.extend(before.into_iter().flat_map(|before| {
            judged(before, |before: Binding| {
                role_ref_change_problem(&before.role_ref, &binding.role_ref).into_iter().collect()
            })
        }));
        problems
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_role_named_at_birth_is_named_for_life() {
        let named = |name: &str| {
            let mut binding = json!({"roleRef": {"kind": "ClusterRole", "name": name}});
            fill_in(&mut binding);
            binding
        };
        assert_eq!(problems(&named("a"), None), vec![]);
        assert_eq!(problems(&named("a"), Some(&named("a"))), vec![]);
        assert_eq!(problems(&named("b"), Some(&named("a"))).len(), 1);
    }
}
