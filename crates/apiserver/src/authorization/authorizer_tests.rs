//! Who is allowed what, by roles, groups and their changes.

use serde_json::{Value, json};
use sheaf_resources::rbac::{GROUP, cluster_role_bindings, cluster_roles};

use super::*;
use crate::identity::shelf::Shelf;

fn user(name: &str, groups: &[&str]) -> User {
    User { name: name.into(), groups: groups.iter().map(|&group| group.into()).collect(), ..User::default() }
}

fn get_secret(namespace: &str) -> Attributes<'_> {
    Attributes { verb: "get", resource: "secrets", namespace, name: "x", ..Attributes::default() }
}

fn get_path(path: &str) -> Attributes<'_> {
    Attributes { verb: "get", path: Some(path), ..Attributes::default() }
}

fn put(shelf: &Shelf, resource: &str, object: Value) {
    shelf.put(GROUP, resource, object);
}

/// A role that reads secrets in every namespace, bound to nobody yet.
fn house() -> (Arc<Shelf>, Authorizer) {
    let shelf = Arc::new(Shelf::default());
    let rules = json!([{ "verbs": ["get"], "apiGroups": [""], "resources": ["secrets"] }]);
    put(&shelf, "clusterroles", json!({ "metadata": { "name": "reader" }, "rules": rules }));
    put(&shelf, "roles", json!({ "metadata": { "name": "local", "namespace": "ns" }, "rules": rules }));
    let authorizer = Authorizer::new(shelf.clone());
    (shelf, authorizer)
}

fn binding(name: &str, namespace: Option<&str>, role: (&str, &str), subjects: Value) -> Value {
    let metadata = match namespace {
        Some(namespace) => json!({ "name": name, "namespace": namespace }),
        None => json!({ "name": name }),
    };
    json!({ "metadata": metadata, "roleRef": { "kind": role.0, "name": role.1 }, "subjects": subjects })
}

#[test]
fn masters_may_do_everything_and_others_nothing_by_themselves() {
    let (_, authorizer) = house();
    assert!(authorizer.authorize(&user("x", &["system:masters"]), &get_secret("ns")).is_allowed());
    assert_eq!(
        authorizer.authorize(&user("x", &["system:authenticated"]), &get_secret("ns")),
        Decision::Deny { reason: String::new() }
    );
}

#[test]
fn a_binding_grants_from_the_moment_it_is_there_to_the_moment_it_is_gone() {
    let (shelf, authorizer) = house();
    let jo = user("jo", &[]);
    assert!(!authorizer.authorize(&jo, &get_secret("ns")).is_allowed());
    let subjects = json!([{ "kind": "User", "name": "jo" }]);
    put(&shelf, "clusterrolebindings", binding("b", None, ("ClusterRole", "reader"), subjects));
    assert_eq!(
        authorizer.authorize(&jo, &get_secret("ns")),
        Decision::Allow {
            reason: r#"RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "reader" to User "jo""#.into()
        }
    );
    assert!(!authorizer.authorize(&user("kim", &[]), &get_secret("ns")).is_allowed());
    shelf.remove(GROUP, "clusterrolebindings", "", "b");
    assert!(!authorizer.authorize(&jo, &get_secret("ns")).is_allowed());
}

#[test]
fn a_changed_role_changes_what_its_holders_may() {
    let (shelf, authorizer) = house();
    let subjects = json!([{ "kind": "User", "name": "jo" }]);
    put(&shelf, "clusterrolebindings", binding("b", None, ("ClusterRole", "reader"), subjects));
    assert!(authorizer.authorize(&user("jo", &[]), &get_secret("ns")).is_allowed());
    put(&shelf, "clusterroles", json!({ "metadata": { "name": "reader" }, "rules": [] }));
    assert!(!authorizer.authorize(&user("jo", &[]), &get_secret("ns")).is_allowed());
}

#[test]
fn a_role_binding_reaches_its_own_namespace_only() {
    let (shelf, authorizer) = house();
    let subjects = json!([{ "kind": "ServiceAccount", "name": "robot" }, { "kind": "Group", "name": "ops" }]);
    put(&shelf, "rolebindings", binding("b", Some("ns"), ("Role", "local"), subjects));
    for held_by in [user("system:serviceaccount:ns:robot", &[]), user("jo", &["ops"])] {
        assert!(authorizer.authorize(&held_by, &get_secret("ns")).is_allowed(), "{held_by:?}");
        assert!(!authorizer.authorize(&held_by, &get_secret("other")).is_allowed());
        assert!(!authorizer.authorize(&held_by, &get_secret("")).is_allowed());
    }
    assert!(
        !authorizer
            .authorize(&user("system:serviceaccount:other:robot", &[]), &get_secret("ns"))
            .is_allowed()
    );
    assert!(!authorizer.authorize(&user("robot", &[]), &get_secret("ns")).is_allowed());
}

