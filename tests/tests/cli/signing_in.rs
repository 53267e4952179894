//! `sheaf login` and `sheaf context`, from a computer that has never heard of the cluster.

use std::{
    fs,
    io::Read,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    thread,
};

use sheaf_tests::{
    node::{self, Node},
    terminal::Terminal,
};

use crate::person::{Ended, Person, ended};

struct Newcomer {
    person: Person,
    node: Node,
    password: PathBuf,
}

impl Newcomer {
    fn new() -> Newcomer {
        let node = Node::start();
        let person = Person::of(&node, "default");
        let password = person.home.path().join("password");
        fs::copy(node.data_dir().join("admin-password"), &password).unwrap();
        fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).unwrap();
        Newcomer { person, node, password }
    }

    fn fingerprint(&self) -> String {
        let words = ["kubeconfig", "--fingerprint", "--data-dir", self.node.data_dir().to_str().unwrap()]
            .map(str::to_owned);
        let said = ended(&mut self.person.elsewhere(&words.each_ref().map(String::as_str)));
        said.stdout.trim().to_owned()
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.person.home.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn kubeconfig(&self) -> PathBuf {
        self.person.home.path().join(".kube/config")
    }

    fn runs(&self, words: &[&str]) -> Ended {
        ended(&mut self.person.elsewhere(words))
    }
}

