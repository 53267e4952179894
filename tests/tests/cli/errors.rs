//! What is said when something is wrong: what happened, to what, what to do next, and a code for scripts.

use std::{
    io::{Read, Write},
    net::TcpListener,
    process::Stdio,
};

use crate::person::{Person, ended, shared};

#[test]
fn a_word_that_is_none_suggests_the_nearest() {
    let anna = Person::in_namespace("cli-words");
    for (words, suggestion) in [
        (&["vm", "strat", "web"][..], "'start'"),
        (&["vmm", "list"], "'vm'"),
        (&["vm", "create", "web", "--imge", "x"], "'--image'"),
        (&["get", "virtualmachin"], "did you mean virtualmachine?"),
    ] {
        let ended = anna.runs(words);
        assert!(ended.code == 2 || ended.code == 3, "{ended:?}");
        assert!(ended.stderr.contains(suggestion), "{words:?}: {ended:?}");
    }
}

#[test]
fn each_kind_of_refusal_has_a_code_of_its_own() {
    let anna = Person::in_namespace("cli-codes");
    let missing = anna.complains(&["vm", "show", "web"], 3);
    assert_eq!(
        missing,
        "sheaf: there is no virtual machine cli-codes/web: there is none in namespace cli-codes; -n names another\n"
    );
    anna.says(&["volume", "create", "twice", "--size", "1Gi"]);
    let twice = anna.complains(&["volume", "create", "twice", "--size", "1Gi"], 5);
    assert!(twice.contains("make the volume cli-codes/twice") && twice.contains("already exists"), "{twice}");
    let refused =
        anna.complains(&["vm", "create", "web", "--volume", "twice", "--label", "a b=c", "--stopped"], 1);
    assert!(refused.starts_with("sheaf: cannot make the virtual machine cli-codes/web: "), "{refused}");
    anna.complains(&["vm", "create", "Web", "--volume", "twice"], 2);
    anna.complains(&["vm", "create", "web", "--memory", "512", "--volume", "twice"], 2);
}

#[test]
fn an_empty_list_of_a_namespace_that_is_mistyped_says_so() {
    Person::in_namespace("cli-library");
    let anna = Person::of(shared(), "cli-libary");
    let wanted = "sheaf: there is no namespace cli-libary: did you mean cli-library?\n";
    for words in [["vm", "list"], ["volume", "list"], ["get", "secrets"]] {
        assert_eq!(anna.complains(&words, 3), wanted, "{words:?}");
        assert_eq!(anna.complains(&[&words[..], &["-o", "json"]].concat(), 3), wanted, "{words:?}");
        assert_eq!(anna.complains(&[&words[..], &["--watch"]].concat(), 3), wanted, "{words:?}");
    }
    let anna = Person::of(shared(), "cli-library");
    assert!(anna.says(&["vm", "list"]).starts_with("there is no virtual machine in namespace cli-library"));
}

#[test]
fn a_server_that_cannot_be_reached_is_named_with_the_reason() {
    let anna = Person::in_namespace("cli-away");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    drop(taken);
    let kubeconfig = anna.home.path().join("config");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{{name: a, cluster: {{server: 'https://127.0.0.1:{port}'}}}}]\n\
         users: [{{name: a, user: {{token: x}}}}]\ncontexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n"
    );
    std::fs::write(&kubeconfig, text).unwrap();
    let away = ended(anna.elsewhere(&["vm", "list"]).env("KUBECONFIG", &kubeconfig));
    assert_eq!(away.code, 6, "{away:?}");
    assert!(away.stderr.contains(&format!("https://127.0.0.1:{port}")), "{away:?}");
    assert!(away.stderr.contains("refused"), "{away:?}");
    let nothing = ended(anna.elsewhere(&["vm", "list"]).env("KUBECONFIG", anna.home.path().join("nothing")));
    assert!(
        nothing.stderr.contains("there is no kubeconfig at") && nothing.stderr.contains("sheaf login"),
        "{nothing:?}"
    );
    let context = ended(anna.elsewhere(&["vm", "list", "--context", "b"]).env("KUBECONFIG", &kubeconfig));
    assert!(context.stderr.contains("there is no context \"b\""), "{context:?}");
}

#[test]
fn whoever_has_read_enough_is_not_complained_at() {
    let anna = Person::in_namespace("cli-head");
    let mut child =
        anna.command(&["get", "--kinds"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Closed before anything was read.
    drop(child.stdout.take());
    let status = child.wait().unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((status.code(), said.as_str()), (Some(0), ""));
    std::io::stderr().flush().unwrap();
}
