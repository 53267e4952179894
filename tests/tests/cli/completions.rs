//! Completion in real shells, with names from the cluster.

use std::{path::Path, process::Command};

use sheaf_tests::{node, terminal::Terminal};

use crate::person::{Person, shared};

/// Where the binary is found as `sheaf`.
fn folder() -> String {
    node::binary().parent().unwrap().display().to_string()
}

/// What bash offers at the end of this line.
fn offered(person: &Person, line: &str) -> Vec<String> {
    let folder = folder();
    let words: Vec<&str> = line.split(' ').collect();
    let script = format!(
        "PATH={folder}:$PATH; source <(sheaf completions bash); COMP_WORDS=({}); COMP_CWORD={}; COMP_LINE='{line}'; \
         COMP_POINT=${{#COMP_LINE}}; COMP_TYPE=9; _clap_complete_sheaf sheaf \"${{COMP_WORDS[COMP_CWORD]}}\"; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" "),
        words.len() - 1
    );
    printed_by("bash", person, &script)
}

/// The same of fish, which says by itself what it would offer, and what is said of each.
fn offered_by_fish(person: &Person, line: &str) -> Vec<String> {
    let script =
        format!("set -p PATH {}; sheaf completions fish | source; complete --do-complete '{line}'", folder());
    let offered = printed_by("fish", person, &script);
    offered.iter().map(|one| one.split('\t').next().unwrap_or_default().to_owned()).collect()
}

fn printed_by(shell: &str, person: &Person, script: &str) -> Vec<String> {
    let output = Command::new(shell)
        .args(["-c", script])
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

#[test]
fn fish_completes_names_of_the_cluster() {
    let anna = Person::in_namespace("cli-fish");
    anna.says(&["volume", "create", "books", "--size", "1Gi"]);
    anna.says(&["volume", "create", "bread", "--size", "1Gi"]);
    assert_eq!(offered_by_fish(&anna, "sheaf vol"), ["volume"]);
    assert_eq!(offered_by_fish(&anna, "sheaf volume show -n cli-fish b"), ["books", "bread"]);
}

/// Zsh completes at its own prompt only.
#[test]
fn zsh_completes_names_of_the_cluster() {
    let anna = Person::in_namespace("cli-zsh");
    anna.says(&["volume", "create", "books", "--size", "1Gi"]);
    let mut terminal = Terminal::open();
    terminal.is_so_wide(120);
    let home = format!("HOME={}", anna.home.path().display());
    let kubeconfig = format!("KUBECONFIG={}", shared().admin_kubeconfig().display());
    let path = format!("PATH={}:{}", folder(), std::env::var("PATH").unwrap());
    let words = ["TERM=dumb", &home, &kubeconfig, &path, "zsh", "--no-rcs"];
    let mut child = terminal.run(Path::new("/usr/bin/env"), &words);
    terminal.types(b"autoload -U compinit; compinit -u; source <(sheaf completions zsh); echo re''ady\n");
    terminal.shows("ready");
    terminal.types(b"sheaf volume show -n cli-zsh b\t");
    terminal.shows("ooks ");
    terminal.types(b"\x15exit\n");
    assert!(child.wait().unwrap().success());
}
