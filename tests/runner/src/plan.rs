//! What is run, and in which order: the test executables that cargo built, and the commands of `plan.toml`.
//!
//! An executable that `plan.toml` does not name is an ordinary one: it runs in the slot [`REST`], after those that are named.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde::Deserialize;
use serde_json::Value;

/// The slot of the ordinary executables.
pub const REST: &str = "rest";

/// `plan.toml` as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Plan {
    /// The guests that tests boot, each built by `scripts/build-GUEST`.
    guests: Vec<String>,
    /// Those that only `make soak` boots.
    soak_guests: Vec<String>,
    /// How many jobs of a slot run at the same time.
    pub slots: BTreeMap<String, usize>,
    #[serde(default, rename = "suite")]
    pub suites: Vec<Suite>,
    #[serde(default, rename = "command")]
    pub commands: Vec<CommandJob>,
    /// Tests that may take longer than [`crate::SLOW`].
    #[serde(default, rename = "slow")]
    pub slow: Vec<SlowTest>,
}

/// A test executable that differs from the ordinary in something.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Suite {
    /// `machines`, or `store::conformance` where several packages have a target of that name.
    pub name: String,
    #[serde(default = "rest")]
    pub slot: String,
    /// Tests of it that run at the same time; as many as there are cores if it does not say.
    pub threads: Option<usize>,
    /// The client whose tests these are, built by `scripts/build-CLIENT`. They are ignored without it.
    pub client: Option<String>,
    /// Tests that only `make soak` runs, by a part of their names. Those with `soak` in their names need not be named.
    #[serde(default)]
    pub soak: Vec<String>,
    /// The tests of it that `make soak` runs, too, by a part of their names or `*`: those that interrupt something, which in a
    /// soak they do at every single step.
    #[serde(default)]
    pub every_step: Vec<String>,
    /// The tests of it that `make test-quick` runs, by a part of their names.
    #[serde(default)]
    pub quick: Vec<String>,
}

/// A check that is no test executable.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CommandJob {
    pub name: String,
    #[serde(default = "lint")]
    pub slot: String,
    pub run: Vec<String>,
    /// Run by `make test-quick`, too.
    #[serde(default)]
    pub quick: bool,
    /// The exit code by which it says that it cannot be run here.
    pub skipped: Option<i32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlowTest {
    /// As it is printed: `machines::steps::a_start_survives_...`.
    pub test: String,
    #[allow(dead_code, reason = "for those who read the list; tidy sees that it is there")]
    pub reason: String,
}

fn rest() -> String {
    REST.to_owned()
}

fn lint() -> String {
    "lint".to_owned()
}

/// Which tests are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// What every change must pass.
    All,
    /// What people run while they work.
    Quick,
    /// The long forms alone.
    Soak,
}

/// A test executable as cargo built it.
#[derive(Clone, Debug)]
pub struct Executable {
    /// The package without `sheaf-`, and the target: `store::conformance`, or `store` for the tests beside the code.
    pub name: String,
    pub path: PathBuf,
    /// The package's directory, in which its tests run.
    pub directory: PathBuf,
    /// Tests beside the code, not of a target of their own.
    pub is_unit: bool,
}

/// Something to run in a slot.
#[derive(Clone, Debug)]
pub struct Job {
    pub name: String,
    pub slot: String,
    pub what: What,
}

#[derive(Clone, Debug)]
pub enum What {
    Tests { executable: Executable, suite: Option<Suite>, arguments: Vec<String> },
    Command(CommandJob),
}

impl Plan {
    pub fn parse(text: &str) -> Result<Plan, String> {
        let plan: Plan = toml::from_str(text).map_err(|error| format!("plan.toml: {error}"))?;
        let slots = plan.suites.iter().map(|suite| &suite.slot);
        for slot in slots.chain(plan.commands.iter().map(|command| &command.slot)) {
            if !plan.slots.contains_key(slot) {
                return Err(format!("plan.toml: there is no slot {slot}"));
            }
        }
        Ok(plan)
    }

    /// The guests that tests of a scope boot.
    pub fn guests(&self, scope: Scope) -> impl Iterator<Item = &String> {
        let of_soak = self.soak_guests.iter().filter(move |_| scope == Scope::Soak);
        self.guests.iter().chain(of_soak)
    }

    /// The clients whose tests are asked for.
    pub fn clients(&self, scope: Scope, only: &[String]) -> BTreeSet<String> {
        let is_asked_for = |suite: &&Suite| {
            // Only the end-to-end tests have clients.
            is_asked_for(&format!("tests::{}", suite.name), only)
                && match scope {
                    Scope::All => true,
                    Scope::Quick => !suite.quick.is_empty(),
                    Scope::Soak => !suite.soak.is_empty(),
                }
        };
        self.suites.iter().filter(is_asked_for).filter_map(|suite| suite.client.clone()).collect()
    }

