//! "Cannot grant what you do not hold": do the rules somebody has cover those they hand out?
//!
//! A wanted rule is broken into its smallest pieces (one group, resource, verb, name), so
//! that each piece is covered by one held rule or by none, and what is missing can be said.

use std::{collections::BTreeMap, fmt};

use serde_json::{Value, json};

use super::{PolicyRule, Who, evaluate::path_matches};
use crate::quote::{quoted, quoted_list};

/// The pieces that nothing held covers, in the order they were wanted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", listed(.0))]
pub struct Uncovered(pub Vec<PolicyRule>);

pub fn covers(held: &[PolicyRule], wanted: &[PolicyRule]) -> Result<(), Uncovered> {
    let missing: Vec<PolicyRule> = wanted
        .iter()
        .flat_map(breakdown)
        .filter(|piece| !held.iter().any(|rule| covers_piece(rule, piece)))
        .collect();
    if missing.is_empty() { Ok(()) } else { Err(Uncovered(missing)) }
}

/// Refuses in the words of the original, which name the user and list what is missing.
pub fn confirm_no_escalation(
    who: &Who<'_>,
    held: &[PolicyRule],
    wanted: &[PolicyRule],
) -> Result<(), String> {
    covers(held, wanted).map_err(|uncovered| {
        format!(
            "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{uncovered}",
            quoted(who.name),
            quoted_list(who.groups),
        )
    })
}

/// Everything there is. Who sets an `aggregationRule` must hold it, because the rule can
/// gather anything; without, the refusal reads "must have cluster-admin privileges to use
/// the aggregationRule".
pub fn full_authority() -> Vec<PolicyRule> {
    let all = || vec!["*".to_owned()];
    vec![
        PolicyRule { verbs: all(), api_groups: all(), resources: all(), ..PolicyRule::default() },
        PolicyRule { verbs: all(), non_resource_urls: all(), ..PolicyRule::default() },
    ]
}

/// Rules of one verb on one resource or path each, that together say the same.
pub fn breakdown(rule: &PolicyRule) -> Vec<PolicyRule> {
    let one = |text: &String| vec![text.clone()];
    let mut pieces = Vec::new();
    for group in &rule.api_groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                let piece = PolicyRule {
                    verbs: one(verb),
                    api_groups: one(group),
                    resources: one(resource),
                    ..PolicyRule::default()
                };
                if rule.resource_names.is_empty() {
                    pieces.push(piece);
                    continue;
                }
                for name in &rule.resource_names {
                    pieces.push(PolicyRule { resource_names: one(name), ..piece.clone() });
                }
            }
        }
    }
    for path in &rule.non_resource_urls {
        for verb in &rule.verbs {
            pieces.push(PolicyRule {
                verbs: one(verb),
                non_resource_urls: one(path),
                ..PolicyRule::default()
            });
        }
    }
    pieces
}

fn covers_piece(rule: &PolicyRule, piece: &PolicyRule) -> bool {
    let has = |list: &[String], item: &String| list.contains(item) || list.iter().any(|held| held == "*");
    let names_fit = rule.resource_names.is_empty()
        || (!piece.resource_names.is_empty()
            && piece.resource_names.iter().all(|name| rule.resource_names.contains(name)));
    piece.verbs.iter().all(|verb| has(&rule.verbs, verb))
        && piece.api_groups.iter().all(|group| has(&rule.api_groups, group))
        && piece.resources.iter().all(|resource| covers_resource(&rule.resources, resource))
        && names_fit
        && piece
            .non_resource_urls
            .iter()
            .all(|path| rule.non_resource_urls.iter().any(|held| path_matches(held, path)))
}

fn covers_resource(held: &[String], wanted: &String) -> bool {
    held.iter().any(|resource| resource == "*" || resource == wanted)
        || wanted.split_once('/').is_some_and(|(_, subresource)| {
            held.iter().any(|resource| resource.strip_prefix("*/") == Some(subresource))
        })
}

