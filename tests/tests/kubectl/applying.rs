//! Applying: once, again, with changes; comparing, trying out, and asking what fields mean.

use serde_json::{Value, json};

use crate::kubectl_in;

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn what_a_second_apply_leaves_out_vanishes_and_what_others_added_stays() {
    let kubectl = kubectl_in("applying-twice");
    let first = "
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {keep: me, drop: me}}
data: {host: a, port: '80', debug: 'on'}
";
    assert_eq!(kubectl.apply(first), "configmap/settings created\n");
    let made = kubectl.json(&["get", "cm", "settings"]);
    assert_eq!(kubectl.apply(first), "configmap/settings unchanged\n");
    assert_eq!(kubectl.json(&["get", "cm", "settings"]), made);

    kubectl.says(&["patch", "cm", "settings", "-p", r#"{"data":{"added":"by another"}}"#]);
    let second = "
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {keep: me}}
data: {host: b, port: '80'}
";
    assert_eq!(kubectl.apply(second), "configmap/settings configured\n");
    let now = kubectl.json(&["get", "cm", "settings"]);
    assert_eq!(now["data"], json!({"host": "b", "port": "80", "added": "by another"}));
    assert_eq!(now["metadata"]["labels"], json!({"keep": "me"}));
    assert_eq!(now["metadata"]["uid"], made["metadata"]["uid"]);
    assert_ne!(now["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn lists_that_merge_by_key_merge_by_key() {
    let kubectl = kubectl_in("applying-lists");
    let account = |secrets: &str| {
        format!("{{apiVersion: v1, kind: ServiceAccount, metadata: {{name: keeper}}, secrets: [{secrets}]}}")
    };
    kubectl.apply(&account("{name: one}, {name: two}"));
    kubectl.says(&["patch", "sa", "keeper", "-p", r#"{"secrets":[{"name":"another's"}]}"#]);
    kubectl.apply(&account("{name: two}, {name: three}"));
    let mut names = kubectl.says(&["get", "sa", "keeper", "-o", "jsonpath={.secrets[*].name}"]);
    let mut sorted: Vec<_> = std::mem::take(&mut names).split(' ').map(str::to_owned).collect();
    sorted.sort();
    assert_eq!(sorted, ["another's", "three", "two"]);
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn several_kinds_in_one_file_are_applied_in_order() {
    let kubectl = kubectl_in("applying-several");
    let said = kubectl.apply(
        "
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Secret, metadata: {name: key}, stringData: {password: hunter2}}
- {apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: turn}, spec: {holderIdentity: me, leaseDurationSeconds: 15}}
- apiVersion: rbac.authorization.k8s.io/v1
  kind: Role
  metadata: {name: reader}
  rules: [{apiGroups: [''], resources: [configmaps], verbs: [get]}]
",
    );
    assert_eq!(
        said,
        "secret/key created\nlease.coordination.k8s.io/turn created\nrole.rbac.authorization.k8s.io/reader created\n"
    );
    let secret = kubectl.json(&["get", "secret", "key"]);
    assert_eq!(secret["data"], json!({"password": "aHVudGVyMg=="}));
    assert_eq!((&secret["type"], &secret["stringData"]), (&"Opaque".into(), &Value::Null));
    assert_eq!(kubectl.says(&["get", "lease", "turn", "-o", "jsonpath={.spec.holderIdentity}"]), "me");
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn a_diff_shows_what_would_change_and_changes_nothing() {
    let kubectl = kubectl_in("applying-diff");
    let manifest = |colour: &str| {
        format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: wall}}, data: {{colour: {colour}, size: big}}}}"
        )
    };
    kubectl.apply(&manifest("red"));
    let before = kubectl.json(&["get", "cm", "wall"]);
    assert_eq!(kubectl.run_with_input(&["diff", "-f", "-"], &manifest("red")).succeeded().stdout, "");

    let ended = kubectl.run_with_input(&["diff", "-f", "-"], &manifest("blue"));
    assert_eq!(ended.code, 1, "{ended:?}");
    let changed: Vec<_> = ended.stdout.lines().filter(|line| line.contains("colour:")).collect();
    assert_eq!(changed, ["-  colour: red", "+  colour: blue"]);
    assert_eq!(kubectl.json(&["get", "cm", "wall"]), before);

    let other = manifest("green").replace("name: wall", "name: fence");
    let ended = kubectl.run_with_input(&["diff", "-f", "-"], &other);
    assert!(ended.code == 1 && ended.stdout.contains("+  colour: green"), "{ended:?}");
    assert!(kubectl.complains(&["get", "cm", "fence"]).contains("NotFound"));
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn a_dry_run_is_judged_in_full_and_leaves_no_trace() {
    let kubectl = kubectl_in("applying-dry-run");
    let create = ["create", "configmap", "ghost", "--from-literal=a=1", "--dry-run=server"];
    assert_eq!(kubectl.says(&create), "configmap/ghost created (server dry run)\n");
    let imagined = kubectl.json(&create);
    assert_eq!(imagined["data"], json!({"a": "1"}));
    assert!(imagined["metadata"]["uid"].is_string() && imagined["metadata"]["creationTimestamp"].is_string());
    assert!(kubectl.complains(&["get", "cm", "ghost"]).contains("NotFound"));

    kubectl.says(&["create", "configmap", "real", "--from-literal=a=1"]);
    let why = kubectl.complains(&["create", "configmap", "real", "--dry-run=server"]);
    assert_eq!(why, "error: failed to create configmap: configmaps \"real\" already exists\n");
    let why = kubectl.complains(&["create", "configmap", "Not_A_Name", "--dry-run=server"]);
    assert!(why.contains("a lowercase RFC 1123 subdomain must consist of"), "{why}");

    let before = kubectl.json(&["get", "cm", "real"]);
    kubectl.says(&["patch", "cm", "real", "-p", r#"{"data":{"a":"2"}}"#, "--dry-run=server"]);
    kubectl.says(&["delete", "cm", "real", "--dry-run=server"]);
    kubectl.says(&["label", "cm", "real", "x=y", "--dry-run=server"]);
    assert_eq!(kubectl.json(&["get", "cm", "real"]), before);
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn a_field_that_does_not_exist_is_named_and_nothing_is_made() {
    let kubectl = kubectl_in("applying-unknown");
    let manifest = "{apiVersion: v1, kind: ConfigMap, metadata: {name: typo, lables: {a: b}}, dta: {a: b}}";
    let ended = kubectl.run_with_input(&["apply", "-f", "-"], manifest);
    assert_ne!(ended.code, 0);
    assert!(
        ended.stderr.contains("(BadRequest)")
            && ended.stderr.contains(
                "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: \
                 unknown field \"dta\", unknown field \"metadata.lables\""
            ),
        "{}",
        ended.stderr
    );
    assert!(kubectl.complains(&["get", "cm", "typo"]).contains("NotFound"));

    let warned = kubectl.run_with_input(&["apply", "--validate=warn", "-f", "-"], manifest).succeeded();
    assert!(warned.stderr.contains("Warning: unknown field \"dta\""), "{}", warned.stderr);
    let made = kubectl.json(&["get", "cm", "typo"]);
    assert_eq!((&made["dta"], &made["metadata"]["lables"]), (&Value::Null, &Value::Null));
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn fields_are_explained_all_the_way_down() {
    let kubectl = kubectl_in("applying-explain");
    let text = kubectl.says(&["explain", "configmaps", "--recursive"]);
    assert!(text.starts_with("KIND:       ConfigMap\nVERSION:    v1\n"), "{text}");
    for wanted in [
        "  binaryData\t<map[string]string>",
        "  metadata\t<ObjectMeta>",
        "    ownerReferences\t<[]OwnerReference>",
    ] {
        assert!(text.lines().any(|line| line == wanted), "{wanted:?} is not in\n{text}");
    }
    // Three levels down, and marked.
    assert!(text.contains("      apiVersion\t<string> -required-"), "{text}");
    let field = kubectl.says(&["explain", "clusterrole.rules.verbs"]);
    assert!(field.contains("GROUP:      rbac.authorization.k8s.io\n"), "{field}");
    assert!(field.contains("FIELD: verbs <[]string>"), "{field}");
    let why = kubectl.complains(&["explain", "configmap.nothing"]);
    assert_eq!(why, "error: field \"nothing\" does not exist\n");
}