#[test]
fn a_newcomer_signs_in_once_and_works_from_then_on() {
    let new = Newcomer::new();
    let server = new.node.url().to_owned();
    let (fingerprint, password) = (new.fingerprint(), new.password.to_str().unwrap().to_owned());

    // The wrong authority: nothing is sent, nothing is kept.
    let wrong = new.runs(&["login", &server, "--fingerprint", &"0".repeat(64), "--password-file", &password]);
    assert_eq!(wrong.code, 1, "{wrong:?}");
    assert!(wrong.stderr.contains(&fingerprint) && wrong.stderr.contains("nothing was sent"), "{wrong:?}");
    // Nobody to ask.
    let unasked = new.runs(&["login", &server, "--password-file", &password]);
    assert_eq!(unasked.code, 2, "{unasked:?}");
    assert!(unasked.stderr.contains("--fingerprint"), "{unasked:?}");
    let mistyped = new.file("mistyped", "not the password");
    let refused = new.runs(&["login", &server, "--fingerprint", &fingerprint, "--password-file", &mistyped]);
    assert_eq!(refused.code, 4, "{refused:?}");
    assert!(refused.stderr.contains("the name or the password is wrong"), "{refused:?}");
    assert!(!new.kubeconfig().exists());

    // The first login, with a password of one's own from then on.
    let own = new.file("own", "a password of my own");
    let words = [
        "login",
        &server,
        "--fingerprint",
        &fingerprint,
        "--password-file",
        &password,
        "--new-password-file",
        &own,
        "--context",
        "here",
    ];
    let signed = new.runs(&words);
    assert_eq!(signed.code, 0, "{signed:?}");
    assert_eq!(fs::metadata(new.kubeconfig()).unwrap().permissions().mode() & 0o777, 0o600);
    let kept = fs::read_to_string(new.kubeconfig()).unwrap();
    assert!(!kept.contains("a password of my own"), "{kept}");
    assert!(new.runs(&["vm", "list"]).stdout.starts_with("there is no virtual machine"));
    let old = new.runs(&["login", &server, "--fingerprint", &fingerprint, "--password-file", &password]);
    assert_eq!(old.code, 4, "{old:?}");

    // Once it is known whom to trust, nobody is asked again; a second context is beside the first.
    let again =
        new.runs(&["login", &server, "--password-file", &own, "--context", "there", "-n", "kube-system"]);
    assert_eq!(again.code, 0, "{again:?}");
    let list = new.runs(&["context", "list"]);
    assert!(
        list.stdout.contains("*") && list.stdout.contains("there") && list.stdout.contains("kube-system"),
        "{list:?}"
    );
    assert!(new.runs(&["volume", "list"]).stdout.contains("in namespace kube-system"));
    assert!(new.runs(&["volume", "list", "--context", "here"]).stdout.contains("in namespace default"));
    assert_eq!(new.runs(&["context", "use", "here"]).code, 0);
    assert!(new.runs(&["volume", "list"]).stdout.contains("in namespace default"));
    let slip = new.runs(&["context", "use", "hree"]);
    assert_eq!(slip.code, 3, "{slip:?}");
    assert!(slip.stderr.contains("did you mean here?"), "{slip:?}");

    // Several kubeconfigs are read as one, and the first says which context is meant.
    let first = new.file("first", "");
    let several = format!("{first}:{}", new.kubeconfig().display());
    let with_several = |words: &[&str]| ended(new.person.elsewhere(words).env("KUBECONFIG", &several));
    assert!(with_several(&["context", "list"]).stdout.contains("there"));
    assert_eq!(with_several(&["context", "use", "there"]).code, 0);
    assert!(with_several(&["volume", "list"]).stdout.contains("in namespace kube-system"));
    assert!(new.runs(&["volume", "list"]).stdout.contains("in namespace default"));

    // Tokens are made by whom they are for, and end.
    let token = new.runs(&["token", "create", "--description", "a robot", "--ttl", "1h"]);
    assert_eq!((token.code, token.stdout.lines().count()), (0, 1), "{token:?}");
    let tokens = new.runs(&["token", "list"]);
    assert!(tokens.stdout.contains("a robot") && tokens.stdout.contains("this session"), "{tokens:?}");
    assert!(!tokens.stdout.contains(token.stdout.trim()), "a token is told once");
    let line = tokens.stdout.lines().find(|line| line.contains("a robot")).unwrap().to_owned();
    let ended = new.runs(&["token", "delete", line.split(' ').next().unwrap()]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(!new.runs(&["token", "list"]).stdout.contains("a robot"));
    let out = new.runs(&["logout", "--context", "there"]);
    assert_eq!(out.code, 0, "{out:?}");
    let ended = new.runs(&["vm", "list", "--context", "there"]);
    assert_eq!(ended.code, 4, "{ended:?}");
    assert!(ended.stderr.contains("sheaf login"), "{ended:?}");
    assert_eq!(new.runs(&["context", "delete", "there"]).code, 0);
    assert!(!fs::read_to_string(new.kubeconfig()).unwrap().contains("there"));
}

#[test]
fn at_a_terminal_the_fingerprint_is_shown_and_the_password_is_not() {
    let new = Newcomer::new();
    let first = fs::read_to_string(&new.password).unwrap().trim().to_owned();
    let fingerprint = new.fingerprint();
    let mut terminal = Terminal::open();
    let before = terminal.settings();
    let home = format!("HOME={}", new.person.home.path().display());
    let program = node::binary().to_str().unwrap().to_owned();
    let words = ["-u", "KUBECONFIG", &home, &program, "login", new.node.url()];
    let mut child = terminal.run(Path::new("/usr/bin/env"), &words);
    terminal.shows(&fingerprint);
    terminal.shows("Go on? [y/N] ");
    terminal.types(b"y\n");
    terminal.shows("Password of admin");
    terminal.types(format!("{first}\n").as_bytes());
    terminal.shows("New password: ");
    terminal.types(b"chosen at a terminal\n");
    terminal.shows("once more: ");
    terminal.types(b"chosen at a terminal\n");
    terminal.shows("signed in at");
    assert!(child.wait().unwrap().success());
    assert_eq!(terminal.settings(), before, "the terminal is as it was");
    let shown = terminal.everything();
    assert!(!shown.contains(&first) && !shown.contains("chosen at a terminal"), "{shown}");
}

/// Not a word is said to somebody who is not known: the handshake is broken off before anything of ours is sent.
#[test]
fn who_is_no_cluster_hears_nothing() {
    let anna = Person::in_namespace("cli-stranger");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let stranger = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut heard = vec![0; 4096];
        let count = stream.read(&mut heard).unwrap();
        heard.truncate(count);
        heard
    });
    let server = format!("https://127.0.0.1:{port}");
    let ended = ended(&mut anna.elsewhere(&[
        "login",
        &server,
        "--user",
        "somebody-secret",
        "--fingerprint",
        &"0".repeat(64),
    ]));
    assert_eq!(ended.code, 6, "{ended:?}");
    let heard = String::from_utf8_lossy(&stranger.join().unwrap()).into_owned();
    assert!(!heard.contains("somebody-secret") && !heard.contains("POST"), "{heard}");
}
