//! Changing what is there: patches, labels, annotations, whole objects; and waiting for a change.

use std::{thread, time::Duration};

use serde_json::{Value, json};
use sheaf_tests::kubectl::Kubectl;

use crate::kubectl_in;

fn with_config_map(namespace: &str) -> Kubectl {
    let kubectl = kubectl_in(namespace);
    kubectl.apply(
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: box, labels: {a: '1'}}, data: {x: '1', b: '2'}}",
    );
    kubectl
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn each_kind_of_patch_does_what_it_says() {
    let kubectl = with_config_map("changing-patches");
    let data = || kubectl.json(&["get", "cm", "box"])["data"].clone();
    let patch = |kind: &str, patch: &str| kubectl.run(&["patch", "cm", "box", "--type", kind, "-p", patch]);

    let said = patch("strategic", r#"{"data":{"x":"10","z":"3"}}"#).succeeded().stdout;
    assert_eq!(said, "configmap/box patched\n");
    assert_eq!(data(), json!({"x": "10", "b": "2", "z": "3"}));
    patch("strategic", r#"{"data":{"$patch":"replace","only":"this"}}"#).succeeded();
    assert_eq!(data(), json!({"only": "this"}));
    patch("merge", r#"{"data":{"only":null,"x":"1"}}"#).succeeded();
    assert_eq!(data(), json!({"x": "1"}));
    patch(
        "json",
        r#"[{"op":"test","path":"/data/x","value":"1"},{"op":"move","from":"/data/x","path":"/data/w"}]"#,
    )
    .succeeded();
    assert_eq!(data(), json!({"w": "1"}));
    let said = patch("merge", r#"{"data":{"w":"1"}}"#).succeeded().stdout;
    assert_eq!(said, "configmap/box patched (no change)\n");

    let before = kubectl.json(&["get", "cm", "box"]);
    let refused = patch(
        "json",
        r#"[{"op":"add","path":"/data/n","value":"1"},{"op":"test","path":"/data/w","value":"2"}]"#,
    );
    assert!(
        refused.stderr.contains("the server rejected our request due to an error in our request"),
        "{}",
        refused.stderr
    );
    let refused = patch("json", r#"[{"op":"remove","path":"/data/nothing"}]"#);
    assert!(
        refused.stderr.contains("the server rejected our request due to an error in our request"),
        "{}",
        refused.stderr
    );
    let refused = patch("merge", r#"{"metadata":{"name":"other"}}"#);
    assert!(
        refused.stderr.contains("the name of the object (other) does not match the name on the URL (box)"),
        "{}",
        refused.stderr
    );
    assert_eq!(kubectl.json(&["get", "cm", "box"]), before);
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn labels_and_annotations_are_set_kept_and_taken_away() {
    let kubectl = with_config_map("changing-labels");
    assert_eq!(kubectl.says(&["label", "cm", "box", "b=2", "c=3"]), "configmap/box labeled\n");
    let why = kubectl.complains(&["label", "cm", "box", "b=4"]);
    assert!(why.contains("'b' already has a value (2), and --overwrite is false"), "{why}");
    kubectl.says(&["label", "cm", "box", "b=4", "c-", "--overwrite"]);
    assert_eq!(kubectl.json(&["get", "cm", "box"])["metadata"]["labels"], json!({"a": "1", "b": "4"}));
    assert_eq!(kubectl.says(&["get", "cm", "-l", "b=4", "-o", "name"]), "configmap/box\n");

    let note = "jsonpath={.metadata.annotations.note}";
    assert_eq!(kubectl.says(&["annotate", "cm", "box", "note=to myself"]), "configmap/box annotated\n");
    assert_eq!(kubectl.says(&["get", "cm", "box", "-o", note]), "to myself");
    kubectl.says(&["annotate", "cm", "--all", "note-"]);
    assert_eq!(kubectl.says(&["get", "cm", "box", "-o", note]), "");

    let why = kubectl.complains(&["label", "cm", "box", "bad=no spaces here"]);
    assert!(
        why.contains("a valid label must be an empty string or consist of alphanumeric characters"),
        "{why}"
    );
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn a_whole_object_is_replaced_only_by_one_who_saw_the_latest() {
    let kubectl = with_config_map("changing-replace");
    let seen = kubectl.json(&["get", "cm", "box"]);
    let mut wanted = seen.clone();
    wanted["data"] = json!({"new": "content"});
    let said = kubectl.run_with_input(&["replace", "-f", "-"], &wanted.to_string()).succeeded().stdout;
    assert_eq!(said, "configmap/box replaced\n");
    assert_eq!(kubectl.json(&["get", "cm", "box"])["data"], json!({"new": "content"}));

    let ended = kubectl.run_with_input(&["replace", "-f", "-"], &seen.to_string());
    assert!(
        ended.stderr.contains("(Conflict)")
            && ended.stderr.contains(
                "Operation cannot be fulfilled on configmaps \"box\": the object has been modified; \
                 please apply your changes to the latest version and try again"
            ),
        "{}",
        ended.stderr
    );
    assert_eq!(kubectl.json(&["get", "cm", "box"])["data"], json!({"new": "content"}));

    let mut frozen = kubectl.json(&["get", "cm", "box"]);
    frozen["immutable"] = true.into();
    kubectl.run_with_input(&["replace", "-f", "-"], &frozen.to_string()).succeeded();
    let why = kubectl.complains(&["patch", "cm", "box", "-p", r#"{"data":{"new":"thing"}}"#]);
    assert!(why.contains("field is immutable when `immutable` is set"), "{why}");
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn waiting_ends_when_it_is_so_and_complains_when_it_never_is() {
    let kubectl = with_config_map("changing-wait");
    let later = |args: &'static [&'static str]| {
        let kubectl = kubectl.clone();
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(700));
            kubectl.says(args);
        })
    };

    let change = later(&["patch", "cm", "box", "-p", r#"{"data":{"x":"ready"}}"#]);
    let said = kubectl.says(&["wait", "cm/box", "--for=jsonpath={.data.x}=ready", "--timeout=20s"]);
    assert_eq!(said, "configmap/box condition met\n");
    assert_eq!(kubectl.json(&["get", "cm", "box"])["data"]["x"], "ready");
    change.join().unwrap();

    let change = later(&["delete", "cm", "box"]);
    let said = kubectl.says(&["wait", "cm/box", "--for=delete", "--timeout=20s"]);
    assert_eq!(said, "configmap/box condition met\n");
    assert!(kubectl.complains(&["get", "cm", "box"]).contains("NotFound"));
    change.join().unwrap();

    let change = later(&["create", "configmap", "late"]);
    kubectl.says(&["wait", "cm/late", "--for=create", "--timeout=20s"]);
    change.join().unwrap();
    let why = kubectl.complains(&["wait", "cm/late", "--for=jsonpath={.data.x}=never", "--timeout=500ms"]);
    assert!(why.contains("timed out waiting for the condition on configmaps/late"), "{why}");
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn a_condition_written_to_status_is_waited_for() {
    let kubectl = kubectl_in("changing-condition");
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "changing-condition"}});
    kubectl.apply(&node.to_string());
    let condition =
        json!({"status": {"conditions": [{"type": "Painted", "status": "True", "reason": "Dry"}]}});
    let writer = {
        let kubectl = kubectl.clone();
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(700));
            let patch = condition.to_string();
            kubectl.says(&["patch", "node", "changing-condition", "--subresource=status", "-p", &patch]);
        })
    };
    let said = kubectl.says(&["wait", "node/changing-condition", "--for=condition=Painted", "--timeout=20s"]);
    assert_eq!(said, "node/changing-condition condition met\n");
    writer.join().unwrap();
    let node = kubectl.json(&["get", "node", "changing-condition"]);
    assert_eq!(node["status"]["conditions"][0]["reason"], "Dry");
    // What is written past the subresource does not reach the status.
    kubectl.says(&["patch", "node", "changing-condition", "-p", r#"{"status":{"phase":"Nonsense"}}"#]);
    assert_eq!(kubectl.json(&["get", "node", "changing-condition"])["status"]["phase"], Value::Null);
    kubectl.says(&["delete", "node", "changing-condition"]);
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn an_edit_changes_what_was_edited_and_a_wrong_one_is_given_back() {
    let kubectl = with_config_map("changing-edits");
    let said = kubectl.editing_with("sed -i 's/x: \"1\"/x: \"11\"/'").says(&["edit", "cm", "box"]);
    assert_eq!(said, "configmap/box edited\n");
    assert_eq!(kubectl.json(&["get", "cm", "box"])["data"], json!({"x": "11", "b": "2"}));
    let said = kubectl.editing_with("true").run(&["edit", "cm", "box"]).succeeded();
    assert!(said.stderr.contains("Edit cancelled, no changes made."), "{}", said.stderr);
    let before = kubectl.json(&["get", "cm", "box"]);
    let refused = kubectl.editing_with("sed -i 's/name: box/name: bag/'").complains(&["edit", "cm", "box"]);
    assert!(refused.contains("At least one of apiVersion, kind and name was changed"), "{refused}");
    assert_eq!(kubectl.json(&["get", "cm", "box"]), before);
}
