//! Runs one job to its end: a test executable whose events are read as they come, or a command.
//!
//! The events are libtest's own in JSON, which it writes on a stable toolchain only when `RUSTC_BOOTSTRAP` is set for it. They are the
//! one way to learn when a test of a shared process began and how long it took.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    board::Board,
    isolation::Isolation,
    plan::{CommandJob, Executable, Job, Suite, What},
};

/// A job in which no test begins or ends for so long hangs: the longest test takes a third of it.
const STALLED: Duration = Duration::from_secs(15 * 60);

/// How one test ended.
#[derive(Clone, Debug)]
pub struct TestResult {
    pub name: String,
    pub took: Duration,
    pub outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    /// With what it printed.
    Failed(String),
    Ignored,
}

/// How a job ended.
#[derive(Debug)]
pub struct JobResult {
    pub job: String,
    pub began: Instant,
    pub took: Duration,
    pub tests: Vec<TestResult>,
    /// Why it could not be run, or not all of it.
    pub skipped: Option<String>,
    /// What was printed beside the tests' own results, where that is needed to understand a failure.
    pub trouble: Option<String>,
}

impl JobResult {
    pub fn has_failed(&self) -> bool {
        self.trouble.is_some() || self.tests.iter().any(|test| matches!(test.outcome, Outcome::Failed(_)))
    }
}

/// What every job is run with.
#[derive(Debug)]
pub struct Context {
    pub root: PathBuf,
    pub isolation: Isolation,
    /// Where each client was built, or why it was not.
    pub clients: BTreeMap<String, Result<String, String>>,
    /// Tests that interrupt something do so at every single step, and not once for each kind.
    pub every_step: bool,
    /// How often a soak has run everything before.
    pub round: usize,
    pub board: Board,
}

pub fn run(job: &Job, context: &Context) -> JobResult {
    let began = Instant::now();
    let mut result = JobResult {
        job: job.name.clone(),
        began,
        took: Duration::ZERO,
        tests: Vec::new(),
        skipped: None,
        trouble: None,
    };
    match &job.what {
        What::Tests { executable, suite, arguments } => {
            run_tests(executable, suite.as_ref(), arguments, context, &mut result);
        }
        What::Command(command) => {
            context.board.set(&job.name, 0, &BTreeMap::new());
            run_command(command, &context.root, &mut result);
        }
    }
    context.board.remove(&job.name);
    result.took = began.elapsed();
    result
}

fn run_command(command: &CommandJob, root: &Path, result: &mut JobResult) {
    let began = Instant::now();
    let output = Command::new(&command.run[0]).args(&command.run[1..]).current_dir(root).output();
    let outcome = match output {
        Err(error) => Outcome::Failed(format!("cannot run {}: {error}", command.run[0])),
        Ok(output) if output.status.success() => Outcome::Passed,
        Ok(output) => {
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&text).into_owned();
            if command.skipped.is_some() && command.skipped == output.status.code() {
                result.skipped = Some(text);
                Outcome::Ignored
            } else {
                Outcome::Failed(text)
            }
        }
    };
    result.tests.push(TestResult { name: command.run.join(" "), took: began.elapsed(), outcome });
}

