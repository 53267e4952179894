//! Deleting: one, many, with what hangs on it, without it, and what refuses to go.

use serde_json::{Value, json};
use sheaf_tests::{kubectl::Kubectl, patience::until};

use crate::{connection, kubectl_in};

const FINALIZER: &str = "example.com/not-yet";

/// An owner with three dependents, one of which does not block its owner's end.
fn family(namespace: &str) -> Kubectl {
    let kubectl = kubectl_in(namespace);
    kubectl.says(&["create", "configmap", "owner"]);
    let uid = kubectl.says(&["get", "cm", "owner", "-o", "jsonpath={.metadata.uid}"]);
    for (name, blocks) in [("first", true), ("second", true), ("loose", false)] {
        let dependent = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "labels": {"family": "yes"}, "ownerReferences": [{
                "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid, "blockOwnerDeletion": blocks,
            }]},
        });
        kubectl.run_with_input(&["create", "-f", "-"], &dependent.to_string()).succeeded();
    }
    kubectl
}

fn family_names(kubectl: &Kubectl) -> Vec<String> {
    let text = kubectl.says(&["get", "cm", "-l", "family", "-o", "name"]);
    text.lines().map(str::to_owned).collect()
}

fn is_gone(kubectl: &Kubectl, what: &str) -> bool {
    kubectl.run(&["get", what]).stderr.contains("(NotFound)")
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn in_the_background_the_owner_goes_first_and_its_dependents_follow() {
    let kubectl = family("deleting-background");
    // It would be seen if the owner waited for this one.
    kubectl.says(&[
        "patch",
        "cm",
        "first",
        "-p",
        &json!({"metadata": {"finalizers": [FINALIZER]}}).to_string(),
    ]);
    let said = kubectl.says(&["delete", "cm", "owner", "--cascade=background"]);
    assert_eq!(said, "configmap \"owner\" deleted from deleting-background namespace\n");
    assert!(is_gone(&kubectl, "cm/owner"));
    until("the dependents follow", || (family_names(&kubectl) == ["configmap/first"]).then_some(()));
    let first = kubectl.json(&["get", "cm", "first"]);
    until("the first is on its way", || {
        kubectl.json(&["get", "cm", "first"])["metadata"]["deletionTimestamp"].is_string().then_some(())
    });
    assert_eq!(first["metadata"]["finalizers"], json!([FINALIZER]));
    kubectl.says(&["patch", "cm", "first", "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#]);
    assert!(is_gone(&kubectl, "cm/first"));
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn in_the_foreground_the_owner_waits_for_those_that_block_it() {
    let kubectl = family("deleting-foreground");
    kubectl.says(&[
        "patch",
        "cm",
        "first",
        "-p",
        &json!({"metadata": {"finalizers": [FINALIZER]}}).to_string(),
    ]);
    kubectl.says(&["delete", "cm", "owner", "--cascade=foreground", "--wait=false"]);
    until("all but the held dependent go", || {
        (!family_names(&kubectl).contains(&"configmap/second".to_owned())).then_some(())
    });
    let owner = kubectl.json(&["get", "cm", "owner"]);
    assert!(owner["metadata"]["deletionTimestamp"].is_string(), "{owner}");
    assert_eq!(owner["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    kubectl.says(&["patch", "cm", "first", "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#]);
    until("the owner follows", || is_gone(&kubectl, "cm/owner").then_some(()));
    until("nobody is left", || family_names(&kubectl).is_empty().then_some(()));
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn orphans_stay_and_forget_their_owner() {
    let kubectl = family("deleting-orphan");
    kubectl.says(&["delete", "cm", "owner", "--cascade=orphan"]);
    assert!(is_gone(&kubectl, "cm/owner"));
    let list = kubectl.json(&["get", "cm", "-l", "family"]);
    let members = list["items"].as_array().unwrap();
    assert_eq!(members.len(), 3);
    for member in members {
        assert_eq!(member["metadata"]["ownerReferences"], Value::Null, "{member}");
        assert_eq!(member["metadata"]["deletionTimestamp"], Value::Null, "{member}");
    }
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn a_dependent_with_another_owner_left_stays_with_that_one() {
    let kubectl = family("deleting-shared");
    kubectl.says(&["create", "configmap", "guardian"]);
    let uid = kubectl.says(&["get", "cm", "guardian", "-o", "jsonpath={.metadata.uid}"]);
    let more = json!([{"op": "add", "path": "/metadata/ownerReferences/-", "value":
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "guardian", "uid": uid}}]);
    kubectl.says(&["patch", "cm", "first", "--type=json", "-p", &more.to_string()]);
    kubectl.says(&["delete", "cm", "owner"]);
    until("the others go", || (family_names(&kubectl) == ["configmap/first"]).then_some(()));
    until("the owner is forgotten", || {
        let owners = kubectl.json(&["get", "cm", "first"])["metadata"]["ownerReferences"].clone();
        (owners.as_array().unwrap().len() == 1 && owners[0]["name"] == "guardian").then_some(())
    });
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn many_are_deleted_by_label_and_the_others_stay() {
    let kubectl = kubectl_in("deleting-many");
    for name in ["a", "b", "c"] {
        kubectl.says(&["create", "secret", "generic", name]);
    }
    kubectl.says(&["label", "secret", "a", "b", "old=yes"]);
    let said = kubectl.says(&["delete", "secret", "-l", "old=yes"]);
    assert_eq!(said.lines().count(), 2, "{said}");
    assert_eq!(kubectl.says(&["get", "secrets", "-o", "name"]), "secret/c\n");
    kubectl.says(&["delete", "secret", "--all"]);
    assert_eq!(kubectl.says(&["get", "secrets", "-o", "name"]), "");
    assert_eq!(kubectl.says(&["delete", "secret", "c", "--ignore-not-found"]), "");
    assert!(kubectl.complains(&["delete", "secret", "c"]).contains("(NotFound)"));
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn a_finalizer_holds_an_object_until_it_is_taken_away() {
    let kubectl = kubectl_in("deleting-held");
    kubectl.says(&["create", "configmap", "held"]);
    kubectl.says(&[
        "patch",
        "cm",
        "held",
        "-p",
        &json!({"metadata": {"finalizers": [FINALIZER]}}).to_string(),
    ]);
    kubectl.says(&["delete", "cm", "held", "--wait=false"]);
    let held = kubectl.json(&["get", "cm", "held"]);
    assert!(held["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(held["metadata"]["deletionGracePeriodSeconds"], 0);
    // No new finalizer once the end has begun.
    let add = json!({"metadata": {"finalizers": [FINALIZER, "example.com/more"]}}).to_string();
    let why = kubectl.complains(&["patch", "cm", "held", "--type=merge", "-p", &add]);
    assert!(
        why.contains(
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted"
        ),
        "{why}"
    );
    kubectl.says(&["patch", "cm", "held", "--type=merge", "-p", r#"{"metadata":{"finalizers":[]}}"#]);
    assert!(is_gone(&kubectl, "cm/held"));
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn a_namespace_takes_everything_in_it_along() {
    let kubectl = kubectl_in("deleting-namespace");
    kubectl.says(&["create", "configmap", "inside"]);
    kubectl.says(&["create", "secret", "generic", "inside"]);
    kubectl.says(&["create", "configmap", "held"]);
    kubectl.says(&[
        "patch",
        "cm",
        "held",
        "-p",
        &json!({"metadata": {"finalizers": [FINALIZER]}}).to_string(),
    ]);
    kubectl.says(&["delete", "namespace", "deleting-namespace", "--wait=false"]);
    until("the contents go", || is_gone(&kubectl, "secret/inside").then_some(()));
    until("the other contents go", || is_gone(&kubectl, "cm/inside").then_some(()));

    let namespace = kubectl.json(&["get", "ns", "deleting-namespace"]);
    assert_eq!(namespace["status"]["phase"], "Terminating");
    let why = kubectl.complains(&["create", "configmap", "late"]);
    assert!(
        why.contains(
            "configmaps \"late\" is forbidden: unable to create new content in namespace deleting-namespace \
             because it is being terminated"
        ),
        "{why}"
    );
    kubectl.says(&["patch", "cm", "held", "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#]);
    kubectl.says(&["wait", "ns/deleting-namespace", "--for=delete", "--timeout=30s"]);
    let left = connection().get("/api/v1/configmaps").object();
    let left: Vec<_> = left["items"].as_array().unwrap().clone();
    assert!(left.iter().all(|object| object["metadata"]["namespace"] != "deleting-namespace"), "{left:?}");
}