/// Joins rules that differ only in their verbs and are about one resource (and at most one
/// name). The others come first, in their order, then the joined, in the order of their
/// resource.
pub fn compact(rules: &[PolicyRule]) -> Vec<PolicyRule> {
    let mut simple: BTreeMap<(&str, &str, Option<&str>), PolicyRule> = BTreeMap::new();
    let mut compacted = Vec::new();
    for rule in rules {
        match (rule.api_groups.as_slice(), rule.resources.as_slice(), rule.resource_names.as_slice()) {
            ([group], [resource], names @ ([] | [_])) if rule.non_resource_urls.is_empty() => {
                simple
                    .entry((group, resource, names.first().map(String::as_str)))
                    .and_modify(|joined| joined.verbs.extend(rule.verbs.iter().cloned()))
                    .or_insert_with(|| rule.clone());
            }
            _ => compacted.push(rule.clone()),
        }
    }
    compacted.extend(simple.into_values());
    compacted
}

/// The rules as a SelfSubjectRulesReview lists them: `resourceRules` and
/// `nonResourceRules`, repeats said once.
pub fn rules_review(rules: &[PolicyRule]) -> (Vec<Value>, Vec<Value>) {
    let (mut resources, mut paths) = (Vec::new(), Vec::new());
    for rule in compact(rules) {
        if !rule.resources.is_empty() {
            let mut info = json!({"verbs": distinct(&rule.verbs), "apiGroups": rule.api_groups, "resources": rule.resources});
            if !rule.resource_names.is_empty() {
                info["resourceNames"] = json!(rule.resource_names);
            }
            if !resources.contains(&info) {
                resources.push(info);
            }
        }
        if !rule.non_resource_urls.is_empty() {
            let info = json!({"verbs": distinct(&rule.verbs), "nonResourceURLs": rule.non_resource_urls});
            if !paths.contains(&info) {
                paths.push(info);
            }
        }
    }
    (resources, paths)
}

fn distinct(texts: &[String]) -> Vec<&String> {
    let mut seen = Vec::new();
    for text in texts {
        if !seen.contains(&text) {
            seen.push(text);
        }
    }
    seen
}

fn listed(missing: &[PolicyRule]) -> String {
    let mut lines: Vec<String> = compact(missing).iter().map(PolicyRule::to_string).collect();
    lines.sort();
    lines.dedup();
    lines.join("\n")
}

