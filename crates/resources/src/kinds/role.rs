//! Role: permissions within one namespace. Nothing is filled in.

use k8s_openapi::api::rbac::v1::Role as Wire;
use serde_json::Value;

use super::{created_at_column, name_column};
use crate::rbac::{Problem, Role, judged, rules_problems};
use crate::{
    field_error::FieldError,
    kind::{Behaviour, Kind},
    names::NameRule,
};

pub fn kind() -> Kind {
    Kind::of_type::<Wire>("roles").columns(vec![name_column(), created_at_column()]).behaving(Behaviour {
        validate: |new, _| problems(new).into_iter().map(FieldError::from).collect(),
        name_rule: NameRule::PathSegment,
        create_on_update: true,
        ..Behaviour::PLAIN
    })
}

pub fn problems(role: &Value) -> Vec<Problem> {
    judged(role, |role: Role| rules_problems(&role.rules, true))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_role_cannot_speak_of_paths() {
        let rule = json!({"verbs": ["get"], "nonResourceURLs": ["/metrics"]});
        assert_eq!(problems(&json!({"rules": [rule]})).len(), 1);
        assert_eq!(problems(&json!({"rules": null})), vec![]);
    }
}
