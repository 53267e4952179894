//! Decides the rules of a cluster role that gathers those of others.
//!
//! Rules come in the order of the selectors, then of the roles' names, then as each role
//! lists them; what was gathered once is not gathered again. So the same roles always give
//! the same rules, and a role at rest stays at rest.
//!
//! A gathered role may itself gather. Its rules are read as they stand, so a change climbs
//! one level per look. Rings are deliberately not looked for: roles that gather each other
//! keep what any of them once held, as in the original.

use sheaf_resources::{
    rbac::{PolicyRule, Role},
    selector::{LabelSelector, LabelSelectorError},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Nothing,
    /// Write these as the role's `rules`, whatever it had.
    SetRules(Vec<PolicyRule>),
}

/// What to do with `role`, given every cluster role there is, itself included.
pub fn next_step<'a>(
    role: &Role,
    all: impl IntoIterator<Item = &'a Role>,
) -> Result<Step, LabelSelectorError> {
    let Some(aggregation) = &role.aggregation_rule else { return Ok(Step::Nothing) };
    let mut others: Vec<&Role> =
        all.into_iter().filter(|other| other.metadata.name != role.metadata.name).collect();
    others.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));

    let mut gathered: Vec<PolicyRule> = Vec::new();
    for selector in &aggregation.cluster_role_selectors {
        let selector = LabelSelector::from_object(selector)?;
        for other in others.iter().filter(|other| selector.matches(&other.metadata.labels)) {
            for rule in &other.rules {
                if !gathered.contains(rule) {
                    gathered.push(rule.clone());
                }
            }
        }
    }
    Ok(if gathered == role.rules { Step::Nothing } else { Step::SetRules(gathered) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use sheaf_resources::rbac;

    use super::*;

    fn role(object: Value) -> Role {
        serde_json::from_value(object).unwrap()
    }

    fn rule(resource: &str) -> Value {
        json!({"verbs": ["get"], "apiGroups": [""], "resources": [resource]})
    }

    fn part(name: &str, labels: Value, resources: &[&str]) -> Role {
        let rules: Vec<Value> = resources.iter().map(|resource| rule(resource)).collect();
        role(json!({"metadata": {"name": name, "labels": labels}, "rules": rules}))
    }

    fn gathering(selectors: Value, resources: &[&str]) -> Role {
        let rules: Vec<Value> = resources.iter().map(|resource| rule(resource)).collect();
        role(json!({
            "metadata": {"name": "sum", "labels": {"a": "1"}},
            "rules": rules,
            "aggregationRule": {"clusterRoleSelectors": selectors},
        }))
    }

    fn resources(step: Step) -> Vec<String> {
        match step {
            Step::Nothing => panic!("nothing to do"),
            Step::SetRules(rules) => rules.into_iter().map(|rule| rule.resources[0].clone()).collect(),
        }
    }

    #[test]
    fn a_role_that_gathers_nothing_is_left_alone() {
        let plain = part("plain", json!({}), &["pods"]);
        assert_eq!(next_step(&plain, [&plain]), Ok(Step::Nothing));
    }

    #[test]
    fn rules_come_in_the_order_of_selectors_then_names() {
        let all = [
            part("z", json!({"a": "1"}), &["zed", "pods"]),
            part("b", json!({"a": "1"}), &["bee"]),
            part("c", json!({"b": "1"}), &["cee", "pods"]),
            part("d", json!({"c": "1"}), &["never"]),
        ];
        let sum = gathering(json!([{"matchLabels": {"b": "1"}}, {"matchLabels": {"a": "1"}}]), &[]);
        assert_eq!(resources(next_step(&sum, &all).unwrap()), ["cee", "pods", "bee", "zed"]);
    }

    #[test]
    fn a_role_does_not_gather_itself() {
        let sum = gathering(json!([{"matchLabels": {"a": "1"}}]), &["stale"]);
        assert_eq!(next_step(&sum, [&sum]), Ok(Step::SetRules(vec![])));
    }

    #[test]
    fn a_role_that_has_its_rules_rests() {
        let all = [part("b", json!({"a": "1"}), &["bee"])];
        let sum = gathering(json!([{"matchLabels": {"a": "1"}}]), &["bee"]);
        assert_eq!(next_step(&sum, &all), Ok(Step::Nothing));
    }

    #[test]
    fn rules_that_nobody_gives_any_more_go() {
        let sum = gathering(json!([{"matchLabels": {"gone": "1"}}]), &["bee"]);
        assert_eq!(next_step(&sum, []), Ok(Step::SetRules(vec![])));
    }

    #[test]
    fn a_selector_that_is_none_is_refused() {
        let sum = gathering(json!([{"matchExpressions": [{"key": "a", "operator": "Near"}]}]), &[]);
        assert!(next_step(&sum, []).is_err());
    }

    /// Asks for every role until all rest; more rounds than roles would be a loop.
    fn settle(roles: &mut [Role]) {
        for _ in 0..=roles.len() * 4 {
            let mut rested = true;
            for at in 0..roles.len() {
                if let Step::SetRules(rules) = next_step(&roles[at], roles.iter()).unwrap() {
                    roles[at].rules = rules;
                    rested = false;
                }
            }
            if rested {
                return;
            }
        }
        panic!("never rests: {roles:?}");
    }

    #[test]
    fn the_default_roles_settle_and_each_includes_the_lesser() {
        let mut roles: Vec<Role> = rbac::cluster_roles().into_iter().map(role).collect();
        settle(&mut roles);
        let rules = |name: &str| &roles.iter().find(|role| role.metadata.name == name).unwrap().rules;
        assert!(!rules("view").is_empty());
        assert!(rbac::covers(rules("edit"), rules("view")).is_ok());
        assert!(rbac::covers(rules("admin"), rules("edit")).is_ok());
        assert!(rbac::covers(rules("view"), rules("edit")).is_err());
        assert!(rbac::covers(rules("edit"), rules("admin")).is_err());
    }

    proptest! {
        #[test]
        fn the_order_in_which_roles_are_seen_does_not_matter(
            order in Just(vec!["a", "b", "c", "d"]).prop_shuffle(),
        ) {
            let all: Vec<Role> = order.iter().map(|name| part(name, json!({"a": "1"}), &[*name, "pods"])).collect();
            let sum = gathering(json!([{"matchLabels": {"a": "1"}}]), &[]);
            prop_assert_eq!(resources(next_step(&sum, &all).unwrap()), ["a", "pods", "b", "c", "d"]);
        }
    }
}
