//! What access reviews answer.

use std::sync::Arc;

use sheaf_resources::rbac;

use super::*;
use crate::identity::shelf::Shelf;

fn house() -> (Arc<Shelf>, Authorizer) {
    let shelf = Arc::new(Shelf::default());
    let rules = json!([
        { "verbs": ["get"], "apiGroups": [""], "resources": ["secrets"] },
        { "verbs": ["get"], "nonResourceURLs": ["/metrics"] },
    ]);
    shelf.put(rbac::GROUP, "clusterroles", json!({ "metadata": { "name": "reader" }, "rules": rules }));
    shelf.put(
        rbac::GROUP,
        "clusterrolebindings",
        json!({
            "metadata": { "name": "b" },
            "roleRef": { "kind": "ClusterRole", "name": "reader" },
            "subjects": [{ "kind": "User", "name": "jo" }, { "kind": "Group", "name": "ops" }],
        }),
    );
    let authorizer = Authorizer::new(shelf.clone());
    (shelf, authorizer)
}

fn jo() -> User {
    User { name: "jo".into(), ..User::default() }
}

fn get_secret() -> Value {
    json!({ "verb": "get", "resource": "secrets", "namespace": "ns" })
}

#[test]
fn may_i_is_answered_with_the_reason() {
    let (_, authorizer) = house();
    let body = json!({ "spec": { "resourceAttributes": get_secret() } });
    let answer = self_subject_access_review(&authorizer, &jo(), &body).unwrap();
    assert_eq!(answer["kind"], "SelfSubjectAccessReview");
    assert_eq!(answer["spec"], body["spec"]);
    assert_eq!(
        answer["status"],
        json!({
            "allowed": true,
            "reason": r#"RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "reader" to User "jo""#,
        })
    );
    let nobody = self_subject_access_review(&authorizer, &User::anonymous(), &body).unwrap();
    assert_eq!(nobody["status"], json!({ "allowed": false }));
    let path = json!({ "spec": { "nonResourceAttributes": { "verb": "get", "path": "/metrics" } } });
    assert_eq!(self_subject_access_review(&authorizer, &jo(), &path).unwrap()["status"]["allowed"], true);
}

#[test]
fn may_they_is_answered_for_exactly_the_user_and_groups_given() {
    let (_, authorizer) = house();
    let ask = |spec: Value| {
        subject_access_review(&authorizer, &json!({ "spec": spec })).unwrap()["status"]["allowed"].clone()
    };
    assert_eq!(ask(json!({ "user": "jo", "resourceAttributes": get_secret() })), true);
    assert_eq!(ask(json!({ "user": "kim", "groups": ["ops"], "resourceAttributes": get_secret() })), true);
    assert_eq!(ask(json!({ "groups": ["ops"], "resourceAttributes": get_secret() })), true);
    assert_eq!(ask(json!({ "user": "kim", "resourceAttributes": get_secret() })), false);
}

#[test]
fn a_question_that_makes_no_sense_is_refused_with_the_field() {
    let (_, authorizer) = house();
    let said = |body: Value| subject_access_review(&authorizer, &body).unwrap_err().to_string();
    let head = "SubjectAccessReview.authorization.k8s.io \"\" is invalid: ";
    assert_eq!(
        said(json!({ "spec": { "user": "jo" } })),
        format!(
            "{head}spec.resourceAttributes: Invalid value: \"null\": exactly one of nonResourceAttributes or \
             resourceAttributes must be specified"
        )
    );
    assert_eq!(
        said(json!({ "spec": { "resourceAttributes": get_secret() } })),
        format!("{head}spec.user: Invalid value: \"\": at least one of user or group must be specified")
    );
    let both = json!({ "user": "jo", "resourceAttributes": {}, "nonResourceAttributes": {} });
    assert!(
        said(json!({ "spec": both })).contains("cannot be specified in combination with resourceAttributes")
    );
    let named = json!({ "metadata": { "name": "x" }, "spec": { "user": "jo", "resourceAttributes": {} } });
    assert!(said(named).ends_with("must be empty"));
    assert!(said(json!({})).contains(", spec.user: "), "every cause is named");
    assert!(self_subject_access_review(&authorizer, &jo(), &json!({})).is_err());
}

#[test]
fn a_local_question_stays_in_its_namespace() {
    let (_, authorizer) = house();
    let ask = |body: &Value| local_subject_access_review(&authorizer, "ns", body);
    let good = json!({
        "metadata": { "namespace": "ns" },
        "spec": { "user": "jo", "resourceAttributes": get_secret() },
    });
    assert_eq!(ask(&good).unwrap()["status"]["allowed"], true);
    let with = |pointer: &str, value: Value| {
        let mut body = good.clone();
        *body.pointer_mut(pointer).unwrap() = value;
        ask(&body).unwrap_err().to_string()
    };
    assert!(
        with("/spec/resourceAttributes/namespace", json!("other")).contains("must match metadata.namespace")
    );
    assert!(
        with("/metadata", json!({ "namespace": "ns", "name": "x" }))
            .contains("must be empty except for namespace")
    );
    let path = json!({ "user": "jo", "nonResourceAttributes": { "verb": "get", "path": "/" } });
    assert!(with("/spec", path).contains("disallowed on this kind of request"));
    let elsewhere = local_subject_access_review(&authorizer, "other", &good).unwrap_err();
    assert_eq!(elsewhere.to_string(), "spec.resourceAttributes.namespace must match namespace: other");
}

#[test]
fn what_may_i_lists_every_rule_and_owns_up_to_what_it_does_not_know() {
    let (shelf, authorizer) = house();
    let body = json!({ "spec": { "namespace": "ns" } });
    let answer = self_subject_rules_review(&authorizer, &jo(), &body).unwrap();
    assert_eq!(
        answer["status"],
        json!({
            "resourceRules": [{ "verbs": ["get"], "apiGroups": [""], "resources": ["secrets"] }],
            "nonResourceRules": [{ "verbs": ["get"], "nonResourceURLs": ["/metrics"] }],
            "incomplete": false,
        })
    );
    let refused = self_subject_rules_review(&authorizer, &jo(), &json!({ "spec": {} })).unwrap_err();
    assert_eq!(refused.to_string(), "no namespace on request");

    shelf.remove(rbac::GROUP, "clusterroles", "", "reader");
    let answer = self_subject_rules_review(&authorizer, &jo(), &body).unwrap();
    assert_eq!(answer["status"]["incomplete"], true);
    assert!(answer["status"]["evaluationError"].as_str().unwrap().contains("\"reader\" not found"));
}
