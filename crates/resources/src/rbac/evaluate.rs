//! Does this rule allow that request, does this subject mean that user?
//!
//! What RBAC knows of wildcards, exactly: `*` as verb, group, resource (then with all its
//! subresources) and path; `*/scale` for one subresource of everything; a path that ends in
//! `*`. A resource `pods/*` is just a name that nothing has.

use crate::{names, quote::quoted, selector::FieldSelector};

use super::{PolicyRule, Subject};

/// What somebody wants to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes<'a> {
    pub verb: &'a str,
    pub group: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    /// Empty for the whole cluster.
    pub namespace: &'a str,
    /// Empty when the request names no object; see [`name_to_authorize`].
    pub name: &'a str,
    /// The node to which a list or watch keeps itself: what it requires `status.nodeName` to be.
    pub bound_to: &'a str,
    /// Set when the request is for a path that is no resource; the rest but the verb is
    /// then without meaning.
    pub path: Option<&'a str>,
}

/// Who wants it.
#[derive(Clone, Copy, Debug)]
pub struct Who<'a> {
    pub name: &'a str,
    pub groups: &'a [String],
}

pub fn rule_allows(rule: &PolicyRule, asked: &Attributes<'_>) -> bool {
    if !any(&rule.verbs, |verb| verb == "*" || verb == asked.verb) {
        return false;
    }
    match asked.path {
        Some(path) => any(&rule.non_resource_urls, |pattern| path_matches(pattern, path)),
        None => {
            any(&rule.api_groups, |group| group == "*" || group == asked.group)
                && any(&rule.resources, |resource| resource_matches(resource, asked))
                && (rule.resource_names.is_empty() || any(&rule.resource_names, |name| name == asked.name))
        }
    }
}

/// The name a request is judged by. A create has none, even when its body names one, nor
/// has a deletecollection; a list or watch of `metadata.name=x` is about `x` alone, so a
/// rule for `x` covers it.
pub fn name_to_authorize<'a>(verb: &str, name_in_path: &'a str, fields: &'a FieldSelector) -> &'a str {
    if name_in_path.is_empty() && matches!(verb, "list" | "watch") {
        let name = fields.required_value("metadata.name").unwrap_or_default();
        return if names::path_segment_problems(name).is_empty() { name } else { "" };
    }
    name_in_path
}

/// The namespace a request is judged in. A namespace is in itself: whoever has a role in it may be allowed to see it by
/// that role.
pub fn namespace_to_authorize<'a>(
    group: &str,
    resource: &str,
    namespace_in_path: &'a str,
    name: &'a str,
) -> &'a str {
    match (group, resource) {
        ("", "namespaces") => name,
        _ => namespace_in_path,
    }
}

/// Whether a binding's subject means this user. `namespace` is the binding's, and stands in
/// for the one a service account does not state.
pub fn subject_is(subject: &Subject, who: &Who<'_>, namespace: &str) -> bool {
    match subject.kind.as_str() {
        "User" => subject.name == who.name,
        "Group" => who.groups.contains(&subject.name),
        "ServiceAccount" => {
            let namespace = if subject.namespace.is_empty() { namespace } else { &subject.namespace };
            let account = who
                .name
                .strip_prefix("system:serviceaccount:")
                .and_then(|rest| rest.strip_prefix(namespace))
                .and_then(|rest| rest.strip_prefix(':'));
            !namespace.is_empty() && account == Some(subject.name.as_str())
        }
        _ => false,
    }
}

/// The sentence of a Forbidden answer: `User "x" cannot list resource "secrets" in API
/// group "" in the namespace "default"`.
pub fn forbidden_message(who: &Who<'_>, asked: &Attributes<'_>) -> String {
    let (user, verb) = (quoted(who.name), asked.verb);
    if let Some(path) = asked.path {
        return format!("User {user} cannot {verb} path {}", quoted(path));
    }
    let resource = match asked.subresource {
        "" => quoted(asked.resource),
        subresource => quoted(&format!("{}/{subresource}", asked.resource)),
    };
    let place = match asked.namespace {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace {}", quoted(namespace)),
    };
    format!("User {user} cannot {verb} resource {resource} in API group {} {place}", quoted(asked.group))
}

fn any(list: &[String], matches: impl Fn(&str) -> bool) -> bool {
    list.iter().any(|item| matches(item))
}

fn resource_matches(pattern: &str, asked: &Attributes<'_>) -> bool {
    if pattern == "*" {
        return true;
    }
    match (pattern.split_once('/'), asked.subresource) {
        (None, "") => pattern == asked.resource,
        (Some((resource, subresource)), wanted) if !wanted.is_empty() => {
            subresource == wanted && (resource == "*" || resource == asked.resource)
        }
        _ => false,
    }
}