#[test]
fn a_user_is_never_taken_for_a_group_nor_the_other_way_round() {
    let (shelf, authorizer) = house();
    let subjects = json!([{ "kind": "Group", "name": "ops" }, { "kind": "User", "name": "jo" }]);
    put(&shelf, "clusterrolebindings", binding("b", None, ("ClusterRole", "reader"), subjects));
    assert!(!authorizer.authorize(&user("ops", &[]), &get_secret("ns")).is_allowed());
    assert!(!authorizer.authorize(&user("kim", &["jo"]), &get_secret("ns")).is_allowed());
    // Nor are name and groups run together in what is remembered.
    assert!(authorizer.authorize(&user("a", &["ops"]), &get_secret("ns")).is_allowed());
    assert!(!authorizer.authorize(&user("aops", &[]), &get_secret("ns")).is_allowed());
    assert!(!authorizer.authorize(&user("", &["aops"]), &get_secret("ns")).is_allowed());
}

#[test]
fn a_binding_to_a_missing_role_says_so() {
    let (shelf, authorizer) = house();
    let subjects = json!([{ "kind": "User", "name": "jo" }]);
    put(&shelf, "clusterrolebindings", binding("a", None, ("ClusterRole", "gone"), subjects.clone()));
    assert_eq!(
        authorizer.authorize(&user("jo", &[]), &get_secret("ns")),
        Decision::Deny { reason: r#"RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found"#.into() }
    );
    put(&shelf, "rolebindings", binding("b", Some("ns"), ("Role", "gone"), subjects));
    let Decision::Deny { reason } = authorizer.authorize(&user("jo", &[]), &get_secret("ns")) else {
        panic!()
    };
    assert_eq!(
        reason,
        r#"RBAC: [clusterrole.rbac.authorization.k8s.io "gone" not found, role.rbac.authorization.k8s.io "gone" not found]"#
    );
}

/// With the roles every cluster begins with.
fn furnished() -> Authorizer {
    let shelf = Arc::new(Shelf::default());
    for role in cluster_roles() {
        put(&shelf, "clusterroles", role);
    }
    for binding in cluster_role_bindings() {
        put(&shelf, "clusterrolebindings", binding);
    }
    Authorizer::new(shelf)
}

#[test]
fn anonymous_sees_only_version_and_health() {
    let authorizer = furnished();
    let anonymous = User::anonymous();
    for path in ["/healthz", "/livez", "/readyz", "/version", "/version/"] {
        assert!(authorizer.authorize(&anonymous, &get_path(path)).is_allowed(), "{path}");
    }
    for path in ["/", "/api", "/apis", "/openapi/v2", "/openapi/v3", "/metrics", "/versions", "/healthz/etcd"]
    {
        assert!(!authorizer.authorize(&anonymous, &get_path(path)).is_allowed(), "{path}");
    }
    for verb in ["get", "list", "watch", "create", "update", "patch", "delete", "impersonate"] {
        for (group, resource) in
            [("", "secrets"), ("", "namespaces"), ("authorization.k8s.io", "selfsubjectaccessreviews")]
        {
            let asked = Attributes { verb, group, resource, ..Attributes::default() };
            assert!(!authorizer.authorize(&anonymous, &asked).is_allowed(), "{asked:?}");
        }
    }
    let post = Attributes { verb: "post", ..get_path("/healthz") };
    assert!(!authorizer.authorize(&anonymous, &post).is_allowed());
}

#[test]
fn everybody_who_is_known_may_discover_the_api_and_ask_about_themselves() {
    let authorizer = furnished();
    let jo = user("jo", &["system:authenticated"]);
    assert!(authorizer.authorize(&jo, &get_path("/apis")).is_allowed());
    let ask = Attributes {
        verb: "create",
        group: "authorization.k8s.io",
        resource: "selfsubjectaccessreviews",
        ..Attributes::default()
    };
    assert!(authorizer.authorize(&jo, &ask).is_allowed());
    assert!(!authorizer.authorize(&jo, &get_secret("ns")).is_allowed());
}
