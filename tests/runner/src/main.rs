//! Runs the tests of the workspace: several executables side by side, with a report of where the time went.
//!
//! ```text
//! sheaf-test-runner [--quick | --soak [--for 2h]] [--release] [--reports DIR] [--stage NAME=SECONDS]... [NAME...]
//! ```
//!
//! Which executables run side by side is in `plan.toml`. The tests of one executable share its process, and so the nodes and
//! guests that they share. Nothing is run a second time: a test that fails has failed.

#![allow(clippy::print_stdout, reason = "this is a command line program")]

mod board;
mod coverage;
mod isolation;
mod job;
mod load;
mod plan;
mod preparation;
mod report;
mod slots;

use std::{
    env,
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use board::Board;
use coverage::Coverage;
use isolation::Isolation;
use job::{Context, JobResult};
use plan::{Plan, Scope};
use report::{Counts, Stage};

/// A test that takes longer than this must be on the list of slow tests, with a reason.
const SLOW: Duration = Duration::from_secs(60);

struct Arguments {
    scope: Scope,
    is_release: bool,
    /// Begin another round of the long tests until this time has passed.
    soak_for: Duration,
    reports: Option<PathBuf>,
    stages: Vec<Stage>,
    only: Vec<String>,
}

fn main() -> ExitCode {
    match parse(env::args().skip(1)).and_then(run) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("sheaf-test-runner: {why}");
            ExitCode::from(2)
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments {
        scope: Scope::All,
        is_release: false,
        soak_for: Duration::ZERO,
        reports: None,
        stages: Vec::new(),
        only: Vec::new(),
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--quick" => arguments.scope = Scope::Quick,
            "--soak" => arguments.scope = Scope::Soak,
            "--for" => arguments.soak_for = coverage::parse_duration(&value()?)?,
            "--release" => arguments.is_release = true,
            "--reports" => arguments.reports = Some(value()?.into()),
            "--stage" => {
                let value = value()?;
                let parts = value.split_once('=').and_then(|(name, secs)| Some((name, secs.parse().ok()?)));
                let (name, secs) = parts.ok_or_else(|| format!("--stage {value} is not NAME=SECONDS"))?;
                arguments.stages.push(Stage { name: name.to_owned(), took: Duration::from_secs(secs) });
            }
            option if option.starts_with('-') => return Err(format!("there is no option {option}")),
            _ => arguments.only.push(word),
        }
    }
    Ok(arguments)
}

/// Answers whether everything passed.
fn run(arguments: Arguments) -> Result<bool, String> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let root = root.canonicalize().map_err(|error| format!("cannot find {}: {error}", root.display()))?;
    let plan = Plan::parse(include_str!("../plan.toml"))?;
    let mut stages = Stages::new(arguments.stages);

    // Clients and guests beside our own crates: cargo seldom keeps all cores busy.
    let clients = plan.clients(arguments.scope, &arguments.only);
    let (executables, clients) = thread::scope(|scope| {
        let clients = scope.spawn(|| {
            preparation::build_guests(&root, plan.guests(arguments.scope));
            preparation::build_clients(&root, clients)
        });
        let executables = plan::executables(&root, arguments.is_release);
        (executables, clients.join().expect("building clients does not panic"))
    });
    let executables = executables?;
    stages.end("build: our crates, clients, guests");

    let isolation = Isolation::detect();
    if isolation == Isolation::None {
        println!("Network namespaces cannot be made here: all tests share the host's network.");
    }
    let every_step = arguments.scope == Scope::Soak;
    let mut context = Context { root, isolation, clients, every_step, round: 0, board: Board::default() };
    let load = load::Load::watch();
    let jobs = plan.jobs(arguments.scope, executables, &arguments.only)?;
    let mut slowdowns = Vec::new();
    let mut covered = Coverage::default();
    let began = Instant::now();
    let results = loop {
        let results = slots::run_all(&plan.slots, jobs.clone(), &context, |result| {
            slowdowns.push((result.job.clone(), load.slowdown_since(result.began)));
            print!("{}", report::job_line(result));
        });
        covered.add(&results);
        context.round = covered.rounds;
        let has_failed = results.iter().any(JobResult::has_failed);
        if has_failed || began.elapsed() >= arguments.soak_for {
            break results;
        }
    };
    stages.end("tests");

    print!("{}", report::times(&stages.0, &results));
    if arguments.scope == Scope::Soak {
        print!("{}", covered.told(began.elapsed()));
    }
    if let Some(directory) = arguments.reports {
        let written = report::write_junit(&directory, &results);
        let path = written.map_err(|error| format!("cannot write to {}: {error}", directory.display()))?;
        println!("\nJUnit XML: {}", path.display());
    }
    let slowdown = |result: &JobResult| {
        slowdowns.iter().find(|(job, _)| *job == result.job).map_or(1.0, |(_, slowdown)| *slowdown)
    };
    let slow = match arguments.scope {
        Scope::All | Scope::Quick => report::too_slow(&results, &plan.slow, SLOW, slowdown),
        Scope::Soak => Vec::new(),
    };
    for test in &slow {
        println!(
            "\n{} took {:.0} s, longer than {} s, and is not on the list of slow tests in tests/runner/plan.toml. \
             Make it faster, or give the reason there.",
            test.name,
            test.took.as_secs_f64(),
            SLOW.as_secs()
        );
    }
    tell_what_was_skipped(&results);
    let counts = Counts::of(&results);
    let failed = counts.failed + slow.len();
    for result in results.iter().filter(|result| result.has_failed()) {
        println!("FAILED: {}", result.job);
    }
    println!("\n{} passed, {failed} failed, {} skipped", counts.passed, counts.ignored);
    Ok(failed == 0)
}

/// The parts of this run with their times.
struct Stages(Vec<Stage>, Instant);

impl Stages {
    fn new(before: Vec<Stage>) -> Stages {
        Stages(before, Instant::now())
    }

    fn end(&mut self, name: &str) {
        let now = Instant::now();
        self.0.push(Stage { name: name.to_owned(), took: now - self.1 });
        self.1 = now;
    }
}

fn tell_what_was_skipped(results: &[JobResult]) {
    let skipped: Vec<_> =
        results.iter().filter_map(|result| Some((&result.job, result.skipped.as_ref()?))).collect();
    if skipped.is_empty() {
        return;
    }
    println!("\n{0}\n##  NOT EVERYTHING WAS TESTED: this cannot be run here", "#".repeat(76));
    for (job, why) in skipped {
        println!("##  {job}: {}", why.lines().last().unwrap_or_default());
    }
    println!("{}", "#".repeat(76));
}