/// `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`: what is empty is left out.
impl fmt::Display for PolicyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let shown: Vec<String> = parts
            .into_iter()
            .filter(|(_, list)| !list.is_empty())
            .map(|(name, list)| format!("{name}:{}", quoted_list(list)))
            .collect();
        write!(f, "{{{}}}", shown.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rbac::{Attributes, rule_allows};

    fn rules(rules: Value) -> Vec<PolicyRule> {
        serde_json::from_value(rules).unwrap()
    }

    #[test]
    fn nobody_grants_what_they_do_not_hold() {
        let held = rules(json!([
            {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "*/scale"]},
            {"verbs": ["update"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["a", "b"]},
            {"verbs": ["get"], "nonResourceURLs": ["/logs/*"]},
        ]));
        for (wanted, allowed) in [
            (json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]), true),
            (
                json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["x"]}]),
                true,
            ),
            (json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods/scale"]}]), true),
            (json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods/log"]}]), false),
            (json!([{"verbs": ["*"], "apiGroups": [""], "resources": ["pods"]}]), false),
            (json!([{"verbs": ["get"], "apiGroups": ["*"], "resources": ["pods"]}]), false),
            (
                json!([{"verbs": ["update"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["a"]}]),
                true,
            ),
            (json!([{"verbs": ["update"], "apiGroups": [""], "resources": ["configmaps"]}]), false),
            (json!([{"verbs": ["get"], "nonResourceURLs": ["/logs/x", "/logs/*"]}]), true),
            (json!([{"verbs": ["get"], "nonResourceURLs": ["*"]}]), false),
            (json!([]), true),
        ] {
            assert_eq!(covers(&held, &rules(wanted.clone())).is_ok(), allowed, "{wanted}");
        }
        assert!(covers(&full_authority(), &held).is_ok());
        assert!(covers(&held, &full_authority()).is_err());
    }

    #[test]
    fn the_refusal_lists_what_is_missing_in_the_form_of_the_original() {
        let groups = ["dev".to_owned(), "system:authenticated".to_owned()];
        let jane = Who { name: "jane", groups: &groups };
        let wanted = rules(json!([
            {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["secrets"]},
            {"verbs": ["get"], "apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["web"]},
            {"verbs": ["get"], "nonResourceURLs": ["/metrics"]},
        ]));
        assert_eq!(
            confirm_no_escalation(&jane, &[], &wanted).unwrap_err(),
            "user \"jane\" (groups=[\"dev\" \"system:authenticated\"]) is attempting to grant RBAC permissions \
             not currently held:\n\
             {APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"list\"]}\n\
             {APIGroups:[\"apps\"], Resources:[\"deployments\"], ResourceNames:[\"web\"], Verbs:[\"get\"]}\n\
             {NonResourceURLs:[\"/metrics\"], Verbs:[\"get\"]}"
        );
    }

    #[test]
    fn a_review_lists_each_resource_once() {
        let (resources, paths) = rules_review(&rules(json!([
            {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]},
            {"verbs": ["list", "get"], "apiGroups": [""], "resources": ["pods"]},
            {"verbs": ["get"], "nonResourceURLs": ["/version"]},
            {"verbs": ["get"], "nonResourceURLs": ["/version"]},
        ])));
        assert_eq!(
            resources,
            vec![json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]})]
        );
        assert_eq!(paths, vec![json!({"verbs": ["get"], "nonResourceURLs": ["/version"]})]);
    }

    fn a_rule() -> impl Strategy<Value = PolicyRule> {
        let some = |words: &'static [&'static str], least: usize| {
            prop::collection::vec(prop::sample::select(words).prop_map(str::to_owned), least..3)
        };
        (
            some(&["get", "list", "*"], 1),
            some(&["", "apps", "*"], 1),
            some(&["pods", "pods/log", "*/log", "nodes", "*"], 1),
            some(&["a", "b"], 0),
        )
            .prop_map(|(verbs, api_groups, resources, resource_names)| PolicyRule {
                verbs,
                api_groups,
                resources,
                resource_names,
                ..PolicyRule::default()
            })
    }

    proptest! {
        #[test]
        fn covered_rules_allow_nothing_that_was_not_allowed(
            held in prop::collection::vec(a_rule(), 0..3),
            wanted in prop::collection::vec(a_rule(), 0..3),
        ) {
            if covers(&held, &wanted).is_err() {
                return Ok(());
            }
            for verb in ["get", "list", "create"] {
                for group in ["", "apps", "batch"] {
                    for (resource, subresource) in [("pods", ""), ("pods", "log"), ("nodes", ""), ("nodes", "log")] {
                        for name in ["", "a", "b", "c"] {
                            let asked = Attributes { verb, group, resource, subresource, name, ..Attributes::default() };
                            if wanted.iter().any(|rule| rule_allows(rule, &asked)) {
                                prop_assert!(held.iter().any(|rule| rule_allows(rule, &asked)), "{asked:?}");
                            }
                        }
                    }
                }
            }
        }

        #[test]
        fn rules_cover_their_own_pieces_and_their_compact_form(rules in prop::collection::vec(a_rule(), 0..4)) {
            let pieces: Vec<PolicyRule> = rules.iter().flat_map(breakdown).collect();
            prop_assert!(covers(&rules, &pieces).is_ok());
            prop_assert!(covers(&pieces, &rules).is_ok());
            prop_assert!(covers(&compact(&pieces), &rules).is_ok());
            prop_assert!(covers(&rules, &compact(&pieces)).is_ok());
        }
    }
}
