//! The real kubectl, as a person at a terminal has it.

use serde_json::Value;

use crate::{
    node::Node,
    program::{Ended, Following, Program},
};

/// kubectl with a kubeconfig and a default namespace.
#[derive(Clone)]
pub struct Kubectl(Program);

impl Kubectl {
    /// As the node's administrator. Answers of discovery are cached per `home`, as they are per person.
    pub fn admin(node: &Node, home: &str) -> Kubectl {
        Kubectl(Program::of_admin("kubectl", "SHEAF_KUBECTL", node, home))
    }

    /// The same with these flags on every call.
    pub fn with(&self, flags: &[&str]) -> Kubectl {
        Kubectl(self.0.with(flags))
    }

    /// The same for a person whose editor is this command.
    pub fn editing_with(&self, editor: &str) -> Kubectl {
        Kubectl(self.0.with_variable("KUBE_EDITOR", editor))
    }

    /// The same with another kubeconfig.
    pub fn with_kubeconfig(&self, name: &str, kubeconfig: &Value) -> Kubectl {
        Kubectl(self.0.with_kubeconfig(name, kubeconfig))
    }

    pub fn kubeconfig(&self) -> Value {
        self.0.kubeconfig()
    }

    /// A file with these contents, for `-f`.
    pub fn file(&self, name: &str, contents: &str) -> String {
        self.0.file(name, contents)
    }

    /// Runs to the end, whatever that is.
    pub fn run(&self, args: &[&str]) -> Ended {
        self.0.run(args)
    }

    /// Runs with `input` on standard input.
    pub fn run_with_input(&self, args: &[&str], input: &str) -> Ended {
        self.0.run_with_input(args, input)
    }

    /// What it prints when all goes well, which it must.
    #[track_caller]
    pub fn says(&self, args: &[&str]) -> String {
        self.0.says(args)
    }

    /// What it complains about when it fails, which it must.
    #[track_caller]
    pub fn complains(&self, args: &[&str]) -> String {
        self.0.complains(args)
    }

    /// What it prints with `-o json`.
    pub fn json(&self, args: &[&str]) -> Value {
        let text = self.says(&[args, &["-o", "json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|why| panic!("{why}: {text}"))
    }

    /// Applies `manifest` and answers what kubectl says.
    pub fn apply(&self, manifest: &str) -> String {
        self.run_with_input(&["apply", "-f", "-"], manifest).succeeded().stdout
    }

    /// Starts it and answers its lines as they come.
    pub fn follow(&self, args: &[&str]) -> Following {
        self.0.follow(args)
    }
}
