//! The real kubectl, as a person at a terminal has it.

use std::{
    env, fs,
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use serde_json::Value;

use crate::{node::Node, patience::TOO_LONG};

/// kubectl with a kubeconfig and a default namespace.
#[derive(Clone)]
pub struct Kubectl {
    program: PathBuf,
    home: PathBuf,
    kubeconfig: PathBuf,
    more: Vec<String>,
    editor: Option<String>,
}

impl Kubectl {
    /// As the node's administrator. Answers of discovery are cached per `home`, as they are per person.
    pub fn admin(node: &Node, home: &str) -> Kubectl {
        let program = env::var_os("SHEAF_KUBECTL").expect("SHEAF_KUBECTL names the real kubectl");
        let home = node.scratch().join(home);
        fs::create_dir_all(&home).unwrap();
        Kubectl {
            program: program.into(),
            home,
            kubeconfig: node.admin_kubeconfig(),
            more: Vec::new(),
            editor: None,
        }
    }

    /// The same with these flags on every call.
    pub fn with(&self, flags: &[&str]) -> Kubectl {
        let mut with = self.clone();
        with.more.extend(flags.iter().map(|flag| (*flag).to_owned()));
        with
    }

    /// The same for a person whose editor is this command.
    pub fn editing_with(&self, editor: &str) -> Kubectl {
        Kubectl { editor: Some(editor.to_owned()), ..self.clone() }
    }

    /// The same with another kubeconfig.
    pub fn with_kubeconfig(&self, name: &str, kubeconfig: &Value) -> Kubectl {
        let path = self.home.join(name);
        fs::write(&path, kubeconfig.to_string()).unwrap();
        Kubectl { kubeconfig: path, ..self.clone() }
    }

    pub fn kubeconfig(&self) -> Value {
        serde_yaml_ng::from_str(&fs::read_to_string(&self.kubeconfig).unwrap()).unwrap()
    }

    /// A file with these contents, for `-f`.
    pub fn file(&self, name: &str, contents: &str) -> String {
        let path = self.home.join(name);
        fs::write(&path, contents).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Some of what it does waits forever for what may never come.
    fn bounded(&self, args: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.arg(TOO_LONG.as_secs().to_string()).arg(&self.program);
        self.complete(command, args)
    }

    fn complete(&self, mut command: Command, args: &[&str]) -> Command {
        command
            .args(&self.more)
            .args(args)
            .env_clear()
            .env("PATH", env::var_os("PATH").unwrap_or_default())
            .env("HOME", &self.home)
            .env("KUBECONFIG", &self.kubeconfig)
            .envs(self.editor.as_ref().map(|editor| ("KUBE_EDITOR", editor)));
        command
    }

    /// Runs to the end, whatever that is.
    pub fn run(&self, args: &[&str]) -> Ended {
        Ended::new(args, &self.bounded(args).stdin(Stdio::null()).output().unwrap())
    }

    /// Runs with `input` on standard input.
    pub fn run_with_input(&self, args: &[&str], input: &str) -> Ended {
        let mut command = self.bounded(args);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        Ended::new(args, &child.wait_with_output().unwrap())
    }

    /// What it prints when all goes well, which it must.
    pub fn says(&self, args: &[&str]) -> String {
        self.run(args).succeeded().stdout
    }

    /// What it complains about when it fails, which it must.
    pub fn complains(&self, args: &[&str]) -> String {
        let ended = self.run(args);
        assert_ne!(ended.code, 0, "kubectl {args:?} should fail, and says {}", ended.stdout);
        ended.stderr
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
        let mut child = self
            .complete(Command::new(&self.program), args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (send, lines) = channel();
        let stdout = child.stdout.take().unwrap();
        thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| send.send(line))
        });
        Following { child, lines }
    }
}

/// How a run of kubectl went.
#[derive(Debug)]
pub struct Ended {
    args: Vec<String>,
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    fn new(args: &[&str], output: &Output) -> Ended {
        Ended {
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout.clone()).unwrap(),
            stderr: String::from_utf8(output.stderr.clone()).unwrap(),
        }
    }

    #[track_caller]
    pub fn succeeded(self) -> Ended {
        assert_eq!(self.code, 0, "kubectl {:?} says {}{}", self.args, self.stdout, self.stderr);
        self
    }
}

/// A kubectl that goes on until it is dropped.
pub struct Following {
    child: Child,
    lines: Receiver<String>,
}

impl Following {
    #[track_caller]
    pub fn line(&self) -> String {
        self.lines.recv_timeout(TOO_LONG).expect("kubectl has more to say")
    }

    /// Whether nothing is said for a while.
    pub fn is_silent(&self) -> bool {
        self.lines.recv_timeout(Duration::from_millis(300)).is_err()
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        // It may have ended by itself.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