fn run_tests(
    executable: &Executable,
    suite: Option<&Suite>,
    arguments: &[String],
    context: &Context,
    result: &mut JobResult,
) {
    let mut command = context.isolation.command(&executable.path);
    let client = suite.and_then(|suite| suite.client.as_ref());
    let built = client.and_then(|client| Some((client, context.clients.get(client)?)));
    let mut arguments = arguments.to_vec();
    match built {
        Some((client, Ok(path))) => {
            let variable = format!("SHEAF_{}", client.replace('-', "_").to_uppercase());
            command.env(variable, path);
        }
        Some((_, Err(why))) => {
            result.skipped = Some(why.clone());
            arguments.retain(|argument| argument != "--include-ignored");
        }
        None => {}
    }
    command
        .args(["-Z", "unstable-options", "--format", "json", "--report-time"])
        .args(arguments)
        .current_dir(&executable.directory)
        .env("RUSTC_BOOTSTRAP", "1")
        // Tests that draw from seeds take others in each round.
        .env("SHEAF_SOAK_ROUND", context.round.to_string())
        .env("CARGO_MANIFEST_DIR", &executable.directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if context.every_step {
        command.env("SHEAF_EVERY_STEP", "1");
    }
    if let Some(threads) = suite.and_then(|suite| suite.threads) {
        command.args(["--test-threads", &threads.to_string()]);
    }
    match command.spawn() {
        Ok(child) => read_events(child, &context.board, result),
        Err(error) => result.trouble = Some(format!("cannot run {}: {error}", executable.path.display())),
    }
}

enum Line {
    Out(String),
    Error(String),
}

fn read_events(mut child: Child, board: &Board, result: &mut JobResult) {
    let (send, lines) = channel();
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let to_out = send.clone();
    // Not joined: a node that a test left behind may hold the other end of a pipe for longer than the tests take.
    thread::spawn(move || {
        let lines = BufReader::new(stdout.into_iter().next()?).lines();
        { lines }.map_while(Result::ok).try_for_each(|line| to_out.send(Line::Out(line)).ok())
    });
    thread::spawn(move || {
        let lines = BufReader::new(stderr.into_iter().next()?).lines();
        { lines }.map_while(Result::ok).try_for_each(|line| send.send(Line::Error(line)).ok())
    });

    let mut running: BTreeMap<String, Instant> = BTreeMap::new();
    let mut other = Vec::new();
    let mut has_summary = false;
    let mut last_event = Instant::now();
    let mut ended = None;
    let status = loop {
        board.set(&result.job, result.tests.len(), &running);
        match lines.recv_timeout(Duration::from_millis(200)) {
            Ok(Line::Out(line)) => match serde_json::from_str::<Value>(&line) {
                Ok(event) if event["type"] == "test" => {
                    last_event = Instant::now();
                    take_event(&event, &mut running, result);
                }
                Ok(event) if event["type"] == "suite" => has_summary |= event["event"] != "started",
                _ => other.push(line),
            },
            Ok(Line::Error(line)) => other.push(line),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                // The last lines of a process that ended may still be on their way, so it is listened to once more.
                if ended.is_some() {
                    break ended;
                }
                ended = child.try_wait().unwrap_or_default();
                if last_event.elapsed() > STALLED {
                    // It may have ended just now.
                    _ = child.kill();
                    _ = child.wait();
                    break None;
                }
            }
        }
    };
    for (name, since) in running {
        let told = match status {
            Some(status) => format!("the test process ended within this test: {status}"),
            None => format!("nothing ended or began for {} s", STALLED.as_secs()),
        };
        let name = format!("{}::{name}", result.job);
        result.tests.push(TestResult { name, took: since.elapsed(), outcome: Outcome::Failed(told) });
    }
    let succeeded = status.is_some_and(|status| status.success());
    if !has_summary || (!succeeded && !result.has_failed()) {
        let last = &other[other.len().saturating_sub(50)..];
        result.trouble = Some(format!("the test process ended with {status:?}\n{}", last.join("\n")));
    }
}

fn take_event(event: &Value, running: &mut BTreeMap<String, Instant>, result: &mut JobResult) {
    let name = event["name"].as_str().unwrap_or_default();
    let outcome = match event["event"].as_str().unwrap_or_default() {
        "started" => {
            running.insert(name.to_owned(), Instant::now());
            return;
        }
        "ok" => Outcome::Passed,
        "ignored" => Outcome::Ignored,
        "failed" => Outcome::Failed(event["stdout"].as_str().unwrap_or_default().to_owned()),
        // A test that takes long is no news here.
        _ => return,
    };
    let began = running.remove(name);
    let measured = event["exec_time"].as_f64().map(Duration::from_secs_f64);
    let took = measured.or_else(|| began.map(|began| began.elapsed())).unwrap_or_default();
    result.tests.push(TestResult { name: format!("{}::{name}", result.job), took, outcome });
}
