//! Who may act as whom.

use proptest::prelude::*;
use serde_json::{Value, json};
use sheaf_resources::rbac;

use super::*;
use crate::identity::shelf::Shelf;

fn authorizer(rules: Value) -> Authorizer {
    let shelf = Shelf::default();
    shelf.put(rbac::GROUP, "clusterroles", json!({ "metadata": { "name": "r" }, "rules": rules }));
    shelf.put(
        rbac::GROUP,
        "clusterrolebindings",
        json!({
            "metadata": { "name": "b" },
            "roleRef": { "kind": "ClusterRole", "name": "r" },
            "subjects": [{ "kind": "User", "name": "jo" }],
        }),
    );
    Authorizer::new(Arc::new(shelf))
}

fn everybody() -> Authorizer {
    authorizer(json!([{ "verbs": ["impersonate"], "apiGroups": ["*"], "resources": ["*"] }]))
}

fn jo() -> Arc<User> {
    Arc::new(User { name: "jo".into(), groups: vec![AUTHENTICATED.into()], ..User::default() })
}

fn headers(list: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in list {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        headers.append(name, HeaderValue::from_str(value).unwrap());
    }
    headers
}

fn acting(authorizer: &Authorizer, list: &[(&str, &str)]) -> Result<Arc<User>, Refusal> {
    let mut headers = headers(list);
    let outcome = impersonate(authorizer, jo(), &mut headers);
    assert!(headers.keys().all(|name| !name.as_str().starts_with("impersonate-")), "{headers:?}");
    outcome
}

#[test]
fn who_asks_for_nobody_else_stays_who_they_are() {
    assert_eq!(acting(&everybody(), &[("accept", "*/*")]).unwrap(), jo());
}

#[test]
fn the_headers_are_gone_and_the_rest_stays() {
    let mut map = headers(&[("Impersonate-User", "kim"), ("Impersonate-Extra-Scopes", "a"), ("Accept", "x")]);
    impersonate(&everybody(), jo(), &mut map).unwrap();
    assert_eq!(map, headers(&[("Accept", "x")]));
}

#[test]
fn every_part_of_the_wanted_identity_is_taken_over() {
    let user = acting(
        &everybody(),
        &[
            ("Impersonate-User", "kim"),
            ("Impersonate-Group", "ops"),
            ("Impersonate-Group", "dev"),
            ("Impersonate-Uid", "u1"),
            ("Impersonate-Extra-Acme.com%2Fproject", "one"),
            ("Impersonate-Extra-Acme.com%2Fproject", "two"),
        ],
    )
    .unwrap();
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("kim", "u1"));
    assert_eq!(user.groups, ["ops", "dev", "system:authenticated"]);
    assert_eq!(user.extra["acme.com/project"], ["one", "two"]);
}

#[test]
fn a_service_account_brings_its_groups_and_anonymous_its_own() {
    let groups = |list: &[(&str, &str)]| acting(&everybody(), list).unwrap().groups.clone();
    let robot = ("Impersonate-User", "system:serviceaccount:ns:robot");
    assert_eq!(
        groups(&[robot]),
        ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"]
    );
    assert_eq!(groups(&[robot, ("Impersonate-Group", "x")]), ["x", "system:authenticated"]);
    assert_eq!(groups(&[("Impersonate-User", "system:anonymous")]), ["system:unauthenticated"]);
    assert_eq!(
        groups(&[("Impersonate-User", "kim"), ("Impersonate-Group", "system:unauthenticated")]),
        ["system:unauthenticated"]
    );
}

#[test]
fn each_part_needs_its_own_right() {
    let only = |resource: &str, name: &str| {
        authorizer(json!([
            { "verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["kim"] },
            { "verbs": ["impersonate"], "apiGroups": ["", "authentication.k8s.io"], "resources": [resource], "resourceNames": [name] },
        ]))
    };
    let kim = ("Impersonate-User", "kim");
    let refused =
        |authorizer: &Authorizer, list: &[(&str, &str)]| acting(authorizer, list).unwrap_err().to_string();

    assert!(acting(&only("groups", "ops"), &[kim, ("Impersonate-Group", "ops")]).is_ok());
    assert_eq!(
        refused(
            &only("groups", "ops"),
            &[kim, ("Impersonate-Group", "ops"), ("Impersonate-Group", "system:masters")]
        ),
        r#"groups "system:masters" is forbidden: User "jo" cannot impersonate resource "groups" in API group "" at the cluster scope"#
    );
    assert_eq!(
        refused(&only("groups", "ops"), &[("Impersonate-User", "admin")]),
        r#"users "admin" is forbidden: User "jo" cannot impersonate resource "users" in API group "" at the cluster scope"#
    );
    assert_eq!(
        refused(&only("groups", "ops"), &[("Impersonate-User", "system:serviceaccount:ns:robot")]),
        r#"serviceaccounts "robot" is forbidden: User "jo" cannot impersonate resource "serviceaccounts" in API group "" in the namespace "ns""#
    );
    assert!(acting(&only("userextras/scopes", "a"), &[kim, ("Impersonate-Extra-Scopes", "a")]).is_ok());
    assert_eq!(
        refused(&only("userextras/scopes", "a"), &[kim, ("Impersonate-Extra-Scopes", "b")]),
        r#"userextras.authentication.k8s.io "b" is forbidden: User "jo" cannot impersonate resource "userextras/scopes" in API group "authentication.k8s.io" at the cluster scope"#
    );
    assert!(acting(&only("uids", "u1"), &[kim, ("Impersonate-Uid", "u1")]).is_ok());
    assert!(acting(&only("uids", "u1"), &[kim, ("Impersonate-Uid", "u2")]).is_err());
}

#[test]
fn a_group_without_a_user_and_two_users_are_refused() {
    for list in [
        &[("Impersonate-Group", "system:masters")][..],
        &[("Impersonate-Uid", "u")],
        &[("Impersonate-Extra-Scopes", "a")],
        &[("Impersonate-User", ""), ("Impersonate-Group", "system:masters")],
        &[("Impersonate-User", "kim"), ("Impersonate-User", "admin")],
    ] {
        assert!(matches!(acting(&everybody(), list), Err(Refusal::BadRequest { .. })), "{list:?}");
    }
}

#[test]
fn a_badly_encoded_key_is_taken_as_it_stands() {
    assert_eq!(unescaped("a%2fb"), "a/b");
    for odd in ["a%2", "a%zz", "%", "%+1", "%ff"] {
        assert_eq!(unescaped(odd), odd);
    }
}

proptest! {
    #[test]
    fn reading_the_headers_never_panics(
        user in proptest::collection::vec(any::<u8>(), 0..30),
        key in "[a-z%0-9._-]{0,20}",
        value in proptest::collection::vec(any::<u8>(), 0..30),
    ) {
        let mut map = HeaderMap::new();
        if let Ok(value) = HeaderValue::from_bytes(&user) {
            map.insert(USER, value);
        }
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(format!("{EXTRA_PREFIX}{key}").as_bytes()), HeaderValue::from_bytes(&value))
        {
            map.insert(name, value);
        }
        let _ = impersonate(&everybody(), jo(), &mut map);
        prop_assert!(map.is_empty());
    }
}