    /// The jobs of a scope in the order in which they begin. Only those whose name contains one of `only`, if there are any.
    pub fn jobs(
        &self,
        scope: Scope,
        executables: Vec<Executable>,
        only: &[String],
    ) -> Result<Vec<Job>, String> {
        for suite in &self.suites {
            if !executables.iter().any(|executable| suite.is_for(executable)) {
                return Err(format!(
                    "plan.toml names {}, and cargo built no such test executable",
                    suite.name
                ));
            }
        }
        let mut tests: Vec<(usize, Job)> = Vec::new();
        for executable in executables {
            let row = self.suites.iter().position(|suite| suite.is_for(&executable));
            let suite = row.map(|row| self.suites[row].clone());
            let Some(arguments) = arguments(scope, &executable, suite.as_ref()) else { continue };
            let slot = suite.as_ref().map_or_else(rest, |suite| suite.slot.clone());
            let name = executable.name.clone();
            let job = Job { name, slot, what: What::Tests { executable, suite, arguments } };
            tests.push((row.unwrap_or(usize::MAX), job));
        }
        tests.sort_by(|left, right| (left.0, &left.1.name).cmp(&(right.0, &right.1.name)));
        let is_in_scope = |command: &&CommandJob| match scope {
            Scope::All => true,
            Scope::Quick => command.quick,
            Scope::Soak => false,
        };
        let commands = self.commands.iter().filter(is_in_scope).map(|command| Job {
            name: command.name.clone(),
            slot: command.slot.clone(),
            what: What::Command(command.clone()),
        });
        let jobs = commands.chain(tests.into_iter().map(|(_, job)| job));
        Ok(jobs.filter(|job| is_asked_for(&job.name, only)).collect())
    }
}

impl Suite {
    fn is_for(&self, executable: &Executable) -> bool {
        let target = executable.name.rsplit("::").next().unwrap_or_default();
        self.name == executable.name || (!executable.is_unit && self.name == target)
    }
}

/// Whether a job is among those that were asked for, by parts of their names. All are, if none was named.
fn is_asked_for(job: &str, only: &[String]) -> bool {
    only.is_empty() || only.iter().any(|part| job.contains(part))
}

/// What a test executable is told to run; none if nothing of it is asked for.
fn arguments(scope: Scope, executable: &Executable, suite: Option<&Suite>) -> Option<Vec<String>> {
    let mut arguments = Vec::new();
    let long = suite.map(|suite| &suite.soak[..]).unwrap_or_default();
    let leave_out_long = |arguments: &mut Vec<String>| {
        // Tests that need a client are ignored where it is not named; all else that is ignored is long.
        if suite.is_some_and(|suite| suite.client.is_some()) {
            arguments.push("--include-ignored".to_owned());
            for part in std::iter::once("soak").chain(long.iter().map(String::as_str)) {
                arguments.extend(["--skip".to_owned(), part.to_owned()]);
            }
        }
    };
    match scope {
        Scope::All => leave_out_long(&mut arguments),
        Scope::Quick => match suite {
            None if executable.is_unit => {}
            Some(suite) if !suite.quick.is_empty() => {
                leave_out_long(&mut arguments);
                arguments.extend(suite.quick.iter().filter(|part| *part != "*").cloned());
            }
            _ => return None,
        },
        Scope::Soak => {
            arguments.push("--include-ignored".to_owned());
            let every_step = suite.map(|suite| &suite.every_step[..]).unwrap_or_default();
            if !every_step.iter().any(|part| part == "*") {
                arguments.push("soak".to_owned());
                arguments.extend(long.iter().chain(every_step).cloned());
            }
        }
    }
    Some(arguments)
}

/// Builds all tests and says where they lie.
pub fn executables(root: &Path, is_release: bool) -> Result<Vec<Executable>, String> {
    let mut cargo = Command::new("cargo");
    // All kinds of target in one go: cargo then resolves features once, and the binary that the end-to-end tests start is
    // built from the same dependencies as the tests.
    cargo.args(["build", "--locked", "--workspace", "--lib", "--bins", "--tests"]);
    cargo.arg("--message-format=json-render-diagnostics");
    if is_release {
        cargo.arg("--release");
    }
    let output = cargo
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error: io::Error| format!("cannot run cargo: {error}"))?;
    if !output.status.success() {
        return Err("the tests do not build".to_owned());
    }
    let mut found = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else { continue };
        if message["reason"] == "compiler-artifact" && message["profile"]["test"] == true {
            found.extend(executable(&message));
        }
    }
    Ok(found)
}

fn executable(message: &Value) -> Option<Executable> {
    let path = PathBuf::from(message["executable"].as_str()?);
    let directory = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    let target = message["target"]["name"].as_str()?;
    let is_unit = message["target"]["kind"][0] != "test";
    let package = directory.file_name()?.to_str()?;
    let name = if is_unit { package.to_owned() } else { format!("{package}::{target}") };
    Some(Executable { name, path, directory, is_unit })
}
