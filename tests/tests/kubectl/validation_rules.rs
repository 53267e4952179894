//! Rules in CEL, from the definition that carries them to the objects they are about.

use serde_json::{Value, json};
use sheaf_tests::{kubectl::Kubectl, patience::until};

use crate::kubectl_in;

/// A definition of crates, whose spec has the given schema.
fn definition(group: &str, spec: &Value) -> String {
    let schema = json!({"type": "object", "properties": {"spec": spec, "status": {"type": "object",
        "x-kubernetes-validations": [{"rule": "self.count >= oldSelf.count", "message": "count never falls"}],
        "properties": {"count": {"type": "integer"}}}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("crates.{group}")},
        "spec": {"group": group, "scope": "Namespaced",
            "names": {"plural": "crates", "singular": "crate", "kind": "Crate"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema}}]}})
    .to_string()
}

/// An identity that is fixed, a size that only grows, and bounds that depend on each other.
fn spec() -> Value {
    json!({"type": "object",
        "x-kubernetes-validations": [
            {"rule": "!has(self.min) || !has(self.max) || self.min <= self.max",
             "messageExpression": "'min %d is above max %d'.format([self.min, self.max])", "fieldPath": ".min"}],
        "properties": {
            "id": {"type": "string", "maxLength": 20,
                "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "id is immutable"}]},
            "min": {"type": "integer"}, "max": {"type": "integer"},
            "labels": {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 10,
                "x-kubernetes-validations": [{"rule": "self.startsWith('x-')"}]}}}})
}

fn one(group: &str, spec: Value) -> String {
    json!({"apiVersion": format!("{group}/v1"), "kind": "Crate", "metadata": {"name": "one"}, "spec": spec})
        .to_string()
}

fn with_crates(namespace: &str) -> (Kubectl, String) {
    let (kubectl, group) = (kubectl_in(namespace), format!("{namespace}.example.com"));
    kubectl.apply(&definition(&group, &spec()));
    kubectl.says(&["wait", "--for=condition=Established", &format!("crd/crates.{group}"), "--timeout=20s"]);
    (kubectl, group)
}

fn refused(kubectl: &Kubectl, args: &[&str], input: &str) -> String {
    let ended = kubectl.run_with_input(args, input);
    assert_ne!(ended.code, 0, "{ended:?}");
    ended.stderr
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn an_immutable_field_stays_as_it_was_made_however_it_is_written() {
    let (kubectl, group) = with_crates("rules-immutable");
    let resource = format!("crates.{group}");
    kubectl.apply(&one(&group, json!({"id": "a", "min": 1})));
    kubectl.apply(&one(&group, json!({"id": "a", "min": 2})));
    let immutable = "spec.id: Invalid value: \"string\": id is immutable";
    let why = refused(&kubectl, &["apply", "-f", "-"], &one(&group, json!({"id": "b", "min": 3})));
    assert!(why.contains(immutable), "{why}");
    for (kind, patch) in
        [("merge", r#"{"spec":{"id":"b"}}"#), ("json", r#"[{"op":"replace","path":"/spec/id","value":"b"}]"#)]
    {
        let why = refused(&kubectl, &["patch", &resource, "one", "--type", kind, "-p", patch], "");
        assert!(why.contains(immutable), "{why}");
    }
    let replacement = kubectl.says(&["get", &resource, "one", "-o", "json"]).replace("\"a\"", "\"b\"");
    let why = refused(&kubectl, &["replace", "-f", "-"], &replacement);
    assert!(why.contains(immutable), "{why}");
    assert_eq!(kubectl.json(&["get", &resource, "one"])["spec"], json!({"id": "a", "min": 2}));
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn a_rule_says_what_is_wrong_where_and_in_its_own_words() {
    let (kubectl, group) = with_crates("rules-words");
    let why = refused(
        &kubectl,
        &["create", "-f", "-"],
        &one(&group, json!({"min": 5, "max": 3, "labels": ["x-a", "b"]})),
    );
    assert!(why.contains("spec.min: Invalid value: \"object\": min 5 is above max 3"), "{why}");
    assert!(
        why.contains("spec.labels[1]: Invalid value: \"string\": failed rule: self.startsWith('x-')"),
        "{why}"
    );
    // Status is held to its own rules, through its own door.
    kubectl.apply(&one(&group, json!({})));
    let resource = format!("crates.{group}");
    let status = |count: i64| format!(r#"{{"status":{{"count":{count}}}}}"#);
    let patch = ["patch", &resource, "one", "--subresource", "status", "--type", "merge", "-p"];
    kubectl.says(&[&patch[..], &[&status(3)]].concat());
    let why = refused(&kubectl, &[&patch[..], &[&status(2)]].concat(), "");
    assert!(why.contains("status: Invalid value: \"object\": count never falls"), "{why}");
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn a_definition_may_grow_stricter_than_the_objects_there_are() {
    let (kubectl, group) = with_crates("rules-stricter");
    let resource = format!("crates.{group}");
    kubectl.apply(&one(&group, json!({"min": 7, "max": 9})));
    let mut stricter = spec();
    stricter["properties"]["min"]["x-kubernetes-validations"] =
        json!([{"rule": "self % 2 == 0", "message": "is odd"}]);
    kubectl.apply(&definition(&group, &stricter));
    // The server reads the new definition in its own time.
    until("odd numbers are refused", || {
        let ended =
            kubectl.run(&["patch", &resource, "one", "--type", "merge", "-p", r#"{"spec":{"min":5}}"#]);
        (ended.code != 0).then_some(())
    });
    let before = kubectl.json(&["get", &resource, "one"])["spec"]["min"].clone();
    let ended = kubectl
        .run(&["patch", &resource, "one", "--type", "merge", "-p", r#"{"spec":{"max":10}}"#])
        .succeeded();
    assert!(
        ended.stderr.contains("Warning: spec.min: Invalid value: \"integer\": is odd"),
        "{}",
        ended.stderr
    );
    assert_eq!(kubectl.json(&["get", &resource, "one"])["spec"], json!({"min": before, "max": 10}));
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn a_rule_that_does_not_compile_or_costs_too_much_is_refused_with_its_definition() {
    let kubectl = kubectl_in("rules-refused");
    let refuse = |spec: Value| {
        refused(&kubectl, &["create", "-f", "-"], &definition("rules-refused.example.com", &spec))
    };
    let at = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule: ";
    let why = refuse(json!({"type": "object", "x-kubernetes-validations": [{"rule": "self.nope == 1"}]}));
    assert!(why.contains(at) && why.contains("ERROR: <input>:1:5: undefined field 'nope'"), "{why}");
    let why = refuse(json!({"type": "object", "x-kubernetes-validations": [{"rule": "frobnicate(self)"}]}));
    assert!(why.contains("undeclared reference to 'frobnicate'"), "{why}");
    let why = refuse(json!({"type": "array", "items": {"type": "string"},
        "x-kubernetes-validations": [{"rule": "self.all(x, self.all(y, x == y))"}]}));
    assert!(
        why.contains(&format!(
            "{at}Forbidden: estimated rule cost exceeds budget by factor of more than 100x"
        )),
        "{why}"
    );
}
