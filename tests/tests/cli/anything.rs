//! `get`, `apply`, `delete` and `explain`, on any kind.

use std::fs;

use crate::{golden::is_golden, person::Person};

const TWO: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one, labels: {by: us}}\ndata: {a: b}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: two, labels: {by: us}}\n";

#[test]
fn files_are_applied_printed_and_deleted() {
    let anna = Person::in_namespace("cli-any");
    let file = anna.home.path().join("two.yaml");
    fs::write(&file, TWO).unwrap();
    let file = file.to_str().unwrap();
    let dry = anna.says(&["apply", "-f", file, "--dry-run"]);
    assert_eq!(
        dry,
        "configmap/one made (not really: --dry-run)\nconfigmap/two made (not really: --dry-run)\n"
    );
    assert_eq!(anna.says(&["apply", "-f", file]), "configmap/one made\nconfigmap/two made\n");
    assert_eq!(anna.says(&["apply", "-f", file]), "configmap/one unchanged\nconfigmap/two unchanged\n");
    fs::write(file, TWO.replace("a: b", "a: c")).unwrap();
    assert_eq!(anna.says(&["apply", "-f", file]), "configmap/one changed\nconfigmap/two unchanged\n");
    is_golden("get-configmaps", &anna.says(&["get", "cm", "one", "two"]));
    assert_eq!(
        anna.says(&["get", "configmaps", "-l", "by=us", "-o", "name"]),
        "configmap/one\nconfigmap/two\n"
    );
    assert!(anna.says(&["get", "cm", "one", "-o", "yaml"]).contains("a: c"));
    assert!(anna.says(&["get", "cm", "-A"]).contains("cli-any"));
    let asked = anna.complains(&["delete", "-f", file], 2);
    assert!(asked.contains("ConfigMap cli-any/one, ConfigMap cli-any/two"), "{asked}");
    // One that is not there: nothing is deleted.
    let missing = anna.complains(&["delete", "cm", "one", "tow", "--yes"], 3);
    assert!(missing.contains("did you mean two?"), "{missing}");
    assert_eq!(
        anna.says(&["get", "configmaps", "-l", "by=us", "-o", "name"]),
        "configmap/one\nconfigmap/two\n"
    );
    anna.says(&["delete", "-f", file, "--yes", "--wait"]);
    assert_eq!(anna.says(&["get", "configmaps", "-l", "by=us"]), "there is none\n");
}

#[test]
fn a_file_that_is_half_wrong_changes_nothing() {
    let anna = Person::in_namespace("cli-half");
    for (wrong, why) in [
        ("apiVersion: v1\nkind: Nonsense\nmetadata: {name: x}\n", "no kind Nonsense of v1 is served"),
        ("kind: ConfigMap\n", "says what it is in apiVersion and kind"),
        ("a: [\n", "is not YAML"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ../x}\n", "cannot be part of an address"),
    ] {
        let ended = anna.runs_with_input(&["apply", "-f", "-"], &format!("{TWO}---\n{wrong}"));
        assert_eq!(ended.code, 2, "{ended:?}");
        assert!(ended.stderr.contains(why) && ended.stderr.contains("document 3"), "{ended:?}");
    }
    assert_eq!(anna.says(&["get", "configmaps", "-l", "by=us"]), "there is none\n");
}

#[test]
fn a_field_of_somebody_else_is_not_taken_unasked() {
    let anna = Person::in_namespace("cli-owner");
    let one = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\ndata: {a: mine}\n";
    anna.runs_with_input(&["apply", "-f", "-"], one);
    // Somebody else's, as their own field manager.
    let path = "/api/v1/namespaces/cli-owner/configmaps/one";
    let mut api = crate::person::shared().admin().connect(crate::person::shared());
    api.patch(path, "merge", r#"{"data": {"a": "theirs"}}"#).object();
    let ended = anna.runs_with_input(&["apply", "-f", "-"], one);
    assert_eq!(ended.code, 5, "{ended:?}");
    assert!(ended.stderr.contains("--force"), "{ended:?}");
    let forced = anna.runs_with_input(&["apply", "-f", "-", "--force"], one);
    assert_eq!((forced.code, forced.stdout.as_str()), (0, "configmap/one changed\n"), "{forced:?}");
}

#[test]
fn fields_are_explained_in_the_clusters_own_words() {
    let anna = Person::in_namespace("cli-explain");
    is_golden("explain-configmap", &anna.says(&["explain", "cm"]));
    is_golden("explain-run-strategy", &anna.says(&["explain", "vm.spec.runStrategy"]));
    let why = anna.complains(&["explain", "vm.spec.templat"], 3);
    assert!(why.contains("did you mean template?"), "{why}");
    assert!(anna.says(&["explain", "vm.spec", "--recursive"]).contains("runStrategy <string>"));
}
