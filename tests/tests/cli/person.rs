//! Somebody with a keyboard: the binary, a cluster, and a home of their own.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
};

use sheaf_tests::{
    node::{self, Node},
    terminal::Terminal,
};

/// One node for all tests that need no machine to run; each has a namespace of its own.
pub fn shared() -> &'static Node {
    static NODE: OnceLock<Node> = OnceLock::new();
    NODE.get_or_init(Node::start)
}

pub struct Person {
    kubeconfig: PathBuf,
    namespace: String,
    pub home: tempfile::TempDir,
}

/// How a command ended, and what it said.
#[derive(Debug)]
pub struct Ended {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Person {
    /// In a new namespace of the shared node.
    pub fn in_namespace(namespace: &str) -> Person {
        let person = Person::of(shared(), namespace);
        let object = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {namespace}}}\n");
        let ended = person.runs_with_input(&["apply", "-f", "-"], &object);
        assert_eq!(ended.code, 0, "{ended:?}");
        person
    }

    pub fn of(node: &Node, namespace: &str) -> Person {
        let home = tempfile::tempdir().unwrap();
        Person { kubeconfig: node.admin_kubeconfig(), namespace: namespace.to_owned(), home }
    }

    /// The command, with nothing set that would be different elsewhere.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = self.elsewhere(words);
        command.args(["--namespace", &self.namespace]).env("KUBECONFIG", &self.kubeconfig);
        command
    }

    /// The same without a cluster.
    pub fn elsewhere(&self, words: &[&str]) -> Command {
        let mut command = Command::new(node::binary());
        command.args(words).env("HOME", self.home.path()).stdin(Stdio::null());
        for name in ["KUBECONFIG", "NO_COLOR", "EDITOR", "VISUAL", "SHEAF_COMPLETE"] {
            command.env_remove(name);
        }
        command
    }

    /// Begins it at a terminal, with these variables.
    pub fn types_at(&self, terminal: &Terminal, variables: &[&str], words: &[&str]) -> Child {
        let home = format!("HOME={}", self.home.path().display());
        let kubeconfig = format!("KUBECONFIG={}", self.kubeconfig.display());
        let program = node::binary();
        let begins = ["-u", "NO_COLOR", "TERM=xterm", &home, &kubeconfig];
        let all =
            [&begins, variables, &[program.to_str().unwrap()], words, &["--namespace", &self.namespace]]
                .concat();
        terminal.run(Path::new("/usr/bin/env"), &all)
    }

    pub fn runs(&self, words: &[&str]) -> Ended {
        ended(&mut self.command(words))
    }

    pub fn runs_with_input(&self, words: &[&str], input: &str) -> Ended {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, input.as_bytes()).unwrap();
        std::io::Seek::rewind(&mut file).unwrap();
        ended(self.command(words).stdin(file))
    }

    /// What it prints, having done it.
    #[track_caller]
    pub fn says(&self, words: &[&str]) -> String {
        let ended = self.runs(words);
        assert_eq!(ended.code, 0, "{words:?}: {ended:?}");
        ended.stdout
    }

    /// What it complains of, and with which code.
    #[track_caller]
    pub fn complains(&self, words: &[&str], code: i32) -> String {
        let ended = self.runs(words);
        assert_eq!(ended.code, code, "{words:?}: {ended:?}");
        assert!(ended.stdout.is_empty(), "{words:?}: {ended:?}");
        ended.stderr
    }
}

pub fn ended(command: &mut Command) -> Ended {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended {
        code: output.status.code().unwrap_or(-1),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}
