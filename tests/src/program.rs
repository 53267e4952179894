//! A client that is a program of somebody else's, run as a person at a terminal runs it: with a home, a
//! kubeconfig and nothing else of this process's environment.

use std::{
    collections::BTreeMap,
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    path::PathBuf,
    process::{Child, ChildStdin, Command, Output, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{patience::TOO_LONG, server::Server};

/// A program, whose it is, and what is said on every call.
#[derive(Clone)]
pub struct Program {
    name: &'static str,
    path: PathBuf,
    home: PathBuf,
    kubeconfig: PathBuf,
    flags: Vec<String>,
    environment: BTreeMap<&'static str, String>,
    patience: Duration,
}

impl Program {
    /// The program called `name` that `variable` has the path of, as the server's administrator uses it. What it
    /// remembers, it remembers per `home`, as it does per person.
    pub fn of_admin(name: &'static str, variable: &str, server: &impl Server, home: &str) -> Program {
        let path = env::var_os(variable).unwrap_or_else(|| panic!("{variable} names the real {name}"));
        let home = server.scratch().join(home);
        fs::create_dir_all(&home).unwrap();
        Program {
            name,
            path: path.into(),
            home,
            kubeconfig: server.admin_kubeconfig(),
            flags: Vec::new(),
            environment: BTreeMap::new(),
            patience: TOO_LONG,
        }
    }

    /// The same, and it may take so long.
    pub fn within(&self, patience: Duration) -> Program {
        Program { patience, ..self.clone() }
    }

    /// The same with these flags on every call.
    pub fn with(&self, flags: &[&str]) -> Program {
        let mut with = self.clone();
        with.flags.extend(flags.iter().map(|flag| (*flag).to_owned()));
        with
    }

    /// The same with one more variable in its environment.
    pub fn with_variable(&self, name: &'static str, value: &str) -> Program {
        let mut with = self.clone();
        with.environment.insert(name, value.to_owned());
        with
    }

    /// The same with another kubeconfig.
    pub fn with_kubeconfig(&self, name: &str, kubeconfig: &Value) -> Program {
        let path = self.home.join(name);
        fs::write(&path, kubeconfig.to_string()).unwrap();
        Program { kubeconfig: path, ..self.clone() }
    }

    pub fn kubeconfig(&self) -> Value {
        serde_yaml_ng::from_str(&fs::read_to_string(&self.kubeconfig).unwrap()).unwrap()
    }

    /// A file with these contents in its home.
    pub fn file(&self, name: &str, contents: &str) -> String {
        let path = self.home.join(name);
        fs::write(&path, contents).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Some of what such programs do waits forever for what may never come.
    fn bounded(&self, args: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.arg(self.patience.as_secs().to_string()).arg(&self.path);
        self.complete(command, args)
    }

    fn complete(&self, mut command: Command, args: &[&str]) -> Command {
        command
            .args(&self.flags)
            .args(args)
            .env_clear()
            .env("PATH", env::var_os("PATH").unwrap_or_default())
            .env("HOME", &self.home)
            .env("KUBECONFIG", &self.kubeconfig)
            .envs(&self.environment);
        command
    }

    /// Runs to the end, whatever that is.
    pub fn run(&self, args: &[&str]) -> Ended {
        Ended::new(self.name, args, &self.bounded(args).stdin(Stdio::null()).output().unwrap())
    }

    /// Runs with `input` on standard input.
    pub fn run_with_input(&self, args: &[&str], input: &str) -> Ended {
        let mut command = self.bounded(args);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        Ended::new(self.name, args, &child.wait_with_output().unwrap())
    }

    /// What it prints when all goes well, which it must.
    #[track_caller]
    pub fn says(&self, args: &[&str]) -> String {
        self.run(args).succeeded().stdout
    }

    /// What it complains about when it fails, which it must.
    #[track_caller]
    pub fn complains(&self, args: &[&str]) -> String {
        let ended = self.run(args);
        assert_ne!(ended.code, 0, "{} {args:?} should fail, and says {}", self.name, ended.stdout);
        ended.stderr
    }

    /// Starts it and answers its lines as they come.
    pub fn follow(&self, args: &[&str]) -> Following {
        let mut child = self
            .complete(Command::new(&self.path), args)
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
        Following { name: self.name, child, lines }
    }

    /// Starts it and keeps all its ends open, to type and to read.
    pub fn converse(&self, args: &[&str]) -> Conversation {
        let mut child = self
            .complete(Command::new(&self.path), args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (send, heard) = channel();
        pass_on(child.stdout.take().unwrap(), send.clone());
        pass_on(child.stderr.take().unwrap(), send);
        let stdin = child.stdin.take();
        Conversation { name: self.name, child, stdin, heard, unread: Vec::new() }
    }
}

/// Both ends of what it says go into one channel, as they go onto one screen.
fn pass_on(mut from: impl Read + Send + 'static, to: Sender<Vec<u8>>) {
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(number @ 1..) = from.read(&mut bytes) {
            if to.send(bytes[..number].to_vec()).is_err() {
                return;
            }
        }
    });
}

/// How a run went.
#[derive(Debug)]
pub struct Ended {
    name: &'static str,
    args: Vec<String>,
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    fn new(name: &'static str, args: &[&str], output: &Output) -> Ended {
        Ended {
            name,
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout.clone()).unwrap(),
            stderr: String::from_utf8(output.stderr.clone()).unwrap(),
        }
    }

    #[track_caller]
    pub fn succeeded(self) -> Ended {
        assert_eq!(self.code, 0, "{} {:?} says {}{}", self.name, self.args, self.stdout, self.stderr);
        self
    }
}

/// A program that goes on until it is dropped.
pub struct Following {
    name: &'static str,
    child: Child,
    lines: Receiver<String>,
}

impl Following {
    #[track_caller]
    pub fn line(&self) -> String {
        self.lines.recv_timeout(TOO_LONG).unwrap_or_else(|_| panic!("{} has more to say", self.name))
    }

    /// Whether nothing is said for a while.
    pub fn is_silent(&self) -> bool {
        self.lines.recv_timeout(Duration::from_millis(300)).is_err()
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// A program that is typed to and listened to, until it ends or is dropped.
pub struct Conversation {
    name: &'static str,
    child: Child,
    stdin: Option<ChildStdin>,
    heard: Receiver<Vec<u8>>,
    unread: Vec<u8>,
}

impl Conversation {
    #[track_caller]
    pub fn types(&mut self, text: &str) {
        let stdin = self.stdin.as_mut().expect("nobody hung up");
        stdin.write_all(text.as_bytes()).unwrap();
        stdin.flush().unwrap();
    }

    /// Everything heard up to and with `text`, within the ordinary patience.
    #[track_caller]
    pub fn hears(&mut self, text: &str) -> String {
        self.hears_within(text, TOO_LONG)
    }

    /// The same, for what takes its time, such as the first boot of a guest that is emulated.
    #[track_caller]
    pub fn hears_within(&mut self, text: &str, patience: Duration) -> String {
        let began = Instant::now();
        loop {
            if let Some(at) = self.unread.windows(text.len()).position(|bytes| bytes == text.as_bytes()) {
                let rest = self.unread.split_off(at + text.len());
                let heard = std::mem::replace(&mut self.unread, rest);
                return String::from_utf8_lossy(&heard).into_owned();
            }
            match self.heard.recv_timeout(patience.saturating_sub(began.elapsed())) {
                Ok(bytes) => self.unread.extend(bytes),
                Err(why) => {
                    let how = match why {
                        RecvTimeoutError::Timeout => "has not said",
                        RecvTimeoutError::Disconnected => "ended before it said",
                    };
                    panic!("{} {how} {text:?}, but {}", self.name, String::from_utf8_lossy(&self.unread));
                }
            }
        }
    }

    /// Closes its standard input, waits for it to end, and answers its code and what was not heard yet.
    #[track_caller]
    pub fn hangs_up(mut self) -> (i32, String) {
        self.stdin = None;
        let began = Instant::now();
        let code = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status.code().unwrap_or(-1);
            }
            assert!(began.elapsed() < TOO_LONG, "{} goes on after its input ended", self.name);
            thread::sleep(Duration::from_millis(20));
        };
        let mut rest = std::mem::take(&mut self.unread);
        while let Ok(bytes) = self.heard.recv_timeout(Duration::from_secs(1)) {
            rest.extend(bytes);
        }
        (code, String::from_utf8_lossy(&rest).into_owned())
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

fn end(child: &mut Child) {
    // It may have ended by itself.
    _ = child.kill();
    _ = child.wait();
}
