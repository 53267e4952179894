//! What a run found: printed for people, and as JUnit XML for machines.

use std::{
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    job::{JobResult, Outcome, TestResult},
    plan::SlowTest,
};

/// How many of the slowest tests are listed.
const LISTED: usize = 25;

/// A part of the run with a time of its own.
#[derive(Debug)]
pub struct Stage {
    pub name: String,
    pub took: Duration,
}

/// Passed, failed and ignored tests of all jobs.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub passed: usize,
    pub failed: usize,
    pub ignored: usize,
}

impl Counts {
    pub fn of(results: &[JobResult]) -> Counts {
        let mut counts = Counts::default();
        for result in results {
            counts.failed += usize::from(result.trouble.is_some());
            for test in &result.tests {
                match test.outcome {
                    Outcome::Passed => counts.passed += 1,
                    Outcome::Failed(_) => counts.failed += 1,
                    Outcome::Ignored => counts.ignored += 1,
                }
            }
        }
        counts
    }
}

/// One line for a job that ended, and what its failed tests printed.
pub fn job_line(result: &JobResult) -> String {
    let counts = Counts::of(std::slice::from_ref(result));
    let word = if result.has_failed() { "FAILED" } else { "ok" };
    let mut text = format!(
        "{word:<6} {:>6.1} s  {:<28} {} passed, {} failed, {} ignored\n",
        result.took.as_secs_f64(),
        result.job,
        counts.passed,
        counts.failed,
        counts.ignored
    );
    for test in &result.tests {
        if let Outcome::Failed(printed) = &test.outcome {
            _ = writeln!(text, "\n---- {} ----\n{}", test.name, printed.trim_end());
        }
    }
    if let Some(trouble) = &result.trouble {
        _ = writeln!(text, "\n---- {} ----\n{}", result.job, trouble.trim_end());
    }
    text
}

/// The times at the end: stages, and the slowest tests.
pub fn times(stages: &[Stage], results: &[JobResult]) -> String {
    let mut text = String::from("\nStages\n");
    for stage in stages {
        _ = writeln!(text, "  {:>7.1} s  {}", stage.took.as_secs_f64(), stage.name);
    }
    let all: Duration = stages.iter().map(|stage| stage.took).sum();
    _ = writeln!(text, "  {:>7.1} s  all of it ({:.1} min)", all.as_secs_f64(), all.as_secs_f64() / 60.0);
    _ = writeln!(text, "\nThe {LISTED} slowest tests");
    let mut tests: Vec<&TestResult> = results.iter().flat_map(|result| &result.tests).collect();
    tests.sort_by_key(|test| std::cmp::Reverse(test.took));
    for test in tests.iter().take(LISTED) {
        _ = writeln!(text, "  {:>7.1} s  {}", test.took.as_secs_f64(), test.name);
    }
    text
}

/// The tests that took longer than `limit` of a machine without other load and are not on the list of those that may.
pub fn too_slow<'a>(
    results: &'a [JobResult],
    may_be_slow: &[SlowTest],
    limit: Duration,
    slowdown: impl Fn(&JobResult) -> f64,
) -> Vec<&'a TestResult> {
    let mut found = Vec::new();
    for result in results {
        let limit = limit.mul_f64(slowdown(result));
        let is_listed = |test: &TestResult| may_be_slow.iter().any(|slow| slow.test == test.name);
        let has_passed = |test: &TestResult| test.outcome == Outcome::Passed;
        // Not a command, such as a linter: that takes as long as there is code.
        let is_test = |test: &TestResult| test.name.starts_with(&format!("{}::", result.job));
        let is_too_slow =
            |test: &&TestResult| is_test(test) && has_passed(test) && test.took > limit && !is_listed(test);
        found.extend(result.tests.iter().filter(is_too_slow));
    }
    found
}

/// Writes `junit.xml` into `directory`; answers its path.
pub fn write_junit(directory: &Path, results: &[JobResult]) -> io::Result<PathBuf> {
    fs::create_dir_all(directory)?;
    let path = directory.join("junit.xml");
    fs::write(&path, junit(results))?;
    Ok(path)
}

fn junit(results: &[JobResult]) -> String {
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for result in results {
        let counts = Counts::of(std::slice::from_ref(result));
        _ = writeln!(
            xml,
            "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3}\">",
            escaped(&result.job),
            result.tests.len(),
            counts.failed - usize::from(result.trouble.is_some()),
            usize::from(result.trouble.is_some()),
            counts.ignored,
            result.took.as_secs_f64()
        );
        for test in &result.tests {
            let (name, job) = (escaped(&test.name), escaped(&result.job));
            _ = write!(
                xml,
                "    <testcase classname=\"{job}\" name=\"{name}\" time=\"{:.3}\"",
                test.took.as_secs_f64()
            );
            _ = match &test.outcome {
                Outcome::Passed => writeln!(xml, "/>"),
                Outcome::Ignored => writeln!(xml, "><skipped/></testcase>"),
                Outcome::Failed(printed) => {
                    writeln!(xml, "><failure>{}</failure></testcase>", escaped(printed))
                }
            };
        }
        if let Some(trouble) = &result.trouble {
            _ = writeln!(xml, "    <system-err>{}</system-err>", escaped(trouble));
        }
        xml.push_str("  </testsuite>\n");
    }
    xml.push_str("</testsuites>\n");
    xml
}

/// XML has no way at all to write most control characters, so they are left out.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for one in text.chars() {
        match one {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(one),
            one if one.is_control() => {}
            one => escaped.push(one),
        }
    }
    escaped
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]
mod tests {
    use std::time::Instant;

    use super::*;

    fn result(outcome: Outcome, seconds: u64) -> JobResult {
        let took = Duration::from_secs(seconds);
        JobResult {
            job: "store".to_owned(),
            began: Instant::now(),
            took,
            tests: vec![TestResult { name: "store::keeps_<what>".to_owned(), took, outcome }],
            skipped: None,
            trouble: None,
        }
    }

    #[test]
    fn a_test_over_the_limit_is_found_unless_it_is_listed_or_the_machine_was_busy() {
        let results = [result(Outcome::Passed, 61)];
        let limit = Duration::from_secs(60);
        assert_eq!(too_slow(&results, &[], limit, |_| 1.0).len(), 1);
        assert_eq!(too_slow(&results, &[], limit, |_| 1.5).len(), 0);
        let listed = [SlowTest { test: "store::keeps_<what>".to_owned(), reason: String::new() }];
        assert_eq!(too_slow(&results, &listed, limit, |_| 1.0).len(), 0);
    }

    #[test]
    fn what_failed_is_told_in_words_and_in_xml() {
        let results = [result(Outcome::Failed("it said \"no\" & <left>\u{1b}".to_owned()), 1)];
        assert!(job_line(&results[0]).contains("it said \"no\" & <left>"));
        let xml = junit(&results);
        assert!(xml.contains("<failure>it said &quot;no&quot; &amp; &lt;left&gt;</failure>"), "{xml}");
        assert!(xml.contains("failures=\"1\" errors=\"0\""), "{xml}");
        assert_eq!(Counts::of(&results), Counts { passed: 0, failed: 1, ignored: 0 });
    }
}
