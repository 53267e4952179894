//! Role: permissions within one namespace. Nothing is filled in.

use serde_json::Value;

use crate::rbac::{Problem, Role, judged, rules_problems};

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