pub(super) fn path_matches(pattern: &str, path: &str) -> bool {
    pattern == path || (pattern.ends_with('*') && path.starts_with(pattern.trim_end_matches('*')))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rule(rule: serde_json::Value) -> PolicyRule {
        serde_json::from_value(rule).unwrap()
    }

    fn get_pod() -> Attributes<'static> {
        Attributes {
            verb: "get",
            resource: "pods",
            namespace: "default",
            name: "web",
            ..Attributes::default()
        }
    }

    #[test]
    fn verb_group_and_resource_must_all_fit() {
        let pods = rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}));
        assert!(rule_allows(&pods, &get_pod()));
        assert!(!rule_allows(&pods, &Attributes { verb: "list", ..get_pod() }));
        assert!(!rule_allows(&pods, &Attributes { group: "apps", ..get_pod() }));
        assert!(!rule_allows(&pods, &Attributes { resource: "nodes", ..get_pod() }));
        assert!(!rule_allows(&pods, &Attributes { subresource: "log", ..get_pod() }));
        assert!(!rule_allows(&pods, &Attributes { path: Some("/version"), ..get_pod() }));
    }

    #[test]
    fn wildcards_reach_as_far_as_they_say_and_no_further() {
        let all = rule(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
        assert!(rule_allows(&all, &Attributes { subresource: "log", group: "apps", ..get_pod() }));
        assert!(!rule_allows(&all, &Attributes { path: Some("/metrics"), ..get_pod() }));
        let scale = rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["*/scale"]}));
        assert!(rule_allows(&scale, &Attributes { subresource: "scale", ..get_pod() }));
        assert!(!rule_allows(&scale, &Attributes { subresource: "log", ..get_pod() }));
        assert!(!rule_allows(&scale, &get_pod()));
        let nothing = rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods/*"]}));
        assert!(!rule_allows(&nothing, &Attributes { subresource: "log", ..get_pod() }));
    }

    #[test]
    fn a_rule_for_names_needs_a_name() {
        let web =
            rule(json!({"verbs": ["*"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["web"]}));
        assert!(rule_allows(&web, &get_pod()));
        assert!(!rule_allows(&web, &Attributes { name: "db", ..get_pod() }));
        assert!(!rule_allows(&web, &Attributes { verb: "create", name: "", ..get_pod() }));
        assert!(!rule_allows(&web, &Attributes { verb: "deletecollection", name: "", ..get_pod() }));
    }

    #[test]
    fn a_list_of_one_name_is_judged_by_that_name() {
        let one = FieldSelector::parse("metadata.name=web").unwrap();
        assert_eq!(name_to_authorize("list", "", &one), "web");
        assert_eq!(name_to_authorize("watch", "", &one), "web");
        assert_eq!(name_to_authorize("deletecollection", "", &one), "");
        assert_eq!(name_to_authorize("list", "", &FieldSelector::everything()), "");
        assert_eq!(name_to_authorize("list", "", &FieldSelector::parse("metadata.name=a/b").unwrap()), "");
        assert_eq!(name_to_authorize("get", "db", &one), "db");
    }

    #[test]
    fn a_namespace_is_in_itself() {
        assert_eq!(namespace_to_authorize("", "namespaces", "", "a"), "a");
        assert_eq!(namespace_to_authorize("", "namespaces", "", ""), "");
        assert_eq!(namespace_to_authorize("", "secrets", "a", "b"), "a");
        assert_eq!(namespace_to_authorize("x.io", "namespaces", "a", "b"), "a");
    }

    #[test]
    fn paths_match_exactly_or_by_their_beginning() {
        for (pattern, path, wanted) in [
            ("*", "/anything", true),
            ("/version", "/version", true),
            ("/version", "/version/", false),
            ("/api/*", "/api/v1", true),
            ("/api/*", "/api", false),
            ("/healthz*", "/healthz/ping", true),
        ] {
            let rule = rule(json!({"verbs": ["get"], "nonResourceURLs": [pattern]}));
            let asked = Attributes { verb: "get", path: Some(path), ..Attributes::default() };
            assert_eq!(rule_allows(&rule, &asked), wanted, "{pattern} {path}");
        }
    }

    #[test]
    fn a_service_account_is_found_by_its_user_name_only() {
        let subject = |namespace: &str| Subject {
            kind: "ServiceAccount".into(),
            name: "bot".into(),
            namespace: namespace.into(),
            ..Subject::default()
        };
        let bot = Who { name: "system:serviceaccount:ci:bot", groups: &[] };
        assert!(subject_is(&subject("ci"), &bot, ""));
        assert!(subject_is(&subject(""), &bot, "ci"));
        assert!(!subject_is(&subject(""), &bot, ""));
        assert!(!subject_is(&subject("c"), &bot, "ci"));
        assert!(!subject_is(&subject("other"), &bot, "ci"));
        assert!(!subject_is(&subject("ci"), &Who { name: "bot", groups: &[] }, "ci"));
    }

    #[test]
    fn users_and_groups_are_compared_as_they_are() {
        let groups = ["dev".to_owned()];
        let jane = Who { name: "jane", groups: &groups };
        let subject =
            |kind: &str, name: &str| Subject { kind: kind.into(), name: name.into(), ..Subject::default() };
        assert!(subject_is(&subject("User", "jane"), &jane, ""));
        assert!(!subject_is(&subject("User", "dev"), &jane, ""));
        assert!(subject_is(&subject("Group", "dev"), &jane, ""));
        assert!(!subject_is(&subject("Group", "jane"), &jane, ""));
        assert!(!subject_is(&subject("Robot", "jane"), &jane, ""));
    }

    #[test]
    fn a_refusal_says_who_what_and_where() {
        let jane = Who { name: "jane", groups: &[] };
        assert_eq!(
            forbidden_message(&jane, &Attributes { subresource: "log", ..get_pod() }),
            "User \"jane\" cannot get resource \"pods/log\" in API group \"\" in the namespace \"default\""
        );
        assert_eq!(
            forbidden_message(&jane, &Attributes { namespace: "", ..get_pod() }),
            "User \"jane\" cannot get resource \"pods\" in API group \"\" at the cluster scope"
        );
        assert_eq!(
            forbidden_message(&jane, &Attributes { path: Some("/metrics"), ..get_pod() }),
            "User \"jane\" cannot get path \"/metrics\""
        );
    }
}
