//! RoleBinding: a role, or a cluster role cut down to one namespace, for some subjects. Groups left out are
//! filled in; the role it names never changes.

use k8s_openapi::api::rbac::v1::RoleBinding as Wire;
use serde_json::Value;

use super::binding_columns;
use crate::rbac::{self, changed_binding_problems};
use crate::{
    field_error::FieldError,
    kind::{Behaviour, Kind},
    names::NameRule,
};

pub fn kind() -> Kind {
    Kind::of_type::<Wire>("rolebindings").columns(binding_columns()).behaving(Behaviour {
        default: fill_in,
        validate: |new, old| {
            changed_binding_problems(new, old, true).into_iter().map(FieldError::from).collect()
        },
        name_rule: NameRule::PathSegment,
        create_on_update: true,
        ..Behaviour::PLAIN
    })
}

pub fn fill_in(binding: &mut Value) {
    rbac::default_binding(binding);
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
        for namespaced in [true, false] {
            let problems = |new: &Value, old: Option<&Value>| changed_binding_problems(new, old, namespaced);
            assert_eq!(problems(&named("a"), None), vec![]);
            assert_eq!(problems(&named("a"), Some(&named("a"))), vec![]);
            assert_eq!(problems(&named("b"), Some(&named("a"))).len(), 1);
        }
    }
}
