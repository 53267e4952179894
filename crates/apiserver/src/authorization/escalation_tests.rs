//! Nobody grants what they do not hold, whichever way they try.

use std::sync::Arc;

use super::*;
use crate::identity::shelf::Shelf;

const MINE: &str = "jo";

/// Jo holds `rules` cluster-wide and, in namespace `ns`, reads pods.
fn house(rules: Value) -> (Arc<Shelf>, Authorizer) {
    let shelf = Arc::new(Shelf::default());
    let subjects = json!([{ "kind": "User", "name": MINE }]);
    shelf.put(GROUP, "clusterroles", json!({ "metadata": { "name": "mine" }, "rules": rules }));
    shelf.put(
        GROUP,
        "clusterrolebindings",
        json!({ "metadata": { "name": "b" }, "roleRef": { "kind": "ClusterRole", "name": "mine" }, "subjects": subjects }),
    );
    let local =
        json!({ "metadata": { "name": "pods", "namespace": "ns" }, "rules": [rule(&["get"], "pods")] });
    shelf.put(GROUP, "roles", local);
    shelf.put(
        GROUP,
        "rolebindings",
        json!({ "metadata": { "name": "b", "namespace": "ns" }, "roleRef": { "kind": "Role", "name": "pods" }, "subjects": subjects }),
    );
    let authorizer = Authorizer::new(shelf.clone());
    (shelf, authorizer)
}

fn rule(verbs: &[&str], resource: &str) -> Value {
    json!({ "verbs": verbs, "apiGroups": [""], "resources": [resource] })
}

fn rbac_rule(verb: &str, resource: &str) -> Value {
    json!({ "verbs": [verb], "apiGroups": [GROUP], "resources": [resource] })
}

fn jo() -> User {
    User { name: MINE.into(), groups: vec!["system:authenticated".into()], ..User::default() }
}

fn role(rules: Value) -> Value {
    json!({ "metadata": { "name": "new" }, "rules": rules })
}

fn binding(kind: &str, name: &str) -> Value {
    json!({ "metadata": { "name": "new" }, "roleRef": { "kind": kind, "name": name }, "subjects": [] })
}

fn written<'a>(resource: &'a str, namespace: &'a str, old: Option<&'a Value>, new: &'a Value) -> Written<'a> {
    Written { group: GROUP, resource, namespace, old, new }
}

#[test]
fn a_role_with_more_than_its_writer_holds_is_refused_with_what_is_missing() {
    let (_, authorizer) = house(json!([rule(&["get", "list"], "secrets")]));
    let within = role(json!([rule(&["get"], "secrets")]));
    check(&authorizer, &jo(), &written("clusterroles", "", None, &within)).unwrap();
    let beyond = role(json!([rule(&["get", "delete", "watch"], "secrets")]));
    let refused = check(&authorizer, &jo(), &written("clusterroles", "", None, &beyond)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "clusterroles.rbac.authorization.k8s.io \"new\" is forbidden: user \"jo\" (groups=[\"system:authenticated\"]) \
         is attempting to grant RBAC permissions not currently held:\n\
         {APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"delete\" \"watch\"]}"
    );
}

#[test]
fn what_is_held_in_one_namespace_can_be_granted_there_and_nowhere_else() {
    let (_, authorizer) = house(json!([]));
    let pods = role(json!([rule(&["get"], "pods")]));
    check(&authorizer, &jo(), &written("roles", "ns", None, &pods)).unwrap();
    assert!(check(&authorizer, &jo(), &written("roles", "other", None, &pods)).is_err());
    assert!(check(&authorizer, &jo(), &written("clusterroles", "", None, &pods)).is_err());
}

#[test]
fn masters_and_those_who_may_escalate_write_any_role() {
    let all = role(json!([{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }]));
    let (_, authorizer) = house(json!([]));
    let master = User { groups: vec![MASTERS.into()], ..jo() };
    check(&authorizer, &master, &written("clusterroles", "", None, &all)).unwrap();
    let (_, authorizer) = house(json!([rbac_rule("escalate", "clusterroles")]));
    check(&authorizer, &jo(), &written("clusterroles", "", None, &all)).unwrap();
    assert!(check(&authorizer, &jo(), &written("roles", "ns", None, &all)).is_err(), "not on this resource");
}

