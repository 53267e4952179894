//! The real virtctl, as a person at a terminal has it.
//!
//! It has no terminal here, only pipes: its console then works as it does in a script, and bytes go through as they
//! are typed.

use std::time::Duration;

use crate::{
    node::Node,
    program::{Conversation, Ended, Following, Program},
};

/// What virtctl's console takes for "enough": Ctrl and ].
const ESCAPE: &str = "\u{1d}";

/// virtctl with a kubeconfig.
#[derive(Clone)]
pub struct Virtctl(Program);

impl Virtctl {
    /// As the node's administrator. Answers of discovery are cached per `home`, as they are per person.
    pub fn admin(node: &Node, home: &str) -> Virtctl {
        Virtctl(Program::of_admin("virtctl", "SHEAF_VIRTCTL", node, home))
    }

    /// The same with these flags on every call.
    pub fn with(&self, flags: &[&str]) -> Virtctl {
        Virtctl(self.0.with(flags))
    }

    /// A file with these contents in its home, such as a key.
    pub fn file(&self, name: &str, contents: &str) -> String {
        self.0.file(name, contents)
    }

    /// Runs to the end, whatever that is.
    pub fn run(&self, args: &[&str]) -> Ended {
        self.0.run(args)
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

    /// Starts it and answers its lines as they come, as of `vnc --proxy-only`.
    pub fn follow(&self, args: &[&str]) -> Following {
        self.0.follow(args)
    }

    /// Starts it with its input and output open, as of `port-forward --stdio`.
    pub fn converse(&self, args: &[&str]) -> Conversation {
        self.0.converse(args)
    }

    /// The serial console of a machine, once virtctl says it is connected.
    #[track_caller]
    pub fn console(&self, machine: &str) -> Console {
        let mut conversation = self.converse(&["console", machine]);
        conversation.hears("Successfully connected to");
        conversation.hears("\n");
        Console(conversation)
    }
}

/// A serial console that virtctl holds open. Dropping it is pulling the plug; [`leave`](Console::leave) is leaving.
pub struct Console(Conversation);

impl Console {
    #[track_caller]
    pub fn types(&mut self, text: &str) {
        self.0.types(text);
    }

    #[track_caller]
    pub fn hears(&mut self, text: &str) -> String {
        self.0.hears(text)
    }

    #[track_caller]
    pub fn hears_within(&mut self, text: &str, patience: Duration) -> String {
        self.0.hears_within(text, patience)
    }

    /// Leaves as a person does, which virtctl must take for a good end.
    #[track_caller]
    pub fn leave(mut self) {
        self.0.types(ESCAPE);
        let (code, rest) = self.0.hangs_up();
        assert_eq!(code, 0, "virtctl ends with {code} and {rest}");
    }
}
