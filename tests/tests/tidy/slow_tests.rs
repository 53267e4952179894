//! The list of tests that may take longer than a minute, in the plan of the test runner. The runner fails a slow test that is not on
//! it; here the list itself is checked, so that it never outlives its reasons.

use std::fs;

use toml::{Table, Value};

use crate::{
    source::{Source, sources},
    violation::{Violation, must_hold, root},
};

const PLAN: &str = "tests/runner/plan.toml";

/// Shorter than this is no reason.
const SHORTEST_REASON: usize = 20;

fn unjustified(plan: &str, sources: &[Source]) -> Vec<Violation> {
    let plan: Table = plan.parse().unwrap_or_else(|why| panic!("{PLAN}: {why}"));
    let listed = plan.get("slow").and_then(Value::as_array).into_iter().flatten();
    let mut found = Vec::new();
    for slow in listed {
        let text = |key: &str| slow.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (test, reason) = (text("test"), text("reason"));
        let mut complain = |what: String| found.push(Violation { path: PLAN.to_owned(), line: 1, what });
        if reason.len() < SHORTEST_REASON {
            complain(format!("{test} has no reason to be slow"));
        }
        let name = test.rsplit("::").next().unwrap_or_default();
        let is_defined =
            |source: &Source| source.all.windows(2).any(|pair| pair[0].text == "fn" && pair[1].text == name);
        if !sources.iter().any(is_defined) {
            complain(format!("{test} is on the list of slow tests, and there is no such test"));
        }
    }
    found
}

#[test]
fn every_slow_test_has_a_reason() {
    let plan = fs::read_to_string(root().join(PLAN)).unwrap();
    must_hold("every slow test has a reason", unjustified(&plan, sources()));
}

mod planted {
    use super::*;

    fn complaints(plan: &str) -> usize {
        let source = Source::parse("tests/tests/machines/steps.rs", "//! S.\n#[test]\nfn dies() {}\n");
        unjustified(plan, &[source]).len()
    }

    #[test]
    fn a_slow_test_without_a_reason_or_that_is_gone_is_found() {
        let reason = "reason = \"boots a guest six times under emulation\"";
        assert_eq!(complaints(&format!("[[slow]]\ntest = \"machines::steps::dies\"\n{reason}")), 0);
        assert_eq!(complaints("[[slow]]\ntest = \"machines::steps::dies\"\nreason = \"slow\""), 1);
        assert_eq!(complaints(&format!("[[slow]]\ntest = \"machines::steps::died\"\n{reason}")), 1);
        assert_eq!(complaints("[slots]\nrest = 1"), 0);
    }
}
