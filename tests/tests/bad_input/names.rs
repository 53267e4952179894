//! Names and metadata that break the rules.

use serde_json::{Value, json};

use crate::{Untouched, config_map, post, put};

#[test]
fn invalid_names_are_refused_with_the_rule_they_break() {
    let mut there = Untouched::new("names");
    let path = there.path.clone();
    let too_long = "a".repeat(254);
    for name in [
        "Capital",
        "under_score",
        "-dash",
        "dash-",
        "spa ce",
        "dot..dot",
        "a/b",
        "ümlaut",
        "new\n",
        &too_long,
    ] {
        let body = config_map(name).to_string();
        let says = match name.len() {
            254 => "metadata.name: Invalid value: \"aaa",
            _ => "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters",
        };
        there.refuses(post(&path, body.as_bytes()), 422, "Invalid", says);
    }
    let mut nameless = config_map("");
    let says = "metadata.name: Required value: name or generateName is required";
    there.refuses(post(&path, nameless.to_string().as_bytes()), 422, "Invalid", says);
    nameless["metadata"]["generateName"] = "No Good".into();
    there.refuses(
        post(&path, nameless.to_string().as_bytes()),
        422,
        "Invalid",
        "metadata.generateName: Invalid value",
    );

    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "has.dots"}}).to_string();
    let says = "metadata.name: Invalid value: \"has.dots\": must not contain dots";
    there.refuses(post("/api/v1/namespaces", namespace.as_bytes()), 422, "Invalid", says);
}

#[test]
fn a_refusal_names_every_field_that_is_wrong() {
    let mut there = Untouched::new("causes");
    let mut object = config_map("new");
    object["metadata"]["labels"]["bad key!"] = "x".into();
    object["metadata"]["labels"]["key"] = "bad value!".into();
    object["metadata"]["annotations"] = json!({"Also Bad": "x"});
    object["metadata"]["finalizers"] = json!(["unqualified name"]);
    object["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "", "uid": ""}]);
    object["data"]["no/slash"] = "x".into();
    let answer = there.connection.post(&there.path.clone(), &object);
    assert_eq!(answer.refusal().1, "Invalid");
    let status = answer.json();
    let details = &status["details"];
    assert_eq!((&details["name"], &details["kind"]), (&"new".into(), &"ConfigMap".into()));
    let mut fields: Vec<_> =
        details["causes"].as_array().unwrap().iter().map(|cause| cause["field"].as_str().unwrap()).collect();
    fields.sort_unstable();
    fields.dedup();
    assert_eq!(
        fields,
        [
            "data[no/slash]",
            "metadata.annotations",
            "metadata.finalizers",
            "metadata.labels",
            "metadata.ownerReferences[0].name",
            "metadata.ownerReferences[0].uid",
        ],
        "{status}"
    );
    let reasons: Vec<&Value> =
        details["causes"].as_array().unwrap().iter().map(|cause| &cause["reason"]).collect();
    assert!(reasons.iter().all(|reason| *reason == "FieldValueInvalid"), "{reasons:?}");
}

#[test]
fn what_may_never_change_does_not() {
    let mut there = Untouched::new("immutable");
    let one = there.one();
    let mut object = there.connection.get(&one).object();
    object["metadata"]["creationTimestamp"] = "2001-01-01T00:00:00Z".into();
    object["metadata"]["generation"] = 77.into();
    object["metadata"]["selfLink"] = "/elsewhere".into();
    // The original takes the object and keeps what is its own.
    let answer = there.connection.put(&one, &object);
    assert_eq!(answer.code, 200, "{}", answer.text());
    assert_eq!(there.look(), there.before);

    let lists = json!({"apiVersion": "v1", "kind": "ConfigMapList", "items": []}).to_string();
    there.refuses(put(&one, lists.as_bytes()), 400, "BadRequest", "");
}
