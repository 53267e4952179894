//! ClusterRoleBinding: a cluster role everywhere, for some subjects. Groups left out are
//! filled in; the role it names never changes.

use k8s_openapi::api::rbac::v1::ClusterRoleBinding as Wire;
use serde_json::Value;

use super::binding_columns;
use crate::rbac::{self, changed_binding_problems};
use crate::{
    field_error::FieldError,
    kind::{Behaviour, Kind},
    names::NameRule,
};

pub fn kind() -> Kind {
    Kind::of_type::<Wire>("clusterrolebindings").cluster_scoped().columns(binding_columns()).behaving(
        Behaviour {
            default: fill_in,
            validate: |new, old| {
                changed_binding_problems(new, old, false).into_iter().map(FieldError::from).collect()
            },
            name_rule: NameRule::PathSegment,
            create_on_update: true,
            ..Behaviour::PLAIN
        },
    )
}

pub fn fill_in(binding: &mut Value) {
    rbac::default_binding(binding);
}