#[test]
fn an_aggregation_rule_needs_everything_also_to_be_taken_away() {
    let (_, authorizer) = house(json!([rule(&["get"], "secrets")]));
    let mut gathering = role(json!([]));
    gathering["aggregationRule"] = json!({ "clusterRoleSelectors": [{ "matchLabels": { "a": "b" } }] });
    let says = "must have cluster-admin privileges to use the aggregationRule";
    let refused = check(&authorizer, &jo(), &written("clusterroles", "", None, &gathering)).unwrap_err();
    assert!(refused.to_string().ends_with(says), "{refused}");
    let plain = role(json!([]));
    assert!(check(&authorizer, &jo(), &written("clusterroles", "", Some(&gathering), &plain)).is_err());

    let everything = json!([
        { "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] },
        { "verbs": ["*"], "nonResourceURLs": ["*"] },
    ]);
    let (_, authorizer) = house(everything);
    check(&authorizer, &jo(), &written("clusterroles", "", None, &gathering)).unwrap();
}

#[test]
fn a_binding_to_a_role_beyond_its_writer_is_refused_unless_they_may_bind() {
    let powerful = json!({ "metadata": { "name": "powerful" }, "rules": [rule(&["*"], "secrets")] });
    let new = binding("ClusterRole", "powerful");
    let (shelf, authorizer) = house(json!([rule(&["get"], "secrets")]));
    shelf.put(GROUP, "clusterroles", powerful.clone());
    for (resource, namespace) in [("clusterrolebindings", ""), ("rolebindings", "ns")] {
        let refused = check(&authorizer, &jo(), &written(resource, namespace, None, &new)).unwrap_err();
        assert!(refused.to_string().contains("not currently held:\n{APIGroups:[\"\"]"), "{refused}");
    }
    let own = binding("ClusterRole", "mine");
    check(&authorizer, &jo(), &written("clusterrolebindings", "", None, &own)).unwrap();

    let mut may_bind = rbac_rule("bind", "clusterroles");
    may_bind["resourceNames"] = json!(["powerful"]);
    let (shelf, authorizer) = house(json!([may_bind]));
    shelf.put(GROUP, "clusterroles", powerful);
    check(&authorizer, &jo(), &written("clusterrolebindings", "", None, &new)).unwrap();
    let admin = json!({ "metadata": { "name": "admin" }, "rules": [rule(&["*"], "secrets")] });
    shelf.put(GROUP, "clusterroles", admin);
    let other = binding("ClusterRole", "admin");
    assert!(check(&authorizer, &jo(), &written("clusterrolebindings", "", None, &other)).is_err());
}

#[test]
fn a_binding_to_a_role_that_is_not_there_is_for_those_who_may_bind() {
    let (_, authorizer) = house(json!([]));
    let new = binding("ClusterRole", "later");
    let refused = check(&authorizer, &jo(), &written("clusterrolebindings", "", None, &new)).unwrap_err();
    assert_eq!(refused.to_string(), "clusterroles.rbac.authorization.k8s.io \"later\" not found");
    let odd = binding("Thing", "x");
    assert!(matches!(
        check(&authorizer, &jo(), &written("rolebindings", "ns", None, &odd)),
        Err(Refusal::BadRequest { .. })
    ));
}

#[test]
fn a_write_that_only_lets_go_of_an_object_is_always_allowed() {
    let (_, authorizer) = house(json!([]));
    let new = role(json!([rule(&["*"], "secrets")]));
    let mut old = new.clone();
    old["metadata"]["finalizers"] = json!(["x"]);
    check(&authorizer, &jo(), &written("clusterroles", "", Some(&old), &new)).unwrap();
    assert!(check(&authorizer, &jo(), &written("clusterroles", "", Some(&new), &new)).is_err());
    let mut more = new.clone();
    more["rules"] = json!([rule(&["*"], "*")]);
    assert!(check(&authorizer, &jo(), &written("clusterroles", "", Some(&old), &more)).is_err());
}

#[test]
fn nobody_makes_a_token_for_another_user_or_joins_a_group_they_may_not_act_as() {
    fn ours<'a>(resource: &'a str, old: Option<&'a Value>, new: &'a Value) -> Written<'a> {
        Written { group: api_tokens::GROUP, resource, namespace: "", old, new }
    }
    let token = |user: &str| json!({ "metadata": { "name": "token-x" }, "userId": user });
    let person = |groups: Value| json!({ "metadata": { "name": "user-1" }, "groups": groups });
    let (_, authorizer) = house(json!([]));
    check(&authorizer, &jo(), &ours("tokens", None, &token(MINE))).unwrap();
    let refused = check(&authorizer, &jo(), &ours("tokens", None, &token("admin"))).unwrap_err();
    assert!(
        refused.to_string().starts_with("users \"admin\" is forbidden: User \"jo\" cannot impersonate"),
        "{refused}"
    );
    let (before, after) = (person(json!(["ops"])), person(json!(["ops", "admins"])));
    assert!(check(&authorizer, &jo(), &ours("users", Some(&before), &after)).is_err());
    check(&authorizer, &jo(), &ours("users", Some(&after), &before)).unwrap();

    let (_, authorizer) = house(json!([rule(&["impersonate"], "users"), rule(&["impersonate"], "groups")]));
    check(&authorizer, &jo(), &ours("tokens", None, &token("admin"))).unwrap();
    check(&authorizer, &jo(), &ours("users", Some(&before), &after)).unwrap();
}
