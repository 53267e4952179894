//! Completion in a real shell, with names from the cluster.

use std::process::Command;

use sheaf_tests::node;

use crate::person::{Person, shared};

/// What bash offers at the end of this line.
fn offered(person: &Person, line: &str) -> Vec<String> {
    let folder = node::binary().parent().unwrap().display().to_string();
    let words: Vec<&str> = line.split(' ').collect();
    let script = format!(
        "PATH={folder}:$PATH; source <(sheaf completions bash); COMP_WORDS=({}); COMP_CWORD={}; COMP_LINE='{line}'; \
         COMP_POINT=${{#COMP_LINE}}; COMP_TYPE=9; _clap_complete_sheaf sheaf \"${{COMP_WORDS[COMP_CWORD]}}\"; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" "),
        words.len() - 1
    );
    let output = Command::new("bash")
        .args(["-c", &script])
        .env("HOME", person.home.path())
        .env("KUBECONFIG", shared().admin_kubeconfig())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
}

#[test]
fn verbs_flags_kinds_and_names_of_the_cluster_are_completed() {
    let anna = Person::in_namespace("cli-complete");
    anna.says(&["volume", "create", "books", "--size", "1Gi"]);
    anna.says(&["volume", "create", "bread", "--size", "1Gi"]);
    assert_eq!(offered(&anna, "sheaf vol"), ["volume"]);
    assert!(offered(&anna, "sheaf vm st").contains(&"start".to_owned()));
    assert_eq!(offered(&anna, "sheaf vm create --firm"), ["--firmware"]);
    assert_eq!(offered(&anna, "sheaf volume show -n cli-complete b"), ["books", "bread"]);
    assert_eq!(offered(&anna, "sheaf volume show --namespace=cli-complete bo"), ["books"]);
    assert_eq!(offered(&anna, "sheaf get persistentvolumec"), ["persistentvolumeclaims"]);
    assert_eq!(offered(&anna, "sheaf vm list -n cli-comp"), ["cli-complete"]);
    // Where the words before it say of what the name is.
    assert_eq!(offered(&anna, "sheaf volume delete -n cli-complete br"), ["bread"]);
    assert_eq!(offered(&anna, "sheaf get -n cli-complete pvc b"), ["books", "bread"]);
    assert_eq!(offered(&anna, "sheaf delete pvc -n cli-complete bo"), ["books"]);
    assert_eq!(offered(&anna, "sheaf user grant adm"), ["admin"]);
    assert_eq!(offered(&anna, "sheaf user grant admin cluster-a"), ["cluster-admin"]);
}
