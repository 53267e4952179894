//! Server-side apply as kubectl does it: making, changing, being at odds, changing over from client-side apply.

use serde_json::{Value, json};
use sheaf_tests::kubectl::Kubectl;

use crate::kubectl_in;

fn apply(kubectl: &Kubectl, flags: &[&str], manifest: &str) -> sheaf_tests::program::Ended {
    kubectl.run_with_input(&[&["apply", "--server-side", "-f", "-"], flags].concat(), manifest)
}

fn settings(data: &str) -> String {
    format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: settings}}, data: {{{data}}}}}")
}

/// `manager operation` of every owner.
fn owners(kubectl: &Kubectl, name: &str) -> Vec<String> {
    let object = kubectl.json(&["get", "cm", name, "--show-managed-fields"]);
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    entries
        .iter()
        .map(|entry| {
            format!("{} {}", entry["manager"].as_str().unwrap(), entry["operation"].as_str().unwrap())
        })
        .collect()
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn what_is_applied_is_made_changed_and_taken_back() {
    let kubectl = kubectl_in("server-side");
    let said = apply(&kubectl, &[], &settings("host: a, port: '80'")).succeeded().stdout;
    assert_eq!(said, "configmap/settings serverside-applied\n");
    let made = kubectl.json(&["get", "cm", "settings"]);
    assert_eq!(owners(&kubectl, "settings"), ["kubectl Apply"]);
    assert_eq!(made["metadata"].get("annotations"), None, "nothing is noted in the object itself");
    apply(&kubectl, &[], &settings("host: a, port: '80'")).succeeded();
    assert_eq!(kubectl.json(&["get", "cm", "settings"]), made, "the same again changes nothing");
    kubectl.says(&["patch", "cm", "settings", "-p", r#"{"data":{"added":"by another"}}"#]);
    apply(&kubectl, &[], &settings("host: b")).succeeded();
    let now = kubectl.json(&["get", "cm", "settings"]);
    assert_eq!(now["data"], json!({"host": "b", "added": "by another"}));
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn who_is_at_odds_is_told_with_whom_and_may_insist() {
    let kubectl = kubectl_in("server-side-conflict");
    apply(&kubectl, &["--field-manager=team-a"], &settings("host: a, port: '80'")).succeeded();
    kubectl.says(&["patch", "cm", "settings", "--field-manager=hand", "-p", r#"{"data":{"port":"81"}}"#]);
    let ended = apply(&kubectl, &["--field-manager=team-b"], &settings("host: b, port: '82'"));
    assert_eq!(ended.code, 1);
    let expected = "error: Apply failed with 2 conflicts: conflicts with \"hand\" using v1:\n- .data.port\n\
        conflicts with \"team-a\":\n- .data.host\n\
        Please review the fields above--they currently have other managers.";
    assert!(ended.stderr.starts_with(expected), "{}", ended.stderr);
    assert_eq!(kubectl.json(&["get", "cm", "settings"])["data"], json!({"host": "a", "port": "81"}));
    let one = apply(&kubectl, &["--field-manager=team-b"], &settings("host: b"));
    assert!(
        one.stderr.starts_with("error: Apply failed with 1 conflict: conflict with \"team-a\": .data.host\n"),
        "{}",
        one.stderr
    );
    apply(&kubectl, &["--field-manager=team-b", "--force-conflicts"], &settings("host: b, port: '82'"))
        .succeeded();
    assert_eq!(kubectl.json(&["get", "cm", "settings"])["data"], json!({"host": "b", "port": "82"}));
    assert_eq!(owners(&kubectl, "settings"), ["team-b Apply"]);
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn who_applied_from_the_client_changes_over_without_being_at_odds_with_themselves() {
    let kubectl = kubectl_in("server-side-migration");
    kubectl.apply(&settings("host: a, port: '80'"));
    assert_eq!(owners(&kubectl, "settings"), ["kubectl-client-side-apply Update"]);
    let last = kubectl.says(&["apply", "view-last-applied", "cm", "settings", "-o", "json"]);
    assert_eq!(serde_json::from_str::<Value>(&last).unwrap()["data"]["host"], "a");

    apply(&kubectl, &[], &settings("host: b, port: '80'")).succeeded();
    // kubectl moves what it owned before, and keeps the annotation under a name of its own.
    let mut now = owners(&kubectl, "settings");
    now.sort();
    assert_eq!(now, ["kubectl Apply", "kubectl-last-applied Apply"]);
    // What is left out goes although it was applied from the client, and the annotation follows.
    apply(&kubectl, &[], &settings("host: c")).succeeded();
    assert_eq!(kubectl.json(&["get", "cm", "settings"])["data"], json!({"host": "c"}));
    let last = kubectl.says(&["apply", "view-last-applied", "cm", "settings", "-o", "json"]);
    assert_eq!(serde_json::from_str::<Value>(&last).unwrap()["data"], json!({"host": "c"}));
    // And back again.
    assert_eq!(kubectl.apply(&settings("host: d, port: '1'")), "configmap/settings configured\n");
    assert_eq!(kubectl.json(&["get", "cm", "settings"])["data"], json!({"host": "d", "port": "1"}));
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn owners_are_shown_when_asked_for_and_edits_are_owned() {
    let kubectl = kubectl_in("server-side-edit");
    apply(&kubectl, &[], &settings("host: a, port: '80'")).succeeded();
    let hidden = kubectl.says(&["get", "cm", "settings", "-o", "yaml"]);
    assert!(!hidden.contains("managedFields"), "{hidden}");
    let shown = kubectl.says(&["get", "cm", "settings", "-o", "yaml", "--show-managed-fields"]);
    for line in [
        "  managedFields:",
        "    fieldsType: FieldsV1",
        "        f:host: {}",
        "    manager: kubectl",
        "    operation: Apply",
    ] {
        assert!(shown.lines().any(|found| found == line), "{line:?} is not in\n{shown}");
    }
    kubectl.editing_with("sed -i /port/s/80/81/").says(&["edit", "cm", "settings"]);
    assert_eq!(kubectl.json(&["get", "cm", "settings"])["data"]["port"], "81");
    assert_eq!(owners(&kubectl, "settings"), ["kubectl Apply", "kubectl-edit Update"]);
    kubectl.says(&["label", "cm", "settings", "a=b"]);
    kubectl.says(&["annotate", "cm", "settings", "c=d"]);
    // Those of one second come by name.
    let mut all = owners(&kubectl, "settings");
    all.sort();
    assert_eq!(
        all,
        ["kubectl Apply", "kubectl-annotate Update", "kubectl-edit Update", "kubectl-label Update"]
    );
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn a_dry_run_and_a_diff_on_the_server_change_nothing() {
    let kubectl = kubectl_in("server-side-dry-run");
    let said = apply(&kubectl, &["--dry-run=server"], &settings("host: a")).succeeded().stdout;
    assert_eq!(said, "configmap/settings serverside-applied (server dry run)\n");
    assert!(kubectl.complains(&["get", "cm", "settings"]).contains("NotFound"));
    apply(&kubectl, &[], &settings("host: a")).succeeded();
    let before = kubectl.json(&["get", "cm", "settings"]);
    let ended = kubectl.run_with_input(&["diff", "--server-side", "-f", "-"], &settings("host: b"));
    assert_eq!(ended.code, 1, "{ended:?}");
    let changed: Vec<_> = ended.stdout.lines().filter(|line| line.contains(" host:")).collect();
    assert_eq!(changed, ["-  host: a", "+  host: b"]);
    assert_eq!(kubectl.json(&["get", "cm", "settings"]), before);
    let typo = apply(
        &kubectl,
        &["--validate=false"],
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: typo}, dta: {a: b}}",
    );
    assert!(
        typo.stderr.contains("failed to create typed patch object (server-side-dry-run/typo; /v1, Kind=ConfigMap): .dta: field not declared in schema"),
        "{}",
        typo.stderr
    );
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn definitions_and_their_resources_are_applied_too() {
    let kubectl = kubectl_in("server-side-custom");
    let definition = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.apply.example.com}
spec:
  group: apply.example.com
  scope: Namespaced
  names: {plural: gadgets, kind: Gadget}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              ports:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [port]
                items: {type: object, required: [port], properties: {port: {type: integer}, name: {type: string}}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
";
    apply(&kubectl, &[], definition).succeeded();
    kubectl.says(&["wait", "--for=condition=Established", "crd/gadgets.apply.example.com", "--timeout=30s"]);
    let gadget = |ports: &str| {
        format!(
            "{{apiVersion: apply.example.com/v1, kind: Gadget, metadata: {{name: g}}, spec: {{ports: [{ports}]}}}}"
        )
    };
    apply(&kubectl, &["--field-manager=a"], &gadget("{port: 1, name: x}")).succeeded();
    apply(&kubectl, &["--field-manager=b"], &gadget("{port: 2}")).succeeded();
    let ports = |kubectl: &Kubectl| kubectl.json(&["get", "gadget", "g"])["spec"]["ports"].clone();
    assert_eq!(ports(&kubectl), json!([{"port": 1, "name": "x"}, {"port": 2}]));
    let status =
        "{apiVersion: apply.example.com/v1, kind: Gadget, metadata: {name: g}, status: {ready: true}}";
    apply(&kubectl, &["--subresource=status", "--field-manager=agent"], status).succeeded();
    assert_eq!(kubectl.json(&["get", "gadget", "g"])["status"], json!({"ready": true}));
    apply(
        &kubectl,
        &["--field-manager=a"],
        "{apiVersion: apply.example.com/v1, kind: Gadget, metadata: {name: g}}",
    )
    .succeeded();
    assert_eq!(ports(&kubectl), json!([{"port": 2}]));
    kubectl.says(&["delete", "crd", "gadgets.apply.example.com"]);
}
